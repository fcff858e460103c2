"""Do the tests notice noise that is not what is billed? Faults made by hand, and which tests see them.

`benchmarks/leaks.yaml` has the faults. One at a time goes into its module as a child process imports it, never into the
file; the child runs the named tests of the ledger and of the estimators. Run with `make -C benchmarks leaks`.
"""

import importlib.abc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
FAULTS = Path(__file__).with_suffix(".yaml")


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
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


def run(number: int) -> None:
    """The tests with one fault; the exit code is pytest's."""
    import pytest

    _, module, before, after, chosen = yaml.safe_load(FAULTS.read_text())[number]
    sys.meta_path.insert(0, Changed(module, (ROOT / module).read_text().replace(before, after)))
    names = [name.strip() for name in chosen.split(" or ")]
    files = [f"tests/{name}.py" for name in names if name.startswith("test_")]
    classes = [name for name in names if not name.startswith("test_")]
    selected = ["-k", " or ".join([*classes, *(Path(file).stem for file in files)])]
    files += ["tests/test_replay.py", "tests/test_ledger.py"] if classes else []
    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files, *selected]))


def main() -> None:
    faults, survivors = yaml.safe_load(FAULTS.read_text()), []
    for number, (name, module, before, _, _) in enumerate(faults):
        if (ROOT / module).read_text().count(before) != 1:
            sys.exit(f"{name}: {before!r} must stand once in {module}")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(number)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1, 2):
            sys.exit(f"{name}: pytest's exit code is {done.returncode}\n{done.stdout[-2000:]}")
        noticed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        print(f"{'noticed' if done.returncode else 'SURVIVED'}: {name}  {noticed[:150]}", flush=True)
        survivors += [] if done.returncode else [name]
    print(f"{len(faults) - len(survivors)} of {len(faults)} noticed")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    run(int(sys.argv[1])) if len(sys.argv) > 1 else main()
