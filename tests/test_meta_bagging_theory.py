"""Bagging: enumeration against the theorems, ways to deal records into bags, and the budget."""

import itertools
import math
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom, binomtest
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from checks import bagging_privacy
from checks.bagging_privacy import draws_for_delta, liu_parameters
from checks.printed_bagging import PrintedBaggingClassifier, printed_learner_epsilon
from helpers.meta import bagging
from helpers.privacy import (
    REPLACE_ONE,
    Guarantee,
    PrivacyLeakWarning,
    advanced_composition,
    optimal_composition,
)

NEIGHBOURS = {
    "replace": lambda n: (range(n), [n, *range(1, n)]),
    "remove": lambda n: (range(n), range(1, n)),
    "add": lambda n: (range(n), range(n + 1)),
}


# Learners without privacy


@pytest.mark.parametrize("kind", NEIGHBOURS)
@pytest.mark.parametrize(("n", "m", "k"), [(2, 1, 1), (3, 2, 2), (4, 1, 3), (5, 2, 1), (6, 1, 4), (6, 4, 1)])
def test_liu_theorem_is_sound_and_its_epsilon_is_void(kind, n, m, k):
    here, there = (bagging_privacy.bagging_distribution(list(data), m, k) for data in NEIGHBOURS[kind](n))
    assert sum(here.values()) == 1
    printed = 1 - Fraction(n - 1, n) ** (m * k)
    for factor in (1, Fraction(n + 1, n) ** (m * k), 10**9):
        worst = max(
            bagging_privacy.hockey_stick(here, there, factor), bagging_privacy.hockey_stick(there, here, factor)
        )
        # With the record among n, the delta is attained at every epsilon; among n + 1, it is smaller.
        expected = printed if kind != "add" else 1 - Fraction(n, n + 1) ** (m * k)
        assert worst == expected <= printed
    assert liu_parameters(n, m * k)[1] == pytest.approx(float(printed), rel=1e-12)


def test_proposition_4_has_no_integer_solution():
    for n in (2, 10, 1000, 10**6):
        assert draws_for_delta(n, 1.0) == pytest.approx(1.0)
        for exponent in (1.01, 1.5, 2.0):
            draws = draws_for_delta(n, exponent)
            epsilon, delta = liu_parameters(n, draws)
            assert draws < 1
            assert delta == pytest.approx(n**-exponent, rel=1e-9)
            assert epsilon <= 1 / n
        assert liu_parameters(n, 1)[1] >= 1 / n * (1 - 1e-12)


# Subsampling


@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 2), (3, 3), (4, 3)])
@pytest.mark.parametrize("inner", [0.2, 1.0, 2.0])
def test_bootstrap_epsilon_is_exact(n, k, inner):
    sizes = {"n_records": n, "sample_size": k}
    epsilon = bagging.changed_rows("bootstrap", **sizes).log_mean(inner)
    assert bagging_privacy.worst_learner_delta(epsilon, inner, **sizes) <= 1e-9
    assert bagging_privacy.worst_learner_delta(epsilon - 0.02, inner, **sizes) > 1e-5
    assert epsilon > 0.99 * inner if n == k else epsilon < inner * k


@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize(("inner", "delta"), [(0.5, 0.0), (1.0, 0.0), (1.0, 0.01), (0.3, 0.05)])
def test_bootstrap_delta_covers_every_learner(n, k, inner, delta):
    sizes = {"n_records": n, "sample_size": k}
    guarantee = Guarantee(inner, delta, REPLACE_ONE)
    for epsilon in np.linspace(0.05, 2 * inner, 5):
        exact = bagging_privacy.worst_learner_delta(epsilon, inner, inner_delta=delta, **sizes)
        assert exact <= bagging.changed_rows("bootstrap", **sizes).delta_at(epsilon, guarantee) + 1e-9
        assert exact > 0 or (
            delta == 0 and epsilon >= bagging.changed_rows("bootstrap", **sizes).log_mean(inner) - 1e-9
        )


@pytest.mark.parametrize(("n", "k"), [(3, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize(("inner", "delta"), [(1.0, 0.0), (0.5, 0.02)])
def test_without_replacement_is_exact(n, k, inner, delta):
    sizes = {"n_records": n, "sample_size": k}
    bag = bagging.changed_rows("without-replacement", **sizes).amplify(Guarantee(inner, delta, REPLACE_ONE))
    exact = bagging_privacy.worst_learner_delta(bag.epsilon, inner, inner_delta=delta, replacement=False, **sizes)
    assert exact == pytest.approx(bag.delta, abs=1e-9)
    assert bagging_privacy.worst_learner_delta(
        bag.epsilon - 0.02, inner, inner_delta=delta, replacement=False, **sizes
    ) > (bag.delta + 1e-4)


@given(st.integers(2, 200), st.integers(1, 300), st.floats(0.001, 3))
def test_bootstrap_epsilon_is_a_mean_over_multiplicities(n, k, inner):
    copies = np.arange(k + 1)
    mean = logsumexp(binom.logpmf(copies, k, 1 / n) + copies * inner)
    assert bagging.changed_rows("bootstrap", n_records=n, sample_size=k).log_mean(inner) == pytest.approx(
        mean, rel=1e-6, abs=1e-9
    )


@given(st.floats(1e-3, 6), st.integers(1, 5000), st.floats(1e-12, 0.9))
def test_printed_total_covers_bootstrap_bags_of_pure_learners(inner, m, delta):
    """Basic composition or concentrated DP of the true bag guarantee is within the printed advanced composition."""
    bag = math.expm1(inner)  # k = n, every n
    basic = m * bag
    concentrated = m * bag**2 / 2 + bag * math.sqrt(2 * m * math.log(1 / delta))
    assert min(basic, concentrated) <= advanced_composition(inner, 0.0, m, delta)[0] * (1 + 1e-12)


# Bags


def test_one_record_one_bag():
    y = np.random.default_rng(0).integers(0, 2, 30)

    def dealt(labels, seed=1):
        return bagging_privacy.assign_within_class(labels, 4, np.random.default_rng(seed))

    assert set(dealt(y)) == set(range(4))
    assert not np.array_equal(dealt(y), dealt(y, seed=2))
    assert bagging_privacy.bags_touched(y, dealt) == (2, 2)
    assert bagging_privacy.bags_touched(y, lambda labels: dealt(y)) == (1, 2)


@pytest.mark.parametrize("m", [2, 3, 4])
def test_rank_stratification_touches_every_bag(m):
    worst = dict.fromkeys((bagging.assign_by_rank, bagging_privacy.assign_in_blocks), (0, 0))
    for labels in itertools.product([0, 1], repeat=8):
        for assign in worst:
            found = bagging_privacy.bags_touched(labels, partial(assign, n_bags=m))
            worst[assign] = max(worst[assign], found)
    assert {bags for bags, _ in worst.values()} == {m}
    assert worst[bagging.assign_by_rank][1] > 2 * m  # dealing in turn moves records of every bag
    y = np.repeat([0, 1], [20, 8])
    counts = [np.bincount(y[bagging.assign_by_rank(y, 4) == bag], minlength=2).tolist() for bag in range(4)]
    assert counts == [[5, 2]] * 4


def test_even_deal():
    bags = bagging.assign_evenly(103, 10, np.random.default_rng(3))
    assert sorted(np.bincount(bags)) == [10] * 7 + [11] * 3
    with pytest.raises(ValueError, match="n_bags must be"):
        bagging.assign_evenly(3, 4, np.random.default_rng(0))


# The budget


def test_advanced_composition_gives_less_than_basic_in_the_paper():
    for n, m in itertools.product([500, 10_000], [5, 10, 20]):
        options = {"n_estimators": m, "delta": n**-2.0}
        advanced = printed_learner_epsilon(0.5, composition="advanced", **options)
        assert advanced < printed_learner_epsilon(0.5, composition="basic", **options) == pytest.approx(0.5 / m)
        assert printed_learner_epsilon(0.5, composition="optimal", **options) >= 0.5 / m * (1 - 1e-8)
    first = printed_learner_epsilon(0.5, composition="advanced", n_estimators=5, delta=500**-2.0)
    assert first == pytest.approx(0.0440, abs=5e-5)


@pytest.mark.parametrize("sampling", ["bootstrap", "without-replacement", "disjoint"])
@pytest.mark.parametrize("composition", ["basic", "advanced", "optimal"])
def test_the_budget_is_used_and_kept(sampling, composition):
    options = {"n_estimators": 7, "n_records": 40, "sample_size": 20, "sampling": sampling, "delta": 1e-6}
    inner = bagging.learner_epsilon(1.0, composition=composition, **options)
    total = bagging.ensemble_guarantee(Guarantee(inner, 0.0, REPLACE_ONE), composition=composition, **options)
    more = bagging.ensemble_guarantee(Guarantee(inner * 1.01, 0.0, REPLACE_ONE), composition=composition, **options)
    assert total.epsilon <= 1 + 1e-9 < more.epsilon


def test_learners_with_delta():
    inner = Guarantee(0.05, 1e-9, REPLACE_ONE)
    options = {"n_estimators": 4, "n_records": 30, "sample_size": 30, "delta": 1e-6}
    sound = bagging.ensemble_guarantee(inner, **options)
    bag = bagging.changed_rows("bootstrap", n_records=30, sample_size=30).delta_at(sound.epsilon / 4, inner)
    assert sound.delta == pytest.approx(1e-6)
    assert bag == pytest.approx(1e-6 / 4, rel=1e-6)  # the bags have all of it, and use it up


@pytest.mark.parametrize("composition", ["basic", "advanced", "optimal"])
def test_delta_is_shared_out_once(composition):
    """Basic composition leaves delta/m to a bag, the theorems with a slack half of that; nothing exceeds the total."""
    inner = Guarantee(0.05, 1e-9, REPLACE_ONE)
    sizes = {"n_records": 30, "sample_size": 30}
    found = bagging.ensemble_guarantee(
        inner, n_estimators=4, delta=1e-6, sampling="bootstrap", composition=composition, **sizes
    )
    assert found.delta == pytest.approx(1e-6)
    each = 1e-6 / 4 if composition == "basic" else 1e-6 / 8
    rows = bagging.changed_rows("bootstrap", **sizes)
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rows.delta_at(middle, inner) <= each else (middle, high)
    total = {
        "basic": lambda: 4 * high,
        "advanced": lambda: advanced_composition(high, each, 4, 1e-6 - 4 * each)[0],
        "optimal": lambda: optimal_composition(high, 4, 1e-6, delta_each=each)[0],
    }
    assert found.epsilon == pytest.approx(total[composition](), rel=1e-6)


def test_basic_composition_of_two_bags_is_covered_by_enumeration():
    """Two bootstrap bags of a learner that reveals a record: its exact delta is within the stated total."""
    epsilon, delta, n = 0.5, 1e-3, 4
    inner = Guarantee(epsilon, delta, REPLACE_ONE)
    copies = np.arange(n + 1)
    reveals = delta * np.expm1(copies * epsilon) / np.expm1(epsilon)  # (epsilon, delta)-DP in its bag
    mean = binom(n, 1 / n).pmf(copies) @ reveals
    for total in (2 * mean * 1.5, 2 * mean * 4):
        found = bagging.ensemble_guarantee(inner, n_estimators=2, n_records=n, delta=total, sampling="bootstrap")
        assert 1 - (1 - mean) ** 2 <= found.delta <= total * (1 + 1e-9)


def test_budgets_that_cannot_be_met():
    """A learner's delta needs some of the ensemble's; where there is too little, no budget is left to a learner."""
    options = {"n_estimators": 4, "n_records": 30}
    with pytest.raises(ValueError, match="delta must be positive for bootstrap bags"):
        bagging.ensemble_guarantee(Guarantee(0.1, 1e-9, REPLACE_ONE), **options)
    assert bagging.learner_epsilon(1.0, inner_delta=1e-3, delta=1e-6, **options) == 0.0


@given(st.integers(2, 60), st.integers(1, 80), st.floats(0.01, 1.5), st.floats(1e-10, 1e-3), st.floats(0, 2))
def test_a_bag_never_costs_more_than_its_mixture_of_groups(n, k, epsilon, delta, at):
    """The pair of `amplify` against the sum over copies, each group as `Guarantee` has it."""
    inner, rows = Guarantee(epsilon, delta, REPLACE_ONE), bagging.changed_rows("bootstrap", n_records=n, sample_size=k)
    drawn = 1 - (1 - 1 / n) ** k
    of_learner = math.log1p(math.expm1(at) / drawn)
    copies = np.arange(1, k + 1)
    expected = binom.pmf(copies, k, 1 / n) @ [inner.group(int(c)).delta_at(of_learner) for c in copies]
    assert rows.mixture_delta(at, inner) == pytest.approx(expected, rel=1e-7, abs=1e-18)
    assert rows.delta_at(at, inner) <= expected * (1 + 1e-7) + 1e-18


# The printed ensemble


class Counter(ClassifierMixin, BaseEstimator):
    """Releases the number of records with x = 1 in its bag plus two-sided geometric noise: epsilon-DP, nothing less."""

    def __init__(self, epsilon=1.0, random_state=None):
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        p = -math.expm1(-self.epsilon)
        self.classes_ = np.array([0, 1])
        self.count_ = int(np.sum(X[:, 0] == 1)) + int(rng.geometric(p) - rng.geometric(p))
        self.guarantee_ = Guarantee(float(self.epsilon), 0.0, REPLACE_ONE)
        return self


def test_printed_accounting_understates_the_loss():
    """One bag of 20 draws: at least 3 copies of a record and noise, exactly and in runs of the estimator."""
    X, y, claimed, runs = np.zeros((20, 1)), np.repeat([0, 1], 10), 1.5, 1200
    X[0] = 1
    decay = math.exp(-claimed)
    copies = np.arange(21)
    shifts = np.arange(3, -18, -1)
    tail = np.where(shifts > 0, decay ** shifts.clip(0), 1 + decay - decay ** (1 - shifts).clip(0)) / (1 + decay)
    exact = binom(20, 1 / 20).pmf(copies) @ tail
    assert math.log(exact / tail[0]) > 1.2 * claimed  # tail[0]: the same event when the record is elsewhere
    sound = bagging.changed_rows("bootstrap", n_records=20, sample_size=20)
    assert math.log(exact / tail[0]) <= sound.log_mean(claimed)
    model = PrintedBaggingClassifier(Counter(), 1, epsilon=claimed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        hits = sum(model.fit(X, y).estimators_[0].count_ >= 3 for _ in range(runs))
    low, high = binomtest(hits, runs).proportion_ci(1 - 1e-7)
    assert low <= exact <= high
    with pytest.warns(PrivacyLeakWarning, match="can hold a record many times"):
        model.fit(X, y)
    assert "no record drawn twice (false)" in model.guarantee_.assumes
    assert (model.guarantee_.epsilon, model.learner_epsilon_) == (pytest.approx(claimed), pytest.approx(claimed))
    honest = bagging.PrivateBaggingClassifier(Counter(), 1, epsilon=claimed, sampling="bootstrap").fit(X, y)
    assert honest.learner_epsilon_ < 0.7 * claimed
    assert clone(model).sampling == "bootstrap"
