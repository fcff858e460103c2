"""Parameters, freshness and stored outputs of the chapters."""

import re

import nbformat
import pytest

from helpers import paths
from helpers.book import chapters, record
from helpers.book.chapters import Chapter, ChapterError, RunError

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
        ("verbose", "2", "True or False"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path, name, text, allowed):
    with pytest.raises(ChapterError, match=allowed) as caught:
        make_chapter(tmp_path).parse([(name, text)])
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("n = 3  # in [1, 5]: no type", "the line must be"),
        ("import os", "the line must be"),
        ("n: int = 3", "needs a comment"),
        ("n: int = 9  # in [1, 5]: default out of range", "got 9"),
        ("n: int = 2 + 1  # in [1, 5]: derived", "malformed"),
        ("n: dict = {}  # unsupported type", "type must be one of"),
        ("n: int = 3  # in (1, 5]: an integer range with an open end", "square brackets"),
        ("n: int = 3  # in [1, 5) : an integer range with an open end", "the comment must be"),
        ("n: int = 3  # in [1, 5] size", "the comment must be 'in"),
        ("n: int = 3  # in[1, 5]: size", "the comment must be 'in"),
        ("n: int = 3  # between 1 and 5: size", "the comment must be 'in"),
        ("n: int = 3  # size", "the comment must be 'in"),
        ("n: int = 3  # in [1, five]: size", "could not convert"),
        ("n: int = 3  # in [5, 1]: size", "in order"),
        ("n: int = 3  # in [1]: size", "not enough values"),
        ("n: int = 3  # in {3, 4}: size", "must fit the type"),
        ("n: int = 3  # each in [1, 5]: size", "must fit the type"),
        ("n: list[int] = [3]  # in [1, 5]: sizes", "must fit the type"),
        ("n: list[int] = [3]  # sizes", "the comment must be 'each in"),
        ("n: str = 'a'  # in [a, b]: name", "must fit the type"),
        ("n: str = 'a'  # in a, b: name", "the comment must be 'in {a, b}"),
        ("n: bool = True  # in {True, False}: switch", "must fit the type"),
        ("n: int = 3  # in [1, 5]: size\n# requires: n > 4", "must fit together, n > 4, got n=3"),
        ("n: int = 3  # in [1, 5]: size\n# requires: m < n", "m < n cannot be checked: name 'm'"),
        ("n: int = 3  # in [1, 5]: size\n# requires: n <", "n < cannot be checked"),
        ("n: int = 3  # in [1, 5]: size\n#requires n < 4", "must start with '# requires:'"),
        ("n: int = 3  # in [1, 5]: size\n# requires: 1 / (n - 3) > 1", "cannot be checked"),
    ],
)
def test_a_parameters_cell_that_breaks_the_pattern_is_refused(tmp_path, line, words):
    with pytest.raises(ChapterError, match=re.escape(words)) as caught:
        read(make_chapter(tmp_path, parameters=line))
    assert "\n" not in str(caught.value)


def read(chapter):
    return chapter.parameters, chapter.constraints


def test_two_parameters_cells_are_refused(tmp_path):
    chapter = make_chapter(tmp_path)
    notebook = chapter.notebook
    notebook.cells[2].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, chapter.path)
    with pytest.raises(ChapterError, match="one cell tagged parameters, got 2"):
        Chapter(chapter.path).parameters  # noqa: B018


def test_values_that_do_not_fit_together_are_refused(tmp_path):
    lines = (
        "minority: int = 5  # in [1, 99]: records\nn: int = 50  # in [1, 99]: records\n"
        "sizes: list[int] = [4]  # each in [1, 99]: parts\n# requires: minority < n and max(sizes) <= n / 2\n"
    )
    chapter = make_chapter(tmp_path, parameters=lines)
    assert chapter.check({"minority": 49}) == {"minority": 49}
    with pytest.raises(ChapterError, match=r"got minority=50, n=50, sizes=\[4\]"):
        chapter.check({"minority": 50})
    with pytest.raises(ChapterError, match="must fit together"):
        chapter.check({"sizes": [3, 26]})


def test_a_name_given_twice_is_refused(tmp_path):
    with pytest.raises(ChapterError, match="n_seeds must be given once, got 2 values"):
        make_chapter(tmp_path).parse([("n_seeds", "3"), ("epsilon", "1"), ("n_seeds", "4")])


@pytest.mark.parametrize("name", ["n_seeds", "epsilon", "grid", "dataset", "verbose"])
@pytest.mark.parametrize(
    "text",
    [
        *("1e400", "10**5000", "9" * 400, "9" * 5000, "0x" + "f" * 9000, "-" * 900 + "1", "inf", "", "\0"),
        *("[" * 500 + "]" * 500, "(" * 100_000, "[" * 90 + "1" + "]" * 90, "__import__('os')"),
    ],
    ids=lambda text: f"{text[:6]!r} of {len(text)}",
)
def test_hostile_values_are_refused_in_one_line(tmp_path, name, text):
    with pytest.raises(ChapterError, match=name) as caught:
        make_chapter(tmp_path).parse([(name, text)])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"quick: {n_seeds: 3\n", "tiny.yaml"),
        (b"quick: {n_seeds: 3}\nquick: {n_seeds: 4}\n", "'quick' stands twice"),
        (b"quick: {n_seeds: 3, n_seeds: 4}\n", "'n_seeds' stands twice"),
        (b"quick: 3\n", "named sets"),
        (b"- quick\n", "named sets"),
        (b"1: {n_seeds: 3}\n", "named sets"),
        (b"quick: {n_seeds: 1}\n", "n_seeds must be an integer in"),
        (b"quick: {seeds: 3}\n", "did you mean n_seeds"),
        (b"quick: !!python/object:os.system {}\n", "tiny.yaml"),
        (b"\xff\xfe\xfa", "tiny.yaml"),
        (b"quick: " + b"[" * 5000, "tiny.yaml"),
    ],
)
def test_parameter_sets_that_cannot_be_read_are_refused(tmp_path, monkeypatch, content, words):
    monkeypatch.setattr(paths, "PARAMS", tmp_path)
    (tmp_path / "tiny.yaml").write_bytes(content)
    with pytest.raises(ChapterError, match=re.escape(words)) as caught:
        make_chapter(tmp_path).parameter_sets  # noqa: B018
    assert "\n" not in str(caught.value)


def test_cells_must_be_plain_python(tmp_path):
    with pytest.raises(ChapterError, match="'%matplotlib inline'"):
        make_chapter(tmp_path, code="%matplotlib inline").code  # noqa: B018


def test_execute_stores_outputs_and_an_edit_makes_them_stale(tmp_path):
    chapter = make_chapter(tmp_path)
    assert chapter.changes() == ["never executed"]
    chapter.execute()
    assert chapter.changes() == []
    assert chapter.notebook.cells[2].outputs[0].text == "10\n"
    assert len(chapter.notebook.cells) == 3
    edited = chapter.notebook
    edited.cells[2].source += "  # a word"
    nbformat.write(edited, chapter.path)
    assert chapter.changes() == []
    edited.cells[2].source += "\nprint(1)"
    nbformat.write(edited, chapter.path)
    assert chapter.changes() == ["code cells"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "lost its kernel"),
    ],
)
def test_a_failing_execution_leaves_the_notebook_as_it_was(tmp_path, code, words):
    chapter = make_chapter(tmp_path, code=code)
    before = chapter.path.read_bytes()
    with pytest.raises(RunError, match=words):
        chapter.execute()
    assert chapter.path.read_bytes() == before
    with pytest.raises(RunError, match=words):
        chapter.run({}, tmp_path / "run")


def test_a_chapter_edited_while_it_runs_keeps_its_old_outputs(tmp_path):
    chapter = make_chapter(tmp_path)
    code = (
        f"path = {str(chapter.path)!r}\ntext = open(path).read()\nopen(path, 'w').write(text.replace('n_seeds', 'm'))"
    )
    chapter = make_chapter(tmp_path, code=code)
    with pytest.raises(RunError, match=r"edited while it ran \(code cells\)"):
        chapter.execute()
    assert "executed" not in chapter.notebook.metadata.get("dpbook", {})


def test_what_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").touch()
    flag = tmp_path / "ran"
    chapter = make_chapter(tmp_path, code=f"open({str(flag)!r}, 'w')")
    with pytest.raises(ChapterError, match="must be a folder that can be written"):
        chapter.run({}, tmp_path / "file" / "run")
    assert not flag.exists()


def test_run_executes_a_copy(tmp_path):
    chapter = make_chapter(
        tmp_path,
        code="from helpers import book\nimport pandas as pd\n"
        "book.keep(pd.DataFrame({'n': [n_seeds]}), 'counts')\nprint(n_seeds)",
    )
    before = chapter.path.read_bytes()
    output = chapter.run({"n_seeds": 3}, tmp_path / "run")
    *_, last, noting = nbformat.read(output, 4).cells
    assert last.outputs[-1].text == "3\n"
    assert noting.metadata.tags == ["remove-cell"]  # not the chapter's, so not on its page
    assert record.noted_arithmetic(output.parent).keys() == {"blas", "threads", "flushes_denormals"}
    assert (tmp_path / "run" / "counts.csv").read_text() == "n\n3\n"
    assert chapter.path.read_bytes() == before


def test_unknown_chapter_is_refused():
    with pytest.raises(ChapterError, match="did you mean oversampling"):
        chapters.chapter("oversamplin")


# The chapters of the book


def test_outputs_are_fresh(chapter):
    assert chapter.changes() == [], f"stored outputs are old; run: dpbook refresh {chapter.name}"


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
    """Forty seconds are meant, on an idle machine; one that stored the outputs may be a third as fast."""
    assert chapter.record["seconds"] <= 120


def test_figures_have_alternative_text(chapter):
    for cell in chapter.notebook.cells:
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert len(cell.metadata["mystnb"]["image"]["alt"]) > 20


def test_cells_are_short_and_the_file_is_small(chapter):
    code = [cell.source for cell in chapter.notebook.cells if cell.cell_type == "code"]
    assert max(source.count("\n") + 1 for source in code) <= 30
    assert chapter.path.stat().st_size < 700_000
