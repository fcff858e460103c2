"""Files of the project that are damaged are named, in one line, and never end a command in a traceback."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from helpers import paths
from helpers.book import chapters, results
from helpers.book.parameters import ChapterError, read_sets
from helpers.cli import main

NOTEBOOK = {
    "cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# A title\n"]}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
UNREADABLE = {
    "empty": b"",
    "truncated": json.dumps(NOTEBOOK).encode()[:40],
    "merge markers": b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> other\n",
    "no mapping": b"[]",
    "no cells": b"{}",
    "cells of something else": b'{"cells": [1], "metadata": {}}',
    "no text": b"\xff\xfe",
    "no title": json.dumps(NOTEBOOK | {"cells": []}).encode(),
    "deep": b"[" * 100_000,
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one chapter and one recorded result."""
    for name in ("book", "params", "results"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(paths, name.upper(), tmp_path / name)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nparts: [{chapters: [{file: book/one}, {file: book/two}]}]\n")
    for name in ("one", "two"):
        (tmp_path / "book" / f"{name}.ipynb").write_text(json.dumps(NOTEBOOK))
    content = b"a,b\n1,2\n"
    (tmp_path / "results" / "table.csv").write_bytes(content)
    provenance = {"chapter": "one", "parameters": {}, "date": "2026-01-01", "seconds": 3}
    provenance |= {"sha256": hashlib.sha256(content).hexdigest()}
    (tmp_path / "results" / "table.json").write_text(json.dumps(provenance))
    return tmp_path


def lines(capsys, *command, code):
    capsys.readouterr()
    assert main(list(command)) == code
    shown = capsys.readouterr()
    return (shown.out if command[0] == "status" else shown.err).splitlines()


def test_a_sound_project(project, capsys):
    assert [line.split()[:2] for line in lines(capsys, "status", code=0)] == [
        *(["one", "stale"], ["two", "stale"], ["table", "recorded"])
    ]


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_damaged_notebook_is_named_and_the_others_are_shown(project, capsys, content):
    (project / "book" / "one.ipynb").write_bytes(content)
    if content != UNREADABLE["no title"]:  # of whose title the status says nothing
        first, second, _ = lines(capsys, "status", code=1)
        assert first.split()[:4] == ["one", "damaged", "one.ipynb", "must"]
        assert second.split()[:2] == ["two", "stale"]
    for command in (["chapters"], ["run", "one"], ["params", "one"], ["refresh", "one"]):
        if content == UNREADABLE["no title"] and command != ["chapters"]:
            continue
        [line] = lines(capsys, *command, code=2)
        assert line.startswith("dpbook: one.ipynb must")


@pytest.mark.parametrize("content", ["", "parts", "parts: [", "parts: [{chapters: [1]}]", "parts: {a: 1}", "\ud800"])
def test_a_damaged_table_of_contents_is_named(project, capsys, content):
    (project / "_toc.yml").write_bytes(content.encode(errors="surrogatepass"))
    for command in ("status", "chapters"):
        capsys.readouterr()
        assert main([command]) == 2
        assert capsys.readouterr().err.startswith("dpbook: _toc.yml must list files of chapters in parts, got: ")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"3", b"\xff", b"[" * 100_000])
def test_a_damaged_provenance_is_named(project, capsys, content):
    (project / "results" / "table.json").write_bytes(content)
    *_, last = lines(capsys, "status", code=1)
    assert last.split()[:3] == ["table", "damaged", "results/table.json"]
    with pytest.raises(ValueError, match=r"results/table\.json must"):
        results.recorded("table")


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"a,b\n1,3\n", b"a,b\n1,2\n3,4\n", None])
def test_a_changed_table_is_named(project, capsys, content):
    file = project / "results" / "table.csv"
    file.unlink() if content is None else file.write_bytes(content)
    *_, last = lines(capsys, "status", code=1)
    assert last.split()[:2] == ["table", "damaged"]
    assert "restore the file or record it again" in last


@pytest.mark.parametrize(
    "content",
    [
        b"quick: {1: 10}",
        b"1: {}",
        b"quick: [1]",
        b"quick",
        b"\xff",
        b"quick: {n: " + b"9" * 5000 + b"}",
        b"a: 2026-02-31",
    ],
)
def test_a_damaged_file_of_parameters_is_named(project, content):
    (project / "params" / "one.yaml").write_bytes(content)
    with pytest.raises(ChapterError, match=r"params/one\.yaml"):
        read_sets(project / "params" / "one.yaml")
    with pytest.raises(ChapterError, match=r"params/one\.yaml"):
        _ = chapters.chapter("one").parameter_sets


def started(*arguments, environment=(), code=None):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    variables |= {"PYTHONPATH": str(paths.ROOT), **dict(environment)}
    command = [sys.executable, *(["-c", code] if code else ["-m", "helpers"]), *arguments]
    return subprocess.run(command, cwd=paths.ROOT, env=variables, capture_output=True, check=False)


@pytest.mark.parametrize("optimised", [(), ("-O",)], ids=["", "O"])
def test_the_commands_need_no_locale_and_no_assertions(optimised):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**plain, **({"PYTHONOPTIMIZE": "1"} if optimised else {})}
    for command in ("chapters", "data"):
        done = started(command, environment=environment)
        assert (done.returncode, done.stderr) == (0, b""), command
        assert done.stdout.decode("ascii")
    done = started("run", "no-such-chapter", environment=environment)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


INTERRUPTED = """
import os, signal, sys
import helpers.__main__ as start

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == interrupted:
            os.kill(os.getpid(), signal.SIGINT)

# A suite that a shell has started in the background inherits an ignored interrupt, and Python then keeps it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupted, sys.argv[1:] = sys.argv[1], ["status"]
sys.meta_path.insert(0, Interrupt())
sys.exit(start.main())
"""


@pytest.mark.parametrize("module", ["helpers.cli", "helpers.book", "numpy", "helpers.book.freshness"])
def test_an_interruption_is_one_line_from_the_first_import_on(module):
    done = started(module, code=INTERRUPTED)
    assert done.returncode == 130, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert b"interrupted" in done.stderr
