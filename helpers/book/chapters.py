"""The chapters as objects: parameters, data they need, freshness of the stored outputs, and how to run them.

A chapter is a notebook of the book with one cell tagged `parameters`; everything said here is read from that
notebook, so the guide to re-running, the command line and the tests cannot drift from it. What a chapter computes
is left to its cells.

Parameter lines follow one pattern, `name: type = literal # RANGE: meaning`, where RANGE is one of

    in [2, 200]          a number of the interval (a round bracket excludes an end, of real numbers only)
    in {a, b, c}         one of the names
    each in (0, 50]      a non-empty list, every element of the interval
"""

import ast
import difflib
import hashlib
import io
import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml

from helpers import paths
from helpers.checks import check_choice, check_integer, check_real

_ALLOWED = re.compile(r"^(?P<scope>in|each in) (?P<set>\{[^}]*\}|[\[(][^\])]*[\])]): (?P<meaning>.+)$")
_TYPES = ("int", "float", "str", "bool", "list[float]", "list[int]", "list[str]")


class ChapterError(ValueError):
    """A chapter or parameter that does not exist, or a value that is not allowed."""


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell.

    Attributes
    ----------
    name, type : str
        Python name, and one of int, float, str, bool, list[int], list[float], list[str].
    default : object
        The literal in the notebook.
    allowed : str
        The range as written (`in [2, 200]`), empty for booleans and free text.
    meaning : str
        One line for the reader.
    """

    name: str
    type: str
    default: Any
    allowed: str
    meaning: str

    def check(self, value: Any) -> Any:
        """Return `value` as this parameter's type.

        Raises
        ------
        ChapterError
            Wrong type or out of range; the message names parameter, value and what is allowed.
        """
        try:
            if not self.type.startswith("list"):
                return self._check_one(value)
            if not isinstance(value, list) or not value:
                raise ValueError(f"{self.name} must be a non-empty list, got {value!r}")
            return [self._check_one(item) for item in value]
        except ValueError as error:
            raise ChapterError(f"{error} ({self.type}, {self.allowed or 'any'})") from None

    def parse(self, text: str) -> Any:
        """`check` for a value typed at the command line (`[0.1, 1]` for a list, `true` or `false` for a boolean)."""
        if self.type == "str":
            return self.check(text)
        try:
            value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError):
            value = text
        return self.check(value)

    def _check_one(self, value: Any) -> Any:
        kind = self.type.removeprefix("list[").removesuffix("]")
        if kind == "bool":
            return check_choice(self.name, value, (True, False))
        members = self.allowed.partition("in ")[2]
        if kind == "str":
            if not isinstance(value, str):
                raise ValueError(f"{self.name} must be text, got {value!r}")
            if members.startswith("{"):
                check_choice(self.name, value, tuple(part.strip() for part in members[1:-1].split(",")))
            return value
        low, high, inclusive = _interval(members)
        if kind == "int":
            return check_integer(self.name, value, low=_whole(low), high=_whole(high))
        return check_real(self.name, value, low=low, high=high, inclusive=inclusive)


def _interval(text: str) -> tuple[float | None, float | None, str]:
    """`[2, inf)` as (2.0, None, "low"); an empty text allows every number."""
    if not text:
        return None, None, "both"
    low, high = (float(end) for end in text[1:-1].split(","))
    ends = {("[", "]"): "both", ("[", ")"): "low", ("(", "]"): "high", ("(", ")"): "neither"}
    finite = [None if end in (float("inf"), float("-inf")) else end for end in (low, high)]
    return finite[0], finite[1], ends[text[0], text[-1]]


def _whole(end: float | None) -> int | None:
    return None if end is None else int(end)


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book; see `chapters` and `chapter`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def notebook(self) -> nbformat.NotebookNode:
        """The notebook as stored, read anew at each call."""
        return nbformat.read(self.path, as_version=4)

    @property
    def title(self) -> str:
        return re.search(r"^# (.+)$", self.notebook.cells[0].source, re.MULTILINE)[1]

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name, in the order of the cell.

        Raises
        ------
        ChapterError
            A line that does not follow the pattern of this module's docstring.
        """
        described = papermill.inspect_notebook(str(self.path))
        return {name: _parameter(self.name, entry) for name, entry in described.items()}

    @property
    def parameter_sets(self) -> dict[str, dict[str, Any]]:
        """Named sets from `params/CHAPTER.yaml`, each checked against the parameters."""
        file = paths.PARAMS / f"{self.name}.yaml"
        sets = yaml.safe_load(file.read_text()) if file.is_file() else {}
        return {name: self.check(values) for name, values in sets.items()}

    @property
    def requires(self) -> list[str]:
        """Names of the data sets that the default run loads (notebook metadata `dpbook.requires`)."""
        return list(self.notebook.metadata.get("dpbook", {}).get("requires", []))

    @property
    def record(self) -> dict[str, Any]:
        """What the last `execute` stored: fingerprint, date, seconds, peak memory in MB."""
        return dict(self.notebook.metadata.get("dpbook", {}).get("executed", {}))

    def check(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values for a run, each checked.

        Raises
        ------
        ChapterError
            A name that the chapter does not have (the nearest ones are listed) or a value that is not allowed.
        """
        return {name: self._parameter(name).check(value) for name, value in values.items()}

    def parse(self, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        """`check` for names and values typed at the command line."""
        return {name: self._parameter(name).parse(text) for name, text in pairs}

    def _parameter(self, name: str) -> Parameter:
        if name not in self.parameters:
            raise ChapterError(_unknown("parameter", name, self.parameters, f" of chapter {self.name}"))
        return self.parameters[name]

    def fingerprint(self) -> str:
        """SHA-256 over what determines the outputs.

        Code cells, the helper modules they reach, the printed tables in `reference/`, and the pins. Data is covered
        through the checksums written in `helpers.data`.
        """
        code = [cell.source for cell in self.notebook.cells if cell.cell_type == "code"]
        digest = hashlib.sha256("\0".join(code).encode())
        files = [*_reached_modules("\n".join(code)), *sorted((paths.REFERENCE / "tables").glob("*.csv"))]
        for file in [*files, paths.ROOT / "constraints.txt"]:
            digest.update(f"\0{file.relative_to(paths.ROOT).as_posix()}\0".encode() + file.read_bytes())
        return digest.hexdigest()

    def modules(self) -> list[str]:
        """Names of the helper modules that the code cells reach, sorted."""
        code = [cell.source for cell in self.notebook.cells if cell.cell_type == "code"]
        files = [file.relative_to(paths.ROOT).with_suffix("") for file in _reached_modules("\n".join(code))]
        return [".".join(file.parts).removesuffix(".__init__") for file in files]

    def is_fresh(self) -> bool:
        """Whether the stored outputs come from the code, helpers and pins as they are now."""
        return self.record.get("fingerprint") == self.fingerprint()

    def execute(self) -> None:
        """Run the chapter with its default parameters and store the outputs and the record in the notebook.

        The file is replaced only after the last cell has finished, so an interrupted or failing run loses nothing.
        """
        fingerprint = self.fingerprint()
        started = time.perf_counter()
        notebook, peak = _executed(self.notebook, self.path.parent)
        notebook.metadata.setdefault("dpbook", {})["executed"] = {
            "fingerprint": fingerprint,
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": round(time.perf_counter() - started),
            "peak_memory_mb": round(peak),
        }
        temporary = self.path.with_suffix(".ipynb.part")
        nbformat.write(notebook, temporary)
        temporary.replace(self.path)

    def run(self, values: dict[str, Any], folder: Path) -> Path:
        """Execute a copy of the chapter with other parameters and return the executed notebook's path.

        Parameters
        ----------
        values : dict
            Parameter values; checked before anything is written.
        folder : Path
            Created if absent. The chapter itself is not touched. If a cell fails, the partly executed notebook stays in
            the folder and the error is raised.
        """
        values = self.check(values)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "parameters.json").write_text(json.dumps(values, indent=2) + "\n")
        output = folder / f"{self.name}.ipynb"
        with _environment(DPBOOK_RUN_FOLDER=str(folder)):
            papermill.execute_notebook(
                str(self.path), str(output), parameters=values, cwd=str(folder), kernel_name="python3"
            )
        return output


def chapters() -> list[Chapter]:
    """The executable chapters in the order of the table of contents."""
    toc = yaml.safe_load((paths.ROOT / "_toc.yml").read_text())
    entries = [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    return [Chapter(file) for entry in entries if (file := paths.ROOT / f"{entry}.ipynb").is_file()]


def chapter(name: str) -> Chapter:
    """The chapter called `name`.

    Raises
    ------
    ChapterError
        No such chapter; the message lists those there are.
    """
    known = {entry.name: entry for entry in chapters()}
    if name not in known:
        raise ChapterError(_unknown("chapter", name, known))
    return known[name]


@contextmanager
def _environment(**variables: str):
    """Environment variables for the kernels started inside the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _unknown(kind: str, name: str, known, where: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{kind} must be one of {', '.join(known)}{where}, got {name!r}{hint}"


def _parameter(chapter_name: str, entry: dict[str, str]) -> Parameter:
    where = f"chapter {chapter_name}, parameter {entry['name']}"
    if entry["inferred_type_name"] not in _TYPES:
        raise ChapterError(f"{where}: type must be one of {', '.join(_TYPES)}, got {entry['inferred_type_name']!r}")
    if not entry["help"]:
        raise ChapterError(f"{where}: the line needs a comment that says what the parameter means")
    match = _ALLOWED.match(entry["help"])
    allowed = f"{match['scope']} {match['set']}" if match else ""
    meaning = match["meaning"] if match else entry["help"]
    if "int" in entry["inferred_type_name"] and re.search(r"\(|\d\)", allowed):
        raise ChapterError(f"{where}: the range of integers must have square brackets, got {allowed!r}")
    parameter = Parameter(
        entry["name"], entry["inferred_type_name"], ast.literal_eval(entry["default"]), allowed, meaning
    )
    parameter.check(parameter.default)
    return parameter


def _reached_modules(source: str) -> list[Path]:
    """Files of the helper package that a piece of source imports, directly or through one another, sorted."""
    reached: set[Path] = set()
    pending = _imported_files(source)
    while pending:
        file = pending.pop()
        if file not in reached:
            reached.add(file)
            pending |= _imported_files(file.read_text())
    return sorted(reached)


def _imported_files(source: str) -> set[Path]:
    """Files of `helpers` that `source` imports; importing a package reaches its whole folder."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    files = set()
    for name in names:
        if name.split(".")[0] == "helpers" and name != "helpers":
            target = paths.ROOT.joinpath(*name.split("."))
            files |= set(target.glob("*.py")) if target.is_dir() else {target.with_suffix(".py")}
    return {file for file in files if file.is_file()}


def _executed(notebook: nbformat.NotebookNode, folder: Path) -> tuple[nbformat.NotebookNode, float]:
    """The notebook with all cells run in a fresh kernel, and the kernel's peak memory in MB."""
    from nbclient import NotebookClient

    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    client = NotebookClient(
        notebook,
        timeout=1800,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        probe = nbformat.v4.new_code_cell("import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
        notebook.cells.append(probe)
        client.execute_cell(probe, len(notebook.cells) - 1, store_history=False)
        notebook.cells.pop()
    return notebook, int(io.StringIO(probe.outputs[0].text).readline()) / 1024
