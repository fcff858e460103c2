"""Grids of independent trials: a plain loop in a session, parallel and resumable under `dpbook run --jobs N`.

A finished trial is written to a SQLite store before its result is used, so a run that is killed at any moment and
started again computes only what is missing and returns the same table to the bit. The store is keyed by everything a
result depends on; what a trial computes, and that it draws its randomness from its cell alone, is left to the caller.

The key of a trial is a hash of

* the parts of the chapter that its tables depend on (code cells, reached modules, printed tables, pins) and all its
  parameter values,
* Python, the machine's architecture and the installed distributions,
* the experiment's name, the values the trial closes over (followed through functions of the notebook) and the cell.

Data that a trial loads itself is covered by the checksums in `helpers.data.sets`, and by nothing where there is none.
A grid that grows from time to time has `scope="trial"`: its keys have less in the place of the first part (see `run`).

Beside the store, `experiments.txt` says in one line how far a run is, how many of its trials failed and how long the
rest will take. The tracebacks of failed trials are in the store's table `failures`, until they succeed.
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dis import get_instructions
from functools import cache, partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from joblib.hashing import NumpyHasher
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from helpers import sources
from helpers.checks import check_boolean, check_choice

_VARIABLE = "DPBOOK_EXPERIMENTS"  # how a session's settings reach the kernel
_CACHED = type(cache(len))  # functions wrapped by functools.cache
_PAUSE = 5.0  # seconds between two lines of progress


class TrialError(RuntimeError):
    """A trial raised, or returned something that is not a table of scalars; the message names its cell.

    The first note is the traceback, also where the trial ran in another process.
    """

    def __reduce__(self):
        # A cause does not survive the way back from a worker process; its text does.
        return _with_note, (str(self), self.__notes__[0])


class SessionError(RuntimeError):
    """A session was opened inside another one."""


def _with_note(message: str, note: str) -> TrialError:
    error = TrialError(message)
    error.add_note(note)
    return error


def run(
    trial: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    cells: Sequence[Mapping[str, Any]],
    *,
    name: str,
    by: str = "method",
    failures: str = "raise",
    timed: bool = False,
    scope: str = "chapter",
) -> pd.DataFrame:
    """Call `trial(**cell)` for every cell and collect the rows.

    Parameters
    ----------
    trial : callable
        Returns a dict or a list of dicts of scalars (numbers, text, booleans, None; NumPy scalars become Python's).
        Runs on one thread, possibly in another process: its result may depend only on the cell and on values that do
        not change, so a random generator is made inside, from a seed in the cell. A dict holds several: the value of
        `by` says which one a cell is for, and is not passed to it.
    cells : sequence of dict
        Scalars by name; no two cells alike.
    name : str
        What the progress bar and errors call the experiment.
    by : str
        With a dict of trials: the name that all cells have.
    failures : {"raise", "keep"}
        "raise": a trial that fails is an error, at once in a plain loop, and under `--jobs` when all others are
        finished and kept. "keep": it becomes a row, and all are counted in one warning at the end. Under `--jobs` the
        next run tries failed trials again.
    timed : bool
        Whether to add how long each trial took.
    scope : {"chapter", "trial"}
        What a stored result depends on besides versions, name and cell. "chapter": all that the chapter's tables do.
        "trial": the code of `trial` and of what it uses of its own module or notebook, and other modules of the project
        as far as these name them, with all they reach; so it outlives changes elsewhere in the chapter. What is
        found at run time by name (in a registry, say) is not followed: close over it instead.

    Returns
    -------
    DataFrame
        One row a dict returned, in the order of the cells; the cells' columns first. Floats are exact. With
        failures="keep" there is a last column `failure`, None or what was raised; with `timed` a column `seconds`, the
        CPU seconds of the trial's process (a trial read from the store took what it took then).

    Raises
    ------
    ValueError
        No cells, two alike, values that are not scalars, a trial that does not exist, or a closed-over random
        generator.
    TrialError
        A trial failed.
    RuntimeError
        Under `--jobs`: this process or another one loaded helper modules that were edited since the run began.

    >>> run(lambda n, seed: {"square": n * n}, [{"n": 2, "seed": 0}, {"n": 3, "seed": 0}], name="squares")
       n  seed  square
    0  2     0       4
    1  3     0       9
    """
    check_choice("failures", failures, ("raise", "keep"))
    check_boolean("timed", timed)
    check_choice("scope", scope, ("chapter", "trial"))
    cells = _checked(cells)
    if isinstance(trial, Mapping):
        for cell in cells:
            check_choice(by, cell.get(by), list(trial))
    else:
        trial, by = {None: trial}, None
    digests = {label: _digest_of(each, scope == "trial") for label, each in trial.items()}
    settings = json.loads(os.environ.get(_VARIABLE, "null")) or {
        "jobs": 1,
        "modules": [],
        "code": sources.modules_digest([]),
    }
    _freeze(tuple(settings["modules"]), settings["code"])
    keys = []
    for cell in cells:
        closed_over, code = digests[cell.get(by)]
        identity = settings.get("identity") if scope == "chapter" else [settings.get("platform"), code]
        keys.append(_hash([identity, name, closed_over, cell]))
    with ExitStack() as stack:
        store = stack.enter_context(closing(_Store(settings))) if "store" in settings else None
        found = store.found(keys) if store else {}
        finished = {index: found[key] for index, key in enumerate(keys) if key in found}
        missing = [index for index in range(len(cells)) if index not in finished]
        progress = stack.enter_context(_progress(name, cells, finished, settings))
        failed: dict[int, TrialError] = {}
        for index, outcome in _outcomes(trial, by, cells, missing, settings):
            if isinstance(outcome, TrialError):
                failed[index] = outcome
                if store:
                    store.note(keys[index], outcome)
                elif failures == "raise":
                    break
            else:
                finished[index] = outcome
                if store:
                    store.put(keys[index], outcome)
            progress.step(index, outcome)
        if failed:
            _report(name, failed, len(cells), failures)
    return _frame(cells, finished, failed, failures == "keep", timed)


def _report(name: str, failed: Mapping[int, TrialError], total: int, failures: str) -> None:
    first = failed[min(failed)]
    message = f"experiment {name!r}, {first}"
    if len(failed) > 1:
        message += f" (and {len(failed) - 1} more of {total} trials failed)"
    if failures == "keep":
        warnings.warn(message, stacklevel=3)
        return
    error = _with_note(message, first.__notes__[0])
    raise error from first.__cause__  # None where it happened in another process


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
    machine = [platform.python_version(), platform.machine(), software]
    settings = {
        "jobs": jobs,
        "store": str(store),
        "identity": _hash([identity, *machine]),
        "platform": _hash(machine),
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


class _Finished(NamedTuple):
    """What a trial returned, as JSON, and its seconds: by the clock, for forecasts, and of the processor."""

    rows: str
    wall: float
    cpu: float


def _frame(cells: list[dict], finished: dict[int, _Finished], failed: dict, kept: bool, timed: bool) -> pd.DataFrame:
    records = []
    for index, cell in enumerate(cells):
        if index in failed:
            records.append(cell | {"failure": str(failed[index]).partition("}: ")[2]})
            continue
        last = ({"failure": None} if kept else {}) | ({"seconds": finished[index].cpu} if timed else {})
        records += [cell | row | last for row in json.loads(finished[index].rows)]
    columns = dict.fromkeys(key for part in (cells, records) for entry in part for key in entry)
    ends = {"failure": kept, "seconds": timed}
    ordered = [*(key for key in columns if not ends.get(key)), *(key for key, wanted in ends.items() if wanted)]
    return pd.DataFrame(records, columns=ordered)


# Trials


def _outcomes(trials, by: str | None, cells: list[dict], missing: list[int], settings: dict) -> Iterator:
    """Pairs (index, _Finished or TrialError) as they finish."""
    settled = by, settings["modules"], settings["code"]
    tasks = ((index, trials[cells[index].get(by)], cells[index], *settled) for index in missing)
    if scheduler := settings.get("scheduler"):
        yield from _on_cluster(tasks, scheduler, settings["jobs"])
        return
    # Copy-on-write: large closed-over arrays reach workers as memory maps, and compiled code may want them writable.
    parallel = joblib.Parallel(settings["jobs"], return_as="generator_unordered", batch_size=1, mmap_mode="c")
    with closing(parallel(joblib.delayed(_outcome)(*task) for task in tasks)) as finished:
        yield from finished


def _on_cluster(tasks: Iterator[tuple], scheduler: str, jobs: int) -> Iterator:
    """The same from the workers of a Dask cluster, `jobs` at a time; a worker that dies is replaced by another one."""
    from distributed import Client, KilledWorker, as_completed

    # Plain futures: with joblib's Dask backend a lost scheduler was not always an error (joblib 1.6).
    with Client(scheduler) as client:
        cells = {}

        def submit(task):
            future = client.submit(_outcome, *task, pure=False)
            cells[future.key] = task[0], task[2]
            return future

        finished = as_completed([submit(task) for task in islice(tasks, jobs)])
        for future in finished:
            index, cell = cells.pop(future.key)
            try:
                yield future.result()
            except CancelledError as error:
                told = f"the Dask scheduler {scheduler} went away; finished trials are kept, run again"
                raise RuntimeError(told) from error
            except KilledWorker as error:  # and so were those that tried after it
                yield index, _failure(cell, error)
            for task in islice(tasks, 1):
                finished.add(submit(task))


def _outcome(
    index: int, trial, cell: dict, by: str | None, modules: list[str], code: str
) -> tuple[int, _Finished | TrialError]:
    _freeze(tuple(modules), code)
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        # One thread everywhere: sums in another order would differ in the last bits.
        with threadpool_limits(1):
            returned = trial(**{key: value for key, value in cell.items() if key != by})
        rows = [returned] if isinstance(returned, Mapping) else list(returned)
        clash = {key for row in rows for key in row if key in cell}
        if clash:
            raise ValueError(f"a trial must not return names of its cell, got {sorted(clash)}")
        text = "[" + ", ".join(_encoded(row, "a row") for row in rows) + "]"
        return index, _Finished(text, time.perf_counter() - wall, time.process_time() - cpu)
    except Exception as error:
        return index, _failure(cell, error)


def _failure(cell: dict, error: Exception) -> TrialError:
    told = "".join(traceback.format_exception(error))
    failure = _with_note(f"cell {cell}: {type(error).__name__}: {error}", told)
    failure.__cause__ = error
    return failure


@cache
def _freeze(modules: tuple[str, ...], code: str) -> None:
    """Load all code a trial may use and make sure that it is the code the store is keyed by.

    Workers start later than the run, some much later; once per process is enough, as loaded code stays as it is.
    """
    for name in modules:
        importlib.import_module(name)
    if sources.modules_digest(modules) != code:
        raise RuntimeError("helper modules were edited while the chapter runs; start it again")


class _Forecast:
    """How long the trials that are left will take: each as long as those with equal texts in their cells took so far.

    Texts name what is done to what (a method, a data set); numbers, and seeds among them, change the time less.
    """

    def __init__(self, cells: Sequence[Mapping[str, Any]]) -> None:
        self._kinds = [tuple(value for value in cell.values() if isinstance(value, str)) for cell in cells]
        self._left = Counter(self._kinds)
        self._seen: dict[tuple, list[float]] = defaultdict(list)

    def add(self, index: int, seconds: float | None) -> None:
        """Trial `index` is over, after so many seconds (None: it failed)."""
        kind = self._kinds[index]
        self._left[kind] -= 1
        if seconds is not None:
            self._seen[kind].append(seconds)

    def seconds(self) -> float | None:
        """Seconds of one process for all that is left; None before anything is known."""
        if not self._seen:
            return None
        means = {kind: sum(seen) / len(seen) for kind, seen in self._seen.items()}
        typical = sum(means.values()) / len(means)
        return sum(n * means.get(kind, typical) for kind, n in self._left.items())


class _Progress:
    """The state of a run, on a bar and, where there is a store, in a line of text beside it."""

    def __init__(self, name: str, cells: list[dict], finished: dict[int, _Finished], bar: tqdm, settings: dict) -> None:
        self._name, self._total, self._done, self._failed = name, len(cells), len(finished), 0
        self._bar, self._jobs, self._written = bar, settings["jobs"], 0.0
        self._file = Path(settings["store"]).with_suffix(".txt") if "store" in settings else None
        self._forecast = _Forecast(cells)
        for index, outcome in finished.items():
            self._forecast.add(index, outcome.wall)

    def step(self, index: int, outcome: "_Finished | TrialError") -> None:
        failed = isinstance(outcome, TrialError)
        self._done, self._failed = self._done + (not failed), self._failed + failed
        self._forecast.add(index, None if failed else outcome.wall)
        self._bar.set_postfix_str(self._ahead(), refresh=False)
        self._bar.update()
        if time.monotonic() - self._written > _PAUSE:
            self.write()

    def write(self) -> None:
        if self._file is None:
            return
        self._written = time.monotonic()
        line = f"{self._name}: {self._done:,} of {self._total:,} trials done, {self._ahead()}\n"
        self._file.write_text(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def _ahead(self) -> str:
        seconds = self._forecast.seconds()
        left = "time left unknown" if seconds is None else f"{_in_words(seconds / self._jobs)} left"
        return f"{left}, {self._failed} failed" if self._failed else left


def _in_words(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def _progress(name: str, cells: list[dict], finished: dict[int, _Finished], settings: dict) -> Iterator[_Progress]:
    """A bar on the terminal of `dpbook`, on one's own, or in JupyterLab; nothing in notebooks that are executed."""
    terminal = settings.get("terminal")
    # Only a Jupyter server names the session; papermill, nbconvert and nbval do not.
    watched = sys.stderr.isatty() or ("JPY_SESSION_NAME" in os.environ and "DPBOOK_RUN_FOLDER" not in os.environ)
    layout = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
    options = {"total": len(cells), "initial": len(finished), "desc": name, "leave": False, "bar_format": layout}
    with (
        open(terminal, "w") if terminal else nullcontext() as file,
        tqdm(file=file, disable=not (file or watched), **options) as bar,
    ):
        progress = _Progress(name, cells, finished, bar, settings)
        try:
            yield progress
        finally:
            progress.write()


# Keys


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest_of(trial: Callable, follow: bool = False) -> tuple[str, str]:
    """Digest of a trial with what it closes over, and of the project's modules that it names, with all they reach.

    With `follow`, functions and classes of the trial's own module are taken by what they are, as those of a notebook
    always are; without, modules are left to the chapter.
    """
    hasher = _ValueHasher("sha1", (_module_of(trial),) if follow else ())
    try:
        return hasher.hash(trial), _code_digest(hasher.named) if follow else ""
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"trial must be a function of picklable values, got one that is not: {error}") from error


def _module_of(trial: Callable) -> str:
    while isinstance(trial, partial):
        trial = trial.func
    return trial.__module__


def _code_digest(named: set[str]) -> str:
    own = sorted(name for name in named if name.split(".")[0] in sources.PACKAGES)
    return _hash(sources.parts(f"import {name}\n{name}" for name in own))


class _ValueHasher(NumpyHasher):
    """joblib's hash, with functions and classes of a notebook taken by what they are instead of by their names.

    Two functions differ when their code does, or a value that they read from outside: a captured variable, a default,
    a global, and so on through the functions that these call. `named` gathers modules that are taken by their names.
    """

    def __init__(self, hash_name: str, followed: Sequence[str] = ()) -> None:
        super().__init__(hash_name)
        self.named: set[str] = set()
        self._followed = frozenset(followed)

    def save(self, obj: Any) -> None:
        if isinstance(obj, np.random.Generator | np.random.RandomState):
            raise ValueError(
                "trial must make its generator from a seed in its cell, got one that uses a shared generator"
            )
        if isinstance(obj, types.ModuleType):
            self.named.add(obj.__name__)
            obj = ("module", obj.__name__)
        elif "torch" in sys.modules and isinstance(obj, sys.modules["torch"].Tensor):
            obj = (type(obj), obj.detach().cpu().numpy())  # its pickle differs from process to process
        super().save(obj)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        # The project's modules are covered by the chapter's parts, libraries by their versions.
        if isinstance(obj, _CACHED) and not _is_importable(obj):
            raise ValueError(f"trial must use functions that can be sent to other processes, got the cached {obj}")
        if isinstance(obj, _CACHED) and obj.__module__ in self._followed:
            return self.save(("cached", obj.__wrapped__))
        ours = isinstance(obj, types.FunctionType | type)  # a ufunc is neither, and belongs to no module
        if not ours or (_is_importable(obj) and obj.__module__ not in self._followed):
            self.named.add(getattr(obj, "__module__", None) or "")
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
            columns = [entry[1] for entry in connection.execute("PRAGMA table_info(trials)")]
            if columns and "cpu" not in columns:  # of an earlier engine, and so under keys that are asked for no more
                connection.execute("DROP TABLE trials")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS trials (key TEXT PRIMARY KEY, rows TEXT NOT NULL, wall REAL NOT NULL,"
                " cpu REAL NOT NULL, checksum TEXT NOT NULL, run TEXT NOT NULL, started REAL NOT NULL,"
                " elapsed REAL NOT NULL)"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS failures (key TEXT PRIMARY KEY, message TEXT NOT NULL,"
                " traceback TEXT NOT NULL, run TEXT NOT NULL)"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def found(self, keys: Sequence[str]) -> dict[str, _Finished]:
        wanted = set(keys)
        entries = self._connection.execute("SELECT key, checksum, rows, wall, cpu FROM trials")
        return {
            key: _Finished(*values)
            for key, checksum, *values in entries
            if key in wanted and checksum == _hash([key, *values])
        }

    def put(self, key: str, outcome: _Finished) -> None:
        started = self._settings["started"]
        entry = [key, *outcome, _hash([key, *outcome]), self._run, started, time.time() - started]
        self._connection.execute("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?)", entry)
        self._connection.execute("DELETE FROM failures WHERE key = ?", [key])

    def note(self, key: str, failure: TrialError) -> None:
        """Keep why a trial failed."""
        entry = [key, str(failure), failure.__notes__[0], self._run]
        self._connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", entry)

    def seconds(self) -> float:
        """How long the runs took that left trials here, each up to its last one."""
        legs = "SELECT MAX(elapsed) AS leg FROM trials WHERE run = ? GROUP BY started"
        return self._connection.execute(f"SELECT TOTAL(leg) FROM ({legs})", [self._run]).fetchone()[0]

    def close(self) -> None:
        self._connection.close()

    @property
    def _run(self) -> str:
        return self._settings["identity"]
