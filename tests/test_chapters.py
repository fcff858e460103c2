"""Parameters, freshness and stored outputs of the chapters."""

import nbformat
import pytest

from helpers import paths
from helpers.book import chapters
from helpers.book.chapters import Chapter, ChapterError

PARAMETERS = """\
n_seeds: int = 10  # in [2, 200]: random splits
epsilon: float = 1.0  # in (0, 50]: privacy budget
grid: list[float] = [0.1, 1.0]  # each in (0, 50]: budgets compared
dataset: str = "mammography"  # in {mammography, abalone}: benchmark set
verbose: bool = False  # print more
"""


def make_chapter(folder, *, parameters=PARAMETERS, code="print(n_seeds)", text="# A title"):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell(text),
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(code),
    ]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    file = folder / "tiny.ipynb"
    nbformat.write(notebook, file)
    return Chapter(file)


def test_parameters_are_read_from_the_notebook(tmp_path):
    parameters = make_chapter(tmp_path).parameters
    assert list(parameters) == ["n_seeds", "epsilon", "grid", "dataset", "verbose"]
    assert parameters["n_seeds"].default == 10
    assert parameters["grid"].type == "list[float]"
    assert parameters["grid"].allowed == "each in (0, 50]"
    assert parameters["dataset"].meaning == "benchmark set"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n_seeds", "20", 20),
        ("epsilon", "1", 1.0),
        ("epsilon", "1e-3", 0.001),
        ("grid", "[0.5, 2]", [0.5, 2.0]),
        ("dataset", "abalone", "abalone"),
        ("verbose", "true", True),
    ],
)
def test_values_typed_at_the_command_line(tmp_path, name, text, value):
    assert make_chapter(tmp_path).parse([(name, text)]) == {name: value}


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("n_seed", "20", "did you mean n_seeds"),
        ("n_seeds", "1", r"\[2, 200\]"),
        ("n_seeds", "2.5", "an integer"),
        ("n_seeds", "many", "an integer"),
        ("epsilon", "0", r"\(0, 50"),
        ("epsilon", "nan", "a finite number"),
        ("grid", "[]", "a non-empty list"),
        ("grid", "[1, -1]", r"\(0, 50"),
        ("grid", "1", "a non-empty list"),
        ("dataset", "mamography", "mammography"),
        ("verbose", "2", "True, False"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path, name, text, allowed):
    with pytest.raises(ChapterError, match=allowed) as caught:
        make_chapter(tmp_path).parse([(name, text)])
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "n = 3  # in [1, 5]: no type",
        "n: int = 3",
        "n: int = 9  # in [1, 5]: default out of range",
        "n: dict = {}  # unsupported type",
        "n: int = 3  # in (1, 5]: an integer range with an open end",
    ],
)
def test_a_parameters_cell_that_breaks_the_pattern_is_refused(tmp_path, line):
    with pytest.raises(ChapterError):
        make_chapter(tmp_path, parameters=line).parameters  # noqa: B018


def test_fingerprint_follows_code_helpers_and_pins_only(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "REFERENCE", tmp_path / "reference")
    package = tmp_path / "helpers"
    package.mkdir()
    (package / "used.py").write_text("from helpers import deeper\n")
    (package / "deeper.py").write_text("x = 1\n")
    (package / "unused.py").write_text("y = 1\n")
    (tmp_path / "constraints.txt").write_text("numpy==1\n")
    chapter = make_chapter(tmp_path, code="from helpers import used")
    before = chapter.fingerprint()

    (package / "unused.py").write_text("y = 2\n")
    assert make_chapter(tmp_path, code="from helpers import used", text="# Other prose").fingerprint() == before
    assert make_chapter(tmp_path, code="from helpers import used\n1").fingerprint() != before
    (package / "deeper.py").write_text("x = 2\n")
    after_helper = chapter.fingerprint()
    assert after_helper != before
    (tmp_path / "constraints.txt").write_text("numpy==2\n")
    assert make_chapter(tmp_path, code="from helpers import used").fingerprint() not in (before, after_helper)


def test_execute_stores_outputs_and_an_edit_makes_them_stale(tmp_path):
    chapter = make_chapter(tmp_path)
    assert not chapter.is_fresh()
    chapter.execute()
    assert chapter.is_fresh()
    assert chapter.notebook.cells[2].outputs[0].text == "10\n"
    assert len(chapter.notebook.cells) == 3
    edited = chapter.notebook
    edited.cells[2].source += " # edited"
    nbformat.write(edited, chapter.path)
    assert not chapter.is_fresh()


def test_a_failing_execution_leaves_the_notebook_as_it_was(tmp_path):
    chapter = make_chapter(tmp_path, code="raise RuntimeError('no')")
    before = chapter.path.read_bytes()
    with pytest.raises(Exception, match="RuntimeError"):
        chapter.execute()
    assert chapter.path.read_bytes() == before


def test_run_executes_a_copy(tmp_path):
    chapter = make_chapter(
        tmp_path,
        code="from helpers import book\nimport pandas as pd\n"
        "book.keep(pd.DataFrame({'n': [n_seeds]}), 'counts')\nprint(n_seeds)",
    )
    before = chapter.path.read_bytes()
    output = chapter.run({"n_seeds": 3}, tmp_path / "run")
    assert nbformat.read(output, 4).cells[-1].outputs[-1].text == "3\n"
    assert (tmp_path / "run" / "counts.csv").read_text() == "n\n3\n"
    assert chapter.path.read_bytes() == before


def test_unknown_chapter_is_refused():
    with pytest.raises(ChapterError, match="did you mean oversampling"):
        chapters.chapter("oversamplin")


# The chapters of the book


def test_outputs_are_fresh(chapter):
    assert chapter.is_fresh(), f"stored outputs are older than the code; run: dpbook refresh {chapter.name}"


def test_every_code_cell_was_executed_in_order_without_complaint(chapter):
    assert unexecuted_or_noisy(chapter.notebook) == []


def test_a_chapter_without_outputs_is_noticed(chapter):
    stripped = chapter.notebook
    for cell in stripped.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    assert unexecuted_or_noisy(stripped) != []


def unexecuted_or_noisy(notebook) -> list[str]:
    """What is wrong with a notebook's stored outputs; nbval compares nothing where none are stored."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    problems = [
        f"cell {place} has execution count {cell.execution_count}"
        for place, cell in enumerate(code, start=1)
        if cell.execution_count != place
    ]
    if not any("nbval-check-output" in cell.metadata.get("tags", []) and cell.outputs for cell in code):
        problems.append("no stored output is compared")
    for place, cell in enumerate(code, start=1):
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                problems.append(f"cell {place} stores an error or stderr")
    return problems


def test_parameter_sets(chapter):
    sets = chapter.parameter_sets
    assert {"quick", "full"} <= set(sets)
    assert len(sets) >= 3
    assert sets["quick"] == {name: item.default for name, item in chapter.parameters.items()}


def test_a_default_run_stays_within_its_time(chapter):
    assert chapter.record["seconds"] <= 60


def test_figures_have_alternative_text(chapter):
    for cell in chapter.notebook.cells:
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert len(cell.metadata["mystnb"]["image"]["alt"]) > 20


def test_cells_are_short_and_the_file_is_small(chapter):
    code = [cell.source for cell in chapter.notebook.cells if cell.cell_type == "code"]
    assert max(source.count("\n") + 1 for source in code) <= 30
    assert chapter.path.stat().st_size < 700_000
