"""The command `dpbook`: a strict front for listing, re-running, recording and building the book, and for its recipe.

What can be refused is refused with one line before anything runs. Exit codes: 0, done; 1, a run or build was started
and failed; 2, bad input or surroundings (unknown names, values that are not allowed, a folder that cannot be written,
a locked store) and nothing was run; 130, interrupted. A traceback means an error in `dpbook` itself. What the commands
do lives in `helpers.book`, `helpers.data` and `helpers.meta.published`; this module only parses and prints. What `fit`
prints, in errors too, is public or has been released with noise; `schema` speaks to those who hold the data.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from helpers import paths, sources
from helpers.book import chapters, freshness, results
from helpers.book.chapters import Chapter, ChapterError, RunError
from helpers.validation import check_choice, check_integer, check_real

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130  # as shells have it
MOST_JOBS = 1024
RELATIONS = ("replace-one", "add-remove")
_CODES = (
    "Exit codes: 0 done, 1 a run or build failed or a check found something, 2 refused before anything ran, "
    "130 interrupted."
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; see the module."""
    options = _parser().parse_args(arguments)
    try:
        # Before any command, because kernels inherit the variable.
        _check_data_folder()
        return options.command(options) or 0
    except ChapterError as error:
        return _told(error, USAGE_ERROR)
    except (RunError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output (`head`, say) has seen enough; the interpreter must not try to flush the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _told(error, FAILED)
    except KeyboardInterrupt:
        goes_on = "; with --jobs, the same command continues where this one stopped" if "jobs" in options else ""
        return _told(f"interrupted{goes_on}", INTERRUPTED)


def _told(reason: object, code: int) -> int:
    print(f"dpbook: {' '.join(str(reason).split())}", file=sys.stderr)
    return code


class _Once(argparse.Action):
    """Keeps the value of an option, and refuses a second one: which of two was meant is nobody's guess."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = vars(namespace).setdefault("given", set())
        if option_string and self.dest in given:
            parser.error(f"argument {option_string}: must be given once, got it twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Takes every option under its whole name, and once."""

    def __init__(self, **options):
        super().__init__(**options, allow_abbrev=False)
        for name in (None, "store"):
            self.register("action", name, _Once)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dpbook", description="Re-run and build the book.", epilog=_CODES)
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
        command.add_argument("chapter", nargs=None if name == "run" else "?")
        command.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), dest="pairs")
        command.add_argument("--set", metavar="NAME", dest="named", help="a named set of params/CHAPTER.yaml")
        command.add_argument("--jobs", type=int, metavar="N", help="trials in N processes; finished ones are kept")
        command.add_argument("--scheduler", metavar="ADDRESS", help="N at a time on this Dask cluster (needs --jobs)")
        if name == "run":
            command.add_argument("--html", action="store_true", help="also render the run as a page of the book")
        else:
            command.add_argument("--replace", action="store_true", help="replace tables that have other parameters")
            command.add_argument("--all", action="store_true", help="every stale part of the book, after its plan")
            command.add_argument("--plan", action="store_true", help="with --all: only say what is stale, and its cost")
            command.add_argument("--again", action="store_true", help="with --all: also what is not from this commit")
    add("data", _data, "list the data sets and where each is found")
    add("status", _status, "say which chapters are stale, and why, and which results are recorded")
    refresh = add("refresh", _refresh, "re-execute stale chapters in place and store their outputs")
    refresh.add_argument("names", nargs="*", metavar="CHAPTER", help="these chapters, stale or not")
    command = add("build", _build, "build the HTML with warnings as errors")
    command.add_argument("--pdf", action="store_true", help="the main chapters as one PDF instead (needs Chromium)")
    # The recipe: a table, a public schema, a private classifier, its predictions.
    command = add("schema", _schema, "propose a schema for a CSV or Parquet file, or check one; for the holder's eyes")
    command.add_argument("file")
    task = command.add_mutually_exclusive_group()
    task.add_argument("--label", metavar="COLUMN", help="column of the label in the proposal (the last one)")
    task.add_argument("--check", metavar="SCHEMA", help="count the rows that break this schema, or look as if")
    command.add_argument("--person", metavar="COLUMN", help="column of the proposal that says whose row it is")
    command.add_argument("--out", metavar="YAML", help="where the proposal goes (FILE with the ending .schema.yaml)")
    for name, function, summary in (
        ("fit", _fit, "fit the private classifier to a CSV or Parquet file and write its privacy card"),
        ("compare", _compare, "compare private classifiers on a CSV or Parquet file; for the holder's eyes"),
    ):
        command = add(name, function, summary)
        command.add_argument("file")
        command.add_argument("--schema", metavar="YAML", help="public schema (FILE with the ending .schema.yaml)")
        command.add_argument("--epsilon", type=float, required=True)
        command.add_argument("--delta", type=float, default=1e-6, help="default: 1e-6")
        command.add_argument("--neighbouring", choices=RELATIONS, default=RELATIONS[0], help="default: %(default)s")
        if name == "compare":
            command.add_argument("--splits", type=int, default=10, metavar="N", help="default: 10")
            command.add_argument("--out", required=True, metavar="HTML", help="the page, a new file")
            continue
        command.add_argument("--label", metavar="COLUMN", help="column of the label, as the schema has it")
        command.add_argument("--no-quality", action="store_true", help="learn from all records, and hold out none")
        target = command.add_mutually_exclusive_group()
        target.add_argument("--recall", type=float, metavar="SHARE", help="find this share of the rare class, .8 say")
        target.add_argument("--alarms", type=float, metavar="NUMBER", help="raise this many alarms in 1,000 records")
        command.add_argument("--budget", type=float, metavar="EPSILON", help="refuse if all fits would cost more")
        command.add_argument("--out", required=True, metavar="MODEL", help="a new folder for model.json and card.html")
    command = add("audit", _audit, "test a privacy claim by what is really released: exit code 1 if it is refuted")
    command.add_argument("target", metavar="FILE.py[:NAME]", help="class, function or object to fit (NAME: build)")
    command.add_argument("--epsilon", type=float, help="of the claim")
    command.add_argument("--delta", type=float, default=0.0, help="default: 0")
    command.add_argument("--neighbouring", choices=RELATIONS, default=RELATIONS[0], help="default: %(default)s")
    command.add_argument(
        "--judge", action="store_true", help="also learn what noise hides, on as many fits as it takes"
    )
    command.add_argument("--fits", type=int, metavar="N", help="with --judge: N judged fits on each table")
    command.add_argument("--confidence", type=float, default=0.999, help="of all bounds together (default: 0.999)")
    command.add_argument("--clock", action="store_true", help="count CPU time as released")
    command.add_argument("--features", type=int, default=2, metavar="D", help="of the records (default: 2)")
    command.add_argument("--low", type=float, default=-1.0, help="public bound of every feature (default: -1)")
    command.add_argument("--high", type=float, default=1.0, help="public bound of every feature (default: 1)")
    command.add_argument("--schema", metavar="YAML", help="fit tables that follow this public schema")
    command.add_argument("--python", metavar="PROGRAM", help="interpreter that has the audited library")
    command.add_argument("--out", metavar="JSON", help="the certificate, a new file; fits are kept beside it meanwhile")
    command.add_argument("--replay", metavar="JSON", help="repeat the findings of this certificate")
    command = add("predict", _predict, "apply a classifier of `dpbook fit` to a file")
    command.add_argument("model")
    command.add_argument("file")
    command.add_argument("--out", required=True, metavar="CSV", help="the predictions, a new file")
    return parser


def _chapters(options) -> None:
    for chapter in chapters.chapters():
        print(f"{chapter.name:24} {chapter.title}")


def _params(options) -> None:
    chapter = chapters.chapter(options.chapter)
    for item in chapter.parameters.values():
        print(f"{item.name}: {item.type} = {item.default!r}\n    {item.allowed or 'any'}: {item.meaning}")
    for constraint in chapter.constraints:
        print(f"requires: {constraint}")
    for name, values in chapter.parameter_sets.items():
        print(f"--set {name}: {values or 'the defaults'}")


def _run(options) -> int:
    chapter = chapters.chapter(options.chapter)
    values = _values(chapter, options)
    notebook, _ = _executed(chapter, values, options)
    # Linked files are the reader's own tables, not results.
    kept = [file for file in sorted(notebook.parent.glob("*.csv")) if not file.is_symlink()]
    print(notebook, *kept, sep="\n")
    if options.html:
        from helpers.book import pages

        page = pages.render(notebook, values)
        print(page or "the page was not built")
        return 0 if page else FAILED
    return 0


def _record(options) -> int | None:
    of_one = [options.chapter is not None, bool(options.pairs), options.named is not None, options.replace]
    if any(of_one) if options.all else (not of_one[0] or options.plan or options.again):
        raise ChapterError("record must have CHAPTER with -p, --set, --replace, or --all with --plan, --again")
    if options.all:
        return _record_all(options)
    chapter = chapters.chapter(options.chapter)
    values = _values(chapter, options)
    print(*_recorded(chapter, values, options, None if options.pairs else options.named), sep="\n")
    return None


def _recorded(chapter: Chapter, values: dict, options, named: str | None) -> list[Path]:
    """Run what a chapter's kept tables are made by, and keep them in `results/`; where they are."""
    from helpers.book import own_data, record

    if own := own_data.names(values):
        raise ChapterError(f"dpbook record must have data that others have too, got {', '.join(own)}")
    # Read from the code, so that a chapter that keeps nothing is refused before it runs.
    expected = freshness.kept_names(chapter.code, chapter.defaults | values)
    if not expected:
        raise ChapterError(f"chapter {chapter.name} must keep a table (book.keep) to be recorded, it keeps none")
    if not options.replace:
        # Asked before the run, which may take days; a name with * is known only after it, and is asked for in `commit`.
        record.refuse_conflicts(chapter, values, [name for name in expected if "*" not in name])
    chapters.check_writable(paths.RESULTS)
    # Before the run: what the tables depend on must be as it was when the run began.
    provenance = record.origin(chapter.name, values, freshness.of_tables(chapter.code, values))
    notebook, seconds = _executed(chapter, values, options, only_tables=True)
    if edited := freshness.changed(provenance["parts"], freshness.of_tables(chapter.code, values)):
        raise RunError(f"{chapter.name} was edited while it ran ({', '.join(edited)}); nothing was recorded")
    kernel = record.noted_arithmetic(notebook.parent)
    provenance |= {"set": named, "seconds": round(seconds), "jobs": options.jobs or 1, "arithmetic": kernel}
    tables = sorted(notebook.parent.glob("*.csv"))
    try:
        return record.commit(chapter, tables, provenance, replace=options.replace)
    except (ChapterError, OSError) as error:
        raise RunError(f"{error}; results/ is as it was, the tables are in {notebook.parent}") from error


def _record_all(options) -> int:
    """Say what is to be recorded and why, and record it part by part; a part that fails does not stop the others."""
    from helpers.book import plan, record

    _check_jobs(options)
    options.jobs, options.replace = options.jobs or 1, True
    commit, found = record.head(), plan.parts()
    due: list[plan.Part] = []
    for part in found:
        # Tables that are to be recorded before are not yet those that this part will be made of.
        waits = [name for name in part.code for one in due if one.makes(name.removeprefix("results/"))]
        why = part.stale() + waits
        if not why and options.again and any(there["commit"] != commit for there in part.recorded.values()):
            why = ["asked for again"]
        if why:
            due.append(part)
        print(f"{part!s:40} {_cost(part)}  {'stale: ' + _few(why) if why else 'fresh'}")
    left = sum(part.seconds() or 0 for part in due)
    unknown = sum(part.seconds() is None for part in due)
    print(
        f"{len(due)} of {len(found)} parts to record, {left} s when they were last recorded"
        f"{f', and {unknown} that never were' if unknown else ''}"
    )
    if options.plan:
        return 0
    if changed := record.uncommitted():
        raise ChapterError(f"what is recorded must be as it was committed, got changes in {_few(changed)}")
    failed = []
    for place, part in enumerate(due, start=1):
        if record.uncommitted() or record.head() != commit:
            raise RunError(f"the project was edited, {len(due) - place + 1} parts are left; commit and run it again")
        print(f"[{place}/{len(due)}] {part}, about {left} s left", flush=True)
        left -= part.seconds() or 0
        started = time.perf_counter()
        try:
            if isinstance(part.source, Chapter):
                _recorded(part.source, part.source.check(part.values or {}), options, part.named)
            else:
                subprocess.run(["make", "-C", paths.ROOT / "benchmarks", part.source], check=True)
            if why := plan.again(part).stale():
                raise RunError(f"still stale: {_few(why)}")
            print(f"[{place}/{len(due)}] recorded in {time.perf_counter() - started:.0f} s", flush=True)
        except (ChapterError, RunError, OSError, subprocess.CalledProcessError) as error:
            failed.append(part)
            _told(f"{part}: {error}", FAILED)
    if failed:
        _told(f"{len(failed)} of {len(due)} parts failed: {_few([str(part) for part in failed])}", FAILED)
    return FAILED if failed else 0


def _cost(part) -> str:
    """Seconds when the part was last recorded, and on how many processes."""
    jobs = max((there.get("jobs", 1) for there in part.recorded.values()), default=1)
    return f"{'?' if part.seconds() is None else part.seconds():>6} s{f' on {jobs}' if jobs > 1 else '':5}"


def _values(chapter: Chapter, options) -> dict:
    """Parameter values of a run, checked together: the named set, overridden by single parameters."""
    sets = chapter.parameter_sets
    with _bad_input_refused():
        if options.named is not None:
            check_choice(f"--set (of chapter {chapter.name})", options.named, sets)
    _check_jobs(options)
    return chapter.check(sets.get(options.named, {}) | chapter.parse(options.pairs))


def _check_jobs(options) -> None:
    with _bad_input_refused():
        if options.jobs is not None:
            check_integer("--jobs", options.jobs, low=1, high=MOST_JOBS)
    if options.scheduler is not None and options.jobs is None:
        raise ChapterError("--scheduler must come with --jobs, got it alone")


def _check_data_folder() -> None:
    """Refuse a `$DPBOOK_DATA` that is no folder, and make it absolute: kernels run elsewhere."""
    with _bad_input_refused():
        paths.data_folders()
    if folder := os.environ.get("DPBOOK_DATA"):
        os.environ["DPBOOK_DATA"] = str(Path(folder).expanduser().resolve())


def _executed(chapter: Chapter, values: dict, options, *, only_tables: bool = False) -> tuple[Path, float]:
    """Run a copy of a chapter, under `--jobs` with a store of its finished trials; its path and its seconds."""
    folder = paths.RUNS / chapter.name / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    with ExitStack() as stack:
        earlier = _open_store(stack, chapter, values, options, only_tables) if options.jobs is not None else 0.0
        started = time.perf_counter()
        notebook = chapter.run(values, folder, only_tables=only_tables)
        return notebook, time.perf_counter() - started + earlier


def _open_store(stack: ExitStack, chapter: Chapter, values: dict, options, only_tables: bool) -> float:
    """Let the chapter's trials use processes and a store; the seconds that interrupted runs have spent on them."""
    from helpers.book import own_data
    from helpers.study import experiments

    modules = sorted(sources.definitions(chapter.code))
    code = sources.modules_digest(modules)  # before the parts: an edit in between is noticed, not attributed
    parts = freshness.of_tables(chapter.code, values) if only_tables else freshness.of_run(chapter.code, values)
    identity = [chapter.name, parts, chapter.defaults | values]
    # Trials know a data set by its name, and a table of the reader's own may change: it gets a store of its own.
    own = own_data.digest(values)
    store = paths.RUNS / chapter.name / (f"experiments-{own}.sqlite" if own else "experiments.sqlite")
    chapters.check_writable(store.parent)
    try:
        session = experiments.session(options.jobs, store, identity, modules, code, options.scheduler)
        return stack.enter_context(session)
    except (sqlite3.DatabaseError, experiments.SessionError) as error:
        raise ChapterError(f"{store} must be a sound store that no other program holds, got: {error}") from None


def _data(options) -> None:
    from helpers import data

    print(data.available().to_string(index=False))


def _status(options) -> int:
    from helpers.book import plan

    sound, damaged = [], 0
    for chapter in chapters.chapters():
        try:
            changes, last = chapter.changes(), chapter.record
            sound.append(chapter)
        except ChapterError as error:
            damaged += 1
            print(f"{chapter.name:32} {'damaged':9} {error}")
            continue
        cost = f"{last['seconds']:4} s" if last else ""
        print(
            f"{chapter.name:32} {'stale' if changes else 'fresh':9} {last.get('date', ''):10} {cost:6} {_few(changes)}"
        )
    parts, names = [*filter(None, map(plan.of_chapter, sound))], results.recorded_names()
    if not all(any(part.makes(name) for part in parts) for name in names):
        parts += plan.benchmarks()
    for name in names:
        try:
            _, there = results.read(name)
        except ValueError as error:
            damaged += 1
            print(f"{name:32} {'damaged':9} {error}")
            continue
        own = next((part for part in parts if part.makes(name)), None)
        changes = own.changes(there) if own else ["nothing makes it any more"]
        age = f"stale: {_few(changes)}" if changes else ""
        print(f"{name:32} {'recorded':9} {there['date']:10} {there['seconds']:4} s {age}")
    return FAILED if damaged else 0


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _refresh(options) -> None:
    chosen = [chapters.chapter(name) for name in options.names]
    # Named chapters are executed even if they are fresh.
    for chapter in chosen or [entry for entry in chapters.chapters() if entry.changes()]:
        print(f"executing {chapter.name} ...", flush=True)
        chapter.execute()
        print(f"{chapter.name}: {chapter.record['seconds']} s")


def _build(options) -> int:
    from helpers.book import pages

    page = pages.build_pdf() if options.pdf else pages.build()
    print(f"The book: {page}" if page else "the book was not built")
    return 0 if page else FAILED


def _schema(options) -> int:
    import pandas as pd

    from helpers.data import schema, tables

    with _bad_input_refused():
        if options.check is not None:
            wanted = tables.schema_of(options.file, options.check)
            table = tables.read(options.file, quoted_newlines=wanted.quoted_newlines)
            found = pd.concat([wanted.findings(table), schema.doubts(wanted, table)])
            if not len(found):
                print("every row follows the schema")
                return 0
            print(
                found.to_string(index=False), f"findings to look at: {len(found)}; none of them stops a fit", sep="\n"
            )
            return FAILED
        out = _new_file("--out, or its default,", options.out or tables.schema_beside(tables.found(options.file)))
        text = schema.propose(tables.read(options.file), options.label, options.person)
    out.write_text(text, encoding="utf-8")
    print(f"{out}: as private as the data until each entry marked {schema.MARK} is confirmed or replaced")
    return 0


def _fit(options) -> None:
    from helpers.data import tables
    from helpers.meta import spending
    from helpers.meta.published import PublishedClassifier

    with _bad_input_refused():
        out = _new_file("--out", options.out)
        file = tables.found(options.file)
        beside = Path(options.schema) if options.schema else tables.schema_beside(file)
        schema = tables.schema_of(file, options.schema)
        if options.label not in (None, schema.label):
            raise ChapterError(f"--label must be the label of the schema, {schema.label!r}, got {options.label!r}")
        budget = {"epsilon": options.epsilon, "delta": options.delta, "neighbouring": _relation(options.neighbouring)}
        target = {"recall": options.recall, "alarms": options.alarms}
        spent: list = []

        def begin(promised):
            spent.extend(spending.begin(spending.beside(beside), promised, options.budget))

        with _folder_that_appears(out) as folder:
            with warnings.catch_warnings(action="ignore"):  # of whatever a library says about the records
                classifier = PublishedClassifier.fit(
                    file, schema, **budget, **target, measure=not options.no_quality, on_begin=begin
                )
            from helpers.book import card

            classifier.save(folder / "model.json")
            (folder / "card.html").write_text(card.render(classifier, spent), encoding="utf-8")
    for warning in card.warnings(classifier, spent):
        print(f"dpbook: warning: {warning}", file=sys.stderr)
    word, reason = card.verdict(classifier)
    print(classifier.guarantee, f"{word}: {reason}", out / "model.json", out / "card.html", sep="\n")


def _compare(options) -> None:
    from helpers import data
    from helpers.data import tables
    from helpers.privacy import gaussian_mu

    with _bad_input_refused():
        out = _new_file("--out", options.out)
        n_splits = check_integer("--splits", options.splits, low=3, high=MOST_JOBS)
        gaussian_mu(check_real("epsilon", options.epsilon, low=0, inclusive="neither"), options.delta)
        schema = tables.schema_of(options.file, options.schema)
        if len(schema.class_names) != 2:
            raise ChapterError(f"schema must have two classes to compare, got {', '.join(schema.class_names)}")
        print("for the holder's eyes: nothing of this is private", flush=True)
        from helpers.book import compare

        budget = (options.epsilon, options.delta, _relation(options.neighbouring))
        problem = compare.Problem(data.load(options.file, schema=schema), schema, *budget)
        outcomes, started = [], time.perf_counter()
        with warnings.catch_warnings(action="ignore"):  # of libraries, about single splits
            for outcome in compare.trials(problem, n_splits):
                outcomes.append(outcome)
                seed, name, seconds = (outcome.row[key] for key in ("seed", "method", "seconds"))
                is_last = len(outcomes) % len(compare.METHODS) == 0
                if seed == 0:
                    print(f"{name}: {seconds:.1f} s", flush=True)
                    if is_last:
                        left = (n_splits - 1) * (time.perf_counter() - started)
                        print(f"about {compare.duration(left)} for the other {n_splits - 1} splits", flush=True)
                elif is_last:
                    print(f"split {seed + 1} of {n_splits}", flush=True)
        page = compare.render(problem, outcomes)
    out.write_text(page, encoding="utf-8")
    print(out)


def _audit(options) -> int:
    from helpers.data.schema import Schema
    from helpers.privacy import Guarantee, audit

    with _bad_input_refused():
        if (options.epsilon is None) == (options.replay is None):
            raise ChapterError("audit needs either --epsilon or --replay")
        if options.fits is not None and not options.judge:
            raise ChapterError("--fits needs --judge")
        out = _new_file("--out", options.out) if options.out else None
        python = options.python or sys.executable
        if options.replay:
            old = audit.Certificate.load(options.replay)
            with audit.Interpreter(python, options.target, clock=old.clock) as interpreter:
                found = audit.replay_certificate(old, None, look=interpreter.look)
        else:
            neighbouring = _relation(options.neighbouring)
            claim = Guarantee(options.epsilon, options.delta, neighbouring)
            if options.schema:
                pairs = audit.schema_pairs(Schema.read(options.schema), neighbouring)
            else:
                pairs = audit.rare_class_pairs(
                    neighbouring, n_features=options.features, low=options.low, high=options.high
                )
            store = out.with_suffix(".fits") if out else None
            with audit.Interpreter(python, options.target, clock=options.clock) as interpreter:
                found = audit.audit_object(
                    None,
                    claim,
                    pairs,
                    fits=options.fits if options.judge else 0,
                    confidence=options.confidence,
                    clock=options.clock,
                    look=interpreter.look,
                    store=store,
                    about=_digest(options.target),
                    say=lambda line: print(line, file=sys.stderr, flush=True),
                )
                found.versions.update(interpreter.versions())
            if store:
                store.unlink()
    if out:
        found.save(out)
    print(found)
    return FAILED if found.refuted else 0


def _digest(target: str) -> str:
    """Name and content of what `dpbook audit` fits."""
    return target + hashlib.sha256(Path(target.partition(".py")[0] + ".py").read_bytes()).hexdigest()


def _relation(name: str):
    from helpers.privacy import ADD_REMOVE, REPLACE_ONE

    return dict(zip(RELATIONS, (REPLACE_ONE, ADD_REMOVE), strict=True))[name]


def _predict(options) -> None:
    from helpers.data import schema, tables
    from helpers.meta.published import PublishedClassifier

    with _bad_input_refused():
        out, model = _new_file("--out", options.out), Path(options.model)
        classifier = PublishedClassifier.load(model / "model.json" if model.is_dir() else model)
        table = tables.read(options.file, quoted_newlines=classifier.schema.quoted_newlines)
        answer = classifier.predict(table)
        outside = schema.unlike(classifier.schema, table)
    # Written under another name first, so that a full disk leaves no half of the answer under this one.
    part = out.with_name(out.name + ".part")
    try:
        answer.to_csv(part, index=False)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    for column, rows, finding in outside.itertuples(index=False):
        print(f"dpbook: note: column {column!r} has {rows:,} of {len(table):,} rows: {finding}", file=sys.stderr)
    print(out)


@contextmanager
def _folder_that_appears(out: Path) -> Iterator[Path]:
    """A new folder for several files, which is there under its name when all of them are complete, or not at all.

    Its place is reserved at once: another run that would write there is refused. What a killed run has left is removed.
    """
    part = out.with_name(out.name + ".part")
    part.mkdir(exist_ok=True)
    reserved = os.open(part, os.O_RDONLY)
    try:
        try:
            fcntl.flock(reserved, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another run may have given the folder its name between the two calls.
            free = part.exists() and os.path.samestat(os.fstat(reserved), part.stat()) and not out.exists()
        except BlockingIOError:
            free = False
        if not free:
            raise ChapterError(f"--out must be a place where no other run writes, got {str(out)!r}")
        try:
            for left in part.iterdir():
                left.unlink()
            yield part
            for file in part.iterdir():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            part.rename(out)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(reserved)


@contextmanager
def _bad_input_refused() -> Iterator[None]:
    """Turn a ValueError about files or arguments into a `ChapterError`: one line, and exit code 2."""
    try:
        yield
    except ValueError as error:
        raise ChapterError(str(error)) from None
    except MemoryError:
        raise ChapterError("the table must fit into memory several times over, got more records or columns") from None


def _new_file(option: str, name: str | Path) -> Path:
    """A file that can be made; nothing is written over, since what a budget was spent on is not to be had again."""
    file = Path(name)
    if file.exists():
        raise ChapterError(f"{option} must be a new file, got {str(file)!r}, which exists")
    if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise ChapterError(f"{option} must be in a folder that can be written, got {str(file)!r}")
    return file
