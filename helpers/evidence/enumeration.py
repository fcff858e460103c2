"""What resampling does to small data sets, by going through everything that can happen.

Oversampling: all neighbours of a data set and the distance of what they become. Bagging: the exact law of the bags, the
worst learner of all by linear programming, and the bags that one flipped label changes. No theorem is used, so that
theorems can be held against the results; the size of the data is the limit.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from helpers.checks import check_boolean, check_choice, check_integer, check_real
from helpers.privacy import REPLACE_ONE
from helpers.resampling.oversampling import NewRecords, copies_per_record

# --- oversampling ---------------------------------------------------------------------------------


def substitution_distance(a: Iterable[Hashable], b: Iterable[Hashable]) -> int:
    """Fewest records to substitute to turn one multiset of rows into another of the same size.

    Raises
    ------
    ValueError
        The sizes differ.

    >>> substitution_distance("aab", "abc")
    1
    """
    a, b = Counter(a), Counter(b)
    if a.total() != b.total():
        raise ValueError(f"the two data sets must have the same size, got {a.total()} and {b.total()}")
    return (a - b).total()


def insertion_deletion_distance(a: Iterable[Hashable], b: Iterable[Hashable]) -> int:
    """Fewest insertions and deletions to turn one multiset of rows into another.

    >>> insertion_deletion_distance("aab", "bc")
    3
    """
    a, b = Counter(a), Counter(b)
    return (a - b).total() + (b - a).total()


class Records(NamedTuple):
    """A data set reduced to what oversampling sees: labels (n,), and a distinct identity for each record's values."""

    labels: np.ndarray
    ids: np.ndarray


def neighbours(labels, neighbouring, classes=(0, 1)) -> Iterator[Records]:
    """All neighbours of the data set with these labels and ids 0, ..., n - 1, up to renaming of records.

    Replace-one puts a new record (id n) of any class in any place; add/remove deletes any record, or inserts a
    new one of any class in any place.

    >>> [r.labels.tolist() for r in neighbours([0, 1], REPLACE_ONE)]
    [[0, 1], [1, 1], [0, 0], [0, 1]]
    """
    labels = np.asarray(labels)
    n = len(labels)
    ids = np.arange(n)
    if neighbouring == REPLACE_ONE:
        for place in range(n):
            for label in classes:
                yield Records(_put(labels, place, label), _put(ids, place, n))
        return
    for place in range(n):
        yield Records(np.delete(labels, place), np.delete(ids, place))
    for place in range(n + 1):
        for label in classes:
            yield Records(np.insert(labels, place, label), np.insert(ids, place, n))


def worst_case(
    labels,
    new_records: NewRecords,
    *,
    neighbouring=REPLACE_ONE,
    distance=substitution_distance,
    extras="nested",
    classes=(0, 1),
) -> int:
    """Largest distance of the oversampled data sets over all neighbours of a small one.

    Neighbours that leave an oversampled class without records are passed over: there is nothing to copy, and the
    sizes differ.

    Parameters
    ----------
    labels : array (n,)
        At least one record in each oversampled class.
    new_records : callable
        `fixed_total(N)`, `balance()`, `public_multiplicity(m)`, or any other function from labels to copies per
        class.
    neighbouring : NeighboringRelation
        Of the raw data.
    distance : callable
        `substitution_distance` or `insertion_deletion_distance`.
    extras : {"nested", "independent"}
        Who gets the N mod n1 extra copies: the first in row order, or any, chosen without regard to the other
        data set. The worst choice for the latter is the first records in one data set and the last in the other.

    Raises
    ------
    ValueError
        Unknown `extras`.

    >>> from helpers.resampling.oversampling import fixed_total, substitution_bound
    >>> worst_case([0, 1, 1, 1], fixed_total(4)), substitution_bound(4, 3)
    (3, 3)
    >>> worst_case([0, 1, 1, 1, 1], fixed_total(2), extras="independent"), substitution_bound(2, 4)
    (3, 2)
    """
    check_choice("extras", extras, ("nested", "independent"))
    labels = np.asarray(labels)
    here = _oversampled(Records(labels, np.arange(len(labels))), new_records)
    worst = 0
    for neighbour in neighbours(labels, neighbouring, classes):
        oversampled_classes = [label for label, n_new in new_records(neighbour.labels).items() if n_new]
        if not np.isin(oversampled_classes, neighbour.labels).all():
            continue
        there = _oversampled(neighbour, new_records, last_first=extras == "independent")
        worst = max(worst, distance(here, there))
    return worst


def _oversampled(records, new_records, *, last_first=False) -> list[int]:
    labels = records.labels[::-1] if last_first else records.labels
    copies = copies_per_record(labels, new_records(labels))
    return np.repeat(records.ids, 1 + (copies[::-1] if last_first else copies)).tolist()


def _put(values, place, value) -> np.ndarray:
    changed = values.copy()
    changed[place] = value
    return changed


# --- bagging --------------------------------------------------------------------------------------


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

    >>> from helpers.meta.bagging import changed_rows
    >>> pure = changed_rows("bootstrap", n_records=3, sample_size=3).log_mean(1.0)
    >>> [worst_learner_delta(e, 1.0, n_records=3, sample_size=3) > 1e-5 for e in (pure - 0.01, pure + 1e-9)]
    [True, False]
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    inner_epsilon = check_real("inner_epsilon", inner_epsilon, low=0)
    inner_delta = check_real("inner_delta", inner_delta, low=0, high=1)
    check_boolean("replacement", replacement)
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


def bags_touched(y, assign: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int]:
    """What one flipped label does at worst: (bags that change, records that come or go in all bags together).

    The changed record counts as another record afterwards (its label differs). All n flips are tried.

    Parameters
    ----------
    y : array (n,) of 0 and 1
    assign : callable
        From labels (n,) to bags (n,).

    >>> from helpers.meta.bagging import assign_by_rank
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
