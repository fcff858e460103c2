"""A module imports only from floors below its own (the table in CONTRIBUTING.md), and modules do not go in circles."""

import ast
import re
from graphlib import TopologicalSorter

import pytest

from helpers import paths

# Where the code is; `helpers` is divided further, into rooms and modules at its top.
PLACES = ("helpers", "checks", "book/_ext")
MODULES = sorted(file for place in PLACES for file in (paths.ROOT / place).rglob("*.py"))


def floors() -> dict[str, int]:
    """Floor of each room of `helpers`, and of the other places, from the table."""
    table = (paths.ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (\d) \| (.+?) \|", table, re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`([\w/]+)`", names)}


def room(module: str) -> str:
    """Where a module belongs in the table: `helpers.privacy.ledger` to privacy, `checks.smote` to checks/."""
    place, _, rest = module.partition(".")
    return rest.partition(".")[0] if place == "helpers" else "checks/" if place == "checks" else "book/_ext"


def named(file) -> str:
    """The name by which a module is imported; those of `book/_ext` are on the path themselves."""
    parts = file.relative_to(paths.ROOT).with_suffix("").parts
    return parts[-1] if parts[0] == "book" else ".".join(parts).removesuffix(".__init__")


NAMES = {named(file) for file in MODULES}


def imported(tree) -> set[str]:
    """Modules of the project that a piece of code imports, as they are named."""
    found = set()
    for node in tree:
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & NAMES - {"helpers", "checks"}


def test_every_module_has_a_floor():
    assert {room(name) for name in NAMES - {"helpers"}} == set(floors())


@pytest.mark.parametrize("file", MODULES, ids=lambda file: "/".join(file.parts[-2:]))
def test_imports_go_down(file):
    own = room(named(file))
    for name in imported(ast.walk(ast.parse(file.read_text()))):
        there = room(name)
        assert there == own or floors()[there] < floors().get(own, 0), f"{named(file)} imports {name}"


def test_modules_do_not_import_in_circles():
    graph = {named(file): imported(ast.parse(file.read_text()).body) - {named(file)} for file in MODULES}
    # A package's own face imports its modules, and `from package import module` names the face as well.
    faces = {named(file) for file in MODULES if file.name == "__init__.py"}
    graph = {
        name: {one for one in others if not (one in faces and name.startswith(one))} for name, others in graph.items()
    }
    assert list(TopologicalSorter(graph).static_order())


def test_methods_are_free_of_checks():
    methods = [file for file in MODULES if floors().get(room(named(file)), 0) < floors()["checks/"]]
    assert len(methods) > 30
    reached = {name for file in methods for name in imported(ast.walk(ast.parse(file.read_text())))}
    assert not [name for name in reached if room(name) == "checks/"]
