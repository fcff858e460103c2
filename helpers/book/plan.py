"""What the book records, part by part: what each cost when it was last recorded, and what of it is stale and why.

A part is what one run records: the tables of a chapter with a named set of parameters, or those of a benchmark. It is
known by its tables alone, so a recording that was stopped goes on with the parts whose tables are still stale.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from helpers import paths, sources
from helpers.book import freshness, results, slices, strict_yaml
from helpers.book.chapters import Chapter, ChapterError, chapters

Provenances = dict[str, dict[str, Any]]
UNKNOWN, UNCOMMITTED = "unknown code", "files that were not committed"


@dataclass(frozen=True)
class Part:
    """What one run records.

    Attributes
    ----------
    chapter : str
        Name of the chapter that the tables belong to.
    source : Chapter or str
        The chapter, or a target of `benchmarks/Makefile`.
    tables : tuple of str
        Names of its tables, with `*` for what only the run can know.
    code : dict
        What the tables depend on now; see `freshness.of_tables`.
    recorded : dict
        Where its recorded tables come from, by name; damaged ones are left out.
    named : str
        Set of `params/CHAPTER.yaml`; empty for a benchmark, which has its parameters in its code.
    values : dict
        The parameters of the set.
    optional : tuple of str
        Tables that need a GPU, and are not missing where no run had one.
    """

    chapter: str
    source: Chapter | str
    tables: tuple[str, ...]
    code: freshness.Parts
    recorded: Provenances
    named: str = ""
    values: dict[str, Any] | None = None
    optional: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.chapter} --set {self.named}" if self.named else f"benchmark {self.source}"

    def makes(self, name: str) -> bool:
        """Whether a table of this name is one of its own."""
        return any(fnmatchcase(name, table) for table in self.tables)

    def seconds(self) -> int | None:
        """What its tables took when they were last recorded, on as many processes as then; None if never."""
        runs = {(there["chapter"], there["date"], there["seconds"]) for there in self.recorded.values()}
        return sum(seconds for *_, seconds in runs) if runs else None

    def changes(self, there: dict[str, Any]) -> list[str]:
        """What is otherwise than a recorded table was made with, by name."""
        if "parts" not in there:
            return [UNKNOWN]
        other = ["chapter"] if there["chapter"] != self.chapter else []
        other += ["parameters"] if self.values is not None and there["parameters"] != self.values else []
        other += [UNCOMMITTED] if there.get("dirty") is not False else []
        return other + freshness.changed(there["parts"], self.code)

    def stale(self) -> list[str]:
        """Why it has to be recorded: names of what has changed and of missing tables; empty if it has not to be."""
        if not self.recorded:
            return ["never recorded"]
        needed = [table for table in self.tables if table not in self.optional]
        missing = [table for table in needed if not any(fnmatchcase(name, table) for name in self.recorded)]
        changes = (name for there in self.recorded.values() for name in self.changes(there))
        return list(dict.fromkeys([*(f"no {table}" for table in missing), *changes]))


def parts() -> list[Part]:
    """All parts, in an order in which those come last that are made of tables of others, else the shortest first.

    Raises
    ------
    ChapterError
        A chapter or `benchmarks/recorded.yaml` that is damaged.
    """
    found = [*filter(None, map(of_chapter, chapters())), *benchmarks()]
    needs_others = [any(name.startswith("results/") for name in part.code) for part in found]
    order = sorted(range(len(found)), key=lambda place: (needs_others[place], found[place].seconds() or 0))
    return [found[place] for place in order]


def again(part: Part) -> Part:
    """The part as it is now."""
    if isinstance(part.source, Chapter):
        return of_chapter(part.source, part.named) or part
    return next(one for one in benchmarks() if one.source == part.source)


def of_chapter(chapter: Chapter, named: str | None = None) -> Part | None:
    """The part of a chapter with a set, or else with the one that it was recorded with, `full` if none; None if it
    keeps no table.
    """
    sets, code = chapter.parameter_sets, chapter.code
    if not freshness.kept_names(code, {}):
        return None
    if named is None:
        there = provenances(freshness.kept_names(code, {}))
        own = (one for one in there.values() if one["chapter"] == chapter.name)
        known = (name for one in own for name in sets if name == one.get("set") or sets[name] == one["parameters"])
        named = next(known, "full")
    values = sets.get(named, {})
    names, on_gpu = (freshness.kept_names(cells, chapter.defaults | values) for cells in (code, chapter.gpu_code))
    code_now = freshness.of_tables(code, values)
    return Part(chapter.name, chapter, tuple(names), code_now, provenances(names), named, values, tuple(on_gpu))


def benchmarks() -> list[Part]:
    """The parts of `benchmarks/recorded.yaml`; none where the project has no benchmarks."""
    try:
        return [
            Part(entry["chapter"], target, (*entry["tables"],), _of_files(entry["files"]), provenances(entry["tables"]))
            for target, entry in _entries().items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ChapterError(f"benchmarks/recorded.yaml must say what benchmarks record, got: {error}") from None


def benchmark_files(target: str) -> list[str]:
    """Names of the files in `benchmarks/` that the tables of a target depend on, its script first."""
    return list(_entries()[target]["files"])


def _entries() -> dict[str, Any]:
    file = paths.ROOT / "benchmarks" / "recorded.yaml"
    return strict_yaml.load(file) if file.is_file() else {}


def provenances(patterns: Iterable[str]) -> Provenances:
    """Where the recorded tables come from that match and are sound, by name."""
    found = {}
    for name in dict.fromkeys(name for pattern in patterns for name in results.recorded_names(pattern)):
        with suppress(ValueError):
            found[name] = results.read(name)[1]
    return found


def _of_files(files: dict[str, str]) -> freshness.Parts:
    """What scripts reach, each from one of its functions on where one is named; and files that are no code."""
    texts = {name: (paths.ROOT / "benchmarks" / name).read_text(encoding="utf-8") for name in files}
    scripts = [
        slices.kept([texts[name]], wanted={function})[0] if function else texts[name]
        for name, function in files.items()
        if name.endswith(".py")
    ]
    others = {f"benchmarks/{name}": sources.digest(text) for name, text in texts.items() if not name.endswith(".py")}
    return freshness.of_run(scripts, {}) | others


# What a reader of the book is told

LABEL = re.compile(
    r"[Rr]ecorded (?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?P<more> with (?:set [\w-]+|parameters of its own), [\d.]+ (?:s|min|h)(?: on a GPU)?)?"
)


def in_words(text: str, names: Iterable[str], known: Iterable[Part]) -> str:
    """A page with the lines that label recorded results as sentences that say whether the code has changed since.

    Parameters
    ----------
    text : str
        With labels of `results.label`, or the beginnings of such.
    names : iterable of str
        The recorded results that the page shows.
    known : iterable of Part
    """
    shown = provenances(names)
    part_of = {name: part for part in known for name in shown if part.makes(name)}

    def sentence(match: re.Match) -> str:
        those = [name for name, there in shown.items() if results.label(there)[1:].startswith(match[0][1:])]
        changes = {
            one for name in those for one in (part_of[name].changes(shown[name]) if name in part_of else [UNKNOWN])
        }
        day = date(*map(int, match.group("year", "month", "day")))
        words = f"{'C' if match[0][0] == 'R' else 'c'}omputed on {day.day} {day:%B %Y}{match['more'] or ''}"
        if UNKNOWN in changes:
            return f"{words}; with which code is not known"
        return f"{words}; the code of the method has changed since" if changes - {UNCOMMITTED} else words

    return LABEL.sub(sentence, text)
