"""The command `dpbook`: runs with other parameters, and refusals before anything runs."""

import hashlib
import json

import nbformat
import pandas as pd
import pytest

from helpers import data, paths
from helpers.book import chapters
from helpers.cli import main

RUNS = {
    "preliminaries": [
        {"n_draws": "20000"},
        {"epsilon": "0.5", "delta": "1e-6", "n_draws": "20000"},
        {"dataset": "abalone", "n_seeds": "3", "n_draws": "20000"},
    ],
    "oversampling": [
        {"n_seeds": "2"},
        {"dataset": "abalone", "n_seeds": "2", "epsilons": "[1.0]"},
        {"multiplicity": "3", "n_seeds": "2", "epsilons": "[0.5, 2.0]"},
    ],
    "smote": [
        {"n_seeds": "2", "n_audit": "200", "sizes": "[500]", "ratios": "[4]"},
        {"dataset": "abalone", "dimension": "3", "neighbours": "1", "n_seeds": "2", "n_audit": "200", "sizes": "[500]"},
        {"attack_epsilon": "1.0", "n_minority": "300", "n_audit": "300", "n_seeds": "2", "epsilons": "[2.0]"},
    ],
    "known-population": [
        {"n_draws": "2000", "ratios": "[1, 16]", "n_population": "200000"},
        {"separation": "1.0", "ratio": "50.0", "n_draws": "2000", "n_population": "500000"},
        {"sizes": "[520]", "epsilons": "[0.5, 5.0]", "beta": "0.5", "delta": "1e-4", "n_draws": "2000"},
    ],
    "bagging": [
        {"n_seeds": "2", "sizes": "[500]", "learners": "[3]", "n_audit": "1000"},
        {"dataset": "abalone", "n_seeds": "2", "sizes": "[500]", "ratios": "[9.0]", "learners": "[2]"},
        {"weights": "none", "epsilon": "2.0", "n_seeds": "2", "sizes": "[200]", "ratios": "[8.0]", "learners": "[1]"},
    ],
    "private-erm": [
        {"n_audit": "500", "n_adult": "1000", "n_kdd": "1000", "part_sizes": "[500]"},
        {"epsilon": "0.3", "n_audit": "500", "n_folds": "4", "n_adult": "1500", "part_sizes": "[500]"},
        {"n_noise": "2", "n_audit": "500", "n_adult": "1000", "n_kdd": "1000", "part_sizes": "[500]"},
    ],
    "weighted-erm": [
        {"n_seeds": "2", "n_fuzz": "60", "n_restarts": "2"},
        {
            "datasets": '["ecoli"]',
            "epsilons": "[0.5]",
            "regularizations": "[0.01, 0.1]",
            "n_seeds": "2",
            "n_fuzz": "40",
        },
        {"datasets": '["yeast_me2", "abalone_19"]', "epsilons": "[5.0]", "n_seeds": "2", "n_fuzz": "50"},
    ],
    "kernels-tuning": [
        {"n_seeds": "2", "n_draws": "4", "candidates": "[2]"},
        {"datasets": '["mammography"]', "epsilons": "[2.0]", "frequencies": "[5]", "gammas": "[1, 16]", "n_seeds": "2"},
        {"tuned": '["satimage"]', "candidates": "[2, 4]", "frequencies": "[1]", "n_seeds": "2", "n_draws": "2"},
    ],
}


def arguments(values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("-p", name, value)]


def skip_without(*names: str) -> None:
    for name in names:
        try:
            data.load(name)
        except data.DatasetUnavailable as error:
            pytest.skip(f"{name}: {error}")


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


def test_every_chapter_is_run_here():
    assert set(RUNS) == {chapter.name for chapter in chapters.chapters()}
    assert all(len(sets) == 3 for sets in RUNS.values())


@pytest.mark.parametrize(("name", "values"), [(name, values) for name, sets in RUNS.items() for values in sets])
def test_a_chapter_runs_with_other_parameters(name, values, runs, capsys):
    chapter = chapters.chapter(name)
    skip_without(*chapter.requires, *filter(None, [values.get("dataset")]))
    before = hashlib.sha256(chapter.path.read_bytes()).digest()
    assert main(["run", name, *arguments(values)]) == 0
    [folder] = (runs / name).iterdir()
    expected = chapter.parse(list(values.items()))
    assert json.loads((folder / "parameters.json").read_text()) == expected
    executed = nbformat.read(folder / f"{name}.ipynb", 4)
    assert executed.metadata.papermill.parameters == expected
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    assert hashlib.sha256(chapter.path.read_bytes()).digest() == before
    assert str(folder / f"{name}.ipynb") in capsys.readouterr().out


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("wrong", ["unknown name", "wrong type", "out of range", "unknown set", "empty list or text"])
def test_wrong_input_is_refused_with_exit_code_2(name, wrong, runs, capsys):
    parameters = chapters.chapter(name).parameters
    number = next(item for item in parameters.values() if item.type == "int")
    last = next((item for item in parameters.values() if item.type.startswith("list")), number)
    given, needle = {
        "unknown name": (["-p", "no_such_parameter", "1"], "no_such_parameter"),
        "wrong type": (["-p", number.name, "many"], number.name),
        "out of range": (["-p", number.name, "-1"], number.name),
        "unknown set": (["--set", "huge"], "huge"),
        "empty list or text": (["-p", last.name, "[]"], last.name),
    }[wrong]
    assert main(["run", name, *given]) == 2
    shown = capsys.readouterr().err
    assert needle in shown
    assert "must be" in shown
    assert not runs.exists()


def test_unknown_chapter(capsys):
    assert main(["run", "smoke"]) == 2
    assert "chapter must be one of" in capsys.readouterr().err


def test_unknown_command():
    with pytest.raises(SystemExit) as stopped:
        main(["frobnicate"])
    assert stopped.value.code == 2


def test_lists(capsys):
    assert main(["chapters"]) == 0
    assert "oversampling" in capsys.readouterr().out
    assert main(["params", "oversampling"]) == 0
    assert "n_seeds: int" in capsys.readouterr().out
    assert main(["data"]) == 0
    assert "mammography" in capsys.readouterr().out
    assert main(["status"]) == 0
    assert "oversampling" in capsys.readouterr().out


def test_a_failing_cell_is_reported_and_what_ran_is_kept(tmp_path, runs, monkeypatch, capsys):
    broken = chapters.chapter("oversampling").notebook
    broken.cells = [
        *broken.cells[:1],
        *[cell for cell in broken.cells if "parameters" in cell.metadata.get("tags", [])],
    ]
    broken.cells.append(nbformat.v4.new_code_cell("raise ValueError('n_seeds is unlucky')"))
    file = tmp_path / "oversampling.ipynb"
    nbformat.write(broken, file)
    monkeypatch.setattr(chapters, "chapters", lambda: [chapters.Chapter(file)])
    assert main(["run", "oversampling"]) == 1
    assert "n_seeds is unlucky" in capsys.readouterr().err
    assert len(list(runs.glob("oversampling/*/oversampling.ipynb"))) == 1


def test_record_keeps_tables_with_their_provenance(tmp_path, monkeypatch, capsys):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Tiny"),
            nbformat.v4.new_code_cell("n: int = 1  # in [1, 9]: size", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(
                "import pandas as pd\nfrom helpers import book\nbook.keep(pd.DataFrame({'n': [n]}), 'tiny')"
            ),
        ]
    )
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    file = tmp_path / "tiny.ipynb"
    nbformat.write(notebook, file)
    monkeypatch.setattr(chapters, "chapters", lambda: [chapters.Chapter(file)])
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    assert main(["record", "tiny", "-p", "n", "7"]) == 0
    assert pd.read_csv(tmp_path / "results" / "tiny.csv")["n"].tolist() == [7]
    record = json.loads((tmp_path / "results" / "tiny.json").read_text())
    assert record["parameters"] == {"n": 7}
    assert record["fingerprint"] == chapters.Chapter(file).fingerprint()
    assert main(["status"]) == 0
    assert "recorded" in capsys.readouterr().out
