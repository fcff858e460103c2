"""Tables, provenance and the comparison with printed numbers."""

import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest

from helpers import book, paths


def test_table_rounds_on_the_page_and_keeps_precision_in_the_download():
    table = book.Table(pd.DataFrame({"method": ["a"], "auc": [0.123456789], "n": [12345]}), "A caption.", "aucs")
    assert "0.123" in repr(table)
    assert "0.1234" not in repr(table)
    assert "12345" in repr(table)
    data = re.search(r"base64,([A-Za-z0-9+/=]+)", table._repr_html_())[1]
    downloaded = pd.read_csv(io.BytesIO(base64.b64decode(data)))
    assert downloaded["auc"][0] == pytest.approx(0.123456789, abs=1e-12)


def test_table_refuses_more_than_eight_columns():
    with pytest.raises(ValueError, match="at most 8 columns, got 9"):
        book.Table(pd.DataFrame(np.zeros((1, 9))), "Wide.", "wide")


def test_table_escapes_its_content():
    shown = book.Table(pd.DataFrame({"x": ["<script>"]}), "a < b", "t")._repr_html_()
    assert "<script>" not in shown
    assert "a &lt; b" in shown


def test_reference_table_keeps_the_printed_text_and_parses_numbers():
    table = book.reference_table("dpci_table11_datasets")
    row = table[(table.row_label == "mammography") & (table.metric == "size n")].iloc[0]
    assert row["mean"] == "11,183"
    assert row["mean_value"] == 11183


def test_unknown_reference_table():
    with pytest.raises(ValueError, match="file must be one of"):
        book.reference_table("table99")


def test_paper_vs_ours_keeps_every_printed_row():
    printed = pd.DataFrame({"row": ["a", "b", "c"], "mean": ["0.50", "0.70", "x"], "mean_value": [0.5, 0.7, np.nan]})
    ours = pd.DataFrame({"row": ["a", "b"], "ours": [0.55, 0.9], "low": [0.5, 0.85], "high": [0.6, 0.95]})
    merged = book.paper_vs_ours(printed, ours, on=["row"])
    assert list(merged["printed"]) == ["0.50", "0.70", "x"]
    assert merged["difference"].tolist()[:2] == pytest.approx([0.05, 0.2])
    assert merged["inside"].tolist() == [True, False, False]
    assert np.isnan(merged["ours"][2])
    assert book.paper_vs_ours(printed, ours, on=["row"], rounding=0.2)["inside"].tolist() == [True, True, False]


def test_paper_vs_ours_refuses_ambiguous_keys():
    printed = pd.DataFrame({"row": ["a", "a"], "mean": ["1", "2"], "mean_value": [1.0, 2.0]})
    with pytest.raises(pd.errors.MergeError):
        book.paper_vs_ours(printed, pd.DataFrame({"row": ["a"], "ours": [1.0]}), on=["row"])


def test_provenance_names_parameters_and_versions():
    line = repr(book.provenance("oversampling", n_seeds=10))
    assert line.startswith("oversampling(n_seeds=10) with Python 3.")
    assert "scikit-learn" in line


def test_keep_writes_only_into_a_run(tmp_path, monkeypatch):
    frame = pd.DataFrame({"x": [1 / 3]})
    monkeypatch.delenv("DPBOOK_RUN_FOLDER", raising=False)
    book.keep(frame, "t")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("DPBOOK_RUN_FOLDER", str(tmp_path))
    book.keep(frame, "t")
    assert pd.read_csv(tmp_path / "t.csv")["x"][0] == 1 / 3


def test_recorded_results_carry_their_label(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    (tmp_path / "t.csv").write_text("x\n1\n")
    record = {"date": "2026-01-01", "parameters": {"n_seeds": 100}, "seconds": 7, "cores": 2}
    (tmp_path / "t.json").write_text(json.dumps(record))
    frame, label = book.recorded("t")
    assert frame["x"].tolist() == [1]
    assert label == "recorded on 2026-01-01 with n_seeds=100 (7 s on 2 cores)"
    with pytest.raises(ValueError, match="name must be one of 't'"):
        book.recorded("u")


@pytest.mark.parametrize("file", sorted(paths.RESULTS.glob("*.csv")), ids=lambda file: file.stem)
def test_every_recorded_result_has_its_provenance(file):
    record = json.loads(file.with_suffix(".json").read_text())
    assert {"chapter", "parameters", "fingerprint", "date", "seconds", "cores", "python"} <= set(record)
