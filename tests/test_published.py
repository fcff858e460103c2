"""The recipe from a file to a published classifier: what it says has been paid for, or is public."""

import dataclasses
import hashlib
import inspect
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import cli, data, paths
from helpers.book.card import METHOD, QUALITY, _product, recorded_quality, render, verdict, warnings
from helpers.book.shapes import plot_shapes
from helpers.cli import main
from helpers.data import Schema
from helpers.erm.moments import PrivateMomentClassifier
from helpers.meta import spending
from helpers.meta.published import COLUMNS_PUBLIC, QUOTES_CLOSED, PublishedClassifier
from helpers.meta.quality import Quality
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee

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


def fit(*arguments, file="my.csv", out="m", epsilon="5"):
    return main(["fit", file, "--epsilon", epsilon, "--out", out, *arguments])


def load(folder):
    return PublishedClassifier.load(Path(folder) / "model.json")


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
    one, other = (dict(leaves(load(folder))) for folder in stored)
    assert one.keys() == other.keys()
    return {place: value for place, value in one.items() if value == other[place]}, len(one)


@pytest.mark.parametrize(
    ("relation", "sizes"), [("replace-one", (N, N)), ("add-remove", (N, N - 450))], ids=["replace-one", "add-remove"]
)
def test_what_is_the_same_in_two_fits_is_the_same_for_any_other_records(folder, capsys, relation, sizes):
    """Whatever is no function of public things and noise would be equal in fits to one table and differ for another.

    Any table leads to any other by steps of one record, so a pair that differs in all records tests every step.
    """
    common = []
    for k, n in enumerate(sizes):
        records = table(n, seed=k, tilt=1.0 + 2 * k, share=0.3 + 0.3 * k)
        records.iloc[-3:] = "garbage" if k else records.iloc[-3:]
        records.to_csv(f"t{k}.csv", index=False)
        stored = [f"{k}{again}" for again in "ab"]
        for out in stored:
            schema = folder / f"{out}.schema.yaml"  # of its own, so that no other fit is on the card
            schema.write_text(TEXT)
            assert fit("--schema", str(schema), "--neighbouring", relation, file=f"t{k}.csv", out=out) == 0
            shown = capsys.readouterr()
            found = load(out)
            word, reason = verdict(found)
            assert shown.out == f"{found.guarantee}\n{word}: {reason}\n{out}/model.json\n{out}/card.html\n"
            assert shown.err == "".join(f"dpbook: warning: {text}\n" for text in warnings(found))
            # A function of what is stored, so it needs no other look.
            assert (folder / out / "card.html").read_text() == render(found, [found.guarantee])
        common.append(without_noise(stored))
    (same, n_leaves), (same_there, n_there) = common
    assert same == same_there
    assert n_leaves == n_there > len(same) + 100  # more than 100 are noise or hidden by it
    values = list(same.values())
    assert (0.8 * N in values) == (relation == "replace-one")  # so many are learned from


def test_what_is_stored_holds_no_seed_and_no_records(folder):
    assert fit() == 0
    assert load("m").model.random_state is None
    stored = (folder / "m" / "model.json").read_bytes()
    for text in (b"random_state_", b"my.csv", str(folder).encode(), b"garbage"):
        assert text not in stored


# Cells that are wrong in every way; a record may hold any of them.
@pytest.mark.parametrize("cell", ["", "nan", "-inf", "1e999", "east", "🎲", "0x10", '"quoted"', "1,5", "=1+1"])
def test_no_record_can_stop_a_fit(folder, capsys, cell):
    records = table(400)
    records.iloc[7] = cell
    records.to_csv("my.csv", index=False)
    assert fit() == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(("column", "cell"), [("age", "50"), ("ward", "west"), ("ill", "no"), ("ill", "yes")])
def test_a_constant_column_or_one_class_is_a_table_like_others(folder, capsys, column, cell):
    records = table(400)
    records[column] = cell
    records.to_csv("my.csv", index=False)
    assert fit() == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["predict", "m", "my.csv", "--out", "p.csv"]) == 0
    assert pd.read_csv("p.csv")["probability of yes"].between(0, 1).all()


def test_a_table_that_does_not_fit_into_memory_is_refused(folder, capsys, monkeypatch):
    def full(*arguments, **options):
        raise MemoryError("for an array with shape (77777,)")

    for place in ("helpers.data.tables._columns", "helpers.meta.published.PrivateMomentClassifier.fit"):
        with monkeypatch.context() as patched:
            patched.setattr(place, full)
            refused(
                capsys, ["fit", "my.csv", "--epsilon", "1", "--out", "m"], "the table must fit into memory .*columns$"
            )


def test_a_file_without_records(folder, capsys):
    table(0).to_csv("my.csv", index=False)
    refused(capsys, ["fit", "my.csv", "--epsilon", "1", "--out", "m"], "one or more persons to learn from, got 0")
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
    ],
)
def test_refused_before_the_records_are_read(folder, capsys, monkeypatch, arguments, words):
    (folder / "marked.yaml").write_text(
        TEXT.replace("low: 0, high: 100", "low: !private-confirm-or-replace 0, high: 1")
    )
    (folder / "large.yaml").write_text(TEXT.replace("  age:", "  x{1..2000}:"))
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
        (["fit", "my.csv", "--epsilon", "1", "--out", "my.csv"], "--out must be a new file"),
        (["fit", "my.csv", "--epsilon", "1", "--out", "no/new"], "--out must be in a folder that can be written"),
        (["predict", "my.csv", "my.csv", "--out", "p"], "model must be a file of a stored classifier, got something"),
        (["predict", "no.json", "my.csv", "--out", "p"], "model must be a file of a stored classifier, got 'no.json'"),
        (["schema", "my.csv", "--label", "health"], "--out, or its default, must be a new file"),
        (["schema", "my.csv", "--label", "health", "--out", "s"], "label must be one of"),
        (["schema", "my.csv", "--check", "no.yaml"], "schema must be a text file"),
    ],
)
def test_bad_input_ends_with_exit_code_2(folder, capsys, arguments, words):
    table().drop(columns="ill").to_csv("less.csv", index=False)
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
        ["fit", "my.csv", "--epsilon", "1", "--out", "m"],
        "15 entries .*, the first in line 5;",
    )
    proposal = (folder / "my.schema.yaml").read_text()
    confirmed = proposal.replace("!private-confirm-or-replace ", "").replace("basis: ''", "basis: b")
    (folder / "my.schema.yaml").write_text(confirmed)
    assert fit("--label", "ill", "--schema", "my.schema.yaml") == 0
    assert main(["predict", "m", "my.csv", "--out", "p.csv"]) == 0
    answer, truth = pd.read_csv("p.csv"), table(tilt=4.0)["ill"]
    assert list(answer) == ["prediction", "probability of no", "probability of yes", "yes from"]
    assert ((answer["probability of yes"] > answer["yes from"]) == (answer["prediction"] == "yes")).all()
    assert len(answer) == N
    recalls = [np.mean(answer["prediction"][truth == name] == name) for name in ("no", "yes")]
    assert np.mean(recalls) > 0.7
    assert np.allclose(answer.filter(like="probability of").sum(axis=1), 1)


def test_file_and_schema_are_found_in_the_data_folder(folder, monkeypatch):
    (folder / "elsewhere").mkdir()
    monkeypatch.setenv("DPBOOK_DATA", str(folder))
    monkeypatch.chdir(folder / "elsewhere")
    assert fit() == 0
    assert {file.name for file in (folder / "elsewhere").iterdir()} == {"m"}


def test_check_counts_what_breaks_the_schema_for_the_holder(folder, capsys):
    assert main(["schema", "my.csv", "--check", "my.schema.yaml"]) == 0
    assert capsys.readouterr().out == "every row follows the schema\n"
    records = table()
    records.loc[:4, "age"] = "secret"
    records.to_csv("my.csv", index=False)
    assert main(["schema", "my.csv", "--check", "my.schema.yaml"]) == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["age", "5", "not", "a", "number"]
    assert shown.endswith("findings to look at: 1; none of them stops a fit\n")


def test_a_full_disk_leaves_nothing_but_the_note_that_budget_was_spent(folder, capsys, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    for place in ("helpers.book.card.render", "helpers.meta.published.json.dumps"):
        with monkeypatch.context() as patched:
            patched.setattr(place, full)
            assert fit() == 1
        assert "No space left on device" in capsys.readouterr().err
        assert {file.name for file in folder.iterdir()} - {"my.budget.jsonl"} == {"my.csv", "my.schema.yaml"}
    assert fit() == 0
    capsys.readouterr()
    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    assert main(["predict", "m", "my.csv", "--out", "p.csv"]) == 1
    assert not list(folder.glob("p.csv*"))


KILLED = """
import os, signal, sys
from helpers import cli
from helpers.book import card
card.render = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
cli.main(["fit", "my.csv", "--epsilon", "1", "--out", "m"])
"""


def test_a_killed_fit_publishes_nothing_and_the_next_one_goes_on(folder):
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / "m").exists()
    assert (folder / "m.part" / "model.json").exists()
    assert len((folder / "my.budget.jsonl").read_text().splitlines()) == 1
    assert fit() == 0
    assert not (folder / "m.part").exists()
    assert len((folder / "my.budget.jsonl").read_text().splitlines()) == 2


def test_of_two_fits_to_one_place_the_second_is_refused_before_it_reads_a_record(folder, capsys, monkeypatch):
    arguments = ["fit", "my.csv", "--epsilon", "1", "--out", "m"]
    with cli._folder_that_appears(folder / "m") as first:
        (first / "model.json").touch()
        monkeypatch.setattr("helpers.meta.published.read", lambda *a, **k: pytest.fail("the file was read"))
        refused(capsys, arguments, "--out must be a place where no other run writes, got 'm'")
    assert [file.name for file in (folder / "m").iterdir()] == ["model.json"]
    refused(capsys, arguments, "--out must be a new file, got 'm', which exists")


def test_what_was_spent_is_noted_beside_the_schema_and_added_up(folder, capsys):
    for k in range(3):
        assert fit(out=f"m{k}", epsilon="1") == 0
    assert "this is fit number 3 to this table: all together promise only (3, 3e-06)-DP" in capsys.readouterr().err
    assert "This is fit number" not in (folder / "m0/card.html").read_text()
    assert (
        "at most 95.3 % sure, and a bet at even odds one at 20.1 to 1; a probability of 1 in 333,333"
        in (folder / "m2/card.html").read_text()
    )  # epsilon 3
    assert (
        "Together with the 2 earlier fits that are noted for this table: (3, 3e-06)-DP"
        in (folder / "m2/card.html").read_text()
    )
    arguments = ["fit", "my.csv", "--epsilon", "1", "--out", "m3", "--budget"]
    said = r"epsilon must be at most 0\.5, what earlier fits have left of the budget of 3\.5 \(3 is noted in my\.budget"
    refused(capsys, [*arguments, "3.5"], said)
    assert not (folder / "m3").exists()
    assert main([*arguments, "4"]) == 0
    notes = [json.loads(line) for line in (folder / "my.budget.jsonl").read_text().splitlines()]
    assert [note["epsilon"] for note in notes] == [1.0] * 4
    assert {(note["neighbouring"], note["unit"], note["delta"]) for note in notes} == {("replace-one", "person", 1e-6)}
    (folder / "my.budget.jsonl").write_text("spoilt\n")
    refused(
        capsys,
        [*arguments[:-2], "m4", "--budget", "9"],
        r"my\.budget\.jsonl must hold a note of a fit in every line, .* in line 1",
    )


def test_totals_are_for_the_weaker_relation_and_unit():
    spent = [Guarantee(1.0, 1e-6, ADD_REMOVE, unit="person"), Guarantee(0.5, 0.0, REPLACE_ONE, unit="record")]
    assert (spending.total(spent).epsilon, spending.total(spent).neighbouring) == (2.5, REPLACE_ONE)
    assert spending.total(spent).delta == pytest.approx(1e-6 * (1 + math.e))
    assert (spending.total(spent).unit, spending.total(spent[:1]).unit) == ("record", "person")


@pytest.mark.parametrize(
    "arguments", [["--eps", "1"], ["--epsilon", "1", "--epsilon", "2"], ["--schema", "a", "--schema", "a"]]
)
def test_options_are_given_once_and_by_their_names(folder, capsys, arguments):
    with pytest.raises(SystemExit) as stopped:
        fit(*arguments)
    assert stopped.value.code == 2
    assert re.search("unrecognized arguments: --eps|must be given once, got it twice", capsys.readouterr().err)


# ------------------------------------------------------------------------------------------------------- what is stored


def test_a_flipped_bit_is_refused(classifier, tmp_path):
    classifier.save(tmp_path / "m")
    stored = (tmp_path / "m").read_bytes()
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(stored), 200, replace=False):
        spoilt = bytearray(stored)
        spoilt[bit // 8] ^= 1 << (bit % 8)
        (tmp_path / "m").write_bytes(spoilt)
        with pytest.raises(ValueError, match="model must be a file"):
            PublishedClassifier.load(tmp_path / "m")
    for spoilt in (stored[:-1], stored + b" ", b"", stored[stored.index(b"\n") :]):
        (tmp_path / "m").write_bytes(spoilt)
        with pytest.raises(ValueError, match="model must be a file"):
            PublishedClassifier.load(tmp_path / "m")


def test_a_stored_classifier_is_the_same_in_all_parts_and_runs_no_code(classifier, tmp_path):
    classifier.save(tmp_path / "m")
    found = PublishedClassifier.load(tmp_path / "m")
    assert dict(leaves(found)) == dict(leaves(classifier))
    assert found.to_text() == classifier.to_text()
    assert render(found) == render(classifier)
    head, body = (tmp_path / "m").read_bytes().split(b"\n", 1)
    for kind in (b"Popen", b"object", b"list"):
        forged = body.replace(b'"kind": "Schema"', b'"kind": "%s"' % kind)
        assert forged != body
        digest = hashlib.sha256(forged).hexdigest().encode()
        (tmp_path / "m").write_bytes(re.sub(rb"[0-9a-f]{64}", digest, head) + b"\n" + forged)
        with pytest.raises(ValueError, match="model must be a stored classifier, got KeyError"):
            PublishedClassifier.load(tmp_path / "m")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="model must be a file of a stored classifier, got 'pipe'"):
        PublishedClassifier.load(tmp_path / "pipe")


def test_a_file_that_is_larger_than_any_classifier_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda file: b"")
    for more, words in ((0, "got something else in 'm'"), (1, "a stored classifier, got 'm'")):
        with (tmp_path / "m").open("wb") as file:
            file.truncate(2**28 + more)  # which takes no room on the disk
        with pytest.raises(ValueError, match=words):
            PublishedClassifier.load(tmp_path / "m")


def test_what_was_paid_for_cannot_be_exchanged(classifier):
    with pytest.raises(FrozenInstanceError):
        classifier.quality = None


def test_each_row_has_its_answer_beside_what_names_it(folder, capsys):
    assert fit() == 0
    (folder / "others.csv").write_text('id,age,dose,ward,ill\n007,50,1,north,yes\n\n"a,b",x\n"open,9,9,west,no\n')
    assert main(["predict", "m", "others.csv", "--out", "p.csv"]) == 0
    answer = pd.read_csv("p.csv", dtype=str, keep_default_na=False)
    assert answer["id"].tolist() == ["007", "", "a,b", "open,9,9,west,no"]
    assert list(answer) == ["id", "prediction", "probability of no", "probability of yes", "yes from"]
    said = capsys.readouterr().err
    assert "note: column 'age' has 3 of 4 rows: not a number\n" in said  # all but the first line
    (folder / "others.csv").write_text("prediction,age,dose,ward\n1,2,3,4\n")
    refused(capsys, ["predict", "m", "others.csv", "--out", "q.csv"], "table must have no column called prediction")


# ------------------------------------------------------------------------------------------------------- whose rows


def with_person(n=N):
    return Schema.parse(TEXT.replace("rows_per_person: 1", "person: id")), table(n, tilt=3.0).assign(id=np.arange(n))


def test_the_command_and_python_give_one_model_for_one_seed(folder):
    records = data.load("my.csv", schema="my.schema.yaml")
    model = PrivateMomentClassifier(epsilon=2.0, delta=1e-6, domain=SCHEMA.domain, random_state=3)
    model.fit(records.X, records.y)
    for source in ("my.csv", table()):
        found = PublishedClassifier.fit(source, SCHEMA, epsilon=2.0, measure=False, random_state=3)
        assert dict(leaves(found.model)) == dict(leaves(model))


def test_writing_every_person_ten_times_changes_nothing_where_persons_are_named():
    schema, records = with_person()
    once, often = (
        PublishedClassifier.fit(each, schema, epsilon=1.0, random_state=0)
        for each in (records, pd.concat([records] * 10, ignore_index=True))
    )
    assert once.guarantee.unit == often.guarantee.unit == "person"
    # The seeded noise differs, because it depends on the records; what is public does not.
    assert often.model.sizes_.n_records == once.model.sizes_.n_records == 0.8 * N
    assert often.quality.noise_scale == once.quality.noise_scale
    assert abs(often.quality.counts.sum() - 0.2 * N) < 20 * once.quality.noise_scale


def test_all_rows_of_a_person_are_on_one_side(monkeypatch):
    schema, records = with_person(300)
    records = pd.concat([records] * 3, ignore_index=True)
    held = []
    monkeypatch.setattr(
        "helpers.meta.published.PrivateMomentClassifier.fit",
        lambda self, X, y, groups=None: held.append(groups) or (_ for _ in ()).throw(KeyboardInterrupt),
    )
    for relation in (REPLACE_ONE, ADD_REMOVE):
        held.clear()
        with pytest.raises(KeyboardInterrupt):
            PublishedClassifier.fit(records, schema, neighbouring=relation, delta=1e-4)
        learned_from = held[-1]
        if len(learned_from) == 0:  # the fit to nobody, which checks the parameters
            continue
        assert (np.bincount(learned_from)[np.unique(learned_from)] == 3).all()
        assert 0 < len(np.unique(learned_from)) < 300


def test_the_promise_is_for_whom_the_schema_says():
    for entry, unit, factor in (("1", "person", 1), ("4", "person", 4), ("unknown", "record", 1)):
        schema = Schema.parse(TEXT.replace("rows_per_person: 1", f"rows_per_person: {entry}"))
        found = PublishedClassifier.fit(table(), schema, epsilon=1.0)
        assert found.guarantee.unit == unit
        assert found.quality.noise_scale == 2.0 * factor
        assert found.model.rows_per_person == factor
        card = render(found)
        assert ("for single rows" in card) == (unit == "record")
        assert (f"{factor} times what it would be" in card) == (factor > 1)


def test_the_guarantee_names_all_that_it_stands_on(classifier):
    given = classifier.guarantee
    assert (given.epsilon, given.delta, given.neighbouring) == (5.0, 1e-6, REPLACE_ONE)
    assert COLUMNS_PUBLIC in given.assumes
    assert "number of records public" in given.assumes
    assert any("code book" in item for item in given.assumes)
    one_more = PublishedClassifier.fit(table(), SCHEMA, epsilon=1.0, neighbouring=ADD_REMOVE).guarantee
    assert one_more.neighbouring is ADD_REMOVE
    assert "number of records public" not in one_more.assumes


def test_the_guarantee_names_quotes_and_persons_held_out_only_where_they_matter(classifier):
    assert QUOTES_CLOSED not in classifier.guarantee.assumes
    quoted = Schema.parse(TEXT + "quoted_newlines: true\n")
    assert QUOTES_CLOSED in replace(classifier, schema=quoted).guarantee.assumes
    assert "parallel composition" in classifier.guarantee.source
    assert "parallel composition" not in replace(classifier, quality=None).guarantee.source


def test_a_seed_repeats_who_is_held_out():
    one, same, other = (
        PublishedClassifier.fit(table(300), SCHEMA, random_state=seed).to_text() for seed in (3, 3, None)
    )
    assert one == same != other


def test_the_fewest_records_and_the_largest_delta():
    for measure in (True, False):
        found = PublishedClassifier.fit(table(1), SCHEMA, epsilon=1.0, measure=measure)
        assert found.model.sizes_.n_records == 1
        with pytest.raises(ValueError, match="one or more persons to learn from, got 0"):
            PublishedClassifier.fit(table(0), SCHEMA, epsilon=1.0, measure=measure)
    PublishedClassifier.fit(table(8), SCHEMA, epsilon=1.0, delta=0.124)
    with pytest.raises(ValueError, match=r"delta must be less than one over the number of records, 8, got 0\.125"):
        PublishedClassifier.fit(table(8), SCHEMA, epsilon=1.0, delta=0.125)


def test_a_budget_is_given_by_name_and_is_one_by_default():
    """Two numbers that are swapped by mistake would be another guarantee."""
    parameters = dict(inspect.signature(PublishedClassifier.fit).parameters)
    del parameters["table"], parameters["schema"]
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "epsilon": 1.0,
        "delta": 1e-6,
        "neighbouring": REPLACE_ONE,
        "measure": True,
        "recall": None,
        "alarms": None,
        "random_state": None,
        "on_begin": None,
    }


def test_predictions_need_no_label_and_read_cells_as_the_fit_did(classifier):
    records = table(50, seed=5)
    answer = classifier.predict(records)
    assert answer.equals(classifier.predict(records.drop(columns="ill")))
    X, _, _ = SCHEMA.encode(records)
    assert (answer["prediction"] == np.array(SCHEMA.class_names)[classifier.model.predict(X)]).all()
    assert (answer["probability of yes"] == classifier.model.predict_proba(X)[:, 1]).all()
    nobody = classifier.predict(records[:0])
    assert list(nobody) == list(answer)
    assert len(nobody) == 0


def test_several_classes(tmp_path):
    schema = Schema.parse(
        "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [low, mid, top]}\n"
        "columns: {x: {kind: real, low: 0, high: 3}}"
    )
    x = np.random.default_rng(0).uniform(0, 3, 3000)
    records = pd.DataFrame({"x": x.astype(str), "y": np.array(["low", "mid", "top"])[x.astype(int)]})
    found = PublishedClassifier.fit(records, schema, epsilon=5.0)
    assert np.mean(found.predict(records)["prediction"] == records["y"]) > 0.7
    assert re.search("&ldquo;top&rdquo;: [78]..", render(found))
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
        "Each further release from the same records, a fit too, adds to the budget",
        "Learned from: 2,400 rows (public).",
        "99.3&nbsp;%",  # 1/(1 + exp(-5))
        "at 148 to 1 at most",
        "1 in 1,000,000",
        "a noisy count",
        "No results are recorded",
        "A person, who has one row in the table.",
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
    count = float(re.search(r"<li>&ldquo;yes&rdquo;: ([\d,]+) &plusmn; (\d+)", card)[1].replace(",", ""))
    assert abs(count - classifier.model.sizes_.counts[1]) <= 0.5


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
    assert f"Learned from: {found.model.sizes_.n_records:,.0f} rows (with noise)." in render(found)


def test_recorded_quality_is_of_all_sets_with_a_similar_product(classifier, no_results):
    rows = [(f"set{k}", 1000, n, epsilon, 0.5 + k / 100) for k, n in enumerate([10, 20, 40, 80]) for epsilon in (1, 4)]
    record(no_results, rows)
    found = recorded_quality(80.0)
    assert sorted(zip(found["dataset"], found["epsilon"], strict=True)) == [
        *(("set0", 4), ("set1", 4), ("set2", 1), ("set2", 4), ("set3", 1)),
    ]
    assert recorded_quality(80.0, "add/remove")["auc"].min() == pytest.approx(0.6)
    assert recorded_quality(1e6) is None
    card = render(replace(classifier, quality=None))
    assert "No results are recorded for other tables" in card


def test_what_is_expected_is_recorded_for_both_relations():
    for relation in ("replace-one", "add/remove"):
        found = recorded_quality(60.0, relation)
        assert len(found) > 3
        for score in ("auc", "balanced_accuracy"):
            assert (found[f"{score}_low"] <= found[score]).all()
            assert (found[score] <= found[f"{score}_high"]).all()


def test_the_verdict_is_a_word_with_its_reason(classifier, no_results):
    for counts, expected in (
        ([[900, 100], [10, 90]], "useful"),
        ([[650, 350], [105, 195]], "limited"),
        ([[500, 500], [300, 300]], "guessing"),
        ([[500, 500], [3, 4]], "unknown"),
    ):
        found = replace(classifier, quality=Quality(np.array(counts, dtype=float), 1.0))
        word, reason = verdict(found)
        assert word == expected, reason
        assert "people who were held out" in reason
        assert f"<strong>{word}</strong>" in render(found)
    unmeasured = replace(classifier, quality=None)
    assert verdict(unmeasured) == ("unknown", "nobody was held out, so nothing was measured")
    rows = [("set", 1000, int(_product(classifier) / 5), 5.0, 0.5)]
    record(no_results, rows)
    assert verdict(unmeasured)[0] == "unknown"  # the recorded balanced accuracy is .7


def test_warnings_are_of_public_and_released_numbers(no_results):
    few = PublishedClassifier.fit(table(400, share=0.0), SCHEMA, epsilon=0.1, delta=0.1, neighbouring=ADD_REMOVE)
    hidden = few.model.sizes_.counts[1] < 1.96 * few.model.sizes_.noise_scale
    assert any("there may be none" in text for text in warnings(few)) == hidden
    assert any("delta is 0.1, more than one over the" in text for text in warnings(few))
    strong = PublishedClassifier.fit(table(400), SCHEMA, epsilon=1000.0)
    assert any("epsilon is 1000: above 10" in text for text in warnings(strong))
    assert "epsilon is 1000: above 10" in render(strong)


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


@pytest.mark.parametrize("quoted", [False, True])
def test_the_card_says_what_quoted_line_breaks_cost(quoted):
    schema = dataclasses.replace(SCHEMA, quoted_newlines=quoted)
    shown = render(PublishedClassifier.fit(table(200), schema, epsilon=1.0))
    assert ("opens a quote and does not close it" in shown) == quoted


@pytest.mark.parametrize("target", [{"recall": 0.8}, {"alarms": 40.0}])
def test_a_target_is_kept_with_the_classifier_and_told_on_the_card(target, tmp_path):
    classifier = PublishedClassifier.fit(table(2000), SCHEMA, epsilon=3.0, random_state=0, **target)
    classifier.save(tmp_path / "model.json")
    again = PublishedClassifier.load(tmp_path / "model.json")
    said = again.predict(table(300))
    (name,) = [column for column in said if column.endswith(" from")]
    rare = name.removesuffix(" from")
    assert ((said[f"probability of {rare}"] > said[name]) == (said["prediction"] == rare)).all()
    assert (
        again.threshold
        == classifier.threshold
        != PublishedClassifier.fit(table(2000), SCHEMA, epsilon=3.0, random_state=0).threshold
    )
    shown = render(again)
    assert ("asked to find 80 % of the cases" if "recall" in target else "asked for 40 alarms in 1,000") in shown


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (
            [[900.0, 0.0], [0.0, 400.0]],
            r"About 1,300 rows were held out, each counted once, about 400 of .*, "
            r"9[\d.]+ to 100 % are right.*: about 1 \(1 to 1\)\.",
        ),
        (
            [[900.0, 90.0], [0.0, 0.0]],
            r"Of the alarms, 0 to [\d.]+ % are right.*: at least \d+\.",
        ),
    ],
)
def test_alarms_are_told_where_all_or_none_of_them_are_right(classifier, no_results, counts, words):
    assert re.search(words, render(replace(classifier, quality=Quality(np.array(counts), 1.0))))
