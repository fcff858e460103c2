"""How long a chapter is: what is read of it, and in how many minutes."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from helpers.book.chapters import Chapter

if TYPE_CHECKING:
    import nbformat

_FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
_LABEL = re.compile(r"(set-up|data|figure|table|check|proof|numbers): \S.*|Solution( \d)?")
_PICTURES = {"image/svg+xml", "image/png"}
# A reader's pace: 130 words of such prose a minute, 25 s for a visible cell, 45 s for a figure. An article at all of
# its limits (2,000 words, 14 cells, five figures) takes 25 minutes.
_WORDS, _CELLS, _FIGURES = 1 / 130, 25 / 60, 45 / 60


def words(markdown: str) -> int:
    """Words of prose: the markup of directives and roles is left out, and a formula counts as one."""
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", " formula ", markdown, flags=re.DOTALL)
    text = re.sub(r"\{[\w:]+\}`([^`<]*)(<[^`>]*>)?`", r"\1", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(```|:\w+:|\(.*\)=$)", line)]
    return len(re.findall(r"\w[\w'’.-]*", " ".join(lines)))


def is_folded(cell: "nbformat.NotebookNode") -> bool:
    """Whether a reader has to open a cell to see its code."""
    return bool(_FOLDED & set(cell.metadata.get("tags", ())))


def label(cell: "nbformat.NotebookNode") -> str:
    """What the button of a folded cell says; the theme's own words say nothing."""
    return cell.metadata.get("mystnb", {}).get("code_prompt_show", "")


def longest_run(flags: Iterable[bool]) -> int:
    """Length of the longest run of true flags."""
    run = longest = 0
    for flag in flags:
        run = run + 1 if flag else 0
        longest = max(longest, run)
    return longest


def measures(chapter: Chapter) -> dict[str, int]:
    """Sizes of a chapter by name, as `CONTRIBUTING.md` limits them."""
    cells = chapter.notebook.cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    visible = [cell for cell in code if not is_folded(cell) and "parameters" not in cell.metadata.get("tags", ())]
    return {
        "words of the title": words(chapter.title),
        "words": sum(words(cell.source) for cell in cells if cell.cell_type == "markdown"),
        "visible cells": len(visible),
        "lines of the longest visible cell": max((len(cell.source.splitlines()) for cell in visible), default=0),
        "figures": sum(any(_PICTURES & set(o.get("data", ())) for o in cell.get("outputs", ())) for cell in code),
        "folds in a row": longest_run(is_folded(cell) for cell in cells),
        "folds without a label": sum(is_folded(cell) and not _LABEL.fullmatch(label(cell)) for cell in code),
        "kilobytes": -(-chapter.path.stat().st_size // 1024),
    }


def reading_minutes(chapter: Chapter) -> int:
    """Minutes to read a chapter once, folds closed."""
    size = measures(chapter)
    return round(_WORDS * size["words"] + _CELLS * size["visible cells"] + _FIGURES * size["figures"])
