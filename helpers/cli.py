"""The command `dpbook`: a strict front for listing, re-running and building the book.

It refuses unknown chapters and parameters, wrong types and values out of range with exit code 2 before anything runs.
What the commands do lives in `helpers.chapters` and `helpers.data`; this module only parses and prints.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import yaml

from helpers import paths
from helpers.book import chapters
from helpers.book.chapters import ChapterError
from helpers.study import experiments

USAGE_ERROR = 2
INTERRUPTED = 130  # as shells have it


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (a run or build failed), 2 (bad input, nothing was run) or 130."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except ChapterError as error:
        print(f"dpbook: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("dpbook: interrupted; with --jobs, the same command continues where this one stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`head`, say) has seen enough; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpbook", description="Re-run and build the book.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary)
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
            command.add_argument("--html", action="store_true", help="also render the run as a page")
    add("data", _data, "list the data sets and where each is found")
    add("status", _status, "say which chapters are stale and which results are recorded")
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
    for name, values in chapter.parameter_sets.items():
        print(f"--set {name}: {values or 'the defaults'}")
    return 0


def _values(options) -> dict:
    """Parameter values of a run: the named set, overridden by single parameters."""
    chapter = chapters.chapter(options.chapter)
    sets = chapter.parameter_sets
    if options.named is not None and options.named not in sets:
        raise ChapterError(
            f"--set must be one of {', '.join(sets) or '(none)'} of chapter {chapter.name}, got {options.named!r}"
        )
    if options.jobs is not None and options.jobs < 1:
        raise ChapterError(f"--jobs must be at least 1, got {options.jobs}")
    if options.scheduler is not None and options.jobs is None:
        raise ChapterError("--scheduler must come with --jobs, got it alone")
    return sets.get(options.named, {}) | chapter.parse(options.pairs)


def _run(options) -> int:
    executed = _executed(options)
    if executed is None:
        return 1
    print(executed.notebook)
    return _render(executed.notebook) if options.html else 0


class _Executed(NamedTuple):
    notebook: Path
    parameters: dict
    fingerprint: str
    seconds: float


def _executed(options) -> _Executed | None:
    """Run a copy of a chapter; None if a cell failed, which has then been reported."""
    from papermill.exceptions import PapermillExecutionError

    chapter, values = chapters.chapter(options.chapter), _values(options)
    folder = paths.RUNS / chapter.name / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    modules = chapter.modules()
    code = experiments.code_digest(modules)  # before the fingerprint: an edit in between is noticed, not attributed
    fingerprint, started = chapter.fingerprint(), time.perf_counter()
    try:
        with ExitStack() as stack:
            earlier = 0.0
            if options.jobs is not None:
                defaults = {name: item.default for name, item in chapter.parameters.items()}
                identity = [chapter.name, fingerprint, defaults | values]
                store = folder.parent / "experiments.sqlite"
                session = experiments.session(options.jobs, store, identity, modules, code, options.scheduler)
                earlier = stack.enter_context(session)
            notebook = chapter.run(values, folder)
    except PapermillExecutionError as error:
        print(f"dpbook: {error.ename}: {error.evalue}", file=sys.stderr)
        print(f"dpbook: the cells that did run are in {folder / chapter.path.name}", file=sys.stderr)
        return None
    return _Executed(notebook, values, fingerprint, time.perf_counter() - started + earlier)


def _record(options) -> int:
    executed = _executed(options)
    if executed is None:
        return 1
    provenance = {
        "chapter": options.chapter,
        "parameters": executed.parameters,
        "fingerprint": executed.fingerprint,
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(executed.seconds),
        "cores": os.cpu_count(),
        "jobs": options.jobs or 1,
        "python": platform.python_version(),
    }
    paths.RESULTS.mkdir(exist_ok=True)
    for table in sorted(executed.notebook.parent.glob("*.csv")):
        shutil.copy(table, paths.RESULTS / table.name)
        (paths.RESULTS / table.name).with_suffix(".json").write_text(json.dumps(provenance, indent=2) + "\n")
        print(paths.RESULTS / table.name)
    return 0


def _data(options) -> int:
    from helpers import data

    print(data.available().to_string(index=False))
    return 0


def _status(options) -> int:
    for chapter in chapters.chapters():
        record = chapter.record
        state = "fresh" if chapter.is_fresh() else "stale" if record else "never executed"
        print(f"{chapter.name:24} {state:16} {record.get('date', '')}")
    for file in sorted(paths.RESULTS.glob("*.json")):
        record = json.loads(file.read_text())
        same = record["fingerprint"] == chapters.chapter(record["chapter"]).fingerprint()
        print(f"{file.stem:24} {'recorded':16} {record['date']} {'' if same else 'with earlier code'}")
    return 0


def _refresh(options) -> int:
    chosen = [chapters.chapter(name) for name in options.names]
    for chapter in chosen or [entry for entry in chapters.chapters() if not entry.is_fresh()]:
        print(f"executing {chapter.name} ...", flush=True)
        chapter.execute()
        print(f"{chapter.name}: {chapter.record['seconds']} s")
    return 0


def _build(options) -> int:
    code = _jupyter_book(paths.ROOT, "-W", "--keep-going")
    if code == 0:
        print(f"The book: {paths.ROOT / '_build' / 'html' / 'index.html'}")
    return code


def _render(notebook: Path) -> int:
    """Render one executed notebook as a page of its own, with the book's configuration."""
    site = notebook.parent / "site"
    (site / "book").mkdir(parents=True)
    shutil.copy(notebook, site / "book")
    shutil.copy(paths.BOOK / "references.bib", site / "book")
    shutil.copytree(paths.BOOK / "_static", site / "book" / "_static")
    shutil.copy(paths.ROOT / "_config.yml", site)
    (site / "_toc.yml").write_text(yaml.safe_dump({"format": "jb-book", "root": f"book/{notebook.stem}"}))
    code = _jupyter_book(site, "--quiet")
    if code == 0:
        print(site / "_build" / "html" / "book" / f"{notebook.stem}.html")
    return code


def _jupyter_book(folder: Path, *flags: str) -> int:
    program = Path(sys.executable).with_name("jupyter-book")  # of this environment, whether or not it is activated
    command = [str(program), "build", str(folder), *flags]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
