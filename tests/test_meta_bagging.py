"""Bagging: the estimator."""

import math
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from helpers.erm import KernelClassifier, ObjectivePerturbationClassifier, OutputPerturbationClassifier
from helpers.meta.bagging import PrivateBaggingClassifier
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    SEED_SECRET,
    Guarantee,
)


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


class Reader(Counter):
    """Counts the fits to records that are not made up, which are far from the origin."""

    fitted = 0

    def fit(self, X, y):
        Reader.fitted += bool(np.abs(X).max() > 1)
        return super().fit(X, y)


def test_a_class_absent_from_a_bag_is_an_error_where_labels_are_public():
    X, y = data(30)[0] + 10, (np.arange(30) < 4).astype(int)
    model = PrivateBaggingClassifier(Reader(), 5, sampling="stratified-disjoint", public_labels=True, random_state=0)
    Reader.fitted = 0
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
    for n in (0, 1, 2):  # the number of rows is private here
        few = model.fit(X[:n], y[:n], ids=["a", "b"][:n])
        assert len(few.estimators_) == 4
        assert set(few.predict(X)) <= {0, 1}
        assert few.guarantee_ == fitted.guarantee_
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
        ({"estimator": LogisticRegression()}, "estimator must be a classifier with a parameter 'epsilon'"),
        ({"estimator": None}, "estimator must be a classifier"),
        ({"classes": (0, 0)}, "classes must be two"),
        ({"classes": (0, 1, 2)}, "classes must be two"),
        ({"public_labels": "no"}, "public_labels must be True or False, got 'no'"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be None or an integer"),
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


class Curious(Counter):
    """Its promise depends on the records."""

    def fit(self, X, y):
        super().fit(X, y)
        self.guarantee_ = Guarantee(self.epsilon * (1 + np.ptp(X)), 0.0, REPLACE_ONE)
        return self


class Boastful(Counter):
    """Promises more the more records it has, which is all right as long as their number is public."""

    def fit(self, X, y):
        super().fit(X, y)
        self.guarantee_ = Guarantee(self.epsilon * 4 / len(X), 0.0, REPLACE_ONE)
        return self


class OneClassFails(Counter):
    def fit(self, X, y):
        if len(np.unique(y)) < 2:
            raise ValueError("two classes are needed")
        return super().fit(X, y)


class Picky(Counter):
    """Needs eight records."""

    def fit(self, X, y):
        if len(X) < 8:
            raise ValueError(f"eight records are needed, got {len(X)}")
        return super().fit(X, y)


@pytest.mark.parametrize(
    ("learner", "message"), [(Curious(), "one guarantee whatever its records are"), (OneClassFails(), "two classes")]
)
@pytest.mark.parametrize("sampling", ["bootstrap", "disjoint"])
def test_a_learner_that_depends_on_values_is_refused_for_data_that_would_not_show_it(learner, message, sampling):
    X, y = np.zeros((40, 1)), np.tile([0, 1], 20)
    model = PrivateBaggingClassifier(learner, 2, sampling=sampling, random_state=0)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "estimators_")


def test_a_learner_is_tried_with_as_many_records_as_it_gets():
    X, y = data(41)
    model = PrivateBaggingClassifier(Picky(), 5, sampling="disjoint")
    assert len(model.fit(X, y).estimators_) == 5
    with pytest.raises(ValueError, match="eight records are needed, got 7"):
        model.fit(X[:39], y[:39])
    # Bags of 4 and of 5 records: the guarantee is that of the smaller one.
    boastful = PrivateBaggingClassifier(Boastful(), 2, epsilon=1.0, sampling="disjoint").fit(X[:9], y[:9])
    assert boastful.learner_guarantee_.epsilon == pytest.approx(1.0)
    assert sorted(learner.guarantee_.epsilon for learner in boastful.estimators_) == pytest.approx([0.8, 1.0])


def test_a_total_beyond_what_a_learner_takes():
    """Ten bags of a learner with epsilon 5 cost more in all than objective perturbation accepts for itself."""
    X, y = data()
    model = PrivateBaggingClassifier(BASE, 10, epsilon=1e4, sampling="bootstrap", random_state=0).fit(X, y)
    assert 5 < model.learner_epsilon_ <= 50
    assert model.guarantee_.epsilon == 1e4


def test_identifiers_are_public_under_replace_one():
    X, y = np.arange(40.0)[:, None] / 40, np.tile([0, 1], 20)
    model = PrivateBaggingClassifier(ObjectivePerturbationClassifier(), 2, sampling="disjoint", random_state=0)
    without = model.fit(X, y).guarantee_
    named = model.fit(X, y, ids=[f"p{i}" for i in range(40)]).guarantee_
    assert any("identifiers public" in item for item in named.assumes)
    assert not any("identifiers" in item for item in without.assumes)
    assert named.epsilon >= model.learner_guarantee_.epsilon


# The noise, and what stays on the fitted object


@pytest.mark.parametrize("sampling", ["bootstrap", "without-replacement", "disjoint"])
@pytest.mark.parametrize("seeded", [False, True])
def test_learners_have_noise_of_their_own(sampling, seeded):
    X, y = np.full((24, 1), 0.3), np.ones(24, int)  # all bags are equal, so only the noise can differ
    base = OutputPerturbationClassifier(regularization=1.0, fit_intercept=False)
    model = PrivateBaggingClassifier(base, 3, epsilon=3.0, sampling=sampling)
    released = []
    for seed in range(60):
        model.set_params(random_state=seed if seeded else None).fit(X, y)
        released.append([learner.coef_[0, 0] for learner in model.estimators_])
    released = np.array(released)
    assert len(np.unique(released)) == released.size
    between = np.corrcoef(released.T)[np.triu_indices(3, 1)]
    assert np.abs(between).max() < 5 / math.sqrt(60)
    # In one dimension the noise is Laplace's, of scale 1/rate.
    rate = model.estimators_[0].noise_rate_
    assert np.abs(released - released.mean()).mean() == pytest.approx(1 / rate, rel=0.35)


@pytest.mark.parametrize("seed", [None, 1234567])
@pytest.mark.parametrize("base", [BASE, KernelClassifier(n_frequencies=3)], ids=["linear", "kernel"])
def test_no_source_of_noise_is_left(seed, base):
    X, y = data(20)
    model = PrivateBaggingClassifier(base, 3, random_state=seed).fit(X, y)
    assert [learner.random_state for learner in model.estimators_] == [None] * 3
    for guarantee in (model.guarantee_, *(learner.guarantee_ for learner in model.estimators_)):
        assert (SEED_SECRET in guarantee.assumes) == (seed is not None)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.random_state is None
    assert np.array_equal(copy.predict_proba(X), model.predict_proba(X))
    for learner in copy.estimators_:  # the rewind attack: whatever state is left, a refit must not give the noise back
        before = learner.predict_proba(X)
        assert not np.allclose(learner.fit(X, y).predict_proba(X), before)


def test_a_seed_repeats_a_result_and_shares_no_noise_with_a_neighbour():
    X, y = np.zeros((30, 1)), np.arange(30) % 2
    other = np.where(np.arange(30) == 0, 1, y)
    model = PrivateBaggingClassifier(Counter(), 2, sampling="without-replacement", sample_size=30)
    pairs = []
    for seed in range(60):
        here, again, there = (
            [learner.count_ for learner in model.set_params(random_state=seed).fit(X, labels).estimators_]
            for labels in (y, y, other)
        )
        assert here == again
        pairs.append((here[0], there[0]))
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 5 / math.sqrt(60)


def test_before_the_fit():
    for method in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(PrivateBaggingClassifier(BASE), method)([[0.0]])
