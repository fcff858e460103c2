"""Sphinx extension for what the theme leaves open: a description of every page, scripts that the book has no use for,
and a search that finds words of the text.
"""

import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search import WordCollector

_LENGTH = 200  # characters of a description; search engines show about 160
# 1.5 MB that draws icons, which the theme's own font draws as well.
_UNUSED = Path("_static", "scripts", "fontawesome.js")
_NOT_WORDS = (nodes.math, nodes.math_block, nodes.literal_block)


def _describe(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Give the page's first paragraph to those that list pages, and each inline script once."""
    if doctree is not None and (first := next(doctree.findall(nodes.paragraph), None)):
        text = re.sub(r"\s+", " ", first.astext()).strip()
        short = text if len(text) <= _LENGTH else text[:_LENGTH].rsplit(" ", 1)[0] + " ..."
        context["metatags"] = context.get("metatags", "") + f'\n<meta name="description" content="{escape(short)}" />'
    seen, kept = set(), []
    for script in context.get("script_files", ()):
        code = getattr(script, "attributes", {}).get("body") or script.filename
        if code not in seen and "thebe" not in code.lower():  # live cells need a server
            kept.append(script)
        seen.add(code)
    context["script_files"] = kept


def _drop_unused(app: Sphinx, exception: Exception | None) -> None:
    """Leave an empty script where pages ask for one that nothing needs."""
    file = Path(app.outdir) / _UNUSED
    if not exception and file.is_file():
        file.write_text("// Icons are drawn by the font.\n")


def _collect_words_only(collector: type[WordCollector]) -> None:
    """Keep TeX and code out of the search index; Sphinx has no setting for it."""
    visit = collector.dispatch_visit

    def dispatch_visit(self: WordCollector, node: nodes.Node) -> None:
        if isinstance(node, _NOT_WORDS):
            raise nodes.SkipNode
        visit(self, node)

    collector.dispatch_visit = dispatch_visit


def setup(app: Sphinx) -> dict[str, bool]:
    _collect_words_only(WordCollector)
    app.connect("html-page-context", _describe, priority=900)  # after the extensions that add scripts
    app.connect("build-finished", _drop_unused)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
