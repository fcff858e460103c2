"""Finding, checking and fetching the files that data sets are read from.

A file is taken from the first folder of `helpers.paths.data_folders` that has it, and its SHA-256 is compared with the
one written in the code before a byte of it is parsed. Downloads go through pooch into the user's cache. Without the
file and without a network the answer comes within a few seconds and says what to do. What the files contain is left to
the modules that read them, which state its shape.
"""

import os
import tarfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar

import numpy as np
import requests
from numpy.typing import NDArray

from helpers import paths

with warnings.catch_warnings():  # of tqdm, in a notebook without ipywidgets: no progress bar is ever shown here
    warnings.filterwarnings("ignore", message="IProgress not found")
    import pooch

PROBE_SECONDS = 3.0
pooch.get_logger().setLevel("WARNING")  # no "Downloading ..." in the stored output of a chapter
_Answer = TypeVar("_Answer")


class DatasetUnavailable(RuntimeError):
    """The data set is not on this machine and cannot be fetched now; the message names the ways to get it."""

    def __init__(self, name: str, files: Mapping[str, str | None], publisher: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"data set {name!r} is not on this machine ({reason}). Three ways to get it: "
            f"(1) set the environment variable DPBOOK_DATA to a folder that holds {', '.join(files)}; "
            f"(2) place such a folder at ../shared/data beside the project, or its files in the cache folder "
            f"($XDG_CACHE_HOME/dpbook or ~/.cache/dpbook); (3) {publisher}"
        )


class UnexpectedData(RuntimeError):
    """What was found or served is not the data set that the book describes."""


class ChecksumMismatch(UnexpectedData):
    """A data file is not the one the book was written with."""


def verify(path: Path, sha256: str) -> None:
    """Compare a file with its known SHA-256.

    Raises
    ------
    ChecksumMismatch
        Names the file, what was expected and what was found.
    """
    found = pooch.file_hash(str(path), alg="sha256")
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
    for relative, sha256 in files.items():
        if folder is not None and sha256 is not None:
            verify(folder / relative, sha256)
    return folder


def label(folder: Path) -> str:
    """A name for a data folder that does not show a machine's paths: "DPBOOK_DATA", "cache" or "shared"."""
    if folder == paths.data_cache():
        return "cache"
    return "DPBOOK_DATA" if os.environ.get("DPBOOK_DATA") and folder == paths.data_folders()[0] else "shared"


# -------------------------------------------------------------------------------------------------------- downloads


def _offline_reason(url: str) -> str | None:
    """Why the publisher cannot be reached, or None.

    The probe runs in a thread because a name look-up has no timeout of its own and can take half a minute offline.
    """
    found: list[Exception] = []

    def ask() -> None:
        try:
            requests.head(url, timeout=PROBE_SECONDS)  # any answer will do, that of an error too
        except OSError as error:
            found.append(error)

    probe = threading.Thread(target=ask, daemon=True)
    probe.start()
    probe.join(PROBE_SECONDS + 1)
    if probe.is_alive():
        return f"no answer from {url} within {PROBE_SECONDS:g} seconds"
    return f"no connection to {url}: {found[0]}" if found else None


def fetch(
    name: str, files: Mapping[str, str | None], url: str, client: str, download: Callable[[], _Answer]
) -> _Answer:
    """Run a client, or say quickly that there is no network.

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


def retrieve(url: str, relative: str, *, sha256: str | None) -> Path:
    """Download one file into the cache unless it is there; the file appears only when it is complete and checked.

    Returns
    -------
    Path
        The cache folder, below which it is `relative`.

    Raises
    ------
    ChecksumMismatch
        What was served has another SHA-256.
    OSError
        The connection fails.
    """
    folder = paths.data_cache()
    target = folder / relative
    try:
        pooch.retrieve(url, sha256, fname=target.name, path=target.parent)
    except ValueError as error:  # pooch's word for another hash
        raise ChecksumMismatch(f"{url} does not serve the expected file: {error}") from error
    return folder


def extract_member(archive: Path, target: Path) -> None:
    """Take the plain file of the target's name out of a tar archive, wherever it lies; nothing else is unpacked.

    Raises
    ------
    UnexpectedData
        No such member, or one that is no plain file; or the archive cannot be read.
    """
    try:
        with tarfile.open(archive) as tar:
            for info in tar:
                if Path(info.name).name == target.name and info.isfile() and (content := tar.extractfile(info)):
                    # Under another name first, so that an interrupted copy is never taken for the file.
                    part = target.with_name(target.name + ".part")
                    part.write_bytes(content.read())
                    part.replace(target)
                    return
    except (tarfile.TarError, EOFError) as error:
        raise UnexpectedData(f"{archive.name} cannot be read: {error}") from error
    raise UnexpectedData(f"{archive.name} has no file {target.name!r}")


def save_whole(file: Path, array: NDArray) -> None:
    """Write an .npy file that appears under its name only when it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    with open(part, "wb") as target:
        np.save(target, array, allow_pickle=False)
    part.replace(file)


def read_npz(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray]:
    """Numeric arrays of stated shapes.

    Raises
    ------
    UnexpectedData
        No such array, another shape, not numbers, or not an npz file.
    """
    try:
        with np.load(path) as arrays:
            found = {key: arrays[key] for key in shapes}
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise UnexpectedData(f"{path.name} cannot be read: {error}") from error
    for key, shape in shapes.items():
        array = found[key]
        if array.shape != shape or array.dtype.kind not in "iufb":
            raise UnexpectedData(
                f"{path.name} must hold numbers of shape {shape} as {key!r}, got {array.dtype} of shape {array.shape}"
            )
    return found
