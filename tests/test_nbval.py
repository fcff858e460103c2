"""The regression test of the chapters can fail: nbval notices an altered table."""

import os
import re
import subprocess
import sys

import nbformat

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
TABLE = """\
import pandas as pd
from helpers import book
book.Table(pd.DataFrame({"auc": [0.5, 0.75]}), "Two numbers.", "two")
"""
EVIDENCE = "gap: computed {} agrees with 0 (off by {}, tolerance 1e-10) [sample of 60]; loss: at most {}, bound {}"
HERE = EVIDENCE.format("2.4e-14", "2.4e-14", "9.597", "10 (4 % unused) [sample of 6]")
# What another processor may have stored, and whether it is the same.
STORED = [
    (EVIDENCE.format("1e-15", "0", "9.621", "10 (3.8 % unused) [sample of 6]"), True),
    (EVIDENCE.format("1e-15", "0", "9.621", "11 (3.8 % unused) [sample of 6]"), False),
    (HERE.replace("agrees with", "differs from"), False),
    (HERE.replace("1e-10", "0.01"), False),
    (HERE.replace("sample of 6]", "sample of 5]"), False),
    (HERE.replace("[sample of 6]", "[proof]"), False),
]


def test_altered_tables_and_evidence_fail_and_nothing_else(tmp_path):
    """One notebook for all cases, since each takes a kernel and a pytest of its own: the last cells are altered."""
    checked = {"tags": ["nbval-check-output"]}
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Tiny"),
            nbformat.v4.new_code_cell("n: int = 1  # in [1, 2]: size", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(TABLE, metadata=checked),
            nbformat.v4.new_code_cell(TABLE, metadata=checked),
            *(nbformat.v4.new_code_cell(f"print({HERE!r})", metadata=checked) for _ in STORED),
        ]
    )
    file = tmp_path / "tiny.ipynb"
    nbformat.write(notebook, file)
    Chapter(file).execute()
    notebook = nbformat.read(file, 4)
    table = notebook.cells[3].outputs[0].data
    assert "0.75" in table["text/plain"]
    table["text/plain"] = table["text/plain"].replace("0.75", "0.76")
    for cell, (stored, _) in zip(notebook.cells[4:], STORED, strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=stored + "\n")]
    nbformat.write(notebook, file)
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *NBVAL, str(file)],
        cwd=file.parent,
        env=os.environ | {"PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = re.findall(r"Cell \d+ (PASSED|FAILED)", finished.stdout)
    same = [True, True, False, *(passes for _, passes in STORED)]
    assert outcomes == ["PASSED" if one else "FAILED" for one in same], finished.stdout
