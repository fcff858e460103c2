"""Recorded results: whole sets, whatever happens to the process that records them, and never other bytes."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import nbformat
import pandas as pd
import pytest

from helpers import book, paths
from helpers.book import freshness, plan, record, results
from helpers.book.chapters import ChapterError, chapter
from helpers.cli import main

NAMES = [f"t{number}" for number in range(4)]


class TinyChapter:
    """What a recording asks of a chapter."""

    name = "tiny"
    defaults = {"n": 1, "m": 5}  # noqa: RUF012


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return tmp_path


def tables(folder, value, names=NAMES):
    run = folder / f"run{value}"
    run.mkdir(exist_ok=True)
    for name in names:
        pd.DataFrame({"value": [value] * 50}).to_csv(run / f"{name}.csv", index=False)
    return sorted(run.glob("*.csv"))


def keep(folder, value, names=NAMES, *, replace=True):
    provenance = {"chapter": "tiny", "parameters": {"n": value}, "date": "2026-01-01", "seconds": 7, "cores": 2}
    return record.commit(TinyChapter, tables(folder, value, names), provenance, replace=replace)


def seen() -> set:
    """The values that a reader finds in the tables and beside them; one value if the set is whole."""
    with results.locked():
        found = [(book.recorded(name)[0]["value"].unique().tolist(), results.read(name)[1]) for name in NAMES]
    return {value for values, provenance in found for value in [*values, provenance["parameters"]["n"]]}


# Every step


def attempt(folder, prepare, fired=lambda: True) -> str:
    """How recording value 2 ended in a child process: "killed", "error", "done", or "untouched" if nothing fired."""
    child = os.fork()
    if child == 0:
        try:
            files = tables(folder, 2)
            provenance = {"chapter": "tiny", "parameters": {"n": 2}, "date": "2026-01-02", "seconds": 7, "cores": 2}
            prepare()
            record.commit(TinyChapter, files, provenance, replace=True)
        except OSError:
            os._exit(1)
        os._exit(2 if fired() else 3)
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else ("", "error", "done", "untouched")[os.WEXITSTATUS(status)]


EVENTS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.listdir", "os.scandir", "os.truncate")


def stopped_at(step: int, folder, how) -> str:
    """`attempt`, with `how` called in the place of the `step`-th access to files."""
    steps = []

    def watch(event, _):
        if event in EVENTS:
            steps.append(event)
            if len(steps) == step:
                how()

    return attempt(folder, lambda: sys.addaudithook(watch), lambda: len(steps) >= step)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("how", [killed, full])
def test_stopped_at_any_step_the_old_or_the_new_set_is_there(folder, how):
    outcomes, ended = [], ""
    while ended != "untouched":
        keep(folder, 1)
        assert seen() == {1}
        ended = stopped_at(len(outcomes) + 1, folder, how)
        values = seen()
        assert values in ({1}, {2}), f"mixed at step {len(outcomes) + 1}"
        assert book.recorded_names() == NAMES
        outcomes.append(*values)
        keep(folder, 3)  # what the stopped process left is no obstacle
        assert seen() == {3}
        assert {file.suffix for file in paths.RESULTS.iterdir()} == {".csv", ".json"}
    assert outcomes.count(1) > 15  # stopped before the decision
    assert outcomes.count(2) > 5  # and after it
    assert how is full or outcomes == sorted(outcomes)


def test_a_write_that_stops_half_way_leaves_the_old_set(folder):
    keep(folder, 1)
    limit = 50  # bytes; a table has 106
    assert attempt(folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) == "error"
    assert seen() == {1}
    assert not list(paths.RESULTS.glob(".*"))


def test_a_failure_of_the_disk_while_writing_is_reported(folder, monkeypatch):
    keep(folder, 1)
    monkeypatch.setattr(record.os, "fsync", lambda _: full())
    with pytest.raises(OSError, match="No space left"):
        keep(folder, 2)
    assert seen() == {1}
    assert not list(paths.RESULTS.glob(".*"))


def test_a_reader_needs_no_right_to_write(folder, monkeypatch):
    """A set that was decided and not moved is read where it is."""
    keep(folder, 1)
    monkeypatch.setattr(record, "_settle", lambda: None)
    keep(folder, 2)
    assert results.pending().is_dir()
    before = sorted(paths.RESULTS.rglob("*"))
    assert seen() == {2}
    assert sorted(paths.RESULTS.rglob("*")) == before


SCRIPT = """
import sys
from pathlib import Path
from helpers import paths
sys.path.insert(0, str(paths.ROOT / "tests"))
import test_record
folder, first = Path(sys.argv[1]), int(sys.argv[2])
paths.RESULTS = folder / "results"
for value in range(first, first + int(sys.argv[3])):
    test_record.keep(folder, value)
    print(value, flush=True)
"""


def start(folder, first, many):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(first), str(many)], stdout=subprocess.PIPE, text=True
    )


def test_two_at_once_never_mix_for_any_reader(folder):
    keep(folder, 1)
    both = [start(folder, 100, 30), start(folder, 200, 30)]
    found = []
    while any(process.poll() is None for process in both):
        found.append(seen())
    assert [process.wait() for process in both] == [0, 0]
    for process in both:
        process.stdout.close()
    assert all(len(values) == 1 for values in found)
    assert len({value for values in found for value in values}) > 10


def test_killed_in_the_middle_of_many(folder):
    keep(folder, 1)
    for attempt in range(3):
        process = start(folder, 1000 * (attempt + 1), 10**6)
        first = process.stdout.readline()
        time.sleep(0.05 + 0.037 * attempt)
        process.kill()
        process.communicate()
        [value] = seen()
        assert value >= int(first)


# The whole book

COMMAND = """
import sys
from pathlib import Path
from helpers import paths
root = Path(sys.argv[1])
for name in ("BOOK", "PARAMS", "REFERENCE", "RESULTS", "RUNS"):
    setattr(paths, name, root / name.lower())
paths.ROOT, paths.APPENDIX = root, root / "book" / "appendix"
from helpers.cli import main
sys.exit(main(sys.argv[2:]))
"""
CHAPTER = """
import time
from pathlib import Path
import pandas as pd
from helpers import book, paths
from helpers.study import experiments
ROOT = Path({root!r})
def table_of_two():
    paths.RESULTS = ROOT / "results"
    return book.recorded("two-squares")[0]
def trial(seed):
    with open(ROOT / "runs" / "ran.txt", "a") as log:
        log.write(f"{name} {{seed}}\\n")
    while seed == 2 and (ROOT / "runs" / "wait").exists():
        time.sleep(0.05)
    return {{"square": seed**2}}
squares = experiments.run(trial, [{{"seed": seed}} for seed in range(n)], name="squares")
book.Table(squares, "Shown.", "squares")
book.keep({kept}, "{name}-squares")
"""


@pytest.fixture
def small(tmp_path):
    """A project with two chapters that can be made to wait at a third trial; `one` is made of the table of `two`."""
    kept = {"one": "squares.assign(of_two=len(table_of_two()))", "two": "squares"}
    for name in kept:
        parameters = nbformat.v4.new_code_cell("n: int = 1  # in [1, 9]: trials", metadata={"tags": ["parameters"]})
        code = nbformat.v4.new_code_cell(CHAPTER.format(name=name, kept=kept[name], root=str(tmp_path)))
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# {name}"), parameters, code])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        (tmp_path / "book").mkdir(exist_ok=True)
        nbformat.write(notebook, tmp_path / "book" / f"{name}.ipynb")
        (tmp_path / "params").mkdir(exist_ok=True)
        (tmp_path / "params" / f"{name}.yaml").write_text("full: {n: 4}\n")
    (tmp_path / "_toc.yml").write_text("parts: [{chapters: [{file: book/one}, {file: book/two}]}]\n")
    (tmp_path / "constraints.txt").write_text("pandas==1\n")
    (tmp_path / ".gitignore").write_text("runs/\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "results").mkdir()
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        git(tmp_path, *arguments)
    return tmp_path


def git(folder, *arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)


def command(root, *arguments, **options):
    script = [sys.executable, "-c", COMMAND, str(root), "record", "--all", *arguments]
    return subprocess.run(script, capture_output=True, text=True, check=False, **options)


def test_a_recording_of_the_book_goes_on_after_a_kill(small):
    """Neither finished parts nor finished trials of the part that was under way are run again."""
    plan_of = command(small, "--plan").stdout
    assert re.search(r"one --set full +\? s +stale: never recorded, results/two-squares\n", plan_of)
    assert plan_of.endswith("2 of 2 parts to record, 0 s when they were last recorded, and 2 that never were\n")
    (small / "runs" / "wait").touch()
    log = small / "runs" / "ran.txt"
    script = [sys.executable, "-c", COMMAND, str(small), "record", "--all"]
    process = subprocess.Popen(script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while not (log.exists() and len(log.read_text().splitlines()) == 3) and time.monotonic() < until:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    first = log.read_text().split("\n")[:-1]
    assert len(first) == 3
    (small / "runs" / "wait").unlink()
    run = command(small)  # `one` comes after `two`, which its table is made of
    assert run.returncode == 0, run.stderr
    ran = log.read_text().split("\n")[:-1]
    doubled = {line for line in ran if ran.count(line) > 1}
    # The one that was under way, unless the orphaned kernel came to its end before it noticed.
    assert doubled <= {first[2]}
    assert command(small).stdout.endswith("0 of 2 parts to record, 0 s when they were last recorded\n")
    assert ran == log.read_text().split("\n")[:-1]
    made = json.loads((small / "results" / "two-squares.json").read_text())
    assert (made["dirty"], made["set"], made["parameters"]) == (False, "full", {"n": 4})
    assert pd.read_csv(small / "results" / "two-squares.csv").square.tolist() == [0, 1, 4, 9]

    # What a commit changes is recorded again: figures are not, parameters are, and then what is made of their table.
    book_of_two = small / "book" / "two.ipynb"
    book_of_two.write_text(book_of_two.read_text().replace("Shown.", "Shown otherwise."))
    (small / "book" / "new.md").touch()
    refused = command(small, "--again")
    assert "0 of 2 parts to record" in refused.stdout
    assert refused.returncode == 2
    assert "must be as it was committed, got changes in book/two.ipynb, book/new.md" in refused.stderr
    (small / "params" / "two.yaml").write_text("full: {n: 5}\n")
    git(small, "add", ".")
    git(small, "commit", "-qm", "More")
    assert "2 of 2 parts" in command(small, "--plan", "--again").stdout
    shown = command(small, "--plan").stdout
    assert re.search(r"two --set full .* stale: parameters\n", shown)
    assert re.search(r"one --set full .* stale: results/two-squares\n", shown)
    assert pd.read_csv(small / "results" / "one-squares.csv").of_two.tolist() == [4] * 4


def test_a_table_that_needs_a_gpu_is_not_missing_where_no_run_had_one(folder):
    keep(folder, 1, names=["t0"])
    of_both = dict(chapter="tiny", source="tiny", tables=("t0", "t1"), code={}, recorded=plan.provenances(["t0"]))
    assert "no t1" in plan.Part(**of_both).stale()
    assert "no t1" not in plan.Part(**of_both, optional=("t1",)).stale()
    skin = plan.of_chapter(chapter("skin-tuning"))
    assert set(skin.optional) == {"skin-tuning-networks", "skin-tuning-networks-winners"} < set(skin.tables)


def test_a_page_says_in_words_when_and_whether_the_code_has_changed(folder):
    keep(folder, 1)
    entry = json.loads((paths.RESULTS / "t0.json").read_text()) | {"parts": {"code cells": "a"}, "dirty": False}
    (paths.RESULTS / "t0.json").write_text(json.dumps(entry))

    def part(code):
        return plan.Part("tiny", "tiny", ("t0",), {"code cells": code}, {}, "full", {"n": 1})

    label = f"Ten splits; {book.recorded('t0')[1]}."
    told = "Ten splits; computed on 1 January 2026 with parameters of its own, 7 s"
    assert plan.in_words(label, ["t0"], [part("a")]) == f"{told}."
    assert plan.in_words(label, ["t0"], [part("b")]) == f"{told}; the code of the method has changed since."
    assert plan.in_words(label, ["t1"], [part("b")]) == f"{told}; with which code is not known."
    assert plan.in_words("Recorded 2026-01-01, ten.", ["t0"], [part("a")]) == "Computed on 1 January 2026, ten."


# What is refused


def test_other_parameters_are_refused_unless_told(folder):
    keep(folder, 2)
    keep(folder, 2, replace=False)  # the same parameters
    with pytest.raises(ChapterError, match=r"results/t0 must be recorded again .*{'n': 2}.* --replace, got tiny"):
        keep(folder, 3, NAMES[:1], replace=False)
    assert seen() == {2}
    keep(folder, 3, replace=True)
    assert seen() == {3}


def test_defaults_count_as_parameters(folder):
    keep(folder, 1)
    record.refuse_conflicts(TinyChapter, {}, NAMES)
    record.refuse_conflicts(TinyChapter, {"m": 5, "n": 1}, NAMES)
    with pytest.raises(ChapterError, match="--replace"):
        record.refuse_conflicts(TinyChapter, {"m": 6}, NAMES)
    record.refuse_conflicts(TinyChapter, {"m": 6}, ["other", "t9*"])


def test_tables_of_another_chapter_are_refused(folder):
    keep(folder, 1)
    file = paths.RESULTS / "t1.json"
    file.write_text(file.read_text().replace('"tiny"', '"other"'))
    with pytest.raises(ChapterError, match="results/t1 must be recorded again with its own parameters, those of other"):
        keep(folder, 1, replace=False)


@pytest.mark.parametrize("change", [b"value\n2\n", b"", b"value\n" + b"1\n" * 49])
def test_an_edited_table_is_not_shown(folder, change):
    keep(folder, 1)
    (paths.RESULTS / "t0.csv").write_bytes(change)
    with pytest.raises(ValueError, match=r"results/t0.csv must be as it was recorded, with SHA-256"):
        book.recorded("t0")
    assert book.recorded("t1")[0].shape == (50, 1)


def test_recorded_results_carry_their_label(folder):
    keep(folder, 1)
    frame, label = book.recorded("t0")
    assert frame["value"].tolist() == [1] * 50
    assert label == "recorded 2026-01-01 with parameters of its own, 7 s"
    with pytest.raises(ValueError, match="name must be one of 't0', 't1', 't2', 't3'"):
        book.recorded("u")


@pytest.mark.parametrize(
    ("seconds", "cost"), [(119, "119 s"), (1860, "31 min"), (7199, "120 min"), (7200, "2.0 h"), (9000, "2.5 h")]
)
def test_the_label_names_the_set_with_these_values_and_the_cost(folder, monkeypatch, seconds, cost):
    monkeypatch.setattr(paths, "PARAMS", folder)
    (folder / "tiny.yaml").write_text("quick: {n: 1}\nfull: {n: 5, rate: 0.5}\n")
    entry = {"chapter": "tiny", "date": "2026-01-01", "seconds": seconds}
    for values, named in (({"n": 5, "rate": 0.5}, "set full"), ({"n": 5}, "parameters of its own")):
        assert results.label(entry | {"parameters": values}) == f"recorded 2026-01-01 with {named}, {cost}"
    on_gpu = entry | {"parameters": {"n": 1}, "machine": "gpu (some card)"}
    assert results.label(on_gpu) == f"recorded 2026-01-01 with set quick, {cost} on a GPU"


def test_names_match_a_pattern(folder):
    assert book.recorded_names("*") == []
    keep(folder, 1)
    assert book.recorded_names("t[12]") == ["t1", "t2"]


def test_keep_writes_only_into_a_run(tmp_path, monkeypatch):
    frame = pd.DataFrame({"x": [1 / 3]})
    monkeypatch.delenv("DPBOOK_RUN_FOLDER", raising=False)
    book.keep(frame, "t")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("DPBOOK_RUN_FOLDER", str(tmp_path))
    book.keep(frame, "t")
    assert pd.read_csv(tmp_path / "t.csv")["x"][0] == 1 / 3
    with pytest.raises(ValueError, match="name must be made of letters"):
        book.keep(frame, "../t")


# The repository's own


@pytest.mark.parametrize("name", book.recorded_names())
def test_every_recorded_result_has_its_provenance(name):
    frame, label = book.recorded(name)
    assert len(frame)
    assert re.fullmatch(
        r"recorded 20\d\d-\d\d-\d\d with (set [\w-]+|parameters of its own), [\d.]+ (s|min|h)( on a GPU)?", label
    )
    assert {"chapter", "parameters", "date", "seconds", "cores", "python", "sha256"} <= set(results.read(name)[1])


def test_no_table_lacks_its_provenance():
    """But for what the benchmarks write: the mutation score, and trials that tables with provenance are made from."""
    raw = {
        "mutation",
        "classifiers-trials",
        "short-list-trials",
        "classifiers-tuned",
        "classifiers-settings",
        "defaults-scores",
        "erm-sizes",
    }
    assert {file.stem for file in paths.RESULTS.glob("*.csv")} == set(book.recorded_names()) | raw


def test_the_origin_names_commit_code_and_machine(monkeypatch):
    from helpers.book import chapters

    chapter = chapters.chapter("oversampling")
    found = record.origin(chapter.name, {"n_seeds": 3}, freshness.of_tables(chapter.code, {}))
    assert found["commit"] is None or len(found["commit"]) == 40
    assert found["machine"] == "cpu"  # this chapter uses no torch, on any machine
    assert "helpers.resampling.oversampling" in found["parts"]
    assert json.loads(json.dumps(found)) == found
    monkeypatch.setattr(paths, "ROOT", paths.ROOT.parent.parent.parent)
    assert record._git("rev-parse", "HEAD") is None


def test_the_arithmetic_is_that_of_the_kernel_at_the_end_of_its_run(tmp_path, monkeypatch):
    """Also where the chapter's code has changed it; the state of this process is left as it was."""
    monkeypatch.setenv("DPBOOK_RUN_FOLDER", str(tmp_path))
    for code, flushed in (("", False), ("import torch; assert torch.set_flush_denormal(True); ", True)):
        code += "from helpers.book import record; record.note_arithmetic()"
        environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        found = record.noted_arithmetic(tmp_path)
        assert found["flushes_denormals"] is flushed
        assert found["threads"]
        assert set(found["threads"].values()) <= {1, 2}  # a machine with one core gives one
        assert all(re.fullmatch(r"\w+ [\d.]+", library) for library in found["blas"])
    assert not record.arithmetic()["flushes_denormals"]


def test_tables_recorded_before_the_arithmetic_was_noted_are_as_good_as_ever(folder):
    keep(folder, 1)
    assert "arithmetic" not in results.read(NAMES[0])[1]
    assert book.recorded(NAMES[0])[0]["value"].unique().tolist() == [1]


def test_a_damaged_provenance_is_named_and_does_not_stop_the_status(folder, monkeypatch, capsys):
    from helpers.book import chapters

    monkeypatch.setattr(chapters, "chapters", list)  # what they depend on takes seconds to find
    keep(folder, 1)
    (paths.RESULTS / f"{NAMES[0]}.json").write_text('{"chapter": ')
    with pytest.raises(ValueError, match=rf"results/{NAMES[0]}.json must be as it was recorded"):
        results.recorded(NAMES[0])
    assert main(["status"]) == 1
    assert "damaged" in capsys.readouterr().out
