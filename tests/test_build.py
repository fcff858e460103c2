"""The book builds without a network and without warnings, and its generated parts are complete."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import paths
from helpers.book import chapters, claims, pages
from helpers.data import cards


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The HTML of the book, built with warnings as errors while every outside connection is refused."""
    folder = tmp_path_factory.mktemp("site")
    program = Path(sys.executable).with_name("jupyter-book")
    finished = subprocess.run(
        [program, "build", paths.ROOT, "-W", "--keep-going", "--path-output", folder],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return folder / "_build" / "html" / "book"


def test_children_of_the_tests_have_no_network():
    code = "import socket; socket.create_connection(('example.org', 80), timeout=3)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the tests run without a network" in finished.stderr


def test_every_page_of_the_table_of_contents_is_there(site):
    for page in ("index", "claims", "how-to-rerun", "data-sets", "glossary", "notation", "bibliography"):
        assert (site / f"{page}.html").is_file()
    for chapter in chapters.chapters():
        assert (site / f"{chapter.name}.html").is_file()


def test_no_page_loads_anything_from_elsewhere(site):
    loading = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"'](?:https?:)?//[^\"']+", re.IGNORECASE)
    for page in site.glob("*.html"):
        assert loading.findall(page.read_text()) == [], page.name


def test_the_claims_page_lists_every_claim_and_counts_the_checked_ones(site):
    page = (site / "claims.html").read_text()
    rows = claims.register()
    assert all(f'id="row-{name}"' in page for name in rows)
    checked = sum(row.is_checked for row in rows.values())
    assert f"{checked} of {len(rows)} statements are checked" in page
    assert f"{checked} of {len(rows)} statements are checked" in (site / "index.html").read_text()


def test_every_verdict_links_to_the_cell_that_computes_it(site):
    page = (site / "claims.html").read_text()
    links = set(re.findall(r'href="([\w-]+)\.html#(claim-[\w-]+)"', page))
    checked = {(row.chapter, row.anchor) for row in claims.register().values() if row.is_checked}
    assert links == checked
    for chapter, anchor in checked:
        assert f'id="{anchor}"' in (site / f"{chapter}.html").read_text(), f"{chapter} has no {anchor}"


def test_the_guide_describes_every_parameter(site):
    page = (site / "how-to-rerun.html").read_text()
    for chapter in chapters.chapters():
        for name in chapter.parameters:
            assert f">{name}<" in page, f"{chapter.name}.{name}"
        for name in chapter.parameter_sets:
            assert f"dpbook run {chapter.name} --set {name}" in re.sub(r"<[^>]+>", "", page)


def test_the_page_of_data_sets_leads_from_each_row_to_its_card(site):
    page = (site / "data-sets.html").read_text()
    for card in cards.cards():
        anchor = f"data-{card.name}".replace("_", "-")
        assert f'href="#{anchor}"' in page, card.name
        assert re.search(rf'id="{anchor}".{{0,40}}<h3>{card.name}<', page, re.DOTALL), card.name


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
