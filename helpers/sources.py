"""The project's own code as values: which modules a piece of source reaches, and a digest of each.

A digest is taken of the syntax tree without comments, layout and docstrings, so it changes when what is computed can
change, not when a word does. Reach is what imports say, followed through the project's packages; code that names a
module only at run time (`importlib.import_module`) is not seen. What is done with the digests is left to the callers.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from helpers import paths

PACKAGES = frozenset({"helpers", "checks"})
_DIGITS = 16  # hexadecimal: against changes, not against an adversary
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}


parsed = cache(ast.parse)


def digest(content: bytes | str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a text or of bytes.

    >>> digest("")
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:_DIGITS]


def reached(texts: Iterable[str], *, parents: bool = True) -> list[str]:
    """Names of the project's modules that pieces of source import, directly or through one another, sorted.

    Importing `helpers.a.b` runs `helpers` and `helpers.a` first, so these are reached too, unless `parents` is false:
    where they only gather names, they change nothing in `helpers.a.b`. Imports inside functions count.

    Raises
    ------
    SyntaxError
        Not plain Python.
    """
    found: set[str] = set()
    pending = {name for text in texts for name in _imported(text, "", parents)}
    while pending:
        name = pending.pop()
        file = _file(name)
        if name not in found and file:
            found.add(name)
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            pending |= _imported(file.read_text(), package, parents)
    return sorted(found)


def imports(library: str, texts: Sequence[str]) -> bool:
    """Whether pieces of source, or a module of the project that they reach, import a library such as `torch`."""
    files = filter(None, map(_file, reached(texts)))
    texts = [*texts, *(file.read_text() for file in files)]
    return any(name.split(".")[0] == library for text in texts for name in _imports(text, ""))


def module_digest(name: str) -> str:
    """Digest of a module of the project, `helpers.erm.solver` say, as its file is now."""
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


def _file(name: str) -> Path | None:
    """The file of a module; None for what is no module of the project, such as a function that is imported."""
    target = paths.ROOT.joinpath(*name.split("."))
    return next((file for file in (target / "__init__.py", target.with_suffix(".py")) if file.is_file()), None)


def _imported(source: str, package: str, parents: bool) -> set[str]:
    """What `source`, a part of `package`, imports from the project: modules, their packages, perhaps attributes."""
    own = [name.split(".") for name in _imports(source, package) if name.split(".")[0] in PACKAGES]
    if not parents:
        return {".".join(parts) for parts in own}
    return {".".join(parts[:length]) for parts in own for length in range(1, len(parts) + 1)}


@cache
def _imports(source: str, package: str) -> frozenset[str]:
    """Dotted names of everything that `source`, a part of `package`, imports."""
    names = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *filter(None, [node.module])])
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return frozenset(names)


@cache
def _tree_digest(source: str) -> str:
    return digest(_plain([node for node in parsed(source).body if not (_is_text(node) or _is_version(node))]))


@cache
def _cell(source: str) -> str:
    """A cell as text without words; the value of a last bare text is shown, and a semicolon hides a value."""
    tree = parsed(source)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in _SILENT]
    return _plain(tree.body) + (";" if tokens[-1].string == ";" else "") if tree.body else ""


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a text and nothing else: a docstring, also of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_version(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"


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
