"""The public schema of a table: what each column of a file may hold, written down in YAML beside the file.

    basis: ranges of the study's protocol, published before the data were taken
    record: a visit
    person: patient   # the column that says whose record it is, or `rows_per_person: 1` where there is none
    label: {column: outcome, levels: [healthy, ill], minority: ill}
    columns:
      age: {kind: integer, low: 18, high: 100}
      bmi: {kind: real, low: 10, high: 60, bins: 16, missing: true}
      admitted: {kind: date, low: 2019-01-01, high: 2024-12-31}   # a number, of days since 1970-01-01
      ward: {kind: categorical, levels: [north, south, west]}
      blood: {kind: one-hot, levels: [A, B, AB, O]}   # columns blood=A, blood=B, ...
      hour{0..23}: {kind: real, low: 0, high: 500}    # columns hour0, ..., hour23; {a,b} lists names
      comment: {kind: ignore}

Whom a guarantee protects is part of the schema: a person, all of whose rows are found by the column `person`, or who
has at most `rows_per_person` of them; or, where that is `unknown`, one row and no person.

A `Schema` makes numbers of a table cell by cell: what becomes of one record depends on no other, so neighbouring tables
give neighbouring matrices. `Schema.encode` does so for *every* table with these columns, and is what a guarantee is
about; `Schema.dataset` refuses tables that break the schema, for experiments; `Schema.domain` is the same schema for
methods that count. The data sets of the book have their public facts in this form too (`helpers.data.sets`). `propose`
writes a first schema from a table. What it takes from the records has the mark `!private-confirm-or-replace`, and a
schema with marks is not read: a bound is public only if somebody says so. Reading tables is left to
`helpers.data.tables`.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml  # type: ignore[import-untyped]  # PyYAML carries no types
from numpy.typing import NDArray

from helpers.data import cells
from helpers.data.dataset import Dataset
from helpers.data.domain import Attribute, Domain
from helpers.validation import check_choice

MARK = "!private-confirm-or-replace"
"""Stands before every entry of a proposal that was taken from records."""
MISSING = "missing"
"""Level of a categorical column, and first word of the indicator of a numeric one, for cells that are missing."""
UNKNOWN = "unknown"
"""Number of rows of a person of which nothing is known."""
MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
_KEYS = {
    "real": {"low", "high", "bins", "missing"},
    "integer": {"low", "high", "bins", "missing"},
    "date": {"low", "high", "bins", "missing"},
    "categorical": {"levels", "missing"},
    "one-hot": {"levels", "missing"},
    "ignore": set(),
}
_N_BINS = 32  # of a numeric column whose entry does not say, for methods that count
_MOST_BINS = 1024
_MOST_COLUMNS = 100_000  # that one name with braces stands for
_MOST_LEVELS = 1000
_MOST_PROPOSED = 50  # levels of a column of texts that is not left out of a proposal
_MOST_ROWS = 1000  # of a person
_MOST_BYTES = 1 << 24  # of the file of a schema
_DAY = 86_400  # seconds
_NARROW = 1 / 50  # of the space between two bounds, which numbers in another unit may all lie in


@dataclass(frozen=True)
class Column:
    """One column of a table, or a one-hot block of them, with what it may hold: its entry in the schema."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 1.0
    bins: int = _N_BINS
    levels: tuple[str, ...] = ()
    missing: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns of the table."""
        return tuple(f"{self.name}={level}" for level in self.levels) if self.kind == "one-hot" else (self.name,)

    @property
    def is_ordered(self) -> bool:
        """Whether it holds numbers between bounds; a date is one too."""
        return self.kind in ("real", "integer", "date")

    @property
    def features(self) -> dict[str, tuple[float, float]]:
        """Names of its columns of X, as `Domain.from_dataset` understands them, and the bounds of each."""
        if self.is_ordered:
            indicator = {f"{MISSING} {self.name}=yes": (0.0, 1.0)} if self.missing else {}
            return {self.name: (self.low, self.high)} | indicator
        return {f"{self.name}={level}": (0.0, 1.0) for level in (*self.levels, *[MISSING] * self.missing)}

    @property
    def rule(self) -> str:
        """What a cell may hold, in words."""
        if self.kind == "one-hot":
            return "one 1 and else 0 in its columns"
        words = {"real": "a number", "integer": "a whole number", "date": "a date like 2024-12-31"}
        what = words.get(self.kind, f"one of {', '.join(self.levels)}")
        return what + (" or missing" if self.missing else "")

    def numbers(self, found: cells.Cells) -> NDArray[np.float64]:
        """The numbers (n,) in the cells of an ordered column, NaN where there is none."""
        return found.map(_days if self.kind == "date" else _number, float)

    def attributes(self, first: int) -> list[Attribute]:
        """The column as attributes of a `Domain`, for methods that count; `first` is the first of its columns in X."""
        if not self.is_ordered:
            levels = [feature.partition("=")[2] for feature in self.features]
            return [Attribute.one_hot(self.name, range(first, first + len(levels)), levels)]
        name, *indicators = self.features
        if self.kind in ("real", "date"):
            own = Attribute.real(name, first, self.low, self.high, n_bins=self.bins)
        else:
            own = Attribute.integer(name, first, int(self.low), int(self.high), n_bins=self.bins)
        return [own, *(Attribute.integer(indicator, first + 1, 0, 1) for indicator in indicators)]

    def encode(self, table: pd.DataFrame, missing_texts: tuple[str, ...], X: NDArray) -> NDArray[np.bool_]:
        """Write the column into its columns X (n, features), which are 0 so far; returns which cells break the rule.

        A cell that is missing or breaks the rule counts as missing where there is a level for that, else as the middle
        of the bounds or the first level.
        """
        if self.is_ordered:
            found = cells.read(table[self.name])
            values, absent = self.numbers(found), found.map(missing_texts.__contains__, bool)
            unknown = np.isnan(values) | absent
            # Halves first, because the sum of two bounds may overflow. A number outside the bounds is clipped, which is
            # no breach.
            clipped = np.clip(np.where(unknown, self.low / 2 + self.high / 2, values), self.low, self.high)
            X[:, 0] = np.rint(clipped) if self.kind == "integer" else clipped
            if self.missing:
                # The indicator: 1 where the middle of the bounds stands for a number that is missing or cannot be read.
                X[:, 1] = unknown
            not_whole = ~unknown & (X[:, 0] != clipped)  # the middle of the bounds need not be whole
            return not_whole | (unknown & ~(absent & self.missing))
        if self.kind == "one-hot":
            block = np.column_stack([cells.read(table[source]).map(_number, float) for source in self.sources])
            # Zeros alone are how a one-hot block writes a missing value.
            valid = np.isin(block, (0, 1)).all(axis=1) & ((block == 1).sum(axis=1) == 1)
            places, absent = (block == 1).argmax(axis=1), (block == 0).all(axis=1)
        else:
            found = cells.read(table[self.name])
            places, absent = found.map(_positions(self.levels), np.intp), found.map(missing_texts.__contains__, bool)
            valid = places >= 0
        # The level for missing cells comes after all others, where there is one.
        places = np.where(valid, places, len(self.levels) if self.missing else 0)
        X[np.arange(len(X)), places] = 1
        return ~valid & ~(absent & self.missing)


@dataclass(frozen=True)
class Schema:
    """What a table may hold, all of it public; read from a file by `Schema.read`.

    Attributes
    ----------
    basis : str
        Why it is public. A guarantee repeats it.
    label : str
        Column of the label.
    class_names : tuple of str
        Names of the codes 0, 1, ...; of two, the minority is the second.
    columns : tuple of Column
        What each column may hold.
    missing_texts : tuple of str
        Cells that count as missing in columns that allow it.
    person : str or None
        Column that says whose row it is; nothing is learned from it, and equal texts are one person.
    rows_per_person : int or None
        The most rows of one person, 1 or more; None if that is not known, or where a column says whose they are.
    quoted_newlines : bool
        Whether a cell in quotes may go on in the next line. A quote that is never closed then swallows the records
        after it, so that the guarantee has to assume that there is none.
    record : str
        What a row is, in words.
    source, licence : str
        Of the table.
    facts : dict
        What else is to be known of the table, as it stands in the file; `helpers.data.sets` reads it.

    >>> schema = Schema.parse('''
    ... basis: an example
    ... rows_per_person: 1
    ... label: {column: ill, levels: [no, yes], minority: yes}
    ... columns: {age: {kind: integer, low: 0, high: 99, missing: true}, sex: {kind: categorical, levels: [f, m]}}
    ... ''')
    >>> X, y, persons = schema.encode(pd.DataFrame({"age": ["20", "?"], "sex": ["m", "f"], "ill": ["yes", "no"]}))
    >>> schema.feature_names
    ('age', 'missing age=yes', 'sex=f', 'sex=m')
    >>> X.tolist(), y.tolist()
    ([[20.0, 0.0, 0.0, 1.0], [50.0, 1.0, 1.0, 0.0]], [1, 0])
    """

    basis: str
    label: str
    class_names: tuple[str, ...]
    columns: tuple[Column, ...]
    person: str | None = None
    rows_per_person: int | None = None
    quoted_newlines: bool = False
    missing_texts: tuple[str, ...] = MISSING_TEXTS
    record: str = ""
    source: str = ""
    licence: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def read(cls, file: str | Path) -> "Schema":
        """The schema of a YAML file.

        Raises
        ------
        ValueError
            No such file, not YAML, an entry that is not understood, or one that has still the mark of `propose`.
        """
        file = Path(file)
        # A device or a named pipe would be read for ever.
        if file.exists() and not file.is_file():
            raise ValueError(f"schema must be a text file, got {file.name!r}, which is none")
        if file.is_file() and file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"schema must be a text file of at most {_MOST_BYTES:,} bytes, got {file.name!r}")
        try:
            return cls.parse(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"schema must be a text file, got {file.name!r}: {type(error).__name__}") from None
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> "Schema":
        """As `read`, from the text of a file."""
        try:
            # Events before objects: an alias is refused before it is expanded, and marks are tags, which the loader
            # below passes over, as it does with any other: a mark with a mistake in it must not count as confirmed.
            events = list(yaml.parse(text, yaml.BaseLoader))
            if any(isinstance(event, yaml.AliasEvent) for event in events):
                raise ValueError("schema must be YAML without aliases, which may stand for more than fits into memory")
            content = yaml.load(text, _Texts)
        except yaml.MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise ValueError(f"schema must be YAML, got: {error.problem}{line}") from None
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(f"schema must be YAML, got {type(error).__name__}") from None
        marked = [event.start_mark.line + 1 for event in events if getattr(event, "tag", None) == MARK]
        if marked:
            raise ValueError(
                f"schema must be public, got {len(marked)} entries with the mark {MARK}, "
                f"the first in line {marked[0]}; confirm or replace each, and remove its mark"
            )
        for event in events:
            if getattr(event, "tag", None) is not None:
                line = event.start_mark.line + 1
                raise ValueError(f"schema must be YAML without tags but {MARK}, got {event.tag} in line {line}")
        words = ("basis", "record", "source", "licence")
        others = {"missing_texts", "facts", "person", "rows_per_person", "quoted_newlines", *words[1:]}
        entries = _mapping("schema", content, {"basis", "label", "columns"}, others)
        texts = {}
        for key in words:
            if not isinstance(entries.get(key, ""), str):
                raise ValueError(f"{key} must be a text, got {entries[key]!r}")
            texts[key] = " ".join(entries.get(key, "").split())
        if not texts["basis"]:
            raise ValueError("basis must be a text that says why the schema may be called public, got none")
        person, rows_per_person = _protected(entries)
        label, class_names = _label(entries["label"])
        named = _mapping("columns", entries["columns"])
        columns = tuple(column for name, entry in named.items() for column in _columns(name, entry))
        if not columns:
            raise ValueError("columns must name one or more columns that are not ignored, got none")
        schema = cls(
            label=label,
            class_names=class_names,
            columns=columns,
            person=person,
            rows_per_person=rows_per_person,
            quoted_newlines=_flag("quoted_newlines", entries.get("quoted_newlines", "false")),
            missing_texts=_texts("missing_texts", entries.get("missing_texts", list(MISSING_TEXTS))),
            facts=_mapping("facts", entries.get("facts", {})),
            **texts,
        )
        # Different columns of the table may still give equal names of features.
        for names in (schema.sources, schema.feature_names):
            if repeated := sorted(name for name, times in Counter(names).items() if times > 1):
                raise ValueError(f"columns must be named once, the label too, got {', '.join(repeated)} twice")
        return schema

    @property
    def unit(self) -> str:
        """Whom a guarantee about the table is for: "person" or "row"."""
        return "row" if self.person is None and self.rows_per_person is None else "person"

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns that a table must have to be learned from, the label last."""
        features = (source for column in self.columns for source in column.sources)
        return (*features, *([] if self.person is None else [self.person]), self.label)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names (d,) of the columns of X; `attribute=level` for those that are 0 or 1."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Lower and upper bounds (d, 2) of the columns of X."""
        return np.array([pair for column in self.columns for pair in column.features.values()])

    @property
    def domain(self) -> Domain:
        """The schema as a `Domain` of bins, levels and classes 0, 1, ..., for methods that work with codes."""
        attributes: list[Attribute] = []
        for column in self.columns:
            attributes += column.attributes(sum(len(attribute.columns) for attribute in attributes))
        return Domain(attributes, tuple(range(len(self.class_names))), self.basis)

    def features(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """X (n, d) of a table, within `bounds`, whatever its cells hold.

        Numbers outside the bounds count as the nearest one. Cells that are missing, or are none of what the schema
        allows, count as missing where the schema has that, else as the middle of the bounds or the first level. A
        missing number is the middle of the bounds, with an indicator of its own.

        Raises
        ------
        ValueError
            Columns that the table does not have, or has twice.
        """
        return self._read(table, labelled=False)[0]

    def encode(self, table: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.intp] | None]:
        """X (n, d) as `features`; codes of the label (n,), where what is no class counts as class 0; and which rows
        are of one person, numbered by first appearance (n,), or None where no column says so.
        """
        X, y, _ = self._read(table)
        return X, np.maximum(y, 0), self._persons(table)

    def findings(self, table: pd.DataFrame) -> pd.DataFrame:
        """What a holder of the table should look at before it is learned from: rows that break a rule, numbers that
        would be clipped, and signs of another unit or another spelling. Computed from the records, for no other eyes.

        Returns
        -------
        DataFrame
            `column`, `rows` (more than 0) and `finding`; empty if there are none.
        """
        found = [(name, rows, f"not {rule}") for name, rows, rule in self._read(table)[2]]
        table = table.set_axis([str(name) for name in table.columns], axis=1)
        for column in self.columns:
            if column.is_ordered:
                numbers = column.numbers(cells.read(table[column.name]))
                found += _clipped(column, numbers[~np.isnan(numbers)])
            elif column.kind == "categorical":
                found += _misspelt(column.name, column.levels, cells.read(table[column.name]))
        found += _misspelt(self.label, self.class_names, cells.read(table[self.label]))
        if self.person is not None:
            nobody = cells.read(table[self.person]).map(self.missing_texts.__contains__, bool).sum()
            found += [(self.person, int(nobody), "of nobody: together they count as one person")] * bool(nobody)
        return pd.DataFrame(found, columns=["column", "rows", "finding"])

    def dataset(self, table: pd.DataFrame, name: str) -> Dataset:
        """A table that follows the schema as a data set of this package; numbers outside the bounds are clipped.

        Raises
        ------
        ValueError
            Rows that break the schema: column, number of rows, and rule. Not for others to see.
        """
        X, y, breaches = self._read(table)
        if breaches:
            said = "; ".join(
                f"column {column!r} has {rows} of {len(table)} rows that are not {rule}"
                for column, rows, rule in breaches
            )
            raise ValueError(f"{name} must follow its schema: {said}")
        X.flags.writeable = False  # nobody else holds it, so that `Dataset` need not copy it
        return self.records(X, y, name, self._persons(table))

    def records(
        self, X: NDArray | pd.DataFrame, y: NDArray | pd.Series, name: str, groups: NDArray | None = None
    ) -> Dataset:
        """Records X (n, d) with label codes y (n,) that were encoded elsewhere, as a data set with these public facts.

        Raises
        ------
        ValueError
            As `Dataset` does; whether X is within the bounds is not checked.
        """
        return Dataset(name, X, y, self.feature_names, self.bounds, self.basis, self.class_names, groups)

    def _persons(self, table: pd.DataFrame) -> NDArray[np.intp] | None:
        """Numbers of the persons (n,), by first appearance; rows of nobody are of one person together."""
        if self.person is None:
            return None
        found = cells.read(table.set_axis([str(name) for name in table.columns], axis=1)[self.person])
        return pd.factorize(found.map(lambda text: "" if text in self.missing_texts else text, object))[0]

    def _read(
        self, table: pd.DataFrame, *, labelled: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.intp], list[tuple[str, int, str]]]:
        """X within the bounds; codes of the label, -1 for what is no class; how many rows break which column's rule.

        Without a label, the codes are none, and the label is in no rule.
        """
        # Whose rows they are matters where something is learned from them.
        needless = set() if labelled else {self.label, self.person}
        wanted, found = [name for name in self.sources if name not in needless], [str(name) for name in table.columns]
        if wrong := ", ".join(name for name in wanted if found.count(name) != 1):
            raise ValueError(f"table must have each column of its schema once, got none or several of {wrong}")
        table = table.set_axis(found, axis=1)  # numbers may be names too
        # `Column.encode` writes into columns that are 0 so far.
        X, y, start = np.zeros((len(table), len(self.feature_names))), np.zeros(0, dtype=np.intp), 0
        breaches = []
        for column in self.columns:
            stop = start + len(column.features)
            broken = column.encode(table, self.missing_texts, X[:, start:stop])
            breaches.append((column.name, int(broken.sum()), column.rule))
            start = stop
        if labelled:
            y = cells.read(table[self.label]).map(_positions(self.class_names), np.intp)
            breaches.append((self.label, int((y < 0).sum()), f"one of {', '.join(self.class_names)}"))
        return X, y, [breach for breach in breaches if breach[1]]


def _number(text: str) -> float:
    """The number that a text is; NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _days(text: str) -> float:
    """The days from 1970-01-01 to a date in ISO 8601, with a time perhaps; NaN for any other text.

    >>> _days("1970-01-02"), _days("1970-01-02 12:00:00"), _days("2 January")
    (1.0, 1.5, nan)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    # Without a time zone it is one of UTC, wherever this runs.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() / _DAY


def _clipped(column: Column, numbers: NDArray[np.float64]) -> list[tuple[str, int, str]]:
    """Findings about the numbers in an ordered column: those outside its bounds, and signs of another unit."""
    found = [
        (column.name, int((numbers < column.low).sum()), f"below {column.low:g}, and would count as that"),
        (column.name, int((numbers > column.high).sum()), f"above {column.high:g}, and would count as that"),
    ]
    found = [finding for finding in found if finding[1]]
    inside, size = numbers[(numbers >= column.low) & (numbers <= column.high)], column.high - column.low
    if sum(finding[1] for finding in found) > len(numbers) / 2:
        found.append((column.name, len(numbers), "numbers of which most are outside the bounds: is the unit another?"))
    elif len(inside) and np.ptp(inside) < _NARROW * size:
        # Heights in metres where the bounds are in centimetres, for example.
        said = f"numbers that all lie within {_NARROW:.0%} of the space between the bounds: is the unit another?"
        found.append((column.name, len(numbers), said))
    return found


def _misspelt(name: str, levels: tuple[str, ...], found: cells.Cells) -> list[tuple[str, int, str]]:
    """The finding that texts would be levels if capital letters and spaces did not count."""
    known, folded = set(levels), {" ".join(level.casefold().split()) for level in levels}
    rows = int(found.map(lambda text: text not in known and " ".join(text.casefold().split()) in folded, bool).sum())
    return [(name, rows, "a level but for capital letters or spaces, which counts as none")] * bool(rows)


def _shared(name: str, rows_per_person: int, found: cells.Cells) -> list[tuple[str, int, str]]:
    """The finding that a column which nothing is learned from may name persons who have more rows than was stated."""
    counts = Counter(text for text in found.map(str, object) if text not in MISSING_TEXTS)
    if len(counts) <= _MOST_PROPOSED or max(counts.values()) <= rows_per_person:
        return []
    said = (
        f"{len(counts):,} values, one of them in {max(counts.values()):,} rows, where rows_per_person is "
        f"{rows_per_person}: if it names the person, write person: {name}"
    )
    return [(name, counts.total(), said)]


def doubts(schema: Schema, table: pd.DataFrame) -> pd.DataFrame:
    """What `Schema.findings` cannot see in single cells: a minority that is no rare class, and persons with more rows
    than the schema states. Computed from the records, for no other eyes.

    Returns
    -------
    DataFrame
        As of `Schema.findings`.
    """
    table, found = table.set_axis([str(name) for name in table.columns], axis=1), []
    rare = schema.class_names[-1]
    n_rare = int(cells.read(table[schema.label]).map(rare.__eq__, bool).sum())
    if n_rare > len(table) / 2:
        found.append((schema.label, n_rare, f"{rare}, the minority of the schema: is it the rare class?"))
    if schema.rows_per_person is not None and schema.person is None:
        for name in table.columns.difference(schema.sources, sort=False):
            found += _shared(name, schema.rows_per_person, cells.read(table[name]))
    return pd.DataFrame(found, columns=["column", "rows", "finding"])


def unlike(schema: Schema, table: pd.DataFrame) -> pd.DataFrame:
    """Cells outside the schema in a table for which something is to be predicted: whose answers they make doubtful.

    Returns
    -------
    DataFrame
        As of `Schema.findings`, of the columns that something was learned from.
    """
    found = [(name, rows, f"not {rule}") for name, rows, rule in schema._read(table, labelled=False)[2]]
    table = table.set_axis([str(name) for name in table.columns], axis=1)
    for column in (column for column in schema.columns if column.is_ordered):
        numbers = column.numbers(cells.read(table[column.name]))
        if outside := int(((numbers < column.low) | (numbers > column.high)).sum()):
            found.append((column.name, outside, "outside the bounds, and counted as the nearest bound"))
    return pd.DataFrame(found, columns=["column", "rows", "finding"])


def _positions(levels: tuple[str, ...]) -> Callable[[str], int]:
    """The function from a text to its place among the levels, -1 for what is none of them."""
    places = {level: place for place, level in enumerate(levels)}
    return lambda text: places.get(text, -1)


# ------------------------------------------------------------------------------------------------ what a file says


class _Texts(yaml.BaseLoader):
    """Mappings, lists and texts: `no` stays a text. A key twice in one mapping is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(problem=f"key {key.value!r} twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _mapping(
    place: str, content: Any, needed: Set[str] = frozenset(), allowed: Set[str] | None = None
) -> dict[str, Any]:
    """The content, if it is a mapping with the keys `needed`, and no others than those `allowed` (None: any)."""
    if not isinstance(content, dict):
        raise ValueError(f"{place} must be a mapping, got {content!r}")
    if not needed <= set(content) or (allowed is not None and not set(content) <= needed | allowed):
        said = ", ".join(sorted(needed)) + (f", and may have {', '.join(sorted(allowed))}" if allowed else "")
        raise ValueError(f"{place} must have {said}, got {', '.join(content) or 'nothing'}")
    return content


def _texts(place: str, content: Any, fewest: int = 0) -> tuple[str, ...]:
    """The content, if it is a list of different texts, at least `fewest`; without spaces at their ends."""
    if not isinstance(content, list) or not all(isinstance(item, str) for item in content):
        raise ValueError(f"{place} must be a list of texts, got {content!r}")
    if len(set(content)) < max(len(content), fewest):
        raise ValueError(f"{place} must be {fewest} or more different texts, got {content!r}")
    if len(content) > _MOST_LEVELS:
        raise ValueError(f"{place} must be at most {_MOST_LEVELS:,} texts, got {len(content):,}")
    return tuple(text.strip() for text in content)


def _flag(place: str, content: Any) -> bool:
    return check_choice(place, content, ("true", "false")) == "true"


def _protected(entries: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The column that names the person, and the most rows of one: whom a guarantee is for has to be said."""
    if ("person" in entries) == ("rows_per_person" in entries):
        raise ValueError(
            "schema must say whose rows these are, by one of two entries: `person: COLUMN`, or `rows_per_person:` with "
            f"the most rows of one person, {UNKNOWN} where a guarantee is to protect single rows only"
        )
    if "person" in entries:
        if not isinstance(entries["person"], str) or not entries["person"]:
            raise ValueError(f"person must be the name of a column, got {entries['person']!r}")
        return entries["person"], None
    if entries["rows_per_person"] == UNKNOWN:
        return None, None
    return None, int(_finite("rows_per_person", entries["rows_per_person"], whole=True, low=1, high=_MOST_ROWS))


def _label(content: Any) -> tuple[str, tuple[str, ...]]:
    """Column and class names, the minority last of two."""
    entries = _mapping("label", content, {"column", "levels"}, {"minority"})
    levels, minority = _texts("label.levels", entries["levels"], 2), entries.get("minority")
    if minority is None and len(levels) == 2:
        raise ValueError("label.minority must be one of two levels, got none")
    if minority is not None:
        check_choice("label.minority", minority, levels)
        levels = (*(level for level in levels if level != minority), minority)
    return str(entries["column"]), levels


def _columns(name: str, content: Any) -> list[Column]:
    """The columns of one entry: several where its name has braces, as in a shell; none where they are ignored."""
    place = f"columns.{name}"
    # The kind comes first, because it decides which other keys are allowed.
    kind = check_choice(f"{place}.kind", _mapping(place, content).get("kind"), tuple(_KEYS))
    needed = {"kind"} | ({"low", "high", "levels"} & _KEYS[kind])
    entries = _mapping(place, content, needed, _KEYS[kind] - needed)
    if "=" in name:
        raise ValueError(f"{place} must be named without '=', which stands between attribute and level")
    values: dict[str, Any] = {}
    for key in [name for name in ("low", "high") if name in entries]:
        if kind == "date":
            values[key] = _days(str(entries[key]))
            if math.isnan(values[key]):
                raise ValueError(f"{place}.{key} must be a date like 2024-12-31, got {entries[key]!r}")
        else:
            values[key] = _finite(f"{place}.{key}", entries[key], whole=kind == "integer")
    if "bins" in entries:
        values["bins"] = int(_finite(f"{place}.bins", entries["bins"], whole=True, low=1, high=_MOST_BINS))
    if "missing" in entries:
        values["missing"] = _flag(f"{place}.missing", entries["missing"])
    if "levels" in entries:
        values["levels"] = _texts(f"{place}.levels", entries["levels"], 2)
    if "low" in values and not values["low"] < values["high"]:
        raise ValueError(f"{place}.low must be below {place}.high, got {values['low']:g} and {values['high']:g}")
    return [Column(one, kind, **values) for one in _names(place, name) if kind != "ignore"]


def _names(place: str, name: str) -> list[str]:
    """The names that one with braces stands for, the last braces running first.

    >>> _names("", "r{0..1}{G,B}")
    ['r0G', 'r0B', 'r1G', 'r1B']
    """
    # What was between braces stands at the odd places.
    parts = re.split(r"\{(\d+\.\.\d+|[^{},]+(?:,[^{},]+)+)\}", name)
    choices: list[Sequence[Any]] = [[part] for part in parts]
    for j in range(1, len(parts), 2):
        ends = parts[j].split("..")
        choices[j] = range(int(ends[0]), int(ends[1]) + 1) if len(ends) == 2 else parts[j].split(",")
    if not 1 <= math.prod(map(len, choices)) <= _MOST_COLUMNS:
        raise ValueError(f"{place} must stand for 1 to {_MOST_COLUMNS:,} columns, got {math.prod(map(len, choices)):,}")
    return ["".join(map(str, chosen)) for chosen in itertools.product(*choices)]


def _finite(place: str, text: Any, *, whole: bool, low: int = -(2**53), high: int = 2**53) -> float:
    """The number that a text is; a whole one has to be between `low` and `high`."""
    value = _number(text) if isinstance(text, str) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{place} must be a finite number, got {text!r}")
    if whole and not (value.is_integer() and low <= value <= high):
        raise ValueError(f"{place} must be a whole number in [{low}, {high}], got {text!r}")
    return value


# --------------------------------------------------------------------------------------------------- writing a file


def _marked(entries: Mapping[str, str | list[str]], indent: str) -> list[str]:
    """A line for each entry, with the mark before its text or list of texts."""
    shown = {
        key: f"[{', '.join(map(_scalar, value))}]" if isinstance(value, list) else _scalar(value)
        for key, value in entries.items()
    }
    return [f"{indent}{key}: {MARK} {text}" for key, text in shown.items()]


def _scalar(text: str) -> str:
    """A text as YAML, in quotes unless it is a word or a number."""
    if re.fullmatch(r"[A-Za-z]\w*|-?\d[\d.]*", text, re.ASCII):
        return text
    return yaml.safe_dump(text, allow_unicode=True, width=math.inf, default_style="'").strip()


_HEADER = f"""\
# A proposal. Every entry of the columns with the mark {MARK} was taken from the records, so this
# file is as private as they are while a mark is left. If an entry is known without the records, such as the kind of a
# column, only remove its mark. Replace every other one by what is known without them, such as the range of an
# instrument, and remove its mark. Before that, no guarantee is given. Names of columns are taken to be public.
basis: {MARK} ''  # in quotes: where these values come from, and why they may be called public
"""
_ONE_ROW = f"""\
# The most rows of one person, whom the guarantee is to protect. If a column names the person, write `person: COLUMN`
# instead; if nothing is known, write `rows_per_person: {UNKNOWN}`, and the guarantee is for one row and for no person.
rows_per_person: {MARK} 1
"""


def propose(table: pd.DataFrame, label: str | None = None, person: str | None = None) -> str:
    """The text of a schema that a table follows; every entry that comes from its records is marked.

    Parameters
    ----------
    table : DataFrame
    label : str, optional
        Column of the label, the last one if left out; the rarest of its levels is proposed as the minority.
    person : str, optional
        Column that says whose row it is.

    Raises
    ------
    ValueError
        The table has no such column, or has a name twice; or the label has too many levels.

    >>> print(propose(pd.DataFrame({"age": ["20", "31"], "ill": ["no", "yes"]}), "ill").partition("label:")[2].strip())
    column: ill
      levels: !private-confirm-or-replace [no, yes]
      minority: !private-confirm-or-replace no
    columns:
      age:
        kind: !private-confirm-or-replace integer
        low: !private-confirm-or-replace 20
        high: !private-confirm-or-replace 31
        missing: !private-confirm-or-replace false
    """
    names = [str(name) for name in table.columns]
    if len(names) == 1:
        raise ValueError(f"table must have several columns, separated by commas, got the one column {names[0]!r}")
    guessed = label is None
    label = check_choice("label", names[-1] if guessed and names else label, names)
    if person is not None:
        check_choice("person", person, [name for name in names if name != label])
    if len(set(names)) < len(names):
        raise ValueError("table must name each column once, got a name twice")
    table = table.set_axis(names, axis=1)
    found = cells.read(table[label]).map(str, object)
    present = Counter(text for text in found if text not in MISSING_TEXTS)
    if len(present) > _MOST_PROPOSED:
        raise ValueError(f"label must be a column of at most {_MOST_PROPOSED} values, {label!r} has {len(present)}")
    # Of equally rare levels the first by name, so that the proposal does not depend on the order of the rows.
    rarest = min(sorted(present), key=lambda level: present[level], default="")
    lines = [
        "label:",
        f"  column: {_scalar(label)}" + "  # the last column, since none was named" * guessed,
        *_marked({"levels": sorted(present), "minority": rarest}, "  "),
        "columns:",
    ]
    blocks: dict[str, list[str]] = {}
    for name in names:
        if name not in (label, person):
            # Columns called `attribute=level` are proposed as one block.
            blocks.setdefault(name.partition("=")[0], []).append(name)
    for name, block in blocks.items():
        entry = _proposed(cells.read(table[name])) if block == [name] else _proposed_block(table[block])
        note = "  # dates, read as numbers of days" if entry["kind"] == "date" else ""
        if entry["kind"] == "ignore" and person is None and _shared(name, 1, cells.read(table[block[0]])):
            note = "  # its values repeat: does it name the person of a row?"
        lines += [f"  {_scalar(name)}:{note}", *_marked(entry, "    ")]
    return _HEADER + (_ONE_ROW if person is None else f"person: {_scalar(person)}\n") + "\n".join(lines) + "\n"


def _proposed(found: cells.Cells) -> dict[str, Any]:
    """Entries for one column."""
    texts = sorted({text for text in found.texts if text not in MISSING_TEXTS})
    # Fewer texts than were found: some of them stand for missing cells.
    missing = str(len(texts) < len(set(found.texts))).lower()
    for value_of in (_number, _days):
        numbers = [value_of(text) for text in texts]
        if texts and all(math.isfinite(number) for number in numbers) and min(numbers) < max(numbers):
            kind = "integer" if all(number.is_integer() and abs(number) <= 2**53 for number in numbers) else "real"
            low, high = (texts[numbers.index(end)] for end in (min(numbers), max(numbers)))
            return {"kind": "date" if value_of is _days else kind, "low": low, "high": high, "missing": missing}
    if not 2 <= len(texts) <= _MOST_PROPOSED:
        return {"kind": "ignore"}
    return {"kind": "categorical", "levels": texts, "missing": missing}


def _proposed_block(table: pd.DataFrame) -> dict[str, Any]:
    """Entries for columns called `attribute=level`."""
    levels = [name.partition("=")[2] for name in table.columns]
    if len(levels) < 2:
        return {"kind": "ignore"}
    ones = np.column_stack([cells.read(table[name]).map(_number, float) == 1 for name in table.columns])
    return {"kind": "one-hot", "levels": levels, "missing": str(not ones.any(axis=1).all()).lower()}
