"""The project's own code as values: which definitions a piece of source reaches, and digests of them.

A digest is taken of the syntax tree without comments, layout and docstrings, so it changes when what is computed can
change, not when a word does. A definition is a function, a class with all its methods, a constant or an imported name,
at the top of a module. `parts` follows names and attributes from one definition to the next, and takes too much rather
than too little:

* a class is reached whole, with its bases; so a method that is called on an unknown object is reached with the class
  without which that object could not exist;
* a module of which more than single attributes are used (passed on, asked by `getattr`) is reached whole, and so is one
  that reads `globals()` or evaluates text;
* statements of an imported module that define nothing count, and so do definitions with a decorator of the project;
* names in annotations of functions do not count, for they compute nothing, nor does what only type checkers import.

Not followed: `sys.modules`, pickles, modules that are imported by a computed name, and a hook such as
`__init_subclass__`, which is taken to act on the class alone.
What is done with the digests is left to the callers.
"""

import ast
import hashlib
import io
import re
import symtable
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from helpers import paths

PACKAGES = ("helpers", "checks")
_DIGITS = 16  # hexadecimal: against changes, not against an adversary
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
_OF_ANY_MODULE = {"__doc__", "__file__", "__name__", "__package__", "__path__"}
_BY_TEXT = {"eval", "exec", "globals", "locals"}  # functions that may read any name of their module
_STATEMENTS = ""  # stands in the place of a definition's name
_DATA = "helpers.data"
_CARDS = f"{_DATA}.sets"  # the room whose YAML files are the cards of the data sets

parsed = cache(ast.parse)


def digest(content: bytes | str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a text or of bytes.

    >>> digest("")
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:_DIGITS]


def parts(texts: Iterable[str], *, cards_named_in: Iterable[str] | None = None) -> dict[str, str]:
    """One digest a module, of the definitions that pieces of source reach in it and of its statements; and one a card.

    Parameters
    ----------
    texts : iterable of str
        Pieces of source.
    cards_named_in : iterable of str, optional
        Of the cards of data sets, the YAML files of `helpers.data.sets`, take those alone whose names stand in the
        pieces, in what they reach outside `helpers.data`, or in these further texts. Left out, all are taken, for the
        names of the sets may come from elsewhere: from a parameter, or from the cell of a trial.

    Raises
    ------
    SyntaxError
        Not plain Python.
    """
    texts, found = list(texts), {}
    reached = definitions(texts)
    for name, reached_in in reached.items():
        digests = [f"{one} {_definition_digest(*_source(name), one)}" for one in sorted(reached_in)]
        if (table := paths.ROOT.joinpath(*name.split(".")).with_suffix(".csv")).is_file():  # which the module reads
            digests.append(f"{table.name} {digest(table.read_bytes())}")
        if kept := [entry for entry in digests if not entry.endswith(" ")]:
            found[name] = digest("\n".join(kept))
    if reached.get(_CARDS, set()) <= {_STATEMENTS}:  # imported, as by every chapter with data, and not asked
        return found
    cards = sorted(paths.ROOT.joinpath(*_CARDS.split(".")).glob("*.yaml"))
    if cards_named_in is not None and "available" not in reached.get(f"{_DATA}.catalogue", ()):
        words = _words("\n".join([*map(_cell, texts), *cards_named_in]))
        outside = (name for name in reached if not name.startswith(_DATA))
        words = words.union(*(_definition_words(*_source(name), one) for name in outside for one in reached[name]))
        cards = [card for card in cards if card.stem in words]
    found |= {f"{_CARDS}: {card.name}": digest(card.read_bytes()) for card in cards}
    return found


def definitions(texts: Iterable[str]) -> dict[str, set[str]]:
    """Names of what pieces of source reach, by module; the empty name stands for the module's statements.

    All modules that running the pieces can load have an entry.

    Raises
    ------
    SyntaxError
        Not plain Python.
    """
    return _Reach(texts).definitions


def defined(module: str) -> list[str]:
    """Names that a module of the project defines itself: functions, classes and constants."""
    content = _module(*_source(module))
    return [name for name, nodes in content.definitions.items() if nodes and name not in content.imported]


def digests(source: str) -> dict[str, str]:
    """Digest of everything that the source of a module defines, by name, and of its statements, by the empty name."""
    names = [_STATEMENTS, *_module(source, "").definitions]
    return {name: _definition_digest(source, "", name) for name in names}


def reached(texts: Iterable[str]) -> list[str]:
    """Names of the project's modules that running pieces of source can load, sorted."""
    return sorted(definitions(texts))


def imports(library: str, texts: Iterable[str]) -> bool:
    """Whether running pieces of source can load a library such as `torch`."""
    return library in {name.partition(".")[0] for name in _Reach(texts).loaded}


def modules_digest(names: Iterable[str]) -> str:
    """One digest of several modules of the project, as their files are now."""
    sources = [(name, _source(name)) for name in sorted(names)]
    return digest(" ".join(f"{name}={_tree_digest(source[0]) if source else 'absent'}" for name, source in sources))


def cells_digest(cells: Sequence[str]) -> str:
    """Digest of a notebook's code cells; cells without code do not count.

    Raises
    ------
    SyntaxError
        A cell is not plain Python.
    """
    return digest("\n".join(part for cell in cells if (part := _cell(cell))))


# From one definition to the next

_IMPORT = ast.Import | ast.ImportFrom
_NEW_SCOPE = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Dotted = tuple[str, ...]  # helpers.erm.losses as ("helpers", "erm", "losses")


class _Reach:
    """What pieces of source reach: `definitions` by module, and the names of all modules that are `loaded`."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.definitions: dict[str, set[str]] = defaultdict(set)
        self.loaded: set[str] = set()
        self._followed: set[_Dotted] = set()
        self._source = cache(_source)  # as the files are now; another time they may have been edited
        self._definitions_ahead: list[tuple[str, str]] = []
        self._paths_ahead: list[_Dotted] = []
        self._use(_uses_of(parsed("\n".join(texts)).body, ""), "")
        while self._definitions_ahead or self._paths_ahead:
            while self._definitions_ahead:
                module, name = self._definitions_ahead.pop()
                if name not in self.definitions[module]:
                    self.definitions[module].add(name)
                    self._use(_uses(*self._source(module), name), module)
            while self._paths_ahead:
                self._follow(self._paths_ahead.pop())

    def _use(self, uses: "_Uses", module: str) -> None:
        read_in = _module(*self._source(module)) if module else _Module({}, {}, [])
        for head, *rest in uses.names:
            if head in read_in.definitions:
                self._definitions_ahead.append((module, head))
            targets = uses.imported.get(head, set()) | read_in.imported.get(head, set())
            self._paths_ahead += [(*target, *rest) for target in targets]
            if head in _BY_TEXT:
                self._whole(module)
        for name in uses.loaded - self.loaded:
            self.loaded.add(name)
            parts = name.split(".")  # importing `helpers.a.b` runs `helpers` and `helpers.a` first
            modules = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
            self._definitions_ahead += [(loaded, _STATEMENTS) for loaded in modules if self._source(loaded)]

    def _follow(self, path: _Dotted) -> None:
        """A dotted name that starts at the top: through packages and what they re-export, up to a definition."""
        if path in self._followed or not self._source(path[0]):
            return
        self._followed.add(path)
        for place in range(1, len(path)):
            module, name = ".".join(path[:place]), path[place]
            content = _module(*self._source(module))
            if name in content.definitions:
                self._definitions_ahead.append((module, name))
                self._paths_ahead += [(*target, *path[place + 1 :]) for target in content.imported.get(name, ())]
            if self._source(f"{module}.{name}"):
                continue
            if name not in content.definitions and name not in _OF_ANY_MODULE:
                self._whole(module)
            return
        self._whole(".".join(path))

    def _whole(self, module: str) -> None:
        """All of a module and what it re-exports; modules that it imports are not taken whole with it."""
        if module:
            content = _module(*self._source(module))
            self._definitions_ahead += [(module, name) for name in (_STATEMENTS, *content.definitions)]
            imported = (target for targets in content.imported.values() for target in targets)
            self._paths_ahead += [target for target in imported if not self._source(".".join(target))]


class _Module(NamedTuple):
    """A file, taken apart: statements by the name that they define, what imported names stand for, and the rest."""

    definitions: dict[str, list[ast.stmt]]
    imported: dict[str, set[_Dotted]]
    statements: list[ast.stmt]


@cache
def _module(source: str, package: str) -> _Module:
    found = _Module(defaultdict(list), defaultdict(set), [])
    for node in parsed(source).body:
        names = _defined_names(node)
        for_checkers_of_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if _is_text(node) or names == ["__version__"] or for_checkers_of_types:
            continue
        for name in names:
            found.definitions[name].append(node)
        if not names:
            found.statements.append(node)
            for name in {name for part in ast.walk(node) for name in _defined_names(part)}:
                found.definitions.setdefault(name, [])  # bound under `if` or `with`, and counted with that
        if not isinstance(node, _NEW_SCOPE):
            for name, targets in _imported([node], package).items():
                found.imported[name] |= targets
    for nodes in [*found.definitions.values()]:
        decorators = [one for node in nodes for one in getattr(node, "decorator_list", ())]
        heads = {next(_dotted(one))[0] for one in decorators} & found.definitions.keys()
        if any(not found.imported[head] or any(_file(target[0]) for target in found.imported[head]) for head in heads):
            found.statements.extend(nodes)
    return found


def _defined_names(node: ast.AST) -> list[str]:
    """Names that a statement binds and does nothing else; none for other statements."""
    if isinstance(node, _NEW_SCOPE):
        return [node.name]
    if isinstance(node, _IMPORT):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = [part for target in targets for part in getattr(target, "elts", [target])]
        return [part.id for part in parts] if all(isinstance(part, ast.Name) for part in parts) else []
    return []


class _Uses(NamedTuple):
    """What code reads and loads from outside itself: dotted names, what its own imports stand for, and modules."""

    names: set[_Dotted]
    imported: dict[str, set[_Dotted]]
    loaded: set[str]


@cache
def _uses(source: str, package: str, name: str) -> _Uses:
    content = _module(source, package)
    if name != _STATEMENTS:
        return _uses_of(content.definitions.get(name, []), package)
    imports = [node for nodes in content.definitions.values() for node in nodes if isinstance(node, _IMPORT)]
    return _uses_of([*content.statements, *imports], package)


def _uses_of(nodes: Sequence[ast.stmt], package: str) -> _Uses:
    imported = _imported(nodes, package)
    loaded = {".".join(target) for targets in imported.values() for target in targets}
    imports = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Import)]
    loaded |= {alias.name for node in imports for alias in node.names}
    # Which names are global, Python says itself; one that is so in any scope of the code is taken to be so in all.
    tables = [symtable.symtable(ast.unparse(ast.Module([*nodes], [])), "", "exec")]
    free = {*imported, *tables[0].get_identifiers()}
    for table in tables:
        tables += table.get_children()
        free |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    names = {name for node in nodes for name in _dotted(node) if name[0] in free}
    return _Uses(names | ({("*",)} if "*" in imported else set()), imported, loaded)


def _dotted(node: ast.AST) -> Iterator[_Dotted]:
    """Names in code with their attributes; those in annotations of functions compute nothing."""
    path, inner = [], node
    while isinstance(inner, ast.Attribute):
        path.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield (inner.id, *path[::-1])
        return
    for name, value in ast.iter_fields(inner):
        if name != "returns" and not (name == "annotation" and isinstance(inner, ast.arg)):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from _dotted(part)


def _imported(nodes: Iterable[ast.AST], package: str) -> dict[str, set[_Dotted]]:
    """What the names stand for that code imports, from the top: `import a.b` binds `a`, `import a.b as c` `a.b`."""
    found: dict[str, set[_Dotted]] = defaultdict(set)
    for node in (part for whole in nodes for part in ast.walk(whole) if isinstance(part, _IMPORT)):
        for alias, name in zip(node.names, _defined_names(node), strict=True):
            if isinstance(node, ast.Import):
                found[name].add(tuple(alias.name.split(".")) if alias.asname else (name,))
                continue
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = (*above, *(node.module.split(".") if node.module else ()))
            found[name].add(origin if alias.name == "*" else (*origin, alias.name))
    return found


# Files


def _file(name: str) -> Path | None:
    """The file of a module; None for what is no module of the project, such as a function that is imported."""
    parts = name.split(".")
    for folder in (paths.ROOT,) if parts[0] in PACKAGES else (paths.ROOT / "tests",):  # beside them: what tests share
        target = folder.joinpath(*parts)
        for file in (target / "__init__.py", target.with_suffix(".py")):
            if file.is_file():
                return file
    return None


def _source(name: str) -> tuple[str, ...]:
    """Source of a module, and the package from which its relative imports count; empty where `_file` has none."""
    if file := _file(name):
        return file.read_text(), name if file.name == "__init__.py" else name.rpartition(".")[0]
    return ()


# Digests


@cache
def _definition_digest(source: str, package: str, name: str) -> str:
    """Digest of what defines a name; an empty text where a module has no statements."""
    content = _module(source, package)
    nodes = content.definitions.get(name, []) if name != _STATEMENTS else content.statements
    return digest(_plain(nodes)) if nodes else ""


@cache
def _definition_words(source: str, package: str, name: str) -> frozenset[str]:
    """Words of what defines a name: of its names and texts, without docstrings."""
    content = _module(source, package)
    return frozenset(_words(_plain(content.definitions.get(name, []) if name != _STATEMENTS else content.statements)))


def _words(plain: str) -> set[str]:
    return set(re.split(r"\\[nt]|\W+", plain))  # a line break in a text is written as two characters


@cache
def _tree_digest(source: str) -> str:
    body = [node for node in parsed(source).body if not _is_text(node)]
    return digest(_plain([node for node in body if _defined_names(node) != ["__version__"]]))


@cache
def _cell(source: str) -> str:
    """A cell as text without words; the value of a last bare text is shown, and a semicolon hides a value."""
    tree = parsed(source)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in _SILENT]
    return _plain(tree.body) + (";" if tokens[-1].string == ";" else "") if tree.body else ""


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a text and nothing else: a docstring, also of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _plain(node: object) -> str:
    """As `ast.dump`, but without docstrings and without empty fields, whose number differs among Pythons."""
    if isinstance(node, list):
        return f"[{','.join(map(_plain, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    shown = []
    for name in node._fields:
        value = getattr(node, name, None)
        if name == "body" and isinstance(value, list):
            value = [part for part in value if not _is_text(part)]
        if value is not None and value != []:
            shown.append(f"{name}={_plain(value)}")
    return f"{type(node).__name__}({','.join(shown)})"
