"""What a machine can see of how a page reads: its first screen, its length, its sentences, what its code shows."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from helpers.book.chapters import Chapter

FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
LABEL = re.compile(r"(set-up|data|figure|table|check|proof|numbers): \S.*|Solution( \d)?")
# What only this project's authors understand. Plain words for each: published; with a smaller budget; what was run;
# chosen after seeing the results; the interval excludes zero; data on which nothing was chosen; from the same list.
PRIVATE_WORDS = re.compile(
    r"\bprinted\b|\bin print\b|\b(?:un)?paid\b|\bpays?\b|\brecorded\b|\bhindsight\b"
    r"|\bclearly (?:better|worse|higher|lower)\b|\breserve sets?\b|\b(?:tuned|chosen) alike\b",
    re.IGNORECASE,
)
_PICTURES = {"image/svg+xml", "image/png"}
_NUMBER = re.compile(r"\bNUMBER\b|(?<![\w^])\d[\d,.]*")


def words(markdown: str) -> int:
    """Words of prose: the markup of directives and roles is left out, and a formula counts as one."""
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", " formula ", markdown, flags=re.DOTALL)
    text = re.sub(r"\{[\w:]+\}`([^`<]*)(<[^`>]*>)?`", r"\1", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(```|:\w+:|\(.*\)=$)", line)]
    return len(re.findall(r"\w[\w'’.-]*", " ".join(lines)))


def plain(markdown: str) -> str:
    """What is read aloud: no statements in boxes, no code, SYMBOL for a formula, NUMBER for a glued value."""
    text = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^:::+\{dropdown\}.*?^:::+$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\(.*\)=$|^\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "SYMBOL", text, flags=re.DOTALL)
    text = re.sub(r"\{glue:text\}`[^`]*`|\{finding\}`[^`]*`", "NUMBER", text)
    text = re.sub(r"\{cite:\w\}`[^`]*`", "Author", text)
    text = re.sub(r"\{[\w:]+\}`([^`<]*?)\s*(<[^`]*>)?`", r"\1", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "")


def paragraphs(text: str) -> list[str]:
    """Paragraphs and items of lists, without headings."""
    parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=- |\d\. )", text))
    return [part for part in parts if part and not part.startswith("#")]


def sentences(text: str) -> list[str]:
    """Sentences of three words or more."""
    found = (re.split(r"(?<=[.?!:])\s+(?=[A-Z(\"“])", paragraph) for paragraph in paragraphs(text))
    return [sentence for part in found for sentence in part if len(sentence.split()) > 2]


def is_folded(cell) -> bool:
    """Whether a reader has to open a cell to see its code."""
    return bool(FOLDED & tags(cell))


def tags(cell) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def label(cell) -> str:
    """What the button of a folded cell says; the theme's own words say nothing."""
    return cell.metadata.get("mystnb", {}).get("code_prompt_show", "")


@dataclass(frozen=True)
class Page:
    """A chapter or appendix page, measured."""

    chapter: Chapter

    @cached_property
    def cells(self) -> list:
        return self.chapter.notebook.cells

    @cached_property
    def code(self) -> list:
        """Code cells that a reader can see, opened or not."""
        return [cell for cell in self.cells if cell.cell_type == "code" and "remove-cell" not in tags(cell)]

    @cached_property
    def prose(self) -> str:
        return "\n\n".join(cell.source for cell in self.cells if cell.cell_type == "markdown")

    @property
    def headings(self) -> list[str]:
        return [line for line in self.prose.splitlines() if line.startswith("#")]

    @cached_property
    def first_screen(self) -> list[str]:
        """What stands before the first heading and the first fold: the bold sentence, then other paragraphs."""
        source = self.cells[0].source.partition("\n# ")[2].partition("\n")[2]
        return paragraphs(plain(re.split(r"^(?:## |:::+\{)", source, flags=re.MULTILINE)[0]))

    def first_screen_sizes(self) -> dict[str, int]:
        lead, *others = self.first_screen
        screen = " ".join(self.first_screen)
        return {
            "words of the title": words(self.chapter.title),
            "words of the bold sentence": len(lead.split()),
            "numbers in the bold sentence": len(_NUMBER.findall(lead)),
            "symbols in the bold sentence": lead.count("SYMBOL"),
            "paragraphs after it": len(others),
            "numbers before the first heading": len(_NUMBER.findall(screen)),
            "symbols before the first heading": screen.count("SYMBOL"),
        }

    def main_sizes(self) -> dict[str, float]:
        """What a main chapter keeps small; see `test_anatomy.MAIN`."""
        lines = [line for cell in self.code if not is_folded(cell) for line in cell.source.splitlines()]
        every = [line for cell in self.code for line in cell.source.splitlines()]
        lengths = [len(sentence.split()) for sentence in sentences(plain(self.prose))]
        read = plain(self.prose)
        with_hidden = [line for cell in self.cells if cell.cell_type == "code" for line in cell.source.splitlines()]
        return {
            "words": words(self.prose),
            "words of the longest sentence": max(lengths),
            "share of sentences over 35 words": sum(length > 35 for length in lengths) / len(lengths),
            "brackets in 100 words": 100 * read.count("(") / len(read.split()),
            "private words": len(PRIVATE_WORDS.findall(read)),
            "lines of code": len(every),
            "lines of code with hidden cells": sum(
                bool(line.strip()) and not line.lstrip().startswith("#") for line in with_hidden
            ),
            "share of code that is folded": 1 - len(lines) / len(every),
            "columns of a visible line": max(map(len, lines)),
            "figures": self.figures,
            "tables": len(re.findall(r"\bbook\.Table\(", "\n".join(every))),
            "kilobytes": -(-self.chapter.path.stat().st_size // 1024),
        }

    def appendix_sizes(self) -> dict[str, int]:
        """What an appendix page keeps small."""
        visible = [cell for cell in self.code if not is_folded(cell)]
        return {
            "visible cells": len(visible),
            "lines of the longest visible cell": max((len(cell.source.splitlines()) for cell in visible), default=0),
            "figures": self.figures,
            "folds without a label": sum(is_folded(cell) and not LABEL.fullmatch(label(cell)) for cell in self.code),
            "kilobytes": -(-self.chapter.path.stat().st_size // 1024),
        }

    @property
    def figures(self) -> int:
        return sum(any(_PICTURES & set(o.get("data", ())) for o in cell.get("outputs", ())) for cell in self.code)

    @property
    def solutions(self) -> int:
        """Exercises whose solution is folded and was executed."""
        at = first(self.cells, lambda cell: re.search(r"^#+ Exercises$", cell.source, re.MULTILINE))
        return sum(
            is_folded(cell) and label(cell).startswith("Solution") and bool(cell.get("outputs"))
            for cell in self.cells[at:]
        )


def first(cells: Iterable, test) -> int:
    """Place of the first cell that passes a test; the number of cells if none does."""
    cells = list(cells)
    return next((place for place, cell in enumerate(cells) if test(cell)), len(cells))
