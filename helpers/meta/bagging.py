"""Bagging with a private learner, and what resampling does to privacy.

`PrivateBaggingClassifier` divides a total budget over the learners of an ensemble, and its guarantee counts every
copy of a record that a bag can hold; the functions below it are the theorems it uses, and exact enumerations that
check them on small data. The learner's own guarantee is taken at its word, and choosing m, k or the penalty privately
is left to the caller.

Neighbours are replace-one, with n public, unless a function says otherwise.
"""

import hashlib
import itertools
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import check_choice, check_integer, check_real
from helpers.privacy import (
    ADD_REMOVE,
    COMPOSITION_METHODS,
    RELATION_NAMES,
    REPLACE_ONE,
    Guarantee,
    PrivacyLeakWarning,
    compose,
)

SAMPLINGS = ("bootstrap", "without-replacement", "disjoint", "stratified-disjoint")

_SOURCES = {
    "bootstrap": "bootstrap (Balle, Barthe and Gaboardi 2018, Theorem 10; pure learners exactly)",
    "without-replacement": "samples without replacement (Balle, Barthe and Gaboardi 2018, Theorem 9)",
    "disjoint": "disjoint (parallel composition)",
    "stratified-disjoint": "disjoint within classes (parallel composition)",
}
_NEGLIGIBLE = 1e-18  # tail probability left out of a sum, and added to the result
_RELATIVE_TOLERANCE = 1e-9  # of a budget found by bisection, on the safe side
_LARGEST_EPSILON = 50.0  # given to one learner; nothing is gained beyond


# --- bagging of learners without privacy ----------------------------------------------------------


def liu_parameters(n_records, n_draws) -> tuple[float, float]:
    """(epsilon, delta) printed for bagging learners that are not private, from the product m k of the two sizes.

    epsilon = m k log((n + 1)/n) and delta = 1 - ((n - 1)/n)^(m k).

    Parameters
    ----------
    n_records : int
        n >= 2.
    n_draws : float
        m k > 0; not an integer only to follow the paper's algebra.

    Source: Liu, Jia and Gong 2020, Theorem 3, as quoted by Rosenblatt et al. 2025, Section 4.1.

    >>> [round(value, 6) for value in liu_parameters(1000, 5)]
    [0.004998, 0.00499]
    """
    n_records = check_integer("n_records", n_records, low=2)
    n_draws = check_real("n_draws", n_draws, low=0, inclusive="neither")
    return n_draws * math.log1p(1 / n_records), -math.expm1(n_draws * math.log1p(-1 / n_records))


def draws_for_delta(n_records, exponent) -> float:
    """The product m k at which the printed delta equals n^-exponent. Below 1 for every exponent > 1.

    Source: Rosenblatt et al. 2025, proof of Proposition 4.

    >>> round(draws_for_delta(1000, 1.0), 6), round(draws_for_delta(1000, 1.5), 4)
    (1.0, 0.0316)
    """
    n_records = check_integer("n_records", n_records, low=2)
    exponent = check_real("exponent", exponent, low=0, inclusive="neither")
    return math.log1p(-(n_records**-exponent)) / math.log1p(-1 / n_records)


def bagging_distribution(
    records: Sequence[Hashable],
    n_estimators,
    sample_size,
    learner: Callable[[tuple], Hashable] = tuple,
) -> dict[tuple, Fraction]:
    """Exact law of the m models that bagging with replacement releases, by going through all n^(m k) outcomes.

    Parameters
    ----------
    records : sequence of hashable
    n_estimators, sample_size : int
        m and k.
    learner : callable
        Deterministic, from a bag (its draws, sorted) to a model. The default releases the bag itself, of which every
        other learner, randomised or not, is a post-processing.

    >>> bagging_distribution("ab", 1, 1)
    {(('a',),): Fraction(1, 2), (('b',),): Fraction(1, 2)}
    """
    n_estimators = check_integer("n_estimators", n_estimators, low=1)
    sample_size = check_integer("sample_size", sample_size, low=1)
    weight = Fraction(1, len(records) ** sample_size)
    bag = Counter()
    for draws in itertools.product(records, repeat=sample_size):
        bag[learner(tuple(sorted(draws)))] += weight
    law = defaultdict(Fraction)
    for models in itertools.product(bag.items(), repeat=n_estimators):
        law[tuple(model for model, _ in models)] += math.prod(weight for _, weight in models)
    return dict(law)


def hockey_stick(law: Mapping, other: Mapping, factor) -> Fraction:
    """Sum of the positive parts of law - factor * other: the smallest delta for e^epsilon = `factor`, exactly.

    >>> hockey_stick({"a": Fraction(3, 4), "b": Fraction(1, 4)}, {"b": Fraction(1)}, 1)
    Fraction(3, 4)
    """
    return sum((max(p - factor * other.get(outcome, 0), 0) for outcome, p in law.items()), Fraction(0))


# --- what resampling does to a private learner ----------------------------------------------------


def bootstrap_epsilon(inner_epsilon, *, n_records, sample_size) -> float:
    """Pure epsilon of an `inner_epsilon`-DP learner on `sample_size` draws with replacement, exactly.

    epsilon = k log(1 + (e^eps0 - 1)/n) = log E e^(C eps0), where C ~ Bin(k, 1/n) counts the copies of one record: a
    mean over the draws. Row by row: a drawn row is the changed record with probability p = 1/n. Given the other rows,
    let c be the mean of the learner's event probability over the other records, f and f' its values at the record
    and its replacement. Both c and f' are at least f e^-eps0, so that ((1 - p) c + p f)/((1 - p) c + p f') is at most
    1 + p (e^eps0 - 1); k rows multiply. A learner that answers "yes" with probability proportional to e^(C eps0)
    attains it. For k = n it lies between eps0 and e^eps0 - 1: above the eps0 of the learner.

    Parameters
    ----------
    inner_epsilon : float
        eps0 >= 0 of the learner, under replace-one.
    n_records, sample_size : int
        n and k, public.

    Raises
    ------
    ValueError
        A number out of range.

    >>> round(bootstrap_epsilon(1.0, n_records=1000, sample_size=1000), 4)
    1.7168
    """
    inner_epsilon = check_real("inner_epsilon", inner_epsilon, low=0)
    n_records = check_integer("n_records", n_records, low=1)
    sample_size = check_integer("sample_size", sample_size, low=1)
    return sample_size * math.log1p(math.expm1(inner_epsilon) / n_records)


def bootstrap_delta(epsilon, inner: Guarantee, *, n_records, sample_size) -> float:
    """delta at `epsilon` of a private learner on `sample_size` draws with replacement.

    With eta = 1 - (1 - 1/n)^k, the probability that the changed record is drawn at all, and epsilon = log(1 + eta
    (e^e - 1)): delta <= sum_{c >= 1} Bin(c; k, 1/n) delta_c(e), where delta_c is what the learner promises to groups
    of c. Why: given that the record is drawn, the sample is turned into one drawn from the other data set, or into
    one without the record, by substituting its c copies, and the hockey-stick divergence is jointly convex
    ("advanced": the undrawn part is common to both).

    Parameters
    ----------
    epsilon : float
        Of the bag, >= 0.
    inner : Guarantee
        The learner's, under replace-one.

    Returns
    -------
    float
        In [0, 1]; 0 for a pure learner from `bootstrap_epsilon` on.

    Raises
    ------
    ValueError
        `inner` is for another relation; a number out of range.

    Source: Balle, Barthe and Gaboardi 2018, Theorem 10 (derived again, checked by linear programming).

    >>> round(bootstrap_delta(0.09, Guarantee(0.1, 0.0, REPLACE_ONE), n_records=50, sample_size=50), 5)
    0.01398
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    n_records = check_integer("n_records", n_records, low=1)
    sample_size = check_integer("sample_size", sample_size, low=1)
    check_choice("inner.neighbouring", inner.neighbouring, (REPLACE_ONE,))
    if inner.is_pure and epsilon >= bootstrap_epsilon(inner.epsilon, n_records=n_records, sample_size=sample_size):
        return 0.0
    drawn = -math.expm1(sample_size * math.log1p(-1 / n_records)) if n_records > 1 else 1.0
    of_learner = math.log1p(math.expm1(epsilon) / drawn)
    copies = binom(sample_size, 1 / n_records)
    most = max(int(copies.isf(_NEGLIGIBLE)), 1)
    counts = np.arange(1, most + 1)
    deltas = np.array([inner.group(int(count)).delta_at(of_learner) for count in counts])
    return float(min(1.0, copies.pmf(counts) @ deltas + copies.sf(most)))


def _bootstrap(inner: Guarantee, n_records: int, sample_size: int, delta: float) -> Guarantee:
    """Guarantee of one bag: pure if the learner is, at `delta` otherwise."""
    sizes = {"n_records": n_records, "sample_size": sample_size}
    if inner.is_pure:
        return replace(inner, epsilon=bootstrap_epsilon(inner.epsilon, **sizes), event=None)
    low, high = 0.0, _LARGEST_EPSILON
    if bootstrap_delta(high, inner, **sizes) > delta:
        return replace(inner, epsilon=math.inf, delta=delta, event=None)
    while high - low > _RELATIVE_TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if bootstrap_delta(middle, inner, **sizes) <= delta else (middle, high)
    return replace(inner, epsilon=high, delta=delta, event=None)


def without_replacement(inner: Guarantee, *, n_records, sample_size) -> Guarantee:
    """Guarantee of a private learner on `sample_size` records drawn without replacement.

    epsilon' = log(1 + q (e^epsilon - 1)) and delta' = q delta with q = k/n, for replace-one and a secret sample.

    Parameters
    ----------
    inner : Guarantee
        The learner's, under replace-one.
    n_records, sample_size : int
        n and k <= n, public.

    Raises
    ------
    ValueError
        `inner` is for another relation; a number out of range.

    Source: Balle, Barthe and Gaboardi 2018, Theorem 9 (checked by linear programming).

    >>> round(without_replacement(Guarantee(1.0, 0.0, REPLACE_ONE), n_records=10, sample_size=1).epsilon, 4)
    0.1586
    """
    n_records = check_integer("n_records", n_records, low=1)
    sample_size = check_integer("sample_size", sample_size, low=1, high=n_records)
    check_choice("inner.neighbouring", inner.neighbouring, (REPLACE_ONE,))
    rate = sample_size / n_records
    epsilon = inner.epsilon if rate == 1 else math.log1p(rate * math.expm1(inner.epsilon))
    return replace(inner, epsilon=epsilon, delta=rate * inner.delta, event=None)


def worst_learner_delta(epsilon, inner_epsilon, *, n_records, sample_size, inner_delta=0.0, replacement=True) -> float:
    """Largest delta at `epsilon` that any (inner_epsilon, inner_delta)-DP learner has on one bag: a linear programme.

    The unknowns are the probabilities of one event for all bags over the n + 1 records of two replace-one neighbours
    (multisets: a learner may be averaged over the order of its rows). The bag's law is enumerated, so no theorem on
    subsampling is used. For small n and k only: binom(n + k, k) unknowns.

    Parameters
    ----------
    epsilon : float
        Of the bag, >= 0.
    inner_epsilon, inner_delta : float
        The learner's, under replace-one.
    n_records, sample_size : int
        n and k.
    replacement : bool
        Whether the bag is drawn with replacement.

    Raises
    ------
    ValueError
        A number out of range.

    >>> pure = bootstrap_epsilon(1.0, n_records=3, sample_size=3)
    >>> [worst_learner_delta(e, 1.0, n_records=3, sample_size=3) > 1e-5 for e in (pure - 0.01, pure + 1e-9)]
    [True, False]
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    inner_epsilon = check_real("inner_epsilon", inner_epsilon, low=0)
    inner_delta = check_real("inner_delta", inner_delta, low=0, high=1)
    n_records = check_integer("n_records", n_records, low=1)
    sample_size = check_integer("sample_size", sample_size, low=1, high=None if replacement else n_records)
    here, there = (_bag_law(data, sample_size, replacement) for data in (range(n_records), range(1, n_records + 1)))
    bags = sorted(set(itertools.combinations_with_replacement(range(n_records + 1), sample_size)))
    place = {bag: index for index, bag in enumerate(bags)}
    objective = np.array([math.exp(epsilon) * there.get(bag, 0.0) - here.get(bag, 0.0) for bag in bags])
    rows, bounds = [], []
    for bag in bags:
        for other in _replacements(bag, n_records + 1):
            # f(bag) <= e^eps f(other) + delta for the event, and the same for its complement, 1 - f.
            for sign in (1, -1):
                row = np.zeros(len(bags))
                row[place[bag]] += sign
                row[place[other]] -= sign * math.exp(inner_epsilon)
                rows.append(row)
                bounds.append(inner_delta if sign == 1 else inner_delta + math.expm1(inner_epsilon))
    solution = linprog(objective, A_ub=np.array(rows), b_ub=bounds, bounds=(0, 1), method="highs")
    return float(-solution.fun)


def _bag_law(records: Iterable[int], sample_size: int, replacement: bool) -> dict[tuple, float]:
    records = list(records)
    if not replacement:
        subsets = list(itertools.combinations(records, sample_size))
        return dict.fromkeys((tuple(sorted(subset)) for subset in subsets), 1 / len(subsets))
    orders = math.factorial(sample_size) / len(records) ** sample_size
    return {
        bag: orders / math.prod(math.factorial(count) for count in Counter(bag).values())
        for bag in itertools.combinations_with_replacement(records, sample_size)
    }


def _replacements(bag: tuple, n_values: int) -> set[tuple]:
    changed = {
        tuple(sorted((*bag[:place], value, *bag[place + 1 :])))
        for place in range(len(bag))
        for value in range(n_values)
    }
    return changed - {bag}


# --- who is in which bag --------------------------------------------------------------------------


def assign_by_id(ids: Iterable[Hashable], n_bags, salt) -> np.ndarray:
    """Bag (0, ..., n_bags - 1) of each record, from a hash of its own identifier and a public salt.

    The bag of a record depends on no other record: inserting or removing one moves no one else. Bag sizes vary.

    Parameters
    ----------
    ids : iterable of n identifiers
        Compared by their text.
    n_bags : int
    salt : int
        Public; another salt is another assignment.

    Returns
    -------
    ndarray (n,) of int64

    >>> assign_by_id(["ann", "bob", "eve"], 3, salt=0).tolist()
    [0, 0, 2]
    """
    n_bags = check_integer("n_bags", n_bags, low=1)
    digests = (hashlib.blake2b(f"{salt}:{identifier}".encode(), digest_size=8).digest() for identifier in ids)
    return np.array([int.from_bytes(digest, "big") % n_bags for digest in digests], dtype=np.int64)


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
    y = np.asarray(y)
    bags = np.zeros(len(y), dtype=np.int64)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        ranks = np.arange(len(members))
        bags[members] = ranks * n_bags // len(members) if blocks else ranks % n_bags
    return bags


def assign_within_class(y, ids, n_bags, salt, classes=(0, 1)) -> np.ndarray:
    """Bag of each record from its own identifier and its own label: a hash for each class.

    One flipped label moves one record, from one bag to another; nobody else moves.

    >>> assign_within_class([0, 1, 1], ["ann", "bob", "eve"], 3, salt=0).tolist()
    [1, 1, 2]
    """
    ids = list(ids)
    bags = np.zeros(len(ids), dtype=np.int64)
    for place, label in enumerate(classes):
        hashed = assign_by_id(ids, n_bags, f"{salt}/{place}")
        bags = np.where(np.asarray(y) == label, hashed, bags)
    return bags


def bags_touched(y, assign: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int]:
    """What one flipped label does at worst: (bags that change, records that come or go in all bags together).

    The changed record counts as another record afterwards (its label differs). All n flips are tried.

    Parameters
    ----------
    y : array (n,) of 0 and 1
    assign : callable
        From labels (n,) to bags (n,).

    >>> bags_touched([0, 0, 0, 1, 1, 1], lambda y: assign_by_rank(y, 3, blocks=True))
    (3, 10)
    """
    y = np.asarray(y)
    before = _contents(y, assign(y))
    bags = distance = 0
    for place in range(len(y)):
        flipped = y.copy()
        flipped[place] = 1 - flipped[place]
        after = _contents(flipped, assign(flipped))
        changes = [len(before[bag] ^ after[bag]) for bag in before.keys() | after.keys()]
        bags, distance = max(bags, sum(map(bool, changes))), max(distance, sum(changes))
    return bags, distance


def _contents(y, bags) -> defaultdict[int, set]:
    contents = defaultdict(set)
    for row, (label, bag) in enumerate(zip(y.tolist(), bags.tolist(), strict=True)):
        contents[bag].add((row, label))
    return contents


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
    accounting="sound",
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
        Total, in [0, 1). If the learner is not pure, "bootstrap" spends it on the bags: delta/m on each with basic
        composition, which consumes no delta itself, and delta/(2m) on each with the others.
    accounting : {"sound", "printed"}
        "printed" composes the learners' own parameters, as if no record could be drawn twice. No guarantee.
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
    sample_size = n_records if sample_size is None else sample_size
    check_choice("sampling", sampling, SAMPLINGS)
    check_choice("composition", composition, COMPOSITION_METHODS)
    check_choice("accounting", accounting, ("sound", "printed"))
    delta = check_real("delta", delta, low=0, high=1, inclusive="low")
    if sampling in ("disjoint", "stratified-disjoint"):
        return _disjoint(inner, sampling, public_labels)
    check_choice("inner.neighbouring", inner.neighbouring, (REPLACE_ONE,))
    if accounting == "printed":
        bag = replace(inner, event=None)
    elif sampling == "bootstrap":
        # Basic composition spends delta on the bags alone; the other theorems need some of it for themselves.
        share = delta if composition == "basic" else delta / 2
        bag = _bootstrap(inner, n_records, sample_size, share / n_estimators)
    else:
        bag = without_replacement(inner, n_records=n_records, sample_size=sample_size)
    bag = replace(bag, assumes=(*inner.assumes, "secret samples"))
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
        0 if no positive budget will do.

    Raises
    ------
    ValueError
        As `ensemble_guarantee`; `epsilon` not positive.

    >>> printed = dict(n_estimators=10, n_records=1000, delta=1e-6, accounting="printed")
    >>> [round(learner_epsilon(0.5, composition=c, **printed), 4) for c in ("basic", "advanced", "optimal")]
    [0.05, 0.0295, 0.0501]
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")

    def fits(inner_epsilon):
        inner = Guarantee(inner_epsilon, inner_delta, relation)
        return ensemble_guarantee(inner, **options).epsilon <= epsilon * (1 + 1e-12)

    if fits(_LARGEST_EPSILON):
        return _LARGEST_EPSILON
    tolerance = 1e-4 if options.get("composition") in ("pld", "rdp") else _RELATIVE_TOLERANCE
    low, high = 0.0, min(_LARGEST_EPSILON, 4 * epsilon)
    if fits(high):
        low, high = high, _LARGEST_EPSILON
    while high - low > tolerance * high and high > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# --- the estimator --------------------------------------------------------------------------------


class PrivateBaggingClassifier(ClassifierMixin, BaseEstimator):
    """A vote of private classifiers, each fitted to its own bag, within one total budget.

    The m fitted learners together are (`epsilon`, `delta`)-DP under `neighbouring`; every vote is post-processing.
    Learners get the largest budget that `ensemble_guarantee` allows. Which learner it is, and what it guarantees, is
    found out on made-up records before the private ones are read.

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
    accounting : {"sound", "printed"}
        "printed" (bootstrap only) ignores that a record can be drawn twice, as the paper does.
    public_labels : bool
        For "stratified-disjoint". Public labels allow an exact stratification by rank, and every class must then have
        a record for each bag. With private labels each record's bag is drawn from its own row number and label: sound
        with an add/remove learner at half the budget, but class counts in the bags are then as random as in
        "disjoint".
    classes : sequence of two labels
        Public.
    neighbouring : NeighboringRelation
        `REPLACE_ONE`, or `ADD_REMOVE` ("disjoint" only; `fit` then needs identifiers).
    n_records : int, optional
        Public number of records that add/remove learners divide by; by default the number of rows, which only
        replace-one keeps public. Where bag sizes are private, every bag also holds two made-up records, the origin
        once with each label, so that none is empty.
    random_state : None, int or numpy.random.Generator
        Source of the bags and of the learners' noise.

    Attributes
    ----------
    estimators_ : list of m fitted learners
    learner_guarantee_ : Guarantee
        Of each learner, on its own bag.
    learner_epsilon_ : float
        What each learner was given.
    guarantee_ : helpers.privacy.Guarantee
        Of `estimators_`, with relation and assumptions.
    classes_ : ndarray (2,); n_features_in_ : int

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range; more rows wanted than there are; a learner without a guarantee, or with
        one for another relation; a budget that leaves nothing to a learner; a label outside `classes`; with
        `public_labels` and "stratified-disjoint", a class with fewer records than there are bags.

    Warns
    -----
    PrivacyLeakWarning
        With `accounting="printed"`.

    Notes
    -----
    A bag without a record of one class is no error as long as labels are private: whether `fit` fails is seen by
    everybody, so an error would release something about the labels that no budget pays for. The learner is fitted to
    what there is, and has to cope with one class, as the learners of `helpers.erm` do.

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
        accounting="sound",
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
        self.accounting = accounting
        self.public_labels = public_labels
        self.classes = classes
        self.neighbouring = neighbouring
        self.n_records = n_records
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X, y, ids=None):
        """Fit to X (n, d) and labels y (n,); returns self.

        Parameters
        ----------
        ids : sequence of n identifiers, optional
            A record's own, unique; bags of the disjoint samplings are hashes of them. Needed under add/remove. Under
            replace-one they count as public: a replacement with another identifier would change two bags, and their
            sizes. By default row numbers.
        """
        self._check_parameters(ids)
        X, y = validate_data(self, X, y, dtype=np.float64)
        if ids is not None and len(ids) != len(X):
            raise ValueError(f"ids must have one entry a record, got {len(ids)} for {len(X)} records")
        self._check_sizes(len(X))
        rng = np.random.default_rng(self.random_state)
        # Made-up records first: whatever is wrong with the parameters shows before the labels are read.
        self.guarantee_ = self._planned(len(X), X.shape[1])
        if ids is not None and self.neighbouring == REPLACE_ONE:
            kept = "identifiers public: a replaced record keeps its own"
            self.guarantee_ = replace(self.guarantee_, assumes=(*self.guarantee_.assumes, kept))
        self.classes_ = np.unique(self.classes)
        self._check_labels(y)
        self.estimators_ = [
            self._learner(len(X), np.random.default_rng(rng.integers(2**63))).fit(*self._bag(X[rows], y[rows]))
            for rows in self._bags(y, ids, rng)
        ]
        self._check_learners()
        return self

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
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]

    def _check_parameters(self, ids):
        check_integer("n_estimators", self.n_estimators, low=1)
        check_real("epsilon", self.epsilon, low=0, inclusive="neither")
        check_real("delta", self.delta, low=0, high=1, inclusive="low")
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_choice("voting", self.voting, ("hard", "soft"))
        check_choice("composition", self.composition, COMPOSITION_METHODS)
        check_choice("accounting", self.accounting, ("sound", "printed"))
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        if self.sample_size is not None:
            check_integer("sample_size", self.sample_size, low=1)
        if self.n_records is not None:
            check_integer("n_records", self.n_records, low=1)
        if np.ndim(self.classes) != 1 or len(self.classes) != 2 or len(np.unique(self.classes)) != 2:
            raise ValueError(f"classes must be two different labels, got {self.classes!r}")
        if self.accounting == "printed" and self.sampling != "bootstrap":
            raise ValueError(f"accounting must be 'sound' for sampling {self.sampling!r}, got 'printed'")
        if self.composition != "basic" and not self._is_disjoint and self.delta == 0:
            raise ValueError(f"delta must be positive for composition {self.composition!r}, got {self.delta!r}")
        if self.neighbouring == ADD_REMOVE and (self.sampling != "disjoint" or ids is None or self.n_records is None):
            raise ValueError(
                "neighbouring must be replace-one, unless sampling is 'disjoint' and ids and n_records are given, "
                "got add/remove-one"
            )

    def _check_sizes(self, n_rows):
        if self.sampling == "without-replacement" and self.sample_size is not None and self.sample_size > n_rows:
            raise ValueError(f"sample_size must be at most the number of records, {n_rows}, got {self.sample_size}")
        # Under add/remove the number of rows is private, and some bags may well be empty.
        if self._is_disjoint and self.neighbouring == REPLACE_ONE and self.n_estimators > n_rows:
            raise ValueError(f"n_estimators must be at most the number of records, {n_rows}, got {self.n_estimators}")

    def _check_labels(self, y):
        check_classification_targets(y)
        if type_of_target(y) == "multiclass":
            raise ValueError("Only binary classification is supported. The type of the target is multiclass.")
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y must hold labels among classes={tuple(self.classes_.tolist())!r}, found others")
        if self.sampling == "stratified-disjoint" and self.public_labels:
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
    def _learner_relation(self):
        private_strata = self.sampling == "stratified-disjoint" and not self.public_labels
        return ADD_REMOVE if private_strata else self.neighbouring

    def _planned(self, n_rows, n_features) -> Guarantee:
        """The ensemble's guarantee, and in `learner_epsilon_` the budget that gives it."""
        probe = self._probe(self.epsilon, n_rows, n_features)
        options = {
            "n_estimators": self.n_estimators,
            "n_records": n_rows,
            "sampling": self.sampling,
            "sample_size": self.sample_size,
            "composition": self.composition,
            "delta": self.delta,
            "accounting": self.accounting,
            "public_labels": self.public_labels,
        }
        self.learner_epsilon_ = learner_epsilon(
            self.epsilon, inner_delta=probe.delta, relation=probe.neighbouring, **options
        )
        if self.learner_epsilon_ < 1e-9:
            raise ValueError(f"epsilon must leave a budget to each learner, got {self.epsilon!r}")
        self.learner_guarantee_ = self._probe(self.learner_epsilon_, n_rows, n_features)
        guarantee = ensemble_guarantee(self.learner_guarantee_, **options)
        if guarantee.epsilon > self.epsilon * (1 + 1e-6) or guarantee.delta > self.delta * (1 + 1e-9):
            raise ValueError(
                f"estimator must keep the total within ({self.epsilon:g}, {self.delta:g})-DP, got {guarantee}"
            )
        source = f"{self.n_estimators} learners, {_SOURCES[self.sampling]}; {guarantee.source}"
        if self.accounting == "printed":
            warnings.warn(
                "accounting 'printed' takes each learner as private in the data, but it is in its bag only, which can "
                "hold a record many times",
                PrivacyLeakWarning,
                stacklevel=3,
            )
            guarantee = replace(guarantee, assumes=(*guarantee.assumes, "no record drawn twice (false)"))
        # The total budget is what is promised; bisection stops a little below it, rounding a little above.
        return replace(guarantee, epsilon=max(float(self.epsilon), guarantee.epsilon), event=None, source=source)

    def _check_learners(self):
        """Refuse learners whose guarantee is not the one that was planned with: it must not depend on their records."""
        planned = self.learner_guarantee_
        for learner in self.estimators_:
            found = learner.guarantee_
            if found.epsilon > planned.epsilon * (1 + 1e-9) or found.delta > planned.delta * (1 + 1e-9):
                del self.estimators_
                raise ValueError(
                    f"estimator must have the guarantee {planned} whatever its records are, got {found} from a bag"
                )

    def _probe(self, epsilon, n_rows, n_features) -> Guarantee:
        """What the learner guarantees, from a fit to made-up records."""
        learner = self._learner(n_rows, np.random.default_rng(0), epsilon)
        learner.fit(np.zeros((2, n_features)), np.asarray(self.classes))
        guarantee = getattr(learner, "guarantee_", None)
        if not isinstance(guarantee, Guarantee):
            raise ValueError(f"estimator must have a guarantee_ after fitting, got {self.estimator!r}")
        if guarantee.neighbouring != self._learner_relation:
            raise ValueError(
                f"estimator must be private under {RELATION_NAMES[self._learner_relation]} for sampling "
                f"{self.sampling!r}, got {RELATION_NAMES[guarantee.neighbouring]}"
            )
        return guarantee

    def _learner(self, n_rows, rng, epsilon=None):
        if not hasattr(self.estimator, "get_params") or "epsilon" not in self.estimator.get_params(deep=False):
            raise ValueError(f"estimator must be a classifier with a parameter 'epsilon', got {self.estimator!r}")
        learner = clone(self.estimator)
        known = learner.get_params(deep=False)
        values = {"epsilon": self.learner_epsilon_ if epsilon is None else epsilon, "random_state": rng}
        values["classes"] = tuple(self.classes)
        if self._learner_relation == ADD_REMOVE:
            total = n_rows if self.n_records is None else self.n_records
            values["n_records"] = max(round(total / self.n_estimators), 1)
        return learner.set_params(**{name: value for name, value in values.items() if name in known})

    def _bag(self, X, y):
        if self._learner_relation == REPLACE_ONE:
            if not len(X):
                raise ValueError(f"ids must leave no bag without a record, got an empty one of {self.n_estimators}")
            return X, y
        return np.vstack([X, np.zeros((2, X.shape[1]))]), np.concatenate([y, self.classes_])

    def _bags(self, y, ids, rng) -> list[np.ndarray]:
        """Row numbers of each bag."""
        m, n = self.n_estimators, len(y)
        size = n if self.sample_size is None else self.sample_size
        if not self._is_disjoint:
            return [rng.choice(n, size, replace=self.sampling == "bootstrap") for _ in range(m)]
        if self.sampling == "disjoint":
            salt = rng.integers(2**63)
            bags = assign_evenly(n, m, rng) if ids is None else assign_by_id(ids, m, salt)
        elif self.public_labels:
            order = rng.permutation(n)
            bags = np.empty(n, dtype=np.int64)
            bags[order] = assign_by_rank(y[order], m)
        else:
            bags = assign_within_class(y, range(n) if ids is None else ids, m, rng.integers(2**63), self.classes_)
        return [np.flatnonzero(bags == bag) for bag in range(m)]
