"""What oversampling does to small data sets: all neighbours of a data set, and the distance of what they become.

No theorem is used, so that theorems can be held against the results; the size of the data is the limit.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from helpers.checks import check_choice
from helpers.privacy import REPLACE_ONE
from helpers.resampling.oversampling import NewRecords, copies_per_record


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
