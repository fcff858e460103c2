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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from helpers.meta.bagging import Ensemble, assign_evenly
from helpers.meta.learners import Records, check_learner, fit_learner, made_up, new_learner, restate, with_seed
from helpers.predictions import ModelPredictions
from helpers.privacy import REPLACE_ONE, Ledger, PrivateMixin, child_state, gaussian_multiplier
from helpers.validation import integer, optional, real

_FAR = 1.0  # made-up public records lie in the cube [-1, 1]^d


@dataclass(eq=False, repr=False)
class _DisjointLearners(ModelPredictions, Ensemble):
    """What both classifiers share: disjoint parts of the records, a learner for each, and predictions."""

    _allowed: ClassVar[dict] = {"estimator": partial(check_learner, needed=())}

    n_estimators: int = 20

    def _planned(self, X: NDArray, y: NDArray) -> tuple[NeighboringRelation, None]:
        self._check_parts(len(X))
        return self.neighbouring, None

    def _new(self, seed: int | None = None) -> Any:
        """An unfitted copy; every part of it that draws gets the seed."""
        return with_seed(new_learner(self.estimator, classes=tuple(self.classes)), seed)

    def _seed(self, rng: np.random.Generator) -> int | None:
        """A seed for one learner alone, so that how much one learner draws cannot change the answer of another.

        A private learner gets None and draws from the system, unless the whole fit has a seed.
        """
        if isinstance(self.estimator, PrivateMixin):
            return child_state(self.random_state, rng)
        return int(rng.integers(2**32))

    def _answers(self, ledger: Ledger, said: Callable[[BaseEstimator], NDArray], silence: NDArray) -> Ledger:
        """A ledger of what the m learners say, an array (m, ...) of which one record changes one row.

        Parameters
        ----------
        ledger : Ledger
            Of X and y.
        said : callable
            From a fitted learner to its answer.
        silence : array
            Stands for the answer of a learner that fails. Every answer has its shape, whatever the records are.
        """
        m, rng, replaced = self.n_estimators, ledger.rng, ledger.neighbouring is REPLACE_ONE
        # Rows are dealt evenly where their number is public.
        even = assign_evenly(ledger.n_records(), m, rng) if replaced else None
        ledger.assume("set of labels public", "a record's part does not depend on other records")
        ledger.assume("learners share no state and print nothing")

        def answers(records: Records) -> NDArray:
            X, y = records
            # Each record's own draw, so that one record more or less moves no other.
            parts = rng.integers(m, size=len(X)) if even is None else even
            return np.array([answer(X[parts == k], y[parts == k], self._seed(rng)) for k in range(m)])

        def answer(X: NDArray, y: NDArray, seed: int | None) -> NDArray:
            # Learners that draw from numpy's global generator would be coupled: one record could move the answers of
            # all that come later. So its state is put back after each learner, and seeded for each one that has a seed.
            before = np.random.get_state()  # noqa: NPY002
            # Neither an error nor a warning may leave: whatever it is, it depends on private values.
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    if seed is not None:
                        np.random.seed(seed % 2**32)  # noqa: NPY002
                    found = said(fit_learner(self._new(seed), X, y))
                    # An answer of another shape, or one that is not finite, would tell about the records of its part.
                    usable = found.shape == silence.shape and np.isfinite(found).all()
                except (Exception, SystemExit):
                    usable = False
                finally:
                    np.random.set_state(before)  # noqa: NPY002
            return found if usable else silence

        return ledger.view(answers)


@dataclass(eq=False, repr=False)
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
        A copy of `estimator` with these coefficients; its other fitted attributes come from made-up records.
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

    _allowed: ClassVar[dict] = {"radius": real(low=1e-100)}  # below, the length of a vector is lost to underflow

    radius: float = 1.0

    def _learn(self, ledger: Ledger, plan: None) -> None:
        d = self.n_features_in_
        # Made-up records show whether the learner is linear, before it sees a private one; the noisy coefficients are
        # put into this copy.
        self.estimator_ = fit_learner(self._new(), *made_up(4, d, self.classes_))
        try:
            shapes = [self.estimator_.coef_.shape, self.estimator_.intercept_.shape]
            self.estimator_.coef_, self.estimator_.intercept_ = np.zeros((1, d)), np.ones(1)
        except AttributeError:
            shapes = []
        if shapes != [(1, d), (1,)]:
            allowed = "coef_ (1, d) and intercept_ (1,) that can be set"
            raise ValueError(f"estimator must have {allowed}, got shapes {shapes} of {self.estimator!r}")

        def shortened(learner: Any) -> NDArray:
            found = np.append(learner.coef_, learner.intercept_)
            # A vector of zeros stays one; the tiny number only avoids a division by 0.
            return found * min(1.0, self.radius / max(np.linalg.norm(found), np.finfo(float).tiny))

        answers, mean = self._answers(ledger, shortened, np.zeros(d + 1)), partial(np.mean, axis=0)
        # One of m answers moves, from anywhere in the ball to anywhere else in it.
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
        restate(self.estimator_, self.guarantee_)  # a learner that is private itself states something else


def _check_table(name: str, value: Any) -> NDArray[np.float64]:
    try:
        return check_array(value, dtype=np.float64, input_name=name)
    except TypeError:
        raise ValueError(f"{name} must be a table of numbers, got {value!r}") from None


@dataclass(eq=False, repr=False)
class PATEClassifier(_DisjointLearners):
    """A student that learns public records with the noisy votes of teachers, which learn disjoint parts of the private.

    On each public record the number of teachers that vote for the second class gets noise, and the record that label if
    more than half remains: the noisy maximum of two counts. A private record is in one part, so it moves one vote on
    each public record; all votes are released together, whatever they are (no part of the accounting looks at them).

    Parameters
    ----------
    estimator : classifier
        The teacher, and another of it the student; it need not be private. Noisy labels may all be equal, so one that
        fails on one class is refused. Parameters `classes` and `random_state` are set where it has them.
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
        From `fit`: a parameter out of range; public records that are no finite table, or have other features; more
        teachers than records under replace-one; a classifier that fails on made-up records; a label outside
        `classes`.

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

    _allowed: ClassVar[dict] = {"public_records": optional(_check_table), "n_queries": integer(low=1)}
    _predictor = "student_"

    delta: float = 1e-6
    public_records: ArrayLike | None = None
    n_queries: int = 100

    def _learn(self, ledger: Ledger, plan: None) -> None:
        d, rng = self.n_features_in_, ledger.rng
        if self.public_records is None:
            queries = rng.uniform(-_FAR, _FAR, (self.n_queries, d))
        else:
            public = _check_table("public_records", self.public_records)
            if public.shape[1] != d:
                raise ValueError(f"public_records must have as many features as X, {d}, got {public.shape[1]}")
            queries = public[rng.permutation(len(public))[: self.n_queries]]
        # Whatever can fail without a look at private records is to fail before it.
        # Noisy votes may all be for one class, so the student has to cope with that.
        for labels in (self.classes_, self.classes_[:1]):
            self._new().fit(*made_up(4, d, labels)).predict(queries)

        def vote(teacher: Any) -> NDArray:
            return (teacher.predict(queries) == self.classes_[1]).astype(np.int64)

        q, votes = len(queries), partial(np.sum, axis=0)
        answers = self._answers(ledger, vote, np.zeros(q, np.int64))
        # One private record moves each of the q sums of votes by one: sqrt(q) in l2, for Gaussian noise, and q in l1.
        if self.delta > 0:
            noisy = answers.gaussian(votes, math.sqrt(q), gaussian_multiplier(self.epsilon, self.delta))
            mechanism = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
        else:
            noisy = answers.integers(votes, q, self.epsilon)
            mechanism = "discrete Laplace mechanism (Ghosh, Roughgarden and Sundararajan 2012)"
        labels = self.classes_[(noisy > self.n_estimators / 2).astype(int)]
        # The seeds are forgotten after the fit: they would tell of the stream that made the parts and the noise.
        self.student_ = fit_learner(self._new(self._seed(rng)), queries, labels)
        source = f"votes of {self.n_estimators} teachers on {q} public records; {mechanism}"
        assumes = ("records to be labelled public",)
        self.guarantee_ = ledger.guarantee(self.epsilon, self.delta, source=source, assumes=assumes)
        restate(self.student_, self.guarantee_)  # a learner that is private itself states something else
