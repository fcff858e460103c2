"""The pages that lead to the others: findings by topic, redirects."""

import re
from types import SimpleNamespace

import dpbook_overview as overview
import pytest
import yaml
from dpbook_pages import glued

from helpers import paths
from helpers.book import chapters

ROLE = re.compile(r"\{finding\}`([\w-]+)\.(\w+)`")
LINK = re.compile(r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")


def test_every_number_of_a_finding_is_glued():
    for row in overview.findings():
        for name, key in ROLE.findall(row.computed):
            assert key in glued(chapters.chapter(name)), f"{name} glues no {key}"


def test_a_finding_has_no_number_of_its_own_and_links_to_its_chapter():
    for row in overview.findings():
        settings = re.compile(r"\$[^$]*\$")  # formulas hold settings, as epsilon = 0.1, and no results
        assert re.findall(r"\d+\.\d+", settings.sub("", ROLE.sub("", row.computed))) == [], row.printed
        assert LINK.search(row.computed), row.printed


def test_five_headlines_of_one_plain_sentence():
    headlines = [row.headline for row in overview.findings() if row.headline]
    assert len(headlines) == 5
    assert all(re.fullmatch(r"[A-Z][^.$]+\.", text) and len(text.split()) <= 25 for text in headlines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A:\n", "topic 'A' must hold a list"),
        ("A:\n- {printed: a}\n", "must have the keys"),
        ("A:\n- {printed: a, computed: b, colour: red}\n", "must have the keys"),
        ("A:\n- {printed: a, computed: b}\nA: []\n", "stands twice"),
    ],
)
def test_bad_findings_are_refused(tmp_path, text, message):
    file = tmp_path / "findings.yml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        overview.findings(file)


def test_a_moved_page_leads_to_the_new_one(tmp_path):
    (tmp_path / "book").mkdir()
    app = SimpleNamespace(
        builder=SimpleNamespace(format="html"), outdir=tmp_path, config=SimpleNamespace(moved_pages={"old": "new"})
    )
    overview._leave_redirects(app, None)
    page = (tmp_path / "book" / "old.html").read_text()
    assert 'content="0; url=new.html"' in page
    assert 'location.replace("new.html" + location.search + location.hash)' in page
    assert '<a href="new.html">' in page
    assert 'url=appendix/kernels.html"' in (tmp_path / "book" / "kernels.html").read_text()
    assert not (tmp_path / "book" / "smote.html").exists()


def test_moved_pages_are_gone_and_lead_to_pages_that_exist():
    listed = yaml.safe_load((paths.ROOT / "_config.yml").read_text())["sphinx"]["config"]["moved_pages"]
    moved = overview.moved_pages(listed)
    assert moved.keys() >= listed.keys() | {file.stem for file in paths.APPENDIX.glob("*.ipynb")}
    for old, new in moved.items():
        assert not list(paths.BOOK.glob(f"{old}.*"))
        assert list(paths.BOOK.glob(f"{new}.*"))
