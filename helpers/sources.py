"""The project's own code as values: which definitions a piece of source reaches, and digests of them.

A digest is taken of the syntax tree without comments, layout and docstrings, so it changes when what is computed can
change, not when a word does. A definition is a function, a class with all its methods, a constant or an imported name,
at the top of a module. `parts` follows names and attributes from one definition to the next, and takes too much rather
than too little:

* a name of a variable is taken to be that of its module, if that has one, also where it is a local one;
* a class is reached whole, with its bases; so a method that is called on an unknown object is reached with the class
  without which that object could not exist;
* a module of which more than single attributes are used (passed on, asked by `getattr`) is reached whole;
* statements of an imported module that define nothing count;
* names in annotations of functions do not count, for they compute nothing, nor does what only type checkers import.

Not followed, and not in the project, as a test makes sure: imports by a computed or a relative name, `globals`, a
module's `__getattr__`, and decorators of the project's own at the top of a module. Nor are pickles.
What is done with the digests is left to the callers.
"""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from itertools import accumulate

from helpers import paths

PACKAGES = ("helpers", "checks")
_STATEMENTS = ""  # stands in the place of a definition's name
_DATA = "helpers.data"
_CARDS = f"{_DATA}.sets"  # the room whose YAML files are the cards of the data sets

parsed = cache(ast.parse)


def digest(content: bytes | str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a text or of bytes: against changes, not an adversary.

    >>> digest("")
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


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
    texts = list(texts)
    reached = definitions(texts)
    codes = {name: {one: _code(_source(name) or "", one) for one in sorted(there)} for name, there in reached.items()}
    for name in reached:  # a table beside a module is read by it
        if (table := paths.ROOT.joinpath(*name.split(".")).with_suffix(".csv")).is_file():
            codes[name][table.name] = digest(table.read_bytes())
    found = {name: digest(repr(code)) for name, code in codes.items() if any(code.values())}
    if reached.get(_CARDS, set()) <= {_STATEMENTS}:  # imported, as by every chapter with data, and not asked
        return found
    cards = sorted(paths.ROOT.joinpath(*_CARDS.split(".")).glob("*.yaml"))
    if cards_named_in is not None and "available" not in reached.get(f"{_DATA}.catalogue", ()):
        outside = (one for name, code in codes.items() if not name.startswith(_DATA) for one in code.values())
        # A line break in a text is written as two characters.
        words = set(re.split(r"\\[nt]|\W+", "\n".join([*map(_cell, texts), *outside, *cards_named_in])))
        cards = [card for card in cards if card.stem in words]
    return found | {f"{_CARDS}: {card.name}": digest(card.read_bytes()) for card in cards}


def definitions(texts: Iterable[str]) -> dict[str, set[str]]:
    """Names of what pieces of source reach, by module; the empty name stands for the module's statements.

    All modules that running the pieces can load have an entry.

    Raises
    ------
    SyntaxError
        Not plain Python.
    """
    return _reach(texts)[0]


def defined(module: str) -> list[str]:
    """Names that a module of the project defines itself: functions, classes and constants."""
    content = _module(_source(module) or "")
    return [name for name, nodes in content.items() if name and not isinstance(nodes[0], _IMPORT)]


def digests(source: str) -> dict[str, str]:
    """Digest of everything that the source of a module defines, by name, and of its statements, by the empty name."""
    return {name: digest(_code(source, name)) for name in _module(source)}


def pins(texts: Iterable[str]) -> dict[str, str]:
    """Pinned versions of the packages that running pieces of source can import; what those require does not count."""
    lines = (
        line.partition("#")[0].strip()
        for line in (paths.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    )
    pinned = {_distribution(line.partition("==")[0]): line.partition("==") for line in lines if line}
    loaded = {path.partition(".")[0] for path in _reach(texts)[1]}
    found = {_distribution(one) for name in loaded for one in _distributions_of_modules().get(name, [])}
    return {name: version for name, _, version in (pinned[one] for one in sorted(found & pinned.keys()))}


_distributions_of_modules = cache(metadata.packages_distributions)  # half a second


def _distribution(name: str) -> str:
    """A distribution's name as all spellings of it have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def modules_digest(names: Iterable[str]) -> str:
    """One digest of several modules of the project, as their files are now; an absent one is as one without code."""
    return digest(repr([(name, digests(_source(name) or "")) for name in sorted(names)]))


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


def _reach(texts: Iterable[str]) -> tuple[dict[str, set[str]], set[str]]:
    """What pieces of source reach, by module, and the names of all that they load, modules of libraries among them."""
    pieces = "\n".join(texts)
    source_of = cache(_source)  # as the files are now; another time they may have been edited
    found: dict[str, set[str]] = defaultdict(set)
    loaded: set[str] = set()
    followed: set[str] = set()

    def follow(path: str) -> Iterator[tuple[str, str]]:
        """Definitions that a dotted name goes through, of modules and of what these import, to the last."""
        if path in followed:
            return
        followed.add(path)
        parts = path.split(".")
        # Any beginning of a dotted name may be a module, and the next part a name that it defines or imports.
        for place in range(1, len(parts)):
            module, name = ".".join(parts[:place]), parts[place]
            if nodes := _module(source_of(module) or "").get(name):
                yield module, name
                for target in _imported(nodes).get(name, ()):
                    yield from follow(".".join([target, *parts[place + 1 :]]))
        if (source := source_of(path)) is not None:  # the module itself is used
            yield from ((path, name) for name in _module(source))

    ahead = [("", name) for name in _module(pieces)]
    while ahead:
        module, name = ahead.pop()
        if name not in found[module]:
            found[module].add(name)
            source = (source_of(module) or "") if module else pieces
            read, imported, used = _uses(source, name)
            ahead += [(module, one) for one in read & _module(source).keys()]
            ahead += [(one, _STATEMENTS) for one in imported - loaded if source_of(one) is not None]
            loaded |= imported
            if name != _STATEMENTS:  # what a name imports is used where the name is, unless it is a module
                used = used | {one for one in imported if source_of(one) is None}
            ahead += [pair for path in used for pair in follow(path)]
    # The pieces themselves are no module; cells have a digest of their own.
    del found[""]
    return found, loaded


@cache
def _module(source: str) -> dict[str, list[ast.stmt]]:
    """The statements of a module by the names that they define; by the empty name, those that define none."""
    found: dict[str, list[ast.stmt]] = defaultdict(list, {_STATEMENTS: []})
    for node in parsed(source).body:
        for_checkers_of_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not _is_text(node) and not for_checkers_of_types:
            for name, part in _definitions(node):
                found[name].append(part)
    found.pop("__version__", None)
    return dict(found)


def _definitions(node: ast.stmt) -> list[tuple[str, ast.stmt]]:
    """Names that a statement defines, each with what defines it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [(node.name, node)]
    if isinstance(node, ast.Import):
        return [(alias.asname or alias.name.partition(".")[0], ast.Import([alias])) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(alias.asname or alias.name, ast.ImportFrom(node.module, [alias], 0)) for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = [part for target in targets for part in getattr(target, "elts", [target])]
        if all(isinstance(part, ast.Name) for part in parts):
            return [(part.id, node) for part in parts]
    return [(_STATEMENTS, node)]


@cache
def _uses(source: str, name: str) -> tuple[set[str], set[str], set[str]]:
    """What a definition reads, imports and uses: names of variables, and dotted names that begin with an import."""
    content = _module(source)
    code = [part for node in content[name] for part in _walk(node)]
    # All imports at the top of a module run with its statements.
    running = code if name != _STATEMENTS else [*code, *(node for nodes in content.values() for node in nodes)]
    targets = {one for each in _imported(running).values() for one in each}
    # Importing `helpers.a.b` runs `helpers` and `helpers.a` first.
    imported = {one for path in targets for one in accumulate(path.split("."), "{}.{}".format)}
    stands_for = _imported_anywhere(source)
    inside = {part.value for part in code if isinstance(part, ast.Attribute)}
    used = set()
    for part in code:
        if isinstance(part, ast.Name | ast.Attribute) and part not in inside:
            head, *rest = ast.unparse(part).split(".")
            used |= {".".join([target, *rest]) for target in stands_for.get(head, ())}
    return {part.id for part in code if isinstance(part, ast.Name)}, imported, used


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All parts of code but the annotations of functions, which compute nothing."""
    yield node
    for name, value in ast.iter_fields(node):
        if name != "returns" and not (name == "annotation" and isinstance(node, ast.arg)):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from _walk(part)


@cache
def _imported_anywhere(source: str) -> dict[str, set[str]]:
    """What names stand for that a module imports, at its top or inside its functions."""
    return _imported(ast.walk(parsed(source)))


def _imported(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """What names stand for that code imports, from the top: `import a.b` binds `a`, `import a.b as c` `a.b`."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for alias in node.names if isinstance(node, _IMPORT) else ():
            if isinstance(node, ast.ImportFrom):
                found[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
            else:
                bound = alias.asname or alias.name.partition(".")[0]
                found[bound] |= {alias.name} if alias.asname else {alias.name, bound}
    return found


# Files


def _source(name: str) -> str | None:
    """Source of a module; None for what is no module of the project, such as a function that is imported."""
    beside = name.partition(".")[0] not in PACKAGES  # what tests share
    target = paths.ROOT.joinpath(*(["tests"] if beside else []), *name.split("."))
    files = (target / "__init__.py", target.with_suffix(".py"))
    return next((file.read_text(encoding="utf-8") for file in files if file.is_file()), None)


# Digests


@cache
def _code(source: str, name: str) -> str:
    """What defines a name in a module, as text without words; an empty one where a module has no statements."""
    nodes = _module(source)[name]
    return _plain(nodes) if nodes else ""


@cache
def _cell(source: str) -> str:
    """A cell as text without words; the value of a last bare text is shown, and a semicolon hides a value."""
    body = parsed(source).body
    hidden = re.search(r";\s*(#.*)?\Z", source)
    return _plain(body) + (";" if hidden else "") if body else ""


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
