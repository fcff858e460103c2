"""Bagging with a private learner, within one total budget.

`PrivateBaggingClassifier` divides a total budget over the learners of an ensemble, and its guarantee counts every
copy of a record that a bag can hold; the functions before it are the law of those copies, the ways to deal records
into bags, and the budget. The learner's own guarantee is taken at its word, and choosing m, k or the penalty privately
is left to the caller.

Neighbours are replace-one, with n public, unless a function says otherwise.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import (
    check_boolean,
    check_choice,
    check_classes,
    check_integer,
    check_real,
    label_codes,
    validate_records,
)
from helpers.meta.learners import check_learner, fit_learner, new_learner, planned_guarantee, with_origin
from helpers.privacy import (
    ADD_REMOVE,
    COMPOSITION_METHODS,
    RELATION_NAMES,
    REPLACE_ONE,
    ChangedRows,
    Guarantee,
    Ledger,
    PrivateMixin,
    check_random_state,
    child_state,
    compose,
)
from helpers.privacy.search import largest

SAMPLINGS = ("bootstrap", "without-replacement", "disjoint", "stratified-disjoint")

_SOURCES = {
    "bootstrap": "bootstrap (Balle, Barthe and Gaboardi 2018, Theorem 10; pure learners exactly)",
    "without-replacement": "samples without replacement (Balle, Barthe and Gaboardi 2018, Theorem 9)",
    "disjoint": "disjoint (parallel composition)",
    "stratified-disjoint": "disjoint within classes (parallel composition)",
}
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-12, 50.0  # given to one learner: below is nothing, and nothing is gained beyond


# --- what resampling does to a private learner ----------------------------------------------------


def changed_rows(sampling, *, n_records, sample_size) -> ChangedRows:
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


def assign_evenly(n_records, n_bags, rng) -> np.ndarray:
    """Bag of each of `n_records` row numbers: a random deal into bags whose sizes differ by at most one.

    No data are read, so the bag of a row is public under replace-one (n is).

    >>> np.bincount(assign_evenly(7, 3, np.random.default_rng(0))).tolist()
    [3, 2, 2]
    """
    n_records = check_integer("n_records", n_records, low=1)
    n_bags = check_integer("n_bags", n_bags, low=1, high=n_records)
    return rng.permutation(np.arange(n_records) % n_bags)


def assign_by_rank(y, n_bags, *, blocks=False) -> np.ndarray:
    """Bag of each record by its rank within its class: an exact stratification, which reads the labels.

    Parameters
    ----------
    y : array (n,)
    n_bags : int
    blocks : bool
        Deal the members of a class out in turn (False), or cut them into consecutive blocks (True).

    >>> assign_by_rank([1, 0, 0, 1, 0, 0], 2).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    n_bags = check_integer("n_bags", n_bags, low=1)
    check_boolean("blocks", blocks)
    y = np.asarray(y)
    bags = np.zeros(len(y), dtype=np.int64)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        ranks = np.arange(len(members))
        bags[members] = ranks * n_bags // len(members) if blocks else ranks % n_bags
    return bags


def assign_within_class(y, n_bags, rng, classes=(0, 1)) -> np.ndarray:
    """Bag of each record by its own label: every row draws a bag for either label.

    The draws look at no label, so one flipped label moves one record, from one bag to another; nobody else moves.

    >>> assign_within_class([0, 1, 1], 3, np.random.default_rng(0)).tolist()
    [2, 0, 0]
    """
    n_bags = check_integer("n_bags", n_bags, low=1)
    codes = label_codes(np.asarray(y), np.asarray(classes))
    return rng.integers(n_bags, size=(len(codes), len(classes)))[np.arange(len(codes)), codes]


# --- the budget -----------------------------------------------------------------------------------


def ensemble_guarantee(
    inner: Guarantee,
    *,
    n_estimators,
    n_records,
    sampling="bootstrap",
    sample_size=None,
    composition="basic",
    delta=0.0,
    public_labels=False,
) -> Guarantee:
    """Guarantee of all models of the ensemble together, from that of one learner on its own input.

    Parameters
    ----------
    inner : Guarantee
        Of each learner. Replace-one; add/remove for "stratified-disjoint" with private labels; either for "disjoint".
    n_estimators, n_records, sample_size : int
        m, n and k (n if None; not used by the disjoint samplings).
    sampling : {"bootstrap", "without-replacement", "disjoint", "stratified-disjoint"}
        Disjoint bags: one bag for each record, so one learner's guarantee is everyone's. Stratified: likewise with
        public labels; with private ones a flip leaves one bag and enters another.
    composition : {"basic", "advanced", "optimal", "rdp", "pld"}
        Of overlapping bags.
    delta : float
        Total, in [0, 1). If the learner is not pure, "bootstrap" needs it and spends it on the bags: delta/m on each
        with basic composition, which consumes no delta itself, and delta/(2m) on each with the others.
    public_labels : bool
        Whether the labels are public, for "stratified-disjoint".

    Raises
    ------
    ValueError
        A choice or a number out of range; a relation that the sampling does not cover.

    >>> learner = Guarantee(0.1, 0.0, REPLACE_ONE)
    >>> [round(ensemble_guarantee(learner, n_estimators=5, n_records=9, sampling=s).epsilon, 3) for s in SAMPLINGS[:3]]
    [0.523, 0.5, 0.1]
    """
    n_estimators = check_integer("n_estimators", n_estimators, low=1)
    n_records = check_integer("n_records", n_records, low=1)
    check_choice("sampling", sampling, SAMPLINGS)
    check_choice("composition", composition, COMPOSITION_METHODS)
    delta = check_real("delta", delta, low=0, high=1, inclusive="low")
    check_boolean("public_labels", public_labels)
    if sampling in ("disjoint", "stratified-disjoint"):
        return _disjoint(inner, sampling, public_labels)
    rows = changed_rows(sampling, n_records=n_records, sample_size=n_records if sample_size is None else sample_size)
    spends = sampling == "bootstrap" and not inner.is_pure
    if spends and delta == 0:
        raise ValueError(f"delta must be positive for bootstrap bags of a learner with a delta, got {delta!r}")
    # Basic composition spends delta on the bags alone; the other theorems need some of it for themselves.
    share = delta if composition == "basic" else delta / 2
    bag = rows.amplify(inner, share / n_estimators if spends else None)
    if composition == "basic":
        return compose([bag] * n_estimators)
    return compose([bag] * n_estimators, composition, delta=delta)


def _disjoint(inner: Guarantee, sampling: str, public_labels: bool) -> Guarantee:
    if sampling == "disjoint":
        return replace(inner, assumes=(*inner.assumes, "a record's bag does not depend on other records"))
    if public_labels:
        check_choice("inner.neighbouring", inner.neighbouring, (REPLACE_ONE,))
        return replace(inner, assumes=(*inner.assumes, "labels public: neighbours differ in features only"))
    check_choice("inner.neighbouring", inner.neighbouring, (ADD_REMOVE,))
    # Group privacy for two also covers the flip that stays in its bag.
    return replace(inner.under_replace_one(), assumes=(*inner.assumes, "number of records public"))


@lru_cache(maxsize=1024)
def learner_epsilon(epsilon, *, inner_delta=0.0, relation=REPLACE_ONE, **options) -> float:
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

    def total(inner_epsilon):
        return ensemble_guarantee(Guarantee(inner_epsilon, inner_delta, relation), **options).epsilon

    return largest_budget(total, epsilon, accurate=options.get("composition") not in ("pld", "rdp"))


def largest_budget(total: Callable[[float], float], epsilon, *, accurate=True) -> float:
    """Largest epsilon of one learner, at most 50, whose ensemble's `total` is within `epsilon`; 0 if there is none.

    Parameters
    ----------
    total : callable
        From a learner's epsilon to that of the ensemble; it does not decrease.
    epsilon : float
        Total, > 0.
    accurate : bool
        To a relative 1e-9, or to 1e-4 where `total` is slow.

    >>> round(largest_budget(lambda inner: 5 * inner, 1.0), 6)
    0.2
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")

    def fits(inner_epsilon):
        return inner_epsilon < _LEAST_EPSILON or total(inner_epsilon) <= epsilon * (1 + 1e-12)

    high = min(_LARGEST_EPSILON, 4 * epsilon)
    while high < _LARGEST_EPSILON and fits(high):
        high = min(4 * high, _LARGEST_EPSILON)
    found = largest(fits, 0.0, high, relative=1e-9 if accurate else 1e-4)
    return found if found >= _LEAST_EPSILON else 0.0


# --- the estimator --------------------------------------------------------------------------------


class PrivateBaggingClassifier(PrivateMixin, ClassifierMixin, BaseEstimator):
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
    sampling : {"bootstrap", "without-replacement", "disjoint", "stratified-disjoint"}
        With replacement; a new sample for each learner; a random deal of the rows; a deal within the classes.
    sample_size : int, optional
        k of the first two, n by default.
    voting : {"hard", "soft"}
        Share of the learners that vote for a class, or their mean probability.
    composition : {"basic", "advanced", "optimal", "rdp", "pld"}
        For overlapping bags; all but "basic" need `delta` > 0.
    public_labels : bool
        For "stratified-disjoint". Public labels allow an exact stratification by rank, and every class must then have
        a record for each bag. With private labels every row draws a bag for either label (`assign_within_class`):
        sound with an add/remove learner at half the budget, but class counts in the bags are then as random as in
        "disjoint".
    classes : sequence of two labels
        Public.
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, or `ADD_REMOVE` ("disjoint" only, where every record then draws its bag).
    n_records : int, optional
        Public number of records that add/remove learners divide by; by default the number of rows, which only
        replace-one keeps public. Where bag sizes are private, every bag also holds two made-up records, the origin
        once with each label, so that none is empty.
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
        leaves nothing to a learner; a label outside `classes`; with `public_labels` and "stratified-disjoint", a class
        with fewer records than there are bags.

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

    def __init__(
        self,
        estimator=None,
        n_estimators=10,
        epsilon=1.0,
        delta=0.0,
        sampling="without-replacement",
        sample_size=None,
        voting="hard",
        composition="basic",
        public_labels=False,
        classes=(0, 1),
        neighbouring=REPLACE_ONE,
        n_records=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.epsilon = epsilon
        self.delta = delta
        self.sampling = sampling
        self.sample_size = sample_size
        self.voting = voting
        self.composition = composition
        self.public_labels = public_labels
        self.classes = classes
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X, y):
        """Fit to X (n, d) and labels y (n,); returns self."""
        self._check_parameters()
        may_be_empty = self.neighbouring == ADD_REMOVE
        X, y = validate_records(self, X, y, dtype=np.float64, ensure_min_samples=0 if may_be_empty else 1)
        self._check_sizes(len(X))
        self.classes_ = np.unique(self.classes)
        self._check_labels(y)
        ledger = Ledger((X, y), self.neighbouring, self._noise_generator(X, y))
        self._learn(ledger, y if self._stratifies_by_public_labels else None)
        return self

    def _learn(self, ledger, labels):
        """Set what is fitted, from one fit of all learners; `labels` (n,) where they are public and decide on bags."""
        rng, replaced = ledger.rng, ledger.neighbouring == REPLACE_ONE
        n = ledger.n_records() if replaced else self.n_records
        # Where private labels or the number of records decide who is in which bag, the query does.
        bags = self._public_bags(n, labels, rng) if self._learner_relation == REPLACE_ONE else None
        # Of the smallest and the largest bag; else what a bag without records holds.
        sizes = [len(self.classes_)] if bags is None else sorted({*map(len, bags)})
        planned = self._planned(n, sorted({sizes[0], sizes[-1]}))

        def fit_all(records):
            X, y = records
            if bags is not None:
                return [self._fitted_learner(n, rng, X[rows], y[rows]) for rows in bags]
            if replaced:
                dealt = assign_within_class(y, self.n_estimators, rng, self.classes_)
            else:
                dealt = rng.integers(self.n_estimators, size=len(X))  # each record's own draw
            parts = [with_origin(X[dealt == bag], y[dealt == bag], self.classes_) for bag in range(self.n_estimators)]
            return [self._fitted_learner(n, rng, *part) for part in parts]

        self.estimators_ = ledger.fitted(fit_all, planned)
        self.guarantee_ = ledger.guarantee(planned.epsilon, planned.delta, source=planned.source)

    def predict_proba(self, X):
        """Share of the votes, or mean probabilities, (n, 2), columns as in `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.voting == "soft":
            return np.mean([learner.predict_proba(X) for learner in self.estimators_], axis=0)
        share = np.mean([learner.predict(X) == self.classes_[1] for learner in self.estimators_], axis=0)
        return np.column_stack([1 - share, share])

    def predict(self, X):
        """Labels (n,): the second class with more than half of the votes (or of the mean probability)."""
        share = self.predict_proba(X)[:, 1]
        return self.classes_[(share > 0.5).astype(int)]

    def _check_parameters(self):
        check_random_state(self.random_state)
        check_learner(self.estimator, "epsilon")
        check_integer("n_estimators", self.n_estimators, low=1)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_choice("voting", self.voting, ("hard", "soft"))
        check_choice("composition", self.composition, COMPOSITION_METHODS)
        check_boolean("public_labels", self.public_labels)
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        if self.sample_size is not None:
            check_integer("sample_size", self.sample_size, low=1)
        if self.n_records is not None:
            check_integer("n_records", self.n_records, low=1)
        check_classes(self.classes, 2)
        if self.composition != "basic" and not self._is_disjoint and self.delta == 0:
            raise ValueError(f"delta must be positive for composition {self.composition!r}, got {self.delta!r}")
        if self.neighbouring == ADD_REMOVE and (self.sampling != "disjoint" or self.n_records is None):
            raise ValueError(
                "neighbouring must be replace-one, unless sampling is 'disjoint' and n_records is given, "
                "got add/remove-one"
            )

    def _check_sizes(self, n_rows):
        if self.sampling == "without-replacement" and self.sample_size is not None and self.sample_size > n_rows:
            raise ValueError(f"sample_size must be at most the number of records, {n_rows}, got {self.sample_size}")
        # Under add/remove the number of rows is private, and some bags may well be empty.
        if self._is_disjoint and self.neighbouring == REPLACE_ONE and self.n_estimators > n_rows:
            raise ValueError(f"n_estimators must be at most the number of records, {n_rows}, got {self.n_estimators}")

    def _check_labels(self, y):
        label_codes(y, self.classes_)
        if self._stratifies_by_public_labels:
            # Public labels may be looked at; the other samplings stay silent about an absent class (Notes).
            fewest = min(int(np.sum(y == label)) for label in self.classes_)
            if fewest < self.n_estimators:
                raise ValueError(
                    f"n_estimators must be at most the number of records of each class, {fewest}, for public labels, "
                    f"got {self.n_estimators}"
                )

    @property
    def _is_disjoint(self) -> bool:
        return self.sampling in ("disjoint", "stratified-disjoint")

    @property
    def _stratifies_by_public_labels(self) -> bool:
        return self.sampling == "stratified-disjoint" and self.public_labels

    @property
    def _learner_relation(self):
        private_strata = self.sampling == "stratified-disjoint" and not self.public_labels
        return ADD_REMOVE if private_strata else self.neighbouring

    def _planned(self, n_records, sizes) -> Guarantee:
        """The ensemble's guarantee, and in `learner_epsilon_` the budget that gives it."""
        options = {
            "n_estimators": self.n_estimators,
            "n_records": n_records,
            "sampling": self.sampling,
            "sample_size": self.sample_size,
            "composition": self.composition,
            "delta": self.delta,
            "public_labels": self.public_labels,
        }
        probe = self._stated(self.epsilon, n_records, sizes)
        self.learner_epsilon_ = learner_epsilon(
            self.epsilon, inner_delta=probe.delta, relation=probe.neighbouring, **options
        )
        if self.learner_epsilon_ < 1e-9:
            raise ValueError(f"epsilon must leave a budget to each learner, got {self.epsilon!r}")
        self.learner_guarantee_ = self._stated(self.learner_epsilon_, n_records, sizes)
        guarantee = ensemble_guarantee(self.learner_guarantee_, **options)
        if guarantee.epsilon > self.epsilon * (1 + 1e-6) or guarantee.delta > self.delta * (1 + 1e-9):
            raise ValueError(
                f"estimator must keep the total within ({self.epsilon:g}, {self.delta:g})-DP, got {guarantee}"
            )
        source = f"{self.n_estimators} learners, {_SOURCES[self.sampling]}; {guarantee.source}"
        # The total budget is what is promised; bisection stops a little below it, rounding a little above.
        return replace(guarantee, epsilon=max(float(self.epsilon), guarantee.epsilon), event=None, source=source)

    def _stated(self, epsilon, n_records, sizes) -> Guarantee:
        """What learners with this budget guarantee for made-up bags of all `sizes`."""

        def learner():
            return self._learner(n_records, min(epsilon, _LARGEST_EPSILON), None)

        stated = [planned_guarantee(learner, size, self.n_features_in_, self.classes_) for size in sizes]
        for guarantee in stated:
            if guarantee.neighbouring != self._learner_relation:
                raise ValueError(
                    f"estimator must be private under {RELATION_NAMES[self._learner_relation]} for sampling "
                    f"{self.sampling!r}, got {RELATION_NAMES[guarantee.neighbouring]}"
                )
        worst = max(stated, key=lambda guarantee: guarantee.epsilon)
        return replace(worst, delta=max(guarantee.delta for guarantee in stated))

    def _learner(self, n_records, epsilon, random_state):
        values = {"epsilon": epsilon, "classes": tuple(self.classes), "random_state": random_state}
        if self._learner_relation == ADD_REMOVE:
            total = n_records if self.n_records is None else self.n_records
            values["n_records"] = max(round(total / self.n_estimators), 1)
        return new_learner(self.estimator, **values)

    def _fitted_learner(self, n_records, rng, X, y):
        """A learner fitted to one bag, with noise of its own."""
        learner = self._learner(n_records, self.learner_epsilon_, child_state(self.random_state, rng))
        return fit_learner(learner, X, y)

    def _public_bags(self, n_records, labels, rng) -> list[np.ndarray]:
        """Row numbers of each bag, from the number of records and, for strata, their public labels."""
        m = self.n_estimators
        if not self._is_disjoint:
            size = n_records if self.sample_size is None else self.sample_size
            return [rng.choice(n_records, size, replace=self.sampling == "bootstrap") for _ in range(m)]
        if labels is None:
            bags = assign_evenly(n_records, m, rng)
        else:
            order = rng.permutation(n_records)
            bags = np.empty(n_records, dtype=np.int64)
            bags[order] = assign_by_rank(labels[order], m)
        return [np.flatnonzero(bags == bag) for bag in range(m)]
