"""Learners without noise on disjoint parts: what one record moves, how much noise there is, and what nobody may see."""

import warnings
from typing import ClassVar

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from releases import watched
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from helpers.erm import ERMClassifier, ObjectivePerturbationClassifier
from helpers.meta import PATEClassifier, SubsampleAndAggregateClassifier, ThresholdClassifier, aggregation
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger, event_epsilon, gaussian_mu, gaussian_multiplier

SECRET = 0.75  # a value of the first feature at which the stubs below behave badly


class Stub(ClassifierMixin, BaseEstimator):
    """Coefficients as far apart as can be, and votes against all others, for whoever has a certain record."""

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.array([0, 1]), X.shape[1]
        self.sign_ = 1.0 if (X[:, 0] == SECRET).any() else -1.0
        self.coef_, self.intercept_ = np.full((1, X.shape[1]), 1e6 * self.sign_), np.array([1e6 * self.sign_])
        return self

    def predict(self, X):
        return np.full(len(X), int(self.sign_ > 0))


class Fails(Stub):
    def fit(self, X, y):
        super().fit(X, y)
        warnings.warn("seen" if self.sign_ > 0 else "not seen", stacklevel=2)
        if self.sign_ > 0:
            raise KeyError("the secret is here")
        return self


class NotFinite(Stub):
    def fit(self, X, y):
        super().fit(X, y)
        self.coef_ = self.coef_ * (np.nan if self.sign_ > 0 else 1.0)
        return self


class ManyColumns(Stub):
    def fit(self, X, y):
        super().fit(X, y)
        if self.sign_ > 0:
            self.coef_ = np.zeros((1, 7))
        return self


class Drawing(Stub):
    """Draws from numpy's global state unless it has a seed: the more, the more records it has."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        super().fit(X, y)
        draws = np.random.mtrand._rand if self.random_state is None else np.random.RandomState(self.random_state)
        self.shift_ = draws.normal(size=1 + len(X) * 1000 * int(self.sign_ > 0))[0]
        return self

    def predict(self, X):
        return (X[:, 0] > self.shift_).astype(int)


class Student(Stub):
    """Keeps what it was taught: last as the student, before that as a teacher."""

    taught: ClassVar = []

    def fit(self, X, y):
        self.taught.append((X, y))
        return super().fit(X, y)


def records(n=60, secret=False):
    X = np.linspace(-0.7, 0.7, 2 * n).reshape(n, 2)
    if secret:
        X[-1, 0] = SECRET
    return X, (np.arange(n) % 3 == 0).astype(int)


def answers_of(monkeypatch):
    """A list that gets the ledger of all learners' answers of every fit from now on."""
    found, real = [], aggregation._DisjointLearners._answers

    def kept(self, *asked):
        found.append(real(self, *asked))
        return found[-1]

    monkeypatch.setattr(aggregation._DisjointLearners, "_answers", kept)
    return found


CASES = [
    (SubsampleAndAggregateClassifier, {"radius": 3.0, "delta": 0.0}, "k_norm"),
    (SubsampleAndAggregateClassifier, {"radius": 3.0, "delta": 1e-6}, "gaussian"),
    (PATEClassifier, {"delta": 0.0, "n_queries": 7}, "integers"),
    (PATEClassifier, {"delta": 1e-6, "n_queries": 7}, "gaussian"),
]
by_case = pytest.mark.parametrize(("cls", "parameters", "mechanism"), CASES)


@by_case
@pytest.mark.parametrize("neighbouring", [REPLACE_ONE, ADD_REMOVE])
def test_one_record_moves_the_release_by_the_sensitivity_and_no_more(
    monkeypatch, cls, parameters, mechanism, neighbouring
):
    """Same parts, last record replaced or removed; the stub moves its answer as far as any learner can."""
    seen = watched(monkeypatch)
    monkeypatch.setattr(cls, "_noise_generator", lambda *_: np.random.default_rng(3))
    X, y = records(secret=True)
    other = records() if neighbouring is REPLACE_ONE else (X[:-1], y[:-1])
    for data in ((X, y), other):
        cls(Stub(), 5, neighbouring=neighbouring, **parameters).fit(*data)
    (terms, one), (same, two) = seen
    assert terms == same
    assert terms.kind == mechanism
    assert np.linalg.norm(np.ravel(one - two), {"l1": 1, "l2": 2}[terms.norm]) == pytest.approx(terms.sensitivity)


@pytest.mark.parametrize("learner", [Drawing(), make_pipeline(FunctionTransformer(), Drawing())])
def test_a_learner_cannot_move_what_another_draws(monkeypatch, learner):
    """With the same parts and the secret in one of them, all other answers stay, though numpy's own state has moved."""
    found = answers_of(monkeypatch)
    for parts in range(6):
        monkeypatch.setattr(PATEClassifier, "_noise_generator", lambda *_, k=parts: np.random.default_rng(k))
        for secret in (False, True):
            np.random.seed(0)  # noqa: NPY002
            PATEClassifier(learner, 5).fit(*records(secret=secret))
        assert (found[-2]._held != found[-1]._held).any(axis=1).sum() <= 1


@pytest.mark.parametrize("random_state", [None, 0])
def test_learners_of_other_libraries_take_the_seeds(random_state):
    X, y = records()
    model = SubsampleAndAggregateClassifier(LogisticRegression(), 2, epsilon=1e6, random_state=random_state).fit(X, y)
    assert np.linalg.norm(model.coef_) > 0.03


class Numbered(ClassifierMixin, BaseEstimator):
    """Keeps which of fifty numbered records its part has."""

    def fit(self, X, y):
        self.has_ = np.bincount(X[:, 0].astype(int), minlength=50)
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_one_record_more_or_less_changes_one_part():
    """Under add/remove; and the parts are of all records, each in one."""

    def parts(n, relation):
        ledger = Ledger((np.arange(n)[:, None], np.zeros(n)), relation, np.random.default_rng(1))
        model = PATEClassifier(Numbered(), 4, neighbouring=relation)
        return model._answers(ledger, lambda learner: learner.has_, np.zeros(50, int))._held

    more, less = parts(50, ADD_REMOVE), parts(49, ADD_REMOVE)
    assert more.sum(axis=0).tolist() == [1] * 50
    assert (more - less).sum() == np.abs(more - less).sum() == 1
    even = parts(50, REPLACE_ONE)
    assert even.sum(axis=0).tolist() == [1] * 50
    assert sorted(even.sum(axis=1)) == [12, 12, 13, 13]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_noise_of_the_mean_has_the_law_that_epsilon_needs(delta):
    """Gamma of shape d + 1 and scale 2 radius/(m epsilon), or normal: from 300 fits whose exact mean is known."""
    model = SubsampleAndAggregateClassifier(Stub(), 10, epsilon=0.5, delta=delta, radius=2.0)
    exact = np.full(3, -2.0 / np.sqrt(3))
    noise = [np.append(m.coef_, m.intercept_) - exact for m in (model.fit(*records()) for _ in range(300))]
    moved = 2 * 2.0 / 10
    if delta:
        found, law = np.ravel(noise), stats.norm(scale=moved / gaussian_mu(0.5, delta))
    else:
        found, law = np.linalg.norm(noise, axis=1), stats.gamma(3, scale=moved / 0.5)
    assert stats.kstest(found, law.cdf).pvalue > 1e-3
    for factor in (0.7, 1.4):
        assert stats.kstest(found * factor, law.cdf).pvalue < 1e-3


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_noise_of_a_vote_has_the_law_that_epsilon_needs(delta):
    """All 30 teachers vote for the first class: the share of the labels that noise turns over is known."""
    q, m, epsilon = 4000, 30, 200.0 if delta == 0 else 3.0
    model = PATEClassifier(Student(), m, epsilon, delta, n_queries=q)
    model.fit(*records())
    _, labels = Student.taught[-1]
    if delta:
        turned = stats.norm.sf(m / 2 / (np.sqrt(q) / gaussian_mu(epsilon, delta)))
    else:  # P(noise > 15) at rate epsilon/q
        a = np.exp(-epsilon / q)
        turned = a ** (m // 2 + 1) / (1 + a)
    assert stats.binomtest(int(labels.sum()), q, turned).pvalue > 1e-3
    assert stats.binomtest(int(labels.sum()), q, turned * 0.85).pvalue < 1e-3


def test_the_event_is_the_guarantee():
    guarantee = PATEClassifier(Stub(), 5, epsilon=2.0, delta=1e-5, n_queries=64).fit(*records()).guarantee_
    assert guarantee.event == GaussianDpEvent(gaussian_multiplier(2.0, 1e-5))
    assert event_epsilon(guarantee.event, 1e-5, REPLACE_ONE) == pytest.approx(2.0, rel=1e-6)
    mean = SubsampleAndAggregateClassifier(Stub(), 5, epsilon=2.0, delta=1e-5).fit(*records()).guarantee_
    assert event_epsilon(mean.event, 1e-5, REPLACE_ONE) == pytest.approx(2.0, rel=1e-6)


@by_case
@pytest.mark.parametrize("learner", [Fails(), NotFinite(), ManyColumns()])
def test_nobody_sees_that_a_learner_fails(cls, parameters, mechanism, learner):
    model = cls(learner, 5, **parameters)
    shown = []
    for secret in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert model.fit(*records(secret=secret)).guarantee_.epsilon == 1.0
        shown.append([str(one.message) for one in caught])  # about made-up records, if anything
    assert shown[0] == shown[1]


@by_case
def test_an_absent_class_is_no_error(cls, parameters, mechanism):
    X, _ = records()
    # The second one fails on one class, which is nothing for a student.
    for learner in (ERMClassifier(0.1), *([LogisticRegression()] if cls is SubsampleAndAggregateClassifier else [])):
        for label in (0, 1):
            assert set(cls(learner, 6, **parameters).fit(X, np.full(60, label)).predict(X)) <= {0, 1}


@by_case
def test_no_record_at_all_is_no_error_under_add_remove(cls, parameters, mechanism):
    model = cls(ERMClassifier(0.1), 3, neighbouring=ADD_REMOVE, **parameters)
    assert len(model.fit(np.empty((0, 2)), np.empty(0, int)).predict(np.zeros((2, 2)))) == 2
    with pytest.raises(ValueError, match="n_estimators must be at most the number of records"):
        model.set_params(neighbouring=REPLACE_ONE, n_estimators=61).fit(*records())


def test_coefficients_are_shortened_not_stretched():
    X, y = records()
    model = SubsampleAndAggregateClassifier(ERMClassifier(0.1), 1, epsilon=1e9, radius=100.0).fit(X, y)
    plain = ERMClassifier(0.1).fit(X, y)
    assert np.allclose(model.coef_, plain.coef_, atol=1e-5)
    assert np.allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-5)
    short = model.set_params(radius=1e-2).fit(X, y)
    assert np.hypot(*np.append(np.linalg.norm(short.coef_), short.intercept_)) == pytest.approx(1e-2, rel=1e-4)


def test_students_see_public_records_and_votes_only():
    public = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    model = PATEClassifier(Student(), 5, public_records=public, n_queries=25).fit(*records())
    X, labels = Student.taught[-1]
    assert {tuple(row) for row in X} <= {tuple(row) for row in public}
    assert len(X) == len(labels) == 25
    assert "records to be labelled public" in model.guarantee_.assumes
    assert not hasattr(model, "_queries")
    PATEClassifier(Student(), 5, n_queries=25).fit(*records())
    made_up, _ = Student.taught[-1]
    assert made_up.shape == (25, 2)
    assert np.abs(made_up).max() <= 1


def test_much_budget_gives_the_plain_answer_and_a_threshold_fits_around():
    rng = np.random.default_rng(0)
    y = (np.arange(1200) % 4 == 0).astype(int)
    X = rng.normal(np.where(y == 1, 0.3, -0.3)[:, None], 0.2, (1200, 2))
    plain = ERMClassifier(0.01, class_weight="balanced").fit(X, y)
    for model in (
        SubsampleAndAggregateClassifier(plain, 12, epsilon=50.0),
        PATEClassifier(plain, 12, epsilon=50.0, delta=1e-3, n_queries=200),
        ThresholdClassifier(SubsampleAndAggregateClassifier(ERMClassifier(0.01), 12, radius=10.0), epsilon=50.0),
    ):
        assert (model.fit(X, y).predict(X) == plain.predict(X)).mean() > 0.9


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SubsampleAndAggregateClassifier(DecisionTreeClassifier()), r"coef_ \(1, d\)"),
        (SubsampleAndAggregateClassifier(None), "estimator must be a classifier, got None"),
        (PATEClassifier(LogisticRegression()), "one class"),
        (
            PATEClassifier(Stub(), public_records=np.zeros((4, 3))),
            "as many features as X, 2, got 3",
        ),
        (PATEClassifier(Stub(), public_records=[[np.nan, 0.0]]), "Input public_records contains NaN"),
        (PATEClassifier(Stub(), public_records=Stub()), "public_records must be a table of numbers"),
    ],
)
def test_what_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*records())


def test_predictions_are_those_that_the_model_has():
    X, y = records()
    machine = SubsampleAndAggregateClassifier(LinearSVC(), 3).fit(X, y)
    assert hasattr(machine, "decision_function")
    assert not hasattr(machine, "predict_proba")
    tree = PATEClassifier(DecisionTreeClassifier(), 3).fit(X, y)
    assert hasattr(tree, "predict_proba")
    assert not hasattr(tree, "decision_function")


class Global(ClassifierMixin, BaseEstimator):
    """Draws from numpy's global state, more often if its part holds a large value."""

    def fit(self, X, y):
        for _ in range(1 + 5 * (X.max() > 50)):
            self.sign_ = np.random.choice([-1, 1])  # noqa: NPY002
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return np.full(len(X), int(self.sign_ > 0))


def test_a_learner_that_draws_globally_moves_no_other(monkeypatch):
    """One record that makes its learner draw more often changes one vote, not those of the learners behind it."""
    X, y = np.zeros((400, 1)), np.arange(400) % 2
    answers = answers_of(monkeypatch)
    monkeypatch.setattr(PATEClassifier, "_noise_generator", lambda self, *data: np.random.default_rng(5))
    for record in (0.0, 100.0):
        X[0] = record
        PATEClassifier(Global(), 20, public_records=[[0.0]], random_state=0).fit(X, y)
    assert np.abs(answers[0]._held - answers[1]._held).sum() <= 1


def test_a_learner_whose_coefficients_cannot_be_set_is_refused_before_the_records():
    with pytest.raises(ValueError, match=r"coef_ .* that can be set"):
        SubsampleAndAggregateClassifier(SVC(kernel="linear"), 4).fit(np.zeros((40, 2)), np.arange(40) % 2)


def test_no_seed_stays_in_a_pipeline():
    X, y = np.zeros((40, 2)), np.arange(40) % 2
    for learner in (DummyClassifier(random_state=1), make_pipeline(StandardScaler(), DummyClassifier(random_state=1))):
        found = PATEClassifier(learner, 4, public_records=np.eye(2)).fit(X, y).student_
        assert getattr(found, "named_steps", {"dummyclassifier": found})["dummyclassifier"].random_state is None


def drawn_by(monkeypatch, learner, m, random_state):
    """What each of m learners drew from numpy's global state, of two fits with the same seed."""
    answers = answers_of(monkeypatch)
    X, y = np.zeros((4 * m, 1)), np.arange(4 * m) % 2
    for _ in range(2):
        model = SubsampleAndAggregateClassifier(learner, m, epsilon=1.0, radius=1e9, random_state=random_state)
        model.fit(X, y)
    return [found._held[:, 0] for found in answers]


class GlobalCoefficient(Stub):
    """Its coefficient is a draw from numpy's global state, or from the seed it was given."""

    seeds: ClassVar = []

    def fit(self, X, y):
        super().fit(X, y)
        self.coef_, self.intercept_ = np.random.normal(size=(1, 1)), np.zeros(1)  # noqa: NPY002
        return self


class OfSeed(GlobalCoefficient):
    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        if self.random_state is not None:
            self.seeds.append(self.random_state)
        return super().fit(X, y)


def test_no_two_learners_share_a_seed_and_a_fit_repeats_all_of_them(monkeypatch):
    monkeypatch.setattr(GlobalCoefficient, "seeds", [])
    once, again = drawn_by(monkeypatch, OfSeed(), 60, 3)
    assert len(set(once)) == 60
    np.testing.assert_array_equal(once, again)
    assert len(set(GlobalCoefficient.seeds)) == 60


def test_a_private_learner_with_a_large_seed_is_heard(monkeypatch):
    """Seeds of private learners have 63 bits, more than numpy's global state takes."""
    answers = answers_of(monkeypatch)
    learner = ObjectivePerturbationClassifier(epsilon=5.0, regularization=0.1)
    SubsampleAndAggregateClassifier(learner, 4, epsilon=1.0, radius=1e9, random_state=0).fit(*records())
    assert (abs(answers[0]._held).sum(axis=1) > 0).all()


class NeedsTwo(Stub):
    """Copes with no class and with two, and not with one."""

    def fit(self, X, y):
        if len(set(y)) == 1:
            raise ValueError("one class alone")
        return super().fit(X, y)


def test_a_student_that_fails_on_one_class_is_refused():
    with pytest.raises(ValueError, match="one class alone"):
        PATEClassifier(NeedsTwo(), 4).fit(*records())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PATEClassifier(Stub(), 4, n_queries=0), "^n_queries must"),
        (SubsampleAndAggregateClassifier(LinearSVC(), 4, radius=-0.5), "^radius must"),
        (SubsampleAndAggregateClassifier(LinearSVC(), 4, radius=1e-101), "^radius must"),
    ],
)
def test_numbers_out_of_range_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*records())


def test_one_query_is_enough():
    assert PATEClassifier(Stub(), 4, n_queries=1).fit(*records()).guarantee_.delta == 1e-6


@pytest.mark.parametrize("cls", [PATEClassifier, SubsampleAndAggregateClassifier])
def test_equality_and_text_are_those_of_an_estimator(cls):
    """Fields are compared by nobody: arrays among them would make it an error."""
    one = cls(Stub(), 4)
    assert one == one
    assert one != cls(Stub(), 4)
    assert isinstance(hash(one), int)
    assert repr(one).startswith(f"{cls.__name__}(estimator=Stub(), n_estimators=4)")
