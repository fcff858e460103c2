"""The chapters as objects: parameters, data they need, freshness of the stored outputs, and how to run them.

A chapter is a notebook of the book with one cell tagged `parameters`; everything said here is read from that
notebook, so the guide to re-running, the command line and the tests cannot drift from it. What a chapter computes
is left to its cells.
"""

import base64
import copy
import difflib
import io
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import paths, sources
from helpers.book import freshness, slices, strict_yaml
from helpers.book.parameters import ChapterError, Parameter, read_cell, read_constraints, read_sets, require

if TYPE_CHECKING:  # reading notebooks as JSON spares the command line a second
    import nbformat

_LAST_CELL = "from helpers.book import record\n\nrecord.note_arithmetic()"  # of every run


class RunError(RuntimeError):
    """A chapter that was started and did not finish; the message says where it stopped."""


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book; see `chapters` and `chapter`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def address(self) -> str:
        """Where its page is, seen from the other pages of the book, as `smote.html` or `appendix/app-smote.html`."""
        return self.path.relative_to(paths.BOOK).with_suffix(".html").as_posix()

    @property
    def is_appendix(self) -> bool:
        """Whether it is a page of replications and checks, and not one of the main chapters."""
        return self.path.parent == paths.APPENDIX

    @property
    def main(self) -> str:
        """The main chapter that the page belongs to (an appendix page's notebook metadata `dpbook.chapter`)."""
        return self._metadata["chapter"] if self.is_appendix else self.name

    @property
    def notebook(self) -> "nbformat.NotebookNode":
        """The notebook as stored, read anew at each call."""
        import nbformat

        return nbformat.read(self.path, as_version=4)

    @property
    def _stored(self) -> dict[str, Any]:
        """The notebook as JSON has it; a ChapterError names the file where it is none."""
        try:
            return _loads(self.path.read_bytes())
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ChapterError(f"{self.path.name} must be a notebook, got {type(error).__name__}") from None

    @property
    def _metadata(self) -> dict[str, Any]:
        return self._stored["metadata"].get("dpbook", {})

    @property
    def title(self) -> str:
        first = "".join(map(_source, self._stored["cells"][:1]))
        heading = re.search(r"^# (.+)$", first, re.MULTILINE)
        if not heading:
            raise ChapterError(f"{self.path.name} must have a heading in its first cell")
        return heading[1]

    @property
    def code(self) -> list[str]:
        """Sources of the code cells.

        Raises
        ------
        ChapterError
            A cell that is not plain Python.
        """
        cells = [_source(cell) for cell in self._stored["cells"] if cell["cell_type"] == "code"]
        for cell in cells:
            try:
                sources.parsed(cell)
            except SyntaxError as error:
                where = f"chapter {self.name}, code cell that starts with {cell[:40]!r}"
                raise ChapterError(f"{where}: cells must be plain Python, got: {error}") from None
        return cells

    @property
    def gpu_code(self) -> list[str]:
        """Sources of the cells that scale up where there is a GPU (tag `gpu`)."""
        return [_source(cell) for cell in self._stored["cells"] if "gpu" in cell["metadata"].get("tags", [])]

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name, in the order of the cell.

        Raises
        ------
        ChapterError
            A line that does not follow the pattern of `helpers.book.parameters`.
        """
        return {item.name: item for item in read_cell(self.name, self._parameters_cell)}

    @cached_property
    def constraints(self) -> tuple[str, ...]:
        """What must hold between parameters, as Python expressions."""
        return read_constraints(self.name, self._parameters_cell, self.parameters)

    @property
    def _parameters_cell(self) -> str:
        tagged = [cell for cell in self._stored["cells"] if "parameters" in cell["metadata"].get("tags", [])]
        if len(tagged) > 1:
            raise ChapterError(f"chapter {self.name} must have one cell tagged parameters, got {len(tagged)}")
        return "".join(map(_source, tagged))

    @property
    def defaults(self) -> dict[str, Any]:
        """The values in the notebook, by name."""
        return {name: item.default for name, item in self.parameters.items()}

    @property
    def parameter_sets(self) -> dict[str, dict[str, Any]]:
        """Named sets: `quick`, the defaults, and those of `params/CHAPTER.yaml`, each checked against the parameters.

        Raises
        ------
        ChapterError
            A file that is not sets of parameters, a name twice, or a value that is not allowed.
        """
        file = paths.PARAMS / f"{self.name}.yaml"
        sets = {"quick": self.defaults} | (read_sets(file) if file.is_file() else {})
        try:
            return {name: self.check(values) for name, values in sets.items()}
        except ChapterError as error:
            raise ChapterError(f"params/{file.name}: {error}") from None

    @property
    def requires(self) -> list[str]:
        """Names of the data sets that the default run loads (notebook metadata `dpbook.requires`)."""
        return list(self._metadata.get("requires", []))

    @property
    def record(self) -> dict[str, Any]:
        """What the last `execute` stored: what the outputs depend on, date, seconds, peak memory in MB."""
        return dict(self._metadata.get("executed", {}))

    def check(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values for a run, each checked, and together with the defaults.

        Raises
        ------
        ChapterError
            A name that the chapter does not have (the nearest ones are listed), a value that is not allowed, or values
            that do not fit together.
        """
        checked = {name: self._parameter(name).check(value) for name, value in values.items()}
        for constraint in self.constraints:
            require(self.name, constraint, self.defaults | checked)
        return checked

    def parse(self, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        """Values typed at the command line, each checked by itself; `check` sees them together.

        Raises
        ------
        ChapterError
            As `check`, or a name that is given twice.
        """
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise ChapterError(f"parameter {name} must be given once, got {names.count(name)} values")
        return {name: self._parameter(name).parse(text) for name, text in pairs}

    def _parameter(self, name: str) -> Parameter:
        if name not in self.parameters:
            raise ChapterError(_unknown("parameter", name, self.parameters, f" of chapter {self.name}"))
        return self.parameters[name]

    def changes(self) -> list[str]:
        """What changed since the stored outputs were computed, by name; empty if they are fresh."""
        if not self.record:
            return ["never executed"]
        return freshness.changed(self.record["parts"], freshness.of_outputs(self.code))

    def execute(self) -> None:
        """Run the chapter with its default parameters and store the outputs and the record in the notebook.

        The file is replaced only after the last cell has finished, so an interrupted or failing run loses nothing.

        Raises
        ------
        ChapterError
            The notebook cannot be replaced, which is tried before.
        RunError
            A cell failed, the kernel died, or what the chapter depends on was edited while it ran.
        """
        import nbformat

        check_writable(self.path.parent)
        # Before the run and after it: an edit in between would give outputs that belong to neither version.
        parts = freshness.of_outputs(self.code)
        started = time.perf_counter()
        with _reported(self.path):
            notebook, peak = _executed(self.notebook, self.path.parent)
        if edited := freshness.changed(parts, freshness.of_outputs(self.code)):
            raise RunError(
                f"{self.name} was edited while it ran ({', '.join(edited)}); its outputs belong to no version"
            )
        notebook.metadata.setdefault("dpbook", {})["executed"] = {
            "parts": parts,
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": round(time.perf_counter() - started),
            "peak_memory_mb": round(peak),
        }
        _compress(notebook)
        temporary = self.path.with_suffix(".ipynb.part")
        nbformat.write(notebook, temporary)
        temporary.replace(self.path)

    def run(self, values: dict[str, Any], folder: Path, *, only_tables: bool = False) -> Path:
        """Execute a copy of the chapter with other parameters and return the executed notebook's path.

        A last cell is added, which notes in the folder with what threads and rounding the kernel has computed.

        Parameters
        ----------
        values : dict
            Parameter values; checked before anything is written. Tables of the reader's own are read once for that, and
            linked into the folder.
        folder : Path
            Created if absent. The chapter itself is not touched.
        only_tables : bool
            Whether to run nothing but what the kept tables are made by (`helpers.book.slices`).

        Raises
        ------
        ChapterError
            A value that is not allowed, or a folder that cannot be written.
        RunError
            A cell failed or the kernel died; the partly executed notebook stays in the folder.
        """
        from helpers.book import own_data

        values = self.check(values)
        try:
            own_data.load(values)
        except ValueError as error:
            raise ChapterError(str(error)) from None
        check_writable(folder)
        import nbformat
        import papermill

        (folder / "parameters.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        values = own_data.link(values, folder)
        output = folder / f"{self.name}.ipynb"
        notebook = self._reduced() if only_tables else self.notebook
        # Only the kernel knows what the chapter's code made of its threads and its rounding, and only at the end.
        notebook.cells.append(nbformat.v4.new_code_cell(_LAST_CELL, metadata={"tags": ["remove-cell"]}))
        nbformat.write(notebook, output)
        os.environ["DPBOOK_RUN_FOLDER"] = str(folder)  # for the kernel
        try:
            with _reported(output):
                papermill.execute_notebook(
                    str(output), str(output), parameters=values, cwd=str(folder), kernel_name="python3"
                )
        finally:
            del os.environ["DPBOOK_RUN_FOLDER"]
        return output

    def _reduced(self) -> "nbformat.NotebookNode":
        """The notebook with nothing but its parameters and what its kept tables are made by."""
        notebook = self.notebook
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for cell, statements in zip(code, slices.kept(self.code), strict=True):
            if "parameters" not in cell.metadata.get("tags", ()):
                cell.source = statements
        notebook.cells = [cell for cell in code if cell.source]
        return notebook


def chapters() -> list[Chapter]:
    """The executable chapters in the order of the table of contents.

    Raises
    ------
    ChapterError
        `_toc.yml` is no such table.
    """
    try:
        toc = strict_yaml.load(paths.ROOT / "_toc.yml")
        entries = [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    except (ValueError, KeyError, TypeError) as error:
        said = error if isinstance(error, ValueError) else "something else"
        raise ChapterError(f"_toc.yml must list files of chapters in parts, got: {said}") from None
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


_COLOURS = 128  # of a stored figure; a figure of the book has a dozen and their shades at edges


@lru_cache(32)  # by the text: a notebook is asked for many things, and is a megabyte
def _loads(text: bytes) -> dict[str, Any]:
    """A notebook, if it has what is asked of one."""
    stored = json.loads(text)
    kinds = {"cells": list, "metadata": dict}
    if not isinstance(stored, dict) or not all(isinstance(stored.get(key), kind) for key, kind in kinds.items()):
        raise ValueError("no notebook")
    for cell in stored["cells"]:
        if not {"cell_type", "source", "metadata"} <= set(cell):
            raise ValueError("no cell of a notebook")
    return stored


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def _unknown(kind: str, name: str, known, where: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{kind} must be one of {', '.join(known)}{where}, got {name!r}{hint}"


# Execution


def check_writable(folder: Path) -> None:
    """Create a folder and a file in it, before hours are spent on what could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ChapterError(f"{folder} must be a folder that can be written: {error.strerror}") from None


@contextmanager
def _reported(notebook: Path) -> Iterator[None]:
    """Turn whatever stops a kernel into a `RunError` that names the notebook and, where known, the cell."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        yield
    except (CellExecutionError, PapermillExecutionError) as error:
        place = f"cell {error.cell_index}: " if isinstance(error, PapermillExecutionError) else ""
        raise RunError(f"{notebook}: {place}{error.ename}: {error.evalue}") from error
    except CellTimeoutError as error:
        raise RunError(f"{notebook}: a cell took too long") from error
    except DeadKernelError as error:
        raise RunError(f"{notebook}: a cell lost its kernel, perhaps for want of memory") from error


def _compress(notebook: "nbformat.NotebookNode") -> None:
    """Store figures with a palette, which for lines and text takes a third of the bytes and looks the same."""
    from PIL import Image

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            for mime, content in output.get("data", {}).items():
                if not mime.endswith("image/png"):
                    continue
                picture = io.BytesIO()
                with Image.open(io.BytesIO(base64.b64decode(content))) as image:
                    small = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
                small.save(picture, "png", optimize=True)
                # Four characters of base64 stand for three bytes: kept only if it is smaller.
                if picture.tell() < 0.75 * len(content):
                    output.data[mime] = base64.b64encode(picture.getvalue()).decode()


def _executed(notebook: "nbformat.NotebookNode", folder: Path) -> "tuple[nbformat.NotebookNode, float]":
    """The notebook with all cells run in a fresh kernel, and the kernel's peak memory in MB."""
    import nbformat
    from nbclient import NotebookClient

    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    # A last cell, removed again, asks the kernel for its peak memory.
    probe = nbformat.v4.new_code_cell("import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
    notebook.cells.append(probe)
    metadata = copy.deepcopy(notebook.metadata)  # to which nbclient adds the version of Python
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=resources, record_timing=False).execute()
    notebook.cells.pop()
    notebook.metadata = metadata
    # Linux gives the peak memory in kilobytes.
    return notebook, int(io.StringIO(probe.outputs[0].text).readline()) / 1024
