"""HTML of the book, and of a re-run chapter among the book's other pages; the main chapters as one PDF.

Stored outputs are rendered, nothing is executed. A re-run is shown with the whole book around it, so its citations and
cross-references lead somewhere; what the other pages say is about the published run.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import yaml

from helpers import paths
from helpers.book import chapters

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LABEL = re.compile(r"^\(([\w-]+)\)=$|^:label: ([\w-]+)$", re.MULTILINE)
_PRINTED = """<style>
@page { size: A4; margin: 16mm 20mm; }
html { font-size: 13px !important; }
h2 { font-size: 1.5rem; font-weight: 700; }
span[id^="document-"] + section > h2 { break-before: page; }
h3 { font-size: 1.3rem; }
h2, h3, h4, .admonition-title, figcaption { break-after: avoid; }
pre, figure, tr, .cell_input, .cell_output img, .admonition { break-inside: avoid; }
details.hide .collapsed { display: block !important; }
.book-table-scroll, .pst-scrollable-table-container { overflow: visible !important; background: none !important; }
.book-table { font-size: 0.7em !important; }
.book-table th, .book-table td { white-space: normal !important; padding: 0.15rem 0.3rem; }
.bd-sidebar, .bd-header-article, .prev-next-area, .headerlink, .footer, .about-this-page, .claims-filters,
.chooser form, .slider-figure [data-role="controls"], a[download],
details.hide:not([open]), details.hide .expanded { display: none !important; }
</style></head>"""


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


def build_pdf() -> Path | None:
    """Build the main chapters and the pages about the book as one PDF, with an index of the appendix at its end.

    Returns
    -------
    Path or None
        The file; None if a step failed.

    Raises
    ------
    ChapterError
        There is no Chromium, which prints the page.
    """
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if program is None:
        raise chapters.ChapterError(f"--pdf needs Chromium; none of {', '.join(_CHROMIUM)} was found")
    folder = paths.ROOT / "_build" / "pdf"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(paths.BOOK, folder / "book", ignore=shutil.ignore_patterns(".*", "*.part", "appendix"))
    shutil.copy(paths.ROOT / "_config.yml", folder)
    contents = yaml.safe_load((paths.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    contents["parts"][-1] = {"caption": "Appendix", "chapters": [{"file": "book/appendix-pages"}]}
    (folder / "_toc.yml").write_text(yaml.safe_dump(contents), encoding="utf-8")
    (folder / "book" / "appendix-pages.md").write_text(_appendix_in_short(), encoding="utf-8")
    guide = folder / "book" / "how-to-rerun.md"
    listed = guide.read_text(encoding="utf-8").replace("```{rerun-guide}\n```", "They are listed in the HTML edition.")
    guide.write_text(listed, encoding="utf-8")
    if _built(folder, "index.html", "--builder", "custom", "--custom-builder", "singlehtml", "--quiet") is None:
        return None
    page = folder / "_build" / "singlehtml" / "book" / "index.html"
    text = page.read_text(encoding="utf-8").replace("</head>", _PRINTED, 1)
    text = re.sub(r'<details(?! class="[^"]*\bhide\b)(?! open)', "<details open", text)  # all but folded code
    text = re.sub(r'<details(?= class="[^"]*\bhide\b[^>]*>\s*<summary[^>]*>\s*<p[^>]*>Solution)', "<details open", text)
    places = set(re.findall(r' id="([^"]+)"', text))

    def linked(found: re.Match) -> str:
        return f'<a href="#{found[1]}">{found[2]}</a>' if found[1] in places else found[2]

    # What was another page is a place in the file; a link to what is not in it would lead nowhere.
    text = re.sub(r'<a (?=[^>]*href="[^":]+\.html#?([^"]*)")[^>]*>(.*?)</a>', linked, text, flags=re.DOTALL)
    # Sphinx writes addresses as they are in the folder above.
    page = page.parent.parent / "book.html"
    page.write_text(text.replace('"../_', '"_'), encoding="utf-8")
    file = paths.ROOT / "_build" / "book.pdf"
    options = ("--headless", "--no-sandbox", "--no-pdf-header-footer", "--generate-pdf-document-outline")
    formulas = "--virtual-time-budget=120000"  # milliseconds of the page's own clock, in which MathJax sets them
    finished = subprocess.run([program, *options, formulas, f"--print-to-pdf={file}", page.as_uri()], check=False)
    return None if finished.returncode else file


def _appendix_in_short() -> str:
    """A page with title and first sentence of each appendix page, to which all links into the appendix lead."""
    parts = ["# Appendix: replications and checks\n\nThe pages themselves are in the HTML edition of the book."]
    for chapter in (one for one in chapters.chapters() if one.is_appendix):
        source = "\n\n".join(cell.source for cell in chapter.notebook.cells if cell.cell_type == "markdown")
        labels = "\n".join(f"({first or second})=" for first, second in _LABEL.findall(source))
        bold = re.search(r"^\*\*.+\*\*$", source, re.MULTILINE)
        parts.append(f"{labels}\n## {chapter.title}\n\n{bold[0] if bold else ''}")
    return "\n\n".join(parts) + "\n"


def _built(folder: Path, page: str, *flags: str) -> Path | None:
    program = Path(sys.executable).with_name("jupyter-book")  # of this environment, whether or not it is activated
    finished = subprocess.run([program, "build", folder, *flags], check=False)
    return None if finished.returncode else folder / "_build" / "html" / "book" / page
