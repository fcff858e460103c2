"""Every page begins so that an outsider finds a way in; main chapters are read in one sitting; appendix pages have
their parts."""

import re

import pytest
from anatomy import LABEL, PRIVATE_WORDS, Page, first, is_folded, label, paragraphs, plain, sentences, tags, words

from helpers import paths
from helpers.book import chapters

FIRST_SCREEN = {
    "words of the title": 11,
    "words of the bold sentence": 25,
    "numbers in the bold sentence": 1,
    "symbols in the bold sentence": 0,
    "paragraphs after it": 3,
    "numbers before the first heading": 6,
    "symbols before the first heading": 2,
}
# A quarter of an hour of reading, in sentences that are read once, with code that a reader could type.
MAIN = {
    "words": 2550,
    "words of the longest sentence": 45,
    "share of sentences over 35 words": 0.05,
    "brackets in 100 words": 2,
    "private words": 0,
    "lines of code": 150,
    "lines of code with hidden cells": 150,
    "share of code that is folded": 0.6,
    "columns of a visible line": 76,
    "figures": 5,
    "tables": 2,
    "kilobytes": 400,
}
APPENDIX = {
    "visible cells": 14,
    "lines of the longest visible cell": 12,
    "figures": 5,
    "folds without a label": 0,
    "kilobytes": 400,
}
# Pages that train networks.
SCALE_UP = {"app-dpsgd", "app-sad-dpsgd", "schedules", "ft-transformer", "app-skin-lesions", "skin-tuning"}
WON_OR_LOST = re.compile(r"\b(won|wins?|beats?|loses?|lost|best|highest)\b", re.IGNORECASE)
STATEMENT = re.compile(r"\{prf:(theorem|proposition|lemma|corollary|algorithm)\}")
TOOLS = ["claims", "findings", "how-to-rerun", "data-sets", "notation", "glossary", "bibliography"]


@pytest.fixture
def page(chapter):
    return Page(chapter)


def too_large(sizes, limits) -> dict:
    assert sizes.keys() == limits.keys()
    return {name: value for name, value in sizes.items() if value > limits[name]}


# --------------------------------------------------------------------------------------------- the first screen


def test_a_page_begins_with_topic_finding_and_one_bold_sentence(page):
    source, title = page.cells[0].source, page.chapter.title
    assert re.match(r"(?:```\{index\}.*\n```\n\n)?\([\w-]+\)=\n# ", source), "a label above the title"
    assert re.fullmatch(r"[^:]+: \S.*", title), f"topic first, finding after a colon, got {title!r}"
    assert re.match(r"\n\n\*\*[^*]+\*\*\n\n", source.partition(title)[2]), "a bold sentence under the title"
    assert len(sentences(page.first_screen[0])) == 1
    assert too_large(page.first_screen_sizes(), FIRST_SCREEN) == {}
    assert len(page.first_screen) >= 3, "two or three paragraphs that set the scene"


def test_nothing_private_stands_on_the_first_screen(page):
    assert PRIVATE_WORDS.findall(page.chapter.title + " ".join(page.first_screen)) == []


def test_nothing_else_comes_before_the_first_idea(page):
    """Parameters and set-up stay the first cells, for those who run the notebook, and are shown at the page's end."""
    code = [cell for cell in page.cells if cell.cell_type == "code"]
    assert tags(code[0]) == {"parameters", "remove-cell"}
    assert "book.provenance(" in code[1].source
    assert "remove-cell" in tags(code[1])
    assert all(item.meaning for item in page.chapter.parameters.values()), "a comment for every parameter"
    after = page.cells[0].source.partition(":::")[2]
    assert re.fullmatch(r"|\{dropdown\} In numbers\n(?:(?!:::).)+:::\s*", after, re.DOTALL), "one fold, and no more"
    assert "{about-this-page}" in page.cells[-1].source


@pytest.mark.parametrize("name", TOOLS)
def test_the_other_pages_begin_alike(name):
    source = (paths.BOOK / f"{name}.md").read_text()
    title, bold = re.match(r"\([\w-]+\)=\n# (.+)\n\n\*\*(.+)\*\*\n\n", source).groups()
    assert ": " in title
    assert len(bold.split()) <= 25


def test_every_main_chapter_is_on_the_front_page():
    linked = re.findall(r"^\d+\. \{ref\}`([\w-]+)`\. \S", (paths.BOOK / "index.md").read_text(), re.MULTILINE)
    main = [chapter.name for chapter in chapters.chapters() if not chapter.is_appendix]
    assert linked == main
    assert len(main) <= 20


# ------------------------------------------------------------------------------------------------ main chapters


def test_a_main_chapter_is_read_in_one_sitting(page):
    if page.chapter.is_appendix:
        return
    assert too_large(page.main_sizes(), MAIN) == {}
    assert page.solutions == 2
    assert "## Which statements were checked" in page.headings


def test_main_chapters_have_2400_words_on_average():
    main = [Page(chapter).main_sizes()["words"] for chapter in chapters.chapters() if not chapter.is_appendix]
    assert sum(main) <= 2400 * len(main)


# ---------------------------------------------------------------------------------------------- appendix pages


def test_an_appendix_page_has_its_parts(page):
    if not page.chapter.is_appendix:
        return
    toy = first(page.cells, lambda cell: "toy" in tags(cell))
    statement = first(page.cells, lambda cell: STATEMENT.search(cell.source))
    lines = page.prose.splitlines()
    takeaways = page.prose.partition("\n## Takeaways\n")[2].strip()
    first_takeaway = re.split(r"\n\n|\n- (?=[A-Z`$])", takeaways)[0]
    parts = {
        "a toy before the first statement": toy < min(statement, len(page.cells)),
        "what would change this": "## What would change this" in lines,
        "two to four exercises with executed, folded solutions": 2 <= page.solutions <= 4,
        "takeaways that begin with what won or lost": WON_OR_LOST.search(first_takeaway),
        "limits": any(line.startswith(("**Limits.**", "## Limits")) for line in lines),
    }
    missing = {name for name, there in parts.items() if not there}
    assert not missing, f"{page.chapter.name} lacks {sorted(missing)}"
    assert too_large(page.appendix_sizes(), APPENDIX) == {}


def test_an_appendix_page_belongs_to_a_main_chapter(chapter):
    main = {other.name for other in chapters.chapters() if not other.is_appendix}
    assert chapter.main in main
    assert (chapter.main == chapter.name) == (not chapter.is_appendix)


def test_a_chapter_that_trains_privately_scales_up_on_a_gpu(chapter):
    cells = [cell for cell in chapter.notebook.cells if "gpu" in tags(cell)]
    assert bool(cells) == (chapter.name in SCALE_UP)
    for cell in cells:
        assert "torch.cuda.is_available()" in cell.source
        # Stored outputs are those of a machine without one: a sentence says what would run.
        (output,) = cell.outputs
        assert re.fullmatch(r"(With a GPU, this cell would|skipped:) [^\n]+\n", output.text)


# ------------------------------------------------------------------------------------------ the measures measure


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


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A {term}`budget <epsilon>` of {glue:text}`key`.", "A budget of NUMBER."),
        ("With $k = 5$ by {cite:t}`one`, [here](there).", "With SYMBOL by Author, here."),
        ("One.\n\n:::{dropdown} More\nTwo.\n:::\n\nThree.", "One. Three."),
        ("One.\n\n```bash\ndpbook\n```\n", "One."),
    ],
)
def test_what_is_read_aloud(text, read):
    assert " ".join(plain(text).split()) == read


def test_sentences_and_paragraphs():
    text = "# Title\n\nThe first one is here. Then\nthe second is there.\n\n- an item of a list\n- Yes."
    assert len(paragraphs(text)) == 3
    assert [len(sentence.split()) for sentence in sentences(text)] == [5, 5, 6]


def test_a_fold_has_a_label_that_says_what_it_holds(chapter):
    for cell in chapter.notebook.cells:
        if cell.cell_type == "code" and is_folded(cell) and "remove-cell" not in tags(cell):
            assert LABEL.fullmatch(label(cell)), cell.source[:60]
