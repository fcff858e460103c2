"""The register and the verdict boxes cannot disagree."""

import inspect
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import dpbook_pages as extension
import nbformat
import numpy as np
import pytest

from checks import claims
from checks.claims import CORRECTED, FAILS, HOLDS, NOT_CHECKABLE, TIGHTER, UNCHECKED, ClaimContradiction
from helpers import paths
from helpers.book import chapters

YES, NO = (claims.fact("it", holds, kind=claims.EXACT) for holds in (True, False))


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
    exact = {"kind": claims.EXACT}
    assert claims.close("r", 42.01, 42, tolerance=0.5, **exact)
    assert not claims.close("r", [42, 42.6], 42, tolerance=0.5, **exact)
    assert claims.at_most("delta", [0.1, 0.2], [0.1, 0.3], **exact)
    assert not claims.at_most("delta", [0.1, 0.4], 0.3, **exact)
    assert "0.4 exceeds 0.3 (by 33 %)" in claims.at_most("delta", [0.1, 0.4], 0.3, **exact).text
    assert not claims.at_most("loss", float("inf"), 1.0, **exact)
    assert claims.at_most("loss", [float("-inf"), 0.5], 1.0, **exact).slack == 0.5
    assert not claims.all_of(YES, NO)
    assert claims.all_of(YES, YES)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: claims.at_most("delta", float("nan"), 1, kind=claims.EXACT), "without NaN for 'delta'"),
        (lambda: claims.at_most("delta", [], 1, kind=claims.EXACT), "without NaN for 'delta'"),
        (lambda: claims.close("r", [], 1, tolerance=1, kind=claims.EXACT), "without NaN for 'r'"),
        (lambda: claims.at_most("loss", 3, float("inf"), kind=claims.EXACT), "must be finite"),
        (lambda: claims.at_most("delta", 0.1, 1, kind="guess"), "kind of 'delta' must be one of"),
        (lambda: claims.at_most("delta", 0.1, 1, kind=claims.SAMPLE), "n of 'delta' must be the number of cases"),
        (lambda: claims.fact("it", "no", kind=claims.EXACT), "holds of 'it' must be True or False"),
        (lambda: claims.fact("it", [1, 0], kind=claims.EXACT), "array of booleans"),
        (lambda: claims.all_of(), "at least one comparison"),
    ],
)
def test_evidence_that_says_nothing_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_kind_has_to_be_given():
    for build in (claims.fact, claims.at_most, claims.close):
        assert inspect.signature(build).parameters["kind"].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("computed", "bound", "tolerance", "shown"),
    [
        (0.0, 0.0, 0.0, "reaches the bound 0, never above"),
        (-0.5, 0.0, 0.0, "at most -0.5, below the bound 0"),
        (0.999999, 1.0, 0.0, "reaches the bound 1, never above"),
        (0.9, 1.0, 0.0, "at most 0.9, bound 1 (10 % unused)"),
        (0.3, 1.0, 0.0, "at most 0.3, far from the bound 1 (70 % unused)"),
        (1 + 1e-10, 1.0, 1e-9, "reaches the bound 1 up to rounding (at most 1e-09)"),
        (-1e-17, 0.0, 1e-12, "reaches the bound 0 up to rounding (at most 1e-12)"),
        # The case nearest to its own bound is shown, not the one with the smallest difference.
        ([0.1, 95.0], [1.0, 100.0], 0.0, "at most 95, bound 100 (5 % unused)"),
        # Beside a bound of 0 there are no shares.
        ([-3.0, -1.0, -2.0], 0.0, 0.0, "at most -1, below the bound 0"),
        ([1.0, float("inf")], 2.0, 0.0, "inf exceeds 2"),
    ],
)
def test_evidence_says_how_far_it_is_from_its_bound(computed, bound, tolerance, shown):
    text = claims.at_most("x", computed, bound, kind=claims.ENUMERATION, tolerance=tolerance).text
    assert text == f"x: {shown}"


def test_cases_are_counted_where_they_can_be():
    assert claims.at_most("x", np.zeros(300), 1, kind=claims.SAMPLE).basis == "sample of 300"
    assert claims.at_most("x", 0, 1, kind=claims.SAMPLE, n=4000).basis == "sample of 4,000"
    assert claims.at_most("x", 0, 1, kind=claims.ENUMERATION).basis == "enumeration"
    assert claims.at_most("x", [0, 1], 1, kind=claims.EXACT).basis == "exact"
    assert claims.fact("x", np.array([True, False, False]), kind=claims.SAMPLE).text == "x: no in 2 of 3"


def test_several_comparisons_are_as_strong_as_the_weakest():
    both = claims.all_of(YES, claims.fact("b", [True] * 5, kind=claims.SAMPLE))
    assert both.kind == claims.SAMPLE
    assert [part.text for part in claims.all_of(both, YES).parts] == ["it: yes", "b: yes", "it: yes"]
    assert [part.text for part in claims.all_of(both, NO).parts] == ["it: no"]


def test_the_box_says_what_the_register_says(verdict_of):
    verdict_of("dpci-prop2", FAILS)
    shown = claims.check("dpci-prop2", as_printed=NO)._repr_html_()
    assert 'id="claim-dpci-prop2"' in shown
    assert f'data-verdict="{FAILS}"' in shown


def test_a_statement_that_holds_takes_one_line(verdict_of):
    seen = claims.all_of(YES, claims.at_most("<x>", np.zeros(7), 1, kind=claims.SAMPLE))
    for verdict, tag, evidence in (
        (HOLDS, "details", {"as_printed": seen}),
        (TIGHTER, "div", {"as_printed": seen, "tighter": YES}),
        (FAILS, "div", {"as_printed": claims.all_of(NO, seen)}),
    ):
        verdict_of("dpci-prop2", verdict)
        box = claims.check("dpci-prop2", **evidence)
        page = ElementTree.fromstring(box._repr_html_())
        assert (page.tag, page.get("data-verdict"), page.get("data-basis")) == (tag, verdict, box.basis)
        assert (page.find("summary") is not None) == (verdict == HOLDS)
        shown = ["".join(item.itertext()) for item in page.iter("li")]
        assert shown == [f"{item.text} {item.basis}" for item in box.items]
    assert box.basis == "exact"


def test_the_register_page_reads_the_kinds_from_the_boxes(verdict_of, monkeypatch):
    verdict_of("dpci-prop2", HOLDS)
    box = claims.check("dpci-prop2", as_printed=YES)._repr_html_()
    cell = nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("display_data", {"text/html": box})])
    chapter = SimpleNamespace(notebook=nbformat.v4.new_notebook(cells=[cell]))
    monkeypatch.setattr(extension.chapters, "chapters", lambda: [chapter])
    assert extension.evidence_kinds() == {"dpci-prop2": "exact"}


# ------------------------------------------------------------------------------------------ a damaged register

ROW = """\
- id: a
  document: dpci
  label: A
  statement: s
  plain: p
  location: Section 1
  chapter: smote
  evidence: app-smote
  verdict: not checked yet
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW + ROW, "claims.yml: id 'a' stands twice"),
        (ROW + "  label: B\n", "claims.yml, line 10: key 'label' stands twice"),
        (ROW.replace("  label: A\n", ""), "missing 1 required positional argument: 'label'"),
        (ROW + "  colour: red\n", "unexpected keyword argument 'colour'"),
        (ROW + "  issues: DPCI-I01\n", "claims.yml, claim 1 (a): issues must be a list, got 'DPCI-I01'"),
        (ROW.replace("not checked yet", "true"), "claims.yml, claim 1 (a): verdict must be text, got True"),
        (ROW.replace("not checked yet", "perhaps"), "claims.yml, claim 1 (a): verdict must be one of"),
        (ROW.replace("dpci", "dpcy"), "claims.yml, claim 1 (a): document must be one of"),
        (ROW.replace("not checked yet", "holds"), "claims.yml, claim 1 (a): reason must be"),
        ("- just text\n", "claims.yml, claim 1 (just text): keys must be those of a claim"),
        ("a: 1\n", "claims.yml: must be a list of claims"),
        ("", "claims.yml: must be a list of claims"),
        (ROW + "  differences: [\n", "claims.yml, line "),
        (b"\xff\xfe\x00", "claims.yml: not readable as YAML"),
        ("[" * 3000, "claims.yml"),
    ],
)
def test_a_damaged_register_is_one_line(text, message, tmp_path, monkeypatch):
    (tmp_path / "claims.yml").write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setattr(paths, "REFERENCE", tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        claims.register.__wrapped__()
    assert "\n" not in str(caught.value)


def stored_boxes(chapter) -> dict[str, str]:
    """Verdicts by claim id, read from a chapter's stored outputs."""
    html = "".join(
        output.get("data", {}).get("text/html", "")
        for cell in chapter.notebook.cells
        for output in cell.get("outputs", [])
    )
    return dict(re.findall(r'id="claim-([\w-]+)" data-verdict="([^"]+)"', html))


def test_stored_boxes_and_register_agree(chapter):
    rows = {row.id: row for row in claims.register().values() if row.evidence == chapter.name}
    checked = {name: row.verdict for name, row in rows.items() if row.is_checked}
    assert stored_boxes(chapter) == checked


def test_a_statement_names_its_evidence_and_the_main_chapter_that_tells_of_it():
    main = {chapter.name: chapter.main for chapter in chapters.chapters()}
    for row in claims.register().values():
        assert main.get(row.evidence) == row.chapter, f"{row.id}: {row.evidence} does not belong to {row.chapter}"


def test_a_statement_has_one_plain_sentence():
    for row in claims.register().values():
        assert re.fullmatch(r"[A-Z].{20,}\.", row.plain), row.id
        assert len(row.plain.split()) <= 32, row.id


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
                "from dataclasses import replace\nfrom checks import claims\n"
                "rows = claims.register()\n"
                "name = next(key for key, row in rows.items() if row.verdict == 'holds')\n"
                "rows[name] = replace(rows[name], verdict='fails as published')\n"
                "claims.check(name, as_printed=claims.fact('it', True, kind=claims.EXACT))"
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
