"""Cards of data sets: what they say without a file is what the files hold."""

import dpbook_pages as extension
import pytest

from helpers import data
from helpers.book import chapters
from helpers.data import cards

HEAVY = ("kddcup99", "ham10000")  # half a gigabyte, and seconds to compare rows
NAMES = list(data.available().name)


def test_every_data_set_has_a_card_and_no_other():
    assert set(cards._CARDS) == set(NAMES)
    assert [card.name for card in cards.cards()] == NAMES


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.weekly if n in HEAVY else ()) for n in NAMES])
def test_a_card_says_what_the_file_holds(name):
    card, outline = cards.card(name), data.outline(name)
    try:
        loaded = data.load(name)
    except data.DatasetUnavailable as absent:
        assert card.n_repeated is None
        pytest.skip(f"{name}: {absent.reason}")
    assert (card.n, card.n_features, card.n_repeated) == (loaded.n, loaded.n_features, loaded.n_repeated)
    if card.is_counted:
        assert card.n_minority == loaded.counts.min()
    else:
        assert abs(card.n_minority - loaded.counts[1]) < 0.2 * card.n_minority
    assert (card.basis, card.licence) == (loaded.bounds_basis, loaded.licence)
    assert loaded.source.startswith(card.source)
    assert outline.n == 0
    assert (outline.feature_names, outline.class_names) == (loaded.feature_names, loaded.class_names)
    assert (outline.bounds == loaded.bounds).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_card_needs_no_file(name, tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.paths.data_folders", lambda: pytest.fail("a file was looked for"))
    card = cards.card(name)
    assert card.record
    assert card.minority
    assert (card.bounds == "none declared") == (data.outline(name).bounds is None)
    assert (card.bounds == "none declared") == (card.n_repeated is None)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("ecoli", "each 0 to 1"),
        ("electricity", "day 1 to 7, all others 0 to 1"),
        ("breast_cancer", "25 ranges between 0 and 4,300"),
        (
            "coil_2000",
            "1 to 41, 1 to 10 (2 features), 1 to 6 (2 features), 0 to 9 (59 features), 0 to 12 (21 features)",
        ),
    ],
)
def test_bounds_in_words(name, bounds):
    assert cards.card(name).bounds == bounds


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="did you mean 'mammography'"):
        data.outline("mamography")


def test_the_page_has_a_row_and_a_card_for_each_with_the_chapters_that_use_it():
    table = extension._card_table()
    assert table.count("* - {ref}`") == len(NAMES)
    assert "{ref}`isolet <data-isolet>`\n  - 7,797\n  - 617\n  - about 600 (7.7 %)\n  - not known" in table
    shown = extension._card(cards.card("mammography"), ["smote", "bagging"])
    for words in (
        "(data-mammography)=",
        "a spot in a mammogram",
        "3,335 records repeat the features of an earlier one",
        "260 (2.3 %) of the minority",
        "area -1 to 32, ",
        "Why public: assumption",
        "Zenodo record 61452",
        "{ref}`smote <smote>`, {ref}`bagging <bagging>`",
    ):
        assert words in shown, words
    assert "In: no chapter." in extension._card(cards.card("isolet"), [])


def test_each_chapter_names_known_sets_and_those_it_requires():
    for chapter in chapters.chapters():
        assert set(chapter.requires) <= set(extension.data_sets(chapter)) <= set(NAMES)
