"""Shared by all tests: chapters run without a network, are skipped by name when their data cannot be had, and time.

At the end of a run a table says where the CPU seconds went, by chapter and by test module.
"""

import hashlib
import itertools
import os
import re
import resource
import shutil
import time
import types
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

NO_NETWORK = Path(__file__).parent / "no_network"
_TICKS = os.sysconf("SC_CLK_TCK")
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
              "--disable-component-update", "--disable-sync"]  # fmt: skip

# Two processes share the cores already, and threads of linear algebra that wait for each other cost as much as those
# that compute: with one thread some chapters take a third of the CPU seconds. Set before numpy is loaded, and inherited
# by kernels and workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Of each property 50 examples are tried here and 400 in the weekly run (`--hypothesis-profile=weekly`). A test that
# sets a number of its own says why.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("weekly", settings.get_profile("repeatable"), max_examples=400)
settings.load_profile("repeatable")

# The project itself is imported where it is used: collecting one file should cost what that file imports.


def pytest_configure(config):
    config.pluginmanager.register(CpuSeconds())
    config.pluginmanager.register(WithoutData())
    if until := os.environ.get("DPBOOK_TESTS_UNTIL"):
        config.pluginmanager.register(Deadline(float(until)))
    runs_chapters = config.getoption("nbval_lax", default=False) or config.option.markexpr.startswith("weekly")
    if runs_chapters and not hasattr(config, "workerinput"):
        fetch()  # what can be fetched, before anything is cut off
    # Kernels, workers and other child processes inherit this.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))


def fetch() -> None:
    from helpers import data
    from helpers.book import chapters

    for name in sorted({name for chapter in chapters.chapters() for name in chapter.requires}):
        if not data.is_available(name):
            with suppress(data.DatasetUnavailable):
                data.load(name)


@cache
def missing_data(notebook: Path) -> str:
    """Why a chapter cannot run here, or an empty text; looks whether files are there and opens none."""
    from helpers import data
    from helpers.book import chapters

    absent = [name for name in chapters.Chapter(notebook).requires if not data.is_available(name)]
    return f"no data set {', '.join(absent)} on this machine; `dpbook data` says how to get it" if absent else ""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.suffix == ".ipynb":
            reason = missing_data(item.path)
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"{item.path.stem}: {reason}"))


class WithoutData:
    """The one rule for tests: a data set that cannot be had skips the test that asks for it, by name.

    A plugin of its own, because hooks of this file are not asked about examples in docstrings of other folders.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        return (yield from self._skipped())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        return (yield from self._skipped())

    def _skipped(self):
        try:
            return (yield)
        except Exception as error:
            # An example of a docstring has its own exception around it.
            inner = [getattr(each, "exc_info", (None, each))[1] for each in (error, *getattr(error, "failures", ()))]
            # By its name, so that tests which need no data import nothing of them.
            absent = [str(each) for each in inner if type(each).__name__ == "DatasetUnavailable"]
            if not absent:
                raise
            name = re.match(r"data set '(\w+)'", absent[0])[1]
            pytest.skip(f"no data set {name} on this machine; `dpbook data` says how to get it")


def pytest_generate_tests(metafunc):
    """A test with an argument `chapter` is run for each chapter of the book."""
    if "chapter" in metafunc.fixturenames:
        from helpers.book import chapters

        metafunc.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.name)


@pytest.fixture(scope="session")
def browser():
    """Chromium, started once; tests that ask for it are marked `browser` and are not part of `make test`."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def repeatable_noise(request, monkeypatch):
    """Noise without a seed is the same whenever a test runs, so that no test fails by chance once it has passed.

    Every source still has a key of its own, hashed from the name of the test and a number. Tests whose subject is where
    keys come from are marked `entropy`; other processes draw their own.
    """
    if request.node.get_closest_marker("entropy") is None:
        from helpers.privacy import randomness

        keys = (hashlib.sha256(f"{request.node.nodeid} {i}".encode()).digest() for i in itertools.count())
        drawn = types.SimpleNamespace(randbits=lambda bits: int.from_bytes(next(keys), "big") % (1 << bits))
        monkeypatch.setattr(randomness, "secrets", drawn)


class Deadline:
    """`make quick` has two minutes: what has not begun by then is skipped and named, a chapter as a whole."""

    def __init__(self, until: float):
        self.until, self.begun = until, set()

    def pytest_runtest_setup(self, item):
        if time.time() > self.until and item.path not in self.begun:
            pytest.skip(f"no time left for {item.path.name}")
        if item.path.suffix == ".ipynb":
            self.begun.add(item.path)


# ------------------------------------------------------------------------------------------------- CPU seconds


def cpu_seconds() -> float:
    """Of this process, its finished children and, where the system tells (Linux), its running ones, as kernels are."""
    finished = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in finished) + _running(os.getpid())


def _running(parent: int) -> float:
    total = 0.0
    for file in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in map(int, _read(file).split()):
            # After the name in brackets: utime and stime are fields 14 and 15, cutime and cstime 16 and 17.
            used = _read(Path(f"/proc/{child}/stat")).rpartition(")")[2].split()[11:15]
            total += sum(map(int, used)) / _TICKS + _running(child)
    return total


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has just ended
        return ""


class CpuSeconds:
    """What each test costs, of notebooks too: a plugin, because hooks of this file see only the tests beside it."""

    def __init__(self):
        self.last = cpu_seconds()

    def pytest_collection_finish(self):
        self.last = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        """The last report of a test carries what it has cost, through xdist too."""
        report = yield
        if call.when == "teardown":
            before, self.last = self.last, cpu_seconds()
            report.user_properties = [*report.user_properties, ("cpu_seconds", self.last - before)]
        return report

    def pytest_terminal_summary(self, terminalreporter):
        spent = Counter()
        for report in (report for reports in terminalreporter.stats.values() for report in reports):
            for name, value in getattr(report, "user_properties", ()):
                if name == "cpu_seconds":
                    spent[report.nodeid.partition("::")[0]] += value
        terminalreporter.section(f"CPU seconds: {sum(spent.values()):.0f} in {len(spent)} files")
        for file, seconds in spent.most_common():
            if seconds >= 1 or file.endswith(".ipynb"):
                terminalreporter.line(f"{seconds:8.1f}  {file}")
