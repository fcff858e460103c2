"""The law of changed rows: all private learners by linear programming, closed forms, and the inverse."""

import inspect
import itertools
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom

from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ChangedRows,
    Guarantee,
    gaussian_delta,
    laplace_delta,
    optimal_delta,
)

RELATIONS = [ADD_REMOVE, REPLACE_ONE]


# --- guarantees: all private learners, by linear programming ---


def linear_programme(states, distance, here, there, epsilon, at=None, delta=0.0):
    """Largest log ratio of an event's probabilities, or largest excess over e^at times, over all private learners.

    A learner is the probability of the event on each of the learner's inputs.
    """
    n, rows, limits = len(states), [], []
    for a, b in itertools.permutations(range(n), 2):
        steps = distance(states[a], states[b])
        if delta and steps > 1:
            continue  # follows from single steps, which are the definition
        factor = math.exp(epsilon * steps)
        for sign, limit in ((1.0, delta), (-1.0, delta + factor - 1)):  # the event, and its complement
            row = np.zeros(n)
            row[a], row[b] = sign, -sign * factor
            rows.append(row)
            limits.append(limit)
    if at is None:  # a ratio has no scale, so that the complement does not bind
        solved = linprog(-here, A_ub=rows[::2], b_ub=limits[::2], A_eq=[there], b_eq=[1.0], bounds=(0, None))
        return math.log(-solved.fun)
    solved = linprog(-(here - math.exp(at) * there), A_ub=rows, b_ub=limits, bounds=(0, 1))
    return -solved.fun


def row_products(certain, trials, probability):
    """All inputs of the learner, and their laws on both sides: o and x on one side only, c on both."""
    states = list(itertools.product(*["ox"] * certain, *["ocx"] * trials))

    def law(own):
        chance = {own: probability, "c": 1 - probability}
        one = [1.0 if value == own else 0.0 for value in "ox"], [chance.get(value, 0.0) for value in "ocx"]
        products = itertools.product(*[one[0]] * certain, *[one[1]] * trials)
        return np.array([math.prod(factors) for factors in products])

    return states, law("o"), law("x")


def hamming(a, b):
    return sum(x != y for x, y in zip(a, b, strict=True))


LAWS = [(1, 1, 0.5), (1, 2, 0.2), (1, 3, 0.3), (0, 1, 0.4), (0, 3, 0.3), (2, 2, 0.25)]


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("law", LAWS)
def test_the_log_mean_is_the_exact_pure_guarantee(law, epsilon):
    rows = ChangedRows(REPLACE_ONE, *law)
    states, here, there = row_products(*law)
    for side, other in ((here, there), (there, here)):
        worst = linear_programme(states, hamming, side, other, epsilon)
        assert worst == pytest.approx(rows.log_mean(epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_log_mean_is_exact_under_add_remove(epsilon):
    """A record more, and substitutions of two steps."""
    certain, trials, probability = 1, 2, 0.3
    rows = ChangedRows(ADD_REMOVE, certain, trials, probability, inserted=1)
    states, here, there = row_products(1 + certain, trials, probability)  # the first place: the record itself

    def steps(a, b):
        return (a[0] != b[0]) + 2 * hamming(a[1:], b[1:])

    assert linear_programme(states, steps, here, there, epsilon) == pytest.approx(rows.log_mean(epsilon), rel=1e-6)


def test_the_log_mean_needs_independent_rows():
    """One coin for both rows, and an input that shows it far away: then only the number of changed rows counts."""
    here, there = np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.5, 0.5])
    log_mean = math.log(0.5 + 0.5 * math.exp(2 * 0.7))
    for far, expected in ((2, log_mean), (6, 1.356), (20, 2 * 0.7)):
        distances = {frozenset("ox"): 2, frozenset("oc"): far, frozenset("xc"): far}
        loss = linear_programme("oxc", lambda a, b, d=distances: d[frozenset((a, b))], here, there, 0.7)
        assert loss == pytest.approx(expected, abs=1e-3)
    assert log_mean == pytest.approx(0.927, abs=1e-3)


@pytest.mark.parametrize("law", LAWS[:5])
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_deltas_cover_all_learners(law, delta):
    epsilon, rows = 0.5, ChangedRows(REPLACE_ONE, *law)
    inner = Guarantee(epsilon, delta, REPLACE_ONE)
    states, here, there = row_products(*law)
    total = rows.amplify(inner)
    for at in (0.2 * total.epsilon, 0.6 * total.epsilon, 0.9 * total.epsilon, total.epsilon):
        worst = linear_programme(states, hamming, here, there, epsilon, at=at, delta=delta)
        assert worst <= rows.delta_at(at, inner) + 1e-9
    assert linear_programme(states, hamming, here, there, epsilon, at=total.epsilon, delta=delta) <= total.delta + 1e-9


# --- guarantees: closed forms ---


def test_numbers_of_the_notes():
    """m = 3333, k = 5, A = 2, delta = 1e-8, inner epsilon 0.1; the pure guarantee beats all of them."""
    rows, inner = ChangedRows(REPLACE_ONE, 2, 3333, 0.2), Guarantee(0.1, 0.0, REPLACE_ONE)
    assert 0.1 * rows.maximum == pytest.approx(333.5)
    assert 0.1 * (2 + binom.isf(1e-8, 3333, 0.2)) == pytest.approx(80.1)
    mixture = rows.mixture_delta
    assert mixture(79.59, inner) > 1e-8 > mixture(79.6, inner)
    assert rows.amplify(inner).epsilon == pytest.approx(69.58, abs=5e-3)
    assert rows.amplify(inner).delta == 0
    assert rows.amplify(inner, 1e-8).epsilon == pytest.approx(rows.log_mean(0.1))
    assert 0.1 * rows.mean == pytest.approx(66.86)


def test_certain_changes_are_group_privacy():
    rows, inner = ChangedRows(REPLACE_ONE, 4, 0, 0.5), Guarantee(0.3, 1e-6, REPLACE_ONE)
    group = inner.group(4)
    assert rows.amplify(inner).epsilon == pytest.approx(group.epsilon)
    assert rows.amplify(inner).delta == pytest.approx(group.delta)
    inserted = ChangedRows(ADD_REMOVE, 2, inserted=1).amplify(Guarantee(0.3, 0.0, ADD_REMOVE))
    assert inserted.epsilon == pytest.approx(5 * 0.3)


@pytest.mark.parametrize(
    "inner",
    [
        Guarantee(0.2, 0.0, ADD_REMOVE),
        Guarantee(0.2, 1e-9, ADD_REMOVE),
        Guarantee(0.2, 1e-4, ADD_REMOVE, event=GaussianDpEvent(15.0)),
        Guarantee(0.0, 1e-9, ADD_REMOVE),
    ],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_mixture_of_groups(inner, epsilon):
    """Against the sum over groups, each as `Guarantee` gives it."""
    rows = ChangedRows(ADD_REMOVE, 1, 12, 0.2, inserted=1)
    groups = [inner.group(1 + 2 * (1 + j)).delta_at(epsilon) for j in range(13)]
    expected = binom.pmf(np.arange(13), 12, 0.2) @ groups
    assert rows.mixture_delta(epsilon, inner) == pytest.approx(expected, rel=1e-9, abs=1e-19)
    assert rows.delta_at(epsilon, inner) <= expected * (1 + 1e-9) + 1e-19


def test_gaussian_learners_have_exact_shifts():
    rows = ChangedRows(REPLACE_ONE, 3, 0, 0.5)
    inner = Guarantee(1.0, 1e-3, REPLACE_ONE, event=GaussianDpEvent(3.5))
    assert rows.delta_at(2.0, inner) == pytest.approx(gaussian_delta(2.0, 3 / 3.5))
    at = rows.amplify(inner, 1e-7).epsilon
    assert gaussian_delta(at, 3 / 3.5) == pytest.approx(1e-7, rel=1e-6)
    assert rows.amplify(Guarantee(1.0, 1e-3, REPLACE_ONE), 1e-7).epsilon == math.inf


def test_the_pair_of_a_learner_with_delta():
    """d (e^total - 1)/(e^e - 1), by adding up the steps: each of the two rows costs log(1 + p (e^e - 1)) and p d."""
    e, d, p = 0.7, 1e-3, 0.3
    step = math.log1p(p * math.expm1(e))
    pair = ChangedRows(REPLACE_ONE, trials=2, probability=p).amplify(Guarantee(e, d, REPLACE_ONE))
    assert pair.epsilon == pytest.approx(2 * step)
    assert pair.delta == pytest.approx(p * d * (1 + math.exp(step)))


def test_learners_that_promise_nothing_or_only_by_their_event():
    rows = ChangedRows(REPLACE_ONE, 1, 2, 0.5)
    nothing = Guarantee(math.inf, 0.0, REPLACE_ONE)
    assert rows.amplify(nothing).epsilon == rows.amplify(nothing, 0.5).epsilon == math.inf
    assert rows.delta_at(1.0, nothing) == pytest.approx(1.0)
    assert ChangedRows(REPLACE_ONE, trials=2, probability=0.5).delta_at(1.0, nothing) == pytest.approx(0.75)
    blurred = Guarantee(math.inf, 0.0, REPLACE_ONE, event=GaussianDpEvent(2.0))
    expected = binom.pmf(np.arange(3), 2, 0.5) @ [gaussian_delta(1.0, j / 2) for j in (1, 2, 3)]
    assert rows.delta_at(1.0, blurred) == pytest.approx(expected)
    for law in (rows, ChangedRows(REPLACE_ONE, 1, 2, 1.0)):
        at = law.amplify(blurred, 1e-3).epsilon
        assert law.mixture_delta(at, blurred) <= 1e-3 < law.mixture_delta(at * 0.999, blurred)


def test_an_inserted_row_alone_leaves_no_data_set_unchanged():
    """Nothing is common to both data sets then, however rarely a row is substituted."""
    rows, inner = ChangedRows(ADD_REMOVE, trials=3, probability=0.01, inserted=1), Guarantee(0.5, 0.0, ADD_REMOVE)
    expected = binom.pmf(np.arange(4), 3, 0.01) @ [optimal_delta(0.2, 0.5 * (1 + 2 * j), 1) for j in range(4)]
    assert rows.mixture_delta(0.2, inner) == pytest.approx(expected)
    assert rows.mixture_delta(0.2, inner) > 0.1


def test_large_numbers_do_not_overflow():
    rows = ChangedRows(REPLACE_ONE, certain=2, trials=3, probability=0.25)
    assert rows.log_mean(800.0) == pytest.approx(5 * 800 + 3 * math.log(0.25))
    assert rows.log_mean(701.0) - rows.log_mean(699.0) == pytest.approx(2 * 5)
    once = ChangedRows(REPLACE_ONE, trials=1, probability=0.25)
    found = once.mixture_delta(60.0, Guarantee(62.0, 0.0, REPLACE_ONE))
    assert found == pytest.approx(0.25 * optimal_delta(60.0 - math.log(0.25), 62.0, 1))


def test_a_learner_with_delta_alone_pays_for_every_row_expected():
    rows = ChangedRows(ADD_REMOVE, 2, 10, 0.2, inserted=1)
    assert rows.amplify(Guarantee(0.0, 1e-6, ADD_REMOVE)).delta == pytest.approx((1 + 2 * (2 + 2)) * 1e-6)


def test_shifts_of_laplace_and_of_composed_gaussians_are_exact():
    rows, sizes = ChangedRows(REPLACE_ONE, 1, 2, 0.5), np.array([1, 2, 3])
    weights = binom.pmf(np.arange(3), 2, 0.5)
    blurred = Guarantee(0.5, 0.0, REPLACE_ONE, event=LaplaceDpEvent(2.0))
    assert rows.mixture_delta(0.7, blurred) == pytest.approx(weights @ [laplace_delta(0.7, j / 2) for j in sizes])
    assert rows.mixture_delta(0.7, blurred) < rows.mixture_delta(0.7, Guarantee(0.5, 0.0, REPLACE_ONE))
    four = Guarantee(5.0, 1e-3, REPLACE_ONE, event=SelfComposedDpEvent(GaussianDpEvent(8.0), 4))
    assert rows.mixture_delta(0.7, four) == pytest.approx(weights @ [gaussian_delta(0.7, j / 4) for j in sizes])


def test_a_balanced_data_set_has_a_learner_of_another_relation():
    rows = ChangedRows(
        REPLACE_ONE, inserted=10, learner_neighbouring=ADD_REMOVE, assumes=("counts public",), source="b"
    )
    total = rows.amplify(Guarantee(0.1, 0.0, ADD_REMOVE, assumes=("radius",), source="a"))
    assert (total.epsilon, total.neighbouring) == (pytest.approx(1.0), REPLACE_ONE)
    assert total.assumes == ("radius", "counts public")
    assert total.source.startswith("a; ")
    assert total.source.endswith("; b")
    assert rows.inner_epsilon(1.0) == 0.1
    with pytest.raises(ValueError, match=r"inner\.neighbouring"):
        rows.amplify(Guarantee(0.1, 0.0, REPLACE_ONE))


@given(
    st.floats(0.01, 20),
    st.integers(0, 3),
    st.integers(1, 200),
    st.floats(0.001, 1),
    st.sampled_from(RELATIONS),
    st.sampled_from([None, 1e-3]),
)
def test_inner_epsilon_is_the_inverse(target, certain, trials, probability, relation, delta):
    inserted = int(relation is ADD_REMOVE)
    rows = ChangedRows(relation, certain, trials, probability, inserted)
    inner = rows.inner_epsilon(target, delta=delta)
    amplified = [rows.amplify(Guarantee(f * inner, 0.0, relation), delta).epsilon for f in (1.0, 1 + 1e-8)]
    assert amplified[0] <= target
    assert inner == 700 or target < amplified[1] * (1 + 1e-7)


@pytest.mark.parametrize("n", [10**6, 10**9])
def test_rare_changes_keep_their_digits(n):
    """k = n draws, a chance of 1/n each: the limit is e^eps0 - 1, where rounding 1 - 1/n would leave nothing."""
    rows = ChangedRows(REPLACE_ONE, trials=n, probability=1 / n)
    assert rows.log_mean(1.0) == pytest.approx(math.expm1(1.0), rel=2 / n)
    assert rows.mixture_delta(0.5, Guarantee(1.0, 0.0, REPLACE_ONE)) < 1 - 1 / math.e
    assert ChangedRows(REPLACE_ONE, trials=1, probability=1 / n).mixture_delta(
        1e-10, Guarantee(1.0, 0.0, REPLACE_ONE)
    ) == pytest.approx(optimal_delta(math.log1p(math.expm1(1e-10) * n), 1.0, 1) / n, rel=1e-6, abs=1e-19)


@given(st.floats(0.001, 3), st.integers(1, 5), st.integers(0, 500), st.floats(0.01, 1), st.sampled_from(RELATIONS))
def test_amplified_epsilon_is_between_mean_and_maximum(epsilon, certain, trials, probability, relation):
    rows = ChangedRows(relation, certain, trials, probability, inserted=int(relation is ADD_REMOVE))
    inner = Guarantee(epsilon, 0.0, relation)
    pure = rows.amplify(inner).epsilon
    assert rows.steps(rows.mean) * epsilon <= pure * (1 + 1e-12)
    assert pure <= rows.steps(rows.maximum) * epsilon * (1 + 1e-12)
    approximate = rows.amplify(inner, 1e-3)
    exceeded_seldom = certain + binom.isf(1e-3, trials, probability)
    assert approximate.epsilon <= min(pure, rows.steps(exceeded_seldom) * epsilon) * (1 + 1e-9)
    assert rows.delta_at(approximate.epsilon, inner) <= 1e-3 * (1 + 1e-9)


def test_what_is_left_out_of_a_sum_is_negligible_and_added():
    for trials, probability in ((10, 1e-4), (500, 1e-3), (10**4, 1e-3), (10**6, 1e-6), (300, 0.5), (10**5, 0.3)):
        rows = ChangedRows(REPLACE_ONE, 2, trials, probability)
        numbers, probabilities = rows._law
        assert binom.sf(numbers[-1] - 2, trials, probability) <= 1e-20
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-9)
        assert 0 < rows.mixture_delta(600.0, Guarantee(1e-6, 0.0, REPLACE_ONE)) < 2e-20
        assert rows.mixture_delta(0.0, Guarantee(math.inf, 0.0, REPLACE_ONE)) <= 1.0


def test_one_row_that_may_change_is_amplified_and_one_that_must_is_a_group():
    inner = Guarantee(0.7, 1e-3, REPLACE_ONE, event=GaussianDpEvent(3.0))
    one = ChangedRows(REPLACE_ONE, trials=1, probability=0.3)
    assert one.amplify(inner).epsilon == pytest.approx(math.log1p(0.3 * math.expm1(0.7)))
    assert one.amplify(inner).delta == pytest.approx(0.3 * 1e-3)
    certain, group = ChangedRows(REPLACE_ONE, certain=3).amplify(inner), inner.group(3)
    assert (certain.epsilon, certain.delta, certain.event) == (group.epsilon, group.delta, group.event)
    sure = ChangedRows(REPLACE_ONE, trials=3, probability=1.0)
    assert sure.mixture_delta(0.5, inner) == pytest.approx(group.delta_at(0.5))


def test_a_delta_that_adds_up_to_more_than_one_is_one():
    rows = ChangedRows(REPLACE_ONE, trials=10, probability=0.5)
    for epsilon in (0.0, 1.0):
        assert rows.amplify(Guarantee(epsilon, 0.3, REPLACE_ONE)).delta == 1.0


def test_rare_changes_leave_a_learner_much_more_than_the_target():
    """Up to the largest epsilon for which anything is promised."""
    rare = ChangedRows(REPLACE_ONE, trials=1, probability=1e-6)
    assert rare.inner_epsilon(2.0) == pytest.approx(math.log1p(math.expm1(2.0) * 1e6), rel=1e-9)
    assert ChangedRows(REPLACE_ONE, trials=1, probability=1e-15).inner_epsilon(680.0) == 700.0


def test_events_with_little_noise_have_an_epsilon_too():
    rows = ChangedRows(REPLACE_ONE, 1, 2, 0.5)
    for multiplier in (0.2, 0.5, 5.0):
        blurred = Guarantee(math.inf, 0.0, REPLACE_ONE, event=GaussianDpEvent(multiplier))
        at = rows.amplify(blurred, 1e-3).epsilon
        assert rows.mixture_delta(at, blurred) <= 1e-3 < rows.mixture_delta(at * 0.999, blurred)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"certain": -1}, "certain must be"),
        ({"trials": 1.5}, "trials must be"),
        ({"certain": 3, "trials": -1}, "trials must be"),
        ({"trials": 2, "probability": 1.5}, "probability must be"),
        ({"trials": 2, "probability": 0.0}, "probability must be"),
        ({"inserted": 1}, r"inserted must be an integer in \[0, 0\], got 1"),
        ({"certain": 1, "learner_neighbouring": "add"}, "learner_neighbouring must be"),
        ({}, "must not all be 0"),
    ],
)
def test_bad_laws(fields, message):
    with pytest.raises(ValueError, match=message):
        ChangedRows(REPLACE_ONE, **fields)


def test_bad_learners_and_numbers():
    rows = ChangedRows(REPLACE_ONE, 1, 1, 0.5)
    for call in (rows.amplify, lambda inner: rows.delta_at(1.0, inner)):
        with pytest.raises(ValueError, match=r"inner\.neighbouring"):
            call(Guarantee(1.0, 0.0, ADD_REMOVE))
    one = Guarantee(1.0, 0.0, REPLACE_ONE)
    for call, message in (
        (lambda: rows.amplify(one, 0.0), "delta must be"),
        (lambda: rows.amplify(one, 1.0), "delta must be"),
        (lambda: rows.mixture_delta(-0.5, one), "epsilon must be"),
        (lambda: rows.delta_at(-1.0, one), "epsilon must be"),
        (lambda: rows.log_mean(-1.0), "epsilon must be"),
        (lambda: rows.inner_epsilon(0.0), "epsilon must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_law_is_a_value_and_its_options_are_given_by_name():
    law = ChangedRows(REPLACE_ONE, trials=10, probability=0.1)
    with pytest.raises(AttributeError):
        law.probability = 0.0
    assert inspect.signature(law.inner_epsilon).parameters["delta"].kind is inspect.Parameter.KEYWORD_ONLY
