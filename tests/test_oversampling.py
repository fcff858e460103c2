"""Stability of oversampling: exhaustive enumeration, properties of the copy counts, guarantees built on them."""

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import expit
from scipy.stats import binom, laplace, norm

from checks.enumeration import insertion_deletion_distance, neighbours, substitution_distance, worst_case
from checks.random_copies import multiclass_substitution_bound, random_copies
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, ChangedRows, Guarantee, PrivacyLeakWarning
from helpers.resampling.oversampling import (
    DeterministicOversampler,
    balance,
    copies_per_record,
    fixed_total,
    public_multiplicity,
    substitution_bound,
)

SILENT = pytest.mark.filterwarnings("ignore::helpers.privacy.PrivacyLeakWarning")


def interleaved(n_minority, n_majority):
    """Minority and majority in turn, so that a flipped label can take almost any rank in the minority."""
    pairs = min(n_minority, n_majority)
    return np.array([0, 1] * pairs + [1] * (n_minority - pairs) + [0] * (n_majority - pairs))


# --- copies ---


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(0, 60), st.integers(0, 60))
def test_copies_add_up_and_are_level(y, n_one, n_two):
    y = np.array(y)
    copies = copies_per_record(y, {1: n_one, 2: n_two})
    assert copies[y == 0].sum() == 0
    for label, n_new in ((1, n_one), (2, n_two)):
        mine = copies[y == label]
        if len(mine):
            assert mine.sum() == n_new
            assert np.all(np.diff(mine) <= 0)
            assert mine[0] - mine[-1] <= 1


@given(st.integers(2, 40), st.integers(0, 200), st.integers(0, 10), st.data())
def test_copies_are_nested(n_minority, n_new, more, data):
    """Dropping a record, and even raising N, never takes a copy from another record."""
    dropped = data.draw(st.integers(0, n_minority - 1))
    before = np.delete(copies_per_record(np.ones(n_minority), {1: n_new}), dropped)
    after = copies_per_record(np.ones(n_minority - 1), {1: n_new + more})
    assert np.all(after >= before)


# --- distances ---


def test_distances_of_multisets():
    assert substitution_distance([1, 1, 2], [1, 2, 2]) == 1
    assert insertion_deletion_distance([1, 1, 2], [1, 2, 2]) == 2
    assert insertion_deletion_distance([], [1, 1]) == 2
    with pytest.raises(ValueError, match="same size, got 1 and 2"):
        substitution_distance([1], [1, 1])


def test_neighbours_are_all_there():
    records = [(0, 0), (1, 1), (1, 2)]
    replaced = {tuple(label for label, _ in there) for there in neighbours(records, REPLACE_ONE)}
    assert replaced == {(0, 1, 1), (1, 1, 1), (0, 0, 1), (0, 1, 0)}
    sizes = [len(there) for there in neighbours(records, ADD_REMOVE)]
    assert (sizes.count(2), sizes.count(4)) == (3, 8)


# --- exhaustive stability ---

FULL_RANGE = list(itertools.product(range(1, 9), (1, 2, 5, 13), range(25)))


def test_fixed_total_attains_its_bound_and_never_exceeds_it():
    for n_minority, n_majority, n_new in FULL_RANGE:
        found = worst_case(interleaved(n_minority, n_majority), fixed_total(n_new))
        assert found == substitution_bound(n_new, n_minority), (n_minority, n_majority, n_new)


def test_every_pattern_of_labels_gives_the_same_worst_case():
    for n in range(2, 7):
        for labels in itertools.product((0, 1), repeat=n):
            if 1 in labels:
                for n_new in (0, 1, 4, 7):
                    assert worst_case(labels, fixed_total(n_new)) == substitution_bound(n_new, sum(labels))


def test_independent_extras_exceed_the_bound():
    excess = {
        (n_minority, n_new): worst_case(interleaved(n_minority, 13), fixed_total(n_new), extras="independent")
        - substitution_bound(n_new, n_minority)
        for n_minority in range(1, 9)
        for n_new in range(25)
    }
    assert max(excess.values()) == 3
    assert excess[8, 4] == 3
    assert min(excess.values()) == 0


@pytest.mark.parametrize(("n_minority", "n_new"), [(2, 1), (3, 2), (4, 2), (4, 3), (5, 7)])
def test_first_against_last_is_the_worst_choice_of_extras(n_minority, n_new):
    """Brute force over every choice of extra copies in both data sets."""

    def choices(records):
        members = [i for label, i in records if label == 1]
        base = [i for _, i in records] + [i for i in members for _ in range(n_new // len(members))]
        return [base + list(extra) for extra in itertools.combinations(members, n_new % len(members))]

    labels = interleaved(n_minority, n_minority)
    here = [(label, place) for place, label in enumerate(labels)]
    worst = max(
        substitution_distance(a, b)
        for neighbour in neighbours(here, REPLACE_ONE)
        if any(label == 1 for label, _ in neighbour)
        for a in choices(here)
        for b in choices(neighbour)
    )
    assert worst_case(labels, fixed_total(n_new), extras="independent") == worst


def test_balancing_changes_the_size_too():
    attained = 0
    for n_minority, n_majority in itertools.product(range(1, 9), range(1, 14)):
        labels = interleaved(n_minority, n_majority)
        n_new = balance()(labels)[1]
        bound = 2 * substitution_bound(n_new, n_minority) + 2
        found = worst_case(labels, balance(), distance=insertion_deletion_distance)
        assert found <= bound
        attained += found == bound
    assert attained >= 40
    with pytest.raises(ValueError, match="same size"):
        worst_case(interleaved(2, 6), balance())


@SILENT
def test_balancing_is_also_stable_where_the_minority_vanishes():
    for n in range(2, 15):
        one, none = np.array([1] + [0] * (n - 1)), np.array([0] * n)
        ids_one, ids_none = np.arange(n), np.array([n, *range(1, n)])
        a = np.repeat(ids_one, 1 + copies_per_record(one, balance()(one)))
        b = np.repeat(ids_none, 1 + copies_per_record(none, balance()(none)))
        sampler = DeterministicOversampler(n_new="balance")
        factors = [sampler.fit(np.zeros((n, 1)), y).stability_.group_size for y in (one, none)]
        assert insertion_deletion_distance(a.tolist(), b.tolist()) <= min(factors)


def test_public_multiplicity_is_stable_under_add_remove_whatever_the_data():
    for n_minority, n_majority, multiplicity in itertools.product(range(1, 9), (1, 4, 13), range(6)):
        found = worst_case(
            interleaved(n_minority, n_majority),
            public_multiplicity(multiplicity),
            neighbouring=ADD_REMOVE,
            distance=insertion_deletion_distance,
        )
        assert found == multiplicity + 1


def test_multiclass_bound_holds_and_the_single_class_factor_does_not():
    """Moving a record between two oversampled classes pays for both."""
    attained = single_class_exceeded = 0
    for counts in itertools.product((1, 2, 3), (2, 3), (2, 3)):
        labels = np.repeat([0, 1, 2], counts)
        for n_one, n_two in itertools.product(range(0, 10, 3), repeat=2):
            found = worst_case(labels, lambda y, a=n_one, b=n_two: {1: a, 2: b}, classes=(0, 1, 2))
            bound = multiclass_substitution_bound([0, n_one, n_two], counts)
            assert found <= bound
            attained += found == bound
            single = max(substitution_bound(n_one, counts[1]), substitution_bound(n_two, counts[2]))
            single_class_exceeded += found > single
    assert attained > 150
    assert single_class_exceeded > 50


def test_multiclass_bound_with_one_oversampled_class_is_the_binary_one():
    for n_new, n_minority in itertools.product(range(25), range(1, 9)):
        assert multiclass_substitution_bound([0, n_new], [13, n_minority]) == substitution_bound(n_new, n_minority)
    with pytest.raises(ValueError, match="longer"):
        multiclass_substitution_bound([1], [1, 2])


# --- the sampler ---


def test_originals_first_then_copies_in_order():
    X = np.arange(10.0).reshape(5, 2)
    y = np.array([1, 0, 0, 1, 0])
    sampler = DeterministicOversampler(n_new=3)
    with pytest.warns(PrivacyLeakWarning, match="private number n1"):
        X_new, y_new = sampler.fit_resample(X, y)
    assert np.array_equal(X_new, X[[0, 1, 2, 3, 4, 0, 0, 3]])
    assert y_new.tolist() == [1, 0, 0, 1, 0, 1, 1, 1]


@SILENT
def test_measured_distance_of_resampled_rows_stays_within_the_stability():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 2)), np.array([1] * 3 + [0] * 9)
    Z, w = X.copy(), y.copy()
    Z[0], w[0] = (9.0, 9.0), 0
    for mode, distance in (
        ({"n_new": 8}, substitution_distance),
        ({"n_new": "balance"}, insertion_deletion_distance),
    ):
        sampler = DeterministicOversampler(**mode)
        rows = [list(map(tuple, np.column_stack(sampler.fit_resample(*data)))) for data in ((Z, w), (X, y))]
        assert distance(*rows) == sampler.stability_.group_size


def test_containers_keep_their_type():
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["u", "v", "w"]})
    y = pd.Series([0, 0, 1], name="target")
    X_new, y_new = DeterministicOversampler(multiplicity=2).fit_resample(X, y)
    assert list(X_new.columns) == ["a", "b"]
    assert X_new["b"].tolist() == ["u", "v", "w", "w", "w"]
    assert (y_new.name, y_new.tolist()) == ("target", [0, 0, 1, 1, 1])
    X_sparse, _ = DeterministicOversampler(multiplicity=1).fit_resample(sparse.csr_matrix(np.eye(3)), [0, 0, 1])
    assert X_sparse.toarray().tolist() == [*np.eye(3).tolist(), [0, 0, 1]]
    X_list, y_list = DeterministicOversampler(multiplicity=1, minority="yes").fit_resample([[1], [2]], ["no", "yes"])
    assert (X_list, y_list) == ([[1], [2], [2]], ["no", "yes", "yes"])


@SILENT
@pytest.mark.parametrize("mode", [{"multiplicity": 3}, {"n_new": 4}, {"n_new": "balance"}])
def test_a_fitted_sampler_does_not_show_which_rows_were_copied(mode):
    sampler = DeterministicOversampler(**mode)
    sampler.fit_resample(np.zeros((5, 1)), [1, 0, 0, 1, 0])
    assert set(vars(sampler)) == {*sampler.get_params(), "n_features_in_", "stability_"}


def test_no_records_at_all_are_no_error():
    X_new, y_new = DeterministicOversampler(multiplicity=3).fit_resample(np.empty((0, 2)), np.empty(0, dtype=int))
    assert (X_new.shape, y_new.shape) == ((0, 2), (0,))


@SILENT
@pytest.mark.parametrize("mode", [{"multiplicity": 3}, {"n_new": 4}, {"n_new": "balance"}])
def test_absent_minority_is_defined(mode):
    sampler = DeterministicOversampler(**mode)
    _, y_new = sampler.fit_resample(np.zeros((3, 1)), [0, 0, 0])
    assert y_new == [0, 0, 0]
    assert sampler.stability_.group_size >= 1


def test_only_the_public_multiplicity_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = DeterministicOversampler(multiplicity=4)
        sampler.fit_resample(np.zeros((3, 1)), [0, 0, 1])
    assert sampler.stability_ == ChangedRows(ADD_REMOVE, inserted=5)
    with pytest.warns(PrivacyLeakWarning, match="n0 - n1"):
        DeterministicOversampler(n_new="balance").fit_resample(np.zeros((3, 1)), [0, 0, 1])


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ({}, "exactly one of multiplicity and n_new"),
        ({"multiplicity": 1, "n_new": 2}, "exactly one of multiplicity and n_new"),
        ({"multiplicity": -1}, "multiplicity must be an integer"),
        ({"n_new": 1.5}, "n_new must be an integer"),
        ({"n_new": "equal"}, "n_new must be an integer"),
    ],
)
def test_bad_parameters_are_refused(mode, message):
    for method in ("fit", "fit_resample"):
        with pytest.raises(ValueError, match=message):
            getattr(DeterministicOversampler(**mode), method)(np.zeros((2, 1)), [0, 1])


def test_rules_and_bounds_refuse_what_is_out_of_range():
    for wrong in (lambda: fixed_total(-1), lambda: substitution_bound(-1, 1)):
        with pytest.raises(ValueError, match="n_new must be an integer"):
            wrong()
    with pytest.raises(ValueError, match="n_minority must be an integer"):
        substitution_bound(1, 0)


def test_rules_make_no_copies_of_a_class_that_is_large_enough_and_take_1_for_the_minority():
    assert balance()(np.array([0, 1, 1])) == {1: 0}
    assert public_multiplicity(3)(np.array([0, 1, 1])) == {1: 6}


@SILENT
def test_stability_is_that_of_one_minority_record_with_one_and_with_none():
    for y in ([0, 0, 1], [0, 0, 0]):
        assert DeterministicOversampler(n_new=4).fit(np.zeros((3, 1)), y).stability_.group_size == 5


def test_texts_and_missing_values_are_declared():
    tags = DeterministicOversampler(multiplicity=1).__sklearn_tags__().input_tags
    assert tags.string
    assert tags.allow_nan


@pytest.mark.parametrize("n_new", [2, "balance"])
@pytest.mark.parametrize("method", ["fit", "fit_resample"])
def test_a_leak_is_told_where_the_sampler_is_used(method, n_new):
    with pytest.warns(PrivacyLeakWarning) as told:
        getattr(DeterministicOversampler(n_new=n_new), method)(np.zeros((3, 1)), [0, 0, 1])
    assert [warning.filename for warning in told] == [__file__]


def test_works_in_an_imbalanced_learn_pipeline():
    from imblearn.pipeline import make_pipeline
    from sklearn.linear_model import LogisticRegression

    X, y = np.array([[-1.0], [-0.5], [0.2], [1.0]]), np.array([0, 0, 0, 1])
    model = make_pipeline(DeterministicOversampler(multiplicity=9), LogisticRegression()).fit(X, y)
    alone = LogisticRegression().fit(X, y)
    assert model.predict_proba(X)[3, 1] > alone.predict_proba(X)[3, 1] + 0.2


# --- guarantees ---


def test_pure_guarantee_of_the_pipeline_and_back():
    sampler = DeterministicOversampler(multiplicity=4)
    sampler.fit_resample(np.zeros((3, 1)), [0, 0, 1])
    inner = sampler.stability_.inner_epsilon(1.0)
    assert inner == pytest.approx(1.0 / 5)
    pipeline = sampler.stability_.amplify(Guarantee(inner, 0.0, ADD_REMOVE, assumes=("bounds public",)))
    assert pipeline.epsilon == pytest.approx(1.0)
    assert (pipeline.delta, pipeline.neighbouring, pipeline.assumes) == (0.0, ADD_REMOVE, ("bounds public",))


def test_approximate_guarantee_pays_the_group_factor_in_delta():
    stability = DeterministicOversampler(multiplicity=9).fit(np.zeros((2, 1)), [0, 1]).stability_
    approximate = stability.amplify(Guarantee(0.1, 1e-6, ADD_REMOVE))
    assert approximate.delta == pytest.approx(1e-6 * math.expm1(1.0) / math.expm1(0.1))
    assert approximate.delta > 10 * 1e-6
    mu = 0.5
    delta = norm.cdf(-1 / mu + mu / 2) - math.e * norm.cdf(-1 / mu - mu / 2)
    gaussian = stability.amplify(Guarantee(1.0, delta, ADD_REMOVE, event=GaussianDpEvent(1 / mu)))
    exact = norm.cdf(-10 / 5 + 2.5) - math.exp(10) * norm.cdf(-10 / 5 - 2.5)
    assert delta == pytest.approx(0.00683, abs=1e-5)
    assert gaussian.delta == pytest.approx(exact, rel=1e-6)
    assert gaussian.delta == pytest.approx(0.617, abs=5e-4)


@SILENT
def test_data_dependent_stability_is_declared_and_relations_are_not_mixed():
    sampler = DeterministicOversampler(n_new=10)
    sampler.fit_resample(np.zeros((9, 1)), [1] * 4 + [0] * 5)
    pipeline = sampler.stability_.amplify(Guarantee(0.5, 0.0, REPLACE_ONE))
    assert (pipeline.epsilon, pipeline.neighbouring) == (2.0, REPLACE_ONE)
    assert "class counts public" in pipeline.assumes[-1]
    with pytest.raises(ValueError, match=r"inner\.neighbouring"):
        sampler.stability_.amplify(Guarantee(0.5, 0.0, ADD_REMOVE))
    with pytest.raises(ValueError, match="epsilon must be"):
        sampler.stability_.inner_epsilon(0.0)


@SILENT
def test_balanced_pipeline_changes_the_relation():
    sampler = DeterministicOversampler(n_new="balance")
    sampler.fit_resample(np.zeros((9, 1)), [1] * 2 + [0] * 7)
    pipeline = sampler.stability_.amplify(Guarantee(0.1, 0.0, ADD_REMOVE))
    assert sampler.stability_.group_size == 2 * (3 + 1) + 2
    assert (pipeline.epsilon, pipeline.neighbouring) == (pytest.approx(1.0), REPLACE_ONE)


# --- random oversampling ---


def test_random_oversampling_closed_forms():
    j = np.arange(1, 102)
    weights = binom.pmf(j - 1, 100, 0.1)
    pure = weights @ (expit(0.1 * j) * -np.expm1(np.minimum(1.0 - 0.1 * j, 0)))
    inner = Guarantee(0.1, 0.0, REPLACE_ONE)
    assert random_copies(n_new=100, n_minority=10).mixture_delta(1.0, inner) == pytest.approx(pure, rel=1e-6)
    mu = 0.05 * j
    curve = weights @ (norm.cdf(-2 / mu + mu / 2) - np.exp(2) * norm.cdf(-2 / mu - mu / 2))
    inner = Guarantee(0.5, 1e-9, REPLACE_ONE, event=GaussianDpEvent(20.0))
    assert random_copies(n_new=100, n_minority=10).delta_at(2.0, inner) == pytest.approx(curve, rel=1e-5)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_random_oversampling_bound_covers_the_exact_mixture(flip, noise):
    """Noisy sum of 0/1 values: exact hockey-stick divergence of the two mixtures over all draws, by quadrature."""
    n_minority, n_new, scale = 3, 4, 2.0
    density = {"laplace": laplace, "gaussian": norm}[noise](scale=scale)
    inner = (
        Guarantee(1 / scale, 0.0, REPLACE_ONE)
        if noise == "laplace"
        else Guarantee(math.inf, 0.0, REPLACE_ONE, event=GaussianDpEvent(scale))
    )
    here, there = [1.0, 0.0, 0.0], [0.0, 0.0] if flip else [0.0, 0.0, 0.0]
    grid = np.linspace(-60, 60, 24_001)

    def mixture(values, total):
        sums = [total + sum(draw) for draw in itertools.product(values, repeat=n_new)]
        return sum(density.pdf(grid - s) for s in sums) / len(sums)

    p, q = mixture(here, 1.0), mixture(there, 0.0)
    close = False
    for epsilon in (0.0, 0.3, 0.8, 1.5):
        bound = random_copies(n_new=n_new, n_minority=n_minority).delta_at(epsilon, inner)
        for a, b in ((p, q), (q, p)):
            exact = np.trapezoid(np.maximum(a - math.exp(epsilon) * b, 0), grid)
            assert exact <= bound + 1e-7
            close |= exact > 0.8 * bound
    assert close


def worst_pure_loss(inner_epsilon, n_minority, n_new, flip):
    """Largest log ratio of an event's probability over *all* inner_epsilon-DP learners, by a linear programme.

    The unknowns are the event's probabilities on the multisets that the learner can be given: copies of the record, of
    its replacement and of each other minority record, and the replacement as majority.
    """
    others = n_minority - 1
    size = n_minority + n_new
    states = [c for c in itertools.product(range(size + 1), repeat=2 + others + 1) if sum(c) == size and c[-1] <= 1]
    place = {state: k for k, state in enumerate(states)}

    def law(first, members):
        """Weights of the multisets: one of each member (and the majority record), then n_new uniform draws."""
        weights = np.zeros(len(states))
        for draws in itertools.product(members, repeat=n_new):
            counts = [0] * (2 + others + 1)
            for record in (*first, *draws):
                counts[record] += 1
            weights[place[tuple(counts)]] += len(members) ** -n_new
        return weights

    rest = list(range(2, 2 + others))
    here = law([0, *rest], [0, *rest])
    there = law([2 + others, *rest], rest) if flip else law([1, *rest], [1, *rest])
    rows = []
    for state in states:
        for a, b in itertools.permutations(range(len(state)), 2):
            moved = list(state)
            moved[a] -= 1
            moved[b] += 1
            if tuple(moved) in place:
                row = np.zeros(len(states))
                row[place[state]], row[place[tuple(moved)]] = 1.0, -math.exp(inner_epsilon)
                rows.append(row)
    losses = []
    for numerator, denominator in ((here, there), (there, here)):
        solved = linprog(-numerator, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=[denominator], b_eq=[1.0])
        losses.append(math.log(-solved.fun))
    return max(losses)


@pytest.mark.parametrize("inner_epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize(("n_minority", "n_new"), [(1, 2), (2, 1), (2, 3), (3, 2), (3, 3)])
def test_random_oversampling_pure_guarantee_is_exact(inner_epsilon, n_minority, n_new):
    claimed = random_copies(n_new=n_new, n_minority=n_minority).log_mean(inner_epsilon)
    assert worst_pure_loss(inner_epsilon, n_minority, n_new, flip=False) == pytest.approx(claimed, rel=1e-6)
    if n_minority > 1:
        assert worst_pure_loss(inner_epsilon, n_minority, n_new, flip=True) <= claimed + 1e-9


def test_random_oversampling_is_the_log_mean_and_never_better_than_nested_copies():
    for inner_epsilon, n_new, n_minority in [(0.1, 100, 10), (0.7, 12, 4), (0.05, 7464, 182)]:
        copies = np.arange(n_new + 1)
        mean = binom.pmf(copies, n_new, 1 / n_minority) @ np.exp(inner_epsilon * (1 + copies))
        epsilon = random_copies(n_new=n_new, n_minority=n_minority).log_mean(inner_epsilon)
        assert epsilon == pytest.approx(math.log(mean))
        assert epsilon >= (1 + n_new / n_minority) * inner_epsilon
        inner = Guarantee(inner_epsilon, 0.0, REPLACE_ONE)
        assert random_copies(n_new=n_new, n_minority=n_minority).delta_at(epsilon, inner) == 0.0
        assert random_copies(n_new=n_new, n_minority=n_minority).delta_at(0.9 * epsilon, inner) > 0.0


def test_random_oversampling_depends_on_the_floor_in_the_safe_direction():
    inner = Guarantee(0.1, 0.0, REPLACE_ONE)
    deltas = [random_copies(n_new=200, n_minority=n).delta_at(1.5, inner) for n in (1, 5, 20, 80)]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] > 0.99
    assert random_copies(n_new=0, n_minority=3).delta_at(0.1, inner) == pytest.approx(0.0, abs=1e-14)
    with pytest.raises(ValueError, match=r"inner\.neighbouring"):
        random_copies(n_new=1, n_minority=1).delta_at(1.0, Guarantee(0.1, 0.0, ADD_REMOVE))
