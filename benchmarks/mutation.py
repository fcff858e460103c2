"""Are the tests awake? Small faults go into the privacy-critical modules, one at a time, and the tests have to notice.

The faults are cosmic-ray's operators that change what is computed (a number by one, a sum into a difference, a
condition into its opposite, ...), and one more that it lacks: a factor left out, which is how noise loses its
sensitivity. A child process runs the module's tests with the changed source in place of the file, which is never
touched. Outcomes are kept as they come, so an interrupted run goes on: "killed" for as long as the module, the test
that failed and all in its file that is no test are the same, "survived" and "timeout" for as long as all the tests are.

Run with `make -C benchmarks mutation`. Survivors that are no faults, because what is computed means the same, stand in
`benchmarks/survivors.csv`, each with its reason; one that is not there, or an entry that no survivor matches, is
reported. As is usual, the score is the share of the others that are noticed.

Definitions under "no release" in `benchmarks/mutation.yaml` get no faults: they compute from released or public numbers
alone, which `tests/test_replay.py` holds for whole fits, ask a curator for releases, who bills what he draws, or work
for the holder's eyes. A fault there costs accuracy, and never privacy.
"""

import argparse
import ast
import contextlib
import csv
import gc
import hashlib
import importlib.abc
import importlib.util
import math
import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks" / ".mutation"))  # last, so that it replaces nothing of the project's own

from cosmic_ray.mutating import mutate_code  # noqa: E402
from cosmic_ray.operators.operator import Operator  # noqa: E402
from cosmic_ray.plugins import get_operator  # noqa: E402

TARGETS = ROOT / "benchmarks" / "mutation.yaml"
SURVIVORS = ROOT / "benchmarks" / "survivors.csv"
STORE = ROOT / "runs" / "mutation.csv"
RESULT = ROOT / "results" / "mutation.csv"
SECONDS = 60  # of CPU time, or three times what the tests take without a fault: after that, something does not end
MEMORY = 8 << 30  # bytes of address space: a fault in a size must not take the machine down
_SWAPS = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Pow_Mul")
_OPPOSITES = ("Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
_NAMES = [
    *(f"ReplaceBinaryOperator_{pair}" for pair in _SWAPS),
    *(f"ReplaceComparisonOperator_{pair}" for pair in _OPPOSITES),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "ZeroIterationForLoop", "NumberReplacer"),
]


class DropFactor(Operator):
    """Leaves out one operand of a product or quotient: `a * b` becomes `a` or `b`, `a / b` becomes `a`."""

    def mutation_positions(self, node):
        if getattr(node, "type", "") == "term":
            for index, child in enumerate(node.children):
                if getattr(child, "value", "") in ("*", "/"):
                    yield node.start_pos, node.end_pos
                    if index == 1 and child.value == "*":
                        yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        cuts = []
        for place, child in enumerate(node.children):
            if getattr(child, "value", "") in ("*", "/"):
                cuts.append((place, place + 2))
                if place == 1 and child.value == "*":
                    cuts.append((0, 2))
        start, end = cuts[index]
        del node.children[start:end]
        return node

    @classmethod
    def examples(cls):
        return ()


OPERATORS = {**{name: get_operator(f"core/{name}") for name in _NAMES}, "DropFactor": DropFactor}


class Mutant(NamedTuple):
    """One fault: where it is and what it does."""

    module: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.before} -> {self.after}"


def mutants(module: str, outside: Iterable[str] = ()) -> Iterator[Mutant]:
    """Every fault of a module, in the order of the operators; those that mean the same, or nothing, are left out.

    `outside` names the definitions, `Class`, `Class.method` or `function`, that get none.
    """
    code = (ROOT / module).read_text()
    left_out = _lines(code, outside)
    seen = {_meaning(code), ""}
    for operator, kind in OPERATORS.items():
        for occurrence in range(10_000):
            changed = mutate_code(code, kind(), occurrence)
            if changed is None:
                break
            meaning = _meaning(changed)
            if meaning in seen:
                continue
            seen.add(meaning)
            lines = zip(code.split("\n"), changed.split("\n"), strict=False)
            line, (before, after) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
            if line not in left_out:
                yield Mutant(module, operator, occurrence, line, before.strip(), after.strip(), changed)


def _lines(code: str, names: Iterable[str]) -> set[int]:
    """Numbers of the lines of some definitions."""
    found = {}
    for node in ast.parse(code).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}": each for each in node.body if isinstance(each, ast.FunctionDef)}
    return {line for name in names for line in range(found[name].lineno, found[name].end_lineno + 1)}


def _meaning(code: str) -> str:
    """The program without its spelling; empty if it is none."""
    try:
        return ast.dump(ast.parse(code))
    except SyntaxError:
        return ""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module of the package from a text."""

    def __init__(self, module: str, source: str):
        self.name = module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.file, self.source = str(ROOT / module), source

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self, origin=self.file) if name == self.name else None

    def get_filename(self, name):
        return self.file

    def get_data(self, path):
        return self.source.encode()

    def path_stats(self, path):
        raise OSError  # never from or into a cache


class _Teller:
    """Writes the names of what fails, a test or a file that cannot be imported, to a pipe."""

    def __init__(self, pipe: int):
        self.pipe = pipe

    def pytest_collectreport(self, report):
        if report.failed:
            os.write(self.pipe, f"{report.nodeid}\n".encode())

    pytest_runtest_logreport = pytest_collectreport


def _in_child(mutant: Mutant, first: list[str], tests: list[str], pipe: int, seconds: int) -> None:
    """Run some tests on the changed module, and all if those pass; the exit code is pytest's, 1 if something failed."""
    import pytest

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.meta_path.insert(0, _Changed(mutant.module, mutant.source))
    try:
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        code = 0
        # `tests/conftest.py` is in it for the noise that repeats: a test that fails by chance would count as noticing.
        for chosen in filter(None, (first, tests)):
            code = int(pytest.main([*options, "-o", "addopts=", *chosen], plugins=[_Teller(pipe)]))
            # A test asked for by name is not found where its file cannot be imported, or its parameters have other
            # names: whether that is noticed, all tests have to say.
            if code not in (0, pytest.ExitCode.USAGE_ERROR):
                break
    except BaseException:
        code = 1
    os._exit(code)


class Outcome(NamedTuple):
    """What became of a mutant: "killed", "timeout" or "survived", the first test that failed, and seconds of CPU."""

    verdict: str
    test: str
    seconds: float


def outcomes(
    todo: list[Mutant], tests: dict[str, list[str]], jobs: int, limits: dict[str, int]
) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant and what became of it, as they end; `limits` are the CPU seconds that each module's tests may take.

    They are taken line by line, and the tests that noticed the last ones go first: most faults of one function are
    noticed by the same few tests, so that the others need not even be imported.
    """
    waiting, running = sorted(todo, key=lambda mutant: (mutant.module, mutant.line), reverse=True), {}
    telling: dict[str, list[str]] = {module: [] for module in tests}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                _in_child(mutant, telling[mutant.module], tests[mutant.module], writing, limits[mutant.module])
            os.close(writing)
            running[child] = mutant, reading
        child, status, used = os.wait3(0)
        mutant, reading = running.pop(child)
        with os.fdopen(reading) as pipe:
            failed = pipe.readline().strip()
        if "::" in failed:
            others = [test for test in telling[mutant.module] if test != failed]
            telling[mutant.module] = [failed, *others][:4]
        yield mutant, Outcome(_verdict(mutant, status), failed, used.ru_utime + used.ru_stime)


def _verdict(mutant: Mutant, status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    # 4: a test that is asked for by name is not found. Without the fault all are (`_check_tests`).
    if code not in (0, 1, 2, 3, 4) and code >= 0:
        raise RuntimeError(f"the tests of {mutant.module} could not be run: pytest's exit code is {code}")
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    return "survived" if code == 0 else "killed"


def _check_tests(chosen: dict[str, list[str]], jobs: int) -> dict[str, int]:
    """The limits of CPU time. Every module's tests pass without a fault; else they would notice anything."""
    limits = dict.fromkeys(chosen, 60 * SECONDS)
    sound = [Mutant(module, "", 0, 0, "", "", (ROOT / module).read_text()) for module in chosen]
    for mutant, outcome in outcomes(sound, chosen, jobs, limits):
        if outcome.verdict != "survived":
            raise SystemExit(f"the tests of {mutant.module} fail without a fault: {outcome.test or outcome.verdict}")
        print(f"{mutant.module}: its tests take {outcome.seconds:.1f} s", flush=True)
        limits[mutant.module] = max(SECONDS, math.ceil(3 * outcome.seconds))
    return limits


def _fault(module: str, operator: str, occurrence: int) -> str:
    """Names a fault of a module as it is now."""
    return hashlib.sha256(f"{_computed(module)} {operator} {occurrence}".encode()).hexdigest()[:16]


@cache
def _computed(module: str) -> str:
    """A module as a tree without comments and docstrings: what is said about code in words is no part of a fault."""
    tree = ast.parse((ROOT / module).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(tree)


@cache
def _witness(test: str, tests: tuple[str, ...]) -> str:
    """Digest of what has seen a fault: the test that failed and what surrounds it, or all the tests if none did."""
    file, _, name = test.partition("::")
    files = {each: (ROOT / each.partition("::")[0]).read_text() for each in tests}
    if not any(each.partition("::")[0] == file for each in tests):
        texts = [f"{each}\n{text}" for each, text in files.items()]
    else:
        texts = [_surroundings((ROOT / file).read_text(), name.partition("[")[0])]
    shared = ("erm_data", "inventory", "releases", "synthesis_data", "neural_torch")
    texts += [(ROOT / f"tests/{name}.py").read_text() for name in shared if any(name in text for text in texts)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _surroundings(code: str, name: str) -> str:
    """A file of tests without its other tests; all of it where the file itself failed."""
    kept = [
        node
        for node in ast.parse(code).body
        if not name or not getattr(node, "name", "").startswith("test_") or node.name == name
    ]
    return "\n".join(map(ast.dump, kept))


def _known(chosen: dict[str, list[str]]) -> dict[str, str]:
    """What earlier runs have found about which fault, where it still holds."""
    STORE.parent.mkdir(exist_ok=True)
    if not STORE.exists():
        STORE.write_text("module,fault,verdict,test,witness,seconds\n")
    rows = pd.read_csv(STORE, keep_default_na=False).itertuples()
    return {
        row.fault: row.verdict
        for row in rows
        if row.module in chosen and row.witness == _witness(row.test, tuple(chosen[row.module]))
    }


def _preload() -> None:
    """What every child needs and no mutant changes, once, before the first fork."""
    numerical = ("numpy", "scipy.stats", "scipy.optimize", "sklearn.utils.estimator_checks", "pandas", "torch")
    others = ("dp_accounting.pld", "dp_accounting.rdp", "hypothesis", "imblearn", "matplotlib.pyplot", "pytest")
    for name in (*numerical, *others, "randomgen"):
        importlib.import_module(name)
    # As in `tests/conftest.py`, which children leave out: no property fails by chance or because the machine is busy.
    settings = importlib.import_module("hypothesis").settings
    settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
    settings.load_profile("repeatable")
    gc.collect()
    gc.freeze()  # no child has to look through all of this again


def main() -> int:
    """Run what is missing and write the score; exit code 1 if a survivor has no reason, or a reason no survivor."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help="only these, helpers/privacy/mechanisms.py say")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    entries = yaml.safe_load(TARGETS.read_text())
    targets, outside = entries["tests"], entries["no release"]
    unknown = set(options.modules) - set(targets)
    if unknown:
        parser.error(f"modules must be among those of {TARGETS.name}, got {', '.join(sorted(unknown))}")
    chosen = {module: tests for module, tests in targets.items() if module in (options.modules or targets)}
    everything = [mutant for module in chosen for mutant in mutants(module, outside.get(module, ()))]
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "tests"))
    _preload()
    faults = {mutant: _fault(mutant.module, mutant.operator, mutant.occurrence) for mutant in everything}
    known = _known(chosen)
    todo = [mutant for mutant in everything if faults[mutant] not in known]
    print(f"{len(everything)} mutants, {len(todo)} to run", flush=True)
    limits = _check_tests({mutant.module: chosen[mutant.module] for mutant in todo}, options.jobs)
    with STORE.open("a", newline="") as file:
        store = csv.writer(file, lineterminator="\n")
        for done, (mutant, (verdict, test, seconds)) in enumerate(outcomes(todo, chosen, options.jobs, limits), 1):
            known[faults[mutant]] = verdict
            witness = _witness(test, tuple(chosen[mutant.module]))
            store.writerow([mutant.module, faults[mutant], verdict, test, witness, f"{seconds:.1f}"])
            file.flush()
            if verdict == "survived":
                print(f"[{done}/{len(todo)}] survived: {mutant.name}", flush=True)
    found = {mutant: known[faults[mutant]] for mutant in everything}
    return _report(everything, found, set(targets))


def _report(everything: list[Mutant], outcome: dict[Mutant, str], targets: set[str]) -> int:
    rows = pd.DataFrame([{"module": mutant.module, "outcome": outcome[mutant]} for mutant in everything])
    table = pd.crosstab(rows.module, rows.outcome).reindex(columns=["killed", "timeout", "survived"], fill_value=0)
    reasons = pd.read_csv(SURVIVORS) if SURVIVORS.exists() else pd.DataFrame(columns=["module", "before", "after"])
    explained = set(zip(reasons.module, reasons.before, reasons.after, strict=True))
    survivors = [mutant for mutant in everything if outcome[mutant] == "survived"]
    open_ones = [mutant for mutant in survivors if (mutant.module, mutant.before, mutant.after) not in explained]
    table["without reason"] = pd.Series([mutant.module for mutant in open_ones], dtype=object).value_counts()
    table = table.fillna(0).astype(int)
    noticed = table.killed + table.timeout
    table["score"] = (noticed / (noticed + table["without reason"])).round(4)
    print(table.to_string())
    print(
        f"noticed {noticed.sum()} of {noticed.sum() + len(open_ones)}, and {len(survivors) - len(open_ones)} no faults"
    )
    for mutant in open_ones:
        print(f"no reason given: {mutant.name}")
    alive = {(mutant.module, mutant.before, mutant.after) for mutant in survivors}
    outdated = sorted(reason for reason in explained - alive if reason[0] in set(rows.module))
    for module, before, after in outdated:
        print(f"no such survivor: {module} {before} -> {after}")
    # What other modules scored in their own last run stays, so that modules may be run one at a time.
    earlier = pd.read_csv(RESULT, index_col="module")
    kept = earlier[earlier.index.isin(targets - set(table.index))]
    pd.concat([kept, table]).sort_index().to_csv(RESULT, index_label="module")
    return int(bool(open_ones or outdated))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
