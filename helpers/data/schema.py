"""The public schema of a table: what each column of a file may hold, written down in YAML beside the file.

    basis: ranges of the study's protocol, published before the data were taken
    label: {column: outcome, levels: [healthy, ill], minority: ill}
    columns:
      age: {kind: integer, low: 18, high: 100}
      bmi: {kind: real, low: 10, high: 60, bins: 16, missing: true}
      smoker: {kind: boolean, levels: [no, yes]}
      ward: {kind: categorical, levels: [north, south, west]}
      blood: {kind: one-hot, levels: [A, B, AB, O]}   # columns blood=A, blood=B, ...
      comment: {kind: ignore}

A `Schema` makes numbers of a table cell by cell: what becomes of one record depends on no other, so neighbouring tables
give neighbouring matrices. `Schema.encode` does so for *every* table with these columns, and is what a guarantee is
about; `Schema.dataset` refuses tables that break the schema, for experiments. `propose` writes a first schema from a
table. What it takes from the records has the mark `!private-confirm-or-replace`, and a schema with marks is not read: a
bound is public only if somebody says so. Reading files is left to `helpers.data.tables`.
"""

import math
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from helpers.checks import check_choice
from helpers.data.dataset import Dataset
from helpers.data.domain import Attribute, Domain

MARK = "!private-confirm-or-replace"
"""Stands before every entry of a proposal that was taken from records."""
MISSING = "missing"
"""Level of a categorical column, and first word of the indicator of a numeric one, for cells that are missing."""
MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
_KEYS = {
    "real": {"low", "high", "bins", "missing"},
    "integer": {"low", "high", "bins", "missing"},
    "boolean": {"levels"},
    "categorical": {"levels", "missing"},
    "one-hot": {"levels", "missing"},
    "ignore": set(),
}
_N_BINS = 32
_MOST_BINS = 1024
_MOST_LEVELS = 50  # of a column of texts that is not left out of a proposal
_MOST_NAMED = 6  # marked entries in an error
_FLAGS = {"true": True, "false": False}


class _Cells(NamedTuple):
    """The cells of one column: the different texts among them, and which of these each cell has."""

    codes: NDArray[np.intp]
    texts: list[str]

    def map(self, function: Callable[[str], Any], dtype: Any) -> NDArray:
        """The value of a function of the text, cell by cell."""
        return np.array([function(text) for text in self.texts], dtype=dtype)[self.codes]


def _cells(column: pd.Series) -> _Cells:
    if column.dtype == object:  # in which 1 and True would be one value, written as whichever comes first
        column = column.map(_text)
    codes, values = pd.factorize(column, use_na_sentinel=False)
    return _Cells(codes, [_text(value) for value in values])


def _text(value: Any) -> str:
    """A cell as it stands in a CSV: whole numbers without a point, nothing for what is missing."""
    if value is None or value is pd.NaT or value is pd.NA:
        return ""
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else str(int(value)) if float(value).is_integer() else str(value)
    return str(value).strip()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class _Column:
    """One column of the table, or a one-hot block of them, with what it may hold."""

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
        return self.kind in ("real", "integer")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of X, as `Domain.from_dataset` understands them."""
        if self.is_ordered:
            return (self.name, f"{MISSING} {self.name}=yes")[: 1 + self.missing]
        if self.kind == "boolean":
            return (f"{self.name}={self.levels[1]}",)
        return tuple(f"{self.name}={level}" for level in (*self.levels, *[MISSING] * self.missing))

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return [(self.low, self.high) if self.is_ordered and j == 0 else (0.0, 1.0) for j in range(len(self.features))]

    @property
    def rule(self) -> str:
        if self.kind == "one-hot":
            return "one 1 and else 0 in its columns"
        what = {"real": "a number", "integer": "a whole number"}.get(self.kind, f"one of {', '.join(self.levels)}")
        return what + (" or missing" if self.missing else "")

    def attributes(self, start: int) -> Iterator[Attribute]:
        """Of a `Domain` in which the columns of X start at `start`."""
        names = self.features
        if self.kind == "real":
            yield Attribute.real(self.name, start, self.low, self.high, n_bins=self.bins)
        elif self.kind == "integer":
            yield Attribute.integer(self.name, start, int(self.low), int(self.high), n_bins=self.bins)
        elif self.kind == "boolean":
            yield Attribute.integer(names[0], start, 0, 1)
        else:
            levels = [name.removeprefix(f"{self.name}=") for name in names]
            yield Attribute.one_hot(self.name, range(start, start + len(names)), levels)
        if self.is_ordered and self.missing:
            yield Attribute.integer(names[1], start + 1, 0, 1)

    def encode(self, table: pd.DataFrame, missing_texts: tuple[str, ...]) -> tuple[NDArray, NDArray]:
        """Columns of X (n, features), and which cells break the rule (n,).

        A cell that is missing or breaks the rule counts as missing where there is a level for that, else as the middle
        of the bounds, the first level, or "no".
        """
        if self.is_ordered:
            return self._numbers(_cells(table[self.name]), missing_texts)
        if self.kind == "one-hot":
            block = np.column_stack([_cells(table[source]).map(_number, float) for source in self.sources])
            valid = np.isin(block, (0, 1)).all(axis=1) & ((block == 1).sum(axis=1) == 1)
            places, absent = (block == 1).argmax(axis=1), (block == 0).all(axis=1)
        else:
            cells, position = _cells(table[self.name]), {level: code for code, level in enumerate(self.levels)}
            places = cells.map(lambda text: position.get(text, -1), np.intp)
            valid, absent = places >= 0, cells.map(lambda text: text in missing_texts, bool)
        places = np.where(valid, places, len(self.levels) if self.missing else 0)
        broken = ~valid & ~(absent & self.missing)
        if self.kind == "boolean":
            return places[:, None].astype(float), broken
        return np.eye(len(self.features))[places], broken

    def _numbers(self, cells: _Cells, missing_texts: tuple[str, ...]) -> tuple[NDArray, NDArray]:
        values = cells.map(_number, float)
        unknown = np.isnan(values)
        allowed = cells.map(lambda text: text in missing_texts, bool) & self.missing
        middle, broken = self.low / 2 + self.high / 2, unknown & ~allowed
        values = np.clip(np.where(unknown, middle, values), self.low, self.high)
        if self.kind == "integer":
            values, whole = np.rint(values), values
            broken |= (values != whole) & ~unknown  # the middle need not be whole
        return np.column_stack([values, unknown.astype(float)])[:, : 1 + self.missing], broken


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
    columns : tuple
        What each column may hold.
    missing_texts : tuple of str
        Cells that count as missing in columns that allow it.

    >>> schema = Schema.parse('''
    ... basis: an example
    ... label: {column: ill, levels: [no, yes], minority: yes}
    ... columns: {age: {kind: integer, low: 0, high: 99, missing: true}, sex: {kind: boolean, levels: [f, m]}}
    ... ''')
    >>> X, y = schema.encode(pd.DataFrame({"age": ["20", "?"], "sex": ["m", "f"], "ill": ["yes", "no"]}))
    >>> schema.feature_names
    ('age', 'missing age=yes', 'sex=m')
    >>> X.tolist(), y.tolist()
    ([[20.0, 0.0, 1.0], [50.0, 1.0, 0.0]], [1, 0])
    """

    basis: str
    label: str
    class_names: tuple[str, ...]
    columns: tuple[_Column, ...]
    missing_texts: tuple[str, ...] = MISSING_TEXTS

    @classmethod
    def read(cls, file: str | Path) -> "Schema":
        """The schema of a YAML file.

        Raises
        ------
        ValueError
            No such file, not YAML, an entry that is not understood, or one that has still the mark of `propose`.
        """
        file = Path(file)
        try:
            return cls.parse(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"schema must be a text file, got {file.name!r}: {type(error).__name__}") from None
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> "Schema":
        """As `read`, from the text of a file."""
        marked: list[str] = []
        try:
            node = yaml.compose(text, yaml.BaseLoader)
            content = _plain(node, "", marked)
        except yaml.MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise ValueError(f"schema must be YAML, got: {error.problem}{line}") from None
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(f"schema must be YAML, got {type(error).__name__}") from None
        if marked:
            more = f" and {len(marked) - _MOST_NAMED} more" if len(marked) > _MOST_NAMED else ""
            raise ValueError(
                f"schema must be public, got {len(marked)} entries with the mark {MARK}; confirm or replace each, and "
                f"remove its mark: {', '.join(marked[:_MOST_NAMED])}{more}"
            )
        entries = _mapping("schema", content, {"basis", "label", "columns"}, {"missing_texts"})
        basis = entries["basis"]
        if not isinstance(basis, str) or not basis.strip():
            raise ValueError("basis must be a text that says why the schema may be called public, got none")
        columns = _mapping("columns", entries["columns"])
        label, class_names = _label(entries["label"])
        schema = cls(
            " ".join(basis.split()),
            label,
            class_names,
            tuple(column for name in columns if (column := _column(name, columns[name])).kind != "ignore"),
            _texts("missing_texts", entries.get("missing_texts", list(MISSING_TEXTS))),
        )
        schema._check()
        return schema

    def _check(self) -> None:
        if not self.columns:
            raise ValueError("columns must name one or more columns that are not ignored, got none")
        for names in (self.sources, self.feature_names):
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"columns must be named once, the label too, got {', '.join(repeated)} twice")

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns that a table must have, the label last."""
        return (*(source for column in self.columns for source in column.sources), self.label)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names (d,) of the columns of X; `attribute=level` for those that are 0 or 1."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Lower and upper bounds (d, 2) of the columns of X."""
        return np.array([pair for column in self.columns for pair in column.bounds])

    @property
    def domain(self) -> Domain:
        """The same for methods that work with codes: bins, levels, and classes 0, 1, ..."""
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
        self._check_columns(table, self.sources[:-1])
        return np.column_stack([column.encode(table, self.missing_texts)[0] for column in self.columns])

    def encode(self, table: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """X (n, d) as `features`, and codes of the label (n,), where what is no class counts as class 0."""
        self._check_columns(table, self.sources)
        return self.features(table), np.maximum(self._label_codes(table), 0)

    def breaches(self, table: pd.DataFrame) -> pd.DataFrame:
        """How many rows break which rule: for the eyes of those who hold the data, since it is computed from them.

        Returns
        -------
        DataFrame
            `column`, `rows` (more than 0) and `rule`.
        """
        self._check_columns(table, self.sources)
        found = [(c.name, int(c.encode(table, self.missing_texts)[1].sum()), c.rule) for c in self.columns]
        found.append((self.label, int((self._label_codes(table) < 0).sum()), f"one of {', '.join(self.class_names)}"))
        return pd.DataFrame([row for row in found if row[1]], columns=["column", "rows", "rule"])

    def dataset(self, table: pd.DataFrame, name: str) -> Dataset:
        """A table that follows the schema as a data set of this package; numbers outside the bounds are clipped.

        Raises
        ------
        ValueError
            Rows that break the schema: column, number of rows, and rule. Not for others to see.
        """
        breaches = self.breaches(table)
        if len(breaches):
            said = "; ".join(
                f"column {b.column!r} has {b.rows} of {len(table)} rows that are not {b.rule}"
                for b in breaches.itertuples()
            )
            raise ValueError(f"{name} must follow its schema: {said}")
        X, y = self.encode(table)
        return Dataset(
            name, X, y, self.feature_names, self.bounds, self.basis, source=name, class_names=self.class_names
        )

    def _label_codes(self, table: pd.DataFrame) -> NDArray[np.intp]:
        position = {level: code for code, level in enumerate(self.class_names)}
        return _cells(table[self.label]).map(lambda text: position.get(text, -1), np.intp)

    def _check_columns(self, table: pd.DataFrame, wanted: tuple[str, ...]) -> None:
        found = [str(name) for name in table.columns]
        for what, wrong in (
            ("without", [name for name in wanted if name not in found]),
            ("twice with", [name for name in wanted if found.count(name) > 1]),
        ):
            if wrong:
                raise ValueError(f"table must have each column of its schema once, got one {what} {', '.join(wrong)}")


# ------------------------------------------------------------------------------------------------ what a file says


def _plain(node: yaml.Node | None, place: str, marked: list[str]) -> Any:
    """Dictionaries, lists and texts of a YAML node; `no` stays a text. Places with the mark go into `marked`."""
    if node is None:
        return ""
    if node.tag == MARK:
        marked.append(place)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, place, marked) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    found: dict[str, Any] = {}
    for key_node, value in node.value:
        key = _plain(key_node, place, marked)
        if not isinstance(key, str) or key in found:
            raise ValueError(f"schema must have texts as keys, each once, got {key!r} in {place or 'the whole'}")
        found[key] = _plain(value, f"{place}.{key}" if place else key, marked)
    return found


def _mapping(
    place: str, content: Any, needed: Set[str] = frozenset(), allowed: Set[str] | None = None
) -> dict[str, Any]:
    """The content, if it is a mapping with the keys `needed`, and no others than those `allowed` (None: any)."""
    if not isinstance(content, dict):
        raise ValueError(f"{place} must be a mapping, got {content!r}")
    absent = needed - set(content)
    unknown = set(content) - needed - allowed if allowed is not None else set()
    if absent or unknown:
        said = ", ".join(sorted(needed)) + (f", and may have {', '.join(sorted(allowed))}" if allowed else "")
        raise ValueError(f"{place} must have {said}, got {', '.join(content) or 'nothing'}")
    return content


def _texts(place: str, content: Any, fewest: int = 0) -> tuple[str, ...]:
    if not isinstance(content, list) or not all(isinstance(item, str) for item in content):
        raise ValueError(f"{place} must be a list of texts, got {content!r}")
    if len(set(content)) < max(len(content), fewest):
        raise ValueError(f"{place} must be {fewest} or more different texts, got {content!r}")
    return tuple(text.strip() for text in content)


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


def _column(name: str, content: Any) -> _Column:
    place = f"columns.{name}"
    kind = check_choice(f"{place}.kind", _mapping(place, content).get("kind"), tuple(_KEYS))
    needed = {"kind"} | ({"low", "high"} & _KEYS[kind]) | ({"levels"} & _KEYS[kind])
    entries = _mapping(place, content, needed, _KEYS[kind] - needed)
    if "=" in name:
        raise ValueError(f"{place} must be named without '=', which stands between attribute and level")
    values: dict[str, Any] = {key: _value(f"{place}.{key}", entries[key]) for key in ("low", "high") if key in entries}
    if "bins" in entries:
        values["bins"] = _whole(f"{place}.bins", entries["bins"], 1, _MOST_BINS)
    if "missing" in entries:
        values["missing"] = _FLAGS[check_choice(f"{place}.missing", entries["missing"], tuple(_FLAGS))]
    if "levels" in entries:
        values["levels"] = _texts(f"{place}.levels", entries["levels"], 2)
        if kind == "boolean" and len(values["levels"]) != 2:
            raise ValueError(f"{place}.levels must be two texts, no and yes, got {len(values['levels'])}")
    if kind == "integer":
        values |= {key: float(_whole(f"{place}.{key}", entries[key])) for key in ("low", "high")}
    if kind in ("real", "integer") and not values["low"] < values["high"]:
        raise ValueError(f"{place}.low must be below {place}.high, got {values['low']:g} and {values['high']:g}")
    return _Column(name, kind, **values)


def _value(place: str, text: Any) -> float:
    value = _number(text) if isinstance(text, str) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{place} must be a finite number, got {text!r}")
    return value


def _whole(place: str, text: Any, low: int = -(2**53), high: int = 2**53) -> int:
    value = _value(place, text)
    if not (value.is_integer() and low <= value <= high):
        raise ValueError(f"{place} must be a whole number in [{low}, {high}], got {text!r}")
    return int(value)


# ------------------------------------------------------------------------------------------------------ a proposal

_HEADER = f"""\
# A proposal, made from the records, and as private as they are.
# Every entry with the mark {MARK} was taken from them. Confirm or replace each by what is known without
# these records (ranges of a protocol, units, code lists), and remove its mark. Before that, no guarantee is given.
# Names of columns are taken to be public.
"""


def propose(table: pd.DataFrame, label: str | None = None) -> str:
    """The text of a schema that a table follows; every entry that comes from its records is marked.

    Parameters
    ----------
    table : DataFrame
    label : str, optional
        Column of the label, the last one if left out; the rarest of its levels is proposed as the minority.

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
    guessed = label is None
    label = check_choice("label", names[-1] if guessed and names else label, names)
    if len(set(names)) < len(names):
        raise ValueError("table must name each column once, got a name twice")
    lines = [_HEADER + _marked("", "basis", "") + "  # why all this may be called public", "label:"]
    cells = _cells(table[label])
    counts = np.bincount(cells.codes, minlength=len(cells.texts))
    present = {t: int(c) for t, c in zip(cells.texts, counts, strict=True) if c and t not in MISSING_TEXTS}
    if len(present) > _MOST_LEVELS:
        raise ValueError(f"label must be a column of at most {_MOST_LEVELS} values, {label!r} has {len(present)}")
    lines.append(f"  column: {_scalar(label)}" + "  # the last column, since none was named" * guessed)
    lines.append(_marked("  ", "levels", sorted(present)))
    lines.append(_marked("  ", "minority", min(sorted(present), key=present.get, default="")))
    lines.append("columns:")
    blocks: dict[str, list[str]] = {}
    for name in names:
        if name != label:
            blocks.setdefault(name.partition("=")[0], []).append(name)
    for name, block in blocks.items():
        entries = _proposed(_cells(table[name])) if block == [name] else _proposed_block(table[block])
        lines.append(f"  {_scalar(name)}:")
        lines += [_marked("    ", key, value) for key, value in entries.items()]
    return "\n".join(lines) + "\n"


def _proposed(cells: _Cells) -> dict[str, Any]:
    """Entries for one column."""
    texts = sorted({text for text in cells.texts if text not in MISSING_TEXTS})
    missing = str(len(texts) < len(set(cells.texts))).lower()
    numbers = [_number(text) for text in texts]
    if texts and all(math.isfinite(number) for number in numbers) and min(numbers) < max(numbers):
        kind = "integer" if all(number.is_integer() and abs(number) <= 2**53 for number in numbers) else "real"
        low, high = (texts[numbers.index(end)] for end in (min(numbers), max(numbers)))
        return {"kind": kind, "low": low, "high": high, "missing": missing}
    if not 2 <= len(texts) <= _MOST_LEVELS:
        return {"kind": "ignore"}
    return {"kind": "categorical", "levels": texts, "missing": missing}


def _proposed_block(table: pd.DataFrame) -> dict[str, Any]:
    """Entries for columns called `attribute=level`."""
    levels = [name.partition("=")[2] for name in table.columns]
    if len(levels) < 2:
        return {"kind": "ignore"}
    ones = np.column_stack([_cells(table[name]).map(_number, float) == 1 for name in table.columns])
    return {"kind": "one-hot", "levels": levels, "missing": str(not ones.any(axis=1).all()).lower()}


def _marked(indent: str, key: str, value: str | list[str]) -> str:
    text = _scalar(value) if isinstance(value, str) else f"[{', '.join(map(_scalar, value))}]"
    return f"{indent}{key}: {MARK} {text}"


def _scalar(text: str) -> str:
    """A text as YAML, in quotes unless it is a word or a number."""
    if re.fullmatch(r"[A-Za-z]\w*|-?\d[\d.]*", text, re.ASCII):
        return text
    return yaml.safe_dump(text, allow_unicode=True, width=math.inf, default_style="'").strip()
