"""The page that compares private classifiers on a table, for the eyes of those who hold it."""

import re

import numpy as np
import pytest

from checks.patients import patients
from helpers import data
from helpers.book import compare
from helpers.cli import main
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

TEXT = """
basis: made up
rows_per_person: 1
label: {column: complication, levels: [no, "<yes>"], minority: "<yes>"}
columns:
  age: {kind: integer, low: 18, high: 91}
  hba1c: {kind: real, low: 2, high: 18, missing: true}
  admissions: {kind: integer, low: 0, high: 10}
"""


def table(n=1500, share=0.1):
    found = patients(n, 0.9, share)
    return found.assign(complication=found.complication.replace("yes", "<yes>"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    table().to_csv(folder / "my.csv", index=False)
    (folder / "my.schema.yaml").write_text(TEXT)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def run(*arguments, out, splits="3"):
    return main(["compare", "my.csv", "--epsilon", "2", "--splits", splits, "--out", out, *arguments])


def test_the_page_says_what_is_best_and_how_far_from_without_privacy(here, folder, capsys):
    assert run(out="page.html") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "for the holder's eyes: nothing of this is private"
    assert re.fullmatch(r"one split took \d+\.\d s; about \d+ s for the others", shown[1])
    assert shown[2:] == ["split 2 of 3", "split 3 of 3", "page.html"]
    page = (folder / "page.html").read_text()
    for words in (
        "nothing on this page is private",
        "Of the private classifiers, ",
        "A rule that never looks at the records has 0.50",
        "recall of &lt;yes&gt;",
        "<svg",
        "1,500 records",
        "replace-one",
        *compare.METHODS,
    ):
        assert words in page, words
    assert "<script" not in page
    assert "<yes>" not in page
    assert run(out="again.html") == 0
    assert (folder / "again.html").read_text() == page


@pytest.mark.parametrize("relation", [REPLACE_ONE, ADD_REMOVE])
def test_every_method_has_every_split_and_the_ceiling_is_above_the_floor(here, relation):
    records = data.load("my.csv")
    problem = compare.Problem(records, data.Schema.read("my.schema.yaml").domain, 2.0, 1e-6, relation)
    found = list(compare.trials(problem, 3))
    assert [(one.row["seed"], one.row["method"]) for one in found] == [
        (k, m) for k in range(3) for m in compare.METHODS
    ]
    mean = {
        name: sum(one.row["balanced_accuracy"] for one in found if one.row["method"] == name) / 3
        for name in compare.METHODS
    }
    assert mean[compare.TRIVIAL] == 0.5
    assert max(mean[name] for name in compare.NOT_PRIVATE) > 0.7
    again = list(compare.trials(problem, 3))
    assert [one.row["auc"] for one in again] == [one.row["auc"] for one in found]


def test_rows_of_one_person_are_on_one_side_of_a_split(here, monkeypatch):
    records = table(300, 0.2).assign(id=lambda frame: frame.index // 3)
    schema = data.Schema.parse(TEXT.replace("rows_per_person: 1", "person: id"))
    seen = []

    def method(problem, train, X, seed):
        seen.append(train)
        return np.zeros(len(X)), 0.0

    monkeypatch.setattr(compare, "METHODS", {"one": method})
    list(compare.trials(compare.Problem(schema.dataset(records, "t"), schema.domain, 1.0, 1e-6, REPLACE_ONE), 3))
    for train in seen:
        assert set(map(list(train.groups).count, set(train.groups))) == {3}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schema", "no.yaml"], "schema must be a text file"),
        (["--schema", "several.yaml"], "must have two classes of 10 records or more"),
        (["--epsilon", "2"], "must be given once"),
    ],
)
def test_refusals(here, folder, capsys, arguments, words):
    (folder / "several.yaml").write_text(TEXT.replace('"<yes>"]', '"<yes>", other]'))
    capsys.readouterr()
    try:
        code = run(*arguments, out="refused.html")
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert re.search(words, capsys.readouterr().err)
    assert not (folder / "refused.html").exists()
    assert run(out="refused.html", splits="2") == 2
    assert "--splits must be an integer in [3, " in capsys.readouterr().err


@pytest.mark.parametrize(("epsilon", "delta"), [("0", "1e-6"), ("nan", "1e-6"), ("1", "0"), ("1", "1")])
def test_budgets_are_refused_before_the_table_is_read(here, folder, capsys, monkeypatch, epsilon, delta):
    monkeypatch.setattr(data, "load", lambda *a, **k: pytest.fail("the table was read"))
    assert main(["compare", "my.csv", "--epsilon", epsilon, "--delta", delta, "--out", "refused.html"]) == 2
    assert re.search("(epsilon|delta) must be", capsys.readouterr().err)
    assert main(["compare", "my.csv", "--epsilon", "1", "--out", "my.csv"]) == 2
