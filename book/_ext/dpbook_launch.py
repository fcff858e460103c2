"""Sphinx extension for readers who want to run what they read: launch buttons, how to get the project, downloads.

The address of the repository stands in one place, `repository: url` of `_config.yml`, and the branch beside it. With
an address, pages have buttons for the source, Binder and Colab, and the directive `get-the-project` and downloaded
notebooks have a line that clones it. Without one there are no such buttons, and both speak of the project's folder.
"""

from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

from dpbook_pages import add_directives

BINDER = "https://mybinder.org"
COLAB = "https://colab.research.google.com"
_CELL = "get-the-project"  # id of the cell that a downloaded notebook begins with


def commands(address: str) -> str:
    """What a shell needs to open the chapters in JupyterLab, from nothing or, without an address, in the folder.

    >>> print(commands("https://example.org/a/book.git"))
    git clone https://example.org/a/book.git
    cd book
    make lab
    """
    return f"git clone {address}\ncd {_folder(address)}\nmake lab" if address else "make lab"


def _folder(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2].removesuffix(".git")


def _address(config: Config) -> str:
    return config.html_theme_options.get("repository_url", "")


def _add_buttons(app: Sphinx, config: Config) -> None:
    """Ask the theme for its buttons where it can have an address to lead to."""
    if _address(config):
        options = config.html_theme_options
        options |= {"use_repository_button": True, "use_source_button": True}
        options["launch_buttons"] = {"binderhub_url": BINDER, "colab_url": COLAB, "notebook_interface": "jupyterlab"}


class GetTheProject(SphinxDirective):
    """The lines of a shell that get the project and open it; in Colab, a cell that does."""

    def run(self) -> list[nodes.Node]:
        address = _address(self.config)
        where = "" if address else "In the project's folder, of which this copy of the book names no address:\n\n"
        text = f"{where}```bash\n{commands(address)}\n```\n"
        if address:
            text += (
                "\nThe rocket above a chapter opens it on Binder, with all of this done, or in Colab, where a first "
                "cell has to do it; restart the session after it:\n\n"
                f"```\n!git clone {address}\n%pip install -e {_folder(address)}\n```\n"
            )
        return self.parse_text_to_nodes(text)


def _prepare_downloads(app: Sphinx, exception: Exception | None) -> None:
    """Begin every notebook that pages offer for download with how to get the package that it imports."""
    if exception or app.builder.format != "html":
        return
    sources = Path(app.outdir, "_sources")
    for file in sources.rglob("*.ipynb"):
        notebook = nbformat.read(file, as_version=4)
        if notebook.cells and notebook.cells[0].get("id") != _CELL:
            notebook.cells.insert(
                0, nbformat.v4.new_markdown_cell(_first_cell(app.config, file.relative_to(sources)), id=_CELL)
            )
            nbformat.write(notebook, file)


def _first_cell(config: Config, place: Path) -> str:
    address = _address(config)
    where = "" if address else ", in its folder"
    return (
        f"This notebook is one chapter of *{config.html_title}* and does not run by itself: the packages `helpers` "
        "and `checks`, parameters and recorded results are in the book's project. "
        f"Get that and open `{place.as_posix()}` there{where}:\n\n"
        f"```bash\n{commands(address)}\n```"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", _add_buttons)
    app.connect("build-finished", _prepare_downloads)
    return add_directives(app, {"get-the-project": GetTheProject})
