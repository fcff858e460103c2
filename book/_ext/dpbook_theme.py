"""Sphinx extension for what the theme leaves open: descriptions, search, marks in code, and accessible lists.

Every page gets a description, the search finds words of the text, code loses its marks for the formatter, lists and
names are as screen readers need them, and what was computed before says when, and whether its code has changed since.
"""

import re
from functools import cache
from html import escape

from docutils import nodes
from helpers.book import chapters, freshness, plan, results
from sphinx.application import Sphinx
from sphinx.search import IndexBuilder

from dpbook_pages import add_directives

_LENGTH = 200  # characters of a description; search engines show about 160
_FORMATTER_MARK = re.compile(r"^# fmt: off\n|  # fmt: skip$", re.MULTILINE)
_REGISTER = 'href="claims.html#'
_NOT_WORDS = (nodes.math, nodes.math_block, nodes.literal_block)
# A formula of a line, with the brackets and marks that touch it.
_FORMULA = re.compile(r"([(\[]*)(<span class=\"math [^\"]*\">\\\(.*?\\\)</span>)([)\].,;:]*)", re.DOTALL)
_NOT_WORDS_OF_HTML = re.compile(r"\\\(.*?\\\)|\\\[.*?\\\]|<(pre|code|svg|script|style)\b.*?</\1>", re.DOTALL)


def _describe(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Give the page's first paragraph to those that list pages."""
    if doctree is not None and (first := next(doctree.findall(nodes.paragraph), None)):
        text = re.sub(r"\s+", " ", first.astext()).strip()
        short = text if len(text) <= _LENGTH else text[:_LENGTH].rsplit(" ", 1)[0] + " ..."
        context["metatags"] = context.get("metatags", "") + f'\n<meta name="description" content="{escape(short)}" />'


def _mend(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """What docutils and extensions write and a screen reader cannot take, and a line break in the wrong place."""
    body = context.get("body", "")
    body = body.replace('role="doc-biblioentry"', 'role="listitem"')  # a list needs items, whatever else they are
    body = re.sub(' id="proof(-content)?"', "", body)  # of every proof on the page, so no address of any
    context["body"] = _FORMULA.sub(_with_its_marks, body)


def _with_its_marks(found: re.Match[str]) -> str:
    """Browsers would break the line between a formula and a bracket or full stop."""
    before, formula, after = found.groups()
    return f'<span class="together">{found[0]}</span>' if before or after else formula


def _hide_formatter_marks(app: Sphinx, doctree: nodes.document) -> None:
    """Comments that speak to the formatter of the code are no part of what a reader reads."""
    for block in doctree.findall(nodes.literal_block):
        code = _FORMATTER_MARK.sub("", block.astext())
        if code != block.astext():
            block.rawsource, block.children = code, []
            block += nodes.Text(code)


def _lead_to_the_register(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Verdict boxes link to `claims.html`, which is elsewhere for a page in another folder."""
    if _REGISTER in context.get("body", ""):
        there = context["pathto"]("book/claims")
        context["body"] = context["body"].replace(_REGISTER, f'href="{there}#')


def _date_results(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Stored outputs name the day of a recorded result; whether its code has changed since is known at the build."""
    body = context.get("body", "")
    if plan.LABEL.search(body):
        own = next((one for one in chapters.chapters() if page == one.path.stem or page.endswith(f"/{one.name}")), None)
        names = freshness.shown_names(own.code) if own else results.recorded_names()
        context["body"] = plan.in_words(body, names, _parts())


_parts = cache(plan.parts)  # ten seconds


def _collect_words_only(builder: type[IndexBuilder]) -> None:
    """Keep TeX and code out of the search index; Sphinx has no setting for it."""
    collect = builder._word_collector

    def words(self: IndexBuilder, doctree: nodes.document):
        text = doctree.deepcopy()
        for node in list(text.findall(lambda node: isinstance(node, _NOT_WORDS))):
            node.parent.remove(node)
        for node in text.findall(nodes.raw):
            node.children = [nodes.Text(_NOT_WORDS_OF_HTML.sub(" ", node.astext()))]
        return collect(self, text)

    builder._word_collector = words


def setup(app: Sphinx) -> dict[str, bool]:
    _collect_words_only(IndexBuilder)
    app.connect("doctree-read", _hide_formatter_marks)
    app.connect("html-page-context", _lead_to_the_register)
    app.connect("html-page-context", _describe)
    app.connect("html-page-context", _mend)
    app.connect("html-page-context", _date_results)
    return add_directives(app, {})
