"""How many chapters an edit makes stale, module by module: `.venv/bin/python benchmarks/staleness.py`.

Three counts stand beside each module: chapters that load it (which an edit of any line would stale if whole modules
counted), chapters that reach its median definition, and chapters that reach the definition that most of them reach.
Imported names are no definitions here, and neither is what no chapter can load.
"""

from statistics import median

from helpers import sources
from helpers.book import chapters


def main() -> None:
    reached = [sources.definitions(chapter.code) for chapter in chapters.chapters()]
    rows = []
    for module in {name for each in reached for name in each}:
        edits = [sum(name in each.get(module, ()) for each in reached) for name in sources.defined(module)]
        rows.append((module, sum(module in each for each in reached), median(edits or [0]), max(edits, default=0)))
    print(f"{len(reached)} chapters\n{'module':40} {'load it':>8} {'median':>8} {'most':>8}")
    for module, *counts in sorted(rows, key=lambda row: (-row[1], row[0])):
        print(f"{module:40}", *(f"{count:8g}" for count in counts))
    print(f"{'mean':40}", *(f"{sum(column) / len(rows):8.1f}" for column in list(zip(*rows, strict=True))[1:]))


if __name__ == "__main__":
    main()
