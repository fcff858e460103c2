"""Sphinx extension for the pages that lead to the others: what there is to read, in how long, and what it finds.

It adds the directives `chapter-list` (every chapter by part, with minutes), `reading-path` (links to the named pages,
minutes together), `chapter-figure` (a figure that a chapter glued), `findings` (rows of `book/findings.yml`: all by
topic, or the headlines) and `claims-open` (statements without a verdict, and why), and leaves a page that redirects for
each old address in the setting `moved_pages`. Everything is read when the book is built.
"""

import re
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import ClassVar

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from helpers import paths
from helpers.book import chapters, claims, strict_yaml
from helpers.book.anatomy import reading_minutes
from helpers.book.extension import add_directives, glued

FINDINGS = paths.BOOK / "findings.yml"
_ROLE = re.compile(r"\{finding\}`([\w-]+)\.(\w+)`")
_PICTURE = "application/papermill.record/image/png"


@dataclass(frozen=True)
class Finding:
    """What is printed, or usual, and what the book computed; MyST text with `finding` roles for numbers."""

    topic: str
    printed: str
    computed: str
    headline: bool = False


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


@cache
def minutes() -> dict[str, int]:
    """Minutes to read each chapter."""
    return {chapter.name: reading_minutes(chapter) for chapter in chapters.chapters()}


class Findings(SphinxDirective):
    """All rows of `book/findings.yml`, a section a topic; with the option `headlines`, those marked so, in a table."""

    option_spec: ClassVar = {"headlines": directives.flag}

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(FINDINGS))
        rows = findings()
        if "headlines" in self.options:
            return self.parse_text_to_nodes(_table([row for row in rows if row.headline]))
        topics = dict.fromkeys(row.topic for row in rows)
        parts = [f"## {topic}\n\n" + _table([row for row in rows if row.topic == topic]) for topic in topics]
        return self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True)


def _table(rows: list[Finding]) -> str:
    lines = [
        "```{list-table}",
        ":header-rows: 1",
        ":class: findings",
        ":widths: 34 66",
        "",
        "* - printed, or usual",
        "  - computed here",
    ]
    for row in rows:
        lines += [f"* - {' '.join(row.printed.split())}", f"  - {' '.join(row.computed.split())}"]
    return "\n".join([*lines, "```"])


def readme_table(rows: list[Finding]) -> str:
    """The rows as the README has them: numbers between comments that say where they come from, and no links."""

    def plain(text: str) -> str:
        text = re.sub(r" ?\((?:\{ref\}`[^`]+`(?:, )?)+\)|; \{ref\}`[^`]+`(?=\))", "", " ".join(text.split()))
        text = re.sub(r"\{ref\}`([^`<]+?) ?<[\w-]+>`", r"\1", text)
        return _ROLE.sub(lambda role: f"<!-- {role[1]}.{role[2]} -->{_glued(role[1])[role[2]]}<!-- -->", text)

    lines = [f"| {plain(row.printed)} | {plain(row.computed)} |" for row in rows]
    return "\n".join(["| printed, or usual | computed here |", "| --- | --- |", *lines])


@cache
def _glued(name: str) -> dict[str, str]:
    return glued(chapters.chapter(name))


class ChapterList(SphinxDirective):
    """Every chapter, by part of the table of contents, with the minutes it takes."""

    def run(self) -> list[nodes.Node]:
        content = []
        for part in yaml.safe_load((paths.ROOT / "_toc.yml").read_text())["parts"]:
            names = [Path(entry["file"]).name for entry in part["chapters"]]
            lines = [f"- {_link(name)}" for name in names if name in minutes()]
            content += [f"**{part['caption']}**", *lines] if lines else []
            content.append("")
        return self.parse_text_to_nodes("\n".join(content))


class ReadingPath(SphinxDirective):
    """Links to the pages that are named, in their order, and the minutes of all chapters among them."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        names = self.arguments[0].split()
        total = sum(minutes().get(name, 0) for name in names)
        return self.parse_text_to_nodes(f"{', then '.join(map(_link, names))}. Together {total} minutes.")


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


def _link(name: str) -> str:
    return f"{{ref}}`{name}`" + (f" ({minutes()[name]} min)" if name in minutes() else "")


class OpenClaims(SphinxDirective):
    """Statements that no chapter decides, with the reason, from the register."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(paths.REFERENCE / "claims.yml"))
        rows = [row for row in claims.register().values() if row.verdict in claims.VERDICTS[4:]]
        lines = [
            f"- {row.document} {row.label} ({row.verdict}): {' '.join(row.statement.split())} {row.reason}"
            for row in rows
        ]
        return self.parse_text_to_nodes("\n".join(lines) or "None: every statement has a verdict.")


def _leave_redirects(app: Sphinx, exception: Exception | None) -> None:
    """A page at each old address that leads to the new one, for links from outside."""
    if exception or app.builder.format != "html":
        return
    for old, new in app.config.moved_pages.items():
        target = escape(f"{new}.html")
        (Path(app.outdir) / "book" / f"{old}.html").write_text(
            f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Moved</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}">'
            f'<p>This page is now <a href="{target}">{target}</a>.</p></html>\n'
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("moved_pages", {}, "html", dict)
    app.connect("build-finished", _leave_redirects)
    return add_directives(
        app,
        {
            "findings": Findings,
            "chapter-list": ChapterList,
            "reading-path": ReadingPath,
            "chapter-figure": ChapterFigure,
            "claims-open": OpenClaims,
        },
    )
