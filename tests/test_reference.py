"""The transcription in `reference/` and the bibliography: complete, readable and consistent with each other."""

import re
from collections import Counter

import pandas as pd
import pytest
import yaml
from pybtex.database import parse_file

from helpers.paths import BOOK, REFERENCE

DOCUMENTS = {
    "dpci": "rosenblatt2025imbalance",
    "dpci-arxiv": "rosenblatt2024imbalance",
    "chaudhuri": "chaudhuri2011erm",
    "mangold": "mangold2023defence",
    "sad": "huang2025sad",
}
VERDICTS = {
    "holds",
    "holds, tighter shown",
    "holds only after correction",
    "fails as published",
    "not checkable here",
    "not checked yet",
}
# Chapters that are there, and those that statements wait for.
CHAPTERS = {file.stem for file in BOOK.rglob("*.ipynb")}
REQUIRED_KEYS = ["id", "document", "label", "statement", "plain", "location", "chapter", "evidence", "verdict"]
KEY_ORDER = [
    "id",
    "document",
    "label",
    "statement",
    "plain",
    "assumptions",
    "differences",
    "arxiv_label",
    "location",
    "issues",
    "chapter",
    "evidence",
    "verdict",
    "reason",
]
SETTING = ["table_id", "document", "figure", "value"]
RESULT = ["table_id", "document", "label_in_document", "metric", "mean", "std"]
TABLES = {
    "dpci_table02_smote_eps": (6, [*RESULT, "row_label", "col_label", "mean_arxiv", "versions_agree"]),
    "dpci_table03_ranks": (32, [*RESULT, "row_label", "col_label", "mean_arxiv", "versions_agree"]),
    "dpci_tables04-09_bagging_f1": (220, [*RESULT, "imbalance_ratio_r", "n_estimators", "n", "row_label"]),
    "dpci_table10_formulas": (4, ["table_id", "document", "metric", "formula_printed_latex"]),
    "dpci_table11_datasets": (24, [*RESULT, "row_label", "mean_arxiv", "versions_agree"]),
    "dpci_table12_gem_hyperparameters": (9, [*RESULT, "row_label", "description"]),
    "dpci_tables13-20_nonprivate": (648, [*RESULT, "dataset", "preprocessing", "model", "mean_arxiv", "std_arxiv"]),
    "chaudhuri_tables1-2_errors": (96, [*RESULT, "dataset", "loss", "row_label", "Lambda", "is_row_minimum"]),
    "chaudhuri_fig2-5_settings": (61, [*SETTING, "setting"]),
    "mangold_figure_settings": (23, [*SETTING, "setting"]),
    "sad_fig3-9_parameters": (46, [*SETTING, "parameter"]),
    "sad_table1_steps": (3, [*RESULT, "row_label", "col_label", "eps", "delta"]),
    "sad_table2_algorithms": (12, [*RESULT, "row_label", "col_label", "delta"]),
}
REGISTERS = {
    "issues": (115, ["issue_id", "document", "location", "kind", "severity", "description"]),
    "figures": (47, ["document", "figure_id", "x_axis", "y_axis", "series", "qualitative_claim"]),
    "version_differences": (43, ["id", "topic", "arxiv", "icml", "remark"]),
}
TEXT_FILES = sorted(path for path in REFERENCE.rglob("*") if path.suffix in {".csv", ".md", ".yml"})
MATH = re.compile(r"\$([^$]+)\$")


def read(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def printed_numbers(table):
    """The non-empty cells of the columns that hold printed results."""
    columns = [name for name in ("mean", "std", "mean_arxiv", "std_arxiv") if name in table]
    return [cell for name in columns for cell in table[name] if cell]


@pytest.fixture(scope="module")
def claims():
    return yaml.safe_load((REFERENCE / "claims.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def issues():
    return read(REFERENCE / "issues.csv")


def test_claims_are_complete_and_unique(claims):
    assert len(claims) == 143
    assert len({claim["id"] for claim in claims}) == 143
    by_document = Counter(claim["document"] for claim in claims)
    assert by_document == {"dpci": 64, "chaudhuri": 45, "mangold": 18, "sad": 15, "dpci-arxiv": 1}


def test_claims_have_known_keys_in_order(claims):
    for claim in claims:
        assert list(claim) == [key for key in KEY_ORDER if key in claim], claim["id"]
        assert set(REQUIRED_KEYS) <= set(claim), claim["id"]
        assert all(claim.values()), claim["id"]


def test_claims_use_the_vocabulary(claims):
    for claim in claims:
        assert claim["verdict"] in VERDICTS, claim["id"]
        assert {claim["chapter"], claim["evidence"]} <= CHAPTERS, claim["id"]
        assert claim["id"].startswith(claim["document"]), claim["id"]


def test_a_verdict_comes_with_a_one_line_reason(claims):
    for claim in claims:
        assert ("reason" in claim) == (claim["verdict"] != "not checked yet"), claim["id"]
        assert "\n" not in claim.get("reason", ""), claim["id"]


def test_claims_point_to_known_issues_and_claims(claims, issues):
    known = set(issues["issue_id"])
    ids = {claim["id"] for claim in claims}
    for claim in claims:
        assert set(claim.get("issues", [])) <= known, claim["id"]
        mentioned = re.findall(r"\b(?:dpci|chaudhuri|mangold|sad)-[\w-]+", " ".join(map(str, claim.values())))
        assert set(mentioned) <= ids | set(DOCUMENTS) | CHAPTERS, claim["id"]


@pytest.mark.parametrize("key", ["statement", "plain", "assumptions", "differences", "reason"])
def test_claim_formulas_are_closed(claims, key):
    for claim in claims:
        text = claim.get(key, "")
        assert text.count("$") % 2 == 0, claim["id"]
        for formula in MATH.findall(text):
            assert formula == formula.strip(), (claim["id"], formula)
            # Escaped braces are characters of the formula, not groups.
            groups = formula.replace(r"\{", "").replace(r"\}", "")
            assert groups.count("{") == groups.count("}"), (claim["id"], formula)
        assert "\\" not in MATH.sub("", text), claim["id"]


@pytest.mark.parametrize(("name", "rows", "columns"), [(name, *spec) for name, spec in REGISTERS.items()])
def test_registers_are_complete(name, rows, columns):
    table = read(REFERENCE / f"{name}.csv")
    assert len(table) == rows
    assert set(columns) <= set(table)


def test_issues_are_unique_and_classified(issues):
    assert issues["issue_id"].is_unique
    assert set(issues["kind"]) == {"formula", "number", "text", "reference", "feasibility"}
    assert set(issues["severity"]) == {"low", "medium", "high"}
    documents = {name for cell in issues["document"] for name in cell.split("; ")}
    assert documents == set(DOCUMENTS)


def test_every_table_is_described():
    assert {path.stem for path in (REFERENCE / "tables").glob("*.csv")} == set(TABLES)
    readme = (REFERENCE / "README.md").read_text(encoding="utf-8")
    for name, (rows, _) in TABLES.items():
        assert f"| `{name}.csv` | {rows} |" in readme
    assert f"| `tables/*.csv` | {sum(rows for rows, _ in TABLES.values())} |" in readme


@pytest.mark.parametrize(("name", "rows", "columns"), [(name, *spec) for name, spec in TABLES.items()])
def test_tables_are_complete_and_numbers_parse(name, rows, columns):
    table = read(REFERENCE / "tables" / f"{name}.csv")
    assert len(table) == rows
    assert set(columns) <= set(table)
    assert set(table["document"]) == {name.split("_")[0]}
    for cell in printed_numbers(table):
        assert cell == cell.strip()
        float(cell.replace(",", ""))


def test_printed_digits_are_kept():
    errors = read(REFERENCE / "tables" / "chaudhuri_tables1-2_errors.csv")
    assert (errors["mean"] == "0.1540").any()
    nonprivate = read(REFERENCE / "tables" / "dpci_tables13-20_nonprivate.csv")
    assert {"0.2", "0.20"} <= set(nonprivate["mean"])


def test_versions_agree_where_the_table_says_so():
    for name, (_, columns) in TABLES.items():
        if "versions_agree" not in columns:
            continue
        table = read(REFERENCE / "tables" / f"{name}.csv")
        agrees = table["versions_agree"] == "yes"
        assert (table["mean"] == table["mean_arxiv"])[agrees].all(), name
        assert (table["mean"] == "")[~agrees].all(), name


def test_documented_copy_errors_are_in_the_tables():
    """The two cautions of the README can be seen in the data."""
    nonprivate = read(REFERENCE / "tables" / "dpci_tables13-20_nonprivate.csv")
    transformer = nonprivate["model"].str.contains("FTTransformer") & nonprivate["metric"].isin(["G-Mean", "MCC"])
    assert transformer.sum() == 16
    assert (nonprivate["mean"] == nonprivate["std"])[transformer].all()
    bagging = read(REFERENCE / "tables" / "dpci_tables04-09_bagging_f1.csv")
    five = bagging[(bagging["n_estimators"] == "5") & bagging["row_label"].str.contains("Adv. Comp.")]
    means = {label: list(rows["mean"]) for label, rows in five.groupby("label_in_document")}
    assert means["Table 6"] == means["Table 5"] != means["Table 4"]


@pytest.mark.parametrize("path", TEXT_FILES, ids=lambda path: path.name)
def test_no_file_names_of_the_sources_are_left(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b00[0-4]_[0-9a-f]{8}", text)
    # A bare 000 or 001 named a version; inside a number it is preceded by a digit, a point or a comma.
    assert not re.search(r"(?<![\d.,])00[0-4](?![\d.,])", text)
    assert "claims.csv" not in text


def test_bibliography_parses_with_unique_keys():
    path = BOOK / "references.bib"
    keys = re.findall(r"^@\w+\{([^,\s]+),", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(keys) == len({key.lower() for key in keys})
    entries = parse_file(path, bib_format="bibtex").entries
    assert set(entries) == set(keys)
    assert set(DOCUMENTS.values()) <= set(entries)
    for key, entry in entries.items():
        surname = entry.persons["author"][0].last_names[-1].lower()
        assert re.fullmatch(r"[a-z]+\d{4}[a-z]+\d*", key), key
        assert key.startswith(surname) or not surname.isascii() or "{" in surname, key
        assert entry.fields["year"][:4] in key, key  # a letter tells apart what is cited alike
        assert entry.fields["title"], key


def test_documents_are_named_with_their_bibliography_key():
    readme = (REFERENCE / "README.md").read_text(encoding="utf-8")
    for name, key in DOCUMENTS.items():
        assert re.search(rf"^\| `{name}` \|.*\| `{key}` \|$", readme, flags=re.MULTILINE), name


@pytest.mark.parametrize("name", ["glossary", "notation"])
def test_reference_pages_start_with_their_label(name):
    text = (BOOK / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"({name})=\n# {name.capitalize()}: ")
    assert MATH.sub("", text).count("$") == 0
