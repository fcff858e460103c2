"""Keeping a run's tables in `results/`, all of them or none, with where they come from.

A process that is killed at any point, a full disk, or two processes at once leave either the set of tables that was
there or the new one: the set is written to a folder of its own, and one renaming of that folder makes it the recorded
one. Readers see it at that moment (`helpers.book.results`); moving its files to their places afterwards changes
nothing, and is done by the next recording if this one is stopped. What a run computes is left to the chapter.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from helpers import paths
from helpers.book import freshness, results
from helpers.book.chapters import Chapter, ChapterError

# What recorded tables are made of; results and the pages that show them are not.
_MADE_OF = ("_toc.yml", "benchmarks", "book", "checks", "constraints.txt", "helpers", "params", "reference")
_ARITHMETIC = "arithmetic.json"  # in the folder of a run


def origin(name: str, values: dict[str, Any], parts: freshness.Parts) -> dict[str, Any]:
    """Where a run of a chapter with `values` comes from, taken before it starts.

    A run adds `seconds`, `jobs`, and the `arithmetic` of its kernel; tables recorded before that was noted lack it.

    Parameters
    ----------
    name : str
        Of the chapter that the tables belong to.
    values : dict
        Parameters of the run.
    parts : dict
        A digest of each part of the code that the tables depend on.

    Returns
    -------
    dict
        `chapter`, `parameters`, `commit` (of git, None outside a repository) and `dirty` (see `uncommitted`), `parts`,
        `date`, `machine` ("cpu", or "gpu" with its name where the run can load torch and torch sees one), `cores`,
        `python`.
    """
    commit = head()
    return {
        "chapter": name,
        "parameters": values,
        "commit": commit,
        "dirty": commit and bool(uncommitted()),
        "parts": parts,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": _machine(parts),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def arithmetic() -> dict[str, Any]:
    """What the last digits of this process's results can depend on besides code, versions and processor.

    Returns
    -------
    dict
        `blas`: the libraries of linear algebra, each with its version. `threads`: the largest number of threads of each
        kind of pool ("openblas", "openmp"); trials of `experiments.run` have one, whatever stands here.
        `flushes_denormals`: whether numbers below 2^-1022 are taken for 0 (as after `torch.set_flush_denormal(True)`).
    """
    pools = threadpool_info()
    threads: dict[str, int] = {}
    for pool in pools:
        threads[pool["internal_api"]] = max(pool["num_threads"], threads.get(pool["internal_api"], 0))
    return {
        "blas": sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools if pool["user_api"] == "blas"}),
        "threads": dict(sorted(threads.items())),
        # A state of the processor, for which torch has a setter and no getter: seen from what it does to a number.
        "flushes_denormals": sys.float_info.min / 2 == 0,
    }


def note_arithmetic() -> None:
    """Leave this kernel's `arithmetic` in the folder of its run, for the process that records; called by a run."""
    folder = Path(os.environ["DPBOOK_RUN_FOLDER"])
    (folder / _ARITHMETIC).write_text(json.dumps(arithmetic(), indent=2) + "\n", encoding="utf-8")


def noted_arithmetic(folder: Path) -> dict[str, Any]:
    """What the kernel of the run in this folder has noted."""
    return json.loads((folder / _ARITHMETIC).read_text(encoding="utf-8"))


def head() -> str | None:
    """The commit that the project stands on; None outside a repository."""
    return _git("rev-parse", "HEAD")


def uncommitted() -> list[str]:
    """Files that tables are made of and that are not as the last commit has them, new ones among them.

    Raises
    ------
    ChapterError
        There is no git or no repository.
    """
    answer = _git("status", "--porcelain", "--untracked-files=all", "--", *_MADE_OF)
    if answer is None:
        raise ChapterError("the project must be a git repository, so that a table can name its commit, got none")
    return [line[2:].strip() for line in answer.splitlines()]


def refuse_conflicts(chapter: Chapter, values: dict[str, Any], tables: Collection[str]) -> None:
    """Raise where recorded tables would be replaced by those of another chapter or other parameters.

    Parameters
    ----------
    tables : collection of str
        Names of the tables that the run keeps, or patterns of them.

    Raises
    ------
    ChapterError
        Names the tables and what they were recorded with.
    """
    defaults = chapter.defaults
    for name in results.recorded_names():
        if any(fnmatchcase(name, table) for table in tables):
            _, there = results.read(name)
            same = there["chapter"] == chapter.name and defaults | there["parameters"] == defaults | values
            if not same:
                raise ChapterError(
                    f"results/{name} must be recorded again with its own parameters, those of {there['chapter']} with "
                    f"{there['parameters']}, or replaced with --replace, got {chapter.name} with {values}"
                )


def commit(
    chapter: Chapter | None, tables: Sequence[Path], provenance: dict[str, Any], *, replace: bool = False
) -> list[Path]:
    """Make these CSV files the recorded ones, all at once, and return where they are.

    Parameters
    ----------
    tables : sequence of Path
        CSV files of one run; they are copied.
    provenance : dict
        `origin` with `seconds`, `jobs` and `arithmetic`; the SHA-256 of each file is added.
    replace : bool
        Whether tables that were recorded with other parameters may be replaced; for a benchmark, which is no chapter,
        they always may.

    Raises
    ------
    ChapterError
        As `refuse_conflicts`, asked again when no other process is recording.
    OSError
        The disk is full or cannot be written; what was recorded is as it was.
    """
    paths.RESULTS.mkdir(exist_ok=True)
    names = [table.stem for table in tables]
    with results.locked(alone=True):
        _settle()
        staged = paths.RESULTS / ".staged"
        shutil.rmtree(staged, ignore_errors=True)  # of a process that was killed
        if chapter and not replace:
            refuse_conflicts(chapter, provenance["parameters"], names)
        try:
            staged.mkdir()
            for table in tables:
                content = table.read_bytes()
                entry = provenance | {"sha256": hashlib.sha256(content).hexdigest()}
                (staged / table.name).write_bytes(content)
                (staged / f"{table.stem}.json").write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")
            # On the disk before the renaming: after a power cut the new name must not stand for empty files.
            for file in (*staged.iterdir(), staged):
                _sync(file)
            staged.rename(results.pending())  # the moment at which the new set is the recorded one
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        with suppress(OSError):  # readers find the files where they are; the next recording moves them
            _sync(paths.RESULTS)
            _settle()
        return [results.whereabouts(f"{name}.csv") for name in names]


def _settle() -> None:
    """Move what is left of the set recorded last to its place."""
    folder = results.pending()
    if folder.is_dir():
        for file in sorted(folder.iterdir()):
            os.replace(file, paths.RESULTS / file.name)
        folder.rmdir()


def _sync(file: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    opened = os.open(file, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _git(*arguments: str) -> str | None:
    """What git answers about the project's folder; None where there is no git or no repository."""
    with suppress(OSError):
        answer = subprocess.run(["git", "-C", paths.ROOT, *arguments], capture_output=True, text=True, check=False)
        return answer.stdout.rstrip() if answer.returncode == 0 else None
    return None


def _machine(parts: freshness.Parts) -> str:
    if "constraints.txt: torch" in parts:
        import torch

        if torch.cuda.is_available():
            return f"gpu ({torch.cuda.get_device_name()})"
    return "cpu"
