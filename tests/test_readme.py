"""The README begins as the front page does, and every command printed anywhere would be accepted."""

import re
import shlex

import pytest
from dpbook_overview import findings
from dpbook_pages import guide, summary

from checks import claims
from helpers import cli, paths
from helpers.book import chapters
from helpers.cli import main

README = (paths.ROOT / "README.md").read_text()
TEXTS = {file.name: file.read_text() for file in [paths.ROOT / "CONTRIBUTING.md", *paths.BOOK.glob("*.md")]}
TEXTS["README.md"] = README


def test_the_first_screen_is_that_of_the_front_page():
    front = (paths.BOOK / "index.md").read_text()
    title, bold = re.search(r"^# (.+)\n\n\*\*(.+)\*\*$", front, re.MULTILINE).groups()
    assert README.startswith(f"# {title}\n\n**{bold}**\n")
    doors = re.findall(r"\{grid-item-card\} (.+)\n:link: (\S+)\n:link-type: ref\n(.+)\n", front)
    assert len(doors) == 3
    for door, page, text in doors:
        [file] = paths.BOOK.glob(f"{page}.*")
        assert f"- **[{door}](book/{file.name})**: {text[0].lower()}{text[1:]}" in README
    assert summary(list(claims.register().values())) in README


def test_the_five_findings_are_those_of_the_front_page():
    listed = re.findall(r"^- (.+\.) \[(.+)\]\(book/([\w/-]+)\.ipynb\)$", README, re.MULTILINE)
    told = [row for row in findings() if row.headline]
    assert [text for text, *_ in listed] == [row.headline for row in told]
    for (_, title, name), row in zip(listed, told, strict=True):
        assert title == chapters.chapter(name).title
        assert f"{{ref}}`{name}`" in row.computed


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


def commands(text: str) -> list[str]:
    """Every `dpbook ...` in the code of a text: lines of blocks, and code inside sentences."""
    code = re.findall(r"(?<!`)`([^`]+)`(?!`)", text) + text.splitlines()
    found = [re.fullmatch(r"\s*(?:\.venv/bin/)?dpbook ([a-z]+ .*)", " ".join(part.split())) for part in code]
    return [match[1].partition("  #")[0] for match in found if match]


def refused(command: str) -> str:
    """Why the command line would be refused before anything runs, or an empty text."""
    try:
        options = cli._parser().parse_args(shlex.split(re.sub(r"--jobs N\b", "--jobs 2", command)))
        # In CHAPTER, NAME and VALUE the reader puts something.
        named = "CHAPTER" not in command and "--all" not in command
        if named and command.split()[0] in ("run", "record", "params", "refresh"):
            for name in getattr(options, "names", None) or [options.chapter]:
                chapter = chapters.chapter(name)
            if hasattr(options, "pairs"):
                cli._values(chapter, options)
    except SystemExit:
        return f"{command!r} is not what the parser takes"
    except chapters.ChapterError as error:
        return f"{command!r}: {error}"
    return ""


@pytest.fixture
def own_tables(tmp_path, monkeypatch):
    """The tables of a reader's own that commands name, in the folder where they are typed."""
    for name in ("my", "patients"):
        (tmp_path / f"{name}.csv").touch()
        schema = (
            "basis: b\nrows_per_person: 1\nlabel: {column: y, levels: [a, b], minority: b}\n"
            "columns: {x: {kind: real, low: 0, high: 1}}\n"
        )
        (tmp_path / f"{name}.schema.yaml").write_text(schema)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", TEXTS)
def test_commands_on_pages_are_accepted(name, own_tables):
    assert [reason for command in commands(TEXTS[name]) if (reason := refused(command))] == []


def test_commands_of_a_chapter_are_accepted(chapter, own_tables):
    told = "\n".join(cell.source for cell in chapter.notebook.cells if cell.cell_type == "markdown")
    printed = commands(told) + commands(guide(chapter)) + [f"run {chapter.name} --set full --html"]
    assert len(printed) >= 4
    assert [reason for command in printed if (reason := refused(command))] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "run oversampling --set fulll",
        "run oversampling -p n_audit many",
        "run oversampling -p n_auditt 5000",
        "record no-such-chapter --set full",
        "record oversampling --html",
        "run oversampling --jobs many",
    ],
)
def test_wrong_commands_are_noticed(wrong):
    assert commands(f"Use `dpbook {wrong}`.") == [wrong]
    assert commands(f"```bash\n.venv/bin/dpbook {wrong}\n```") == [wrong]
    assert refused(wrong)


def test_paths_named_in_the_readme_exist():
    for path in re.findall(r"`((?:book|params|reference|results|helpers|tests)/[\w./-]+)`", README):
        assert (paths.ROOT / path).exists(), path
