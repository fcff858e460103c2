"""What `make quick` runs: the tests and chapters that a change reaches, in the time that it has; `make test` runs all.

The change is between the last commit on `main` and the files as they are. A test file or a chapter is reached when it
has changed itself, or a definition of the project that it uses (by the digests of `helpers.sources`), or a table that a
chapter shows. A changed file that is no code reaches the tests that mention its name, and `conftest.py` all of them.
Tests that use least of the project come first, since they are nearest to the change, then the shortest chapters.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from helpers import paths, sources
from helpers.book import chapters, freshness

SECONDS = 100  # of two minutes; linting and this file take the rest
MOST_FILES = 24  # collecting more takes too long
ALWAYS = "tests/test_imports.py"  # a second; and pytest reads the conftest beside it


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=paths.ROOT, check=True, capture_output=True, text=True).stdout


def changed_definitions(commit: str, files: set[str]) -> set[tuple[str, str]]:
    """Module and name of what is defined otherwise than in a commit; an empty name stands for statements."""
    found = set()
    for file in files:
        if file.endswith(".py") and file.startswith(tuple(f"{package}/" for package in sources.PACKAGES)):
            there = subprocess.run(["git", "show", f"{commit}:{file}"], cwd=paths.ROOT, capture_output=True, text=True)
            then = sources.digests(there.stdout if there.returncode == 0 else "")
            now = sources.digests((paths.ROOT / file).read_text() if (paths.ROOT / file).is_file() else "")
            module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            found |= {(module, name) for name in freshness.changed(then, now)}
    return found


def reached() -> tuple[list[str], list[str]]:
    """Test files and chapters, each in the order in which they are worth running."""
    commit = git("merge-base", "HEAD", "main").strip()
    files = {*git("diff", "--name-only", commit).split(), *git("ls-files", "--others", "--exclude-standard").split()}
    changed = changed_definitions(commit, files)
    names = {Path(file).name for file in files if not file.endswith((".py", ".ipynb"))}
    tests, pages = {}, {}
    for file in sorted((paths.ROOT / "tests").glob("test_*.py")):
        text, path = file.read_text(), f"tests/{file.name}"
        uses = {(module, name) for module, found in sources.definitions([text]).items() for name in found}
        if {path, "tests/conftest.py"} & files or uses & changed or any(name in text for name in names):
            tests[path] = len(uses)
    for chapter in chapters.chapters():
        path = str(chapter.path.relative_to(paths.ROOT))
        uses = {(module, name) for module, found in sources.definitions(chapter.code).items() for name in found}
        shown = {name if "." in name else f"{name}.csv" for name in freshness.of_outputs(chapter.code)}
        if path in files or uses & changed or shown & files:
            pages[path] = chapter.record.get("seconds", 0)
    return sorted(tests, key=tests.get), sorted(pages, key=pages.get)


def main() -> int:
    tests, pages = reached()
    print(f"the change reaches {len(tests)} test files and {len(pages)} chapters", flush=True)
    if len(tests) > MOST_FILES:
        print("left to make test:", *tests[MOST_FILES:], flush=True)
    os.environ["DPBOOK_TESTS_UNTIL"] = str(time.time() + SECONDS)
    options = "-p nbval.plugin --nbval-lax --nbval-current-env --nbval-sanitize-with tests/nbval.cfg -q -rs -n 2"
    chosen = dict.fromkeys([ALWAYS, *tests[:MOST_FILES], *pages])
    together = [*options.split(), "--dist", "loadfile", "--no-loadscope-reorder", *chosen]
    return subprocess.run([sys.executable, "-m", "pytest", *together], cwd=paths.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
