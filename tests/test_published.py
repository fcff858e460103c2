"""The recipe from a file to a published classifier: what it says has been paid for, or is public."""

import hashlib
import json
import re
from datetime import date

import joblib
import numpy as np
import pandas as pd
import pytest

from helpers import paths
from helpers.book.card import METHOD, QUALITY, expected_quality, render
from helpers.book.shapes import plot_shapes
from helpers.cli import main
from helpers.data import Schema
from helpers.erm.moments import PrivateMomentClassifier
from helpers.meta.published import COLUMNS_PUBLIC, PublishedClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

TEXT = """
basis: code book
rows_per_person: 1
label: {column: ill, levels: [no, yes], minority: yes}
columns:
  age: {kind: real, low: 0, high: 100, bins: 8}
  dose: {kind: real, low: 0, high: 10, bins: 8, missing: true}
  ward: {kind: categorical, levels: [north, "<b>$x^2$", west]}
"""
SCHEMA = Schema.parse(TEXT)
N = 3000


def table(n=N, seed=0, tilt=1.0, share=0.3):
    """Records that leave no cell empty, so that no released number is at the end of its range."""
    rng = np.random.default_rng(seed)
    y = rng.uniform(size=n) < share
    return pd.DataFrame(
        {
            "age": (100 * rng.uniform(size=n) ** np.where(y, 1 / tilt, 1)).round(3).astype(str),
            "dose": np.where(rng.uniform(size=n) < 0.2, "", rng.uniform(0, 10, n).round(3).astype(str)),
            "ward": rng.choice(["north", "<b>$x^2$", "west"], n),
            "ill": np.where(y, "yes", "no"),
        }
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a file and its schema."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.schema.yaml").write_text(TEXT)
    table().to_csv("my.csv", index=False)
    return tmp_path


@pytest.fixture(scope="module")
def classifier():
    return PublishedClassifier.fit(table(tilt=3.0), SCHEMA, epsilon=5.0)


def fit(*arguments, file="my.csv", out="m.joblib", epsilon="5"):
    return main(["fit", file, "--epsilon", epsilon, "--out", out, *arguments])


def refused(capsys, arguments, words):
    capsys.readouterr()
    assert main(arguments) == 2
    shown = capsys.readouterr()
    [line] = shown.err.splitlines()
    assert re.search(words, line), line
    assert not shown.out


# ------------------------------------------------------------------------------------------------- nothing unpaid


def leaves(value, place=""):
    """All numbers, texts and arrays of an object by their place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        yield f"{place}.len", len(value)
        for k, item in enumerate(value):
            yield from leaves(item, f"{place}[{k}]")
    elif isinstance(value, np.ndarray):
        yield f"{place}.shape", value.shape
        yield from leaves(value.ravel().tolist(), place)
    elif hasattr(value, "__dict__"):
        yield from leaves(vars(value), f"{place}.{type(value).__name__}")
    else:
        yield place, value if isinstance(value, int | float | str | bool | None) else repr(value)


def without_noise(stored):
    """What two fits to the same records have in common, beside the other leaves, which are noise or hidden by it."""
    one, other = (dict(leaves(PublishedClassifier.load(file))) for file in stored)
    assert one.keys() == other.keys()
    return {place: value for place, value in one.items() if value == other[place]}, len(one)


@pytest.mark.parametrize(
    ("relation", "sizes"), [("replace-one", (N, N)), ("add-remove", (N, N - 450))], ids=["replace-one", "add-remove"]
)
def test_what_is_the_same_in_two_fits_is_the_same_for_any_other_records(folder, capsys, relation, sizes):
    """Whatever is no function of public things and noise would be equal in fits to one table and differ for another.

    Any table leads to any other by steps of one record, so a pair that differs in all records tests every step.
    """
    common, file_sizes = [], set()
    for k, n in enumerate(sizes):
        records = table(n, seed=k, tilt=1.0 + 2 * k, share=0.3 + 0.3 * k)
        records.iloc[-3:] = "garbage" if k else records.iloc[-3:]
        records.to_csv(f"t{k}.csv", index=False)
        stored = [f"{k}{again}.joblib" for again in "ab"]
        for out in stored:
            assert fit("--schema", "my.schema.yaml", "--neighbouring", relation, file=f"t{k}.csv", out=out) == 0
            shown = capsys.readouterr()
            found = PublishedClassifier.load(out)
            card = out.replace("joblib", "html")
            assert shown.out == f"{found.guarantee}\n{out}\n{card}\n"
            assert not shown.err
            # A function of what is stored, so it needs no other look.
            assert (folder / card).read_text() == render(found)
            file_sizes.add((folder / out).stat().st_size)
        common.append(without_noise(stored))
    (same, n_leaves), (same_there, n_there) = common
    assert same == same_there
    assert n_leaves == n_there > len(same) + 100  # more than 100 are noise or hidden by it
    assert len(file_sizes) == 1
    values = list(same.values())
    assert (float(N) in values) == (relation == "replace-one")


def test_what_is_stored_holds_no_seed_and_no_records(folder):
    assert fit() == 0
    assert PublishedClassifier.load("m.joblib").model.random_state is None
    stored = (folder / "m.joblib").read_bytes()
    for text in (b"random_state_", b"my.csv", str(folder).encode(), b"garbage"):
        assert text not in stored


# Cells that are wrong in every way; a record may hold any of them.
@pytest.mark.parametrize("cell", ["", "nan", "-inf", "1e999", "east", "🎲", "0x10", '"quoted"', "1,5", "=1+1"])
def test_no_record_can_stop_a_fit(folder, capsys, cell):
    records = table(400)
    records.iloc[7] = cell
    records.to_csv("my.csv", index=False)
    assert fit() == 0
    shown = capsys.readouterr()
    assert not shown.err
    assert len(shown.out.splitlines()) == 3


@pytest.mark.parametrize(("column", "cell"), [("age", "50"), ("ward", "west"), ("ill", "no"), ("ill", "yes")])
def test_a_constant_column_or_one_class_is_a_table_like_others(folder, capsys, column, cell):
    records = table(400)
    records[column] = cell
    records.to_csv("my.csv", index=False)
    assert fit() == 0
    shown = capsys.readouterr()
    assert not shown.err
    assert len(shown.out.splitlines()) == 3
    assert main(["predict", "m.joblib", "my.csv", "--out", "p.csv"]) == 0
    assert pd.read_csv("p.csv")["probability of yes"].between(0, 1).all()


def test_a_table_that_does_not_fit_into_memory_is_refused(folder, capsys, monkeypatch):
    def full(*arguments, **options):
        raise MemoryError("for an array with shape (77777,)")

    for place in ("helpers.data.tables.pd.read_csv", "helpers.meta.published.PrivateMomentClassifier.fit"):
        with monkeypatch.context() as patched:
            patched.setattr(place, full)
            refused(
                capsys, ["fit", "my.csv", "--epsilon", "1", "--out", "m"], "the table must fit into memory .*columns$"
            )


def test_a_file_without_records(folder, capsys):
    table(0).to_csv("my.csv", index=False)
    refused(capsys, ["fit", "my.csv", "--epsilon", "1", "--out", "m"], "table must have one or more records, got none")
    assert fit("--neighbouring", "add-remove") == 0


# ------------------------------------------------------------------------------------------- refused before anything


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "0"], "epsilon must be"),
        (["--epsilon", "nan"], "epsilon must be"),
        (["--epsilon", "1", "--delta", "0"], "delta must be"),
        (["--epsilon", "1", "--delta", "1"], "delta must be"),
        (["--epsilon", "1", "--schema", "no.yaml"], "schema must be a text file, got 'no.yaml'"),
        (
            ["--epsilon", "1", "--schema", "marked.yaml"],
            r"1 entries with the mark !private.*the first in line \d",
        ),
        (["--epsilon", "1", "--schema", "nothing.yaml"], "columns must name one or more columns that are not ignored"),
        (["--epsilon", "1", "--schema", "fine.yaml"], r"columns\.age\.bins must be a whole number in \[1, 1024\]"),
        (["--epsilon", "1", "--schema", "large.yaml"], "domain must give 1 to 4000 features"),
        (["--epsilon", "1", "--label", "age"], "--label must be the label of the schema, 'ill', got 'age'"),
        (["--epsilon", "1", "--card", "new"], "--card must be another file than --out"),
        (["--epsilon", "1", "--card", "my.csv"], "--card must be a new file, got 'my.csv'"),
        (["--epsilon", "1", "--out", "my.csv"], "--out must be a new file"),
        (["--epsilon", "1", "--out", "no/new"], "--out must be in a folder that can be written"),
    ],
)
def test_refused_before_the_records_are_read(folder, capsys, monkeypatch, arguments, words):
    (folder / "marked.yaml").write_text(
        TEXT.replace("low: 0, high: 100", "low: !private-confirm-or-replace 0, high: 1")
    )
    levels = ", ".join(f"l{k}" for k in range(4001))
    (folder / "large.yaml").write_text(TEXT.replace("north", levels))
    (folder / "nothing.yaml").write_text(re.sub(r"\{kind.*\}", "{kind: ignore}", TEXT))
    (folder / "fine.yaml").write_text(TEXT.replace("bins: 8", "bins: 1000000000", 1))
    before = {file.name for file in folder.iterdir()}
    monkeypatch.setattr("helpers.meta.published.read", lambda file: pytest.fail("the file was read"))
    refused(capsys, ["fit", "my.csv", "--out", "new", *arguments], words)
    assert {file.name for file in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["fit", "no.csv", "--schema", "my.schema.yaml", "--epsilon", "1", "--out", "m"],
            "name must be a file that exi",
        ),
        (["fit", "less.csv", "--schema", "my.schema.yaml", "--epsilon", "1", "--out", "m"], "none or several of ill$"),
        (
            ["fit", "my.csv", "--epsilon", "1", "--delta", "0.001", "--out", "m"],
            "delta must be less than one over .* 3000",
        ),
        (["predict", "my.csv", "my.csv", "--out", "p"], "model must be a file of a stored classifier"),
        (["predict", "other.joblib", "my.csv", "--out", "p"], "stored classifier, got one of dict"),
        (["predict", "no.joblib", "my.csv", "--out", "p"], "model must be a file of a stored classifier"),
        (["schema", "my.csv", "--label", "health"], "--out must be a new file"),
        (["schema", "my.csv", "--label", "health", "--out", "s"], "label must be one of"),
        (["schema", "my.csv", "--check", "no.yaml"], "schema must be a text file"),
    ],
)
def test_bad_input_ends_with_exit_code_2(folder, capsys, arguments, words):
    table().drop(columns="ill").to_csv("less.csv", index=False)
    joblib.dump({}, "other.joblib")
    refused(capsys, arguments, words)
    assert not {"m", "p", "s"} & {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("arguments", [["fit", "my.csv"], ["schema"], ["predict"], ["fit", "a", "--seed", "1"]])
def test_incomplete_commands(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


# ------------------------------------------------------------------------------------------------------ what it does


def test_three_commands_from_a_file_to_predictions(folder, capsys):
    table(tilt=4.0).to_csv("my.csv", index=False)
    (folder / "my.schema.yaml").unlink()
    assert main(["schema", "my.csv"]) == 0  # the label is the last column
    assert "as private as the data" in capsys.readouterr().out
    refused(
        capsys,
        ["fit", "my.csv", "--epsilon", "1", "--out", "m.joblib"],
        "14 entries .*, the first in line 5;",
    )
    proposal = (folder / "my.schema.yaml").read_text()
    confirmed = proposal.replace("!private-confirm-or-replace ", "").replace("basis: ''", "basis: b")
    (folder / "my.schema.yaml").write_text(confirmed)
    assert fit("--label", "ill", "--schema", "my.schema.yaml") == 0
    assert main(["predict", "m.joblib", "my.csv", "--out", "p.csv"]) == 0
    answer, truth = pd.read_csv("p.csv"), table(tilt=4.0)["ill"]
    assert list(answer) == ["prediction", "probability of no", "probability of yes"]
    assert len(answer) == N
    recalls = [np.mean(answer["prediction"][truth == name] == name) for name in ("no", "yes")]
    assert np.mean(recalls) > 0.7
    assert np.allclose(answer.filter(like="probability").sum(axis=1), 1)


def test_file_and_schema_are_found_in_the_data_folder(folder, monkeypatch):
    (folder / "elsewhere").mkdir()
    monkeypatch.setenv("DPBOOK_DATA", str(folder))
    monkeypatch.chdir(folder / "elsewhere")
    assert fit() == 0
    assert {file.name for file in (folder / "elsewhere").iterdir()} == {"m.joblib", "m.html"}


def test_check_counts_what_breaks_the_schema_for_the_holder(folder, capsys):
    assert main(["schema", "my.csv", "--check", "my.schema.yaml"]) == 0
    assert capsys.readouterr().out == "every row follows the schema\n"
    records = table()
    records.loc[:4, "age"] = "secret"
    records.to_csv("my.csv", index=False)
    assert main(["schema", "my.csv", "--check", "my.schema.yaml"]) == 1
    shown = capsys.readouterr().out
    assert shown.split()[3:] == ["age", "5", "a", "number"]


def test_a_full_disk_is_a_failure(folder, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helpers.meta.published.joblib.dump", full)
    assert fit() == 1
    assert "No space left on device" in capsys.readouterr().err


def test_the_guarantee_names_all_that_it_stands_on(classifier):
    given = classifier.guarantee
    assert (given.epsilon, given.delta, given.neighbouring) == (5.0, 1e-6, REPLACE_ONE)
    assert COLUMNS_PUBLIC in given.assumes
    assert "number of records public" in given.assumes
    assert any("code book" in item for item in given.assumes)
    one_more = PublishedClassifier.fit(table(), SCHEMA, epsilon=1.0, neighbouring=ADD_REMOVE).guarantee
    assert one_more.neighbouring is ADD_REMOVE
    assert "number of records public" not in one_more.assumes


def test_predictions_need_no_label_and_read_cells_as_the_fit_did(classifier):
    records = table(50, seed=5)
    answer = classifier.predict(records)
    assert answer.equals(classifier.predict(records.drop(columns="ill")))
    X, _, _ = SCHEMA.encode(records)
    assert (answer["prediction"] == np.array(SCHEMA.class_names)[classifier.model.predict(X)]).all()
    assert (answer["probability of yes"] == classifier.model.predict_proba(X)[:, 1]).all()
    assert list(classifier.predict(records[:0])) == list(answer)


def test_several_classes(tmp_path):
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [low, mid, top]}\n"
        "columns: {x: {kind: real, low: 0, high: 3}}"
    )
    x = np.random.default_rng(0).uniform(0, 3, 3000)
    records = pd.DataFrame({"x": x.astype(str), "y": np.array(["low", "mid", "top"])[x.astype(int)]})
    found = PublishedClassifier.fit(records, schema, epsilon=5.0)
    assert np.mean(found.predict(records)["prediction"] == records["y"]) > 0.7
    assert "top: 1,0" in render(found) or "top: 9" in render(found)
    found.save(tmp_path / "m")
    assert PublishedClassifier.load(tmp_path / "m").predict(records).equals(found.predict(records))


# ------------------------------------------------------------------------------------------------------------ the card


@pytest.fixture
def no_results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def record(folder, rows):
    folder.mkdir()
    frame = pd.DataFrame(rows, columns=["dataset", "n", "minority", "epsilon", "auc"]).assign(splits=20)
    frame = pd.concat([frame.assign(relation=relation) for relation in ("replace-one", "add/remove")])
    frame = pd.concat([frame.assign(method=METHOD), frame.assign(method="another", auc=0.99)])
    frame["auc"] += 0.1 * (frame.relation == "add/remove")
    frame["auc_low"], frame["auc_high"] = frame.auc - 0.04, frame.auc + 0.03
    frame = frame.assign(**{f"balanced_accuracy{end}": 0.7 for end in ("", "_low", "_high")})
    frame.to_csv(folder / f"{QUALITY}.csv", index=False)
    provenance = {
        "chapter": "private-classifiers",
        "sha256": hashlib.sha256((folder / f"{QUALITY}.csv").read_bytes()).hexdigest(),
        "parameters": {"n_seeds": 20},
        "seconds": 1,
        "cores": 2,
        "date": str(date(2026, 1, 1)),
    }
    (folder / f"{QUALITY}.json").write_text(json.dumps(provenance))


def test_the_card_says_what_holds_and_what_does_not(classifier, no_results):
    card = render(classifier)
    for words in (
        "Epsilon</dt><dd>5</dd>",
        "Delta</dt><dd>1e-06</dd>",
        "replace-one",
        "code book",
        COLUMNS_PUBLIC,
        "each further fit adds",
        "All: 3,000 (public).",
        "a noisy count",
        "No results are recorded",
        "scikit-learn",
        "<td>0 to 100</td>",
        "<td>0 to 10 or missing</td>",
        "<svg",
    ):
        assert words in card, words
    assert "<script" not in card
    assert "http-equiv" not in card
    assert "<b>$x" not in card  # names are escaped
    assert "&lt;b&gt;$x^2$" in card
    count = float(re.search(r"<li>yes: ([\d,]+) ± (\d+)", card)[1].replace(",", ""))
    assert abs(count - classifier.model.marginals_.counts[1]) <= 0.5


def test_names_are_no_markup(no_results):
    names = {key: f"<{key}>" for key in ("basis", "label", "yes", "no", "age")}
    schema = Schema.parse(
        f"basis: {names['basis']}\nrows_per_person: 1\n"
        f"label: {{column: {names['label']}, levels: [{names['no']}, {names['yes']}], "
        f"minority: {names['yes']}}}\ncolumns: {{{names['age']}: {{kind: real, low: 0, high: 100}}}}"
    )
    records = table().rename(columns={"age": names["age"], "ill": names["label"]})
    records[names["label"]] = records[names["label"]].map(names)
    card = render(PublishedClassifier.fit(records, schema))
    for key, name in names.items():
        assert name not in card
        assert f"&lt;{key}&gt;" in card


def test_without_a_public_size_the_card_has_a_noisy_one(no_results):
    found = PublishedClassifier.fit(table(), SCHEMA, epsilon=1.0, neighbouring=ADD_REMOVE)
    assert f"All: {found.model.marginals_.n_records:,.0f} (with noise)." in render(found)
    assert "Delta must be far less" in render(found)


def test_expected_quality_is_that_of_the_nearest_recorded_sets(classifier, no_results):
    rows = [
        (f"set{k}", n, n // 4, epsilon, 0.5 + k / 100)
        for k, n in enumerate([100, 1000, 3000, 9000, 10**6])
        for epsilon in (0.1, 1.0, 4.0)
    ]
    record(no_results, rows)
    found, label = expected_quality(3100, 700.0, 5.0)
    assert found["dataset"].tolist() == ["set2", "set1", "set3"]
    assert set(found["epsilon"]) == {4.0}
    assert label == "recorded 2026-01-01 with parameters of its own, 1 s"
    card = render(classifier)
    for words in (
        "at epsilon = 4 (replace-one)",
        "<td>set2</td><td>3,000</td><td>750</td><td>0.52 (0.48 to 0.55)</td><td>0.70 (0.70 to 0.70)</td>",
        "single fits on 20 splits or more",
        "no promise for yours",
    ):
        assert words in card, words
    assert expected_quality(3100, -3.0, 0.01)[0]["epsilon"].tolist() == [0.1] * 3
    assert "as yours" not in card
    assert not expected_quality(3100, 3.0, 1.0)[0]["within"].any()
    assert not expected_quality(10**7, 700.0, 1.0)[0]["within"].any()
    other = PublishedClassifier.fit(table(), SCHEMA, epsilon=5.0, neighbouring=ADD_REMOVE)
    assert "<td>0.62 (0.58 to 0.65)</td>" in render(other)


def test_what_is_expected_is_recorded_for_both_relations():
    for relation in ("replace-one", "add/remove"):
        found, _ = expected_quality(1000, 60.0, 1.0, relation)
        assert len(found) == 3
        for score in ("auc", "balanced_accuracy"):
            assert (found[f"{score}_low"] <= found[score]).all()
            assert (found[score] <= found[f"{score}_high"]).all()


def test_a_count_that_may_be_noise_alone_is_said_to_be_so(no_results):
    few = PublishedClassifier.fit(table(400, share=0.0), SCHEMA, epsilon=0.1)
    [said] = re.findall(r"<li>yes: .*?</li>", render(few))
    hidden = few.model.marginals_.counts[1] < 1.96 * few.model.marginals_.noise_scale
    assert ("the noise may be all of it" in said) == hidden


# ---------------------------------------------------------------------------------------------------------- the figure


def test_shapes_are_drawn_with_the_noise_of_the_fit(classifier):
    figure = plot_shapes(classifier.model, class_names=("no", "yes"))
    shapes = {shape.name: shape for shape in classifier.model.shapes_}
    assert {axes.get_title() for axes in figure.axes} == set(shapes)
    assert figure.axes[0].get_title() == "age"  # the only one that matters
    [line] = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 8]
    assert np.array_equal(line.get_ydata(), shapes["age"].log_odds[0])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    spread = 1.96 * shapes["age"].noise_scale[0]
    assert np.isclose(band[:, 1].max(), (shapes["age"].log_odds[0] + spread).max())
    assert np.isclose(band[:, 1].min(), (shapes["age"].log_odds[0] - spread).min())
    assert len(plot_shapes(classifier.model, most=2).axes) == 2
    with pytest.raises(ValueError, match="most must be"):
        plot_shapes(classifier.model, most=0)


def test_shapes_of_several_classes_have_a_legend():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (400, 1)), rng.integers(0, 3, 400)
    figure = plot_shapes(PrivateMomentClassifier(classes=(0, 1, 2)).fit(X, y))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1", "2"]
