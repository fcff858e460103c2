"""Gaps by hand and by fairlearn, bounds against every change that they speak of, reaches against fitted models."""

import itertools
import math

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import kstest
from sklearn.metrics import accuracy_score

from checks import fairness
from checks.fairness import LEVELS, NOTIONS, Gap, load_members
from helpers import data, erm
from helpers.data.catalogue import ham10000_metadata

RNG = np.random.default_rng


def some_records(seed, n=9):
    """Scores (some near 0), labels and members, both groups with both labels."""
    rng = RNG(seed)
    y = np.r_[0, 1, 0, 1, rng.integers(0, 2, n - 4)]
    member = np.r_[True, True, False, False, rng.random(n - 4) < 0.4]
    return rng.normal(size=n), y, member


def probability(events, among):
    return events[among].mean()


# --------------------------------------------------------------------------------------------------- the gap


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_the_difference_of_two_probabilities(seed):
    scores, y, member = some_records(seed)
    positive, everyone = scores > 0, np.ones(len(y), bool)
    by_hand = {
        "demographic_parity": (positive, everyone),
        "equal_opportunity": (positive, y == 1),
        "false_positive_rate": (positive, y == 0),
        "accuracy_parity": (positive == (y == 1), everyone),
    }
    for notion, (events, counted) in by_hand.items():
        expected = probability(events, counted & member) - probability(events, counted)
        assert Gap(y, member, notion).of(scores) == pytest.approx(expected, abs=1e-15)


RATES = {
    "demographic_parity": selection_rate,
    "equal_opportunity": true_positive_rate,
    "false_positive_rate": false_positive_rate,
    "accuracy_parity": accuracy_score,
}


@pytest.mark.parametrize("notion", NOTIONS)
def test_gaps_are_those_of_fairlearn(notion):
    """A group's rate less that over all, for three groups at once."""
    rng = RNG(6)
    scores, y, groups = rng.normal(size=60), np.arange(60) % 2, rng.integers(0, 3, 60)
    frame = MetricFrame(metrics=RATES[notion], y_true=y, y_pred=scores > 0, sensitive_features=groups)
    gaps = [Gap(y, groups == k, notion).of(scores) for k in range(3)]
    np.testing.assert_allclose(gaps, frame.by_group - frame.overall, rtol=0, atol=1e-14)
    assert max(gaps) - min(gaps) == pytest.approx(frame.difference(), abs=1e-14)


def test_a_rate_of_nobody_is_no_gap_here_and_zero_in_fairlearn():
    """As the module says; if fairlearn changes this, so does the module's text."""
    y, predicted, groups = np.array([1, 0, 1, 0]), np.array([1, 0, 1, 1]), np.array(list("aabb"))
    y[2:] = 0  # group b has no positives
    frame = MetricFrame(metrics=true_positive_rate, y_true=y, y_pred=predicted, sensitive_features=groups)
    assert frame.by_group.tolist() == [1.0, 0.0]
    assert math.isnan(Gap(y, groups == "b", "equal_opportunity").of(predicted - 0.5))


def test_a_score_of_zero_is_a_negative_prediction():
    assert Gap([1, 1], [True, False]).of(np.array([0.0, 1.0])) == -0.5


def test_many_models_at_once():
    scores, y, member = some_records(0)
    gap = Gap(y, member, "equal_opportunity")
    together = gap.of(np.array([scores, -scores]))
    assert together == pytest.approx([gap.of(scores), gap.of(-scores)])


@pytest.mark.parametrize("notion", NOTIONS)
def test_gaps_of_all_groups_average_to_zero(notion):
    scores, y, _ = some_records(3, n=30)
    groups = np.arange(30) % 3
    gaps = [Gap(y, groups == k, notion) for k in range(3)]
    shares = np.array([gap.sizes[0] for gap in gaps]) / gaps[0].counted.sum()
    assert shares @ [gap.of(scores) for gap in gaps] == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(
    ("y", "member", "notion"),
    [([1, 0], [False, False], "demographic_parity"), ([1, 0], [True, True], "accuracy_parity"),
     ([0, 1], [True, False], "equal_opportunity"), ([1, 0], [True, False], "false_positive_rate")],
)  # fmt: skip
def test_an_absent_group_has_no_gap_and_no_bound(y, member, notion):
    gap, scores = Gap(y, member, notion), np.array([0.2, -0.1])
    values = [gap.of(scores), *gap.interval(scores, 0.1), gap.fraction(scores, 0.1)]
    values.append(gap.expected_flips(scores, 0.1))
    assert np.isnan(values).all()
    drawn = fairness.released_gaps({"absent": gap}, [1.0], [[0.2], [-0.1]], 0.1, n_models=3, rng=RNG(0))
    assert np.isnan(drawn["absent"]).all()


# -------------------------------------------------------------------------------------------------- its bounds


@pytest.mark.parametrize("notion", NOTIONS)
def test_what_is_feasible_is_what_predictions_attain(notion):
    _, y, member = some_records(1)
    gap = Gap(y, member, notion)
    attained = [gap.of(np.array(signs)) for signs in itertools.product((-1, 1), repeat=len(y))]
    assert gap.feasible == (min(attained), max(attained))
    share = (gap.counted & member).sum() / gap.counted.sum()
    assert gap.feasible == pytest.approx((share - 1, 1 - share), abs=1e-15)


@given(
    records=st.lists(st.tuples(st.floats(-2, 2), st.integers(0, 1), st.booleans()), min_size=1, max_size=30),
    notion=st.sampled_from(NOTIONS),
    reach=st.one_of(st.just(math.inf), st.floats(0, 3)),
    slack=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_intersecting_with_what_is_feasible_loses_no_gap_of_any_model(records, notion, reach, slack, seed):
    """Against the interval as it was before: never outside the feasible range, never wider, no true gap lost."""
    scores, y, member = (np.array(column) for column in zip(*records, strict=True))
    gap = Gap(y, member, notion)
    least, most = gap.feasible
    low, high = gap.interval(scores, reach, slack)
    if not all(gap.sizes):
        assert np.isnan([least, most, low, high]).all()
        return
    assert least <= low <= high <= most
    assert 0 <= gap.width_share(low, high) <= 1
    change = np.where(gap.events(scores), -1.0, 1.0) * gap.coefficients * (np.abs(scores) <= reach)
    further = slack * np.abs(gap.coefficients).sum()
    wide_low, wide_high = gap.of(scores) + np.array([np.minimum(change, 0).sum(), np.maximum(change, 0).sum()])
    assert (low, high) == pytest.approx((max(wide_low - further, least), min(wide_high + further, most)), abs=1e-12)
    rng = RNG(seed)
    anywhere = rng.normal(size=(20, len(y)))  # models without a reach: some gaps are in the wider interval
    near = scores + np.clip(reach, 0, 5) * rng.uniform(-1, 1, (20, len(y)))
    truths = np.array([gap.of(one) for one in (*anywhere, *near)])
    in_wide = (wide_low - further <= truths) & (truths <= wide_high + further)
    # With no tolerance: in one order of summation, rounding keeps what is at most something else at most that.
    assert ((low <= truths) & (truths <= high))[in_wide].all()
    assert ((low <= truths) & (truths <= high))[20:].all()


def test_an_interval_of_few_records_is_no_wider_than_trivial():
    """200 records, two features, epsilon 1: all scores are within reach of 0, and the slack would lead beyond."""
    rng = RNG(0)
    X, member = rng.normal(size=(200, 2)) / 4, np.arange(200) < 80
    y = (rng.random(200) < expit(5 * X[:, 0])).astype(int)
    gap, shares = Gap(y, member), []
    assert gap.feasible == pytest.approx((-0.6, 0.6))
    for seed in range(20):
        settings = {"regularization": 0.01, "fit_intercept": False, "radius": 1.0, "random_state": seed}
        model = erm.OutputPerturbationClassifier(1.0, delta=1e-5, **settings).fit(X, y)
        reach = fairness.output_reach(np.linalg.norm(X, axis=1), model.noise_scale_)
        low, high = gap.interval(model.decision_function(X), reach, fairness.SLACK)
        assert gap.feasible[0] <= low <= high <= gap.feasible[1]
        shares.append(gap.width_share(low, high))
    assert max(shares) == 1.0  # which says that nothing is known


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_the_interval_is_exactly_what_models_within_reach_attain(notion, seed):
    scores, y, member = some_records(seed)
    gap, reach = Gap(y, member, notion), RNG(seed + 100).uniform(0, 1.5, len(y))
    reach[:4] = np.abs(scores[:4]) * [1.0, 0.99, 1.01, 1.0]  # at the edge, and on both sides of it
    near = np.flatnonzero(np.abs(scores) <= reach)
    attained = []
    for signs in itertools.product((-1, 1), repeat=len(near)):
        moved = scores.copy()
        moved[near] = np.array(signs) * 1e-9  # within reach of the score, on either side of 0
        attained.append(gap.of(moved))
    assert gap.interval(scores, reach) == pytest.approx((min(attained), max(attained)), abs=1e-12)
    change = max(abs(value - gap.of(scores)) for value in attained)
    assert change <= gap.fraction(scores, reach) + 1e-12
    assert gap.fraction(scores, reach) <= gap.printed_fraction(scores, reach) + 1e-12
    assert gap.printed_fraction(scores, reach) <= gap.printed(scores, reach) + 1e-12


def test_bounds_of_a_case_computed_by_hand():
    # Group: scores .1 and 2; the others: -.2 and -4. Reach .3 covers the first of each.
    gap = Gap([1, 1, 0, 0], [True, True, False, False])
    scores = np.array([0.1, 2.0, -0.2, -4.0])
    assert gap.of(scores) == 0.5
    assert gap.interval(scores, 0.3) == pytest.approx((0.0, 0.5))  # both changes lower the gap, by 1/4 each
    assert gap.fraction(scores, 0.3) == pytest.approx(0.5)  # (1 - 1/2) (1/2 + 1/2)
    assert gap.printed_fraction(scores, 0.3) == pytest.approx(1.0)  # 1/2 + 2/4
    chi = (1 / 0.1 + 1 / 2) / 2 + (1 / 0.1 + 1 / 2 + 1 / 0.2 + 1 / 4) / 4
    assert gap.printed(scores, 0.3) == pytest.approx(0.3 * chi)
    assert gap.interval(scores, 0.3, slack=0.1) == pytest.approx((-0.1, 0.5))  # .1 times 2 (1 - 1/2), and no gap is .6
    assert gap.width_share(-0.1, 0.5) == pytest.approx(0.6)
    quarter = Gap([1, 1, 0, 0], [True, False, False, False])
    assert quarter.interval(scores, 0.0, slack=0.1) == pytest.approx((0.5 - 0.15, 0.5 + 0.15))  # 2 (1 - 1/4)


def test_the_printed_bound_is_infinite_at_a_score_of_zero():
    gap = Gap([1, 0], [True, False])
    assert gap.printed(np.array([0.0, 1.0]), 0.1) == math.inf
    assert gap.printed(np.array([0.0, 1.0]), 0.0) == 0.0


def test_an_infinite_reach_allows_every_gap_and_no_other():
    gap, scores = Gap([1, 0, 1, 0], [True, False, False, False]), np.array([0.3, -0.2, 0.1, -5.0])
    for reach in (math.inf, np.full(4, math.inf)):
        assert gap.interval(scores, reach) == pytest.approx((-0.75, 0.75))  # all of one side and none of the other
        assert gap.fraction(scores, reach) == pytest.approx(1.5)
    assert gap.printed(scores, math.inf) == math.inf


def test_expected_flips_against_drawn_models():
    rng = RNG(1)
    rows, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    member, w, scale = rng.random(300) < 0.2, rng.normal(size=4), 0.6
    gap, scores = Gap(y, member), rows @ w
    models = w + scale * rng.standard_normal((4000, 4))
    flips = ((models @ rows.T > 0) != (scores > 0)) @ np.abs(gap.coefficients)
    expected = gap.expected_flips(scores, scale * np.linalg.norm(rows, axis=1))
    assert flips.mean() == pytest.approx(expected, abs=4 * flips.std() / math.sqrt(4000))
    assert np.abs(gap.of(models @ rows.T) - gap.of(scores)).mean() <= expected


def test_sampling_covers_and_is_of_hoeffdings_size():
    gap = Gap([1] * 200, [True] * 50 + [False] * 150)
    by_hand = 0.75 * (math.sqrt(math.log(40) / 100) + math.sqrt(math.log(40) / 300))
    assert gap.sampling(0.1) == pytest.approx(by_hand)
    drawn = RNG(0).random((4000, 200)) < 0.5
    assert np.mean(np.abs(drawn @ gap.coefficients) <= gap.sampling(0.1)) >= 0.9


# --------------------------------------------------------------------------------------------- reaches of noise


def test_intervals_of_fitted_models_cover_the_gap_without_noise():
    """Output perturbation as the package has it: its scale gives the reach, its noise is what the reach is about."""
    rng = RNG(7)
    X = rng.normal(size=(300, 4)) / 4
    y, member = (rng.random(300) < expit(5 * X[:, 0])).astype(int), rng.random(300) < 0.3
    settings = {"regularization": 0.1, "fit_intercept": False, "radius": 1.0}
    rows = erm.design_matrix(X, radius=1.0, fit_intercept=False)
    without = rows @ erm.ERMClassifier(**settings).fit(X, y).coef_[0]
    gap, lengths = Gap(y, member), np.linalg.norm(rows, axis=1)
    covered, moved = [], []
    for seed in range(200):
        model = erm.OutputPerturbationClassifier(2.0, delta=1e-4, random_state=seed, **settings).fit(X, y)
        reach = fairness.output_reach(lengths, model.noise_scale_, failure=0.1, slack=0.02)
        low, high = gap.interval(model.decision_function(X), reach, slack=0.02)
        covered.append(low <= gap.of(without) <= high)
        moved.append((model.decision_function(X) - without)[0] / (model.noise_scale_ * lengths[0]))
    assert np.mean(covered) >= 0.9
    assert kstest(moved, "norm").pvalue > 0.01


def test_output_reach_is_left_with_the_probability_it_says():
    rng = RNG(2)
    rows = rng.normal(size=(40, 6))
    lengths = np.linalg.norm(rows, axis=1)
    moved = np.abs(0.3 * rng.standard_normal((20_000, 6)) @ rows.T)
    share = np.mean(moved > fairness.output_reach(lengths, 0.3, failure=0.5, slack=0.2), axis=0)
    np.testing.assert_allclose(share, 0.1, atol=0.012)  # slack times failure


def test_intervals_of_private_models_cover_the_gap_without_noise():
    rng = RNG(3)
    rows, y, member = rng.normal(size=(400, 5)), rng.integers(0, 2, 400), rng.random(400) < 0.3
    w, gap = rng.normal(size=5), Gap(y, member, "equal_opportunity")
    value = gap.of(rows @ w)
    drawn = fairness.released_gaps({"it": gap}, w, rows, 0.2, n_models=300, rng=RNG(5))
    private, low, high = drawn["it"].T
    assert np.mean((low <= value) & (value <= high)) >= 0.99
    assert np.mean((low <= value + 0.3) & (value + 0.3 <= high)) <= 1 / 3  # short enough to exclude other values
    assert ((low <= private) & (private <= high)).all()
    again = RNG(5)
    by_hand = [gap.of(rows @ (w + 0.2 * again.standard_normal(5))) for _ in range(300)]
    np.testing.assert_allclose(private, by_hand, rtol=0, atol=1e-12)
    assert np.abs(private - value).mean() <= gap.expected_flips(rows @ w, 0.2 * np.linalg.norm(rows, axis=1))


@pytest.fixture(scope="module")
def objective_fits():
    """A data set, its fit without noise in the objective, and scores of private fits (fits, n)."""
    rng = RNG(4)
    X = rng.normal(size=(600, 3)) * [0.5, 0.3, 0.1]
    y = (rng.random(600) < expit(6 * X[:, 0] - 1)).astype(int)
    model = erm.ObjectivePerturbationClassifier(epsilon=2.0, delta=1e-5, regularization=0.15)
    scores = np.array([model.set_params(random_state=seed).fit(X, y).decision_function(X) for seed in range(400)])
    exact = erm.ERMClassifier(model.total_regularization_).fit(X, y).decision_function(X)
    lengths = np.linalg.norm(erm.design_matrix(X, radius=1.0), axis=1)
    problem = {"n_records": 600, "regularization": model.total_regularization_}
    return scores - exact, lengths, model.noise_scale_, problem


def test_scores_of_objective_perturbation_stay_within_reach(objective_fits):
    moved, lengths, scale, problem = objective_fits
    reach = fairness.objective_reach(lengths, scale, **problem, failure=0.5, slack=0.1)
    assert np.mean(np.abs(moved) > reach) <= 0.05
    spread = scale / (problem["n_records"] * problem["regularization"])
    measured = moved.std(axis=0) / (spread * lengths)
    assert 0.4 <= measured.max() <= 1.1  # the bound of the variance is near, and not below, what fits show


def test_one_dimension_by_quadrature():
    """All records equal: the minimiser is a number, its law and its mean known to many digits."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    for penalty, spread in ((0.5, 0.9), (0.1, 0.3), (0.3, 0.1)):

        def minimiser(noise, penalty=penalty, spread=spread):
            return brentq(lambda w: -expit(-w) + penalty * w + penalty * spread * noise, -1e4, 1e4, xtol=1e-14)

        without = minimiser(0.0)
        moved = np.array([minimiser(x) for x in nodes]) - without
        mean = weights @ moved / weights.sum()
        bias = (
            fairness.objective_reach(
                [1.0], spread * penalty * 1000, n_records=1000, regularization=penalty, failure=0.5, slack=0.5
            )
            - math.sqrt(2 * math.log(2 / 0.25)) * spread
        )
        assert 0 < abs(mean) <= bias[0]
        assert weights @ (moved - mean) ** 2 / weights.sum() <= spread**2


def test_objective_reach_promises_nothing_where_nothing_is_proved():
    problem = {"n_records": 1000, "regularization": 0.01}
    assert np.isinf(fairness.objective_reach([1.0], 1.1, **problem)).all()
    assert np.isfinite(fairness.objective_reach([1.0], 1.0, **problem)).all()


def test_published_reach_is_the_product_of_its_two_constants():
    problem = {"epsilon": 0.5, "delta": 1e-6, "n_records": 2000, "regularization": 0.1}
    # Twice the sensitivity's noise scale by the classic calibration, times sqrt(4 p log(2/failure)).
    classic = 2 / (2000 * 0.1) * math.sqrt(2 * math.log(1.25e6)) / 0.5
    by_hand = 2 * math.sqrt(2) * 1.5 * 2 * classic * math.sqrt(7 * math.log(200))
    assert fairness.published_reach([1.5], dimension=7, **problem)[0] == pytest.approx(by_hand)


# -------------------------------------------------------------------------------------------------- refusals


def fitted_with_bounds(bounds):
    return erm.OutputPerturbationClassifier(1.0, 0.1, delta=1e-6, bounds=bounds).fit([[0.5], [0.2]], [0, 1])


@pytest.mark.parametrize(
    ("call", "needle"),
    [
        (lambda: fitted_with_bounds([[0.0, math.inf]]), "bounds must be finite"),
        (lambda: fitted_with_bounds([[math.nan, 1.0]]), "bounds must be finite"),
        (lambda: load_members("adults", "sex", "Female"), "name must be one of 'adult', 'ham10000'"),
        (lambda: load_members("adult", "age", "Female"), "attribute must be one of 'sex', 'race'"),
        (lambda: load_members("adult", "sex", "female"), "level must be one of 'Female', 'Male', got 'female'"),
    ],
)
def test_what_makes_no_sense_is_refused(call, needle):
    with pytest.raises(ValueError, match=needle):
        call()


def test_an_unknown_group_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("checks.fairness.ham10000_metadata", lambda: pytest.fail("loaded"))
    with pytest.raises(ValueError, match="level must be"):
        load_members("ham10000", "sex", "Female")


# ------------------------------------------------------------------------------------------- groups of real data


@pytest.mark.skipif(not data.is_available("adult"), reason="Adult is not on this machine")
def test_groups_of_adult_share_its_records_out():
    members = {(a, level): load_members("adult", a, level) for a, levels in LEVELS["adult"].items() for level in levels}
    for attribute, level, count in (("sex", "Female", 16192), ("race", "Black", 4685), ("race", "White", 41762)):
        assert members[attribute, level].sum() == count
    for attribute, levels in LEVELS["adult"].items():
        assert (sum(members[attribute, level].astype(int) for level in levels) == 1).all()


@pytest.mark.skipif(not data.is_available("ham10000"), reason="HAM10000 is not on this machine")
def test_groups_of_ham10000_are_those_of_its_metadata():
    known, members = ham10000_metadata(), {}
    for attribute, levels in LEVELS["ham10000"].items():
        members |= {(attribute, level): load_members("ham10000", attribute, level) for level in levels}
        assert (sum(members[attribute, level].astype(int) for level in levels) == 1).all()
    assert all((members["sex", level] == (known.sex == level)).all() for level in LEVELS["ham10000"]["sex"])
    assert (members["age", "unknown"] == known.age.isna()).all()
    assert known.age[members["age", "under 45"]].max() == 40
    assert known.age[members["age", "45 to 64"]].agg(["min", "max"]).tolist() == [45, 60]
    assert known.age[members["age", "65 and over"]].min() == 65
