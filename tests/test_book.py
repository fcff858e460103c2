"""Tables, the provenance line and the comparison with printed numbers."""

import base64
import io
import re

import numpy as np
import pandas as pd
import pytest

from checks.printed_tables import paper_vs_ours, reference_table
from helpers import book


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
    table = reference_table("dpci_table11_datasets")
    row = table[(table.row_label == "mammography") & (table.metric == "size n")].iloc[0]
    assert row["mean"] == "11,183"
    assert row["mean_value"] == 11183


def test_unknown_reference_table():
    with pytest.raises(ValueError, match="file must be one of"):
        reference_table("table99")


def test_paper_vs_ours_keeps_every_printed_row():
    printed = pd.DataFrame({"row": ["a", "b", "c"], "mean": ["0.50", "0.70", "x"], "mean_value": [0.5, 0.7, np.nan]})
    ours = pd.DataFrame({"row": ["a", "b"], "ours": [0.55, 0.9], "low": [0.5, 0.85], "high": [0.6, 0.95]})
    merged = paper_vs_ours(printed, ours, on=["row"])
    assert list(merged["printed"]) == ["0.50", "0.70", "x"]
    assert merged["difference"].tolist()[:2] == pytest.approx([0.05, 0.2])
    assert merged["inside"].tolist() == [True, False, False]
    assert np.isnan(merged["ours"][2])
    assert paper_vs_ours(printed, ours, on=["row"], rounding=0.2)["inside"].tolist() == [True, True, False]


def test_paper_vs_ours_refuses_ambiguous_keys():
    printed = pd.DataFrame({"row": ["a", "a"], "mean": ["1", "2"], "mean_value": [1.0, 2.0]})
    with pytest.raises(pd.errors.MergeError):
        paper_vs_ours(printed, pd.DataFrame({"row": ["a"], "ours": [1.0]}), on=["row"])


def test_provenance_names_parameters_and_versions():
    line = repr(book.provenance("oversampling", n_seeds=10))
    assert line.startswith("oversampling(n_seeds=10) with Python 3.")
    assert "scikit-learn" in line
