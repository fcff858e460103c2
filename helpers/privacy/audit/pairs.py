"""Pairs of neighbouring public tables on which leaks about rare records show, for `audit_object`."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike

from helpers.privacy.accounting import ADD_REMOVE, REPLACE_ONE
from helpers.validation import check_choice, check_integer, check_real

Records = tuple[Any, Any]
"""X (n, d), or a DataFrame, and labels y (n,)."""


class Pair(NamedTuple):
    """Two tables that differ in one record.

    `told` is the difference in words. `outside`: the record breaks what public schemas usually say, so that a fit may
    refuse it, if the claim assumes that there is none.
    """

    name: str
    told: str
    data: Records
    neighbour: Records
    outside: bool = False


def rare_class_pairs(
    neighbouring: NeighboringRelation, *, n_features: int = 2, low: float = -1.0, high: float = 1.0
) -> list[Pair]:
    """Pairs of tables with labels 0 and 1, in which class 1 is rare.

    A table is a collection of records without an order, as both relations are usually defined, so the two tables of
    the pair "order" are equal. Most rows lie in the middle of the public box, within the ball of half its width. The
    record that changes lies at the end of the first axis where nothing else is said.

    Parameters
    ----------
    neighbouring : NeighboringRelation
        `ADD_REMOVE`: the second table lacks a record of the first. `REPLACE_ONE`: it has another one in its place.
    n_features : int
        At least 1.
    low, high : float
        Public bounds of every feature, low < high. A box far from zero shows where a library takes a width for a bound.

    Raises
    ------
    ValueError
        A parameter out of range.

    >>> [pair.name for pair in rare_class_pairs(REPLACE_ONE)][:3]
    ['first of its class', 'only one of a third class', 'at the bound']
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    n_features = check_integer("n_features", n_features, low=1)
    middle, half = (
        (check_real("low", low) + check_real("high", high, low=low, inclusive="neither")) / 2,
        (high - low) / 2,
    )
    rng = np.random.default_rng(0)
    inside = rng.uniform(-0.5, 0.5, (100, n_features)) / np.sqrt(n_features)
    first = np.eye(n_features)[0]
    labels = (np.arange(100) % 8 == 0).astype(int)  # an eighth is rare
    common = np.zeros(39, int)

    def records(rows: ArrayLike, y: ArrayLike) -> Records:
        return middle + half * np.asarray(rows, dtype=float), np.asarray(y, dtype=int)

    def pair(name, told, y, record, label, instead=-first, other=0, place=None, outside=False, rest=inside):
        """The rows y of the rest, one record with its label among them, and what replace-one has in its place."""
        place = len(y) if place is None else place

        def among(row, label):
            return records(np.insert(rest[: len(y)], place, row, axis=0), np.insert(y, place, label))

        without = records(rest[: len(y)], y) if neighbouring is ADD_REMOVE else among(instead, other)
        return Pair(name, told, among(record, label), without, outside)

    missing = np.where(first > 0, np.nan, 0.0)
    found = [
        pair("first of its class", "the only record of the rare class", common, first, 1),
        pair("only one of a third class", "the only record of a class 2", labels[:39], first, 2, outside=True),
        pair("at the bound", "a rare record at the public bound", labels[:39], first, 1),
        pair("beyond the bound", "a rare record at ten times the public bound", labels[:39], 10 * first, 1),
        pair("missing cell", "a record with a cell that is no number", labels[:39], missing, 1, outside=True),
        pair("twin", "a second record like one that is there", labels[:39], inside[0], 1, inside[1], 0),
        # Sums of zeros, and of one number: the finest bits of small floats tell them apart, where noise has any.
        pair("alone", "the only row that is not zero", labels[:39], first, 1, 0 * first, 0, rest=0 * inside),
        pair("in front", "a rare record before all others", labels[:39], first, 1, place=0),
    ]
    if neighbouring is ADD_REMOVE:
        found.append(pair("one over a batch", "a record more than 100", labels, first, 1))
    else:
        found.append(pair("label", "one label", labels[:39], first, 1, first, 0))
    X, y = records(inside[:40], labels[:40])
    return [*found, Pair("order", "the order of the rows: no record at all", (X, y), (X[::-1].copy(), y[::-1].copy()))]


def schema_pairs(schema: Any, neighbouring: NeighboringRelation) -> list[Pair]:
    """Such pairs for a user's own table: DataFrames of texts as a file of this schema has them, without the label.

    Parameters
    ----------
    schema : helpers.data.schema.Schema
        Public. The last class is the rare one.
    neighbouring : NeighboringRelation
        As in `rare_class_pairs`.

    Raises
    ------
    ValueError
        `neighbouring` is no relation.
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    n, names = 40, schema.class_names
    middle, low, high, beyond, unknown = (_cells(schema, n, kind) for kind in ("inside", "low", "high", "beyond", ""))
    y = np.array([names[-1] if i % 8 == 0 else names[0] for i in range(n)])

    def pair(name, told, record, label, labels=y):
        X = middle.iloc[: n - 1]
        data = pd.concat([X, record.iloc[[0]]], ignore_index=True), np.append(labels[: n - 1], label)
        if neighbouring is ADD_REMOVE:
            return Pair(name, told, data, (X, labels[: n - 1]))
        return Pair(
            name, told, data, (pd.concat([X, low.iloc[[0]]], ignore_index=True), np.append(labels[: n - 1], y[1]))
        )

    return [
        pair("first of its class", f"the only record of {names[-1]}", high, names[-1], np.full(n, names[0])),
        pair("at the bound", "a rare record with the largest numbers", high, names[-1]),
        pair("beyond the bound", "a rare record with numbers beyond the bounds", beyond, names[-1]),
        pair("unknown", "a rare record of empty cells and unknown levels", unknown, names[-1]),
        pair("twin", "a second record like one that is there", middle, y[0]),
        Pair(
            "order",
            "the order of the rows: no record at all",
            (middle, y),
            (middle[::-1].reset_index(drop=True), y[::-1]),
        ),
    ]


def _cells(schema: Any, n: int, kind: str) -> pd.DataFrame:
    """Rows of texts whose cells are of one kind."""
    rng = np.random.default_rng(1)
    table = {}
    for column in schema.columns:
        if column.is_ordered:
            share = {"low": 0.0, "high": 1.0, "beyond": 11.0}.get(kind, np.nan)
            shares = rng.uniform(0.4, 0.6, n) if kind == "inside" else np.full(n, share)
            numbers = column.low + (column.high - column.low) * shares
            whole = np.round(numbers) if column.kind != "real" else numbers
            days = column.kind == "date"
            table[column.name] = [
                "" if np.isnan(x) else str(np.datetime64(int(x), "D") if days else x).removesuffix(".0") for x in whole
            ]
        else:
            levels = [column.levels[i % len(column.levels)] for i in range(n)]
            chosen = {"inside": levels, "low": [column.levels[0]] * n, "": ["never seen"] * n}.get(
                kind, [column.levels[-1]] * n
            )
            if column.kind == "one-hot":
                for level in column.levels:
                    table[f"{column.name}={level}"] = [str(int(level == one)) for one in chosen]
            else:
                table[column.name] = chosen
    return pd.DataFrame(table)
