"""The register and the verdict boxes cannot disagree."""

import re
from dataclasses import replace

import nbformat
import pytest

from helpers.book import chapters, claims
from helpers.book.claims import CORRECTED, FAILS, HOLDS, NOT_CHECKABLE, TIGHTER, UNCHECKED, ClaimContradiction

YES, NO = claims.fact("it", True), claims.fact("it", False)


@pytest.fixture
def verdict_of(monkeypatch):
    """Sets one claim's verdict in an otherwise unchanged register."""
    original = claims.register()

    def change(claim_id, verdict):
        changed = original | {claim_id: replace(original[claim_id], verdict=verdict, reason="because")}
        monkeypatch.setattr(claims, "register", lambda: changed)

    return change


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ({"as_printed": YES}, HOLDS),
        ({"as_printed": YES, "tighter": YES}, TIGHTER),
        ({"as_printed": YES, "tighter": NO}, HOLDS),
        ({"as_printed": NO, "corrected": YES}, CORRECTED),
        ({"as_printed": NO, "corrected": NO}, FAILS),
        ({"as_printed": NO}, FAILS),
    ],
)
def test_the_verdict_follows_from_the_evidence(verdict_of, evidence, verdict):
    verdict_of("dpci-prop2", verdict)
    assert claims.check("dpci-prop2", **evidence).verdict == verdict
    for other in {HOLDS, TIGHTER, CORRECTED, FAILS, UNCHECKED} - {verdict}:
        verdict_of("dpci-prop2", other)
        with pytest.raises(ClaimContradiction, match="dpci-prop2"):
            claims.check("dpci-prop2", **evidence)


def test_unknown_claims_are_refused():
    with pytest.raises(ValueError, match="claim_id must be one of"):
        claims.check("dpci-prop99", as_printed=YES)


def test_comparisons():
    assert claims.close("r", 42.01, 42, tolerance=0.5)
    assert not claims.close("r", 42.6, 42, tolerance=0.5)
    assert claims.at_most("delta", [0.1, 0.2], [0.1, 0.3])
    assert not claims.at_most("delta", [0.1, 0.4], 0.3)
    assert "0.4 exceeds 0.3" in claims.at_most("delta", [0.1, 0.4], 0.3).text
    with pytest.raises(ValueError, match="without NaN"):
        claims.at_most("delta", float("nan"), 1)
    assert not claims.all_of(YES, NO)
    assert claims.all_of(YES, YES)


def test_the_box_says_what_the_register_says(verdict_of):
    verdict_of("dpci-prop2", FAILS)
    shown = claims.check("dpci-prop2", as_printed=NO)._repr_html_()
    assert 'id="claim-dpci-prop2"' in shown
    assert f'data-verdict="{FAILS}"' in shown


def stored_boxes(chapter) -> dict[str, str]:
    """Verdicts by claim id, read from a chapter's stored outputs."""
    html = "".join(
        output.get("data", {}).get("text/html", "")
        for cell in chapter.notebook.cells
        for output in cell.get("outputs", [])
    )
    return dict(re.findall(r'id="claim-([\w-]+)" data-verdict="([^"]+)"', html))


def test_stored_boxes_and_register_agree(chapter):
    rows = {row.id: row for row in claims.register().values() if row.chapter == chapter.name}
    checked = {name: row.verdict for name, row in rows.items() if row.is_checked}
    assert stored_boxes(chapter) == checked


def test_a_verdict_needs_a_chapter_that_checks_it():
    built = {chapter.name for chapter in chapters.chapters()}
    for row in claims.register().values():
        assert not row.is_checked or row.chapter in built, f"{row.id} has a verdict but no chapter computes it"


def test_stored_reasons_are_the_register_s(chapter):
    text = "".join(
        output.get("data", {}).get("text/plain", "")
        for cell in chapter.notebook.cells
        for output in cell.get("outputs", [])
    )
    for name in stored_boxes(chapter):
        assert claims.register()[name].reason in text, f"refresh {chapter.name}: the reason of {name} has changed"


def test_breaking_the_register_breaks_the_chapter(tmp_path, monkeypatch):
    """One wrong verdict in the register, and the cell that checks the claim raises."""
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Tiny"),
            nbformat.v4.new_code_cell("n: int = 1  # in [1, 2]: size", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(
                "from dataclasses import replace\nfrom helpers import claims\n"
                "rows = claims.register()\n"
                "name = next(key for key, row in rows.items() if row.verdict == 'holds')\n"
                "rows[name] = replace(rows[name], verdict='fails as printed')\n"
                "claims.check(name, as_printed=claims.fact('it', True))"
            ),
        ]
    )
    file = tmp_path / "tiny.ipynb"
    nbformat.write(notebook, file)
    with pytest.raises(Exception, match="ClaimContradiction"):
        chapters.Chapter(file).execute()


def test_not_checkable_is_not_counted_as_checked():
    row = next(iter(claims.register().values()))
    assert not replace(row, verdict=NOT_CHECKABLE).is_checked
    assert replace(row, verdict=FAILS).is_checked
