"""The page that compares private classifiers on a table, for the eyes of those who hold it."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from checks.patients import patients
from helpers import data
from helpers.book import compare
from helpers.cli import main
from helpers.privacy import ADD_REMOVE, REPLACE_ONE
from helpers.study import comparison

TEXT = """
basis: made up
rows_per_person: 1
label: {column: complication, levels: ["<no>", "<yes>"], minority: "<yes>"}
columns:
  age: {kind: integer, low: 18, high: 91}
  hba1c: {kind: real, low: 2, high: 18, missing: true}
  admissions: {kind: integer, low: 0, high: 10}
"""
FILE = "a <b> & $c.csv"


def table(n=1500, share=0.1):
    found = patients(n, 0.9, share)
    return found.assign(complication="<" + found.complication + ">")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    table().to_csv(folder / FILE, index=False)
    (folder / FILE).with_suffix(".schema.yaml").write_text(TEXT)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def outcomes(folder):
    """Of three splits, by relation."""
    schema = data.Schema.parse(TEXT)
    records = data.load(folder / FILE, schema=schema)
    problems = [compare.Problem(records, schema, 2.0, 1e-6, relation) for relation in (REPLACE_ONE, ADD_REMOVE)]
    return {problem.neighbouring: (problem, list(compare.trials(problem, 3))) for problem in problems}


def run(*arguments, out, splits="3", file=FILE):
    return main(["compare", file, "--epsilon", "2", "--splits", splits, "--out", out, *arguments])


class Outline(HTMLParser):
    """Tags that were opened, references to elsewhere, and the cells of each table."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.references, self.tables, self.text = set(), [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_data(self, data):
        if self.get_starttag_text() in ("<td>", "<th>"):
            self.tables[-1][-1][-1] += data
        self.text += data


def test_the_page_says_what_is_best_and_how_far_from_without_privacy(here, folder, capsys):
    assert run(out="page.html") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "for the holder's eyes: nothing of this is private"
    for name, line in zip(compare.METHODS, shown[1:-4], strict=True):
        assert re.fullmatch(rf"{re.escape(name)}: \d+\.\d s", line)
    assert re.fullmatch(r"about \d+ s for the other 2 splits", shown[-4])
    assert shown[-3:] == ["split 2 of 3", "split 3 of 3", "page.html"]
    text = (folder / "page.html").read_text()
    page = Outline(text)
    body = page.text.split("}\n", 1)[-1].replace("\n", " ")
    # Before anything else; then the answer.
    assert body.index("nothing on this page is private") < body.index("Private classifiers for") < body.index("Of 4")
    for words in (
        f"Private classifiers for {FILE}",
        'Always saying "<no>" has 0.50, and private moments are clearly better.',
        "1,500 records",
        "epsilon 2, delta 1e-06, replace-one; 3 splits with 30 % held out, seeds 0 to 2; the fits took ",
        f"dpbook fit '{FILE}' --epsilon 2 --delta 1e-06 --out model",
        *compare.METHODS,
    ):
        assert words in body, words
    assert not page.tags & {"script", "yes", "no", "b", "link", "img", "iframe"}
    assert all(reference.startswith("#") for reference in page.references)
    assert text.count("<svg") == 2
    scores, gains = page.tables
    assert [row[0] for row in scores[1:]] == list(compare.METHODS)
    assert [row[0] for row in gains[1:]] == [name for name in compare.METHODS if name != compare.OURS]
    for cell in (cell for row in scores[1:-1] + gains[1:] for cell in row[1:] if "(" in cell):
        mean, low, high = map(float, re.findall(r"[-+]?\d+\.?\d*", cell))
        assert low <= mean <= high, cell
    assert run(out="again.html") == 0
    same = [re.sub(r"the fits took \d+ s", "", (folder / name).read_text()) for name in ("page.html", "again.html")]
    assert same[0] == same[1]


@pytest.mark.parametrize("relation", [REPLACE_ONE, ADD_REMOVE])
def test_every_method_has_every_split_and_the_ceiling_is_above_the_floor(outcomes, relation):
    problem, found = outcomes[relation]
    rows = pd.DataFrame([one.row for one in found])
    wanted = [(seed, name) for seed in range(3) for name in compare.METHODS]
    assert list(zip(rows.seed, rows.method, strict=True)) == wanted
    mean = rows.groupby("method").balanced_accuracy.mean()
    assert mean[compare.TRIVIAL] == 0.5
    assert mean[list(compare.NOT_PRIVATE)].min() > 0.65
    assert mean[compare.OURS] > 0.6
    # The rule that says nothing raises no alarm, and the others are counted where they say the rare class.
    alarms = rows.groupby("method").alarms.mean()
    assert alarms[compare.TRIVIAL] == 0
    hits = 1000 * rows.prevalence * rows.recall
    assert np.allclose(rows.precision * rows.alarms, hits)
    assert ("--neighbouring add-remove" in compare.render(problem, found)) == (relation is ADD_REMOVE)


@pytest.mark.parametrize("best", ["private moments", "private gradient descent"])
def test_the_answer_follows_from_the_numbers(outcomes, best):
    problem, found = outcomes[REPLACE_ONE]
    accuracy = dict.fromkeys(compare.METHODS, 0.6) | {best: 0.7, compare.TRIVIAL: 0.5}
    accuracy |= dict(zip(compare.NOT_PRIVATE, (0.8, 0.65), strict=True))
    made = [
        one._replace(row=one.row | {"balanced_accuracy": accuracy[one.row["method"]] + 0.01 * (one.row["seed"] - 1)})
        for one in found
    ]
    said = compare.render(problem, made).replace("\N{NO-BREAK SPACE}", " ")
    if best == compare.OURS:
        assert "is private moments, with a mean balanced accuracy of 0.70" in said
        assert re.search(r"Next comes private [\w() ]+, 0\.10 lower\. ", said)
        assert "0.10 above private moments" in said
    else:
        assert "is private gradient descent, with a mean balanced accuracy of 0.70" in said
        assert re.search(r"Private moments, which dpbook fit makes, have 0\.60 \([^)]*\), 0\.10 lower\. ", said)
        assert "0.20 above private moments" in said
    assert "so a fit has something to show:" in said
    assert "Best without privacy is logistic regression with 0.80" in said
    assert comparison.WORSE in said


def test_a_fit_is_advised_against_where_nothing_is_better_than_the_majority(outcomes):
    problem, found = outcomes[REPLACE_ONE]
    said = compare.render(problem, [one._replace(row=one.row | {"balanced_accuracy": 0.5}) for one in found])
    assert "Then a fit spends the privacy of these people for nothing" in said
    assert "has something to show" not in said


def test_a_person_is_on_one_side_and_what_is_known_of_persons_is_used(monkeypatch):
    records, seen, given = table(300, 0.2).assign(id=lambda frame: frame.index // 3), [], []

    def method(problem, train, X, seed):
        seen.append(train)
        return np.zeros(len(X)), 0.0

    class Model(compare.PrivateMomentClassifier):
        def fit(self, X, y, groups=None):
            given.append((self.rows_per_person, groups is not None))
            return super().fit(X, y, groups)

    monkeypatch.setattr(compare, "PrivateMomentClassifier", Model)
    for unit in ("person: id", "rows_per_person: 4", "rows_per_person: unknown"):
        schema = data.Schema.parse(TEXT.replace("rows_per_person: 1", unit))
        problem = compare.Problem(schema.dataset(records, "t"), schema, 1.0, 1e-6, REPLACE_ONE)
        monkeypatch.setattr(compare, "METHODS", {"one": method, compare.OURS: compare.METHODS[compare.OURS]})
        list(compare.trials(problem, 3))
    for train in seen[:3]:
        assert set(map(list(train.groups).count, set(train.groups))) == {3}
    assert given[::3] == [(1, True), (4, False), (1, False)]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("person: id", "protect persons, with all their rows; the other private classifiers rows"),
        ("rows_per_person: 4", "may be on both sides of a split"),
        ("rows_per_person: unknown", None),
    ],
)
def test_the_page_says_whom_the_rivals_do_not_protect(outcomes, unit, words):
    problem, found = outcomes[REPLACE_ONE]
    page = compare.render(problem._replace(schema=data.Schema.parse(TEXT.replace("rows_per_person: 1", unit))), found)
    assert words in page if words else "protect persons" not in page


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        (["--schema", "no.yaml"], None, "schema must be a text file"),
        (["--schema", "other.yaml"], TEXT.replace('"<yes>"]', '"<yes>", other]'), "schema must have two classes"),
        (["--schema", "other.yaml"], TEXT.replace("made up", "!private-confirm-or-replace made up"), "confirm"),
        (["--epsilon", "2"], None, "must be given once"),
        (["--eps", "2"], None, "unrecognized arguments"),
    ],
)
def test_what_can_be_refused_is_refused_before_the_table_is_read(here, capsys, monkeypatch, arguments, text, words):
    monkeypatch.setattr(data, "load", lambda *a, **k: pytest.fail("the table was read"))
    if text:
        with open("other.yaml", "w") as file:
            file.write(text)
    try:
        code = run(*arguments, out="refused.html")
    except SystemExit as stopped:
        code = stopped.code
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert re.search(words, told.err)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": "0"}, "epsilon must be"),
        ({"epsilon": "nan"}, "epsilon must be"),
        ({"delta": "0"}, "delta must be"),
        ({"delta": "1"}, "delta must be"),
        ({"splits": "2"}, r"--splits must be an integer in \[3, "),
        ({"out": FILE}, "--out must be a new file"),
        ({"out": "none/page.html"}, "--out must be in a folder"),
    ],
)
def test_values_are_refused_before_the_table_is_read(here, capsys, monkeypatch, options, words):
    monkeypatch.setattr(data, "load", lambda *a, **k: pytest.fail("the table was read"))
    values = {"epsilon": "1", "out": "refused.html"} | options
    assert main(["compare", FILE, *(text for name, value in values.items() for text in (f"--{name}", value))]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(rf"dpbook: .*{words}.*\n", told.err)


def test_tables_that_no_split_or_fit_can_use_are_refused(here, folder, capsys):
    (folder / "no-schema.csv").write_text("a\n1\n")
    assert run(out="refused.html", file="no-schema.csv") == 2
    assert "`dpbook schema no-schema.csv` makes one" in capsys.readouterr().err
    rare = table(200).assign(complication=["<yes>"] * 9 + ["<no>"] * 191, id=range(200))
    rare.to_csv(folder / "few.csv", index=False)
    (folder / "few.yaml").write_text(TEXT)
    assert run("--schema", "few.yaml", out="refused.html", file="few.csv") == 2
    assert "must have two classes of 10 records (or persons) or more, got [191, 9]" in capsys.readouterr().err
    # Twelve rare rows of one person are one person.
    rare.assign(complication=["<yes>"] * 12 + ["<no>"] * 188, id=[0] * 12 + [*range(12, 200)]).to_csv("few.csv")
    (folder / "few.yaml").write_text(TEXT.replace("rows_per_person: 1", "person: id"))
    assert run("--schema", "few.yaml", out="refused.html", file="few.csv") == 2
    assert "got [188, 1]" in capsys.readouterr().err
    assert run("--delta", "0.001", out="refused.html") == 2
    assert "delta must be less than one over the number of records, 1500" in capsys.readouterr().err
    assert not (folder / "refused.html").exists()


def test_an_interrupt_leaves_nothing(here, folder, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "METHODS", {"one": interrupted})
    assert run(out="stopped.html") == 130
    assert capsys.readouterr().err == "dpbook: interrupted\n"
    assert not list(folder.glob("stopped*"))
