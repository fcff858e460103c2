"""Every chapter is an article of readable size with the same parts; what older chapters exceed may only shrink."""

import re

import pytest

from helpers.book import chapters
from helpers.book.anatomy import is_folded, label, longest_run, measures, reading_minutes, words

# An article that is read in 25 minutes.
LIMITS = {
    "words of the title": 8,
    "words": 2000,
    "visible cells": 14,
    "lines of the longest visible cell": 12,
    "figures": 5,
    "folds in a row": 1,
    "folds without a label": 0,
    "kilobytes": 400,
}
# Measured in chapters that are older than the limits. Lower a number or drop a line when a chapter gets better; never
# add one for a new chapter.
CEILINGS = {}
# Parts that an older chapter does not have yet; remove a part here when the chapter gets it.
WITHOUT = {
    name: {"a toy before the first statement", "two to four exercises with executed, folded solutions"}
    for name in CEILINGS
}

STATEMENT = re.compile(r"\{prf:(theorem|proposition|lemma|corollary|algorithm)\}")


def first(cells, test) -> int:
    return next((place for place, cell in enumerate(cells) if test(cell)), len(cells))


def parts(chapter) -> dict[str, bool]:
    """Which parts of the anatomy a chapter has."""
    cells = chapter.notebook.cells
    headings = [line for cell in cells if cell.cell_type == "markdown" for line in cell.source.splitlines()]
    exercises = first(cells, lambda cell: re.search(r"^#+ Exercises$", cell.source, re.MULTILINE))
    solutions = [
        cell for cell in cells[exercises:] if is_folded(cell) and label(cell).startswith("Solution") and cell.outputs
    ]
    toy = first(cells, lambda cell: "toy" in cell.metadata.get("tags", ()))
    statement = first(cells, lambda cell: STATEMENT.search(cell.source))
    return {
        "a label above the title": bool(re.match(r"\([\w-]+\)=\n# ", cells[0].source)),
        "the parameters as first code": "parameters"
        in cells[first(cells, lambda cell: cell.cell_type == "code")].metadata.get("tags", ()),
        "a comment for every parameter": all(p.meaning for p in chapter.parameters.values()),
        "a toy before the first statement": toy < min(statement, len(cells)),
        "what would change this": "## What would change this" in headings,
        "two to four exercises with executed, folded solutions": 2 <= len(solutions) <= 4,
        "takeaways": "## Takeaways" in headings,
        "limits": any(line.startswith(("**Limits.**", "## Limits")) for line in headings),
    }


def test_a_chapter_is_short_enough_to_be_read(chapter):
    ceilings = CEILINGS.get(chapter.name, {})
    for name, value in measures(chapter).items():
        allowed = max(LIMITS[name], ceilings.get(name, 0))
        assert value <= allowed, f"{chapter.name}: {value} {name}, at most {allowed}"


def test_a_chapter_has_its_parts(chapter):
    missing = {name for name, there in parts(chapter).items() if not there}
    assert missing <= WITHOUT.get(chapter.name, set()), f"{chapter.name} lacks {sorted(missing)}"


def test_allowances_only_shrink(chapter):
    """An allowance that is no longer needed goes, so that nothing grows back into it."""
    measured, there = measures(chapter), parts(chapter)
    for name, ceiling in CEILINGS.get(chapter.name, {}).items():
        assert measured[name] > LIMITS[name], f"{chapter.name}: {name} is within the limit, drop its ceiling"
        assert ceiling <= 1.1 * measured[name] + 1, f"{chapter.name}: lower the ceiling of {name} to {measured[name]}"
    for name in WITHOUT.get(chapter.name, ()):
        assert not there[name], f"{chapter.name} has {name} now: remove it from WITHOUT"


def test_allowances_are_of_chapters_that_exist():
    names = {chapter.name for chapter in chapters.chapters()}
    assert set(CEILINGS) | set(WITHOUT) <= names


# ------------------------------------------------------------------------------------- the measures measure


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Two words", 2),
        ("(a-label)=\n# A title\n", 2),
        ("We set $n_0 = 5$ and\n$$\nx + y\n$$\ndone.", 6),
        ("```{prf:theorem} Name\n:label: thm-x\nIt holds.\n```", 2),
    ],
)
def test_words_of_prose(text, count):
    assert words(text) == count


@pytest.mark.parametrize(("flags", "run"), [([], 0), ([1, 0, 1, 1], 2), ([1, 1, 1, 0], 3)])
def test_runs(flags, run):
    assert longest_run(flags) == run


def test_an_article_at_its_limits_takes_25_minutes(monkeypatch):
    monkeypatch.setattr("helpers.book.anatomy.measures", lambda chapter: LIMITS)
    assert reading_minutes(None) == 25
