"""Every chapter is an article of readable size with the same parts."""

import re

import pytest

from helpers import paths
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
STATEMENT = re.compile(r"\{prf:(theorem|proposition|lemma|corollary|algorithm)\}")
# Glossary words that are also said in another sense, or stand as symbols nearly everywhere.
EVERYDAY = {"claim", "verdict", "substitution", "threshold", "precision", "epsilon", "delta", "parameter set"}
EVERYDAY |= {"freshness", "recorded result", "lesion", "adjacency", "DP"}
# What no reader takes for the use of a word: code, formulas, roles, links, headings, tables, quotes, markup.
NO_USE = re.compile(
    r"^```(?:\w+|\{(?!admonition|prf:)[^}]*\})[^\n]*\n.*?^```\s*$|^\s*```[^\n]*$|^:\w+:[^\n]*$|^\([\w-]+\)=$|^#[^\n]*$"
    r"|^\|[^\n]*$|^\d?\*\*[^*\n]*\*\*|\$\$.*?\$\$|\$[^$\n]*\$|\{[\w:]+\}`[^`]*`|`[^`]+`|\[[^\]\n]*\]\([^)]*\)"
    r'|<[^>\n]*>|"[^"\n]*"',
    re.DOTALL | re.MULTILINE,
)
WON_OR_LOST = re.compile(r"\b(won|wins?|beats?|loses?|lost|best|highest)\b", re.IGNORECASE)


def glossary() -> list[list[str]]:
    """The names of every entry."""
    body = (paths.ROOT / "book" / "glossary.md").read_text().partition(":sorted:")[2]
    blocks = ([line for line in block.splitlines() if re.match(r"\w", line)] for block in body.split("\n\n"))
    return [names for names in blocks if names]


def prose(chapter) -> str:
    return "\n\n".join(cell.source for cell in chapter.notebook.cells if cell.cell_type == "markdown")


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
    for name, value in measures(chapter).items():
        assert value <= LIMITS[name], f"{chapter.name}: {value} {name}, at most {LIMITS[name]}"


def test_a_chapter_has_its_parts(chapter):
    missing = {name for name, there in parts(chapter).items() if not there}
    assert not missing, f"{chapter.name} lacks {sorted(missing)}"


def test_glossary_words_that_a_chapter_uses_are_links_once(chapter):
    text = prose(chapter)
    linked = {target.lower() for pair in re.findall(r"\{term\}`(?:[^`<]*<([^>`]*)>|([^`]*))`", text) for target in pair}
    said, missing = NO_USE.sub(" ", text), []
    for names in glossary():
        words = [re.escape(name) for name in names if name not in EVERYDAY]
        if words and not linked & {name.lower() for name in names}:
            missing += re.findall(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])", said)
    assert not missing, f"{chapter.name} never links {sorted(set(missing))}: write {{term}}`...` at the first use"


def test_a_chapter_ends_with_what_won(chapter):
    takeaways = prose(chapter).partition("\n## Takeaways\n")[2].strip()
    first_part = re.split(r"\n\n|\n- (?=[A-Z`$])", takeaways)[0]
    assert WON_OR_LOST.search(first_part), f"{chapter.name}: the takeaways begin with what won, and what lost"


# ------------------------------------------------------------------------------------- the measures measure


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Two words", 2),
        ("(a-label)=\n# A title\n", 2),
        ("We set $n_0 = 5$ and\n$$\nx + y\n$$\ndone.", 6),
        ("```{prf:theorem} Name\n:label: thm-x\nIt holds.\n```", 2),
        ("A {term}`private number <epsilon>` of {glue:text}`key`, see {prf:ref}`thm-x`.", 7),
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
