"""Cards of data sets: what they say without a file is what the files hold."""

import shutil

import dpbook_pages as extension
import numpy as np
import pytest

from helpers import data, paths, sources
from helpers.book import chapters, freshness
from helpers.data import catalogue, sets
from helpers.data.schema import Schema

HEAVY = ("kddcup99", "ham10000")  # half a gigabyte, and seconds to compare rows
NAMES = list(data.available().name)


def test_every_data_set_has_a_loader_and_a_file_of_its_own():
    assert NAMES == list(sets.NAMES) == list(catalogue._LOADERS)
    assert {sets.file(name).name for name in NAMES} == {file.name for file in sets.file("wine").parent.glob("*.yaml")}
    allowed = {"minority", "counts", "repeated", "where", "files", "header", "rebuilt"}
    for name in NAMES:
        schema = sets.card(name).schema
        assert set(schema.facts) <= allowed, name
        assert schema.record
        assert schema.source
        assert schema.licence
        assert len(schema.basis) > 20


def test_asking_for_one_card_reads_no_other_file(monkeypatch):
    read, seen = Schema.read, []
    monkeypatch.setattr(sets.Schema, "read", lambda file: seen.append(file.name) or read(file))
    sets.card.cache_clear()
    data.load("gaussian_mixture")
    data.load("wine")
    assert seen == ["gaussian_mixture.yaml", "wine.yaml"]


def test_an_edited_card_makes_old_what_uses_its_set_and_nothing_else(tmp_path, monkeypatch):
    for room in ("helpers", "checks"):
        shutil.copytree(paths.ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    head = "from helpers import data\n"
    pieces = {
        "named": head + "data.load('wine')",
        "other": head + "data.load('ecoli')",
        "read": head + "data.available()",
        "none": head + "data.split",
        "through": "from checks import benchmark\nbenchmark.DATASETS\nfrom helpers import data\ndata.load",
    }

    def parts(piece, **options):
        return sources.parts([pieces[piece]], **options)

    known = {piece: parts(piece, cards_named_in=()) for piece in pieces}
    assert "helpers.data.sets: ecoli.yaml" in known["through"]
    all_known = {piece: parts(piece) for piece in pieces}
    card = tmp_path / "helpers/data/sets/wine.yaml"
    card.write_text(card.read_text().replace("high: 15", "high: 16"))
    changed = {piece for piece in pieces if parts(piece, cards_named_in=()) != known[piece]}
    assert changed == {"named", "read"}
    # Where names of sets may come from elsewhere, every card counts.
    assert {piece for piece in pieces if parts(piece) != all_known[piece]} == set(pieces) - {"none"}


def test_each_chapter_depends_on_the_cards_of_the_sets_that_it_requires():
    for chapter in chapters.chapters():
        parts = freshness.of_outputs(chapter.code)
        assert {f"helpers.data.sets: {name}.yaml" for name in chapter.requires} <= set(parts), chapter.name


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.weekly if n in HEAVY else ()) for n in NAMES])
def test_a_card_says_what_the_file_holds(name):
    card = sets.card(name)
    schema = card.schema
    loaded = data.load(name)
    assert (card.n, card.n_features, card.n_repeated) == (loaded.n, loaded.n_features, loaded.n_repeated)
    assert card.counts == tuple(loaded.counts)
    assert card.ratio == loaded.imbalance_ratio
    assert schema.basis == loaded.bounds_basis
    assert (schema.feature_names, schema.class_names) == (loaded.feature_names, loaded.class_names)
    assert (schema.bounds == loaded.bounds).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_card_needs_no_file(name, tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.paths.data_folders", lambda: pytest.fail("a file was looked for"))
    card = sets.card(name)
    assert card.minority
    assert np.isfinite(card.schema.bounds).all()


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
    assert extension._bounds(sets.card(name).schema) == bounds


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="did you mean 'mammography'"):
        sets.card("mamography")


def test_the_page_has_a_row_and_a_card_for_each_with_the_chapters_that_use_it():
    table = extension.DataTable.text(None)
    assert table.count("* - {ref}`") == len(NAMES)
    assert "{ref}`wine <data-wine>`\n  - 143\n  - 13\n  - 13 (9.1 %)\n  - 0" in table
    shown = extension._card(sets.card("mammography"), ["smote", "bagging"])
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
    assert "In: no chapter." in extension._card(sets.card("wine"), [])


def test_each_chapter_names_known_sets_and_those_it_requires():
    for chapter in chapters.chapters():
        assert set(chapter.requires) <= set(extension.data_sets(chapter)) <= set(NAMES)
