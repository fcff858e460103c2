"""Every chapter is an article of readable size with the same parts; what older chapters exceed may only shrink."""

import re

import pytest

from helpers.book import chapters

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
CEILINGS = {
    "preliminaries": {
        "words of the title": 9,
        "words": 3950,
        "visible cells": 43,
        "lines of the longest visible cell": 31,
        "folds in a row": 2,
        "folds without a label": 15,
        "kilobytes": 500,
    },
    "known-population": {
        "words of the title": 12,
        "words": 3350,
        "lines of the longest visible cell": 31,
        "folds in a row": 4,
        "folds without a label": 43,
        "kilobytes": 550,
    },
    "oversampling": {
        "words of the title": 13,
        "words": 3450,
        "visible cells": 30,
        "lines of the longest visible cell": 30,
        "figures": 6,
        "folds in a row": 3,
        "folds without a label": 16,
        "kilobytes": 600,
    },
    "smote": {
        "words": 4550,
        "visible cells": 20,
        "lines of the longest visible cell": 30,
        "figures": 7,
        "folds in a row": 4,
        "folds without a label": 41,
        "kilobytes": 600,
    },
    "bagging": {
        "words": 4900,
        "visible cells": 34,
        "lines of the longest visible cell": 32,
        "folds in a row": 6,
        "folds without a label": 50,
        "kilobytes": 700,
    },
    "private-erm": {
        "words of the title": 11,
        "words": 4350,
        "visible cells": 20,
        "lines of the longest visible cell": 32,
        "figures": 8,
        "folds in a row": 4,
        "folds without a label": 35,
        "kilobytes": 700,
    },
    "weighted-erm": {
        "words of the title": 12,
        "words": 3800,
        "visible cells": 21,
        "lines of the longest visible cell": 32,
        "figures": 6,
        "folds in a row": 5,
        "folds without a label": 40,
        "kilobytes": 700,
    },
    "kernels-tuning": {
        "words of the title": 15,
        "words": 4150,
        "lines of the longest visible cell": 28,
        "folds in a row": 4,
        "folds without a label": 34,
        "kilobytes": 600,
    },
}
# Parts that an older chapter does not have yet; remove a part here when the chapter gets it.
WITHOUT = {
    name: {"a toy before the first statement", "two to four exercises with executed, folded solutions"}
    for name in CEILINGS
}

FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
LABEL = re.compile(r"(set-up|data|figure|table|check|proof|numbers): \S.*|Solution( \d)?")
STATEMENT = re.compile(r"\{prf:(theorem|proposition|lemma|corollary|algorithm)\}")


def folded(cell) -> bool:
    return bool(FOLDED & set(cell.metadata.get("tags", ())))


def label(cell) -> str:
    """What the button of a folded cell says; the theme's own words say nothing."""
    return cell.metadata.get("mystnb", {}).get("code_prompt_show", "")


def words(markdown: str) -> int:
    """Words of prose: directives' markup is left out and a formula counts as one."""
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", " formula ", markdown, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(```|:\w+:|\(.*\)=$)", line)]
    return len(re.findall(r"\w[\w'’.-]*", " ".join(lines)))


def is_code(cell) -> bool:
    return cell.cell_type == "code"


def longest_run(flags) -> int:
    run = longest = 0
    for flag in flags:
        run = run + 1 if flag else 0
        longest = max(longest, run)
    return longest


def measures(chapter) -> dict[str, int]:
    cells = chapter.notebook.cells
    code = [cell for cell in cells if is_code(cell)]
    visible = [cell for cell in code if not folded(cell) and "parameters" not in cell.metadata.get("tags", ())]
    pictures = {"image/svg+xml", "image/png"}
    return {
        "words of the title": words(chapter.title),
        "words": sum(words(cell.source) for cell in cells if cell.cell_type == "markdown"),
        "visible cells": len(visible),
        "lines of the longest visible cell": max((len(cell.source.splitlines()) for cell in visible), default=0),
        "figures": sum(any(pictures & set(o.get("data", ())) for o in cell.get("outputs", ())) for cell in code),
        "folds in a row": longest_run(folded(cell) for cell in cells),
        "folds without a label": sum(folded(cell) and not LABEL.fullmatch(label(cell)) for cell in code),
        "kilobytes": -(-chapter.path.stat().st_size // 1024),
    }


def first(cells, test) -> int:
    return next((place for place, cell in enumerate(cells) if test(cell)), len(cells))


def parts(chapter) -> dict[str, bool]:
    """Which parts of the anatomy a chapter has."""
    cells = chapter.notebook.cells
    headings = [line for cell in cells if cell.cell_type == "markdown" for line in cell.source.splitlines()]
    exercises = first(cells, lambda cell: re.search(r"^#+ Exercises$", cell.source, re.MULTILINE))
    solutions = [
        cell for cell in cells[exercises:] if folded(cell) and label(cell).startswith("Solution") and cell.outputs
    ]
    toy = first(cells, lambda cell: "toy" in cell.metadata.get("tags", ()))
    statement = first(cells, lambda cell: STATEMENT.search(cell.source))
    return {
        "a label above the title": bool(re.match(r"\([\w-]+\)=\n# ", cells[0].source)),
        "the parameters as first code": "parameters" in cells[first(cells, is_code)].metadata.get("tags", ()),
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
