"""The project's own code as values: which definitions a piece of source reaches, and digests of them.

A digest is taken of the syntax tree without comments, layout and docstrings, so it changes when what is computed can
change, not when a word does. A definition is a function, a class with all its methods, a constant or an imported name,
at the top of a module. `parts` follows names and attributes from one definition to the next, and takes too much rather
than too little:

* a class is reached whole, with its bases; so a method that is called on an unknown object is reached with the class
  without which that object could not exist;
* a module of which more than single attributes are used (passed on, asked by `getattr`) is reached whole, and so is one
  that reads `globals()` or evaluates text; a module that is imported by a computed name may be any;
* statements of an imported module that define nothing count, and so do definitions with a decorator of the project;
* names in annotations of functions do not count, for they compute nothing; what a module imports for the type checker
  and hands out by `__getattr__` is reached, and loaded, with the first name that is used.

Not followed: `sys.modules`, pickles, and a hook such as `__init_subclass__`, which is taken to act on the class alone.
What is done with the digests is left to the callers.
"""

import ast
import hashlib
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
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


def parts(texts: Iterable[str], *, cards_by_name: bool = False, tables: Iterable[str] = ()) -> dict[str, str]:
    """One digest a module, of the definitions that pieces of source reach in it and of its statements; and one a card.

    Parameters
    ----------
    texts : iterable of str
        Pieces of source.
    cards_by_name : bool
        Of the cards of data sets, the YAML files of `helpers.data.sets`, take those alone whose names stand in the
        pieces or in what they reach outside `helpers.data`. Otherwise all are taken, for the names of the sets may come
        from elsewhere: from a parameter, or from the cell of a trial.
    tables : iterable of str
        Texts that the pieces read, in which names of sets may stand too.

    Raises
    ------
    SyntaxError
        Not plain Python.
    """
    texts, found, words = list(texts), {}, set()
    reached = definitions(texts)
    for name, reached_in in reached.items():
        digests = [f"{one} {_definition_digest(*_source(name), one)}" for one in sorted(reached_in)]
        if kept := [entry for entry in digests if not entry.endswith(" ")]:
            found[name] = digest("\n".join(kept))
    if reached.get(_CARDS, set()) <= {_STATEMENTS}:  # imported, as by every chapter with data, and not asked
        return found
    if cards_by_name:
        words |= _words("\n".join([*map(_cell, texts), *tables]))
        outside = (name for name in reached if not name.startswith(_DATA))
        words = words.union(*(_definition_words(*_source(name), one) for name in outside for one in reached[name]))
    for card in sorted(_file(_CARDS).parent.glob("*.yaml")):
        if not cards_by_name or card.stem in words or "available" in reached.get(f"{_DATA}.catalogue", ()):
            found[f"{_CARDS}: {card.name}"] = digest(card.read_bytes())
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


def reached(texts: Iterable[str]) -> list[str]:
    """Names of the project's modules that running pieces of source can load, sorted."""
    return sorted(definitions(texts))


def imports(library: str, texts: Iterable[str]) -> bool:
    """Whether running pieces of source can load a library such as `torch`."""
    return library in {name.partition(".")[0] for name in _Reach(texts).loaded}


def module_digest(name: str) -> str:
    """Digest of a module of the package, `helpers.erm.objective` say, as its file is now."""
    file = _file(name)
    return _tree_digest(file.read_text()) if file else "absent"


def modules_digest(names: Iterable[str]) -> str:
    """One digest of several modules."""
    return digest(" ".join(f"{name}={module_digest(name)}" for name in sorted(names)))


def cells_digest(cells: Sequence[str]) -> str:
    """Digest of a notebook's code cells; cells without code do not count.

    Raises
    ------
    SyntaxError
        A cell is not plain Python.
    """
    return digest("\n".join(part for cell in cells if (part := _cell(cell))))


# From one definition to the next

_NEW_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_NEW_SCOPES += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Dotted = tuple[str, ...]  # helpers.erm.losses as ("helpers", "erm", "losses")


class _Reach:
    """What pieces of source reach: `definitions` by module, and the names of all modules that are `loaded`."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.definitions: dict[str, set[str]] = defaultdict(set)
        self.loaded: set[str] = set()
        self._taken: set[tuple[str, str]] = set()
        self._followed: set[_Dotted] = set()
        self._source = cache(_source)  # as the files are now; another time they may have been edited
        pieces = _pieces("\n".join(texts))
        self._definitions_ahead: list[tuple[str, str]] = []
        self._paths_ahead: list[_Dotted] = []
        self._use(_uses_of(pieces.statements, ""), pieces, "")
        while self._definitions_ahead or self._paths_ahead:
            while self._definitions_ahead:
                self._take(*self._definitions_ahead.pop())
            while self._paths_ahead:
                self._follow(self._paths_ahead.pop())

    def _take(self, module: str, name: str) -> None:
        if (module, name) not in self._taken:
            self._taken.add((module, name))
            self.definitions[module].add(name)
            source = self._source(module)
            self._use(_uses(*source, name), _module(*source), module)

    def _use(self, uses: "_Uses", read_in: "_Module", module: str) -> None:
        for path in uses.names:
            self._read(read_in, module, path)
        self._paths_ahead += uses.paths
        for name in uses.loaded - self.loaded:
            self._load(name)
        if uses.any_name:
            self._whole(module)
        if uses.any_module:
            for name in _all_modules():
                self._load(name)
                self._whole(name)

    def _load(self, name: str) -> None:
        """Importing `helpers.a.b` runs `helpers` and `helpers.a` first."""
        self.loaded.add(name)
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            if self._source(loaded := ".".join(parts[:length])):
                self._definitions_ahead.append((loaded, _STATEMENTS))

    def _read(self, read_in: "_Module", module: str, path: _Dotted) -> None:
        """A dotted name in code of a module: its own definition, or what it has imported."""
        head, *rest = path
        if module and head in read_in.definitions:
            self._definitions_ahead.append((module, head))
        if head in read_in.lazy:
            self.definitions[module].add("__getattr__")
            for name in _uses(*self._source(module), "__getattr__").loaded:
                self._load(name)
        self._paths_ahead += [(*target, *rest) for target in read_in.imported.get(head, ())]

    def _follow(self, path: _Dotted) -> None:
        """A dotted name that starts at the top: through packages and what they re-export, up to a definition."""
        if path in self._followed or not self._source(path[0]):
            return
        self._followed.add(path)
        for place in range(1, len(path)):
            module, name = ".".join(path[:place]), path[place]
            content = _module(*self._source(module))
            if name in content.definitions:
                self._read(content, module, path[place:])
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
    lazy: set[str]  # imported for the type checker alone, and perhaps at their first use


@cache
def _module(source: str, package: str) -> _Module:
    found = _Module(defaultdict(list), defaultdict(set), [], set())
    pending = parsed(source).body[::-1]
    while pending:
        node = pending.pop()
        names = _defined_names(node)
        if isinstance(node, ast.Import | ast.ImportFrom) and names != ["*"]:
            for alias, name in zip(node.names, names, strict=True):
                fields = {**vars(node), "names": [alias]}
                found.definitions[name].append(type(node)(**fields))
                found.imported[name].add(_target(node, alias, package))
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += [*node.orelse[::-1], *node.body[::-1]]
            found.lazy.update(name for part in node.body for name in _defined_names(part))
        elif _is_text(node) or names == ["__version__"]:
            pass
        elif names:
            for name in names:
                found.definitions[name].append(node)
        else:
            found.statements.append(node)
            for name, targets in _bound([node], package).items():  # of `if` and `with`: theirs, and counted with them
                found.definitions.setdefault(name, [])
                if targets:
                    found.imported[name] |= targets
    for name, nodes in found.definitions.items():
        decorators = [ast.unparse(one) for node in nodes for one in getattr(node, "decorator_list", ())]
        heads = {text.partition("(")[0].partition(".")[0] for text in decorators}
        if any(head in found.definitions and not _is_foreign(found.imported.get(head, ())) for head in heads):
            found.statements.extend(found.definitions[name])
    return found


def _is_foreign(targets: Collection[_Dotted]) -> bool:
    return bool(targets) and not any(_file(target[0]) for target in targets)


def _pieces(source: str) -> _Module:
    """Code that is run from top to bottom and whose every statement counts."""
    body = parsed(source).body
    return _Module({}, {name: targets for name, targets in _bound(body, "").items() if targets}, body, set())


def _defined_names(node: ast.stmt) -> list[str]:
    """Names that a statement binds and does nothing else; none for other statements."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = [part for target in targets for part in getattr(target, "elts", [target])]
        return [part.id for part in parts] if all(isinstance(part, ast.Name) for part in parts) else []
    return []


class _Uses(NamedTuple):
    """What code reads and loads from outside itself."""

    names: set[_Dotted]  # global names of its module, with attributes
    paths: set[_Dotted]  # names that start at the top, since the code imports them itself
    loaded: set[str]
    any_name: bool  # reads its module by text
    any_module: bool  # imports by a computed name


@cache
def _uses(source: str, package: str, name: str) -> _Uses:
    content = _module(source, package)
    if name != _STATEMENTS:
        return _uses_of(content.definitions.get(name, []), package)
    at_once = [nodes for one, nodes in content.definitions.items() if one not in content.lazy]
    imported = [node for nodes in at_once for node in nodes if isinstance(node, _IMPORT)]
    return _uses_of([*content.statements, *imported], package)


_IMPORT = (ast.Import, ast.ImportFrom)


def _uses_of(nodes: Iterable[ast.AST], package: str) -> _Uses:
    reader = _Reader(package)
    for node in nodes:
        reader.visit(node)
    return _Uses(reader.names, reader.paths, reader.loaded, reader.any_name, reader.any_module)


class _Reader(ast.NodeVisitor):
    """Walks code with its scopes. A name that is not seen to be bound in a function is taken for one of the module."""

    def __init__(self, package: str) -> None:
        self.names: set[_Dotted] = set()
        self.paths: set[_Dotted] = set()
        self.loaded: set[str] = set()
        self.any_name = self.any_module = False
        self._package = package
        self._scopes: list[dict[str, set[_Dotted]]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read((node.id,))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read((node.target.id,))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            path.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self._read((inner.id, *path[::-1]))
        else:
            self.visit(inner)

    def _read(self, path: _Dotted) -> None:
        for scope in reversed(self._scopes):
            if path[0] in scope:
                self.paths |= {target + path[1:] for target in scope[path[0]]}
                return
        self.any_name |= path[0] in _BY_TEXT
        self.any_module |= path[-1] in _IMPORTERS
        self.names.add(path)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            *origin, last = _target(node, alias, self._package)
            if isinstance(node, ast.Import):
                self.loaded.add(alias.name)
            else:
                self.loaded |= {".".join(origin), ".".join([*origin, last])}  # an attribute, or a module of a package
            if last == "*":
                self.paths.add(tuple(origin))

    visit_ImportFrom = visit_Import

    def visit_Expr(self, node: ast.Expr) -> None:
        """A module that is imported by name, and not looked at, is loaded like others."""
        call = node.value
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in _IMPORTERS):
            self.generic_visit(node)
        elif isinstance(call.args[0], ast.Constant):
            self.loaded.add(call.args[0].value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Names of the body are no scope for its methods, so that they count as the module's."""
        self.paths = self.paths.union(*_bound(node.body, self._package).values())
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Decorators and defaults belong to the scope outside; annotations compute nothing."""
        for outside in (*getattr(node, "decorator_list", ()), *node.args.defaults, *node.args.kw_defaults):
            if outside is not None:
                self.visit(outside)
        body = node.body if isinstance(node.body, list) else [node.body]
        parameters = [part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        self._inside({name: set() for name in parameters} | _bound(body, self._package), body)

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        """The first iterable belongs to the scope outside."""
        first, *others = node.generators
        self.visit(first.iter)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        scope = _bound([part.target for part in node.generators], self._package)
        self._inside(scope, [first.target, *first.ifs, *others, *results])

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _inside(self, scope: dict[str, set[_Dotted]], nodes: Iterable[ast.AST]) -> None:
        self._scopes.append(scope)
        for node in nodes:
            self.visit(node)
        self._scopes.pop()


_IMPORTERS = {"import_module", "__import__"}


def _bound(nodes: Iterable[ast.AST], package: str) -> dict[str, set[_Dotted]]:
    """Names that a scope binds, with what those stand for that it imports."""
    bound: dict[str, set[_Dotted]] = defaultdict(set)
    elsewhere = set()
    for node in _of_scope(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] |= set()
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            bound[node.name] |= set()
        elif isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere |= set(node.names)
        elif isinstance(node, _IMPORT):
            for alias, name in zip(node.names, _defined_names(node), strict=True):
                bound[name].add(_target(node, alias, package))
    return {name: targets for name, targets in bound.items() if name not in elsewhere}


def _of_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes of one scope; functions, classes and comprehensions come without what is inside them."""
    for node in nodes:
        yield node
        if not isinstance(node, _NEW_SCOPES):
            yield from _of_scope(ast.iter_child_nodes(node))


def _target(node: ast.Import | ast.ImportFrom, alias: ast.alias, package: str) -> _Dotted:
    """What an imported name stands for, from the top: `import a.b` binds `a`, `import a.b as c` binds `a.b`."""
    if isinstance(node, ast.Import):
        return tuple(alias.name.split(".")) if alias.asname else (alias.name.partition(".")[0],)
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return (*above, *(node.module.split(".") if node.module else ()), alias.name)


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


def _source(name: str) -> tuple[str, str] | None:
    """Source of a module, and the package from which its relative imports count; None as for `_file`."""
    if file := _file(name):
        return file.read_text(), name if file.name == "__init__.py" else name.rpartition(".")[0]
    return None


def _all_modules() -> list[str]:
    files = (file for package in PACKAGES for file in (paths.ROOT / package).rglob("*.py"))
    return [".".join(file.relative_to(paths.ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]


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
    return digest(_plain([node for node in parsed(source).body if not _is_text(node) and not _is_version(node)]))


@cache
def _cell(source: str) -> str:
    """A cell as text without words; the value of a last bare text is shown, and a semicolon hides a value."""
    tree = parsed(source)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in _SILENT]
    return _plain(tree.body) + (";" if tokens[-1].string == ";" else "") if tree.body else ""


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a text and nothing else: a docstring, also of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_version(node: ast.stmt) -> bool:
    return _defined_names(node) == ["__version__"]


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
