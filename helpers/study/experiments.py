"""Grids of independent trials: joblib's `Parallel`, and what it lacks for runs that take days.

joblib computes the trials, in the process itself or in several. Ours are a SQLite store that survives `kill -9` and
gives the same table to the bit, keys that change with everything a trial uses, and futures of a Dask cluster, which
unlike joblib's Dask backend say when the scheduler is lost. `dpbook run --jobs N` turns the store on. What a trial
computes, and that it draws its randomness from its cell alone, is left to the caller.

The key of a trial is a hash of

* the parts of the code that is run (cells, reached modules, printed tables, pins; under `dpbook record` of what tables
  are made by alone) and all parameter values of the chapter,
* Python, the machine's architecture and the installed distributions,
* the experiment's name, the values the trial closes over (followed through functions of the notebook) and the cell.

Data that a trial loads itself is covered by the checksums in `helpers.data.sets`, and by nothing where there is none.
A grid that grows from time to time has `scope="trial"`: its keys have less in the place of the first part (see `run`).
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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, contextmanager
from dis import get_instructions
from functools import cache
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import joblib
import numpy as np
import pandas as pd
from joblib.hashing import NumpyHasher
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from helpers import sources
from helpers.validation import check_choice

_VARIABLE = "DPBOOK_EXPERIMENTS"  # how a session's settings reach the kernel
_CACHED = type(cache(len))  # functions wrapped by functools.cache

Trial = Callable[..., Any]


class TrialError(RuntimeError):
    """A trial raised, or returned something that is not a table of scalars; the message names its cell.

    The first note is the traceback, since the error may have been raised in another process.
    """


class SessionError(RuntimeError):
    """A session was opened inside another one."""


def run(
    trial: Trial | Mapping[str, Trial],
    cells: Sequence[Mapping[str, Any]],
    *,
    name: str,
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
        `method` says which one a cell is for, and is not passed to it.
    cells : sequence of dict
        Scalars by name; no two cells alike.
    name : str
        What the progress bar and errors call the experiment.
    timed : bool
        Whether to add how long each trial took.
    scope : {"chapter", "trial"}
        What a stored result depends on besides versions, name and cell. "chapter": all that the chapter's tables do.
        "trial": the definitions of the project that the trial names, with all they reach; so it outlives changes
        elsewhere in the chapter. What is found at run time by name (in a registry, say) is not followed: close over it
        instead.

    Returns
    -------
    DataFrame
        One row a dict returned, in the order of the cells; the cells' columns first. Floats are exact. With `timed`
        there is a last column `seconds`, the CPU seconds of the trial's process (a trial read from the store took what
        it took then).

    Raises
    ------
    ValueError
        No cells, two alike, values that are not scalars, a trial that does not exist, or a closed-over random
        generator.
    TrialError
        A trial failed: the first one ends a plain loop; under `--jobs` all others are finished and kept before.
    RuntimeError
        Under `--jobs`: this process or another one loaded helper modules that were edited since the run began.

    >>> run(lambda n, seed: {"square": n * n}, [{"n": 2, "seed": 0}, {"n": 3, "seed": 0}], name="squares")
       n  seed  square
    0  2     0       4
    1  3     0       9
    """
    check_choice("scope", scope, ("chapter", "trial"))
    cells = _checked(cells)
    by: Any = "method" if isinstance(trial, Mapping) else None
    trials: dict[Any, Trial] = dict(trial) if isinstance(trial, Mapping) else dict([(None, trial)])
    for cell in cells if by else ():
        check_choice("method", cell.get("method"), list(trials))
    digests = {label: _digest_of(each, scope == "trial") for label, each in trials.items()}
    settings = json.loads(os.environ.get(_VARIABLE, "{}"))
    _freeze(settings.get("code"), *settings.get("modules", ()))
    keys = []
    for cell in cells:
        closed_over, code = digests[cell.get(by)]
        # Two experiments of one chapter may have the same cells, and one may run several functions: name and function
        # are in the key too.
        identity = settings.get("identity") if scope == "chapter" else [settings.get("platform"), code]
        keys.append(_hash([identity, name, closed_over, cell]))
    with ExitStack() as stack:
        store = stack.enter_context(closing(_Store(settings))) if settings else None
        # Every finished trial is written at once, so a run that is killed goes on from here.
        finished = store.found(keys) if store else {}
        missing = [index for index, key in enumerate(keys) if key not in finished]
        tasks = ((index, trials[cells[index].get(by)], cells[index], by, settings) for index in missing)
        file = stack.enter_context(open(settings["bar"], "w")) if settings else None
        bar = stack.enter_context(_bar(file, desc=name, total=len(cells), initial=len(finished)))
        failed: dict[int, TrialError] = {}
        for index, outcome in _outcomes(tasks, settings):
            if isinstance(outcome, _Finished):
                finished[keys[index]] = outcome
                if store:
                    store.put(keys[index], outcome)
            else:
                failed[index] = outcome
                bar.set_postfix_str(f"{len(failed)} failed", refresh=False)
                if not store:
                    break
            bar.update()
    if failed:
        first = failed[min(failed)]
        more = f" (and {len(failed) - 1} more of {len(cells)} trials failed)" if len(failed) > 1 else ""
        first.args = (f"experiment {name!r}, {first}{more}",)
        raise first
    return _frame(cells, [finished[key] for key in keys], timed)


@contextmanager
def session(
    jobs: int,
    store: Path,
    identity: Any,
    modules: Sequence[str],
    code: str,
    scheduler: str | None = None,
    *,
    beside: Any = None,
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
    beside : JSON value, optional
        What trials of either scope depend on besides the project's code: digests of files that they run, say.

    Yields
    ------
    float
        Seconds that earlier, interrupted runs with this identity took.

    Raises
    ------
    SessionError
        Another session is open here, whose trials would go into this store.
    sqlite3.DatabaseError
        The store is locked by another program for a minute, cannot be written, or is damaged.
    """
    if _VARIABLE in os.environ:
        raise SessionError(f"trials already go to {json.loads(os.environ[_VARIABLE])['store']}")
    software = sorted({f"{entry.name}=={entry.version}" for entry in metadata.distributions()})
    machine = [platform.python_version(), platform.machine(), software]
    machine += [beside] if beside is not None else []
    settings = {
        "jobs": jobs,
        "store": str(store),
        "identity": _hash([identity, *machine]),
        "platform": _hash(machine),
        "modules": list(modules),
        "code": code,
        "started": time.time(),
        "scheduler": scheduler,
        "bar": os.ttyname(sys.stderr.fileno()) if sys.stderr.isatty() else str(store.with_suffix(".txt")),
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
    """The cells as JSON gives them back; refuses none at all and two alike."""
    plain = [json.loads(_encoded(cell, "a cell")) for cell in cells]
    if not plain:
        raise ValueError("cells must be a non-empty sequence of dicts, got none")
    times = Counter(map(_hash, plain))
    for cell in plain:
        if times[_hash(cell)] > 1:
            raise ValueError(f"cells must be different from one another, got {cell} twice")
    return plain


def _encoded(row: Any, what: str) -> str:
    """A dict of scalars as JSON, NumPy's scalars as Python's; `what` names it in errors."""
    if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
        raise ValueError(f"{what} must be a dict with text keys, got {row!r}")
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in row.items()}
    for key, value in plain.items():
        if not (value is None or isinstance(value, str | bool | int | float)):
            raise ValueError(f"{what} must hold scalars, got {key}={value!r}")
    return json.dumps(plain)


class _Finished(NamedTuple):
    """What a trial returned, as JSON, and the seconds of the processor that it took."""

    rows: str
    cpu: float


def _frame(cells: list[dict], outcomes: list[_Finished], timed: bool) -> pd.DataFrame:
    found = [(cell | row, outcome.cpu) for cell, outcome in zip(cells, outcomes, strict=True)
             for row in json.loads(outcome.rows)]  # fmt: skip
    records = [record for record, _ in found]
    frame = pd.DataFrame(records, columns=list(dict.fromkeys(key for entry in [*cells, *records] for key in entry)))
    return frame.assign(seconds=[cpu for _, cpu in found]) if timed else frame


# Trials


def _outcomes(tasks: Iterator[tuple], settings: Mapping[str, Any]) -> Iterator[tuple[int, _Finished | TrialError]]:
    """Results with their indices, as they finish."""
    if settings.get("scheduler"):
        yield from _on_cluster(tasks, settings)
        return
    # Copy-on-write: large closed-over arrays reach workers as memory maps, and compiled code may want them writable.
    # One trial at a time to each process: trials are long, and not equally long.
    parallel = joblib.Parallel(settings.get("jobs", 1), return_as="generator_unordered", batch_size=1, mmap_mode="c")
    with closing(parallel(joblib.delayed(_outcome)(*task) for task in tasks)) as finished:
        yield from finished


def _on_cluster(tasks: Iterator[tuple], settings: Mapping[str, Any]) -> Iterator[tuple[int, _Finished | TrialError]]:
    """`_outcomes` from a Dask cluster, `jobs` at a time; if a worker dies, another one takes over its trial."""
    from distributed import Client, KilledWorker, as_completed

    # Plain futures: with joblib's Dask backend a lost scheduler was not always an error (joblib 1.6).
    with Client(settings["scheduler"]) as client:
        ahead = {client.submit(_outcome, *task, pure=False): task for task in islice(tasks, settings["jobs"])}
        for future in (finished := as_completed(ahead)):
            index, _, cell, *_ = ahead.pop(future)
            try:
                yield future.result()
            except CancelledError as error:
                told = f"the Dask scheduler {settings['scheduler']} went away; finished trials are kept, run again"
                raise RuntimeError(told) from error
            except KilledWorker as error:  # and so were those that tried after it
                yield index, _failure(cell, error)
            # One more for each that has finished, so that `jobs` are under way and no more are pickled ahead.
            for task in islice(tasks, 1):
                ahead[further := client.submit(_outcome, *task, pure=False)] = task
                finished.add(further)


def _outcome(
    index: int, trial: Trial, cell: dict, by: str | None, settings: Mapping[str, Any]
) -> tuple[int, _Finished | TrialError]:
    _freeze(settings.get("code"), *settings.get("modules", ()))
    try:
        started = time.process_time()
        # One thread everywhere: sums in another order would differ in the last bits.
        with threadpool_limits(1):
            returned = trial(**{key: value for key, value in cell.items() if key != by})
        rows = [returned] if isinstance(returned, Mapping) else list(returned)
        if clash := {key for row in rows for key in row if key in cell}:
            raise ValueError(f"a trial must not return names of its cell, got {sorted(clash)}")
        text = "[" + ", ".join(_encoded(row, "a row") for row in rows) + "]"
        return index, _Finished(text, time.process_time() - started)
    except Exception as error:
        return index, _failure(cell, error)


def _failure(cell: dict, error: Exception) -> TrialError:
    """The error of a trial as one that names its cell and can be sent between processes, with the traceback as note."""
    failure = TrialError(f"cell {cell}: {type(error).__name__}: {error}")
    failure.add_note("".join(traceback.format_exception(error)))
    return failure


@cache
def _freeze(code: str | None, *modules: str) -> None:
    """Load all code a trial may use and make sure that it is the code the store is keyed by.

    Workers start later than the run, some much later; once per process is enough, as loaded code stays as it is.
    """
    for name in modules:
        importlib.import_module(name)
    if code is not None and sources.modules_digest(modules) != code:
        raise RuntimeError("helper modules were edited while the chapter runs; start it again")


def _bar(file: TextIO | None, **options: Any) -> tqdm:
    """A bar on the terminal of `dpbook` (without one, in a file beside the store), on one's own, or in JupyterLab."""
    # Only a Jupyter server names the session; papermill, nbconvert and nbval do not, and show nothing.
    watched = sys.stderr.isatty() or ("JPY_SESSION_NAME" in os.environ and "DPBOOK_RUN_FOLDER" not in os.environ)
    return tqdm(leave=False, file=file, disable=not (file or watched), **options)


# Keys


def _hash(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest_of(trial: Trial, follow: bool = False) -> tuple[str, str]:
    """Digest of a trial with what it closes over; with `follow` also of the project's code that it names."""
    hasher = _ValueHasher("sha1")
    try:
        return hasher.hash(trial), _hash(sources.parts(sorted(hasher.named))) if follow else ""
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"trial must be a function of picklable values, got one that is not: {error}") from error


class _ValueHasher(NumpyHasher):
    """joblib's hash, with functions and classes of a notebook taken by what they are instead of by their names.

    Two functions differ when their code does, or a value that they read from outside: a captured variable, a default,
    a global, and so on through the functions that these call. `named` gathers what is taken by its name, as source: the
    chapter's parts cover it, or those of the trial, where it is the project's, and its version where it is not.
    """

    def __init__(self, hash_name: str) -> None:
        super().__init__(hash_name)
        self.named: set[str] = set()

    def save(self, obj: Any) -> None:
        if isinstance(obj, np.random.Generator | np.random.RandomState):
            raise ValueError(
                "trial must make its generator from a seed in its cell, got one that uses a shared generator"
            )
        if isinstance(obj, types.ModuleType):
            self.named.add(f"import {obj.__name__}\n{obj.__name__}")
            obj = ("module", obj.__name__)
        elif "torch" in sys.modules and isinstance(obj, sys.modules["torch"].Tensor):
            obj = (type(obj), obj.detach().cpu().numpy())  # its pickle differs from process to process
        super().save(obj)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if _is_importable(obj):
            self.named.add(f"import {obj.__module__}\n{obj.__module__}.{obj.__qualname__}")
        elif isinstance(obj, _CACHED):
            raise ValueError(f"trial must use functions that can be sent to other processes, got the cached {obj}")
        elif isinstance(obj, types.FunctionType | type):
            self.memoize(obj)  # before its values: functions may refer to themselves
            content = _function_content(obj) if isinstance(obj, types.FunctionType) else _class_content(obj)
            return self.save((obj.__qualname__, content))
        return super().save_global(obj, name)

    dispatch = NumpyHasher.dispatch | {types.FunctionType: save_global, type: save_global}


def _is_importable(obj: Any) -> bool:
    """Whether another process finds this very object by its module and name; in a notebook's cells it does not."""
    found = sys.modules.get(getattr(obj, "__module__", None) or "")
    for part in getattr(obj, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is obj and obj.__module__ != "__main__"


def _function_content(function: types.FunctionType) -> tuple:
    """What a function computes with: code, the globals it names, what it closes over, and its defaults."""
    names = _global_names(function.__code__)
    outside = {name: function.__globals__[name] for name in names if name in function.__globals__}
    captured = [cell.cell_contents for cell in function.__closure__ or ()]
    return _plain(function.__code__), outside, captured, function.__defaults__, function.__kwdefaults__


def _class_content(cls: type) -> tuple:
    # What Python keeps under other special names describes the class again, partly in ways that cannot be pickled.
    parts = {
        name: (value.fget, value.fset) if isinstance(value, property) else getattr(value, "__func__", value)
        for name, value in vars(cls).items()
        if isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc"))
    }
    return cls.__bases__, parts


def _plain(code: types.CodeType) -> tuple:
    """Bytecode, names and constants, without line numbers and file names, which change with every kernel."""
    constants = [_plain(part) if isinstance(part, types.CodeType) else part for part in code.co_consts]
    return code.co_code, code.co_names, constants


def _global_names(code: types.CodeType) -> set[str]:
    """Names that code, and the functions defined in it, look up outside."""
    names = {step.argval for step in get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_global_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


# The store


class _Store:
    """Finished trials by key. Every row carries a checksum, every write is its own transaction."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._run, self._started = settings["identity"], settings["started"]
        # Without isolation level every statement is a transaction of its own.
        self._connection = sqlite3.connect(settings["store"], timeout=60, isolation_level=None)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS finished (key TEXT PRIMARY KEY, rows TEXT NOT NULL, cpu REAL NOT NULL,"
            " checksum TEXT NOT NULL, run TEXT NOT NULL, started REAL NOT NULL, elapsed REAL NOT NULL)"
        )

    def found(self, keys: Sequence[str]) -> dict[str, _Finished]:
        wanted = set(keys)
        entries = self._connection.execute("SELECT key, checksum, rows, cpu FROM finished")
        return {
            # A row that a crash has damaged fails its checksum, and its trial runs again.
            key: _Finished(*values)
            for key, checksum, *values in entries
            if key in wanted and checksum == _hash([key, *values])
        }

    def put(self, key: str, outcome: _Finished) -> None:
        elapsed = time.time() - self._started
        entry = [key, *outcome, _hash([key, *outcome]), self._run, self._started, elapsed]
        self._connection.execute("INSERT OR REPLACE INTO finished VALUES (?, ?, ?, ?, ?, ?, ?)", entry)

    def seconds(self) -> float:
        """Seconds that earlier runs with this identity took, each from its start to its last finished trial."""
        legs = "SELECT MAX(elapsed) AS leg FROM finished WHERE run = ? GROUP BY started"
        return self._connection.execute(f"SELECT TOTAL(leg) FROM ({legs})", [self._run]).fetchone()[0]

    def close(self) -> None:
        self._connection.close()
