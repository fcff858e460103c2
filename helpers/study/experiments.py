"""Grids of independent trials: a plain loop in a session, parallel and resumable under `dpbook run --jobs N`.

A finished trial is written to a SQLite store before its result is used, so a run that is killed at any moment and
started again computes only what is missing and returns the same table to the bit. The store is keyed by everything a
result depends on; what a trial computes, and that it draws its randomness from its cell alone, is left to the caller.

The key of a trial is a hash of

* the parts of the chapter that its tables depend on (code cells, reached modules, printed tables, pins) and all its
  parameter values,
* Python, the machine's architecture and the installed distributions,
* the experiment's name, the values the trial closes over (followed through functions of the notebook) and the cell.

Data that a trial loads itself is covered by the checksums in `helpers.data`, and by nothing where there is none.
"""

import hashlib
import importlib
import json
import os
import pickle
import platform
import sqlite3
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dis import get_instructions
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from joblib.hashing import NumpyHasher
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from helpers import sources

_VARIABLE = "DPBOOK_EXPERIMENTS"  # how a session's settings reach the kernel
_CACHED = type(cache(len))  # functions wrapped by functools.cache


class TrialError(RuntimeError):
    """A trial raised, or returned something that is not a table of scalars; the message names its cell."""

    def __reduce__(self):
        # A cause does not survive the way back from a worker process; its text does.
        return _with_note, (str(self), "".join(traceback.format_exception(self.__cause__)))


class SessionError(RuntimeError):
    """A session was opened inside another one."""


def _with_note(message: str, note: str) -> TrialError:
    error = TrialError(message)
    error.add_note(note)
    return error


def run(trial: Callable[..., Any], cells: Sequence[Mapping[str, Any]], *, name: str) -> pd.DataFrame:
    """Call `trial(**cell)` for every cell and collect the rows.

    Parameters
    ----------
    trial : callable
        Returns a dict or a list of dicts of scalars (numbers, text, booleans, None; NumPy scalars become Python's).
        Runs on one thread, possibly in another process: its result may depend only on the cell and on values that do
        not change, so a random generator is made inside, from a seed in the cell.
    cells : sequence of dict
        Scalars by name; no two cells alike.
    name : str
        What the progress bar and errors call the experiment.

    Returns
    -------
    DataFrame
        One row a dict returned, in the order of the cells; the cells' columns first. Floats are exact.

    Raises
    ------
    ValueError
        No cells, two alike, values that are not scalars, or a closed-over random generator.
    TrialError
        A trial failed. Under `--jobs`, trials already under way are still finished and kept.
    RuntimeError
        Under `--jobs`: this process or another one loaded helper modules that were edited since the run began.

    >>> run(lambda n, seed: {"square": n * n}, [{"n": 2, "seed": 0}, {"n": 3, "seed": 0}], name="squares")
       n  seed  square
    0  2     0       4
    1  3     0       9
    """
    cells = _checked(cells)
    closed_over = _digest_of(trial)
    settings = json.loads(os.environ.get(_VARIABLE, "null")) or {
        "jobs": 1,
        "modules": [],
        "code": sources.modules_digest([]),
    }
    _freeze(tuple(settings["modules"]), settings["code"])
    keys = [_hash([settings.get("identity"), name, closed_over, cell]) for cell in cells]
    with ExitStack() as stack:
        store = stack.enter_context(closing(_Store(settings))) if "store" in settings else None
        found = store.found(keys) if store else {}
        missing = [index for index, key in enumerate(keys) if key not in found]
        bar = stack.enter_context(_progress(name, len(cells), len(found), settings.get("terminal")))
        failures: list[TrialError] = []
        for index, outcome in _outcomes(trial, cells, missing, failures, settings):
            if isinstance(outcome, TrialError):
                failures.append(outcome)
                continue
            found[keys[index]] = outcome
            if store:
                store.put(keys[index], outcome)
            bar.update()
        for failure in failures:
            raise TrialError(f"experiment {name!r}, {failure}") from failure.__cause__ or failure
    return _frame(cells, [json.loads(found[key]) for key in keys])


@contextmanager
def session(
    jobs: int, store: Path, identity: Any, modules: Sequence[str], code: str, scheduler: str | None = None
) -> Iterator[float]:
    """Let `run` use processes and a store, in kernels started inside the block.

    Parameters
    ----------
    jobs : int
        Number of processes; 1 keeps the store and stays in the kernel.
    store : Path
        SQLite file, created if absent.
    identity : JSON value
        Everything the results depend on that is not the trial's own.
    modules : sequence of str
        Modules of the project that a trial may use.
    code : str
        `sources.modules_digest(modules)`, taken before `identity` was; a process that finds other code refuses to work.
    scheduler : str, optional
        Address of a Dask scheduler whose workers take the place of the processes.

    Yields
    ------
    float
        Seconds that earlier, interrupted runs with this identity took.

    Raises
    ------
    SessionError
        Another session is open here, whose trials would go into this store.
    sqlite3.OperationalError
        The store is locked by another program for a minute, or cannot be written.
    """
    if _VARIABLE in os.environ:
        raise SessionError(f"trials already go to {json.loads(os.environ[_VARIABLE])['store']}")
    software = sorted({f"{entry.name}=={entry.version}" for entry in metadata.distributions()})
    settings = {
        "jobs": jobs,
        "store": str(store),
        "identity": _hash([identity, platform.python_version(), platform.machine(), software]),
        "modules": list(modules),
        "code": code,
        "started": time.time(),
        "scheduler": scheduler,
        "terminal": os.ttyname(sys.stderr.fileno()) if sys.stderr.isatty() else None,
    }
    store.parent.mkdir(parents=True, exist_ok=True)
    with closing(_Store(settings)) as opened:
        earlier = opened.seconds()
    os.environ[_VARIABLE] = json.dumps(settings)
    try:
        yield earlier
    finally:
        del os.environ[_VARIABLE]


# Cells and rows: JSON in both directions and in every kind of session, so that a stored result is the computed one.


def _checked(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    plain = [json.loads(_encoded(cell, "a cell")) for cell in cells]
    if not plain:
        raise ValueError("cells must be a non-empty sequence of dicts, got none")
    seen = set()
    for cell in plain:
        key = _hash(cell)
        if key in seen:
            raise ValueError(f"cells must be different from one another, got {cell} twice")
        seen.add(key)
    return plain


def _encoded(row: Any, what: str) -> str:
    if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
        raise ValueError(f"{what} must be a dict with text keys, got {row!r}")
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in row.items()}
    for key, value in plain.items():
        if not (value is None or isinstance(value, str | bool | int | float)):
            raise ValueError(f"{what} must hold scalars, got {key}={value!r}")
    return json.dumps(plain)


def _frame(cells: list[dict], rows: list[list[dict]]) -> pd.DataFrame:
    records = [cell | row for cell, several in zip(cells, rows, strict=True) for row in several]
    columns = dict.fromkeys(key for part in (cells, records) for entry in part for key in entry)
    return pd.DataFrame(records, columns=list(columns))


# Trials


def _outcomes(trial, cells: list[dict], missing: list[int], failures: list, settings: dict) -> Iterator:
    """Pairs (index, rows as JSON or TrialError) as they finish; no trial is begun once there is a failure."""

    def tasks():
        for index in missing:
            if failures:
                return
            yield joblib.delayed(_outcome)(index, trial, cells[index], settings["modules"], settings["code"])

    # Copy-on-write: large closed-over arrays reach workers as memory maps, and compiled code may want them writable.
    with _backend(settings.get("scheduler")):
        parallel = joblib.Parallel(settings["jobs"], return_as="generator_unordered", batch_size=1, mmap_mode="c")
        with closing(parallel(tasks())) as finished:
            yield from finished


@contextmanager
def _backend(scheduler: str | None) -> Iterator[None]:
    if scheduler is None:
        yield
        return
    from distributed import Client  # of the extra "cluster"

    with Client(scheduler), joblib.parallel_config(backend="dask"):
        yield


def _outcome(index: int, trial, cell: dict, modules: list[str], code: str) -> tuple[int, str | TrialError]:
    _freeze(tuple(modules), code)
    try:
        # One thread everywhere: sums in another order would differ in the last bits.
        with threadpool_limits(1):
            returned = trial(**cell)
        rows = [returned] if isinstance(returned, Mapping) else list(returned)
        clash = {key for row in rows for key in row if key in cell}
        if clash:
            raise ValueError(f"a trial must not return names of its cell, got {sorted(clash)}")
        return index, "[" + ", ".join(_encoded(row, "a row") for row in rows) + "]"
    except Exception as error:
        failure = TrialError(f"cell {cell}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        return index, failure


@cache
def _freeze(modules: tuple[str, ...], code: str) -> None:
    """Load all code a trial may use and make sure that it is the code the store is keyed by.

    Workers start later than the run, some much later; once per process is enough, as loaded code stays as it is.
    """
    for name in modules:
        importlib.import_module(name)
    if sources.modules_digest(modules) != code:
        raise RuntimeError("helper modules were edited while the chapter runs; start it again")


@contextmanager
def _progress(name: str, total: int, done: int, terminal: str | None) -> Iterator[tqdm]:
    """A bar on the terminal of `dpbook`, on one's own, or in JupyterLab; nothing in notebooks that are executed."""
    # Only a Jupyter server names the session; papermill, nbconvert and nbval do not.
    watched = sys.stderr.isatty() or ("JPY_SESSION_NAME" in os.environ and "DPBOOK_RUN_FOLDER" not in os.environ)
    with (
        open(terminal, "w") if terminal else nullcontext() as file,
        tqdm(total=total, initial=done, desc=name, leave=False, file=file, disable=not (file or watched)) as bar,
    ):
        yield bar


# Keys


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest_of(trial: Callable) -> str:
    try:
        return _ValueHasher("sha1").hash(trial)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"trial must be a function of picklable values, got one that is not: {error}") from error


class _ValueHasher(NumpyHasher):
    """joblib's hash, with functions and classes of a notebook taken by what they are instead of by their names.

    Two functions differ when their code does, or a value that they read from outside: a captured variable, a default,
    a global, and so on through the functions that these call.
    """

    def save(self, obj: Any) -> None:
        if isinstance(obj, np.random.Generator | np.random.RandomState):
            raise ValueError(
                "trial must make its generator from a seed in its cell, got one that uses a shared generator"
            )
        if isinstance(obj, types.ModuleType):
            obj = ("module", obj.__name__)
        elif "torch" in sys.modules and isinstance(obj, sys.modules["torch"].Tensor):
            obj = (type(obj), obj.detach().cpu().numpy())  # its pickle differs from process to process
        super().save(obj)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        # The project's modules are covered by the chapter's parts, libraries by their versions.
        if isinstance(obj, _CACHED) and not _is_importable(obj):
            raise ValueError(f"trial must use functions that can be sent to other processes, got the cached {obj}")
        if not isinstance(obj, types.FunctionType | type) or _is_importable(obj):
            return super().save_global(obj, name)
        self.memoize(obj)  # before its values: functions may refer to themselves
        content = _function_content if isinstance(obj, types.FunctionType) else _class_content
        self.save((obj.__qualname__, content(obj)))

    dispatch = NumpyHasher.dispatch | {types.FunctionType: save_global, type: save_global}


def _is_importable(obj: Any) -> bool:
    found = sys.modules.get(obj.__module__)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj and obj.__module__ != "__main__"


def _function_content(function: types.FunctionType) -> tuple:
    names = _global_names(function.__code__)
    outside = {name: function.__globals__[name] for name in names if name in function.__globals__}
    captured = [cell.cell_contents for cell in function.__closure__ or ()]
    return _plain(function.__code__), outside, captured, function.__defaults__, function.__kwdefaults__


def _class_content(cls: type) -> tuple:
    # What Python keeps under other special names describes the class again, partly in ways that cannot be pickled.
    parts = {
        name: getattr(value, "__func__", value)
        for name, value in vars(cls).items()
        if isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc"))
    }
    properties = {name: (value.fget, value.fset) for name, value in parts.items() if isinstance(value, property)}
    return cls.__bases__, parts | properties


def _plain(code: types.CodeType) -> tuple:
    """Bytecode, names and constants, without line numbers and file names, which change with every kernel."""
    constants = [_plain(part) if isinstance(part, types.CodeType) else part for part in code.co_consts]
    return code.co_code, code.co_names, constants


def _global_names(code: types.CodeType) -> set[str]:
    names = {step.argval for step in get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_global_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


# The store


class _Store:
    """Finished trials by key. Every row carries a checksum, every write is its own transaction."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._path, self._settings = Path(settings["store"]), settings
        try:
            self._connection = self._opened()
        except sqlite3.OperationalError:  # locked for a minute, read-only, no space: not damage
            raise
        except sqlite3.DatabaseError as error:
            aside = self._path.with_suffix(f".damaged-{time.time_ns()}")
            self._path.replace(aside)
            warnings.warn(f"{self._path} is damaged ({error}); moved to {aside.name}, starting anew", stacklevel=4)
            self._connection = self._opened()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        try:
            [[state]] = connection.execute("PRAGMA quick_check(1)").fetchall()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS trials (key TEXT PRIMARY KEY, rows TEXT NOT NULL, checksum TEXT NOT NULL,"
                " run TEXT NOT NULL, started REAL NOT NULL, elapsed REAL NOT NULL)"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def found(self, keys: Sequence[str]) -> dict[str, str]:
        wanted = set(keys)
        entries = self._connection.execute("SELECT key, rows, checksum FROM trials WHERE run = ?", [self._run])
        return {key: rows for key, rows, checksum in entries if key in wanted and checksum == _hash([key, rows])}

    def put(self, key: str, rows: str) -> None:
        started = self._settings["started"]
        self._connection.execute(
            "INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?)",
            [key, rows, _hash([key, rows]), self._run, started, time.time() - started],
        )

    def seconds(self) -> float:
        """How long the runs took that left trials here, each up to its last one."""
        legs = "SELECT MAX(elapsed) AS leg FROM trials WHERE run = ? GROUP BY started"
        return self._connection.execute(f"SELECT TOTAL(leg) FROM ({legs})", [self._run]).fetchone()[0]

    def close(self) -> None:
        self._connection.close()

    @property
    def _run(self) -> str:
        return self._settings["identity"]
