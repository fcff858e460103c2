"""Sphinx extension that shows what a link means: a term's definition or a statement, beside the link.

Each page carries the texts of the terms and statements that it links to; `_static/previews.js` shows them when a link
has the pointer or the focus. Without JavaScript the links lead where they always did.
"""

import re
from functools import cache

from docutils import nodes
from sphinx.application import Sphinx

from dpbook_pages import add_directives

_LINK = re.compile(r'<a class="reference internal" href="([^"#]*)#((?:term|thm|prop|lem|cor|def)-[\w-]+)"')
_LINK_OR_ANCHOR = re.compile(r"</?a\b[^>]*>|<span[^>]*></span>")
_MARKS = re.compile(r' id="[^"]*"| class="xref[^"]*"')  # of links, which are text here


def _carry_previews(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    if app.builder.format != "html" or not context.get("body") or doctree is None:
        return
    addresses = {app.builder.get_target_uri(name): name for name in app.env.found_docs}
    own = app.builder.get_target_uri(page)
    texts = {}
    for address, anchor in _LINK.findall(context["body"]):
        target = addresses.get(_absolute(own, address))
        if target and (text := _meaning(app, target, anchor)):
            texts[anchor] = text
    if texts:
        cards = "".join(f'<div id="preview-{anchor}">{text}</div>' for anchor, text in texts.items())
        context["body"] += f'<div class="previews" hidden>{cards}</div>'


def _absolute(own: str, address: str) -> str:
    """The address of a page, from a link to it on the page `own`."""
    if not address:
        return own
    folder = own.split("/")[:-1]
    for part in address.split("/"):
        folder = folder[:-1] if part == ".." else [*folder, part]
    return "/".join(folder)


@cache
def _meaning(app: Sphinx, name: str, anchor: str) -> str:
    """The definition of a term, or the text of a statement, as HTML without links and names; empty if there is none."""
    for node in _resolved(app, name).findall(nodes.Element):
        if anchor in node.get("ids", ()):
            shown = _text_of(node)
            html = "".join(app.builder.render_partial(child)["fragment"] for child in shown)
            return _MARKS.sub("", _LINK_OR_ANCHOR.sub("", html)).strip()
    return ""


@cache
def _resolved(app: Sphinx, name: str) -> nodes.document:
    return app.env.get_and_resolve_doctree(name, app.builder)


def _text_of(node: nodes.Element) -> list[nodes.Node]:
    if isinstance(node, nodes.term):
        item = node.parent
        return [child for part in item.findall(nodes.definition) for child in part.children]
    return [child for child in node.children if not isinstance(child, nodes.title)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _carry_previews)
    app.add_js_file("previews.js")
    return add_directives(app, {})
