"""The command `dpbook`: a strict front for listing, re-running, recording and building the book.

What can be refused is refused with one line before anything runs. Exit codes: 0, done; 1, a run or build was started
and failed; 2, bad input or surroundings (unknown names, values that are not allowed, a folder that cannot be written,
a locked store) and nothing was run; 130, interrupted. A traceback means an error in `dpbook` itself. What the commands
do lives in `helpers.book` and `helpers.data`; this module only parses and prints.
"""

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from helpers import paths, sources
from helpers.book import chapters, freshness, results
from helpers.book.chapters import Chapter, ChapterError, RunError

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130  # as shells have it
MOST_JOBS = 1024
_CODES = "Exit codes: 0 done, 1 a run or build failed, 2 refused before anything ran, 130 interrupted."


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; see the module."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except ChapterError as error:
        return _told(error, USAGE_ERROR)
    except (RunError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output (`head`, say) has seen enough; the interpreter must not try to flush the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _told(error, FAILED)
    except KeyboardInterrupt:
        return _told("interrupted; with --jobs, the same command continues where this one stopped", INTERRUPTED)


def _told(reason: object, code: int) -> int:
    print(f"dpbook: {' '.join(str(reason).split())}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpbook", description="Re-run and build the book.", epilog=_CODES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary, epilog=_CODES)
        command.set_defaults(command=function)
        return command

    add("chapters", _chapters, "list the chapters")
    add("params", _params, "show a chapter's parameters").add_argument("chapter")
    for name, function, summary in (
        ("run", _run, "execute a copy of a chapter with other parameters, into runs/CHAPTER/TIME/"),
        ("record", _record, "run a chapter and keep its tables in results/ as recorded results"),
    ):
        command = add(name, function, summary)
        command.add_argument("chapter")
        command.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), dest="pairs")
        command.add_argument("--set", metavar="NAME", dest="named", help="a named set of params/CHAPTER.yaml")
        command.add_argument(
            "--jobs", type=int, metavar="N", help="trials in N processes; what is finished survives an interruption"
        )
        command.add_argument("--scheduler", metavar="ADDRESS", help="N at a time on this Dask cluster (needs --jobs)")
        if name == "run":
            command.add_argument("--html", action="store_true", help="also render the run as a page of the book")
        else:
            command.add_argument(
                "--replace", action="store_true", help="also replace tables recorded with other parameters"
            )
    add("data", _data, "list the data sets and where each is found")
    add("status", _status, "say which chapters are stale, and why, and which results are recorded")
    refresh = add("refresh", _refresh, "re-execute stale chapters in place and store their outputs")
    refresh.add_argument("names", nargs="*", metavar="CHAPTER", help="these chapters, stale or not")
    add("build", _build, "build the HTML with warnings as errors")
    return parser


def _chapters(options) -> int:
    for chapter in chapters.chapters():
        print(f"{chapter.name:24} {chapter.title}")
    return 0


def _params(options) -> int:
    chapter = chapters.chapter(options.chapter)
    for item in chapter.parameters.values():
        print(f"{item.name}: {item.type} = {item.default!r}\n    {item.allowed or 'any'}: {item.meaning}")
    for constraint in chapter.constraints:
        print(f"requires: {constraint}")
    for name, values in chapter.parameter_sets.items():
        print(f"--set {name}: {values or 'the defaults'}")
    return 0


def _run(options) -> int:
    chapter = chapters.chapter(options.chapter)
    values = _values(chapter, options)
    notebook = _executed(chapter, values, options).notebook
    print(notebook)
    if not options.html:
        return 0
    from helpers.book import pages

    return _printed(pages.render(notebook, values), "")


def _record(options) -> int:
    from helpers.book import record

    chapter = chapters.chapter(options.chapter)
    values = _values(chapter, options)
    expected = freshness.kept_names(chapter.code, chapter.defaults | values)
    if not expected:
        raise ChapterError(f"chapter {chapter.name} must keep a table (book.keep) to be recorded, it keeps none")
    if not options.replace:
        record.refuse_conflicts(chapter, values, [name for name in expected if "*" not in name])
    chapters.check_writable(paths.RESULTS)
    provenance = record.origin(chapter, values)
    executed = _executed(chapter, values, options)
    if edited := freshness.changed(provenance["parts"], freshness.of_tables(chapter.code)):
        raise RunError(f"{chapter.name} was edited while it ran ({', '.join(edited)}); nothing was recorded")
    provenance |= {"seconds": round(executed.seconds), "jobs": options.jobs or 1}
    tables = sorted(executed.notebook.parent.glob("*.csv"))
    try:
        kept = record.commit(chapter, tables, provenance, replace=options.replace)
    except (ChapterError, OSError) as error:
        raise RunError(f"{error}; results/ is as it was, the tables are in {executed.notebook.parent}") from error
    print(*kept, sep="\n")
    return 0


def _values(chapter: Chapter, options) -> dict:
    """Parameter values of a run, checked together: the named set, overridden by single parameters."""
    sets = chapter.parameter_sets
    if options.named is not None and options.named not in sets:
        raise ChapterError(
            f"--set must be one of {', '.join(sets) or '(none)'} of chapter {chapter.name}, got {options.named!r}"
        )
    if options.jobs is not None and not 1 <= options.jobs <= MOST_JOBS:
        raise ChapterError(f"--jobs must be in [1, {MOST_JOBS}], got {options.jobs}")
    if options.scheduler is not None and options.jobs is None:
        raise ChapterError("--scheduler must come with --jobs, got it alone")
    _check_data_folder()
    return chapter.check(sets.get(options.named, {}) | chapter.parse(options.pairs))


def _check_data_folder() -> None:
    """Refuse a `$DPBOOK_DATA` that is no folder, and make it absolute: kernels run elsewhere."""
    try:
        paths.data_folders()
    except ValueError as error:
        raise ChapterError(str(error)) from None
    if folder := os.environ.get("DPBOOK_DATA"):
        os.environ["DPBOOK_DATA"] = str(Path(folder).expanduser().resolve())


class _Executed(NamedTuple):
    notebook: Path
    seconds: float


def _executed(chapter: Chapter, values: dict, options) -> _Executed:
    """Run a copy of a chapter, under `--jobs` with a store of its finished trials."""
    folder = paths.RUNS / chapter.name / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    with ExitStack() as stack:
        earlier = _open_store(stack, chapter, values, options) if options.jobs is not None else 0.0
        started = time.perf_counter()
        notebook = chapter.run(values, folder)
        return _Executed(notebook, time.perf_counter() - started + earlier)


def _open_store(stack: ExitStack, chapter: Chapter, values: dict, options) -> float:
    """Let the chapter's trials use processes and a store; the seconds that interrupted runs have spent on them."""
    from helpers.study import experiments

    modules = sources.reached(chapter.code)
    code = sources.modules_digest(modules)  # before the parts: an edit in between is noticed, not attributed
    identity = [chapter.name, freshness.of_tables(chapter.code), chapter.defaults | values]
    store = paths.RUNS / chapter.name / "experiments.sqlite"
    chapters.check_writable(store.parent)
    try:
        session = experiments.session(options.jobs, store, identity, modules, code, options.scheduler)
        return stack.enter_context(session)
    except (sqlite3.OperationalError, experiments.SessionError) as error:
        raise ChapterError(f"{store} must be a store that no other program holds, got: {error}") from None


def _data(options) -> int:
    from helpers import data

    _check_data_folder()
    print(data.available().to_string(index=False))
    return 0


def _status(options) -> int:
    known = {chapter.name: chapter for chapter in chapters.chapters()}
    for chapter in known.values():
        changes, last = chapter.changes(), chapter.record
        cost = f"{last['seconds']:4} s" if last else ""
        print(
            f"{chapter.name:32} {'stale' if changes else 'fresh':9} {last.get('date', ''):10} {cost:6} {_few(changes)}"
        )
    parts = {name: freshness.of_tables(chapter.code) for name, chapter in known.items()}
    for name in results.recorded_names():
        try:
            _, there = results.read(name)
        except ValueError as error:
            print(f"{name:32} {'damaged':9} {error}")
            continue
        print(f"{name:32} {'recorded':9} {there['date']:10} {there['seconds']:4} s {_age(there, parts)}")
    return 0


def _age(provenance: dict, parts: dict[str, freshness.Parts]) -> str:
    if provenance["chapter"] not in parts:
        return f"of {provenance['chapter']}, which is no chapter"
    changes = freshness.changed(provenance.get("parts", {}), parts[provenance["chapter"]])
    if "parts" not in provenance:
        return "recorded before its parts were kept"
    return f"recorded with earlier code: {_few(changes)}" if changes else ""


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _refresh(options) -> int:
    _check_data_folder()
    chosen = [chapters.chapter(name) for name in options.names]
    for chapter in chosen or [entry for entry in chapters.chapters() if not entry.is_fresh()]:
        print(f"executing {chapter.name} ...", flush=True)
        chapter.execute()
        print(f"{chapter.name}: {chapter.record['seconds']} s")
    return 0


def _build(options) -> int:
    from helpers.book import pages

    return _printed(pages.build(), "The book: ")


def _printed(page: Path | None, words: str) -> int:
    if page is None:
        return FAILED
    print(f"{words}{page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
