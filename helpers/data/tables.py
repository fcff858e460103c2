"""Tables of the reader's own, CSV or Parquet, each with a public schema beside it.

`my.csv` goes with `my.schema.yaml` unless another schema is named. A CSV is read line by line and all its cells as
texts: a quote that is not closed, or types found in a whole column, would make what becomes of one record depend on the
others. Messages say nothing of the cells, apart from those of `load`, which count the rows that break the schema.
"""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers import paths
from helpers.data.schema import Schema


def is_table(name: Any) -> bool:
    """Whether a name is that of a table's file, not of a data set.

    >>> is_table("my.csv"), is_table("mammography")
    (True, False)
    """
    return isinstance(name, str | Path) and Path(name).suffix.lower() in (".csv", ".parquet")


def find(name: str | Path) -> Path | None:
    """The file: at this path, or in a folder that data sets are looked for; None where there is none."""
    places = [Path(name).expanduser(), *(folder / name for folder in paths.data_folders())]
    return next((place for place in places if place.is_file()), None)


def schema_beside(file: Path) -> Path:
    """Where the schema of a table is if it is not named.

    >>> schema_beside(Path("data/my.csv")).as_posix()
    'data/my.schema.yaml'
    """
    return file.with_suffix(".schema.yaml")


def schema_of(name: str | Path, schema: str | Path | None = None) -> Schema:
    """The schema of a table: the named file, or that beside the table.

    Raises
    ------
    ValueError
        No such table, no such schema, or one that is not confirmed.
    """
    file = found(name)
    wanted = Path(schema) if schema is not None else schema_beside(file)
    if schema is None and not wanted.is_file():
        raise ValueError(
            f"schema must be a text file, got {wanted.name!r}, not there: `dpbook schema {file.name}` makes one"
        )
    return Schema.read(wanted)


def read(name: str | Path, *, quoted_newlines: bool = False) -> pd.DataFrame:
    """The cells of a table: of a CSV all as texts, of a Parquet file as they are stored.

    A line of a CSV is one record, whatever is in it, so that no record changes how another one is read: cells that it
    lacks are empty, cells too many are left out, and a blank line is a record of empty cells.

    Parameters
    ----------
    name : str or Path
    quoted_newlines : bool
        Whether a cell in quotes may go on in the next line; a quote that is never closed then swallows what follows.

    Raises
    ------
    ValueError
        No such file, another kind of file, one that cannot be read, or a column named twice. None of the messages
        depends on the values in the cells.
    """
    file = found(name)
    if file.suffix.lower() == ".parquet":
        try:
            # A missing cell leaves the others what they are.
            return pd.read_parquet(file, dtype_backend="numpy_nullable")
        except ImportError:
            raise ValueError(
                f"{file.name} must be a CSV, or the project be installed with its extra `parquet`, which reads such "
                "files (in its folder: pip install '.[parquet]')"
            ) from None
        except MemoryError:
            raise
        except Exception:  # whatever the library raises may quote the file
            raise ValueError(f"{file.name} must be a Parquet file, got one that cannot be read") from None
    wanted = f"{file.name} must be a CSV in UTF-8 with commas between cells and a header that names each column once"
    try:
        with file.open("rb") as lines:
            # A byte that is no text spoils the cell that it is in, and no other; in the header it is refused.
            header = next(lines, b"").decode("utf-8-sig")
            texts = (line.decode(errors="replace") for line in lines)
            names = [cell.strip() for cell in _cells(header)]
            columns = _columns(csv.reader(texts) if quoted_newlines else map(_cells, texts), len(names))
    except (OSError, UnicodeDecodeError, csv.Error) as error:  # the last is of a cell that goes on for many lines
        raise ValueError(f"{wanted}, got one that cannot be read: {type(error).__name__}") from None
    if not any(names):
        raise ValueError(f"{wanted}, got no header")
    if repeated := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ValueError(f"{wanted}, got {', '.join(repeated)} twice")
    return pd.DataFrame(dict(zip(names, columns, strict=True)), dtype=object)


def _cells(line: str) -> list[str]:
    """The cells of one line, which need not be closed where a quote opens one."""
    line = line.rstrip("\r\n")
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line]))
    except csv.Error:  # of a cell that is too long for the library, or a carriage return in the middle of a line
        return []


def _columns(records: Iterable[list[str]], size: int) -> list[NDArray]:
    """The cells by column. Each different text is kept once, since most columns have few."""
    known: list[dict[str, str]] = [{} for _ in range(size)]
    columns: list[list[str]] = [[] for _ in range(size)]
    empty = [""] * size
    for record in records:
        for texts, column, cell in zip(known, columns, record + empty[len(record) :], strict=False):
            column.append(texts.setdefault(cell, cell))
    return [np.array(column, dtype=object) for column in columns]


def found(name: str | Path) -> Path:
    """As `find`, for a name that has to be that of a table.

    Raises
    ------
    ValueError
        Another kind of name, or no such file.
    """
    if not is_table(name):
        raise ValueError(f"name must be a file called .csv or .parquet, got {str(name)!r}")
    file = find(name)
    if file is None:
        raise ValueError(f"name must be a file that exists, got {str(name)!r}")
    return file
