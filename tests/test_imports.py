"""A module imports only from floors below its own (the table in CONTRIBUTING.md), and modules do not go in circles."""

import ast
import re
from graphlib import TopologicalSorter

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


def named(file) -> str:
    return ".".join(file.relative_to(paths.ROOT).with_suffix("").parts).removesuffix(".__init__")


def modules_imported(file) -> set[str]:
    """Modules of the package that a file imports when it is loaded, as they are named."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "helpers":
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("helpers.")}
    return found & {named(other) for other in MODULES} - {"helpers"}


def test_modules_do_not_import_in_circles():
    graph = {named(file): modules_imported(file) - {named(file)} for file in MODULES}
    # A package's own face imports its modules, and `from package import module` names the face as well.
    faces = {named(file) for file in MODULES if file.name == "__init__.py"}
    graph = {
        name: {one for one in others if not (one in faces and name.startswith(one))} for name, others in graph.items()
    }
    assert list(TopologicalSorter(graph).static_order())


def test_methods_are_free_of_evidence():
    methods = [file for file in MODULES if floors().get(top(file), 0) < floors()["evidence"]]
    assert len(methods) > 30
    assert not [named(file) for file in methods if "evidence" in imported(file)]
