"""Tables of the reader's own: cell by cell through a public schema, and nothing said of the cells."""

import csv
import dataclasses
import os
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers import data
from helpers.data import Domain, Schema, schema
from helpers.data.schema import MARK, doubts, propose, unlike
from helpers.data.tables import read
from helpers.erm.moments import PrivateMomentClassifier

TEXT = """
basis: ranges of the protocol
rows_per_person: 1
label: {column: ill, levels: [yes, no], minority: yes}
columns:
  age: {kind: integer, low: 18, high: 100}
  bmi: {kind: real, low: 10, high: 60, bins: 16, missing: true}
  smoker: {kind: categorical, levels: [no, yes]}
  ward: {kind: categorical, levels: [north, south, west], missing: true}
  blood: {kind: one-hot, levels: [A, B, O]}
  comment: {kind: ignore}
"""
HEADER = ["age", "bmi", "smoker", "ward", "blood=A", "blood=B", "blood=O", "comment", "ill"]
ROWS = [
    ["18", "22.5", "no", "north", "1", "0", "0", "text, with a comma", "no"],
    ["120", "?", "yes", "NA", "0", "0", "1", "", "yes"],
    ["60", "9", "no", "west", "0", "1", "0", "Müller", "no"],
]
ENCODED = [
    [18, 22.5, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0],
    [100, 35.0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1],
    [60, 10.0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0],
]
SCHEMA = Schema.parse(TEXT)


def frame(rows, header=HEADER):
    return pd.DataFrame(rows, columns=header, dtype=object)


def write(file, rows=ROWS, header=HEADER):
    with file.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows([header, *rows])
    return file


@pytest.fixture
def my(tmp_path):
    (tmp_path / "my.schema.yaml").write_text(TEXT)
    return write(tmp_path / "my.csv")


def test_a_file_becomes_a_data_set(my):
    loaded = data.load(str(my))
    assert loaded.X.tolist() == ENCODED
    assert loaded.y.tolist() == [0, 1, 0]
    assert loaded.class_names == ("no", "yes")
    assert loaded.bounds.tolist() == [[18, 100], [10, 60], *[[0, 1]] * 10]
    assert loaded.bounds_basis == "ranges of the protocol"
    assert loaded.feature_names[:4] == ("age", "bmi", "missing bmi=yes", "smoker=no")
    assert data.is_available(str(my))
    assert np.linalg.norm(data.unit_ball(loaded).X, axis=1).max() <= 1


def test_a_file_may_lie_in_the_data_folder_and_needs_a_schema_beside_it(my, tmp_path, monkeypatch):
    monkeypatch.setenv("DPBOOK_DATA", str(tmp_path))
    assert data.load("my.csv").n == 3
    assert not data.is_available("yours.csv")
    (tmp_path / "my.schema.yaml").rename(tmp_path / "other.yaml")
    with pytest.raises(ValueError, match=r"schema must be a text file, got 'my\.schema\.yaml'"):
        data.load(my)


def test_the_domain_says_the_same_as_the_matrix(my):
    domain, loaded = SCHEMA.domain, data.load(my)
    assert domain.n_features == loaded.n_features
    names = [attribute.name for attribute in domain.attributes]
    assert names == ["age", "bmi", "missing bmi=yes", "smoker", "ward", "blood"]
    assert domain.sizes == (32, 16, 2, 2, 4, 3, 2)
    assert domain.encode(loaded.X, loaded.y)[:, 2:].tolist() == [[0, 0, 0, 0, 0], [1, 1, 3, 2, 1], [0, 0, 2, 1, 0]]
    of_data = Domain.from_dataset(loaded)
    assert [a.columns for a in of_data.attributes] == [a.columns for a in domain.attributes]
    assert [a.kind for a in domain.attributes] == ["integer", "real", "integer", "one-hot", "one-hot", "one-hot"]
    assert pickle.dumps(domain) == pickle.dumps(Schema.parse(TEXT.replace("real, low: 10", "real, low: 1e1")).domain)


def test_a_parquet_file_gives_the_same(my, tmp_path):
    pytest.importorskip("pyarrow")
    typed = frame(ROWS).astype({"age": int, **{name: int for name in HEADER if "blood" in name}})
    typed["bmi"] = pd.array([22.5, None, 9.0], dtype="Float64")
    typed["ward"] = pd.array(["north", None, "west"], dtype="string")
    typed.to_parquet(tmp_path / "my.parquet")
    assert data.load(tmp_path / "my.parquet").X.tolist() == ENCODED


def test_without_the_package_for_parquet_the_way_out_is_named(tmp_path, monkeypatch):
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "my.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"extra `parquet`.*pip install '\.\[parquet\]'"):
        read(tmp_path / "my.parquet")


def test_errors_name_column_rows_and_rule_but_no_value(my):
    rows = [
        ["nineteen", "secret1", "maybe", "east", "1", "1", "0", "", "unknown"],
        ["20.5", "", "no", "", "0", "0", "0", "", "no"],
        ROWS[2],
    ]
    with pytest.raises(ValueError, match=r"my\.csv must follow its schema") as refused:
        data.load(write(my, rows))
    said = str(refused.value)
    for column, count, rule in [
        ("age", 2, "a whole number"),
        ("bmi", 1, "a number or missing"),
        ("smoker", 1, "one of no, yes"),
        ("ward", 1, "one of north, south, west or missing"),
        ("blood", 2, "one 1 and else 0 in its columns"),
        ("ill", 1, "one of no, yes"),
    ]:
        assert f"column {column!r} has {count} of 3 rows that are not {rule}" in said
    for value in ("nineteen", "secret", "maybe", "east", "unknown", "20.5"):
        assert value not in said


CELLS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=6),
    st.sampled_from(["1", "0", "1.0", "yes", "no", "north", "?", "", "nan", "inf", "-1e400", "1_0", " 30 ", "south"]),
    st.floats().map(str),
    st.integers().map(str),
)


@given(st.lists(st.lists(CELLS, min_size=len(HEADER), max_size=len(HEADER)), min_size=1, max_size=4))
def test_any_record_is_encoded_and_alone_as_among_others(tmp_path_factory, rows):
    X, y, _ = SCHEMA.encode(frame(rows))
    assert (X >= SCHEMA.bounds[:, 0]).all()
    assert (X <= SCHEMA.bounds[:, 1]).all()
    assert set(y) <= {0, 1}
    SCHEMA.domain.encode(X, y)
    for row, x, label in zip(rows, X, y, strict=True):
        alone = SCHEMA.encode(frame([row]))
        assert alone[0].tolist() == [x.tolist()]
        assert alone[1].tolist() == [label]


@pytest.mark.parametrize("column", [[1, True, 1.0, "1"], [True, 1, "1", 1.0], ["1", 1.0, 1, True]])
def test_values_that_are_equal_but_written_differently_stay_apart(column):
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\n"
        "columns: {x: {kind: categorical, levels: ['1', 'True', other]}}"
    )
    X = schema.features(pd.DataFrame({"x": pd.Series(column, dtype=object)}))
    assert X.argmax(axis=1).tolist() == [int(value is True) for value in column]


def test_numbers_are_the_nearest_double_whatever_stands_in_other_rows():
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\n"
        "columns: {x: {kind: real, low: 0, high: 1e300}}"
    )
    numbers = ["0.1", "9007199254740993", "18446744073709551617", "2.2250738585072011e-308"]
    assert schema.features(pd.DataFrame({"x": numbers})).ravel().tolist() == [float(number) for number in numbers]


def test_a_missing_whole_number_breaks_no_rule_though_the_middle_of_its_bounds_is_not_whole():
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\n"
        "columns: {x: {kind: integer, low: 0, high: 99, missing: true}}"
    )
    cells = pd.DataFrame({"x": ["?", "7", "7.5", "east"], "y": ["a"] * 4})
    assert schema.features(cells).tolist() == [[50, 1], [7, 0], [8, 0], [50, 1]]
    assert schema.findings(cells)[["rows", "finding"]].to_numpy().tolist()[0] == [2, "not a whole number or missing"]


def test_a_record_with_no_class_counts_as_the_majority():
    assert SCHEMA.encode(frame([[*ROWS[1][:-1], "unknown"], ROWS[1]]))[1].tolist() == [0, 1]
    several = Schema.parse(TEXT.replace("[yes, no], minority: yes", "[mild, none, severe]"))
    assert several.class_names == ("mild", "none", "severe")
    assert several.domain.classes == (0, 1, 2)


def test_a_proposal_marks_what_comes_from_the_records_and_is_refused_until_confirmed(my):
    text = propose(read(my), "ill")
    body = text.split("basis:")[1]
    for value in ("18", "120", " 9", "22.5", "north", "Müller"):
        assert value in body
        assert all("!private-confirm-or-replace" in line for line in body.splitlines() if value in line)
    with pytest.raises(ValueError, match="24 entries with the mark !private-confirm-or-replace, the") as refused:
        Schema.parse(text)
    assert "the first in line 5; confirm" in str(refused.value)
    few = text
    for entry in ("levels", "minority", "kind", "low", "high", "missing"):
        few = few.replace(f"{entry}: {MARK}", f"{entry}:")
    with pytest.raises(ValueError, match=r"got 2 entries .*in line 5;"):
        Schema.parse(few)
    assert "north" not in str(refused.value)
    assert "120" not in str(refused.value)


def test_a_confirmed_proposal_accepts_its_table(my):
    text = propose(read(my), "ill").replace(f"{MARK} ", "")
    with pytest.raises(ValueError, match="basis must be a text"):
        Schema.parse(text)
    schema = Schema.parse(text.replace("basis: ''", "basis: b"))
    assert not schema.findings(read(my))["finding"].str.startswith("not ").any()
    assert schema.class_names == ("no", "yes")
    assert [(c.name, c.kind, c.missing) for c in schema.columns] == [
        ("age", "integer", False),
        ("bmi", "real", True),
        ("smoker", "categorical", False),
        ("ward", "categorical", True),
        ("blood", "one-hot", False),
        ("comment", "categorical", True),
    ]


@given(st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["a", "b"])), min_size=2, max_size=6))
def test_any_table_has_a_proposal_that_it_follows(rows):
    table = frame(rows, ["x: y", "z=1", "label"])
    text = propose(table, "label").replace(f"{MARK} ", "").replace("basis: ''", "basis: b")
    if len({row[2] for row in rows}) < 2:
        with pytest.raises(ValueError, match=r"label\.levels must be 2 or more"):
            Schema.parse(text)
    elif any(f"kind: {kind}" in text for kind in ("real", "integer", "categorical")):
        found = Schema.parse(text).findings(table)
        assert not found["finding"].str.contains("not |count").any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("basis: ranges of the protocol", "basis: ''"), "basis must be a text"),
        (("basis: ranges of the protocol", ""), "schema must have basis, columns, label"),
        (("rows_per_person: 1", ""), "schema must say whose rows these are"),
        (("rows_per_person: 1", "rows_per_person: 1\nperson: id"), "schema must say whose rows these are"),
        (("rows_per_person: 1", "rows_per_person: 0"), r"rows_per_person must be a whole number in \[1, 1000\]"),
        (("rows_per_person: 1", "rows_per_person: many"), "rows_per_person must be a finite number, got 'many'"),
        (("rows_per_person: 1", "person: ''"), "person must be the name of a column"),
        (("rows_per_person: 1", "person: age"), "named once, the label too, got age twice"),
        (("low: 18", "low: !private-confirm-or-replac 18"), "without tags but .*, got !private-confirm-or-replac in"),
        (("low: 18", "low: !!int 18"), "without tags but .* in line 6"),
        (("label:", "missing_texts: NA\nlabel:"), "missing_texts must be a list of texts, got 'NA'"),
        (("label:", "missing_texts: [[NA]]\nlabel:"), "missing_texts must be a list of texts, got"),
        (("[north, south, west]", f"{[f'l{i}' for i in range(1001)]}"), "at most 1,000 texts, got 1,001"),
        (("kind: integer", "kind: date"), r"columns\.age\.low must be a date like 2024-12-31, got '18'"),
        (("label:", "labels: {}\nlabel:"), "got basis, rows_per_person, labels, label"),
        (("minority: yes", "minority: maybe"), r"label\.minority must be one of"),
        ((", minority: yes", ""), r"label\.minority must be one of two levels, got none"),
        (("levels: [yes, no]", "levels: [yes]"), r"label\.levels must be 2 or more different texts"),
        (("low: 18", "low: '18.5'"), r"columns\.age\.low must be a whole number"),
        (("low: 18", "low: x"), r"columns\.age\.low must be a finite number"),
        (("low: 18", "low: 100"), r"columns\.age\.low must be below"),
        (("low: 18, ", ""), r"columns\.age must have high, kind, low"),
        (("kind: integer", "kind: number"), r"columns\.age\.kind must be one of 'real', "),
        (("bins: 16", "bins: 0"), r"columns\.bmi\.bins must be a whole number in \[1, 1024\]"),
        (("missing: true", "missing: maybe"), r"columns\.bmi\.missing must be one of 'true', 'false'"),
        (("kind: categorical, levels: [no", "kind: boolean, levels: [no"), r"columns\.smoker\.kind must be one"),
        (("levels: [A, B, O]", "levels: [A, A]"), r"columns\.blood\.levels must be 2 or more different"),
        (("  age:", "  ill: {kind: ignore}\n  ill:"), "key 'ill' twice, line 7"),
        (("  age:", "  bmi:"), "key 'bmi' twice, line 7"),
        (("  age:", "  ill:"), "named once, the label too, got ill twice"),
        (("  age:", "  a=b:"), "without '='"),
        (("columns:", "columns: ["), "schema must be YAML"),
        (("basis: ranges", "basis: &a [*a]\nb: ranges"), "schema must be YAML without aliases"),
        (("basis: ranges", "basis: &a many\nb: [*a, *a]\nc: ranges"), "schema must be YAML without aliases"),
        (("low: 18", "low: !private-confirm-or-replace 18"), "got 1 entries .* in line 6;"),
        (("[north, south, west]", "!private-confirm-or-replace [north, south, west]"), "in line 9;"),
        (("[north, south, west]", "[north, !private-confirm-or-replace south, west]"), "in line 9;"),
        (("{kind: ignore}", "!private-confirm-or-replace {kind: ignore}"), "in line 11;"),
        (("label:", "? [label]\n:"), "schema must be YAML, got: found unhashable key, line 4"),
    ],
)
def test_schemas_that_are_refused(change, words):
    assert change[0] in TEXT
    with pytest.raises(ValueError, match=words):
        Schema.parse(TEXT.replace(*change, 1))


def test_what_was_stated_stays_and_what_was_not_has_a_default():
    assert hash(SCHEMA) == hash(Schema.parse(TEXT))  # whatever facts there are
    for stated in (SCHEMA, SCHEMA.columns[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            stated.kind = "real"
    assert not Schema("b", "y", ("a", "b"), ()).quoted_newlines
    said = Schema.parse(TEXT.replace("label:", "record: a visit\nsource: the registry\nlicence: none\nlabel:"))
    assert (said.record, said.source, said.licence) == ("a visit", "the registry", "none")
    assert not Schema.parse(TEXT.replace("label:", "missing_texts: []\nlabel:")).missing_texts


def test_whole_bounds_are_numbers_that_a_double_holds():
    text = "kind: integer, low: 18, high: 100"
    for low, high in [(-(2**53), 0), (0, 2**53)]:
        column = Schema.parse(TEXT.replace(text, f"kind: integer, low: {low}, high: {high}")).columns[0]
        assert (column.low, column.high) == (low, high)
    for low, high in [(-(2**53) - 2, 0), (0, 2**53 + 2)]:
        with pytest.raises(ValueError, match=r"must be a whole number in \[-9007199254740992, 9007199254740992\]"):
            Schema.parse(TEXT.replace(text, f"kind: integer, low: {low}, high: {high}"))


@pytest.mark.parametrize(
    ("missing", "encoded", "broken"),
    [
        (", missing: true", [[1, 0, 0], [0, 1, 0], *[[0, 0, 1]] * 5], [0, 0, 0, 1, 1, 1, 1]),
        ("", [[1, 0], [0, 1], *[[1, 0]] * 5], [0, 0, 1, 1, 1, 1, 1]),
    ],
)
def test_a_one_hot_block_of_zeros_is_missing_and_any_other_but_one_breaks_the_rule(missing, encoded, broken):
    said = Schema.parse(TEXT.replace("[A, B, O]", f"[A, B]{missing}"))
    column = next(column for column in said.columns if column.kind == "one-hot")
    blocks = [[1, 0], [0, 1], [0, 0], [1, 1], [-1, -1], [2, 0], [0, 0.5]]
    X = np.zeros((len(blocks), len(column.features)))
    assert column.encode(frame(blocks, ["blood=A", "blood=B"]), (), X).tolist() == list(map(bool, broken))
    assert X.tolist() == encoded


def test_a_level_that_is_none_counts_as_the_first():
    smoker = next(column for column in SCHEMA.columns if column.name == "smoker")
    X = np.zeros((2, 2))
    assert smoker.encode(frame([["yes"], ["maybe"]], ["smoker"]), (), X).tolist() == [False, True]
    assert X.tolist() == [[0, 1], [1, 0]]


def test_without_a_label_there_are_no_codes():
    X, y, _ = SCHEMA._read(frame(ROWS).drop(columns="ill"), labelled=False)
    assert X.tolist() == ENCODED
    assert y.shape == (0,)


def test_a_name_with_braces_stands_for_columns_as_in_a_shell():
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\n"
        "columns:\n  x{9..11}: {kind: real, low: 0, high: 2}\n"
        "  'p{A,B}q{0..1}': {kind: categorical, levels: [no, yes]}\n  'odd{1}': {kind: integer, low: 0, high: 3}\n"
        "  'a,b{0..1}c,d': {kind: real, low: 0, high: 1}\n"
    )
    assert schema.sources == ("x9", "x10", "x11", "pAq0", "pAq1", "pBq0", "pBq1", "odd{1}", "a,b0c,d", "a,b1c,d", "y")
    assert schema.bounds[:3].tolist() == [[0, 2]] * 3
    for name, words in (
        ("x{1..100001}", r"stand for 1 to 100,000 columns, got 100,001"),
        ("x{1..999}{1..999}", "got 998,001"),
        ("x{2..1}", "got 0"),
        ("x{1..2}x{1..2}", r"must be named once, the label too, got x1x1 twice"),
    ):
        entries = f"{{'{name}': {{kind: real, low: 0, high: 1}}, x1x1: {{kind: real, low: 0, high: 1}}}}"
        with pytest.raises(ValueError, match=words):
            Schema.parse(
                f"basis: b\nrows_per_person: 1\nlabel: {{column: y, levels: [a, b], minority: b}}\ncolumns: {entries}"
            )


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1))
def test_any_text_survives_writing(text):
    assert yaml.load(schema._scalar(text), yaml.BaseLoader) == text


def test_a_number_that_stands_for_a_missing_one_is_missing():
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\nmissing_texts: ['-999', '']\n"
        "columns: {x: {kind: real, low: 0, high: 10, missing: true}, z: {kind: integer, low: 0, high: 10}}"
    )
    table = pd.DataFrame({"x": [-999, 3.0, None], "z": ["-999", "3", "x"], "y": ["a"] * 3})
    assert schema.features(table).tolist() == [[5, 1, 5], [3, 0, 3], [5, 1, 5]]
    broken = schema.findings(table).query("finding.str.startswith('not ')")
    assert broken[["column", "rows"]].to_numpy().tolist() == [["z", 2]]


def test_columns_may_have_numbers_as_names():
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: '1', levels: [a, b], minority: b}\n"
        "columns: {'0': {kind: real, low: 0, high: 9}}"
    )
    assert schema.encode(pd.DataFrame([[4, "b"]]))[0].tolist() == [[4.0]]


def test_empty_schemas_are_refused(tmp_path):
    for text in ("", "- a", "basis"):
        with pytest.raises(ValueError, match="schema must be a mapping"):
            Schema.parse(text)
    with pytest.raises(ValueError, match="one or more columns that are not ignored"):
        Schema.parse(
            "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\n"
            "columns: {x: {kind: ignore}}"
        )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "got no header"),
        (b"\n1,2\n", "got no header"),
        (b"a,b,a\n1,2,3\n", "got a twice"),
        (b"\xff\xfea,b\n", "one that cannot be read"),
    ],
)
def test_files_that_are_no_csv_are_refused(tmp_path, content, words):
    file = tmp_path / "my.csv"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"my\.csv must be a CSV in UTF-8") as refused:
        read(file)
    assert words in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None  # a traceback would quote it


def test_what_a_csv_may_look_like(tmp_path):
    file = tmp_path / "my.CSV"
    file.write_bytes('\ufeff a , b\r\n1,"x, ""y"""\r\n\r\n2\r\n'.encode())
    table = read(file)
    assert list(table.columns) == ["a", "b"]
    assert table["a"].tolist() == ["1", "", "2"]
    assert table["b"].tolist() == ['x, "y"', "", ""]


LINES = [b"a", b"b,1", b"c,2", b"d,3"]
HOSTILE = [
    *(b"", b'"', b'x,"', b'"x', b'"x,1', b'"x"y,"1', b'x""', b'"""', b"x,'1", b",,,,,,,", b"x,1,2,3,4,5,6,7"),
    *(b"\xff", b"x,\xff\xfe\x00", b"\x00", b"x\x00,1", b"x\r1,2", b"x,\r", b"\x1a", b"\xef\xbb\xbfx,1", b"\x0b\x0c"),
    *("\u2028,1".encode(), "x,\x85".encode(), b"#x,1", b"x;1", b"x\t1", b"\\,1", b'\\",1', b"a,a", b"x" * 200_000),
    *(b'"' + b"x" * 200_000, b"," * 10_000, b"x,1e308", b"x,1e400", b"x,nan", b"x,None", b"=1+1,2", b"1,2\r"),
]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_no_line_changes_how_another_one_is_read(tmp_path, place):
    file = tmp_path / "my.csv"

    def rows(lines):
        file.write_bytes(b"\n".join([b"name,number", *lines[1:]]) + b"\n")
        return read(file).to_numpy().tolist()

    expected = rows(LINES)
    assert expected == [["b", "1"], ["c", "2"], ["d", "3"]]
    for hostile in HOSTILE:
        lines = list(LINES)
        lines[place] = hostile
        found = rows(lines)
        del lines[place]
        assert found[: place - 1] + found[place:] == expected[: place - 1] + expected[place:], hostile[:20]


def test_a_cell_goes_on_in_the_next_line_only_if_the_schema_says_so(tmp_path):
    file = tmp_path / "my.csv"
    file.write_text('a,b\n1,"two\nlines"\n')
    assert read(file)["a"].tolist() == ["1", 'lines"']
    assert read(file, quoted_newlines=True)["b"].tolist() == ["two\nlines"]
    assert Schema.parse(TEXT.replace("label:", "quoted_newlines: true\nlabel:")).quoted_newlines


def test_names_and_columns_that_are_not_there(my):
    with pytest.raises(ValueError, match=r"name must be a file that exists, got 'no\.csv'"):
        data.load("no.csv")
    with pytest.raises(ValueError, match="name must be a file called"):
        read("my.txt")
    with pytest.raises(ValueError, match="once, got none or several of age, ill"):
        SCHEMA.encode(frame(ROWS).drop(columns=["age", "ill"]))
    with pytest.raises(ValueError, match="label must be one of"):
        propose(read(my), "health")
    assert SCHEMA.features(frame(ROWS).drop(columns=["ill", "comment"])).tolist() == ENCODED


def test_a_private_classifier_learns_from_what_a_schema_encodes():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 100, 4000)
    rows = [
        [str(a), str(rng.uniform(10, 60)) if a % 3 else "", "no", "north", "1", "0", "0", "", "yes" if a > 85 else "no"]
        for a in age
    ]
    X, y, _ = SCHEMA.encode(frame(rows))
    model = PrivateMomentClassifier(epsilon=2.0, domain=SCHEMA.domain, random_state=0).fit(X, y)
    assert "ranges of the protocol" in " ".join(model.guarantee_.assumes)
    assert np.mean(model.predict(X) == y) > 0.85
    assert [shape.name for shape in model.shapes_] == [attribute.name for attribute in SCHEMA.domain.attributes]


def test_a_proposal_for_a_label_that_is_not_named_takes_the_last_column_and_says_so(my):
    text = propose(read(my))
    assert "column: ill  # the last column, since none was named" in text
    assert Schema.parse(text.replace(f"{MARK} ", "").replace("basis: ''", "basis: b")).label == "ill"
    with pytest.raises(ValueError, match="label must be a column of at most 50 values, 'x' has 60"):
        propose(pd.DataFrame({"age": range(60), "x": range(60)}))
    with pytest.raises(ValueError, match="label must be one of , got None"):
        propose(pd.DataFrame())
    with pytest.raises(ValueError, match="separated by commas, got the one column 'age;ill'"):
        propose(pd.DataFrame({"age;ill": ["20;no", "30;yes"]}))


def test_a_column_that_nobody_learns_from_may_name_persons():
    ids = [f"p{k // 3}" for k in range(300)]  # 100 people with three rows each
    table = pd.DataFrame({"who": ids, "age": range(300), "ill": ["no"] * 250 + ["yes"] * 50})
    text = propose(table)
    assert "  who:  # its values repeat: does it name the person of a row?\n" in text
    assert "does it name" not in propose(table.assign(who=range(300)))
    assert "does it name" not in propose(table, person="who")
    confirmed = text.replace(f"{MARK} ", "").replace("basis: ''", "basis: b")
    said = "100 values, one of them in 3 rows, where rows_per_person is 1: if it names the person, write person: who"
    assert doubts(Schema.parse(confirmed), table).to_numpy().tolist() == [["who", 300, said]]
    of_three = Schema.parse(confirmed.replace("rows_per_person: 1", "rows_per_person: 3"))
    assert not len(doubts(of_three, table))
    swapped = doubts(Schema.parse(confirmed.replace("minority: yes", "minority: no")), table)
    assert swapped.to_numpy().tolist()[0] == ["ill", 250, "no, the minority of the schema: is it the rare class?"]
    of_unknown = Schema.parse(confirmed.replace("rows_per_person: 1", "rows_per_person: unknown"))
    assert not len(doubts(of_unknown, table))
    two = doubts(Schema.parse(confirmed), table.rename(columns={"who": "zip"}).assign(address=ids))
    assert two.column.tolist() == ["zip", "address"]  # in the order of the table
    assert not len(doubts(of_three, table.assign(ill=["no"] * 180 + ["yes"] * 120)))  # 40 % may be the rare class
    three = Schema.parse(
        confirmed.replace("levels: [", "levels: [maybe, ").replace("rows_per_person: 1", "rows_per_person: 3")
    )
    assert not len(doubts(three, table.assign(ill=["no"] * 250 + ["yes"] * 50)))
    others = pd.DataFrame({"age": [-1, 300, "x", 5, ""]})
    assert unlike(of_three, others).to_numpy().tolist() == [
        ["age", 2, "not a whole number"],
        ["age", 2, "outside the bounds, and counted as the nearest bound"],
    ]
    assert not len(unlike(of_three, pd.DataFrame({"age": [7]})))  # one row alone is no sign of another unit


def test_whose_rows_these_are():
    of_rows = Schema.parse(TEXT.replace("rows_per_person: 1", "rows_per_person: unknown"))
    assert (of_rows.unit, of_rows.rows_per_person, of_rows.encode(frame(ROWS))[2]) == ("row", None, None)
    assert (SCHEMA.unit, SCHEMA.rows_per_person, SCHEMA.person) == ("person", 1, None)
    named = Schema.parse(TEXT.replace("rows_per_person: 1", "person: id"))
    table = frame([*ROWS, *ROWS]).assign(id=["7 ", 8, "?", 8.0, "7", None])
    X, _, persons = named.encode(table)
    assert (named.unit, persons.tolist(), X.shape[1]) == ("person", [0, 1, 2, 1, 0, 2], len(SCHEMA.feature_names))
    assert named.features(frame(ROWS)).tolist() == ENCODED  # predictions need not say whose rows they are for
    assert named.dataset(table, "t").groups.tolist() == persons.tolist()
    assert named.findings(table).query("column == 'id'").to_numpy().tolist() == [
        ["id", 2, "of nobody: together they count as one person"]
    ]
    with pytest.raises(ValueError, match="once, got none or several of id"):
        named.encode(frame(ROWS))


def test_the_holder_is_told_of_clipped_cells_other_units_and_other_spellings():
    wanted = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: ill, levels: [no, yes], minority: yes}\n"
        "columns: {age: {kind: real, low: 18, high: 100}, height: {kind: real, low: 0, high: 250}, "
        "ward: {kind: categorical, levels: [north, south]}, seen: {kind: date, low: 2020-01-01, high: 2020-12-31}}"
    )
    ages = ["1e308", "1e400", "inf", "-inf", "17", "40"]
    table = pd.DataFrame(
        {"age": ages, "height": [1.7, 1.8, 1.6, 1.5, 1.9, 2.0], "ward": ["North", "no rth", *["north"] * 4]}
    )
    table = table.assign(
        seen=["2020-02-29", *["2021-01-01"] * 2, *["2020-06-01 12:00"] * 3], ill=[" yes ", "Yes", *["no"] * 4]
    )
    found = {
        (row.column, row.rows, row.finding.split(",")[0].split(":")[0]) for row in wanted.findings(table).itertuples()
    }
    assert found == {
        ("age", 2, "below 18"),
        ("age", 3, "above 100"),
        ("age", 6, "numbers of which most are outside the bounds"),
        ("height", 6, "numbers that all lie within 2% of the space between the bounds"),
        ("ward", 2, "not one of north"),
        ("ward", 1, "a level but for capital letters or spaces"),
        ("seen", 2, "above 18627"),
        ("ill", 1, "not one of no"),
        ("ill", 1, "a level but for capital letters or spaces"),
    }


def test_a_date_is_a_number_of_days_and_proposed_as_one():
    table = pd.DataFrame({"seen": ["2020-01-01", "1970-01-02 12:00:00", "soon"], "ill": ["no", "yes", "no"]})
    text = propose(table[:2], "ill")
    assert "seen:  # dates, read as numbers of days" in text
    assert "kind: !private-confirm-or-replace date" in text
    confirmed = text.replace(f"{MARK} ", "").replace("basis: ''", "basis: b").replace("missing: false", "missing: true")
    wanted = Schema.parse(confirmed)
    assert wanted.features(table).tolist() == [[18262, 0], [1.5, 0], [(18262 + 1.5) / 2, 1]]
    assert wanted.domain.attributes[0].kind == "real"


def test_a_proposal_may_name_the_person(my):
    table = read(my).assign(id=["a", "b", "a"])
    named = propose(table, "ill", "id").replace(f"{MARK} ", "").replace("basis: ''", "basis: b")
    assert Schema.parse(named).person == "id"
    with pytest.raises(ValueError, match="person must be one of"):
        propose(table, "ill", "ill")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_file_that_would_be_read_for_ever_is_refused(tmp_path):
    os.mkfifo(tmp_path / "my.yaml")
    for file in (tmp_path / "my.yaml", "/dev/zero"):
        with pytest.raises(ValueError, match=r"schema must be a text file, got .*, which is none"):
            Schema.read(file)
    large = tmp_path / "large.yaml"
    with large.open("wb") as content:
        content.truncate(1 << 25)
    with pytest.raises(ValueError, match="at most 16,777,216 bytes"):
        Schema.read(large)
