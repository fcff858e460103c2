"""Bagging with a private learner, within one total budget.

`PrivateBaggingClassifier` divides a total budget over the learners of an ensemble, and its guarantee counts every
copy of a record that a bag can hold; the functions before it are the law of those copies, the ways to deal records
into bags, and the budget. The learner's own guarantee is taken at its word, and choosing m, k or the penalty privately
is left to the caller.

Neighbours are replace-one, with n public, unless a function says otherwise.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.meta.learners import Records, Wrapper, fit_learner, new_learner, planned_guarantee, with_origin
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ChangedRows,
    Guarantee,
    Ledger,
    child_state,
    compose,
    furthest,
)
from helpers.validation import check_choice, check_integer, check_real, choice, integer, optional, real

SAMPLINGS = ("bootstrap", "without-replacement", "disjoint", "public-strata")
_DISJOINT = SAMPLINGS[2:]
COMPOSITIONS = ("basic", "advanced", "optimal")

_SOURCES = {
    "bootstrap": "bootstrap (Balle, Barthe and Gaboardi 2018, Theorem 10; pure learners exactly)",
    "without-replacement": "samples without replacement (Balle, Barthe and Gaboardi 2018, Theorem 9)",
    "disjoint": "disjoint (parallel composition)",
    "public-strata": "disjoint within classes (parallel composition)",
}
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-12, 50.0  # given to one learner: below is nothing, and nothing is gained beyond


# --- what resampling does to a private learner ----------------------------------------------------


def changed_rows(sampling: str, *, n_records: int, sample_size: int) -> ChangedRows:
    """Rows of one bag that a replaced record changes: its copies.

    * "bootstrap": Bin(k, 1/n). A pure learner's guarantee, `log_mean`, is k log(1 + (e^eps0 - 1)/n), exactly: a learner
      that answers "yes" with probability proportional to e^(C eps0), where C counts the copies, attains it. For k = n
      it lies between eps0 and e^eps0 - 1: above the eps0 of the learner.
    * "without-replacement": Bin(1, k/n), since a record is drawn once at most. `amplify` gives log(1 + q (e^e - 1)) and
      q d for an (e, d)-DP learner, with q = k/n.

    Parameters
    ----------
    sampling : {"bootstrap", "without-replacement"}
    n_records, sample_size : int
        n and k, public; k <= n without replacement.

    Raises
    ------
    ValueError
        A choice or a number out of range.

    Source: Balle, Barthe and Gaboardi 2018, Theorems 9 and 10 (derived again, checked by linear programming).

    >>> bag = changed_rows("bootstrap", n_records=1000, sample_size=1000)
    >>> round(bag.log_mean(1.0), 4), round(bag.delta_at(1.5, Guarantee(1.0, 0.0, REPLACE_ONE)), 4)
    (1.7168, 0.0755)
    >>> round(changed_rows("without-replacement", n_records=10, sample_size=1).log_mean(1.0), 4)
    0.1586
    """
    check_choice("sampling", sampling, SAMPLINGS[:2])
    n = check_integer("n_records", n_records, low=1)
    once = sampling == "without-replacement"
    k = check_integer("sample_size", sample_size, low=1, high=n if once else None)
    trials, probability = (1, k / n) if once else (k, 1 / n)
    return ChangedRows(REPLACE_ONE, trials=trials, probability=probability, assumes=("secret samples",))


# --- who is in which bag --------------------------------------------------------------------------


def assign_evenly(n_records: int, n_bags: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Bag of each of `n_records` row numbers: a random deal into bags whose sizes differ by at most one.

    No data are read, so the bag of a row is public under replace-one (n is).

    >>> np.bincount(assign_evenly(7, 3, np.random.default_rng(0))).tolist()
    [3, 2, 2]
    """
    n_bags = check_integer("n_bags", n_bags, low=1, high=n_records)
    return rng.permutation(np.arange(n_records) % n_bags)


def assign_by_rank(y: ArrayLike, n_bags: int) -> NDArray[np.int64]:
    """Bag of each record (n,) by its rank among the labels (n,) equal to its own: an exact stratification.

    It reads the labels, and one other label moves records from bag to bag in all of them.

    >>> assign_by_rank([1, 0, 0, 1, 0, 0], 2).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    n_bags = check_integer("n_bags", n_bags, low=1)
    return pd.Series(y).groupby(np.asarray(y)).cumcount().to_numpy() % n_bags


# --- the budget -----------------------------------------------------------------------------------


def ensemble_guarantee(
    inner: Guarantee,
    *,
    n_estimators: int,
    n_records: int,
    sampling: str = "bootstrap",
    sample_size: int | None = None,
    composition: str = "basic",
    delta: float = 0.0,
) -> Guarantee:
    """Guarantee of all models of the ensemble together, from that of one learner on its own input.

    Parameters
    ----------
    inner : Guarantee
        Of each learner. Replace-one; either relation for "disjoint".
    n_estimators, n_records, sample_size : int
        m, n and k (n if None; not used by the disjoint samplings).
    sampling : {"bootstrap", "without-replacement", "disjoint", "public-strata"}
        One bag for each record in the last two, so one learner's guarantee is everyone's.
    composition : {"basic", "advanced", "optimal"}
        Of overlapping bags.
    delta : float
        Total, in [0, 1). If the learner is not pure, "bootstrap" needs it and spends it on the bags: delta/m on each
        with basic composition, which consumes no delta itself, and delta/(2m) on each with the others.

    Raises
    ------
    ValueError
        A choice or a number out of range; a relation that the sampling does not cover.

    >>> learner = Guarantee(0.1, 0.0, REPLACE_ONE)
    >>> [round(ensemble_guarantee(learner, n_estimators=5, n_records=9, sampling=s).epsilon, 3) for s in SAMPLINGS[:3]]
    [0.523, 0.5, 0.1]
    """
    n_estimators = check_integer("n_estimators", n_estimators, low=1)
    check_choice("sampling", sampling, SAMPLINGS)
    check_choice("composition", composition, COMPOSITIONS)
    delta = check_real("delta", delta, low=0, high=1, inclusive="low")
    if sampling == "disjoint":
        return replace(inner, assumes=(*inner.assumes, "a record's bag does not depend on other records"))
    if sampling == "public-strata":
        check_choice("inner.neighbouring", inner.neighbouring, (REPLACE_ONE,))
        return replace(inner, assumes=(*inner.assumes, "labels public: neighbours differ in features only"))
    rows = changed_rows(sampling, n_records=n_records, sample_size=n_records if sample_size is None else sample_size)
    spends = sampling == "bootstrap" and inner.delta > 0
    if spends and delta == 0:
        raise ValueError(f"delta must be positive for bootstrap bags of a learner with a delta, got {delta!r}")
    # Basic composition spends delta on the bags alone; the other theorems need some of it for themselves.
    share = delta if composition == "basic" else delta / 2
    bag = rows.amplify(inner, share / n_estimators if spends else None)
    return compose([bag] * n_estimators, composition, delta=None if composition == "basic" else delta)


@lru_cache(maxsize=1024)
def learner_epsilon(
    epsilon: float, *, inner_delta: float = 0.0, relation: NeighboringRelation = REPLACE_ONE, **options: Any
) -> float:
    """Largest budget of one learner for which `ensemble_guarantee` is within `epsilon`.

    Parameters
    ----------
    epsilon : float
        Total, > 0.
    inner_delta : float
        delta of each learner.
    relation : NeighboringRelation
        Of each learner.
    options
        Of `ensemble_guarantee`.

    Returns
    -------
    float
        0 if no positive budget will do; 50 at most, beyond which nothing is gained.

    Raises
    ------
    ValueError
        As `ensemble_guarantee`; `epsilon` not positive.

    >>> sizes = dict(n_estimators=10, n_records=1000, sample_size=100, sampling="without-replacement", delta=1e-6)
    >>> [round(learner_epsilon(0.5, composition=c, **sizes), 4) for c in ("basic", "advanced", "optimal")]
    [0.4139, 0.2623, 0.4145]
    """

    def total(inner: float) -> float:
        return ensemble_guarantee(Guarantee(inner, inner_delta, relation), **options).epsilon

    return largest_budget(total, epsilon)


def largest_budget(total: Callable[[float], float], epsilon: float) -> float:
    """Largest epsilon of one learner, at most 50, whose ensemble's `total` is within `epsilon`; 0 if there is none.

    Parameters
    ----------
    total : callable
        From a learner's epsilon to that of the ensemble; it does not decrease.
    epsilon : float
        Total, > 0.

    >>> round(largest_budget(lambda inner: 5 * inner, 1.0), 6)
    0.2
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")

    def fits(inner_epsilon: float) -> bool:
        # A budget below the least one counts as none at all, and none always fits.
        return inner_epsilon < _LEAST_EPSILON or total(inner_epsilon) <= epsilon * (1 + 1e-12)

    # Sampling may allow a learner more than the total: the bracket grows until it holds the answer.
    high = min(_LARGEST_EPSILON, 4 * epsilon)
    while high < _LARGEST_EPSILON and fits(high):
        high = min(4 * high, _LARGEST_EPSILON)
    found = furthest(fits, 0.0, high, relative=1e-9)
    return found if found >= _LEAST_EPSILON else 0.0


# --- the estimator --------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Ensemble(Wrapper):
    """A wrapper around several learners of one kind. Not for use by itself."""

    _allowed: ClassVar[dict] = {
        "n_estimators": integer(low=1),
        "delta": real(low=0, high=1, inclusive="low"),
        "neighbouring": choice(ADD_REMOVE, REPLACE_ONE),
    }

    n_estimators: int = 10
    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    neighbouring: NeighboringRelation = REPLACE_ONE

    def _check_parts(self, n_rows: int) -> None:
        """Refuse more disjoint parts than rows; where the number of rows is private, parts may well be empty."""
        m = self.n_estimators
        if self.neighbouring is REPLACE_ONE and m > n_rows:
            raise ValueError(f"n_estimators must be at most the number of records, got {m} for {n_rows} sample(s)")


@dataclass(eq=False, repr=False)
class PrivateBaggingClassifier(Ensemble):
    """A vote of private classifiers, each fitted to its own bag, within one total budget.

    The m fitted learners together are (`epsilon`, `delta`)-DP under `neighbouring`; every vote is post-processing.
    Learners get the largest budget that `ensemble_guarantee` allows. What a learner guarantees is found out on made-up
    records, as many as a bag holds, before the private ones are read; the ensemble's guarantee never depends on those.

    Parameters
    ----------
    estimator : classifier
        With a parameter `epsilon`, and an attribute `guarantee_` after fitting. Parameters `classes`, `n_records`
        (under add/remove: the public size of a bag, n/m) and `random_state` are set where it has them.
    n_estimators : int
        m >= 1.
    epsilon, delta : float
        Total budget, > 0 and in [0, 1).
    sampling : {"bootstrap", "without-replacement", "disjoint", "public-strata"}
        With replacement; a new sample for each learner; a random deal of the rows; a deal within the classes, which
        protects features only: it needs public labels, and of every class a record for each bag.
    sample_size : int, optional
        k of the first two, n by default.
    voting : {"hard", "soft"}
        Share of the learners that vote for a class, or their mean probability.
    composition : {"basic", "advanced", "optimal"}
        For overlapping bags; all but "basic" need `delta` > 0.
    classes : sequence of two labels
        Public.
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, or `ADD_REMOVE` ("disjoint" only, where every record then draws its bag).
    n_records : int, optional
        Public number of records that add/remove learners divide by, and needed there. Since bag sizes are then
        private, every bag also holds two made-up records, the origin once with each label, so that none is empty.
    random_state : None or int
        Of the bags and of the learners' noise. None, except to reproduce a result: whoever can guess an integer knows
        both, and it must not serve two releases on related data (`PrivateMixin`).

    Attributes
    ----------
    estimators_ : list of m fitted learners
    learner_guarantee_ : Guarantee
        Of each learner, on its own bag, as planned.
    learner_epsilon_ : float
        What each learner was given.
    guarantee_ : helpers.privacy.Guarantee
        Of `estimators_`, with relation and assumptions.
    classes_ : ndarray (2,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; more rows wanted than there are; a learner without a guarantee, with one
        for another relation, with different ones for different made-up records, or that fails on some; a budget that
        leaves nothing to a learner; a label outside `classes`; with "public-strata", a class with fewer records than
        there are bags.

    Notes
    -----
    A bag without a record of one class is no error as long as labels are private: whether `fit` fails is seen by
    everybody, so an error would release something about the labels that no budget pays for. The learner is fitted to
    what there is, and has to cope with one class, as the learners of `helpers.erm` do; one that fails on one class of
    made-up records is refused. No record at all, under add/remove, is no error either.

    Proof: in the literature (amplification, composition); how many bags a record changes is enumerated in
    `tests/test_meta_bagging_theory.py`.

    Source: Rosenblatt et al. 2025, Section 4.1 and Appendix C.1, with corrected accounting.

    >>> from helpers.erm import ObjectivePerturbationClassifier
    >>> X, y = np.linspace(-1, 1, 40)[:, None], np.repeat([0, 1], 20)
    >>> bagging = PrivateBaggingClassifier(
    ...     ObjectivePerturbationClassifier(regularization=0.1), 3, epsilon=6.0, sampling="bootstrap", random_state=0
    ... ).fit(X, y)
    >>> round(bagging.learner_epsilon_, 3), print(bagging.guarantee_)
    (6, 0)-DP, replace-one
    (1.115, None)
    """

    _allowed: ClassVar[dict] = {
        "sampling": choice(*SAMPLINGS),
        "sample_size": optional(integer(low=1, high=None)),
        "voting": choice("hard", "soft"),
        "composition": choice(*COMPOSITIONS),
        "n_records": optional(integer(low=1, high=None)),
    }

    sampling: str = "without-replacement"
    sample_size: int | None = None
    voting: str = "hard"
    composition: str = "basic"
    n_records: int | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.composition != "basic" and self.sampling not in _DISJOINT and self.delta == 0:
            raise ValueError(f"delta must be positive for composition {self.composition!r}, got {self.delta!r}")
        if self.neighbouring == ADD_REMOVE and (self.sampling != "disjoint" or self.n_records is None):
            raise ValueError("neighbouring must be replace-one without n_records and disjoint bags, got add/remove-one")

    def _planned(self, X: NDArray, y: NDArray) -> tuple[NeighboringRelation, NDArray | None]:
        """The labels, where they are public and decide on bags."""
        if self.sampling == "without-replacement" and (self.sample_size or 0) > len(X):
            raise ValueError(f"sample_size must be at most the number of records, {len(X)}, got {self.sample_size}")
        if self.sampling in _DISJOINT:
            self._check_parts(len(X))
        if self.sampling != "public-strata":
            return self.neighbouring, None  # silent about an absent class (Notes)
        fewest = min(int(np.sum(y == label)) for label in self.classes_)
        if fewest < self.n_estimators:
            allowed = f"at most {fewest}, the records of the rarer class, with public labels"
            raise ValueError(f"n_estimators must be {allowed}, got {self.n_estimators}")
        return self.neighbouring, y

    def _learn(self, ledger: Ledger, labels: NDArray | None) -> None:
        """Set what is fitted, from one fit of all learners."""
        rng, replaced = ledger.rng, ledger.neighbouring is REPLACE_ONE
        # Where the number of records is private, each record's own draw decides who is in which bag, and n does not
        # enter: the bags are disjoint.
        n = ledger.n_records() if replaced else 1
        bags = self._public_bags(n, labels, rng) if replaced else None
        # The learner's guarantee is planned for the sizes of the smallest and the largest bag; where bag sizes are
        # private, for the size of a bag that holds the made-up records alone.
        sizes = [len(self.classes_)] if bags is None else sorted({*map(len, bags)})
        shared_out = self._shared_out(n, sorted({sizes[0], sizes[-1]}))

        def fit_all(records: Records) -> list:
            X, y = records
            if bags is None:
                dealt = rng.integers(self.n_estimators, size=len(X))
                owned = [dealt == bag for bag in range(self.n_estimators)]
                parts = [with_origin(X[own], y[own], self.classes_) for own in owned]
            else:
                parts = [(X[rows], y[rows]) for rows in bags]
            # Each with noise of its own.
            learner = partial(self._learner, self.learner_epsilon_)
            return [fit_learner(learner(child_state(self.random_state, rng)), *part) for part in parts]

        self.estimators_ = ledger.fitted(fit_all, shared_out)
        self.guarantee_ = ledger.guarantee(shared_out.epsilon, shared_out.delta, source=shared_out.source)

    def _public_bags(self, n_records: int, labels: NDArray | None, rng: np.random.Generator) -> list[NDArray]:
        """Row numbers of each bag, from the number of records and, for strata, their public labels."""
        m = self.n_estimators
        if self.sampling not in _DISJOINT:
            size = n_records if self.sample_size is None else self.sample_size
            return [rng.choice(n_records, size, replace=self.sampling == "bootstrap") for _ in range(m)]
        if labels is None:
            bags = assign_evenly(n_records, m, rng)
        else:
            # Ranks are counted in a random order of the rows, and argsort brings the bags back to the order of the
            # table.
            order = rng.permutation(n_records)
            bags = assign_by_rank(labels[order], m)[np.argsort(order)]
        return [np.flatnonzero(bags == bag) for bag in range(m)]

    def _shared_out(self, n_records: int, sizes: list[int]) -> Guarantee:
        """The ensemble's guarantee, and in `learner_epsilon_` the budget that gives it."""
        names = ("n_estimators", "sampling", "sample_size", "composition", "delta")
        options = {"n_records": n_records} | {name: getattr(self, name) for name in names}
        # A first fit to made-up records shows the learner's delta and relation, on which its budget depends.
        probe = self._stated(self.epsilon, sizes)
        inner = {"inner_delta": probe.delta, "relation": probe.neighbouring}
        self.learner_epsilon_ = learner_epsilon(self.epsilon, **inner, **options)
        if self.learner_epsilon_ < 1e-9:
            raise ValueError(f"epsilon must leave a budget to each learner, got {self.epsilon!r}")
        # What the learner states at the budget it gets: it may differ from what was asked for.
        self.learner_guarantee_ = self._stated(self.learner_epsilon_, sizes)
        guarantee = ensemble_guarantee(self.learner_guarantee_, **options)
        if guarantee.epsilon > self.epsilon * (1 + 1e-6) or guarantee.delta > self.delta * (1 + 1e-9):
            raise ValueError(f"estimator must keep the total of ({self.epsilon:g}, {self.delta:g})-DP, got {guarantee}")
        source = f"{self.n_estimators} learners, {_SOURCES[self.sampling]}; {guarantee.source}"
        # The total budget is what is promised; bisection stops a little below it, rounding a little above.
        return replace(guarantee, epsilon=max(float(self.epsilon), guarantee.epsilon), event=None, source=source)

    def _stated(self, epsilon: float, sizes: list[int]) -> Guarantee:
        """What learners with this budget guarantee for made-up bags of all `sizes`."""
        make = partial(self._learner, min(epsilon, _LARGEST_EPSILON), None)
        public = self.n_features_in_, self.classes_, self.neighbouring
        stated = [planned_guarantee(make, size, *public) for size in sizes]
        worst = max(stated, key=lambda guarantee: guarantee.epsilon)
        # Epsilon and delta may be largest at different sizes: both maxima cover every bag.
        return replace(worst, delta=max(guarantee.delta for guarantee in stated))

    def _learner(self, epsilon: float, random_state: int | None) -> Any:
        values = {"epsilon": epsilon, "classes": tuple(self.classes), "random_state": random_state}
        if self.neighbouring is ADD_REMOVE:
            values["n_records"] = max(round((self.n_records or 0) / self.n_estimators), 1)
        return new_learner(self.estimator, **values)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Share of the votes, or mean probabilities, (n, 2), columns as in `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.voting == "soft":
            return np.mean([learner.predict_proba(X) for learner in self.estimators_], axis=0)
        share = np.mean([learner.predict(X) == self.classes_[1] for learner in self.estimators_], axis=0)
        return np.column_stack([1 - share, share])

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels (n,): the second class with more than half of the votes (or of the mean probability)."""
        share = self.predict_proba(X)[:, 1]
        return self.classes_[(share > 0.5).astype(int)]
