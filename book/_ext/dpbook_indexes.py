"""Sphinx extension for the lists at the end: works under the names that citations print, proofs under their titles.

Its bibliography style is called `as-cited`. A label is what stands in the text, so two works may not share one: that is
a warning, and an error in `dpbook build`; letters behind the years in `references.bib` tell them apart.
"""

from collections.abc import Iterator
from types import SimpleNamespace

from docutils import nodes
from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style as AlphaStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinx.domains import IndexEntry
from sphinx_proof.domain import ProofIndex
from sphinxcontrib.bibtex.style.referencing import PersonStyle

from dpbook_pages import add_directives

STYLE = "as-cited"
_PERSON = PersonStyle()


def label(entry: Entry) -> str:
    """How the text cites a work, without brackets.

    >>> from pybtex.database import Person
    >>> label(Entry("article", {"year": "2018"}, {"author": [Person("Borja Balle"), Person("Yu-Xiang Wang")]}))
    'Balle and Wang, 2018'
    """
    template = _PERSON.author_or_editor_or_title(full=False)
    names = template.format_data({"entry": entry, "style": SimpleNamespace(person=_PERSON)})
    return f"{names}, {entry.fields['year']}"


class _Labels(BaseLabelStyle):
    def format_labels(self, sorted_entries: list[Entry]) -> Iterator[str]:
        yield from map(label, sorted_entries)


class _Style(AlphaStyle):
    default_label_style = STYLE


class TitledProofs(ProofIndex):
    """The index of sphinx-proof, which knows labels only, by chapter in reading order, with numbers and titles."""

    localname = "Definitions, theorems and algorithms"
    shortname = "proofs"

    def generate(self, docnames=None) -> tuple[list[tuple[str, list[IndexEntry]]], bool]:
        environment, wanted = self.domain.env, docnames and set(docnames)
        there = {proof["docname"] for proof in getattr(environment, "proof_list", {}).values()}
        pages = [page for page in environment.collect_relations() if page in there and (not wanted or page in wanted)]
        return [(environment.titles[page].astext(), self._entries(page)) for page in pages], False

    def _entries(self, page: str) -> list[IndexEntry]:
        environment = self.domain.env
        numbers, found = environment.toc_fignumbers.get(page, {}), []
        for node in environment.get_doctree(page).findall(nodes.Element):
            if node.get("label") not in environment.proof_list:
                continue
            place = environment.proof_list[node["label"]]
            number = ".".join(map(str, numbers.get(place["countertype"], {}).get(node["label"], ())))
            kind = f"{place['realtype'].capitalize()} {number}".strip()
            title = next(iter(node.findall(nodes.title)), nodes.title()).astext().strip("() ")
            found.append(IndexEntry(f"{kind}: {title}" if title else kind, 0, page, node["label"], "", "", ""))
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    register_plugin("pybtex.style.formatting", STYLE, _Style)
    register_plugin("pybtex.style.labels", STYLE, _Labels)
    app.setup_extension("sphinx_proof")
    app.registry.domains["prf"].indices = [TitledProofs]
    return add_directives(app, {})
