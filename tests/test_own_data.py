"""Tables of the reader's own in the place of a chapter's data sets."""

import json

import nbformat
import pandas as pd
import pytest

from helpers import book, paths
from helpers.book import chapters, own_data
from helpers.book.parameters import ChapterError, read_cell
from helpers.cli import main

SCHEMA = """
basis: an example
rows_per_person: 1
label: {column: ill, levels: [no, yes], minority: yes}
columns: {age: {kind: integer, low: 0, high: 99, missing: true}, ward: {kind: categorical, levels: [a, b, c]}}
"""
CELL = 'datasets: list[str] = ["wine"]  # each in {wine, digits, *.csv}: data\nname: str = "wine"  # in {wine}: a set'
SHOW = """
import pandas as pd
from helpers import book, data
loaded = [data.load(name) for name in datasets]
book.keep(pd.DataFrame({"name": datasets, "n": [d.n for d in loaded]}), f"sizes-{datasets[0]}")
"""
TRIALS = """
from helpers import book, data
from helpers.study import experiments
def trial(dataset):
    return {"n": data.load(dataset).n}
book.keep(experiments.run(trial, [{"dataset": name} for name in datasets], name="sizes", scope="trial"), "sizes")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with two tables and their schemas, one of them in a folder of its own."""
    here = tmp_path / "here"
    (here / "more").mkdir(parents=True)
    for file, n in (("my.csv", 40), ("more/other.csv", 60)):
        rows = {"age": ["31", "?"] * (n // 2), "ward": ["a", "b"] * (n // 2), "ill": ["no"] * (n - 5) + ["yes"] * 5}
        pd.DataFrame(rows).to_csv(here / file, index=False)
        (here / file).with_suffix(".schema.yaml").write_text(SCHEMA)
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def datasets():
    return read_cell("tiny", CELL)[0]


@pytest.fixture
def tiny(tmp_path, monkeypatch, request):
    """A chapter of its own."""
    file = tmp_path / "tiny.ipynb"
    cells = [
        nbformat.v4.new_markdown_cell("# Tiny"),
        nbformat.v4.new_code_cell(CELL, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(getattr(request, "param", SHOW)),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, file)
    monkeypatch.setattr(chapters, "chapters", lambda: [chapters.Chapter(file)])
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    return tmp_path / "runs" / "tiny"


def test_a_table_with_its_schema_stands_for_a_data_set(folder, datasets):
    assert datasets.parse('["my.csv", "wine"]') == ["my.csv", "wine"]
    assert datasets.check([str(folder / "more" / "other.csv")])


def test_a_table_is_found_in_the_data_folder_too(folder, datasets, monkeypatch, tmp_path):
    monkeypatch.setenv("DPBOOK_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    assert datasets.check(["my.csv"]) == ["my.csv"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no.csv", r"datasets must be a file that exists, got 'no\.csv'"),
        ("my.txt", r"datasets must be one of 'wine', 'digits', '\*\.csv', got 'my\.txt'"),
        ("*.csv", r"datasets must be a file that exists, got '\*\.csv'"),
        ("bare.csv", r"got 'bare\.schema\.yaml', not there: .dpbook schema bare\.csv. makes one"),
        ("marked.csv", r"got 1 entries with the mark"),
        ("three.csv", r"datasets must be a table with two classes, got 3 in 'three\.csv'"),
        ("my table.csv", "whose name is made of letters"),
    ],
)
def test_what_is_no_table_with_two_classes_is_refused(folder, datasets, value, words):
    for name, text in {
        "bare": None,
        "marked": SCHEMA.replace("high: 99", "high: !private-confirm-or-replace 99"),
        "three": SCHEMA.replace("[no, yes], minority: yes", "[no, yes, maybe]"),
        "my table": SCHEMA,
    }.items():
        (folder / f"{name}.csv").write_text("age,ward,ill\n")
        if text:
            (folder / f"{name}.schema.yaml").write_text(text)
    with pytest.raises(ChapterError, match=words):
        datasets.check([value])


def test_a_parameter_without_the_pattern_takes_no_table(folder):
    with pytest.raises(ChapterError, match=r"name must be one of 'wine', got 'my\.csv'"):
        read_cell("tiny", CELL)[1].check("my.csv")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("31", "twelve", r"column 'age' has 20 of 40 rows that are not a whole number or missing"),
        ("yes", "no", r"my\.csv must have two or more records of each class, got fewer"),
    ],
)
def test_rows_are_looked_at_before_anything_runs(folder, tiny, capsys, old, new, words):
    (folder / "my.csv").write_text((folder / "my.csv").read_text().replace(old, new))
    with pytest.raises(ValueError, match=words):
        own_data.load({"datasets": ["my.csv"]})
    assert main(["run", "tiny", "-p", "datasets", '["my.csv"]']) == 2
    assert "twelve" not in capsys.readouterr().err
    assert not tiny.exists()


def test_tables_of_one_name_are_refused(folder):
    (folder / "more" / "my.csv").write_text("")
    with pytest.raises(ValueError, match="must have different names"):
        own_data.load({"datasets": ["my.csv", "more/my.csv"]})


def test_a_run_knows_its_tables_by_their_bare_names(folder, tiny, capsys):
    given = ["more/other.csv", "my.csv"]
    assert main(["run", "tiny", "-p", "datasets", json.dumps(given)]) == 0
    [run] = tiny.iterdir()
    shown = capsys.readouterr().out.splitlines()
    assert shown == [str(run / "tiny.ipynb"), str(run / "sizes-other.csv.csv")]  # links are no tables of the run
    kept = pd.read_csv(run / "sizes-other.csv.csv")
    assert kept.values.tolist() == [["other.csv", 60], ["my.csv", 40]]
    assert (run / "other.csv").resolve() == (folder / "more" / "other.csv").resolve()
    assert json.loads((run / "parameters.json").read_text()) == {"datasets": given}


def test_what_a_chapter_keeps_never_writes_over_a_table(folder, monkeypatch):
    run = folder / "run"
    run.mkdir()
    assert own_data.link({"dataset": "my.csv", "n": 3}, run) == {"dataset": "my.csv", "n": 3}
    monkeypatch.setenv("DPBOOK_RUN_FOLDER", str(run))
    before = (folder / "my.csv").read_bytes()
    with pytest.raises(ValueError, match=r"name must not be that of the linked table 'my\.csv'"):
        book.keep(pd.DataFrame({"x": [1]}), "my")
    assert (folder / "my.csv").read_bytes() == before


def test_another_content_has_another_store_of_trials(folder):
    values = {"datasets": ["my.csv", "wine"]}
    first = own_data.digest(values)
    assert len(first) == 16
    assert own_data.digest({"datasets": ["wine"]}) == ""
    for file, old, new in (("my.csv", "31", "32"), ("my.schema.yaml", "99", "98")):
        (folder / file).write_text((folder / file).read_text().replace(old, new))
        assert own_data.digest(values) != first
        first = own_data.digest(values)


def test_results_that_nobody_else_can_have_are_not_recorded(folder, tiny, capsys):
    assert main(["record", "tiny", "-p", "datasets", '["my.csv"]']) == 2
    assert "dpbook record must have data that others have too, got my.csv" in capsys.readouterr().err
    assert not tiny.exists()


@pytest.mark.parametrize("tiny", [TRIALS], indirect=True, ids=["trials"])
def test_processes_find_a_table_and_its_trials_have_a_store_of_their_own(folder, tiny):
    assert main(["run", "tiny", "--jobs", "2", "-p", "datasets", '["my.csv", "more/other.csv"]']) == 0
    [sizes] = tiny.glob("*/sizes.csv")
    assert pd.read_csv(sizes)["n"].tolist() == [40, 60]
    [store] = tiny.glob("*.sqlite")
    assert store.stem == f"experiments-{own_data.digest({'datasets': ['my.csv', 'more/other.csv']})}"


COMPARING = (
    "app-bagging", "bagging-tables", "benchmark", "app-benchmark", "app-coordinate-descent", "app-dpsgd",
    "ft-transformer", "app-imbalance", "kernels", "paid-copies", "private-classifiers", "app-private-classifiers",
    "schedules", "smote-price", "synthetic-data", "app-synthetic-data", "synthetic-samples", "tuning", "weights-worth",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPARING)
def test_every_chapter_that_compares_methods_takes_tables(folder, name):
    parameters = chapters.chapter(name).parameters
    taking = [item for item in parameters.values() if "*.csv" in item.allowed]
    assert taking
    for item in taking:
        item.check(["my.csv"] if item.type == "list[str]" else "my.csv")
