"""Tables beside those of a live run: kept by a run, recorded at full scale.

A recorded result is a CSV and the JSON that says where it comes from; it is shown only if the CSV is the recorded one
to the byte. Readers see a recorded set of tables whole, before or after it is replaced, also if the replacement was
cut off. Replacing it belongs to `helpers.book.record`.
"""

import fcntl
import hashlib
import io
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths
from helpers.book import strict_yaml
from helpers.validation import check_choice

_PROVENANCE = {"chapter", "parameters", "date", "seconds", "sha256"}  # what the JSON beside a table says at least


def keep(frame: pd.DataFrame, name: str) -> None:
    """Leave a chapter's result in the folder of the run as `NAME.csv`, in full precision.

    Does nothing in a plain session: only `dpbook run` and `dpbook record` name a folder (`$DPBOOK_RUN_FOLDER`).

    Raises
    ------
    ValueError
        A name that is not made of letters, digits, `_`, `-` and, for the names of tables, `.`; or that of a table of
        the reader's own, which is linked into the folder and would be written over.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ValueError(f"name must be made of letters, digits, _, - and ., got {name!r}")
    folder = os.environ.get("DPBOOK_RUN_FOLDER")
    if folder:
        file = Path(folder) / f"{name}.csv"
        # A linked table is the reader's own; writing here would write through the link.
        if file.is_symlink():
            raise ValueError(f"name must not be that of the linked table {file.name!r}")
        frame.to_csv(file, index=False)


def recorded_names(pattern: str = "*") -> list[str]:
    """Names of the recorded results that match a pattern such as `oversampling-*`, sorted."""
    if not paths.RESULTS.is_dir():
        return []
    with locked():
        files = {file.stem for folder in (paths.RESULTS, pending()) for file in folder.glob("*.json")}
    return sorted(name for name in files if fnmatchcase(name, pattern))


def recorded(name: str) -> tuple[pd.DataFrame, str]:
    """A recorded full-scale result and the line that labels it.

    Parameters
    ----------
    name : str
        A table that `dpbook record` left in `results/`.

    Returns
    -------
    frame : DataFrame
    label : str
        Date, named set and cost of the recorded run; see `label`.

    Raises
    ------
    ValueError
        No such result (the message lists those there are), or a CSV that is not the recorded one.
    """
    check_choice("name", name, recorded_names())
    content, provenance = read(name)
    return pd.read_csv(io.BytesIO(content)), label(provenance)


def read(name: str) -> tuple[bytes, dict[str, Any]]:
    """The CSV and the provenance of a recorded result.

    Raises
    ------
    ValueError
        One of the two files is missing, or is not as it was recorded.
    """
    advice = "restore the file or record it again"
    try:
        with locked():
            content, text = whereabouts(f"{name}.csv").read_bytes(), whereabouts(f"{name}.json").read_bytes()
    except OSError as error:
        raise ValueError(f"results/{name} must be a CSV and a JSON, got {error.strerror}: {advice}") from None
    try:
        provenance = json.loads(text)
        missing = _PROVENANCE - provenance.keys()
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"results/{name}.json must be as it was recorded, got {type(error).__name__}: {advice}"
        ) from None
    if missing:
        raise ValueError(f"results/{name}.json must have {', '.join(sorted(missing))}, got a file without: {advice}")
    found = hashlib.sha256(content).hexdigest()
    if found != provenance["sha256"]:
        raise ValueError(
            f"results/{name}.csv must be as it was recorded, with SHA-256 {provenance['sha256']}, got {found}: {advice}"
        )
    return content, provenance


def label(provenance: dict[str, Any]) -> str:
    """The line that labels a recorded result: when, with which named set of `params/CHAPTER.yaml`, at what cost.

    All else, the parameters too, stands in the JSON beside the table.

    >>> entry = {"chapter": "smote", "parameters": {"n_seeds": 7}, "date": "2026-11-22", "seconds": 1860}
    >>> label(entry)
    'recorded 2026-11-22 with parameters of its own, 31 min'
    """
    file = paths.PARAMS / f"{provenance['chapter']}.yaml"
    sets = (file.is_file() and strict_yaml.load(file)) or {}
    named = [f"set {name}" for name, values in sets.items() if values == provenance["parameters"]]
    seconds = provenance["seconds"]
    cost = (
        f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    )
    where = " on a GPU" if provenance.get("machine", "").startswith("gpu") else ""
    return f"recorded {provenance['date']} with {[*named, 'parameters of its own'][0]}, {cost}{where}"


# A set of tables is replaced by one renaming of a folder, after which its files are moved one by one. The two functions
# below read the same before, while and after they are moved.


def pending() -> Path:
    """The folder that holds what is left to move of the set recorded last; seldom there."""
    return paths.RESULTS / ".new"


def whereabouts(file: str) -> Path:
    """Where a file of `results/` is, for use under `locked`."""
    return newer if (newer := pending() / file).exists() else paths.RESULTS / file


@contextmanager
def locked(*, alone: bool = False) -> Iterator[None]:
    """Hold `results/` for reading, together with other readers, or `alone` for writing; a killed process lets go.

    What holds it already may ask again, for reading.
    """
    if getattr(_mine, "held", False):
        yield
        return
    # The folder itself is locked: that needs no file beside the results, and no right to write.
    folder = os.open(paths.RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        _mine.held = True
        yield
    finally:
        _mine.held = False
        os.close(folder)


_mine = threading.local()
