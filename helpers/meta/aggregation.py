"""Learners without noise on disjoint parts of the records, and one private release of what they say together.

`SubsampleAndAggregateClassifier` releases the mean of their coefficients, `PATEClassifier` their votes on public
records, from which a student learns. One record is in one part and can change that part's answer to any other, so the
answers are bounded (a vector in a ball, a vote) and one thing is asked of the learners, that they share no state: not
that they are private, nor that they are stable, nor even that they succeed. That the answers resemble each other is
what makes the release useful, and is left to the caller, who chooses public numbers of parts and radii.

Neighbours are replace-one, with n public, or add/remove-one; the noise is the same, since in both one part changes.
"""

import math
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import check_choice, check_classes, check_integer, check_real, label_codes, validate_records
from helpers.meta.bagging import assign_evenly
from helpers.meta.learners import fit_learner, new_learner, restate
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Guarantee,
    PrivateMixin,
    Release,
    Sensitivity,
    check_random_state,
    child_state,
    discrete_laplace,
    gaussian,
    k_norm,
)

_FAR = 1.0  # made-up public records lie in the cube [-1, 1]^d


def _model_has(name: str) -> Callable[[Any], bool]:
    """Whether what predicts has the method: the fitted model, or before the fit the one it will be made from."""
    return lambda wrapper: hasattr(wrapper._model(), name)


class _DisjointLearners(PrivateMixin, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Parts, learners and predictions of both."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        self._check_parameters()
        fewest = 0 if self.neighbouring is ADD_REMOVE else 1
        X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=fewest)
        classes = check_classes(self.classes, 2)
        label_codes(y, classes)
        if self.neighbouring is REPLACE_ONE and self.n_estimators > len(X):
            raise ValueError(
                f"n_estimators must be at most the number of records, got {self.n_estimators} for {len(X)} sample(s)"
            )
        self.classes_ = classes
        rng = self._noise_generator(X, y)
        self._prepare(X.shape[1], rng)
        parts = self._parts(len(X), rng)
        seeds = [self._seed(self.estimator, rng) for _ in parts]
        answers = np.array([self._answer(X[rows], y[rows], seed) for rows, seed in zip(parts, seeds, strict=True)])
        self.guarantee_ = self._with_assumptions(self._learn(answers, rng))
        restate(self._model(), self.guarantee_)  # a learner that is private itself states something else
        return self

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X):
        """Class probabilities (n, 2), columns as in `classes_`."""
        check_is_fitted(self)
        return self._model().predict_proba(validate_data(self, X, dtype=np.float64, reset=False))

    @available_if(_model_has("decision_function"))
    def decision_function(self, X):
        """Scores (n,), positive for the second class."""
        check_is_fitted(self)
        return self._model().decision_function(validate_data(self, X, dtype=np.float64, reset=False))

    def predict(self, X):
        """Labels (n,)."""
        check_is_fitted(self)
        return self._model().predict(validate_data(self, X, dtype=np.float64, reset=False))

    @abstractmethod
    def _model(self) -> BaseEstimator:
        """What predicts: fitted after the fit."""

    @abstractmethod
    def _prepare(self, n_features: int, rng: np.random.Generator) -> None:
        """What can be done, and can fail, before the private records are looked at."""

    @abstractmethod
    def _said(self, learner: BaseEstimator) -> NDArray:
        """The answer of a fitted learner, of public shape and size."""

    @abstractmethod
    def _silence(self) -> NDArray:
        """The answer of a learner that fails."""

    @abstractmethod
    def _learn(self, answers: NDArray, rng: np.random.Generator) -> Guarantee:
        """Release the answers (m, ...), of which one record changes one, and make the model of the release."""

    def _check_parameters(self):
        check_random_state(self.random_state)
        _check_classifier("estimator", self.estimator)
        check_integer("n_estimators", self.n_estimators, low=1)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        check_classes(self.classes, 2)
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))

    def _new(self, estimator, random_state=None) -> BaseEstimator:
        """An unfitted copy; every part of it that draws, a step of a pipeline too, gets the seed."""
        learner = new_learner(estimator, classes=tuple(self.classes))
        seeds = {name: random_state for name in learner.get_params() if name.split("__")[-1] == "random_state"}
        return learner.set_params(**seeds)

    def _seed(self, estimator, rng) -> int | None:
        """Randomness of a learner's own, so that what one draws cannot move what another says. A private learner has a
        source of its own, unless the whole is to be reproduced."""
        if isinstance(estimator, PrivateMixin):
            return child_state(self.random_state, rng)
        return int(rng.integers(2**32))

    def _parts(self, n_records, rng) -> list[NDArray]:
        """Row numbers of each part: dealt evenly where n is public, else each record's own draw, so that one record
        more or less moves no other."""
        m, even = self.n_estimators, self.neighbouring is REPLACE_ONE
        parts = assign_evenly(n_records, m, rng) if even else rng.integers(m, size=n_records)
        return [np.flatnonzero(parts == part) for part in range(m)]

    def _answer(self, X, y, random_state) -> NDArray:
        """What the learner of one part says; neither an error nor a warning of it leaves this method."""
        with warnings.catch_warnings(), np.errstate(all="ignore"), _own_global_state(random_state):
            warnings.simplefilter("ignore")
            try:
                answer = self._said(fit_learner(self._new(self.estimator, random_state), X, y))
                usable = answer.shape == self._silence().shape and np.isfinite(answer).all()
            except (Exception, SystemExit):  # whatever it is, it depends on private values
                usable = False
        return answer if usable else self._silence()

    def _with_assumptions(self, guarantee: Guarantee) -> Guarantee:
        size = ("number of records public",) if self.neighbouring is REPLACE_ONE else ()
        assumes = (*size, "set of labels public", "a record's part does not depend on other records")
        assumes += ("learners share no state and print nothing",)
        return replace(guarantee, assumes=tuple(dict.fromkeys((*assumes, *guarantee.assumes))))


@contextmanager
def _own_global_state(seed: int | None) -> Iterator[None]:
    """Seed numpy's global state for one learner and restore it: learners that draw from it would be coupled, and one
    record could move the answers of all that come later."""
    before = np.random.get_state()  # noqa: NPY002
    try:
        if seed is not None:
            np.random.seed(seed % 2**32)  # noqa: NPY002
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


class SubsampleAndAggregateClassifier(_DisjointLearners):
    """A linear classifier with the noisy mean of the coefficients that learners without noise find on disjoint parts.

    Each learner's coefficients, intercept included, are shortened to the length `radius`. A record is in one part, so
    it moves their mean by at most 2 `radius`/m, whatever the learner finds; noise for that is added once.

    Parameters
    ----------
    estimator : classifier
        With `coef_` (1, d) and `intercept_` after fitting; it need not be private. Parameters `classes` and
        `random_state` are set where it has them.
    n_estimators : int
        m >= 1, the number of parts. Noise falls with m, and so do the records of a learner.
    epsilon, delta : float
        Total budget, > 0 and in [0, 1). delta = 0: noise of Gamma distributed length (`k_norm`); else Gaussian.
    radius : float
        > 0, public: longest vector of coefficients, in the units of the learner's.
    classes : sequence of two labels
        Public.
    neighbouring : NeighboringRelation
        `REPLACE_ONE` (rows are dealt evenly) or `ADD_REMOVE` (every row draws its part).
    random_state : None or int
        Of the parts and of the noise. None, except to reproduce a result: whoever can guess an integer knows both, and
        it must not serve two releases on related data (`PrivateMixin`).

    Attributes
    ----------
    coef_ : ndarray (1, d); intercept_ : ndarray (1,)
        Noisy.
    estimator_ : classifier
        As `estimator`, with these in place of its own; all else on it is from a fit to made-up records.
    guarantee_ : helpers.privacy.Guarantee
    classes_ : ndarray (2,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; more parts than records under replace-one; a learner that fails on made-up
        records, or is not linear; a label outside `classes`.

    Notes
    -----
    A learner that fails on its part, or finds no finite coefficients, counts as one that found zeros. An exception
    would tell something about the records of the part. Shortened coefficients are no longer log-odds: with a rare class
    use a learner with class weights, or "recall" in a `ThresholdClassifier`, not the prevalence as threshold.

    Source: Nissim, Raskhodnikova and Smith 2007, Section 4 (parts); the clipped mean with noise for its sensitivity.

    >>> from helpers.erm import ERMClassifier
    >>> X, y = np.linspace(-1, 1, 1000)[:, None], np.repeat([0, 1], 500)
    >>> learner = ERMClassifier(regularization=0.1)
    >>> model = SubsampleAndAggregateClassifier(learner, 20, epsilon=5.0, random_state=0).fit(X, y)
    >>> str(model.guarantee_), model.score(X, y) > 0.9
    ('(5, 0)-DP, replace-one', True)
    """

    def __init__(
        self,
        estimator=None,
        n_estimators=20,
        epsilon=1.0,
        delta=0.0,
        radius=1.0,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        random_state=None,
    ):
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.classes = classes
        self.neighbouring = neighbouring
        self.random_state = random_state

    def _check_parameters(self):
        super()._check_parameters()
        check_real("radius", self.radius, low=1e-100)  # below, the length of a vector is lost to underflow

    def _model(self):
        return getattr(self, "estimator_", self.estimator)

    def _prepare(self, n_features, rng):
        self.estimator_ = fit_learner(self._new(self.estimator), *_made_up(n_features, self.classes_))
        shapes = [np.shape(getattr(self.estimator_, name, None)) for name in ("coef_", "intercept_")]
        if shapes != [(1, n_features), (1,)]:
            raise ValueError(
                f"estimator must have coef_ (1, d) and intercept_ (1,), got shapes {shapes} of {self.estimator!r}"
            )
        try:
            self.estimator_.coef_, self.estimator_.intercept_ = np.zeros((1, n_features)), np.ones(1)
        except AttributeError:
            raise ValueError(f"estimator must let coef_ and intercept_ be set, got {self.estimator!r}") from None

    def _said(self, learner):
        found = np.append(learner.coef_, learner.intercept_)
        return found * min(1.0, self.radius / max(np.linalg.norm(found), np.finfo(float).tiny))

    def _silence(self):
        return np.zeros(self.n_features_in_ + 1)

    def _learn(self, answers, rng):
        moved = Sensitivity(2 * self.radius / self.n_estimators, self.neighbouring, "l2")
        mean = answers.mean(axis=0)
        if self.delta > 0:
            released = gaussian(mean, moved, self.epsilon, self.delta, rng)
        else:
            released = k_norm(mean, moved, self.epsilon, rng)
        self.coef_, self.intercept_ = released.value[None, :-1], released.value[-1:]
        self.estimator_.coef_, self.estimator_.intercept_ = self.coef_, self.intercept_
        source = f"mean over {self.n_estimators} disjoint parts; {released.guarantee.source}"
        assumes = (*released.guarantee.assumes, "radius public")
        return replace(released.guarantee, assumes=assumes, source=source)


class PATEClassifier(_DisjointLearners):
    """A student that learns public records with the noisy votes of teachers, which learn disjoint parts of the private.

    On each public record the number of teachers that vote for the second class gets noise, and the record that label if
    more than half remains: the noisy maximum of two counts. A private record is in one part, so it moves one vote on
    each public record; all votes are released together, whatever they are (no part of the accounting looks at them).

    Parameters
    ----------
    estimator : classifier
        The teacher; it need not be private. Parameters `classes` and `random_state` are set where it has them.
    n_estimators : int
        m >= 1, the number of teachers.
    epsilon, delta : float
        Total budget, > 0 and in [0, 1). delta > 0: Gaussian noise on each of q votes, the composition of q
        Gaussian mechanisms. delta = 0: two-sided geometric noise for epsilon/q each, far more where q is large.
    public_records : array (q, d), optional
        Records like the private ones, without labels, that need no protection: *more than other private learners have*.
        Without them `n_queries` records are made up, uniformly in the cube [-1, 1]^d.
    n_queries : int
        q >= 1, public; of more `public_records` a random choice is labelled.
    student : classifier, optional
        What learns the labelled public records; by default another of `estimator`. Noisy labels may all be equal, so
        one that fails on one class is refused.
    classes : sequence of two labels
        Public.
    neighbouring : NeighboringRelation
        `REPLACE_ONE` (rows are dealt evenly) or `ADD_REMOVE` (every row draws its part).
    random_state : None or int
        Of the parts, the queries and the noise. None, except to reproduce a result: whoever can guess an integer knows
        them, and it must not serve two releases on related data (`PrivateMixin`).

    Attributes
    ----------
    student_ : fitted classifier
    guarantee_ : helpers.privacy.Guarantee
        Of the labels, and so of the student.
    classes_ : ndarray (2,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; public records with another number of features; more teachers than records
        under replace-one; a teacher or student that fails on made-up records; a label outside `classes`.

    Notes
    -----
    A teacher that fails on its part votes for the first class: an exception would tell something about the part.

    Source: Papernot et al. 2017 and 2018 (GNMax), with data-independent accounting; with two classes the noisy maximum
    is decided by one count.

    >>> from helpers.erm import ERMClassifier
    >>> X, y = np.linspace(-1, 1, 1000)[:, None], np.repeat([0, 1], 500)
    >>> learner, public = ERMClassifier(regularization=0.1), np.linspace(-1, 1, 50)[:, None]
    >>> model = PATEClassifier(learner, 100, epsilon=5.0, public_records=public, random_state=0).fit(X, y)
    >>> str(model.guarantee_), model.score(X, y) > 0.9
    ('(5, 1e-06)-DP, replace-one', True)
    """

    def __init__(
        self,
        estimator=None,
        n_estimators=20,
        epsilon=1.0,
        delta=1e-6,
        public_records=None,
        n_queries=100,
        student=None,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        random_state=None,
    ):
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.epsilon = epsilon
        self.delta = delta
        self.public_records = public_records
        self.n_queries = n_queries
        self.student = student
        self.classes = classes
        self.neighbouring = neighbouring
        self.random_state = random_state

    def _check_parameters(self):
        super()._check_parameters()
        check_integer("n_queries", self.n_queries, low=1)
        if self.student is not None:
            _check_classifier("student", self.student)
        if self.public_records is not None:
            _check_public_records(self.public_records)

    def _model(self):
        return getattr(self, "student_", self._pupil())

    def _pupil(self):
        return self.estimator if self.student is None else self.student

    def _prepare(self, n_features, rng):
        self._queries = self._chosen(n_features, rng)
        self._new(self.estimator).fit(*_made_up(n_features, self.classes_)).predict(self._queries)
        for labels in (self.classes_, self.classes_[:1]):
            self._new(self._pupil()).fit(*_made_up(n_features, labels))

    def _chosen(self, n_features, rng) -> NDArray[np.float64]:
        if self.public_records is None:
            return rng.uniform(-_FAR, _FAR, (self.n_queries, n_features))
        public = _check_public_records(self.public_records, n_features)
        return public[rng.permutation(len(public))[: self.n_queries]]

    def _said(self, learner):
        return (learner.predict(self._queries) == self.classes_[1]).astype(np.int64)

    def _silence(self):
        return np.zeros(len(self._queries), np.int64)

    def _learn(self, answers, rng):
        released = self._noisy(answers.sum(axis=0), rng)
        labels = self.classes_[(released.value > self.n_estimators / 2).astype(int)]
        student = self._new(self._pupil(), self._seed(self._pupil(), rng))
        self.student_ = fit_learner(student, self._queries, labels)
        # A seed in a step of a pipeline would tell of the stream that made the parts and the noise.
        seeds = [name for name in self.student_.get_params() if name.split("__")[-1] == "random_state"]
        self.student_.set_params(**dict.fromkeys(seeds))
        del self._queries
        source = f"votes of {self.n_estimators} teachers on {len(labels)} public records; {released.guarantee.source}"
        assumes = (*released.guarantee.assumes, "records to be labelled public")
        return replace(released.guarantee, assumes=assumes, source=source)

    def _noisy(self, votes: NDArray[np.int64], rng) -> Release:
        """All votes with noise; one private record moves each of them by one."""
        q = len(votes)
        if self.delta == 0:
            return discrete_laplace(votes, Sensitivity(float(q), self.neighbouring, "l1"), self.epsilon, rng)
        moved = Sensitivity(math.sqrt(q), self.neighbouring, "l2")
        released = gaussian(votes, moved, self.epsilon, self.delta, rng)
        each = released.guarantee.event.noise_multiplier * math.sqrt(q)
        event = SelfComposedDpEvent(GaussianDpEvent(each), q)  # the same curve, one event a vote
        return Release(released.value, replace(released.guarantee, event=event))


def _made_up(n_features: int, labels: NDArray) -> tuple[NDArray, NDArray]:
    """Four public records at the origin, with these labels."""
    return np.zeros((4, n_features)), np.resize(labels, 4)


def _check_classifier(name: str, value: Any) -> None:
    if isinstance(value, type) or not all(hasattr(value, part) for part in ("fit", "get_params", "predict")):
        raise ValueError(f"{name} must be a scikit-learn classifier, got {value!r}")


def _check_public_records(public: Any, n_features: int | None = None) -> NDArray[np.float64]:
    try:
        found = np.asarray(public, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    usable = found.ndim == 2 and found.size and np.isfinite(found).all()
    if not usable or n_features not in (None, found.shape[1]):
        shape = f"(q, {'d' if n_features is None else n_features})"
        raise ValueError(
            f"public_records must be a finite table of shape {shape}, got {type(public).__name__} {found.shape}"
        )
    return found
