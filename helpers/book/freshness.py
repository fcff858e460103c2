"""What a chapter's outputs and its recorded tables depend on, part by part, so that what is old can be said by name.

A part is a name with a digest: the code cells, every module of the package that they reach, printed tables, recorded
results that are shown, the pins. Words do not count (see `helpers.sources`). Data is covered by the cards of the
data sets (`helpers.data.sets`), which hold checksums. Comparing is left to the callers, except for `changed`.

Outputs are executed again in seconds, and all pins count for them. Recorded tables take hours: they depend on the
statements that they are made by (`helpers.book.slices`), the cards of the data sets that these or the parameters name,
and the pins of the packages that are loaded.
"""

import ast
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from helpers import paths, sources
from helpers.book import results, slices

Parts = dict[str, str]

_TABLES = "helpers.book.results"  # the one module of its room that tables are made with; the others draw
_SHOWS = ("helpers.book", "checks.claims")
_ASKED = "helpers.sources"  # says whether a stored trial is still good, and computes nothing of a table


def of_outputs(cells: Sequence[str]) -> Parts:
    """What the stored outputs of a notebook with these code cells depend on."""
    return _code(cells) | _shown_results(cells)


def of_tables(cells: Sequence[str], values: Mapping[str, object]) -> Parts:
    """What the tables depend on that are kept when these code cells are recorded with these parameters.

    Recorded results of other chapters that the tables are made of count by their content.
    """
    made_by, own = slices.kept(cells, values), kept_names(cells, values)
    named = [*shown_names(made_by), *(name for name in _patterns(made_by, "recorded", {}) if "*" not in name)]
    found = of_run(made_by, values)
    for name in named:
        if not any(fnmatchcase(name, pattern) for pattern in own):
            file = results.whereabouts(f"{name}.csv")
            found[f"results/{name}"] = sources.digest(file.read_bytes()) if file.is_file() else "absent"
    return found


def of_run(texts: Sequence[str], values: Mapping[str, object]) -> Parts:
    """What pieces of code compute with when they run with these parameters; what only draws does not count."""
    tables = _printed_tables(texts)
    found = {"code cells": sources.cells_digest(texts)} | {name: sources.digest(text) for name, text in tables.items()}
    found |= sources.parts(texts, cards_named_in=[*tables.values(), repr(values)])
    found = {name: value for name, value in found.items() if not name.startswith((*_SHOWS, _ASKED)) or name == _TABLES}
    return found | {f"constraints.txt: {name}": version for name, version in sources.pins(texts).items()}


def kept_names(cells: Sequence[str], parameters: Mapping[str, object]) -> list[str]:
    """Patterns of the tables that these cells keep: names, with `*` for what only the run can know."""
    return _patterns(cells, "keep", parameters)


def changed(then: Parts, now: Parts) -> list[str]:
    """Names of the parts that are not as they were, sorted."""
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))


def _code(cells: Sequence[str]) -> Parts:
    """Cells, reached modules, printed tables, pins of what they import, and cards of the data sets that are named."""
    tables, pins = _printed_tables(cells), sorted(sources.pins(cells).items())
    parts = {"code cells": sources.cells_digest(cells), "constraints.txt": sources.digest(repr(pins))}
    parts |= {name: sources.digest(text) for name, text in tables.items()}
    # A chapter may take the names of data sets from a printed table.
    return parts | sources.parts(cells, cards_named_in=tables.values())


def _printed_tables(cells: Sequence[str]) -> dict[str, str]:
    """The texts of the printed tables that cells read, by file."""
    wanted = _patterns(cells, "reference_table", {})
    return {
        f"reference/tables/{file.name}": file.read_text(encoding="utf-8")
        for file in sorted((paths.REFERENCE / "tables").glob("*.csv"))
        if any(fnmatchcase(file.stem, pattern) for pattern in wanted)
    }


def _shown_results(cells: Sequence[str]) -> Parts:
    """The recorded results that cells show, with the lines that label them."""
    parts = {}
    for name in shown_names(cells):
        try:
            content, provenance = results.read(name)
        except ValueError:
            parts[f"results/{name}"] = "damaged"  # another part than any that was stored, so that the page is stale
            continue
        parts[f"results/{name}"] = sources.digest(content + results.label(provenance).encode())
    return parts


def shown_names(cells: Sequence[str]) -> list[str]:
    """Names of the recorded results that cells read."""
    listed = _patterns(cells, "recorded_names", {})
    wanted = _patterns(cells, "recorded", {})
    if listed and "*" in wanted:  # a loop over names that were asked for
        wanted = [*listed, *(pattern for pattern in wanted if pattern != "*")]
    return list(dict.fromkeys(name for pattern in [*wanted, *listed] for name in results.recorded_names(pattern)))


def _patterns(cells: Sequence[str], function: str, values: Mapping[str, object]) -> list[str]:
    """The names given to a function such as `book.keep`, with `*` for parts that are not written in the call."""
    found = [_pattern(node, values) for cell in cells for node in _arguments(cell, function)]
    return list(dict.fromkeys(found))


def _arguments(cell: str, function: str) -> list[ast.expr]:
    """The expression that names a table in each call of `function`: `book.keep(frame, NAME)`, `recorded(NAME)`."""
    if function not in cell:  # most cells; walking a tree takes a thousand times as long
        return []
    calls = [node for node in ast.walk(sources.parsed(cell)) if isinstance(node, ast.Call)]
    calls = [node for node in calls if function in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))]
    # `keep` takes the table first and its name second; the others take the name alone.
    place = 1 if function == "keep" else 0
    unknown = ast.Name("unknown")
    return [[*node.args[place:], *(word.value for word in node.keywords), unknown][0] for node in calls]


def _pattern(node: ast.expr, values: Mapping[str, object]) -> str:
    """The text that an expression makes, with `*` for each part whose value is not in `values`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_pattern(part, values) for part in node.values)
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
        return _pattern(node.value, values)
    return str(values[node.id]) if isinstance(node, ast.Name) and node.id in values else "*"
