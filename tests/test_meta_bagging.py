"""Bagging: enumeration against the theorems, the budget, and the estimator."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom, binomtest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression

from helpers.erm import ObjectivePerturbationClassifier
from helpers.meta import bagging
from helpers.meta.bagging import PrivateBaggingClassifier
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Guarantee,
    PrivacyLeakWarning,
    advanced_composition,
    optimal_composition,
)

FEW = settings(derandomize=True, deadline=None, max_examples=25)
NEIGHBOURS = {
    "replace": lambda n: (range(n), [n, *range(1, n)]),
    "remove": lambda n: (range(n), range(1, n)),
    "add": lambda n: (range(n), range(n + 1)),
}


# Learners without privacy


@pytest.mark.parametrize("kind", NEIGHBOURS)
@pytest.mark.parametrize(("n", "m", "k"), [(2, 1, 1), (3, 2, 2), (4, 1, 3), (5, 2, 1), (6, 1, 4), (6, 4, 1)])
def test_liu_theorem_is_sound_and_its_epsilon_is_void(kind, n, m, k):
    here, there = (bagging.bagging_distribution(list(data), m, k) for data in NEIGHBOURS[kind](n))
    assert sum(here.values()) == 1
    printed = 1 - Fraction(n - 1, n) ** (m * k)
    for factor in (1, Fraction(n + 1, n) ** (m * k), 10**9):
        worst = max(bagging.hockey_stick(here, there, factor), bagging.hockey_stick(there, here, factor))
        # With the record among n, the delta is attained at every epsilon; among n + 1, it is smaller.
        expected = printed if kind != "add" else 1 - Fraction(n, n + 1) ** (m * k)
        assert worst == expected <= printed
    assert bagging.liu_parameters(n, m * k)[1] == pytest.approx(float(printed), rel=1e-12)


def test_other_learners_leak_no_more_than_the_bag():
    def votes_for_the_record(bag):
        return 0 in bag

    def size_of_the_bag(bag):
        return len(set(bag))

    for learner in (votes_for_the_record, size_of_the_bag, min):
        here, there = (bagging.bagging_distribution(list(d), 2, 2, learner) for d in NEIGHBOURS["replace"](4))
        full, other = (bagging.bagging_distribution(list(d), 2, 2) for d in NEIGHBOURS["replace"](4))
        for factor in (1, 2):
            assert bagging.hockey_stick(here, there, factor) <= bagging.hockey_stick(full, other, factor)


def test_proposition_4_has_no_integer_solution():
    for n in (2, 10, 1000, 10**6):
        assert bagging.draws_for_delta(n, 1.0) == pytest.approx(1.0)
        for exponent in (1.01, 1.5, 2.0):
            draws = bagging.draws_for_delta(n, exponent)
            epsilon, delta = bagging.liu_parameters(n, draws)
            assert draws < 1
            assert delta == pytest.approx(n**-exponent, rel=1e-9)
            assert epsilon <= 1 / n
        assert bagging.liu_parameters(n, 1)[1] >= 1 / n * (1 - 1e-12)


# Subsampling


@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 2), (3, 3), (4, 3)])
@pytest.mark.parametrize("inner", [0.2, 1.0, 2.0])
def test_bootstrap_epsilon_is_exact(n, k, inner):
    sizes = {"n_records": n, "sample_size": k}
    epsilon = bagging.bootstrap_epsilon(inner, **sizes)
    assert bagging.worst_learner_delta(epsilon, inner, **sizes) <= 1e-9
    assert bagging.worst_learner_delta(epsilon - 0.02, inner, **sizes) > 1e-5
    assert epsilon > 0.99 * inner if n == k else epsilon < inner * k


@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize(("inner", "delta"), [(0.5, 0.0), (1.0, 0.0), (1.0, 0.01), (0.3, 0.05)])
def test_bootstrap_delta_covers_every_learner(n, k, inner, delta):
    sizes = {"n_records": n, "sample_size": k}
    guarantee = Guarantee(inner, delta, REPLACE_ONE)
    for epsilon in np.linspace(0.05, 2 * inner, 5):
        exact = bagging.worst_learner_delta(epsilon, inner, inner_delta=delta, **sizes)
        assert exact <= bagging.bootstrap_delta(epsilon, guarantee, **sizes) + 1e-9
        assert exact > 0 or (delta == 0 and epsilon >= bagging.bootstrap_epsilon(inner, **sizes) - 1e-9)


@pytest.mark.parametrize(("n", "k"), [(3, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize(("inner", "delta"), [(1.0, 0.0), (0.5, 0.02)])
def test_without_replacement_is_exact(n, k, inner, delta):
    sizes = {"n_records": n, "sample_size": k}
    bag = bagging.without_replacement(Guarantee(inner, delta, REPLACE_ONE), **sizes)
    exact = bagging.worst_learner_delta(bag.epsilon, inner, inner_delta=delta, replacement=False, **sizes)
    assert exact == pytest.approx(bag.delta, abs=1e-9)
    assert bagging.worst_learner_delta(bag.epsilon - 0.02, inner, inner_delta=delta, replacement=False, **sizes) > (
        bag.delta + 1e-4
    )


@FEW
@given(st.integers(2, 200), st.integers(1, 300), st.floats(0.001, 3))
def test_bootstrap_epsilon_is_a_mean_over_multiplicities(n, k, inner):
    copies = np.arange(k + 1)
    mean = logsumexp(binom.logpmf(copies, k, 1 / n) + copies * inner)
    assert bagging.bootstrap_epsilon(inner, n_records=n, sample_size=k) == pytest.approx(mean, rel=1e-6, abs=1e-9)


@FEW
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
    ids = [f"r{i}" for i in range(30)]
    here = bagging.assign_by_id(ids, 4, salt=1)
    assert np.array_equal(np.delete(here, 7), bagging.assign_by_id(ids[:7] + ids[8:], 4, salt=1))
    assert set(here) == set(range(4))
    assert not np.array_equal(here, bagging.assign_by_id(ids, 4, salt=2))
    touched = bagging.bags_touched(y, lambda labels: bagging.assign_within_class(labels, ids, 4, salt=1))
    assert touched[0] <= 2
    assert touched[1] == 2
    assert bagging.bags_touched(y, lambda labels: here) == (1, 2)


@pytest.mark.parametrize("m", [2, 3, 4])
def test_rank_stratification_touches_every_bag(m):
    worst = {False: (0, 0), True: (0, 0)}
    for labels in itertools.product([0, 1], repeat=8):
        for blocks in worst:
            found = bagging.bags_touched(labels, lambda y, b=blocks: bagging.assign_by_rank(y, m, blocks=b))
            worst[blocks] = max(worst[blocks], found)
    assert worst[True][0] == worst[False][0] == m
    assert worst[False][1] > 2 * m  # dealing in turn moves records of every bag
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
        options = {"n_estimators": m, "n_records": n, "delta": n**-2.0, "accounting": "printed"}
        advanced = bagging.learner_epsilon(0.5, composition="advanced", **options)
        assert advanced < bagging.learner_epsilon(0.5, composition="basic", **options) == pytest.approx(0.5 / m)
        assert bagging.learner_epsilon(0.5, composition="optimal", **options) >= 0.5 / m * (1 - 1e-8)
    first = {"n_estimators": 5, "n_records": 500, "delta": 500**-2.0, "accounting": "printed"}
    assert bagging.learner_epsilon(0.5, composition="advanced", **first) == pytest.approx(0.0440, abs=5e-5)


@pytest.mark.parametrize("sampling", ["bootstrap", "without-replacement", "disjoint"])
@pytest.mark.parametrize("composition", ["basic", "advanced", "optimal", "pld"])
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
    bag = bagging.bootstrap_delta(sound.epsilon / 4, inner, n_records=30, sample_size=30)
    assert sound.delta == pytest.approx(1e-6)
    assert 0.999 * 1e-6 / 4 <= bag <= 1e-6 / 4  # the bags have all of it, and use it up
    private = bagging.ensemble_guarantee(
        Guarantee(0.1, 1e-6, ADD_REMOVE), n_estimators=4, n_records=30, sampling="stratified-disjoint"
    )
    assert private.epsilon == pytest.approx(0.2)
    assert private.delta == pytest.approx(1e-6 * (1 + math.exp(0.1)))


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
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if bagging.bootstrap_delta(middle, inner, **sizes) <= each else (middle, high)
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


# The estimator


class Counter(ClassifierMixin, BaseEstimator):
    """Releases the number of records with x = 1 in its bag plus two-sided geometric noise: epsilon-DP, nothing less."""

    def __init__(self, epsilon=1.0, random_state=None, neighbouring=REPLACE_ONE):
        self.epsilon = epsilon
        self.random_state = random_state
        self.neighbouring = neighbouring

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        p = -math.expm1(-self.epsilon)
        self.classes_ = np.array([0, 1])
        self.count_ = int(np.sum(X[:, 0] == 1)) + int(rng.geometric(p) - rng.geometric(p))
        self.guarantee_ = Guarantee(float(self.epsilon), 0.0, self.neighbouring)
        return self

    def predict(self, X):
        return np.full(len(X), int(self.count_ > 0))

    def predict_proba(self, X):
        return np.tile([0.25, 0.75], (len(X), 1))


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    return np.column_stack([rng.normal(size=n) / 4 + y / 2, rng.normal(size=n) / 4]), y


BASE = ObjectivePerturbationClassifier(regularization=0.1)


@pytest.mark.parametrize("sampling", ["bootstrap", "without-replacement", "disjoint"])
@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_fit_predict(sampling, voting):
    X, y = data()
    model = PrivateBaggingClassifier(BASE, 5, epsilon=40.0, sampling=sampling, voting=voting, random_state=0)
    model = clone(model).fit(X, y)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (60, 2)
    assert np.allclose(probabilities.sum(axis=1), 1)
    if voting == "hard":
        votes = np.array([learner.predict(X) for learner in model.estimators_])
        assert np.allclose(probabilities[:, 1], votes.mean(axis=0))
    assert np.array_equal(model.predict(X), (probabilities[:, 1] > 0.5).astype(int))
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (40.0, 0.0)
    assert model.guarantee_.neighbouring == REPLACE_ONE
    assert all(learner.guarantee_.epsilon == model.learner_epsilon_ for learner in model.estimators_)
    assert np.array_equal(clone(model).fit(X, y).predict_proba(X), probabilities)


def test_stratified_bags():
    X, y = data(200)
    public = PrivateBaggingClassifier(BASE, 4, sampling="stratified-disjoint", public_labels=True, random_state=0)
    bags = public._bags(y, None, np.random.default_rng(0))
    assert len(np.unique(np.concatenate(bags))) == 200
    assert np.ptp([y[rows].sum() for rows in bags]) <= 1
    assert public.fit(X, y).learner_epsilon_ == pytest.approx(1.0)
    assert any("labels public" in text for text in public.guarantee_.assumes)
    add_remove = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=1)
    private = PrivateBaggingClassifier(add_remove, 4, sampling="stratified-disjoint", random_state=0).fit(X, y)
    assert private.learner_epsilon_ == pytest.approx(0.5)
    assert private.guarantee_.neighbouring == REPLACE_ONE
    assert private.estimators_[0].n_records == 50


def test_private_values_never_fail():
    X, _ = data(12)
    add_remove = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=1)
    for y in (np.zeros(12, int), np.ones(12, int)):
        for base, sampling in ((BASE, "bootstrap"), (BASE, "disjoint"), (add_remove, "stratified-disjoint")):
            model = PrivateBaggingClassifier(base, 10, sampling=sampling, random_state=0).fit(X, y)
            assert set(model.predict(X)) <= {0, 1}


@pytest.mark.parametrize("sampling", ["bootstrap", "without-replacement", "disjoint"])
def test_a_class_absent_from_a_bag_is_no_error(sampling):
    X, _ = data(30)
    y = np.arange(30) == 0  # one minority record: most of ten bags have none
    model = PrivateBaggingClassifier(BASE, 10, sampling=sampling, sample_size=3, random_state=0).fit(X, y.astype(int))
    assert len(model.estimators_) == 10
    assert model.predict_proba(X).shape == (30, 2)


def test_a_class_absent_from_a_bag_is_an_error_where_labels_are_public():
    class Reader(Counter):
        fitted = 0

        def fit(self, X, y):
            Reader.fitted += len(X) > 2  # the made-up records are two
            return super().fit(X, y)

    X, _ = data(30)
    y = (np.arange(30) < 4).astype(int)
    model = PrivateBaggingClassifier(Reader(), 5, sampling="stratified-disjoint", public_labels=True, random_state=0)
    for labels, fewest in ((y, 4), (np.zeros(30, int), 0)):
        with pytest.raises(
            ValueError, match=f"n_estimators must be at most the number of records of each class, {fewest}"
        ):
            model.fit(X, labels)
    assert Reader.fitted == 0
    assert len(model.set_params(n_estimators=4).fit(X, y).estimators_) == 4
    assert Reader.fitted == 4


def test_add_remove_needs_identifiers():
    X, y = data(20)
    base = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=1)
    model = PrivateBaggingClassifier(
        base, 4, sampling="disjoint", neighbouring=ADD_REMOVE, n_records=24, random_state=0
    )
    fitted = model.fit(X, y, ids=range(20))
    assert fitted.guarantee_.neighbouring == ADD_REMOVE
    assert fitted.estimators_[0].n_records == 6
    assert len(model.fit(X[:2], y[:2], ids=["a", "b"]).estimators_) == 4  # the number of rows is private here
    with pytest.raises(ValueError, match="neighbouring must be replace-one"):
        model.fit(X, y)


def test_bag_contents_follow_identifiers():
    model = PrivateBaggingClassifier(BASE, 3, sampling="disjoint", random_state=0)
    first = model._bags(np.zeros(9), list("abcdefghi"), np.random.default_rng(0))
    second = model._bags(np.zeros(8), list("abcdefgh"), np.random.default_rng(0))
    for a, b in zip(first, second, strict=True):
        assert set(a) - {8} == set(b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_estimators": 0}, "n_estimators must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"sampling": "poisson"}, "sampling must be"),
        ({"voting": "veto"}, "voting must be"),
        ({"sample_size": 61}, "sample_size must be at most the number of records, 60"),
        ({"sample_size": 0}, "sample_size must be"),
        ({"sampling": "disjoint", "n_estimators": 61}, "n_estimators must be at most"),
        ({"composition": "optimal"}, "delta must be positive"),
        ({"accounting": "printed"}, "accounting must be 'sound'"),
        ({"estimator": LogisticRegression()}, "estimator must be a classifier with a parameter 'epsilon'"),
        ({"classes": (0, 0)}, "classes must be"),
        ({"sampling": "stratified-disjoint"}, "estimator must be private under add/remove-one"),
        ({"classes": ("a", "b")}, "y must hold labels"),
        ({"neighbouring": ADD_REMOVE}, "neighbouring must be replace-one"),
    ],
)
def test_bad_parameters(options, message):
    X, y = data()
    with pytest.raises(ValueError, match=message):
        PrivateBaggingClassifier(**{"estimator": BASE, **options}).fit(X, y)


def test_a_learner_without_guarantee_is_refused():
    class Silent(Counter):
        def fit(self, X, y):
            super().fit(X, y)
            del self.guarantee_
            return self

    class Spender(Counter):
        def fit(self, X, y):
            super().fit(X, y)
            self.guarantee_ = Guarantee(2 * self.epsilon, 0.0, REPLACE_ONE)
            return self

    X, y = data()
    for learner, message in ((Silent(), "must have a guarantee_"), (Spender(), "must keep the total")):
        with pytest.raises(ValueError, match=message):
            PrivateBaggingClassifier(learner).fit(X, y)


def test_empty_public_bag_is_an_error():
    X, y = data(3)
    with pytest.raises(ValueError, match="ids must leave no bag"):
        PrivateBaggingClassifier(BASE, 3, sampling="disjoint", random_state=0).fit(X, y, ids=["a", "b", "c"])


def test_printed_accounting_understates_the_loss():
    """One bag of 20 draws: at least 3 copies of a record and noise, exactly and in runs of the estimator."""
    X, y, claimed, runs = np.zeros((20, 1)), np.repeat([0, 1], 10), 1.5, 400
    X[0] = 1
    decay = math.exp(-claimed)
    copies = np.arange(21)
    shifts = np.arange(3, -18, -1)
    tail = np.where(shifts > 0, decay ** shifts.clip(0), 1 + decay - decay ** (1 - shifts).clip(0)) / (1 + decay)
    exact = binom(20, 1 / 20).pmf(copies) @ tail
    assert math.log(exact / tail[0]) > 1.2 * claimed  # tail[0]: the same event when the record is elsewhere
    assert math.log(exact / tail[0]) <= bagging.bootstrap_epsilon(claimed, n_records=20, sample_size=20)
    model = PrivateBaggingClassifier(Counter(), 1, epsilon=claimed, sampling="bootstrap", accounting="printed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        hits = sum(model.set_params(random_state=seed).fit(X, y).estimators_[0].count_ >= 3 for seed in range(runs))
    low, high = binomtest(hits, runs).proportion_ci(0.9999)
    assert low <= exact <= high
    with pytest.warns(PrivacyLeakWarning, match="can hold a record many times"):
        model.fit(X, y)
    assert model.set_params(accounting="sound").fit(X, y).learner_epsilon_ < 0.7 * claimed


class Grows(LogisticRegression):
    """Claims a guarantee that depends on how many records it saw."""

    def __init__(self, epsilon=1.0, random_state=None):
        super().__init__()
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X, y):
        self.random_state = None  # scikit-learn's own knows no Generator
        super().fit(X, y)
        self.guarantee_ = Guarantee(self.epsilon * len(X) / 2, 0.0, REPLACE_ONE)
        return self


def test_a_learner_whose_guarantee_depends_on_its_records_is_refused():
    X, y = np.arange(40.0)[:, None], np.tile([0, 1], 20)
    model = PrivateBaggingClassifier(Grows(), n_estimators=2, sampling="disjoint", random_state=0)
    with pytest.raises(ValueError, match="estimator must have the guarantee"):
        model.fit(X, y)
    assert not hasattr(model, "estimators_")


def test_identifiers_are_public_under_replace_one():
    X, y = np.arange(40.0)[:, None] / 40, np.tile([0, 1], 20)
    model = PrivateBaggingClassifier(ObjectivePerturbationClassifier(), 2, sampling="disjoint", random_state=0)
    without = model.fit(X, y).guarantee_
    named = model.fit(X, y, ids=[f"p{i}" for i in range(40)]).guarantee_
    assert any("identifiers public" in item for item in named.assumes)
    assert not any("identifiers" in item for item in without.assumes)
    assert named.epsilon >= model.learner_guarantee_.epsilon
