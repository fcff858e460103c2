"""The README says what the chapters computed, and its commands exist."""

import re

import pytest

from helpers import paths
from helpers.book import chapters
from helpers.book.extension import glued
from helpers.book.overview import findings, readme_table
from helpers.cli import main

README = (paths.ROOT / "README.md").read_text()
FINDING = re.compile(r"<!-- (?P<chapter>[\w-]+)\.(?P<key>\w+) -->(?P<shown>[^<]+)<!-- -->")


def test_numbers_are_the_chapters():
    quoted = list(FINDING.finditer(README))
    assert len(quoted) >= 5
    for match in quoted:
        computed = glued(chapters.chapter(match["chapter"]))[match["key"]]
        assert match["shown"] == computed, (
            f"{match['chapter']}.{match['key']} is {computed}, README says {match['shown']}"
        )


def test_the_table_is_made_of_the_findings():
    table = README.split("## What the book finds")[1].split("These are five")[0].strip()
    assert table == readme_table([row for row in findings() if row.headline])
    assert "{ref}" not in table
    assert table.count("(") == table.count(")")


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z]+)", README))))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (paths.ROOT / "Makefile").read_text(), re.MULTILINE)


def test_dpbook_commands_parse(monkeypatch):
    commands = re.findall(r"\.venv/bin/dpbook ([a-z]+)", README)
    assert {"run", "params", "status", "data"} <= set(commands)
    for command in commands:
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0


def test_paths_named_in_the_readme_exist():
    for path in re.findall(r"`((?:book|params|reference|results|helpers|tests)/[\w./-]+)`", README):
        assert (paths.ROOT / path).exists(), path
