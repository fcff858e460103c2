"""A module imports only from floors below its own (the table in CONTRIBUTING.md)."""

import ast
import re

import pytest

from helpers import paths

MODULES = sorted((paths.ROOT / "helpers").rglob("*.py"))


def floors() -> dict[str, int]:
    """Floor of each top-level module of the package, from the table."""
    table = (paths.ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (\d) \| (.+?) \|", table, re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}


def top(file) -> str:
    return file.relative_to(paths.ROOT / "helpers").parts[0].removesuffix(".py")


def imported(file) -> set[str]:
    """Top-level modules of the package that a file imports, its own package aside."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "helpers":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers."):
            names.add(node.module.split(".")[1])
    return names - {top(file)}


def test_every_module_has_a_floor():
    assert {top(file) for file in MODULES} - {"__init__"} == set(floors())


@pytest.mark.parametrize("file", MODULES, ids=lambda file: "/".join(file.parts[-2:]))
def test_imports_go_down(file):
    here = floors().get(top(file), 0)
    for name in imported(file):
        assert floors()[name] < here, f"{top(file)} (floor {here}) imports {name} (floor {floors()[name]})"
