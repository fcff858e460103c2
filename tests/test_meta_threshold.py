"""Private thresholds: near the best for each objective, the noise of fitted objects, and what never fails."""

import math
import pickle

import numpy as np
import pytest
from releases import watched
from scipy.special import expit, logit, ndtri
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score
from sklearn.utils import get_tags

from helpers import erm, meta
from helpers.meta import threshold
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, SEED_SECRET, ApproximateDpEvent, Guarantee, Ledger

BASE = erm.ObjectivePerturbationClassifier(regularization=0.1)
BARE = erm.ObjectivePerturbationClassifier(regularization=0.1, loss="huber")  # scores, and no probabilities
ADDING = erm.ObjectivePerturbationClassifier(regularization=0.1, neighbouring=ADD_REMOVE, n_records=100)


def records(n=200, seed=0):
    X = np.random.default_rng(seed).uniform(-0.5, 0.5, (n, 2))
    return X, (X[:, 0] > 0.4).astype(int)


class Oracle(ClassifierMixin, BaseEstimator):
    """Knows the log-odds of the minority, its one feature; private whatever it is told to promise."""

    def __init__(self, epsilon=1.0, relation=REPLACE_ONE, factor=1.0, classes=(0, 1), random_state=None):
        self.epsilon = epsilon
        self.relation = relation
        self.factor = factor
        self.classes = classes
        self.random_state = random_state

    def fit(self, X, y):
        self.classes_ = np.unique(self.classes)
        self.guarantee_ = Guarantee(self.factor * self.epsilon, 0.0, self.relation)
        return self

    def decision_function(self, X):
        return X[:, 0]


def population(n, prevalence, distance, seed):
    """Log-odds (n, 1) and labels of two normal classes of sd 1, `distance` apart."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < prevalence).astype(int)
    x = rng.normal(size=n) + distance * (y - 0.5)
    return (distance * x + logit(prevalence))[:, None], y


# The four objectives


PREVALENCE, DISTANCE = 0.05, 2.0
AUC = 0.9214  # of two normal classes two standard deviations apart


@pytest.mark.parametrize(
    ("objective", "value", "slack"),
    [("balanced_accuracy", balanced_accuracy_score, 0.005), ("f1", f1_score, 0.05)],  # 0.8 is a wrong guess of the AUC
)
@pytest.mark.parametrize("learner", [Oracle(), Oracle(relation=ADD_REMOVE)], ids=["replace", "add"])
def test_the_threshold_is_near_the_best_one(objective, value, slack, learner):
    model = meta.ThresholdClassifier(learner, 50.0, objective)
    model.fit(*population(20_000, PREVALENCE, DISTANCE, 1))
    X, y = population(50_000, PREVALENCE, DISTANCE, 2)
    reached = value(y, model.predict(X))
    best = max(value(y, (X[:, 0] >= t).astype(int)) for t in np.linspace(-5, 1, 41))
    at_one_half = value(y, (X[:, 0] >= 0).astype(int))
    assert best - slack <= reached
    assert reached > at_one_half + 0.01


def test_f1_threshold_is_half_the_best_f1():
    X, y = population(100_000, PREVALENCE, DISTANCE, 3)
    best = max(f1_score(y, (X[:, 0] >= t).astype(int)) for t in np.linspace(-2, 1, 25))
    assert threshold.f1_threshold(PREVALENCE, AUC) == pytest.approx(best / 2, abs=0.008)


@pytest.mark.parametrize("target", [0.5, 0.9])
@pytest.mark.parametrize("squeeze", [1.0, 0.1])  # uncalibrated scores will do
def test_recall_is_reached(target, squeeze):
    X, y = population(20_000, PREVALENCE, DISTANCE, 4)
    model = meta.ThresholdClassifier(Oracle(), 20.0, "recall", target_recall=target).fit(squeeze * X, y)
    assert abs(recall_score(y, model.predict(squeeze * X)) - target) < 0.02
    new, labels = population(100_000, PREVALENCE, DISTANCE, 5)
    assert abs(recall_score(labels, model.predict(squeeze * new)) - target) < 0.08


def test_recall_misses_by_no_more_records_than_stated():
    X, y = population(4000, 0.1, 1.0, 6)
    minority, epsilon, beta = np.sort(X[y == 1, 0]), 0.5, 0.05
    bound = 2 / epsilon * math.log(threshold.CANDIDATES.size / beta)
    rng = np.random.default_rng(0)
    misses = []
    for _ in range(100):
        chosen = threshold.recall_threshold(Ledger((X[:, 0], y == 1), REPLACE_ONE, rng), 0.8, epsilon)
        misses.append(abs(np.searchsorted(minority, chosen) - 0.2 * minority.size))
    assert np.mean(np.array(misses) > bound + 1) <= beta
    assert np.median(misses) > 0.5 / epsilon  # the noise is there


# The noise, measured on fitted objects


@pytest.mark.parametrize("learner", [Oracle(), Oracle(relation=ADD_REMOVE)], ids=["replace", "add"])
def test_noise_of_the_prevalence(learner):
    epsilon, share, n, n1 = 2.0, 0.25, 1000, 300
    X, y = np.zeros((n, 1)), (np.arange(n) < n1).astype(int)
    model = meta.ThresholdClassifier(learner, epsilon, threshold_share=share)
    released = np.array([model.set_params(random_state=seed).fit(X, y).prevalence_ for seed in range(150)])
    rate, q = share * epsilon, n1 / n
    variance = 2 * math.exp(-rate) / math.expm1(-rate) ** 2  # of discrete Laplace noise
    if learner.relation is ADD_REMOVE:
        variance *= (1 - q) ** 2 + q**2  # both counts are noisy
    noise = n * (released - q)
    assert abs(noise.mean()) < 5 * math.sqrt(variance / 150)
    assert noise.var() == pytest.approx(variance, rel=0.55)
    if learner.relation is REPLACE_ONE:
        whole = np.round(noise).astype(int)
        assert np.abs(noise - whole).max() < 1e-6
        tail = np.mean(np.abs(whole) >= 3)
        assert tail == pytest.approx(2 * math.exp(-3 * rate) / (1 + math.exp(-rate)), abs=0.13)


@pytest.mark.parametrize("relation", [REPLACE_ONE, ADD_REMOVE])
@pytest.mark.parametrize(("n", "n1", "prevalence"), [(20, 5, 0.25), (20, 0, 1 / 21), (20, 20, 20 / 21), (1, 0, 0.5)])
def test_two_counts_of_at_least_one_make_the_prevalence(monkeypatch, relation, n, n1, prevalence):
    seen = watched(monkeypatch, answer=np.asarray)
    model = meta.ThresholdClassifier(Oracle(relation=relation)).fit(np.zeros((n, 1)), (np.arange(n) < n1).astype(int))
    ((_, counts),) = seen
    assert counts.tolist() == [n - n1, n1]
    assert model.prevalence_ == pytest.approx(prevalence)


def test_seeds_repeat_a_result_and_share_no_noise():
    X, y = np.zeros((1000, 1)), (np.arange(1000) < 300).astype(int)
    more = (np.arange(1000) < 301).astype(int)
    model = meta.ThresholdClassifier(Oracle(), 0.1)
    pairs = []
    for seed in range(25):
        model.set_params(random_state=seed)
        first = model.fit(X, y).prevalence_
        assert first == model.fit(X, y).prevalence_
        pairs.append((first, model.fit(X, more).prevalence_))
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.7


@pytest.mark.parametrize("objective", ["balanced_accuracy", "f1", "recall"])
def test_a_seed_is_assumed_to_be_secret(objective):
    model = meta.ThresholdClassifier(BASE, 1.0, objective)
    free = model.fit(*records())
    assert SEED_SECRET not in (*free.guarantee_.assumes, *free.estimator_.guarantee_.assumes)
    assert SEED_SECRET in model.set_params(random_state=3).fit(*records()).guarantee_.assumes
    assert model.estimator_.random_state is None


@pytest.mark.parametrize("relation", [REPLACE_ONE, ADD_REMOVE])
@pytest.mark.parametrize("target", [0.2, 0.5, 0.9])
def test_one_record_moves_the_ranks_by_the_stated_sensitivity(monkeypatch, relation, target):
    seen = watched(monkeypatch, answer=np.argmax)
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(300):
        n = int(rng.integers(1, 6))
        x, y = rng.normal(size=n) * 3, rng.random(n) < 0.5
        if relation is REPLACE_ONE:
            other = np.append(x[:-1], 3 * rng.normal()), np.append(y[:-1], rng.random() < 0.5)
        else:
            other = x[:-1], y[:-1]
        for scores, labels in ((x, y), other):
            threshold.recall_threshold(Ledger((scores, labels), relation, rng), target, 1.0)
        (terms, here), (_, there) = seen[-2:]
        change = terms.sensitivity
        largest = max(largest, np.abs(here - there).max())
        assert np.abs(here - there).max() <= change + 1e-12
    assert largest == pytest.approx(change)


# The budget


@pytest.mark.parametrize("objective", ["balanced_accuracy", "f1", "recall"])
@pytest.mark.parametrize("learner", [BASE, ADDING], ids=["replace", "add"])
def test_the_whole_budget_is_promised_and_shared_out(objective, learner):
    model = meta.ThresholdClassifier(learner, 3.0, objective, random_state=0).fit(*records())
    assert model.guarantee_.epsilon == pytest.approx(3.0, rel=1e-12)
    assert model.estimator_.guarantee_.epsilon == pytest.approx(2.7)
    assert model.guarantee_.neighbouring is learner.neighbouring
    assert model.guarantee_.delta == 0
    assert {"set of labels public", "norm bound (radius) public"} <= set(model.guarantee_.assumes)
    assert (model.prevalence_ is None) == (objective == "recall")


def test_delta_is_the_learners():
    learner = erm.DPGradientDescentClassifier(delta=1e-6, n_steps=5)
    assert meta.ThresholdClassifier(learner, 1.0).fit(*records()).guarantee_.delta == pytest.approx(1e-6)


def test_the_default_is_a_plain_learner_with_nine_tenths_and_a_noisy_prior():
    X, y = records()
    model = meta.ThresholdClassifier(BASE, 5.0, random_state=1).fit(X, y)
    assert model.estimator_.epsilon == pytest.approx(4.5)
    assert model.threshold_ == pytest.approx(model.prevalence_, rel=1e-12)
    assert np.array_equal(model.predict(X), (model.estimator_.predict_proba(X)[:, 1] >= model.threshold_).astype(int))
    assert np.array_equal(model.predict_proba(X), model.estimator_.predict_proba(X))
    scores = meta.ThresholdClassifier(BARE, 5.0, random_state=1).fit(X, y)
    assert expit(scores.threshold_) == pytest.approx(scores.prevalence_)
    assert np.array_equal(scores.predict(X), (scores.decision_function(X) >= scores.threshold_).astype(int))


# What never fails, and what is refused


@pytest.mark.parametrize("objective", ["balanced_accuracy", "f1", "recall"])
@pytest.mark.parametrize(
    ("learner", "n"),
    [(BASE, 1), (BASE, 30), (ADDING, 0), (ADDING, 1), (ADDING, 30)],  # no record at all only where n is not public
    ids=["replace, 1", "replace, 30", "add, 0", "add, 1", "add, 30"],
)
@pytest.mark.parametrize("label", [0, 1])
def test_private_values_never_fail(objective, learner, n, label):
    X, y = records(30)[0][:n], np.full(n, label)
    model = meta.ThresholdClassifier(learner, 1.0, objective).fit(X, y)
    assert math.isfinite(model.threshold_)
    assert set(model.predict(records()[0])) <= {0, 1}


def test_labels_keep_their_names():
    X, y = 10 * records()[0], records()[1]
    names = np.where(y == 1, "yes", "no")
    model = meta.ThresholdClassifier(Oracle(), 50.0, classes=("yes", "no"), random_state=0).fit(X, names)
    assert model.prevalence_ == pytest.approx(np.mean(names == "yes"), abs=0.02)
    assert set(model.predict(X)) == {"no", "yes"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -0.5}, "epsilon must be a finite number in .0, inf., got -0.5"),
        ({"objective": "accuracy"}, "objective"),
        ({"threshold_share": 1.0}, "threshold_share"),
        ({"target_recall": 0.0}, "target_recall"),
        ({"classes": (0, 1, 2)}, "classes must be two"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be None or an integer"),
        ({"estimator": None}, "estimator must be a classifier"),
        ({"estimator": erm.ERMClassifier()}, "parameter 'epsilon'"),
        ({"estimator": Oracle(factor=1.1)}, "estimator must keep its epsilon"),
        ({"estimator": erm.ObjectivePerturbationClassifier(class_weight="balanced")}, "without class weights"),
    ],
)
def test_refusals(bad, message):
    with pytest.raises(ValueError, match=message):
        meta.ThresholdClassifier(Oracle()).set_params(**bad).fit(*records())


def test_weights_are_no_obstacle_to_a_target_recall():
    weighted = erm.ObjectivePerturbationClassifier(class_weight="balanced")
    assert meta.ThresholdClassifier(weighted, objective="recall").fit(*records()).prevalence_ is None


def test_no_record_under_replace_one_and_foreign_labels():
    X, y = records()
    with pytest.raises(ValueError, match="at least one record"):
        meta.ThresholdClassifier(BASE).fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="y must hold labels"):
        meta.ThresholdClassifier(BASE).fit(X, y + 1)


# Inside and around other wrappers


def test_a_threshold_around_and_inside_other_wrappers():
    X, y = records()
    grid = {"regularization": [0.1, 1.0]}
    around = [
        meta.ThresholdClassifier(meta.RepeatedSearch(BASE, grid), 20.0),
        meta.ThresholdClassifier(meta.PrivateBaggingClassifier(BASE, 3, voting="soft"), 20.0),
        meta.ThresholdClassifier(erm.KernelClassifier(n_frequencies=5), 20.0),
        meta.PrivateBaggingClassifier(meta.ThresholdClassifier(BASE), 3, epsilon=20.0),
        meta.PartitionedSearch(meta.ThresholdClassifier(BASE), {"threshold_share": [0.1, 0.3]}, 20.0),
    ]
    for model in around:
        fitted = model.set_params(random_state=5).fit(X, y)
        assert (fitted.guarantee_.epsilon, fitted.guarantee_.neighbouring) == (pytest.approx(20.0), REPLACE_ONE)
        copy = pickle.loads(pickle.dumps(fitted))
        assert np.array_equal(copy.predict(X), fitted.predict(X))
        assert copy.random_state is None
        inner = getattr(fitted, "estimator_", None) or getattr(fitted, "best_estimator_", None)
        assert (inner or fitted.estimators_[0]).random_state is None


def test_the_auc_of_these_tests():
    assert DISTANCE / math.sqrt(2) == pytest.approx(ndtri(AUC), abs=1e-3)


# Limits, numbers and names


def test_thresholds_by_hand():
    assert [round(threshold.f1_threshold(0.02, auc), 3) for auc in (0.5, 0.8, 0.95)] == [0.02, 0.09, 0.252]
    assert threshold.f1_threshold(0.3, 0.5) == pytest.approx(0.3 / 1.3, abs=1e-6)  # all are called "yes"
    for bad in ((0.0, 0.8), (1.0, 0.8), (0.3, 0.49), (0.3, 1.0)):
        with pytest.raises(ValueError, match="must be"):
            threshold.f1_threshold(*bad)


@pytest.mark.parametrize("relation", [REPLACE_ONE, ADD_REMOVE])
def test_a_recall_threshold_is_a_private_choice_at_its_epsilon(monkeypatch, relation):
    asked = watched(monkeypatch, answer=np.argmax)
    scores, minority = np.array([-3.0, -1.0, 1.0, 3.0, 9.0]), np.array([True, True, True, True, False])
    ledger = Ledger((scores, minority), relation, np.random.default_rng(0))
    found = threshold.recall_threshold(ledger, 0.75, 0.4)
    ((terms, ranks),) = asked
    assert ranks == pytest.approx(-np.abs(np.searchsorted([-3.0, -1.0, 1.0, 3.0], threshold.CANDIDATES) - 1.0))
    assert (terms.norm, terms.sensitivity) == ("linf", 1.0 if relation is REPLACE_ONE else 0.75)
    assert terms.event == ApproximateDpEvent(0.4, 0.0)
    assert ledger.epsilon(0.0) == 0.4
    assert -3.0 < found <= -1.0


def test_candidates_are_the_published_ones():
    """Their number enters the bound of the docstring; evenly spaced, from -10 to 10 or as the module says."""
    steps = np.diff(threshold.CANDIDATES)
    assert threshold.CANDIDATES.size == 20_001
    assert steps == pytest.approx(np.full(20_000, steps[0]))
    assert threshold.CANDIDATES[0] == -threshold.CANDIDATES[-1]


@pytest.mark.parametrize("learner", [BASE, ADDING], ids=["replace", "add"])
def test_what_is_assumed_is_named(learner):
    def assumed(objective):
        model = meta.ThresholdClassifier(learner, 3.0, objective)
        return set(model.fit(*records()).guarantee_.assumes)

    inner = set(learner.fit(*records()).guarantee_.assumes)
    size = {"number of records public"} if learner is BASE else set()
    usual = inner | size | {"set of labels public"}
    assert assumed("balanced_accuracy") == usual | {"class list"}
    assert assumed("f1") == usual | {"class list"}
    assert assumed("recall") == usual


@pytest.mark.parametrize("learner", [BASE, ADDING], ids=["replace", "add"])
def test_made_up_records_only_where_the_number_is_private(monkeypatch, learner):
    seen = []
    real = threshold.fit_learner
    monkeypatch.setattr(threshold, "fit_learner", lambda model, X, y: seen.append((X, y)) or real(model, X, y))
    X, y = records()
    meta.ThresholdClassifier(learner, 3.0).fit(X, y)
    ((rows, labels),) = seen
    assert len(rows) == (200 if learner is BASE else 202)
    if learner is ADDING:
        assert sorted(labels[np.all(rows == 0, axis=1)]) == [0, 1]


def test_a_promise_is_kept_up_to_rounding():
    meta.ThresholdClassifier(Oracle(factor=1 + 1e-12)).fit(*records())
    with pytest.raises(ValueError, match=r"estimator must keep its epsilon, 0\.9, got"):
        meta.ThresholdClassifier(Oracle(factor=1 + 1e-6)).fit(*records())


def test_probabilities_decide_where_there_are_some():
    X, y = records()
    shown = meta.ThresholdClassifier(BASE, 5.0, "recall", target_recall=0.5).fit(X, y)
    assert 0 < shown.threshold_ < 1
    raw = meta.ThresholdClassifier(BARE, 5.0, "recall", target_recall=0.5)
    assert raw.fit(X, y).threshold_ in threshold.CANDIDATES
    assert np.array_equal(raw.predict(X), (raw.decision_function(X) >= raw.threshold_).astype(int))
    for bad in ({"target_recall": 1.0}, {"threshold_share": 0.0}, {"threshold_share": -0.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            meta.ThresholdClassifier(Oracle()).set_params(**bad).fit(None, None)
    for fine in ({"target_recall": 0.01}, {"threshold_share": 0.99}):
        meta.ThresholdClassifier(Oracle()).set_params(**fine).fit(X[:, :1], y)


def test_a_score_at_the_threshold_is_the_minoritys():
    model = meta.ThresholdClassifier(Oracle(), 50.0).fit(*population(500, 0.3, 2.0, 0))
    assert model.predict([[model.threshold_], [np.nextafter(model.threshold_, -9)]]).tolist() == [1, 0]


def test_learners_that_need_many_records_are_tried_with_as_many_as_there_are():
    class Many(Oracle):
        def fit(self, X, y):
            if len(X) < 30:
                raise ValueError(f"30 records are needed, got {len(X)}")
            return super().fit(X, y)

    X, y = records()
    meta.ThresholdClassifier(Many()).fit(X[:30, :1], y[:30])
    with pytest.raises(ValueError, match="30 records are needed, got 29"):
        meta.ThresholdClassifier(Many()).fit(X[:29, :1], y[:29])
    with pytest.raises(ValueError, match="at least one record under replace-one, got 0"):
        meta.ThresholdClassifier(Many()).fit(X[:0, :1], y[:0])
    with pytest.raises(ValueError, match="estimator must take any number of records under add/remove-one"):
        meta.ThresholdClassifier(Many(relation=ADD_REMOVE)).fit(X[:, :1], y)


def test_other_features_than_those_of_the_fit_are_refused_and_change_nothing():
    model = meta.ThresholdClassifier(BASE, 5.0).fit(*records())
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="X has 3 features, but ThresholdClassifier is expecting 2"):
            method(np.zeros((1, 3)))
    assert model.n_features_in_ == 2
    assert not get_tags(model).input_tags.sparse


class Shown(Oracle):
    """Has probabilities too."""

    def predict_proba(self, X):
        return np.column_stack([expit(-X[:, 0]), expit(X[:, 0])])


@pytest.mark.parametrize("objective", ["balanced_accuracy", "recall"])
def test_probabilities_of_the_minority_decide_like_its_log_odds(objective):
    X, y = population(3000, 0.2, 2.0, 7)
    raw, shown = (meta.ThresholdClassifier(learner, 300.0, objective).fit(X, y) for learner in (Oracle(), Shown()))
    assert shown.threshold_ == pytest.approx(expit(raw.threshold_), abs=0.01)
    assert np.mean(shown.predict(X) == raw.predict(X)) > 0.99
    assert 0.1 < np.mean(shown.predict(X)) < 0.9


def test_class_weights_inside_a_learner_are_refused_too():
    inside = erm.KernelClassifier(erm.ObjectivePerturbationClassifier(class_weight="balanced"))
    with pytest.raises(ValueError, match="estimator must be without class weights"):
        meta.ThresholdClassifier(inside).fit(None, None)


def test_no_record_has_no_score():
    X, y = records(30)
    model = meta.ThresholdClassifier(ADDING, 1.0, "recall").fit(X[:0], y[:0])
    assert model.guarantee_ == meta.ThresholdClassifier(ADDING, 1.0, "recall").fit(X, y).guarantee_
