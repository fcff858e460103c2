"""Finding, checking and fetching the files that data sets are read from.

A file is taken from the first folder of `helpers.paths.data_folders` that has it, and its SHA-256 is compared with the
one written in the code before a byte of it is parsed. Without the file and without a network the answer comes within a
few seconds and says what to do. What the files contain is left to the modules that read them.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from helpers import paths

PROBE_SECONDS = 3.0
_Answer = TypeVar("_Answer")


class DatasetUnavailable(RuntimeError):
    """The data set is not on this machine and cannot be fetched now; the message names the ways to get it."""

    def __init__(self, name: str, files: Mapping[str, str | None], publisher: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        wanted = ", ".join(files)
        super().__init__(
            f"data set {name!r} is not on this machine ({reason}). Three ways to get it: "
            f"(1) set the environment variable DPBOOK_DATA to a folder that holds {wanted}; "
            f"(2) place such a folder at ../shared/data beside the project, or its files in the cache folder "
            f"($XDG_CACHE_HOME/dpbook or ~/.cache/dpbook); (3) {publisher}"
        )


class ChecksumMismatch(RuntimeError):
    """A data file is not the one the book was written with."""


@cache
def _digest(path: Path, _size: int, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, sha256: str) -> None:
    """Compare a file with its known SHA-256; an unchanged file is read once per process.

    Raises
    ------
    ChecksumMismatch
        Names the file, what was expected and what was found.
    """
    status = path.stat()
    found = _digest(path, status.st_size, status.st_mtime_ns)
    if found != sha256:
        raise ChecksumMismatch(
            f"{path.parent.name}/{path.name} has SHA-256 {found}, expected {sha256}: "
            "the file is damaged or another version"
        )


def find(files: Mapping[str, str | None]) -> Path | None:
    """The first data folder that has all `files` (relative path -> SHA-256 or None where none is known)."""
    for folder in paths.data_folders():
        if all((folder / relative).is_file() for relative in files):
            return folder
    return None


def find_verified(files: Mapping[str, str | None]) -> Path | None:
    """As `find`, every file with a known SHA-256 checked.

    Raises
    ------
    ChecksumMismatch
        A file is there but is not the expected one. Later folders are not tried: a damaged file should be noticed.
    """
    folder = find(files)
    if folder is not None:
        for relative, sha256 in files.items():
            if sha256 is not None:
                verify(folder / relative, sha256)
    return folder


def label(folder: Path | None) -> str | None:
    """A name for a data folder that does not show a machine's paths: "DPBOOK_DATA", "cache" or "shared"."""
    if folder is None:
        return None
    override = os.environ.get("DPBOOK_DATA")
    if override and folder == Path(override).expanduser():
        return "DPBOOK_DATA"
    return "cache" if folder == paths.data_cache() else "shared"


def _probe(url: str, outcome: list[Exception]) -> None:
    try:
        urlopen(Request(url, method="HEAD"), timeout=PROBE_SECONDS).close()
    except HTTPError:
        pass  # the host answered, which is all that is asked
    except (OSError, HTTPException) as error:
        outcome.append(error)


def _offline_reason(url: str) -> str | None:
    """Why the publisher cannot be reached, or None.

    The probe runs in a thread because a name look-up has no timeout of its own and can take half a minute offline.
    """
    outcome: list[Exception] = []
    probe = threading.Thread(target=_probe, args=(url, outcome), daemon=True)
    probe.start()
    probe.join(PROBE_SECONDS + 1)
    if probe.is_alive():
        return f"no answer from {url} within {PROBE_SECONDS:g} seconds"
    return f"no connection to {url}: {outcome[0]}" if outcome else None


def fetch(
    name: str, files: Mapping[str, str | None], url: str, client: str, download: Callable[[], _Answer]
) -> _Answer:
    """Run a publisher's client, or say quickly that there is no network.

    Parameters
    ----------
    url : str
        Host that must answer before the client is started; the clients themselves wait for minutes.
    client : str
        What `download` calls, for the message.

    Raises
    ------
    DatasetUnavailable
        No connection, or the client failed on the way.
    """
    advice = f"get online and load it again, {client} then downloads it"
    if reason := _offline_reason(url):
        raise DatasetUnavailable(name, files, advice, reason)
    try:
        return download()
    except (OSError, HTTPException) as error:
        raise DatasetUnavailable(name, files, advice, f"{client} failed: {error}") from error
