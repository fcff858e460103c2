"""Experiments: exact results in the order of the cells, and a store that survives what can happen to it."""

import importlib
import json
import math
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import hypothesis.strategies as st
import nbformat
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from helpers import paths, sources
from helpers.book import chapters
from helpers.cli import main
from helpers.study import experiments
from helpers.study.experiments import TrialError, run

PROJECT = paths.ROOT
MODULES = ["helpers.validation", "helpers.data"]
CELLS = [{"seed": seed, "size": size} for seed in range(3) for size in (0.1, 0.2)]


@pytest.fixture
def store(tmp_path):
    return tmp_path / "experiments.sqlite"


@contextmanager
def session(store, *, jobs=1, identity="chapter"):
    with experiments.session(jobs, store, identity, MODULES, sources.modules_digest(MODULES)) as earlier:
        yield earlier


def draw(seed, size):
    rng = np.random.default_rng(seed)
    return [{"draw": size * rng.normal(), "k": np.int64(k)} for k in range(2)]


def counting(log):
    """A trial that leaves a line at every call; the file is named by a text, which is all the trial closes over."""
    name = str(log)

    def trial(seed, size):
        with open(name, "a") as file:
            file.write(f"{seed} {size}\n")
        return {"draw": size * seed}

    return trial


def calls(log):
    return log.read_text().splitlines() if log.exists() else []


# Results


def test_rows_come_in_the_order_of_the_cells_with_their_columns_first():
    frame = run(draw, CELLS, name="draws")
    assert list(frame.columns) == ["seed", "size", "draw", "k"]
    expected = [cell | row for cell in CELLS for row in draw(**cell)]
    pd.testing.assert_frame_equal(frame, pd.DataFrame(expected), check_exact=True)


def test_processes_and_store_change_no_bit(store):
    plain = run(draw, CELLS, name="draws")
    with session(store, jobs=2):
        computed = run(draw, CELLS, name="draws")
        stored = run(draw, CELLS, name="draws")
    pd.testing.assert_frame_equal(computed, plain, check_exact=True)
    pd.testing.assert_frame_equal(stored, plain, check_exact=True)


def test_large_arrays_reach_the_workers_unchanged_and_writable(store):
    X = np.random.default_rng(0).normal(size=(3000, 60))

    def trial(seed):
        X[:, 0] *= 1.0
        weights = np.random.default_rng(seed).normal(size=60)
        return {"dot": (X @ weights).sum(), "norm": np.linalg.norm(X), "solved": np.linalg.solve(X.T @ X, weights)[0]}

    cells = [{"seed": seed} for seed in range(4)]
    plain = run(trial, cells, name="large")
    with session(store, jobs=2):
        pd.testing.assert_frame_equal(run(trial, cells, name="large"), plain, check_exact=True)


def test_the_bar_is_drawn_on_a_terminal_and_cleared(store):
    leader, follower = pty.openpty()
    with session(store):
        settings = json.loads(os.environ["DPBOOK_EXPERIMENTS"]) | {"bar": os.ttyname(follower)}
        os.environ["DPBOOK_EXPERIMENTS"] = json.dumps(settings)
        run(draw, CELLS, name="draws")
    os.write(follower, b"END")
    shown = ""
    while not shown.endswith("END"):
        shown += os.read(leader, 10_000).decode()
    os.close(follower)
    os.close(leader)
    assert "draws:" in shown
    assert shown.endswith("\rEND")


def test_nothing_is_printed_without_a_terminal(store, capfd):
    run(draw, CELLS, name="draws")
    with session(store, jobs=2):
        run(draw, CELLS, name="draws")
    assert capfd.readouterr() == ("", "")


SCALARS = st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text())


@given(st.dictionaries(st.text(), SCALARS, min_size=1))
def test_scalars_survive_to_the_bit(row):
    back = json.loads(experiments._encoded(row, "a row"))
    assert list(back) == list(row)
    for value, other in zip(row.values(), back.values(), strict=True):
        assert type(value) is type(other)
        if isinstance(value, float) and not math.isnan(value):
            assert value.hex() == other.hex()
        else:
            assert value == other or (math.isnan(value) and math.isnan(other))


def test_numpy_scalars_become_pythons(store):
    row = {"f": np.float64(0.1), "s": np.float32(0.1), "i": np.int32(3), "b": np.bool_(True), "nan": np.float64("nan")}
    frame = run(lambda n: row, [{"n": np.int64(1)}], name="scalars")
    assert frame.loc[0, ["n", "i", "b"]].tolist() == [1, 3, True]
    assert frame.loc[0, "f"] == 0.1
    assert frame.loc[0, "s"] == float(np.float32(0.1)) != 0.1
    assert math.isnan(frame.loc[0, "nan"])


def test_a_trial_may_return_no_rows():
    frame = run(lambda n: [{"m": n}] * n, [{"n": 0}, {"n": 2}], name="rows")
    assert frame["n"].tolist() == [2, 2]


# Refusals


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([], "non-empty"),
        ([{"n": 1}, {"m": 2}, {"n": 1}], "different"),
        ([{"n": math.nan}, {"n": math.nan}], "different"),
        ([{"n": [1]}], "scalars"),
        ([{1: 1}], "text keys"),
        (["n"], "must be a dict"),
    ],
)
def test_bad_cells(cells, words):
    with pytest.raises(ValueError, match=words):
        run(lambda **cell: pytest.fail("was called"), cells, name="bad")


@pytest.mark.parametrize(
    ("returned", "words"),
    [({"a": np.zeros(2)}, "scalars"), ({"n": 1}, "names of its cell"), (3, "not iterable"), ([3], ".")],
)
def test_bad_rows_name_the_cell(returned, words):
    with pytest.raises(TrialError, match=rf"experiment 'bad', cell {{'n': 7}}: .*{words}"):
        run(lambda n: returned, [{"n": 7}], name="bad")


def test_a_shared_generator_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="from a seed in its cell"):
        run(lambda n: {"x": rng.normal()}, [{"n": 1}], name="shared")
    with pytest.raises(ValueError, match="picklable"):
        run(lambda n, file=sys.stdout: {"x": n}, [{"n": 1}], name="file")


# What a result depends on


def test_closed_over_values_are_part_of_the_key(store):
    def made(factor, shift):
        def inner(n):
            return factor[0] * n

        return lambda n: {"y": inner(n) + shift}

    with session(store):
        for factor, shift in ((2, 0), (3, 0), (3, 1)):
            frame = run(made(np.array([factor]), shift), [{"n": 5}], name="line")
            assert frame["y"].tolist() == [5 * factor + shift]


def test_digest_follows_code_defaults_globals_and_classes():
    def digest(source, **values):
        space = {"__name__": "__main__", **values}
        exec(compile(source, "<cell>", "exec"), space)
        return experiments._digest_of(space["trial"])[0]

    base = "def f(n): return n + a\nclass C:\n    def g(self, n): return f(n)\ndef trial(n, b=1): return C().g(n) + b"
    same = digest(base, a=1)
    assert digest(base, a=1, unused=3) == same
    assert digest("\n\n" + base, a=1) == same
    others = [digest(base, a=2), digest(base.replace("b=1", "b=2"), a=1), digest(base.replace("n + a", "n - a"), a=1)]
    others += [digest(base.replace("return f(n)", "return f(-n)"), a=1), digest(base, a=1.0), digest(base, a={1})]
    assert len({same, *others}) == 7
    with pytest.raises(ValueError, match="sent to other processes"):
        digest("from functools import cache\n@cache\ndef f(n): return n + a\ndef trial(n): return f(n)", a=1)
    fields = "from dataclasses import dataclass\n@dataclass\nclass C:\n    x: float = 1.0\ndef trial(n): return C(n).x"
    assert digest(fields) != digest(fields.replace("1.0", "2.0"))
    recursive = "def trial(n): return trial(n - 1) if n else a"
    assert digest(recursive, a=1) != digest(recursive, a=2)


CLOSURE = """
import enum, sys
import numpy as np, pandas as pd
from dataclasses import dataclass
from helpers import data
from helpers.study import experiments
from helpers.erm import ObjectivePerturbationClassifier
@dataclass
class Point:
    x: float = 1.0
Kind = enum.Enum("Kind", "A B")
values = [Point(2.0), Kind.A, {"b", "a", "c"}, {"z": 1, "y": 2}, pd.DataFrame({"t": ["u", "v"]}), np.arange(3)]
values += [ObjectivePerturbationClassifier(epsilon=2.0), data.load("gaussian_mixture"), lambda n: n + 1, enum, np.exp]
def trial(n):
    return {"y": [value for value in values]}
print(experiments._digest_of(trial)[0])
"""


def test_the_digest_is_the_same_in_every_process():
    seeds = [os.environ | {"PYTHONHASHSEED": seed} for seed in ("1", "2")]
    shown = [subprocess.check_output([sys.executable, "-c", CLOSURE], env=env, cwd=paths.ROOT) for env in seeds]
    assert shown[0] == shown[1] != b""


def test_tensors_count_with_their_values():
    import torch

    digests = [
        experiments._ValueHasher("sha1").hash(tensor) for tensor in (torch.ones(2), torch.ones(2), torch.zeros(2))
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("changed", ["identity", "name", "cell"])
def test_nothing_is_reused_for_another_key(store, tmp_path, changed):
    trial, log = counting(tmp_path / "log"), tmp_path / "log"
    with session(store):
        run(trial, CELLS[:1], name="draws")
        run(trial, CELLS[:1], name="draws")
    assert len(calls(log)) == 1
    with session(store, identity="other" if changed == "identity" else "chapter"):
        cells = CELLS[1:2] if changed == "cell" else CELLS[:1]
        run(trial, cells, name="other" if changed == "name" else "draws")
    assert len(calls(log)) == 2


def module(tmp_path, monkeypatch, source):
    """A module of its own beside the project's, in the place of an earlier one of this name."""
    (tmp_path / "tests").mkdir(exist_ok=True)
    (tmp_path / "tests" / "grown.py").write_text(source)
    for package in sources.PACKAGES:
        if not (tmp_path / package).exists():
            (tmp_path / package).symlink_to(PROJECT / package)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "tests")
    sys.modules.pop("grown", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    return importlib.import_module("grown")


GROWN = """
from functools import cache, partial
from helpers.validation import check_real
from helpers.study.metrics import score
{more}

@cache
def shared(x):
    return x + {shift}

def trial(method, log, seed):
    with open(log, "a") as file:
        file.write("call\\n")
    return {{"y": method(shared(seed))}}

def double(x):
    return 2 * x

TRIALS = {{"double": partial(trial, double), "same": partial(trial, float)}}
"""


def test_with_the_scope_of_a_trial_only_what_it_uses_counts(store, tmp_path, monkeypatch):
    log = tmp_path / "log"

    def after(identity, old="", new="", **parts):
        source = GROWN.format(**{"more": "", "shift": 1} | parts).replace(old, new)
        trials = module(tmp_path, monkeypatch, source).TRIALS
        before = len(calls(log))
        cells = [{"method": name, "log": str(log), "seed": seed} for seed in range(2) for name in ("double", "same")]
        with session(store, identity=identity):
            frame = run(trials, cells, name="grown", scope="trial")
        assert frame["y"].tolist() == [(2 if method == "double" else 1) * (seed + parts.get("shift", 1))
                                       for method, seed in zip(frame.method, frame.seed, strict=True)]  # fmt: skip
        return len(calls(log)) - before

    assert after("chapter") == 4
    assert after("another chapter") == 0  # whose other cells, parameters and modules may differ
    assert after("chapter", more="def unused(x):\n    return x") == 0
    assert after("chapter", more="import helpers.study.comparison") == 0
    assert after("chapter", shift=2) == 4
    assert after("chapter", old="2 * x", new="x * 2") == 2


def test_the_scope_of_a_trial_has_the_modules_it_names_with_all_they_reach(monkeypatch):
    from helpers.erm import ObjectivePerturbationClassifier

    def trial(n):
        return {"epsilon": ObjectivePerturbationClassifier().epsilon}

    found, parts = {}, sources.parts
    monkeypatch.setattr(sources, "parts", lambda texts: found.update(parts(texts)) or found)
    experiments._digest_of(trial, follow=True)
    assert {"helpers.erm.perturbation", "helpers.erm.risk", "helpers.privacy.ledger"} <= set(found)
    assert not {"helpers.erm", "helpers.erm.kernels"} & set(found)


def test_several_trials_are_told_apart_by_their_cells():
    trials = {"half": lambda n: {"y": n / 2}, "twice": lambda n: {"y": 2 * n}}
    cells = [{"method": way, "n": n} for n in (1, 2) for way in trials]
    assert run(trials, cells, name="ways")["y"].tolist() == [0.5, 2, 1, 4]
    for bad in ({"n": 1}, {"method": "thrice", "n": 1}):
        with pytest.raises(ValueError, match="method must be one of"):
            run(trials, [bad], name="ways")


def test_the_installed_versions_are_part_of_the_key(store, tmp_path, monkeypatch):
    trial = counting(tmp_path / "log")
    for version in ("3.11.0", "3.11.0", "3.11.1"):
        monkeypatch.setattr(experiments.platform, "python_version", lambda version=version: version)
        with session(store):
            run(trial, CELLS[:1], name="draws")
    assert len(calls(tmp_path / "log")) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_code_edited_while_the_chapter_runs_stops_it(store, jobs):
    earlier = sources.modules_digest(["helpers.paths"])
    with experiments.session(jobs, store, "chapter", MODULES, earlier), pytest.raises(RuntimeError, match="edited"):
        run(draw, CELLS, name="draws")
    with session(store) as seconds:
        assert seconds == 0.0


# Failures and interruptions


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_trial_names_its_cell_and_the_others_are_kept(store, tmp_path, jobs):
    log = tmp_path / "log"
    flag = str(tmp_path / "mended")
    count = counting(log)

    def trial(seed, size):
        if seed == 2 and not os.path.exists(flag):
            raise ZeroDivisionError("unlucky")
        return count(seed, size)

    with session(store, jobs=jobs):
        with pytest.raises(
            TrialError, match=r"'draws', cell {'seed': 2, 'size': 0.1}: ZeroDivisionError: unlucky"
        ) as got:
            run(trial, CELLS[:5], name="draws")
        assert 'raise ZeroDivisionError("unlucky")' in got.value.__notes__[0]
        assert len(calls(log)) == 4
        (tmp_path / "mended").touch()
        frame = run(trial, CELLS[:5], name="draws")
    assert frame["draw"].tolist() == [cell["seed"] * cell["size"] for cell in CELLS[:5]]
    assert len(calls(log)) == 5


def test_without_a_store_the_first_failure_ends_the_loop(tmp_path):
    count = counting(tmp_path / "log")

    def trial(seed, size):
        if seed == 1:
            raise ZeroDivisionError("unlucky")
        return count(seed, size)

    with pytest.raises(TrialError, match="unlucky") as got:
        run(trial, CELLS, name="draws")
    assert 'raise ZeroDivisionError("unlucky")' in got.value.__notes__[0]
    assert len(calls(tmp_path / "log")) == 2


def test_an_interrupt_keeps_what_is_finished(store, tmp_path):
    count, flag = counting(tmp_path / "log"), str(tmp_path / "again")

    def trial(seed, size):
        if seed == 1 and not os.path.exists(flag):
            raise KeyboardInterrupt
        return count(seed, size)

    with session(store):
        with pytest.raises(KeyboardInterrupt):
            run(trial, CELLS, name="draws")
        (tmp_path / "again").touch()
        assert len(run(trial, CELLS, name="draws")) == 6
    assert sorted(calls(tmp_path / "log")) == sorted(f"{c['seed']} {c['size']}" for c in CELLS)


SCRIPT = """
import sys, time
from pathlib import Path
from helpers import sources
from helpers.study import experiments
store, log, jobs, pause = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

def trial(seed):
    time.sleep(pause)
    with open(log, "a") as file:
        file.write(f"{seed}\\n")
    return {"third": seed / 3}

with experiments.session(jobs, store, "chapter", [], sources.modules_digest([])):
    frame = experiments.run(trial, [{"seed": seed} for seed in range(8)], name="thirds")
print(frame.to_json(double_precision=15))
"""


def start(store, log, jobs, pause):
    # The pause differs between runs and must not enter the key, so it is read from the command line inside the trial.
    script = SCRIPT.replace("time.sleep(pause)", "time.sleep(float(sys.argv[4]))" if jobs == 1 else "time.sleep(0.2)")
    command = [sys.executable, "-c", script, str(store), str(log), str(jobs), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=paths.ROOT)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What the script prints when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return start(folder / "new.sqlite", folder / "log", 1, 0).communicate(timeout=300)[0]


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_and_started_again_only_the_missing_trials_run(store, tmp_path, uninterrupted, jobs):
    log = tmp_path / "log"
    first = start(store, log, jobs, 0.2)
    deadline = time.monotonic() + 300
    while len(calls(log)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    time.sleep(0.5)  # workers may finish what they had begun
    with sqlite3.connect(store) as connection:
        kept = connection.execute("SELECT COUNT(*) FROM finished").fetchone()[0]
    assert 1 <= kept < 8
    before = len(calls(log))
    second = start(store, log, jobs, 0)
    shown, noise = second.communicate(timeout=300)
    assert second.returncode == 0
    assert noise == ""
    assert len(calls(log)) - before == 8 - kept
    assert shown == uninterrupted != ""


# Time


def test_the_seconds_of_a_trial_are_those_of_the_processor_and_are_kept(store):
    def trial(busy):
        if not busy:
            time.sleep(0.3)
            return [{"n": 0}]
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        return [{"n": 1}, {"n": 2}]

    with session(store):
        first, again = (run(trial, [{"busy": True}, {"busy": False}], name="time", timed=True) for _ in range(2))
        assert list(run(trial, [{"busy": True}], name="time").columns) == ["busy", "n"]
    assert list(first.columns) == ["busy", "n", "seconds"]
    assert first.seconds[0] == first.seconds[1]
    assert 0.1 <= first.seconds[0]
    assert first.seconds[2] < 0.2
    pd.testing.assert_frame_equal(again, first, check_exact=True)


def test_two_processes_may_share_a_store(store, tmp_path):
    both = [start(store, tmp_path / "log", 1, 0.02) for _ in range(2)]
    (first, noise), (second, other) = (process.communicate(timeout=300) for process in both)
    assert noise == other == ""
    assert first == second != ""
    with sqlite3.connect(store) as connection:
        assert connection.execute("SELECT COUNT(*) FROM finished").fetchone() == (8,)


@pytest.mark.parametrize("damage", ["no database", "truncated", "overwritten"])
def test_a_damaged_store_is_refused(store, damage):
    with session(store):
        run(draw, CELLS, name="draws")
    content = store.read_bytes()
    store.write_bytes(
        {"no database": b"x" * 9000, "truncated": content[:5000]}.get(damage, content[:100] + b"\xff" * 5000)
    )
    with pytest.raises(sqlite3.DatabaseError), session(store):
        run(draw, CELLS, name="draws")


def test_an_entry_that_was_changed_is_not_used(store):
    with session(store):
        plain = run(draw, CELLS, name="draws")
        with sqlite3.connect(store) as connection:
            connection.execute("UPDATE finished SET rows = replace(rows, '1', '2')")
        again = run(draw, CELLS, name="draws")
    pd.testing.assert_frame_equal(again, plain, check_exact=True)


def test_a_locked_store_is_an_error_and_not_damage(store, monkeypatch):
    connect = sqlite3.connect
    with session(store), connect(store, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **(options | {"timeout": 0})))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            run(draw, CELLS, name="draws")
        other.execute("ROLLBACK")
    assert store.exists()


def test_the_time_of_interrupted_runs_is_counted(store, monkeypatch):
    clock = iter(range(100, 200))
    monkeypatch.setattr(experiments, "time", SimpleNamespace(**vars(time) | {"time": lambda: next(clock)}))
    with session(store) as earlier:  # starts at 100
        assert earlier == 0
        run(draw, CELLS[:2], name="draws")  # committed at 101 and 102
    with session(store) as earlier:  # starts at 103
        assert earlier == 2
        run(draw, CELLS[:3], name="draws")  # the third at 104
    with session(store) as earlier:
        assert earlier == 3


# Through the command line, with a trial that lives in a notebook

PARAMETERS = "n: int = 3  # in [1, 9]: number of seeds\nscale: float = 1.0  # in [0, 9]: factor"
CELL = """
import numpy as np
from helpers import book
from helpers.study import experiments
offset = np.array([scale, 2 * scale])

class Learner:
    def fit(self, seed):
        return float(np.random.default_rng(seed).normal() + offset[1])

def trial(seed):
    with open({log!r}, "a") as file:
        file.write("call\\n")
    {body}
    return {{"score": Learner().fit(seed)}}

frame = experiments.run(trial, [{{"seed": seed}} for seed in range(n)], name="scores")
book.keep(frame, "scores")
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A chapter with one experiment; returns a function that (re)writes its trial's first line."""
    file = tmp_path / "small.ipynb"
    monkeypatch.setattr(chapters, "chapters", lambda: [chapters.Chapter(file)])
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")

    def write(body=""):
        cells = [
            nbformat.v4.new_markdown_cell("# Small"),
            nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(CELL.format(log=str(tmp_path / "log"), body=body)),
        ]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, file)

    write()
    return write


def test_dpbook_runs_trials_in_parallel_and_resumes(small, tmp_path, capsys):
    log, runs = tmp_path / "log", tmp_path / "runs" / "small"
    assert main(["run", "small"]) == 0
    assert not (runs / "experiments.sqlite").exists()
    [plain] = runs.glob("*/scores.csv")
    assert len(calls(log)) == 3
    assert main(["run", "small", "--jobs", "2"]) == 0
    assert len(calls(log)) == 6
    assert main(["run", "small", "--jobs", "1", "-p", "n", "3"]) == 0
    assert len(calls(log)) == 6
    for _ in range(2):  # what is recorded depends on less than what is run, so its trials are others
        assert main(["record", "small", "--jobs", "1", "-p", "n", "3"]) == 0
        assert len(calls(log)) == 9
    assert (tmp_path / "results" / "scores.csv").read_bytes() == plain.read_bytes()
    assert json.loads((tmp_path / "results" / "scores.json").read_text())["jobs"] == 1
    assert main(["run", "small", "--jobs", "1", "-p", "n", "2"]) == 0  # other parameters
    assert len(calls(log)) == 11
    small("pass")
    assert main(["run", "small", "--jobs", "1", "-p", "n", "2"]) == 0  # other code
    assert len(calls(log)) == 13
    for file in runs.glob("*/small.ipynb"):
        assert not [cell.outputs for cell in nbformat.read(file, 4).cells if cell.get("outputs")]


def test_dpbook_reports_the_failing_cell(small, capsys):
    small("1 / (seed - 1)")
    assert main(["run", "small", "--jobs", "1"]) == 1
    assert "TrialError: experiment 'scores', cell {'seed': 1}: ZeroDivisionError" in capsys.readouterr().err


def test_dpbook_interrupted(small, monkeypatch, capsys):
    def interrupted(self, values, folder, only_tables):
        raise KeyboardInterrupt

    monkeypatch.setattr(chapters.Chapter, "run", interrupted)
    assert main(["run", "small", "--jobs", "2"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "record"])
@pytest.mark.parametrize("given", [["--jobs", "0"], ["--scheduler", "tcp://localhost:1"]])
def test_bad_jobs_are_refused(small, tmp_path, command, given, capsys):
    assert main([command, "small", *given]) == 2
    assert "must" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
