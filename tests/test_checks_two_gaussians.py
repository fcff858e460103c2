"""Metrics of two normal classes, the leak of a data-dependent noise scale, and the bounds on the private midpoint."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from scipy.stats import binomtest, ks_2samp, norm
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_score, recall_score

from checks import known_population, private_threshold, threshold_bounds
from checks import two_gaussians as pop
from helpers.erm.midpoint import MidpointClassifier
from helpers.privacy import gaussian_delta, gaussian_mu


def hockey_stick(epsilon, shift, sd, other_sd):
    """By brute force: the integral of the positive part, in both directions."""

    def one_way(a, b):
        def excess(x):
            return max(norm.pdf(x, *a) - math.exp(epsilon) * norm.pdf(x, *b), 0.0)

        ends = 40 * max(sd, other_sd) + abs(shift)
        return integrate.quad(excess, -ends, ends, points=np.linspace(-ends, ends, 79)[1:-1], limit=1000)[0]

    return max(one_way((0, sd), (shift, other_sd)), one_way((shift, other_sd), (0, sd)))


# The population


def test_metrics_are_those_of_scikit_learn_on_a_sample():
    people = pop.Population(-0.5, 1.5, 1.0, 0.7, ratio=6.0)
    x, y = people.sample(400_000, np.random.default_rng(0))
    predicted = (x >= 0.4).astype(int)
    exact = people.metrics(0.4)
    for name, function in {
        "recall": recall_score,
        "precision": precision_score,
        "f1": f1_score,
        "balanced_accuracy": balanced_accuracy_score,
    }.items():
        assert float(exact[name]) == pytest.approx(function(y, predicted), abs=0.006)
    cost = np.mean(np.where(y == 1, 3.0, 1.0) * (predicted != y))
    assert float(people.metrics(0.4, 3.0)["weighted_error"]) == pytest.approx(cost, abs=0.006)


def test_simulated_metrics_agree():
    people = pop.Population(ratio=20.0)
    counted = known_population.simulated_metrics(people, 0.0, 1_200_000, np.random.default_rng(1))
    assert all(abs(float(people.metrics(0.0)[name]) - value) < 0.007 for name, value in counted.items())


@given(st.floats(0.3, 5), st.floats(0.5, 200), st.floats(0.2, 50))
def test_the_bayes_threshold_is_the_best(separation, ratio, weight):
    people = pop.Population(0.0, separation, ratio=ratio)
    best = pop.Population(0.0, separation, ratio=ratio / weight).bayes_threshold()
    found = people.optimal_threshold("weighted_error", weight)
    errors = people.metrics(np.array([best, found]), weight)["weighted_error"]
    assert errors[0] <= errors[1] + 1e-12
    assert errors[1] <= errors[0] + 1e-9
    assert float(people.gamma(best)) == pytest.approx(0.5 + math.log(ratio / weight) / separation**2)


@pytest.mark.parametrize("metric", ["f1", "g_mean", "balanced_accuracy"])
def test_optimal_thresholds_beat_a_fine_grid(metric):
    for people in (pop.Population(ratio=30.0), pop.Population(sd1=2.5, ratio=4.0), pop.Population(sd0=3.0, ratio=0.3)):
        grid = np.linspace(-12, 12, 50_001)
        best = people.metrics(people.optimal_threshold(metric))[metric]
        assert best >= people.metrics(grid)[metric].max() - 1e-9


@pytest.mark.parametrize("sd0", [0.5, 1.0, 2.0, 3.7])
def test_the_best_g_mean_is_where_both_rates_fall_alike(sd0):
    """A point next to the best one on the grid must not end the search before it."""
    people = pop.Population(sd0=sd0, ratio=5.0)

    def slope(point):
        rare, common = stats.norm(people.mean1, people.sd1), stats.norm(people.mean0, sd0)
        return common.logpdf(point) - common.logcdf(point) - rare.logpdf(point) + rare.logsf(point)

    assert people.optimal_threshold("g_mean") == pytest.approx(optimize.brentq(slope, -1, 1), abs=1e-6)


def test_weight_equal_to_the_ratio_gives_the_midpoint():
    assert pop.Population(ratio=37.0).optimal_threshold("weighted_error", 37.0) == pytest.approx(0.0, abs=1e-6)


def test_noise_on_the_threshold_widens_both_classes():
    people, draws = pop.Population(ratio=9.0), np.random.default_rng(2).normal(0.3, 0.8, 400_000)
    tpr, fpr = people.rates(0.3, 0.8)
    many = people.rates(draws)
    assert tpr == pytest.approx(many[0].mean(), abs=0.002)
    assert fpr == pytest.approx(many[1].mean(), abs=0.002)
    noisy = people.noisy_metrics(0.3, 0.8)
    assert noisy["recall"] == pytest.approx(tpr, abs=1e-6)
    assert noisy["f1"] == pytest.approx(people.metrics(draws)["f1"].mean(), abs=0.002)


def test_printed_formulas_are_wrong_where_the_chapter_says_so():
    people, gammas = pop.Population(ratio=20.0), np.linspace(0, 1, 21)
    printed, exact = known_population.printed_metrics(gammas, 2.0, 20.0), people.metrics(people.threshold(gammas))
    assert np.allclose(printed["balanced_accuracy"], exact["balanced_accuracy"])
    assert (printed["recall"] > 1).all()
    assert np.allclose(printed["recall"], 21 * exact["recall"])
    assert (np.abs(printed["f1"] - exact["f1"])[5:] > 0.01).all()
    assert (printed["precision"] < exact["precision"]).all()


# Privacy


@settings(max_examples=10)  # each integrates numerically
@given(st.floats(0, 2), st.floats(-2, 2), st.floats(0.7, 1.4))
def test_delta_of_two_gaussians_against_integration(epsilon, shift, other_sd):
    found = private_threshold.two_gaussian_delta(epsilon, shift, 1.0, other_sd)
    assert found == pytest.approx(hockey_stick(epsilon, shift, 1.0, other_sd), abs=2e-6)


@given(st.floats(0.01, 3), st.floats(0.05, 3))
def test_equal_variances_are_the_gaussian_mechanism(epsilon, shift):
    assert private_threshold.two_gaussian_delta(epsilon, shift, 1.0, 1.0) == pytest.approx(
        gaussian_delta(epsilon, shift), rel=1e-9
    )
    nearly = private_threshold.two_gaussian_delta(epsilon, shift, 1.0, 1.0 + 1e-7)
    assert nearly == pytest.approx(gaussian_delta(epsilon, shift), abs=1e-6)


@pytest.mark.parametrize(("n1", "low", "high"), [(10, 7.0e-3, 7.2e-3), (20, 1.1e-3, 1.2e-3), (100, 7.1e-6, 7.3e-6)])
def test_a_flipped_label_costs_what_the_notes_say(n1, low, high):
    full = private_threshold.flip_delta(20 * n1, n1, 0.5, 1e-5)["minority"]
    assert low < full < high
    assert private_threshold.flip_delta(20 * n1, n1, 0.5, 1e-5, change="width")["minority"] < full


def test_the_width_alone_breaks_the_claim_for_small_minorities():
    assert private_threshold.flip_delta(400, 20, 0.5, 1e-5, change="width")["minority"] > 1e-5
    assert private_threshold.flip_delta(400, 20, 0.5, 1e-5)["midpoint"] > 2e-5


def test_the_means_can_move_as_far_as_flip_delta_says():
    values = np.array([1.0, 1.0, 1.0, -1.0])
    assert np.mean(values[:3]) - np.mean(values) == pytest.approx(2 / 4)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 1)), min_size=2, max_size=8),
    st.floats(-1, 1),
    st.integers(0, 1),
)
def test_sums_and_scaled_counts_move_by_the_stated_sensitivity(records, value, label):
    def vector(rows, unit, both):
        sums = [sum(x for x, y in rows if y == b) for b in (0, 1)]
        totals = [sum(y == b for _, y in rows) for b in (0, 1)]
        return np.array(sums + [unit * t for t in (totals if both else totals[1:])])

    replaced = [(value, label), *records[1:]]
    moved = vector(replaced, math.sqrt(2), False) - vector(records, math.sqrt(2), False)
    assert np.linalg.norm(moved) <= 2 + 1e-9
    removed = vector(records[1:], 1.0, True) - vector(records, 1.0, True)
    assert np.linalg.norm(removed) <= math.sqrt(2) + 1e-9


def test_private_counts_first_order_formula():
    n0, n1 = 4000, 400
    X, y = np.repeat([-1.0, 1.0], [n0, n1])[:, None], np.repeat([0, 1], [n0, n1])
    model = MidpointClassifier(4.0, 1.0)
    found = np.std([model.fit(X, y).threshold_ for _ in range(1500)])
    expected = private_threshold.private_counts_sd(n0, n1, -1, 1, 4.0, 1 / gaussian_mu(1.0, 1e-5))
    assert found == pytest.approx(expected, rel=0.11)  # six standard deviations


# Bounds


@pytest.mark.parametrize("ratio", [1, 16, 130])
def test_upper_bounds_cover_with_20000_draws(ratio):
    n0, n1, beta, draws = 520, 520 // ratio, 0.1, 20_000
    rng, radius = np.random.default_rng(6), pop.radius_for(1.0, 1.0, 1040, 0.1)
    multiplier = math.sqrt(2 * math.log(1.25e5)) / 0.5
    sampling, noise = pop.midpoint_sd(n0, n1, 1.0, radius, multiplier)
    means = [
        threshold_bounds.clipped_mean_errors(n, 1.0, radius, mean, draws, rng) for n, mean in ((n0, -1.0), (n1, 1.0))
    ]
    clean = (means[0] + means[1]) / 2
    errors = np.abs(clean + noise * rng.standard_normal(draws))
    assert clean.std() == pytest.approx(sampling, rel=0.03)
    assert errors.std() > 0
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(math.hypot(sampling, noise), rel=0.03)
    for version in ("printed", "corrected"):
        missed = int(np.sum(errors > threshold_bounds.upper_bound(n0, n1, 1.0, radius, multiplier, beta, version)))
        assert binomtest(missed, draws).proportion_ci(0.999, "exact").high <= beta / 2
    for version, expected in (("printed", 2 * norm.sf(2 * norm.isf(beta / 2))), ("corrected", beta)):
        far = int(np.sum(np.abs(clean) >= threshold_bounds.lower_bound(n0, n1, 1.0, beta, version)))
        interval = binomtest(far, draws).proportion_ci(0.999, "exact")
        assert interval.low <= expected <= interval.high


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.floats(1e-6, 0.999), st.floats(0.01, 100))
def test_the_corrected_upper_bound_is_narrower(n0, n1, beta, multiplier):
    arguments = n0, n1, 1.0, 3.0, multiplier, beta
    assert threshold_bounds.upper_bound(*arguments) < threshold_bounds.upper_bound(*arguments, "printed")


@given(st.integers(1, 5000), st.floats(1e-4, 0.999))
def test_the_radius_leaves_a_quarter_of_beta(n, beta):
    t = pop.radius_for(0.0, 1.0, n, beta)
    assert -math.expm1(n * math.log1p(-2 * norm.sf(t))) <= beta / 4 + 1e-12


def test_no_estimator_beats_the_average_miss():
    rng, z = np.random.default_rng(7), norm.isf(0.05)
    truth = rng.uniform(-10, 10, 400_000)
    x = truth + rng.standard_normal(truth.size)
    bound = threshold_bounds.least_average_miss(0.1, 10.0)
    best = np.clip(x, z - 10, 10 - z)
    assert np.mean(np.abs(best - truth) >= z) == pytest.approx(bound, abs=0.002)
    for estimate in (x, 0 * x, 0.9 * x, np.round(x)):
        assert np.mean(np.abs(estimate - truth) >= z) > bound - 0.002
    assert threshold_bounds.least_average_miss(0.1, 1e5) == pytest.approx(0.1, abs=1e-5)


def test_clipping_is_real():
    errors = threshold_bounds.clipped_mean_errors(50, 1.0, 1.0, 1.0, 4000, np.random.default_rng(8))
    exact = integrate.quad(lambda x: np.clip(x, -1, 1) * norm.pdf(x, 1), -9, 11, points=[-1, 1])[0] - 1
    assert errors.mean() == pytest.approx(exact, abs=0.005)
    assert exact < -0.3


def test_precision_does_not_underflow():
    """Far out the few records called 1 are nearly all right, although both rates are below any float."""
    values = pop.Population(-1.0, 1.0, ratio=20.0).metrics(np.array([3.0, 20.0, 40.0]))["precision"]
    assert values[0] < 1
    assert values[1:] == pytest.approx([1.0, 1.0])


def test_an_unknown_variant_is_refused():
    with pytest.raises(KeyError, match="both"):
        private_threshold.flip_delta(5, 5, 0.5, 1e-5, change="both")
    with pytest.raises(ValueError, match="counts must be one of"):
        pop.released_midpoints([0, 0], [5, 5], 1.0, 1.0, "printed", 9, None)


@pytest.mark.parametrize(("sd1", "limit"), [(0.5, 0.0), (1.0, 1.0), (2.0, 1.0)])
def test_metrics_at_infinite_thresholds_are_limits(sd1, limit):
    people = pop.Population(sd1=sd1, ratio=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = people.metrics(np.array([-np.inf, np.inf, 1e200]))
    assert values["precision"].tolist() == pytest.approx([0.25, limit, limit])
    assert values["f1"].tolist() == pytest.approx([2 / 5, 0, 0])
    assert values["weighted_error"].tolist() == pytest.approx([0.75, 0.25, 0.25])
    assert float(people.metrics(30.0)["precision"]) == pytest.approx(limit, abs=1e-6)


@given(st.floats(0.2, 5), st.floats(0.3, 4), st.floats(0.01, 2000), st.floats(0.1, 50))
def test_the_least_error_is_that_of_a_fine_grid_or_of_an_end(sd1, separation, ratio, weight):
    people = pop.Population(0.0, separation, sd1=sd1, ratio=ratio)
    grid = np.concatenate([[-np.inf], np.linspace(-30, 30, 6001), [np.inf]])
    best = people.optimal_threshold("weighted_error", weight)
    least = float(people.metrics(best, weight)["weighted_error"])
    assert least <= people.metrics(grid, weight)["weighted_error"].min() + 1e-12
    assert math.isfinite(people.optimal_threshold("balanced_accuracy"))


def test_no_threshold_is_best_for_a_narrow_minority_under_a_large_ratio():
    """Its density is nowhere the larger one, so calling nothing 1 makes the fewest errors."""
    assert pop.Population(sd1=0.5, ratio=1000.0).optimal_threshold("weighted_error") == math.inf
    assert pop.Population(sd1=0.5, ratio=20.0).optimal_threshold("weighted_error") == pytest.approx(1.174, abs=1e-3)
    assert pop.Population(sd1=2.0, ratio=0.001).optimal_threshold("weighted_error") == -math.inf
    assert pop.Population(sd1=0.5, ratio=1000.0).optimal_threshold("f1") == pytest.approx(1.2948, abs=1e-3)


def test_standard_errors_of_the_simulation():
    people, rng = pop.Population(ratio=5.0), np.random.default_rng(9)
    runs = [known_population.simulated_metrics(people, 0.2, 4000, rng) for _ in range(600)]
    for name, error in known_population.simulation_errors(people, 0.2, 4000).items():
        assert np.std([run[name] for run in runs]) == pytest.approx(error, rel=0.12)


@pytest.mark.parametrize("counts", ["private", "public"])
def test_released_midpoints_are_those_of_the_classifier(counts):
    """Few minority records, so that clipping and the least count take part; p-values that chance does not reach."""
    X, y = np.repeat([-1.0, 1.0], [400, 12])[:, None], np.repeat([0, 1], [400, 12])
    model = MidpointClassifier(4.0, 0.8, counts=counts)
    single = [model.fit(X, y).threshold_ for _ in range(2000)]
    noise = 1 / gaussian_mu(0.8, 1e-5)
    many = pop.released_midpoints([-400, 12], [400, 12], 4.0, noise, counts, 20_000, np.random.default_rng(11))
    assert np.abs(many).max() <= 4
    assert ks_2samp(single, many).pvalue > 1e-8
    other = pop.released_midpoints([-400, 12], [400, 12], 4.0, 2 * noise, counts, 20_000, np.random.default_rng(11))
    assert ks_2samp(single, other).pvalue < 1e-8


def test_a_changed_label_alone_leaks_too():
    """Between the width alone and the changed record, and by brute force over values at the ends."""
    for n1 in (10, 20):
        parts = [private_threshold.flip_delta(20 * n1, n1, 0.5, 1e-5, change=c) for c in ("width", "label", "record")]
        assert parts[0]["midpoint"] < parts[1]["midpoint"] < parts[2]["midpoint"]
        assert parts[1]["midpoint"] > 2e-5
    moves = []
    for others0, others1, value in itertools.product((-1.0, 1.0), repeat=3):
        before = (others0 + (4 * others1 + value) / 5) / 2
        after = ((20 * others0 + value) / 21 + others1) / 2
        moves.append(abs(after - before))
    assert max(moves) == pytest.approx(1 / 5)
    multiplier = math.sqrt(2 * math.log(1.25e5)) / 0.5
    sd = [pop.midpoint_sd(*n, 0.0, 1.0, multiplier)[1] for n in ((20, 5), (21, 4))]
    expected = private_threshold.two_gaussian_delta(1.0, max(moves), *sd)
    assert private_threshold.flip_delta(20, 5, 0.5, 1e-5, change="label")["midpoint"] == pytest.approx(expected)


@pytest.mark.parametrize("separation", [1.0, 2.0, 3.0])
def test_f1_wants_less_than_one_half_only_below_the_turning_ratio(separation):
    turning = 1 / (2 * norm.cdf(separation / 2) - 1)
    for factor in (0.9, 0.99, 1.01, 1.1):
        people = pop.Population(-separation / 2, separation / 2, ratio=factor * turning)
        assert (people.optimal_threshold("f1") < 0) == (factor < 1)


@pytest.mark.parametrize(("ratio", "separation"), [(1.0, 2.0), (5.0, 1.0), (20.0, 2.0), (130.0, 3.0)])
def test_best_f1_satisfies_its_implicit_formula(ratio, separation):
    """gamma = 1/2 + log(r F/(2 - F))/separation^2 at the maximum F of F1."""
    people = pop.Population(-separation / 2, separation / 2, ratio=ratio)
    best = people.optimal_threshold("f1")
    highest = float(people.metrics(best)["f1"])
    expected = 0.5 + np.log(ratio * highest / (2 - highest)) / separation**2
    assert float(people.gamma(best)) == pytest.approx(expected, abs=1e-4)
