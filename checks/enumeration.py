"""What oversampling does to small data sets: all neighbours of a data set, and the distance of what they become.

No theorem is used, so that theorems can be held against the results; the size of the data is the limit.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from helpers.privacy import REPLACE_ONE, NeighboringRelation
from helpers.resampling.oversampling import NewRecords, copies_per_record

Record = tuple[int, int]  # label, and an identity of the values


def substitution_distance(a: Iterable[Hashable], b: Iterable[Hashable]) -> int:
    """Fewest records to substitute to turn one multiset of rows into another of the same size.

    Raises
    ------
    ValueError
        The sizes differ.

    >>> substitution_distance("aab", "abc")
    1
    """
    before, after = Counter(a), Counter(b)
    if before.total() != after.total():
        raise ValueError(f"the two data sets must have the same size, got {before.total()} and {after.total()}")
    return (before - after).total()


def insertion_deletion_distance(a: Iterable[Hashable], b: Iterable[Hashable]) -> int:
    """Fewest insertions and deletions to turn one multiset of rows into another.

    >>> insertion_deletion_distance("aab", "bc")
    3
    """
    before, after = Counter(a), Counter(b)
    return (before - after).total() + (after - before).total()


def neighbours(
    records: Sequence[Record], neighbouring: NeighboringRelation, classes: Sequence[int] = (0, 1)
) -> Iterator[list[Record]]:
    """All neighbours of a data set of (label, id), with ids 0, ..., n - 1, up to renaming of records.

    Replace-one puts a new record (id n) of any class in any place; add/remove deletes any record, or inserts a
    new one of any class in any place.

    >>> [[label for label, _ in there] for there in neighbours([(0, 0), (1, 1)], REPLACE_ONE)]
    [[0, 1], [1, 1], [0, 0], [0, 1]]
    """
    n, replaced = len(records), int(neighbouring == REPLACE_ONE)
    if not replaced:
        yield from ([*records[:place], *records[place + 1 :]] for place in range(n))
    for place, label in itertools.product(range(n + 1 - replaced), classes):
        yield [*records[:place], (label, n), *records[place + replaced :]]


def worst_case(
    labels: ArrayLike,
    new_records: NewRecords,
    *,
    neighbouring: NeighboringRelation = REPLACE_ONE,
    distance: Callable[[list[int], list[int]], int] = substitution_distance,
    extras: str = "nested",
    classes: Sequence[int] = (0, 1),
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

    >>> from helpers.resampling.oversampling import fixed_total, substitution_bound
    >>> worst_case([0, 1, 1, 1], fixed_total(4)), substitution_bound(4, 3)
    (3, 3)
    >>> worst_case([0, 1, 1, 1, 1], fixed_total(2), extras="independent"), substitution_bound(2, 4)
    (3, 2)
    """
    records = [(label, place) for place, label in enumerate(np.asarray(labels).tolist())]
    here = _oversampled(records, new_records) or []
    worst = 0
    for neighbour in neighbours(records, neighbouring, classes):
        ordered = {"nested": neighbour, "independent": neighbour[::-1]}[extras]
        if (rows := _oversampled(ordered, new_records)) is not None:
            worst = max(worst, distance(here, rows))
    return worst


def _oversampled(records, new_records) -> list[int] | None:
    """Ids of all rows afterwards; None where an oversampled class has no records."""
    labels, ids = np.array(records, dtype=int).reshape(-1, 2).T
    new = new_records(labels)
    if not np.isin([label for label, n_new in new.items() if n_new], labels).all():
        return None
    return np.repeat(ids, 1 + copies_per_record(labels, new)).tolist()
