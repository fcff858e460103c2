"""HTML of the book, and of a re-run chapter among the book's other pages.

Stored outputs are rendered, nothing is executed. A re-run is shown with the whole book around it, so its citations and
cross-references lead somewhere; what the other pages say is about the published run.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

from helpers import paths
from helpers.book import chapters


def build() -> Path | None:
    """Build the book with warnings as errors; the first page, or None if the build failed."""
    # All pages anew: what Sphinx remembers of a label that has moved to another page would be an error.
    return _built(paths.ROOT, "index.html", "-W", "--keep-going", "--all")


def render(notebook: Path, parameters: dict[str, Any]) -> Path | None:
    """Build the book with an executed notebook in the place of its chapter, in the folder `site` beside it.

    Parameters
    ----------
    notebook : Path
        A copy of a chapter, executed.
    parameters : dict
        What it was run with, for a note under its title.

    Returns
    -------
    Path or None
        The chapter's page; None if the build failed.
    """
    site = notebook.parent / "site"
    shutil.copytree(paths.BOOK, site / "book", ignore=shutil.ignore_patterns(".*", "*.part"), dirs_exist_ok=True)
    for file in ("_config.yml", "_toc.yml"):
        shutil.copy(paths.ROOT / file, site)
    content = nbformat.read(notebook, as_version=4)
    values = ", ".join(f"`{name} = {value!r}`" for name, value in parameters.items()) or "the default parameters"
    note = f":::{{note}}\nThis page was run again with {values}. The other pages show the published run.\n:::"
    content.cells.insert(1, nbformat.v4.new_markdown_cell(note))
    chapter = chapters.chapter(notebook.stem)
    nbformat.write(content, site / "book" / chapter.path.relative_to(paths.BOOK))
    return _built(site, chapter.address, "--quiet")


def _built(folder: Path, page: str, *flags: str) -> Path | None:
    program = Path(sys.executable).with_name("jupyter-book")  # of this environment, whether or not it is activated
    finished = subprocess.run([program, "build", folder, *flags], check=False)
    return None if finished.returncode else folder / "_build" / "html" / "book" / page
