"""Finding, checking and fetching the files that data sets are read from.

A file is taken from the first folder of `helpers.paths.data_folders` that has it, and its SHA-256 is compared with the
one written in the code before a byte of it is parsed. Downloads go through pooch into the user's cache, never beyond
a stated size. Without the file and without a network the answer comes within a few seconds and says what to do. What
the files contain is left to the modules that read them, which state its shape before it is unpacked.
"""

import os
import tarfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import requests
from numpy.typing import NDArray

from helpers import paths

with warnings.catch_warnings():  # of tqdm, in a notebook without ipywidgets: no progress bar is ever shown here
    warnings.filterwarnings("ignore", message="IProgress not found")
    import pooch

PROBE_SECONDS = 3.0
READ_SECONDS = 30.0
_MEBIBYTE = 2**20
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


@cache
def _digest(path: Path, _size: int, _changed: int) -> str:
    return pooch.file_hash(str(path), alg="sha256")


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


def label(folder: Path) -> str:
    """A name for a data folder that does not show a machine's paths: "DPBOOK_DATA", "cache" or "shared"."""
    override = os.environ.get("DPBOOK_DATA")
    if override and folder == Path(override).expanduser():
        return "DPBOOK_DATA"
    return "cache" if folder == paths.data_cache() else "shared"


# -------------------------------------------------------------------------------------------------------- downloads


def _offline_reason(url: str) -> str | None:
    """Why the publisher cannot be reached, or None.

    The probe runs in a thread because a name look-up has no timeout of its own and can take half a minute offline.
    """
    found: list[Exception] = []

    def ask() -> None:
        try:
            urlopen(Request(url, method="HEAD"), timeout=PROBE_SECONDS).close()
        except HTTPError:
            pass  # the host answered, which is all that is asked
        except (OSError, HTTPException) as error:
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


def retrieve(url: str, relative: str, *, sha256: str | None, max_bytes: int) -> Path:
    """Download one file into the cache unless it is there; the file appears only when it is complete and checked.

    Raises
    ------
    ChecksumMismatch
        What was served has another SHA-256.
    UnexpectedData
        More than `max_bytes` are served.
    OSError
        The connection fails.
    """
    target = paths.data_cache() / relative

    def stream(url: str, output: Any, _pooch: Any) -> None:
        with requests.get(url, stream=True, timeout=(PROBE_SECONDS, READ_SECONDS)) as answer:
            answer.raise_for_status()
            written = 0
            with open(output, "wb") as file:
                for chunk in answer.iter_content(_MEBIBYTE):
                    written += len(chunk)
                    if written > max_bytes:
                        raise UnexpectedData(f"{url} serves more than {max_bytes:,} bytes, the most that was expected")
                    file.write(chunk)

    try:
        pooch.retrieve(url, sha256, fname=target.name, path=target.parent, downloader=stream)
    except ValueError as error:  # pooch's word for another hash
        raise ChecksumMismatch(f"{url} does not serve the expected file: {error}") from error
    return target


def extract_member(archive: Path, target: Path, *, max_bytes: int) -> None:
    """Take the plain file of the target's name out of a tar archive, wherever it lies; nothing else is unpacked.

    Raises
    ------
    UnexpectedData
        No such member, one that is no plain file, or larger than `max_bytes`; or the archive cannot be read.
    """
    try:
        with tarfile.open(archive) as tar:
            for info in tar:
                if Path(info.name).name == target.name and info.isfile() and (content := tar.extractfile(info)):
                    if info.size > max_bytes:
                        raise UnexpectedData(
                            f"{target.name} takes {info.size:,} bytes, at most {max_bytes:,} were expected"
                        )
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


# ------------------------------------------------------------------------------------------- what the files hold


def read_npz(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray]:
    """Numeric arrays of stated shapes; headers and sizes are compared with them before anything is unpacked.

    Raises
    ------
    UnexpectedData
        No such array, another shape, not numbers, more bytes than the shape needs, or not an npz file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for key, shape in shapes.items():
                _check_npy(archive, key, shape, path.name)
        with np.load(path) as arrays:
            return {key: arrays[key] for key in shapes}
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise UnexpectedData(f"{path.name} cannot be read: {error}") from error


def _check_npy(archive: zipfile.ZipFile, key: str, shape: tuple[int, ...], name: str) -> None:
    with archive.open(f"{key}.npy") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found, _, dtype = read_header(file)
        size = file.tell() + int(np.prod(found, dtype=object)) * dtype.itemsize
    if found != shape or dtype.kind not in "iufb":
        raise UnexpectedData(f"{name} must hold numbers of shape {shape} as {key!r}, got {dtype} of shape {found}")
    if archive.getinfo(f"{key}.npy").file_size != size:
        raise UnexpectedData(f"{name} states another size of {key!r} than its shape {shape} needs")
