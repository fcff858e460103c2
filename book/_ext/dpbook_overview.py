"""Sphinx extension for the pages that lead to the others: what the book finds, and where pages have gone.

It adds the directives `chapter-figure` (a figure that a chapter glued), `findings` (rows of `book/findings.yml`: all by
topic, or the headlines as folds) and `claims-open` (statements without a verdict, and why). For links from outside it
leaves a page at each old address, and tells `_static/moved.js` where the anchors of a page have gone. Everything is
read when the book is built.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import ClassVar

from checks import claims
from docutils import nodes
from docutils.parsers.rst import directives
from helpers import paths
from helpers.book import chapters, strict_yaml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dpbook_pages import Generated, add_directives, list_table

FINDINGS = paths.BOOK / "findings.yml"
_PICTURE = "application/papermill.record/image/png"


@dataclass(frozen=True)
class Finding:
    """What is published, or usual, and what the book computed; MyST text with `finding` roles for numbers.

    A finding of the front page has a headline of one plain sentence.
    """

    topic: str
    printed: str
    computed: str
    headline: str = ""


def findings(file: Path = FINDINGS) -> list[Finding]:
    """The rows of `book/findings.yml` in its order: a mapping of topics to rows, most consequential first.

    Raises
    ------
    ValueError
        A topic that holds no rows, or a row with other keys than `printed`, `computed` and, if need be, `headline`.
    """
    found = []
    for topic, rows in strict_yaml.load(file).items():
        if not isinstance(rows, list) or not rows:
            raise ValueError(f"{file.name}: topic {topic!r} must hold a list of rows, got {rows!r}")
        for row in rows:
            try:
                found.append(Finding(topic, **row))
            except TypeError:
                keys = "printed, computed and perhaps headline"
                raise ValueError(f"{file.name}: a row of {topic!r} must have the keys {keys}, got {row!r}") from None
    return found


class Findings(Generated):
    """All rows of `book/findings.yml`, a section a topic; with the option `headlines`, a fold for each that has one."""

    option_spec: ClassVar = {"headlines": directives.flag}

    def text(self) -> str:
        self.env.note_dependency(str(FINDINGS))
        rows = findings()
        if "headlines" in self.options:
            folds = (f":::{{dropdown}} {row.headline}\n{_line(row.computed)}\n:::" for row in rows if row.headline)
            return "\n\n".join(folds)
        topics: dict[str, list[list[str]]] = {}
        for row in rows:
            topics.setdefault(row.topic, []).append([_line(row.printed), _line(row.computed)])
        head = ["published, or usual", "computed here"]
        tables = (f"## {topic}\n\n{list_table('findings', head, of, widths='34 66')}" for topic, of in topics.items())
        return "\n\n".join(tables)


def _line(text: str) -> str:
    return " ".join(text.split())


class ChapterFigure(SphinxDirective):
    """A figure that a chapter glued, by `CHAPTER.KEY`, with its text alternative; the content is the caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name, _, key = self.arguments[0].partition(".")
        chapter = chapters.chapter(name)
        self.env.note_dependency(str(chapter.path))
        picture, alt = glued_figure(chapter, key)
        image = f'<img src="data:image/png;base64,{picture}" alt="{escape(alt)}">'
        caption = self.parse_text_to_nodes("\n".join(self.content))
        return [nodes.raw("", f'<div class="cell_output">{image}</div>', format="html"), *caption]


def glued_figure(chapter: chapters.Chapter, key: str) -> tuple[str, str]:
    """A figure glued in a chapter's stored outputs, as base64 of a PNG, and its text alternative.

    Raises
    ------
    ValueError
        No figure has this key.
    """
    for cell in chapter.notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("metadata", {}).get("scrapbook", {}).get("name") == key and _PICTURE in output.data:
                return output.data[_PICTURE].replace("\n", ""), cell.metadata.mystnb.image.alt
    raise ValueError(f"{chapter.name} must glue a figure as {key!r}")


class OpenClaims(Generated):
    """Statements that no chapter decides, with the reason, from the register."""

    def text(self) -> str:
        rows = [row for row in claims.register().values() if row.verdict in claims.VERDICTS[4:]]
        lines = [
            f"- {claims.DOCUMENTS[row.document]}, {row.label} ({row.verdict}): {row.plain} {row.reason}" for row in rows
        ]
        return "\n".join(lines) or "None: every statement has a verdict."


def moved_pages(listed: dict[str, str]) -> dict[str, str]:
    """Old addresses of pages and their new ones, both without `.html` and seen from the folder of the main chapters.

    Appendix pages stood among the main chapters once; `listed` adds pages that were renamed.
    """
    moved = {file.stem: f"{paths.APPENDIX.name}/{file.stem}" for file in sorted(paths.APPENDIX.glob("*.*"))}
    return {old: new for old, new in (moved | listed).items() if not list(paths.BOOK.glob(f"{old}.*"))}


def _leave_redirects(app: Sphinx, exception: Exception | None) -> None:
    """A page at each old address that leads to the new one, anchor included, for links from outside."""
    if exception or app.builder.format != "html":
        return
    for old, new in moved_pages(app.config.moved_pages).items():
        target = escape(f"{new}.html")
        (Path(app.outdir) / "book" / f"{old}.html").write_text(
            f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Moved</title>'
            f'<script>location.replace("{target}" + location.search + location.hash)</script>'
            f'<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}">'
            f'<p>This page is now <a href="{target}">{target}</a>.</p></html>\n'
        )


def _say_where_anchors_went(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """A main chapter that was written anew names the appendix page that has the sections of the old one."""
    evidence = f"{paths.APPENDIX.name}/app-{Path(page).name}"
    if (paths.BOOK / f"{evidence}.ipynb").is_file() and Path(page).parent.name == paths.BOOK.name:
        context["metatags"] = context.get("metatags", "") + f'\n<meta name="moved-anchors" content="{evidence}.html" />'


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("moved_pages", {}, "html", dict)
    app.connect("build-finished", _leave_redirects)
    app.connect("html-page-context", _say_where_anchors_went)
    return add_directives(app, {"findings": Findings, "chapter-figure": ChapterFigure, "claims-open": OpenClaims})
