"""Tables of the reader's own in place of a chapter's data sets: `dpbook run weights-worth -p datasets '["my.csv"]'`.

A parameter whose range holds `*.csv` takes the path of a CSV or Parquet file with its public schema beside it
(`helpers.data.tables`). A run links both into its folder, so that its cells, tables and captions know the file by its
name alone. What such a run shows is computed without regard to the privacy of these records: it is for their holder.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.data import catalogue, tables


def check(parameter: str, value: str) -> str:
    """The value, if it is the name of a table that has a public schema with two classes; no record is read.

    Raises
    ------
    ValueError
        No such file, a name that could not be part of a table's name, or a schema that is missing, not confirmed, or
        of more than two classes.
    """
    file = tables.find(value)
    if file is None:
        raise ValueError(f"{parameter} must be a file that exists, got {value!r}")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", file.name):
        raise ValueError(f"{parameter} must be a file whose name is made of letters, digits, _, - and ., got {value!r}")
    classes = tables.schema_of(file).class_names
    if len(classes) != 2:
        raise ValueError(f"{parameter} must be a table with two classes, got {len(classes)} in {value!r}")
    return value


def names(values: dict[str, Any]) -> list[str]:
    """The tables among the values of a chapter's parameters, each once.

    >>> names({"datasets": ["ecoli", "my.csv"], "n_seeds": 2, "dataset": "my.csv"})
    ['my.csv']
    """
    texts = [text for value in values.values() for text in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(text for text in texts if tables.is_table(text)))


def load(values: dict[str, Any]) -> None:
    """Read the tables once, so that what is wrong with them is said before anything runs.

    Raises
    ------
    ValueError
        Rows that break the schema, by column and rule; fewer than two records of a class; two files of one name.
    """
    chosen = names(values)
    if len({Path(name).name for name in chosen}) < len(chosen):
        raise ValueError(f"tables of a run must have different names, got {', '.join(chosen)}")
    for name in chosen:
        records = catalogue.load(name)
        if records.counts.min() < 2:
            raise ValueError(f"{Path(name).name} must have two or more records of each class, got fewer")


def link(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values with tables called by their bare names, and links of these names to them and their schemas."""
    for file in _files(values):
        (folder / file.name).symlink_to(file.resolve())

    def bare(value: Any) -> Any:
        return Path(value).name if tables.is_table(value) else value

    return {key: [bare(each) for each in value] if isinstance(value, list) else bare(value)
            for key, value in values.items()}  # fmt: skip


def digest(values: dict[str, Any]) -> str:
    """Digest of the contents of all tables and schemas among the values; an empty text if there are none."""
    found = [hashlib.sha256(file.read_bytes()).hexdigest() for file in _files(values)]
    return hashlib.sha256(" ".join(found).encode()).hexdigest()[:16] if found else ""


def _files(values: dict[str, Any]) -> Iterator[Path]:
    """Each table, and its schema."""
    for name in names(values):
        file = tables.found(name)
        yield from (file, tables.schema_beside(file))
