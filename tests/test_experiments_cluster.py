"""Experiments on a Dask cluster: a scheduler and two worker processes of their own on this machine."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest

from helpers import paths, sources
from helpers.study import experiments
from helpers.study.experiments import TrialError

MODULES = ["helpers.validation", "helpers.data"]
CELLS = [{"seed": seed, "size": size} for seed in range(6) for size in (0.1, 0.2)]


class Cluster:
    """One scheduler and two workers, each a process; `address` is where the scheduler listens."""

    def __init__(self, folder, stack: ExitStack):
        file = folder / "scheduler.json"
        common = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
        self.scheduler = self._start(stack, "scheduler", "--port", "0", *common)
        self.address = json.loads(awaited(lambda: file.read_text() if file.exists() else None))["address"]
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder), *common]
        self.workers = [self._start(stack, "worker", *options) for _ in range(2)]

    @staticmethod
    def _start(stack, kind, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options]
        process = subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process


def awaited(value, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := value()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.05)
    return found


@pytest.fixture
def cluster(tmp_path):
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def session(store, address):
    return experiments.session(2, store, "chapter", MODULES, sources.modules_digest(MODULES), address)


def watched(folder, kill=None):
    """A trial that leaves a file named by its process, and from the third on ends another process."""
    folder.mkdir()
    name, victim = str(folder), kill and kill.pid

    def trial(seed, size):
        with open(f"{name}/{seed}-{size}-{os.getpid()}", "w"):
            time.sleep(0.1)
        if victim not in (None, os.getpid()) and len(os.listdir(name)) >= 3:
            os.kill(victim, signal.SIGKILL)  # at least a zombie until the end of the test
        return {"draw": size * np.random.default_rng(seed).normal(), "third": seed / 3}

    return trial


def processes(folder):
    return {int(name.rsplit("-", 1)[1]) for name in os.listdir(folder)}


def test_two_workers_give_the_same_to_the_bit_and_one_may_die(cluster, tmp_path):
    plain = experiments.run(watched(tmp_path / "here"), CELLS, name="draws")
    with session(tmp_path / "whole.sqlite", cluster.address):
        far = experiments.run(watched(tmp_path / "far"), CELLS, name="draws")
    assert processes(tmp_path / "far") == {worker.pid for worker in cluster.workers}
    pd.testing.assert_frame_equal(far, plain, check_exact=True)
    with session(tmp_path / "less.sqlite", cluster.address):
        less = experiments.run(watched(tmp_path / "less", kill=cluster.workers[0]), CELLS, name="draws")
    assert cluster.workers[0].wait(timeout=10) == -signal.SIGKILL
    pd.testing.assert_frame_equal(less, plain, check_exact=True)


def test_what_was_finished_survives_the_scheduler(cluster, tmp_path):
    store = tmp_path / "experiments.sqlite"
    trial = watched(tmp_path / "first", kill=cluster.scheduler)
    with session(store, cluster.address), pytest.raises(RuntimeError, match="went away; finished trials are kept"):
        experiments.run(trial, CELLS, name="draws")
    tried = len(os.listdir(tmp_path / "first"))
    assert tried < len(CELLS)
    with session(store, None):
        frame = experiments.run(trial, CELLS, name="draws")
    again = len(os.listdir(tmp_path / "first")) - tried
    assert again < len(CELLS)
    expected = experiments.run(watched(tmp_path / "here"), CELLS, name="draws")
    pd.testing.assert_frame_equal(frame, expected, check_exact=True)


def test_a_trial_that_kills_its_workers_is_a_failure_like_others(tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")  # one dead worker is enough

    def trial(seed, size):
        if seed == 5:  # the last one, behind which no other trial waits on the worker that dies
            os._exit(1)
        return {"third": seed / 3}

    cells = [{"seed": seed, "size": 0.1} for seed in range(6)]
    with ExitStack() as stack:
        address = Cluster(tmp_path, stack).address
        with session(tmp_path / "store.sqlite", address), pytest.raises(TrialError, match=r"'seed': 5.*KilledWorker"):
            experiments.run(trial, cells, name="deadly")
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        assert connection.execute("SELECT COUNT(*) FROM finished").fetchone() == (5,)
