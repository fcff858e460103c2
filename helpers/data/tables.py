"""Tables of the reader's own, CSV or Parquet, each with a public schema beside it.

`my.csv` goes with `my.schema.yaml` unless another schema is named. All cells of a CSV are read as texts, because types
found in a whole column would make what becomes of one record depend on the others. Messages say nothing of the cells,
apart from those of `load`, which count the rows that break the schema.
"""

from pathlib import Path
from typing import Any

import pandas as pd

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


def schema_of(name: str | Path) -> Schema:
    """The schema beside a table.

    Raises
    ------
    ValueError
        No such table, no schema beside it, or one that is not confirmed.
    """
    file = found(name)
    beside = schema_beside(file)
    if not beside.is_file():
        raise ValueError(
            f"schema must be a text file, got {beside.name!r}, not there: `dpbook schema {file.name}` makes one"
        )
    return Schema.read(beside)


def read(name: str | Path) -> pd.DataFrame:
    """The cells of a table: of a CSV all as texts, of a Parquet file as they are stored.

    Raises
    ------
    ValueError
        No such file, another kind of file, one that cannot be read, or a column named twice. None of the messages
        depends on the values in the cells.
    """
    file = found(name)
    wanted = f"{file.name} must be a Parquet file"
    try:
        if file.suffix.lower() == ".parquet":
            return pd.read_parquet(
                file, dtype_backend="numpy_nullable"
            )  # a missing cell leaves the others what they are
        wanted = (
            f"{file.name} must be a CSV in UTF-8, with commas between cells, a header that names each column once, and "
            "no line longer than that"
        )
        # The header is read as a row, because pandas renames columns of one name and takes longer lines for an index.
        rows = pd.read_csv(file, header=None, dtype=str, na_filter=False, encoding="utf-8-sig")
    except ImportError:
        raise ValueError(
            f"{file.name} must be a CSV, or the project be installed with its extra `parquet`, which reads such files "
            "(in its folder: pip install '.[parquet]')"
        ) from None
    except MemoryError:
        raise
    except Exception:  # whatever the library raises may quote the file
        raise ValueError(f"{wanted}, got one that is empty or cannot be read") from None
    names = rows.iloc[0].str.strip()
    if names.duplicated().any():
        raise ValueError(f"{wanted}, got {', '.join(sorted(names[names.duplicated()].unique()))} twice")
    return rows[1:].reset_index(drop=True).set_axis(names.to_list(), axis=1)


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
