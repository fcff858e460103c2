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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from helpers.checks import check_choice, check_classes, check_integer, check_real, label_codes, validate_records
from helpers.meta.bagging import assign_evenly
from helpers.meta.learners import fit_learner, new_learner, restate
from helpers.predictions import ModelPredictions
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Ledger,
    PrivateMixin,
    check_random_state,
    child_state,
    gaussian_multiplier,
)

_FAR = 1.0  # made-up public records lie in the cube [-1, 1]^d


class _DisjointLearners(PrivateMixin, ModelPredictions, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
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
        self._learn(Ledger((X, y), self.neighbouring, self._noise_generator(X, y)))
        restate(self._model(), self.guarantee_)  # a learner that is private itself states something else
        return self

    @abstractmethod
    def _learn(self, ledger: Ledger) -> None:
        """Set what is fitted, from one answer of the ledger about what all learners say."""

    @abstractmethod
    def _model(self) -> BaseEstimator:
        """What predicts; before the fit, what it will be made from."""

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

    def _answers(self, ledger: Ledger, said: Callable[[BaseEstimator], NDArray], silence: NDArray) -> Ledger:
        """A ledger of what the m learners say, an array (m, ...) of which one record changes one row.

        Parameters
        ----------
        ledger : Ledger
            Of X and y.
        said : callable
            The answer of a fitted learner.
        silence : array
            The answer of a learner that fails; all answers have its shape.
        """
        m, rng, even = self.n_estimators, ledger.rng, None
        if ledger.neighbouring is REPLACE_ONE:  # rows are dealt evenly, since their number is public
            even = assign_evenly(ledger.n_records(), m, rng)
        ledger.assume("set of labels public", "a record's part does not depend on other records")
        ledger.assume("learners share no state and print nothing")

        def answers(records):
            X, y = records
            # Each record's own draw, so that one record more or less moves no other.
            parts = rng.integers(m, size=len(X)) if even is None else even
            seeds = [self._seed(self.estimator, rng) for _ in range(m)]
            return np.array([answer(X[parts == k], y[parts == k], seed) for k, seed in enumerate(seeds)])

        def answer(X, y, seed):
            # Neither an error nor a warning may leave: whatever it is, it depends on private values.
            with warnings.catch_warnings(), np.errstate(all="ignore"), _own_global_state(seed):
                warnings.simplefilter("ignore")
                try:
                    found = said(fit_learner(self._new(self.estimator, seed), X, y))
                    usable = found.shape == silence.shape and np.isfinite(found).all()
                except (Exception, SystemExit):
                    usable = False
            return found if usable else silence

        return ledger.view(answers)


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

    Proof: in the literature.

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

    def _learn(self, ledger):
        d = self.n_features_in_
        self.estimator_ = fit_learner(self._new(self.estimator), *_made_up(d, self.classes_))
        shapes = [np.shape(getattr(self.estimator_, name, None)) for name in ("coef_", "intercept_")]
        if shapes != [(1, d), (1,)]:
            raise ValueError(
                f"estimator must have coef_ (1, d) and intercept_ (1,), got shapes {shapes} of {self.estimator!r}"
            )
        try:
            self.estimator_.coef_, self.estimator_.intercept_ = np.zeros((1, d)), np.ones(1)
        except AttributeError:
            raise ValueError(f"estimator must let coef_ and intercept_ be set, got {self.estimator!r}") from None

        def shortened(learner):
            found = np.append(learner.coef_, learner.intercept_)
            return found * min(1.0, self.radius / max(np.linalg.norm(found), np.finfo(float).tiny))

        def mean(answers):
            return answers.mean(axis=0)

        answers = self._answers(ledger, shortened, np.zeros(d + 1))
        moved = 2 * self.radius / self.n_estimators
        if self.delta > 0:
            noisy = answers.gaussian(mean, moved, gaussian_multiplier(self.epsilon, self.delta))
            mechanism = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
        else:
            noisy = answers.k_norm(mean, moved, self.epsilon)
            mechanism = "K-norm mechanism (Hardt and Talwar 2010, Section 4)"
        self.coef_, self.intercept_ = noisy[None, :-1], noisy[-1:]
        self.estimator_.coef_, self.estimator_.intercept_ = self.coef_, self.intercept_
        source = f"mean over {self.n_estimators} disjoint parts; {mechanism}"
        self.guarantee_ = ledger.guarantee(self.epsilon, self.delta, source=source, assumes=("radius public",))


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

    Proof: in the literature.

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

    def _learn(self, ledger):
        d, rng = self.n_features_in_, ledger.rng
        if self.public_records is None:
            queries = rng.uniform(-_FAR, _FAR, (self.n_queries, d))
        else:
            public = _check_public_records(self.public_records, d)
            queries = public[rng.permutation(len(public))[: self.n_queries]]
        # Whatever can fail without a look at private records is to fail before it.
        self._new(self.estimator).fit(*_made_up(d, self.classes_)).predict(queries)
        for labels in (self.classes_, self.classes_[:1]):
            self._new(self._pupil()).fit(*_made_up(d, labels))

        def vote(teacher):
            return (teacher.predict(queries) == self.classes_[1]).astype(np.int64)

        def votes(answers):
            return answers.sum(axis=0)

        q = len(queries)
        answers = self._answers(ledger, vote, np.zeros(q, np.int64))
        # One private record moves each of the q votes by one.
        if self.delta > 0:
            noisy = answers.gaussian(votes, math.sqrt(q), gaussian_multiplier(self.epsilon, self.delta))
            mechanism = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
        else:
            noisy = answers.integers(votes, q, self.epsilon)
            mechanism = "discrete Laplace mechanism (Canonne, Kamath and Steinke 2020, Algorithm 2)"
        labels = self.classes_[(noisy > self.n_estimators / 2).astype(int)]
        student = self._new(self._pupil(), self._seed(self._pupil(), rng))
        self.student_ = fit_learner(student, queries, labels)
        # A seed in a step of a pipeline would tell of the stream that made the parts and the noise.
        seeds = [name for name in self.student_.get_params() if name.split("__")[-1] == "random_state"]
        self.student_.set_params(**dict.fromkeys(seeds))
        source = f"votes of {self.n_estimators} teachers on {q} public records; {mechanism}"
        assumes = ("records to be labelled public",)
        self.guarantee_ = ledger.guarantee(self.epsilon, self.delta, source=source, assumes=assumes)


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
