"""The regression test of the chapters can fail: nbval notices an altered table."""

import os
import subprocess
import sys

import nbformat
import pytest

from helpers import paths
from helpers.book.chapters import Chapter

ROUNDING = str(paths.ROOT / "tests" / "nbval.cfg")
NBVAL = [
    "-p",
    "nbval.plugin",
    "--nbval-lax",
    "--nbval-current-env",
    "--nbval-sanitize-with",
    ROUNDING,
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
]
CODE = """\
import pandas as pd
from helpers import book
book.Table(pd.DataFrame({"auc": [0.5, 0.75]}), "Two numbers.", "two")
"""


@pytest.fixture
def executed(tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Tiny"),
            nbformat.v4.new_code_cell("n: int = 1  # in [1, 2]: size", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(CODE, metadata={"tags": ["nbval-check-output"]}),
        ]
    )
    file = tmp_path / "tiny.ipynb"
    nbformat.write(notebook, file)
    Chapter(file).execute()
    return file


def run_nbval(file):
    return subprocess.run(
        [sys.executable, "-m", "pytest", *NBVAL, str(file)],
        cwd=file.parent,
        env=os.environ | {"PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_unchanged_table_passes(executed):
    finished = run_nbval(executed)
    assert finished.returncode == 0, finished.stdout
    assert "2 passed" in finished.stdout


def test_an_altered_table_fails(executed):
    text = executed.read_text()
    assert "0.75" in text
    notebook = nbformat.read(executed, 4)
    output = notebook.cells[2].outputs[0].data
    output["text/plain"] = output["text/plain"].replace("0.75", "0.76")
    nbformat.write(notebook, executed)
    finished = run_nbval(executed)
    assert finished.returncode == 1
    assert "1 failed" in finished.stdout


EVIDENCE = "gap: computed {} agrees with 0 (off by {}, tolerance 1e-10) [sample of 60]; loss: at most {}, bound {}"
HERE = EVIDENCE.format("2.4e-14", "2.4e-14", "9.597", "10 (4 % unused) [sample of 6]")


@pytest.mark.parametrize(
    ("stored", "passes"),
    [
        (EVIDENCE.format("1e-15", "0", "9.621", "10 (3.8 % unused) [sample of 6]"), True),
        (EVIDENCE.format("1e-15", "0", "9.621", "11 (3.8 % unused) [sample of 6]"), False),
        (HERE.replace("agrees with", "differs from"), False),
        (HERE.replace("1e-10", "0.01"), False),
        (HERE.replace("sample of 6]", "sample of 5]"), False),
        (HERE.replace("[sample of 6]", "[proof]"), False),
    ],
)
def test_rounding_of_another_processor_passes_and_nothing_else(executed, stored, passes):
    notebook = nbformat.read(executed, 4)
    notebook.cells[2].source = f"print({HERE!r})"
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", name="stdout", text=stored + "\n")]
    nbformat.write(notebook, executed)
    finished = run_nbval(executed)
    assert (finished.returncode == 0) == passes, finished.stdout
