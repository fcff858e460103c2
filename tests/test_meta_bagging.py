"""Bagging: the estimator."""

import inspect
import itertools
import math
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from checks import bagging_privacy
from helpers.erm import KernelClassifier, ObjectivePerturbationClassifier, OutputPerturbationClassifier
from helpers.meta import bagging
from helpers.meta.bagging import PrivateBaggingClassifier, ensemble_guarantee, largest_budget, learner_epsilon
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    SEED_SECRET,
    Guarantee,
    compose,
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
ADDING = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=1)


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
    public = PrivateBaggingClassifier(BASE, 4, sampling="public-strata", random_state=0)
    bags = public._public_bags(200, y, np.random.default_rng(0))
    assert len(np.unique(np.concatenate(bags))) == 200
    assert np.ptp([y[rows].sum() for rows in bags]) <= 1
    assert public.fit(X, y).learner_epsilon_ == pytest.approx(1.0)
    assert any("labels public" in text for text in public.guarantee_.assumes)


def test_private_values_never_fail():
    X, _ = data(12)
    for y in (np.zeros(12, int), np.ones(12, int)):
        for sampling in ("bootstrap", "disjoint"):
            model = PrivateBaggingClassifier(BASE, 10, sampling=sampling, random_state=0).fit(X, y)
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
    model = PrivateBaggingClassifier(Reader(), 5, sampling="public-strata", random_state=0)
    Reader.fitted = 0
    for labels, fewest in ((y, 4), (np.zeros(30, int), 0)):
        with pytest.raises(ValueError, match=f"n_estimators must be at most {fewest}, the records of the rarer class"):
            model.fit(X, labels)
    assert Reader.fitted == 0
    assert len(model.set_params(n_estimators=4).fit(X, y).estimators_) == 4
    assert Reader.fitted == 4


def test_add_remove_needs_a_public_number():
    X, y = data(20)
    base = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=1)
    model = PrivateBaggingClassifier(
        base, 4, sampling="disjoint", neighbouring=ADD_REMOVE, n_records=24, random_state=0
    )
    fitted = model.fit(X, y)
    assert fitted.guarantee_.neighbouring == ADD_REMOVE
    assert fitted.estimators_[0].n_records == 6
    for n in (0, 1, 2):  # the number of rows is private here
        few = model.fit(X[:n], y[:n])
        assert len(few.estimators_) == 4
        assert set(few.predict(X)) <= {0, 1}
        assert few.guarantee_ == fitted.guarantee_
    with pytest.raises(ValueError, match="neighbouring must be replace-one"):
        model.set_params(n_records=None).fit(X, y)


def learned(monkeypatch, *fits):
    """The first entries of the records that each learner of each fit was given, made-up ones left out."""
    found, real = [], bagging.fit_learner

    def noted(learner, X, y):
        found[-1].append(sorted(X[X[:, 0] > 0, 0].tolist()))
        return real(learner, X, y)

    monkeypatch.setattr(bagging, "fit_learner", noted)
    monkeypatch.setattr(PrivateBaggingClassifier, "_noise_generator", lambda *_: np.random.default_rng(0))
    for model, X, y in fits:
        found.append([])
        model.fit(X, y)
    return found


def test_one_record_less_leaves_all_others_in_their_bags(monkeypatch):
    X, y = np.arange(1.0, 41.0)[:, None] / 40, np.tile([0, 1], 20)
    base = Counter(neighbouring=ADD_REMOVE)
    model = PrivateBaggingClassifier(base, 3, sampling="disjoint", neighbouring=ADD_REMOVE, n_records=40)
    more, less = learned(monkeypatch, (model, X, y), (model, X[:-1], y[:-1]))
    assert sorted(itertools.chain(*more)) == X[:, 0].tolist()
    assert [[x for x in bag if x < 1.0] for bag in more] == less


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
        ({"random_state": np.random.default_rng(0)}, "random_state must be None or an integer"),
        ({"estimator": ADDING}, "estimator must be private under replace-one"),
        ({"sampling": "public-strata", "estimator": ADDING}, "estimator must be private under replace-one"),
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


class Growing(Counter):
    """Promises less the more records it has."""

    def fit(self, X, y):
        super().fit(X, y)
        self.guarantee_ = Guarantee(self.epsilon * len(X) / 4, 0.0, REPLACE_ONE)
        return self


def test_the_largest_bag_keeps_the_total_too():
    X, y = data(9)
    model = PrivateBaggingClassifier(Growing(), 2, epsilon=1.0, sampling="disjoint")
    assert model.fit(X[:8], y[:8]).learner_guarantee_.epsilon == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"estimator must keep the total .*, got \(1\.25, 0\)-DP"):
        model.fit(X, y)  # bags of 4 and of 5 records


def test_a_total_beyond_what_a_learner_takes():
    """Ten bags of a learner with epsilon 5 cost more in all than objective perturbation accepts for itself."""
    X, y = data()
    model = PrivateBaggingClassifier(BASE, 10, epsilon=1e4, sampling="bootstrap", random_state=0).fit(X, y)
    assert 5 < model.learner_epsilon_ <= 50
    assert model.guarantee_.epsilon == 1e4


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
    # Releases lie on a grid of 2^-20 of the noise's scale: two of 180 fall on one point in one run of 250.
    assert len(np.unique(released)) > released.size - 5
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


# Limits and laws of the parts


def test_bags_by_rank():
    assert bagging.assign_by_rank([1, 0, 0, 1, 0, 0], 2).tolist() == [0, 0, 1, 1, 0, 1]
    assert bagging_privacy.assign_in_blocks([0] * 7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: bagging_privacy.assign_within_class([0], 0, np.random.default_rng(0)), "n_bags"),
        (lambda: bagging.assign_evenly(0, 1, np.random.default_rng(0)), "n_bags"),
        (lambda: bagging.assign_evenly(3, 4, np.random.default_rng(0)), "n_bags"),
        (lambda: bagging.assign_evenly(3, 0, np.random.default_rng(0)), "n_bags"),
        (lambda: bagging.assign_by_rank([0], 0), "n_bags"),
        (lambda: bagging_privacy.assign_in_blocks([0], 0), "n_bags"),
        (lambda: bagging.changed_rows("disjoint", n_records=3, sample_size=1), "sampling"),
        (lambda: bagging.changed_rows("bootstrap", n_records=0, sample_size=1), "n_records"),
        (lambda: bagging.changed_rows("bootstrap", n_records=1, sample_size=0), "sample_size"),
        (lambda: bagging.changed_rows("without-replacement", n_records=3, sample_size=4), "sample_size"),
        (lambda: largest_budget(float, 0.0), "epsilon"),
    ],
)
def test_ranges_of_the_parts(call, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        call()


def test_the_smallest_parts():
    assert bagging_privacy.assign_within_class([1], 1, np.random.default_rng(0)).tolist() == [0]
    assert bagging.assign_evenly(1, 1, np.random.default_rng(0)).tolist() == [0]
    assert bagging.assign_by_rank([5], 1).tolist() == [0]
    assert bagging.changed_rows("bootstrap", n_records=1, sample_size=3).trials == 3
    assert bagging.changed_rows("without-replacement", n_records=3, sample_size=3).probability == 1.0
    for options in ({"delta": 0.0}, {"delta": 0.999}):
        assert ensemble_guarantee(Guarantee(1.0, 0.0, REPLACE_ONE), n_estimators=1, n_records=1, **options).epsilon > 0
    for name, bad in (("n_estimators", 0), ("n_records", 0), ("delta", 1.0), ("delta", -0.1)):
        sizes = {"n_estimators": 2, "n_records": 5} | {name: bad}
        with pytest.raises(ValueError, match=f"{name} must be"):
            ensemble_guarantee(Guarantee(1.0, 0.0, REPLACE_ONE), **sizes)


def test_the_largest_budget_is_found_from_both_sides_and_ends_at_fifty():
    for factor, epsilon in ((5.0, 1.0), (0.01, 0.3), (1e-4, 1.0), (3.0, 1e-6)):
        found = largest_budget(lambda inner, factor=factor: factor * inner, epsilon)
        assert found == pytest.approx(min(epsilon / factor, 50.0), rel=1e-8)
    assert largest_budget(lambda inner: 5.0, 1.0) == 0.0
    assert learner_epsilon(1e6, n_estimators=1, n_records=9, sampling="disjoint") == 50.0


@pytest.mark.parametrize(("composition", "share"), [("basic", 1.0), ("optimal", 0.5)])
def test_delta_is_divided_over_the_bags(composition, share):
    learner, sizes = Guarantee(0.1, 1e-9, REPLACE_ONE), {"n_records": 50, "sample_size": 20}
    whole = ensemble_guarantee(learner, n_estimators=4, delta=1e-3, composition=composition, **sizes)
    bag = bagging.changed_rows("bootstrap", **sizes).amplify(learner, share * 1e-3 / 4)
    assert whole.delta == pytest.approx(1e-3)
    if composition == "basic":
        assert whole.epsilon == pytest.approx(4 * bag.epsilon)
    else:
        assert whole.epsilon == pytest.approx(compose([bag] * 4, composition, delta=1e-3).epsilon)
    with pytest.raises(ValueError, match="delta must be positive for bootstrap"):
        ensemble_guarantee(learner, n_estimators=4, **sizes)


def test_disjoint_bags_cost_what_one_learner_does():
    adding, replacing = Guarantee(0.2, 0.0, ADD_REMOVE), Guarantee(0.2, 0.0, REPLACE_ONE)
    sizes = {"n_estimators": 4, "n_records": 50}
    for learner in (adding, replacing):
        whole = ensemble_guarantee(learner, sampling="disjoint", **sizes)
        assert (whole.epsilon, whole.neighbouring) == (0.2, learner.neighbouring)
        assert "a record's bag does not depend on other records" in whole.assumes
    public = ensemble_guarantee(replacing, sampling="public-strata", **sizes)
    assert (public.epsilon, public.neighbouring) == (0.2, REPLACE_ONE)
    assert "labels public: neighbours differ in features only" in public.assumes
    with pytest.raises(ValueError, match=r"inner\.neighbouring must be"):
        ensemble_guarantee(adding, sampling="public-strata", **sizes)


def test_bags_have_their_size_and_their_law():
    y = data(40)[1]
    model = PrivateBaggingClassifier(BASE, 6, sample_size=15)
    for sampling in ("without-replacement", "bootstrap"):
        bags = model.set_params(sampling=sampling)._public_bags(40, None, np.random.default_rng(0))
        assert [len(rows) for rows in bags] == [15] * 6
        assert any(len(set(rows)) < 15 for rows in bags) == (sampling == "bootstrap")
        assert len({tuple(rows) for rows in bags}) == 6
        whole = clone(model).set_params(sample_size=None)._public_bags(40, None, np.random.default_rng(0))
        assert [len(rows) for rows in whole] == [40] * 6
    for sampling, labels in (("disjoint", None), ("public-strata", y)):
        dealt = PrivateBaggingClassifier(BASE, 4, sampling=sampling)
        bags, other = (dealt._public_bags(40, labels, np.random.default_rng(seed)) for seed in (0, 1))
        assert sorted(np.concatenate(bags)) == list(range(40))
        assert [set(rows) for rows in bags] != [set(rows) for rows in other]


def test_a_tied_vote_is_for_the_first_class_and_votes_are_counted():
    X, y = data(20)
    model = PrivateBaggingClassifier(Counter(), 2, random_state=0).fit(X, y)
    model.estimators_[0].count_, model.estimators_[1].count_ = 1, -1
    assert model.predict_proba(X[:1]).tolist() == [[0.5, 0.5]]
    assert model.predict(X[:1]).tolist() == [0]
    model.estimators_[1].count_ = 2
    assert model.predict_proba(X[:1]).tolist() == [[0.0, 1.0]]
    assert model.predict(X[:1]).tolist() == [1]
    assert model.set_params(voting="soft").predict_proba(X[:1]).tolist() == [[0.25, 0.75]]


def test_learners_under_add_remove_divide_by_a_public_share_of_at_least_one():
    X, y = data(20)
    base = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=1)
    model = PrivateBaggingClassifier(base, 4, sampling="disjoint", neighbouring=ADD_REMOVE)
    for total, share in ((1, 1), (7, 2), (400, 100)):
        fitted = model.set_params(n_records=total).fit(X, y)
        assert [learner.n_records for learner in fitted.estimators_] == [share] * 4
    with pytest.raises(ValueError, match="neighbouring must be replace-one"):
        model.set_params(n_records=None).fit(X, y)
    with pytest.raises(ValueError, match="neighbouring must be replace-one"):
        model.set_params(n_records=5, sampling="bootstrap").fit(X, y)


def test_ranges_of_the_estimator():
    X, y = data(20)
    for name, bad in (("n_records", 0), ("composition", "pld"), ("sample_size", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            PrivateBaggingClassifier(BASE, **{name: bad}).fit(X, y)
    for name, bad in (("delta", 1.0), ("delta", 1.5), ("delta", -0.1), ("epsilon", -0.5)):
        with pytest.raises(ValueError, match=f"{name} must be a finite number in .*, got {bad}"):
            PrivateBaggingClassifier(BASE, **{name: bad}).fit(None, None)
    with pytest.raises(ValueError, match=r"Found array with 0 sample"):
        PrivateBaggingClassifier(BASE, 1).fit(np.zeros((0, 2)), np.zeros(0))
    one = PrivateBaggingClassifier(Counter(), 1, sampling="bootstrap").fit(X[:1], y[:1])
    assert one.learner_epsilon_ == pytest.approx(1.0)
    for parameters in ({"n_estimators": 1}, {"sample_size": 20}, {"sample_size": 1}, {"sampling": "disjoint"}):
        PrivateBaggingClassifier(Counter(), **{"n_estimators": 20} | parameters).fit(X, y)
    with pytest.raises(ValueError, match="epsilon must leave a budget to each learner"):
        PrivateBaggingClassifier(Counter(), 2, epsilon=1e-10).fit(X, y)


def test_nobody_can_guess_the_bags(monkeypatch):
    """They are drawn by the generator of the noise, which no two fits share."""
    X, y = data(20)
    base = clone(BASE).set_params(neighbouring=ADD_REMOVE, n_records=20)
    model = PrivateBaggingClassifier(base, 2, sampling="disjoint", neighbouring=ADD_REMOVE, n_records=20)
    dealt, real = set(), bagging.fit_learner

    def noted(learner, X, y):
        dealt.add(tuple(X[:, 0]))
        return real(learner, X, y)

    monkeypatch.setattr(bagging, "fit_learner", noted)
    for _ in range(12):
        model.fit(X, y)
    assert len(dealt) == 24


def test_public_labels_count_the_smaller_class():
    X, y = data(20)[0], np.repeat([0, 1], [17, 3])
    model = PrivateBaggingClassifier(Counter(), 4, sampling="public-strata")
    with pytest.raises(ValueError, match="at most 3, the records of the rarer class, with public labels, got 4"):
        model.fit(X, y)
    assert len(model.set_params(n_estimators=3).fit(X, y).estimators_) == 3


class Generous(Counter):
    """Promises a little more than it was asked to."""

    def __init__(self, epsilon=1.0, random_state=None, factor=1.0, delta=0.0):
        super().__init__(epsilon, random_state)
        self.factor = factor
        self.delta = delta

    def fit(self, X, y):
        super().fit(X, y)
        self.guarantee_ = Guarantee(self.epsilon * self.factor, self.delta, REPLACE_ONE)
        return self


@pytest.mark.parametrize(
    ("changes", "kept"),
    [({"factor": 1 + 1e-8}, True), ({"factor": 1 + 1e-4}, False), ({"delta": 1e-6}, True), ({"delta": 1.5e-6}, False)],
)
def test_the_total_is_kept_up_to_rounding(changes, kept):
    X, y = data(20)
    model = PrivateBaggingClassifier(Generous(**changes), 2, delta=1e-6, sampling="disjoint")
    if kept:
        assert model.fit(X, y).guarantee_.delta == changes.get("delta", 0.0)
    else:
        with pytest.raises(ValueError, match="estimator must keep the total"):
            model.fit(X, y)


def test_other_features_and_more_classes():
    X, y = data(20)
    model = PrivateBaggingClassifier(Counter(), 2).fit(X, y)
    for _ in range(2):
        with pytest.raises(ValueError, match="3 features"):
            model.predict(np.zeros((2, 3)))
    assert not model.__sklearn_tags__().classifier_tags.multi_class


def test_options_are_given_by_name():
    """Two numbers that are swapped by mistake would be another guarantee."""
    options = {
        bagging.changed_rows: ("n_records", "sample_size"),
        ensemble_guarantee: ("n_estimators", "n_records", "sampling", "delta"),
        learner_epsilon: ("inner_delta", "relation"),
    }
    for function, names in options.items():
        kinds = {inspect.signature(function).parameters[name].kind for name in names}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
