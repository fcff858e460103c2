"""The built book is complete, and its pages load nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from dpbook_pages import summary

from checks import claims
from helpers import paths
from helpers.book import chapters, pages
from helpers.data import sets

SITE = paths.ROOT / "_build" / "html" / "book"

# Rendering takes a minute or two: these run on what `make book` has built, which CI does after `make test`.
rendered = pytest.mark.rendered


@pytest.fixture
def site() -> Path:
    assert SITE.is_dir(), "there is no built book; run: make book"
    return SITE


def test_children_of_the_tests_have_no_network():
    code = "import socket; socket.create_connection(('example.org', 80), timeout=3)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the tests run without a network" in finished.stderr


@rendered
def test_every_page_of_the_table_of_contents_is_there(site):
    for page in ("index", "claims", "how-to-rerun", "data-sets", "glossary", "notation", "bibliography"):
        assert (site / f"{page}.html").is_file()
    for chapter in chapters.chapters():
        assert (site / chapter.address).is_file()


@rendered
def test_no_page_loads_anything_from_elsewhere(site):
    loading = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"'](?:https?:)?//[^\"']+", re.IGNORECASE)
    for page in site.rglob("*.html"):
        assert loading.findall(page.read_text()) == [], page.name


@rendered
def test_the_register_lists_every_statement_and_counts_verdicts(site):
    page = (site / "claims.html").read_text()
    rows = claims.register()
    assert all(f'id="row-{name}"' in page for name in rows)
    told = summary(list(rows.values()))
    total, *counts = map(int, re.findall(r"\d+", told))
    assert sum(counts) == total == len(rows)
    for text in (page, (site / "index.html").read_text()):
        assert told in " ".join(text.split())


@rendered
def test_every_verdict_links_to_the_cell_that_computes_it(site):
    page = (site / "claims.html").read_text()
    links = re.findall(r'href="([\w/-]+\.html)#(claim-[\w-]+)"', page)
    checked = [row for row in claims.register().values() if row.is_checked]
    assert sorted(links) == sorted((chapters.chapter(row.evidence).address, row.anchor) for row in checked)
    for address, anchor in links:
        assert f'id="{anchor}"' in (site / address).read_text(), f"{address} has no {anchor}"
    for row in checked:
        link = f'href="{chapters.chapter(row.evidence).address}#{row.anchor}"'
        assert link in (site / chapters.chapter(row.chapter).address).read_text(), f"{row.chapter}: {row.id}"


@rendered
def test_every_verdict_box_links_to_its_row(site):
    register = (site / "claims.html").read_text()
    for page in site.rglob("*.html"):
        for link, row in re.findall(r'class="verdict-id" href="([^"#]+)#(row-[\w-]+)"', page.read_text()):
            assert (page.parent / link).resolve() == site / "claims.html", page.name
            assert f'id="{row}"' in register


@rendered
def test_old_addresses_lead_on(site):
    """Pages of the appendix stood among the chapters; sections of a chapter that was written anew are on its page."""
    assert 'location.replace("appendix/smote-price.html"' in (site / "smote-price.html").read_text()
    assert '<meta name="moved-anchors" content="appendix/app-smote.html"' in (site / "smote.html").read_text()
    assert 'id="smote-guarantee"' in (site / "appendix" / "app-smote.html").read_text()
    assert "moved-anchors" not in (site / "audit.html").read_text()


@rendered
def test_the_site_is_light_enough_to_be_copied(site):
    assert sum(file.stat().st_size for file in site.parent.rglob("*") if file.is_file()) < 30e6


@rendered
def test_no_page_shows_marks_for_the_formatter(site):
    for page in site.rglob("*.html"):
        assert "# fmt:" not in re.sub(r"<[^>]+>", "", page.read_text()), page.name


@rendered
def test_no_id_stands_twice_on_a_page(site):
    for page in site.rglob("*.html"):
        ids = Counter(re.findall(r'\bid="([^"]+)"', page.read_text()))
        assert [name for name, count in ids.items() if count > 1] == [], page.name


@rendered
def test_the_guide_describes_every_parameter(site):
    page = (site / "how-to-rerun.html").read_text()
    for chapter in chapters.chapters():
        for name in chapter.parameters:
            assert f">{name}<" in page, f"{chapter.name}.{name}"
        for name in chapter.parameter_sets:
            assert f"dpbook run {chapter.name} --set {name}" in re.sub(r"<[^>]+>", "", page)


@rendered
def test_the_page_of_data_sets_leads_from_each_row_to_its_card(site):
    page = (site / "data-sets.html").read_text()
    for card in map(sets.card, sets.NAMES):
        anchor = f"data-{card.name}".replace("_", "-")
        assert f'href="#{anchor}"' in page, card.name
        assert re.search(rf'id="{anchor}".{{0,40}}<h3>{card.name}<', page, re.DOTALL), card.name


@rendered
def test_a_page_of_a_re_run_keeps_its_citations_and_references(tmp_path):
    """The copy stands for an executed one: what matters is how it is rendered."""
    notebook = tmp_path / "preliminaries.ipynb"
    shutil.copy(chapters.chapter("preliminaries").path, notebook)
    page = pages.render(notebook, {"n_seeds": 3})
    article = re.search(r"<article.*</article>", page.read_text(), re.DOTALL)[0]
    assert "run again with n_seeds = 3" in re.sub(r"<[^>]+>", "", article)
    assert unresolved(article) == []
    local = {link for link in re.findall(r'href="([\w./-]+\.html)', article) if ":" not in link}
    assert {"glossary.html", "bibliography.html"} <= local
    assert all((page.parent / link).is_file() for link in local)


def test_a_pdf_is_refused_without_chromium(monkeypatch):
    monkeypatch.setattr(pages.shutil, "which", lambda program: None)
    with pytest.raises(chapters.ChapterError, match="--pdf needs Chromium; none of chromium"):
        pages.build_pdf()


def unresolved(article: str) -> list[str]:
    """Empty brackets, references that lead nowhere, roles that were not understood."""
    text = re.sub(r"<(script|style|pre).*?</\1>", "", article, flags=re.DOTALL)
    dangling = re.findall(r'(?<!">)<span class="xref.*?</span>', text)
    roles = re.findall(r"\{[\w:]+\}(?:<[^>]+>)?`[^`]+`|problematic|system-message", text)
    return dangling + roles + re.findall(r".{20}\[\s*\]", re.sub(r"<[^>]+>", "", text))


@pytest.mark.parametrize(
    "broken",
    ["shown in the proof [<span></span>]", 'the <span class="xref std std-ref">page</span>', "{cite}`dwork2006`"],
)
def test_what_is_unresolved_is_noticed(broken):
    assert len(unresolved(f'<article><a href="x"><span class="xref">fine</span></a> [1] {broken}</article>')) == 1
