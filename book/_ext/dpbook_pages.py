"""Sphinx extension for the pages and page parts that are generated from the project's own records.

It adds the directives `claims-register`, `claims-counts` and `claims-summary` (the register), `checked-statements` (its
rows of one main chapter), `rerun-guide` (every chapter's parameters and commands), `data-table` and `data-cards` (what
is known of every data set) and `about-this-page` (measured time, parameters, versions), and the role `finding`, which
prints a value that a chapter glued. Everything is read when the book is built, so no generated file can go stale.
"""

import ast
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from html import escape

from checks import claims
from docutils import nodes
from helpers import paths
from helpers.book import chapters
from helpers.data import Schema, sets
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

_GLUE = "application/papermill.record/"
_MOST_RANGES = 12  # of bounds that are told one by one
_BASIS = re.compile(r'id="claim-([\w-]+)" data-verdict="[^"]+" data-basis="([^"]+)"')


class Generated(SphinxDirective, ABC):
    """A directive whose place is taken by MyST text, which is made when the page is read."""

    has_content = True

    @abstractmethod
    def text(self) -> str:
        """The MyST text that each directive makes of the project's own records."""

    def run(self) -> list[nodes.Node]:
        for file in (paths.REFERENCE / "claims.yml", *(chapter.path for chapter in chapters.chapters())):
            self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(self.text(), allow_section_headings=True)


class ClaimsRegister(Generated):
    """One row a claim; `_static/register.js` filters and sorts in the browser."""

    def text(self) -> str:
        rows = list(claims.register().values())
        return f"{_filters(rows)}\n\n{_register(rows)}"


class ClaimsCounts(Generated):
    """A table: how many statements of each document have which verdict."""

    def text(self) -> str:
        rows = list(claims.register().values())
        groups = {title: [row for row in rows if row.document == name] for name, title in claims.DOCUMENTS.items()}
        counted = {title: Counter(row.verdict for row in group) for title, group in (groups | {"all": rows}).items()}
        lines = [[title, *(str(count[verdict]) for verdict in claims.VERDICTS)] for title, count in counted.items()]
        return list_table("claims-counts", ["document", *claims.VERDICTS], lines)


class ClaimsSummary(Generated):
    """One sentence: how many statements there are, and what became of them."""

    def text(self) -> str:
        return summary(list(claims.register().values()))


def summary(rows: list[claims.Claim]) -> str:
    """How many statements there are, and what became of them, as a sentence."""
    count = Counter(row.verdict for row in rows)
    hold = count[claims.HOLDS] + count[claims.TIGHTER]
    undecided = count[claims.NOT_CHECKABLE] + count[claims.UNCHECKED]
    return (
        f"Of their {len(rows)} statements {hold} hold, {count[claims.CORRECTED]} hold only after a correction, "
        f"{count[claims.FAILS]} fail, and {undecided} cannot be decided."
    )


class CheckedStatements(Generated):
    """The statements that a main chapter tells of: what became of each, with a link to the evidence."""

    def text(self) -> str:
        name = self.env.docname.rpartition("/")[2]
        rows = [row for row in claims.register().values() if row.chapter == name]
        if not rows:
            raise self.error(f"claims.yml has no statement of chapter {name!r}")
        lines = []
        for row in rows:
            source = f"<br><small>{escape(claims.DOCUMENTS[row.document])}</small>"
            lines.append([_evidence_link(row, escape(_label(row))) + source, f"**{row.verdict}.** {row.plain}"])
        head = ["statement, and where it is decided", "what became of it"]
        return list_table("checked-statements", head, lines, widths="30 70")


def _label(row: claims.Claim) -> str:
    """How somebody who holds the document finds the statement in it."""
    return row.label if row.label != "unnumbered" else f"{row.location}, without a number"


def _filters(rows: list[claims.Claim]) -> str:
    def select(name: str, values: dict[str, str]) -> str:
        options = "".join(f'<option value="{escape(key)}">{escape(shown)}</option>' for key, shown in values.items())
        return f'<label>{name} <select data-filter="{name}"><option value="">all</option>{options}</select></label>'

    present = {row.verdict for row in rows}
    telling = {row.chapter for row in rows}
    return (
        '<div class="claims-filters" role="search">'
        + select("document", claims.DOCUMENTS)
        + select("verdict", {verdict: verdict for verdict in claims.VERDICTS if verdict in present})
        + select("chapter", {page.name: page.title for page in chapters.chapters() if page.name in telling})
        + '<label>text <input type="search" data-filter="text"></label>'
        + '<output aria-live="polite"></output></div>'
    )


def _register(rows: list[claims.Claim]) -> str:
    lines, bases = [], evidence_kinds()
    for row in rows:
        verdict = f"**{row.verdict}**" + (f" {row.reason}" if row.reason else "")
        verdict += f" <small>{bases[row.id]}</small>" if row.id in bases else ""
        assumptions = f" *Assumes:* {row.assumptions}" if row.assumptions else ""
        marks = f'id="row-{row.id}" data-document="{row.document}" data-chapter="{row.chapter}"'
        published = f"<details><summary>as published</summary>\n\n{row.statement}{assumptions}\n\n</details>"
        lines.append(
            [
                f"<span {marks}>{claims.DOCUMENTS[row.document]}</span>, {_label(row)}",
                f"{row.plain}\n\n{published}",
                verdict,
                f"{{ref}}`{row.chapter}`<br>{_evidence_link(row, 'Evidence' if row.is_checked else 'What is missing')}",
            ]
        )
    head = ["statement of", "in plain words", "verdict", "chapter and evidence"]
    return list_table("claims-register", head, lines, widths="16 36 28 20")


def evidence_kinds() -> dict[str, str]:
    """Kinds of evidence behind each verdict, by claim id, from the stored outputs of the chapters."""
    return {
        claim: basis
        for chapter in chapters.chapters()
        for cell in chapter.notebook.cells
        for output in cell.get("outputs", [])
        for claim, basis in _BASIS.findall(output.get("data", {}).get("text/html", ""))
    }


def _evidence_link(row: claims.Claim, shown: str) -> str:
    """A link from a page in the folder of the main chapters to the verdict box of a statement, or to its page if there
    is none because the statement cannot be checked."""
    place = f"#{row.anchor}" if row.is_checked else ""
    return f'<a href="{chapters.chapter(row.evidence).address}{place}">{shown}</a>'


def list_table(style: str, head: list[str], rows: Iterable[list[str]], *, widths: str = "") -> str:
    """A table as MyST text, from the texts of its cells; an empty line separates paragraphs of a cell."""
    lines = ["```{list-table}", ":header-rows: 1", f":class: {style}", f":widths: {widths}" if widths else "", ""]
    for row in [head, *rows]:
        for index, text in enumerate(row):
            first, *others = (" ".join(part.split()) for part in text.split("\n\n"))
            lines.append(f"{'  -' if index else '* -'} {first}")
            lines += [line for other in others for line in ("", f"    {other}")]
    return "\n".join([*lines, "```"])


class RerunGuide(Generated):
    """One section a chapter: parameters with type, default, range and meaning; commands; named sets."""

    def text(self) -> str:
        for chapter in chapters.chapters():
            self.env.note_dependency(str(paths.PARAMS / f"{chapter.name}.yaml"))
        return "\n\n".join(map(guide, chapters.chapters()))


def guide(chapter: chapters.Chapter) -> str:
    """The chapter's section of the page on re-running, as MyST text."""
    first = next(iter(chapter.parameters.values()))
    default = str(first.default)
    value = f'"{default}"' if set(" []") & set(default) else default
    lines = [
        f"## {chapter.title}\n",
        f"{{ref}}`Read the chapter <{chapter.name}>`. {_facts(chapter)}\n",
        _parameters(chapter),
        f"\n```bash\ndpbook run {chapter.name} -p {first.name} {value} --html\n```\n",
        "Named sets:",
    ]
    for name, values in chapter.parameter_sets.items():
        defaults = {key: chapter.parameters[key].default for key in values} == values
        shown = "" if defaults else ", ".join(f"`{key}={value!r}`" for key, value in values.items())
        lines += ["", f"- `dpbook run {chapter.name} --set {name}`: {shown or 'the defaults of the notebook'}"]
    return "\n".join(lines)


def _facts(chapter: chapters.Chapter) -> str:
    record = chapter.record
    if not record:
        return "Not executed yet."
    needs = ", ".join(f"`{name}`" for name in chapter.requires) or "none beyond the simulators"
    return (
        f"Measured when last executed ({record['date']}): {record['seconds']} s and "
        f"{record['peak_memory_mb']} MB at most. Data: {needs}."
    )


class DataTable(Generated):
    """One row a data set, with a link to its card."""

    def text(self) -> str:
        rows = []
        for card in map(sets.card, sets.NAMES):
            link = f"{{ref}}`{card.name} <data-{card.name}>`"
            rows.append([link, f"{card.n:,}", f"{card.n_features:,}", _minority(card), f"{card.n_repeated:,}"])
        return list_table("data-cards", ["data set", "records", "features", "of the minority", "repeated"], rows)


class DataCards(Generated):
    """A card for every data set, by group, with the chapters that use it; no data file is opened."""

    def text(self) -> str:
        users: dict[str, list[str]] = {}
        for chapter in chapters.chapters():
            for name in data_sets(chapter):
                users.setdefault(name, []).append(chapter.name)
        groups: dict[str, list[str]] = {}
        for card in map(sets.card, sets.NAMES):
            groups.setdefault(_group(card), []).append(_card(card, users.get(card.name, [])))
        return "\n\n".join(part for group, texts in groups.items() for part in (f"## {group}", *texts))


def data_sets(chapter: chapters.Chapter) -> list[str]:
    """Names of the data sets that a chapter loads by itself or can be asked for, in the catalogue's order."""
    allowed = [name for item in chapter.parameters.values() for name in re.findall(r"[\w-]+", item.allowed)]
    wanted = {*chapter.requires, *allowed}
    return [name for name in sets.NAMES if name in wanted]


def _minority(card: sets.Card) -> str:
    n = min(card.counts)
    return f"{n:,} ({100 * n / card.n:.2g} %)"


def _group(card: sets.Card) -> str:
    """Where it comes from, as a heading."""
    if card.name in sets.BENCHMARK:
        return "The benchmark of imbalanced-learn"
    return "Larger public sets" if card.files else "Simulated, or bundled with scikit-learn"


def _bounds(schema: Schema) -> str:
    """The bounds in words: by name where few features are not in [0, 1], else each range with its frequency."""
    names, pairs = schema.feature_names, [tuple(pair) for pair in schema.bounds.tolist()]
    named = {name: pair for name, pair in zip(names, pairs, strict=True) if pair != (0, 1)}
    if len(set(pairs)) == 1:
        return f"each {_range(pairs[0])}"
    if len(named) <= _MOST_RANGES and "x1" not in names:
        rest = ["all others 0 to 1"] if len(named) < len(pairs) else []
        return ", ".join([*(f"{name} {_range(pair)}" for name, pair in named.items()), *rest])
    counted = Counter(pairs)
    if len(counted) > _MOST_RANGES:
        return f"{len(counted)} ranges between {min(pairs)[0]:,.9g} and {max(high for _, high in pairs):,.9g}"
    return ", ".join(f"{_range(pair)}" + (f" ({n} features)" if n > 1 else "") for pair, n in counted.items())


def _range(pair: tuple[float, float]) -> str:
    return " to ".join(f"{end:,.9g}" for end in pair)


def _card(card: sets.Card, users: list[str]) -> str:
    repeated = "" if not card.n_repeated else f" {card.n_repeated:,} records repeat the features of an earlier one."
    used = ", ".join(f"{{ref}}`{name} <{name}>`" for name in users) or "no chapter"
    return "\n".join(
        [
            f"(data-{card.name})=",
            f"### {card.name}",
            "",
            f"A record: {card.schema.record}. The minority: {card.minority}.",
            "",
            f"- {card.n:,} records, {card.n_features:,} features, {_minority(card)} of the minority.{repeated}",
            f"- Bounds: {_bounds(card.schema)}. Why public: {card.schema.basis}.",
            f"- Source: {card.schema.source}. Licence: {card.schema.licence}.",
            f"- In: {used}.",
        ]
    )


class AboutThisPage(Generated):
    """A fold at the end of a chapter: what it needs (the content), what its run took, its parameters and versions."""

    def text(self) -> str:
        chapter = chapters.chapter(self.env.docname.rpartition("/")[2])
        lines = ["::::{dropdown} About this page", ":class-container: about-this-page", "", *self.content, ""]
        if chapter.is_appendix:
            lines += [f"This page belongs to {{ref}}`{chapter.main}`.", ""]
        lines += [
            f"{_facts(chapter)} Run it with other parameters: `dpbook run {chapter.name} --set full --html`; "
            "{ref}`how-to-rerun` says how.\n",
            _parameters(chapter),
            "\nThe page begins with these cells:\n",
        ]
        for cell in (cell for cell in chapter.notebook.cells if "remove-cell" in cell.metadata.get("tags", ())):
            shown = (output.get("data", {}).get("text/html", "") for output in cell.get("outputs", ()))
            lines += [f"```python\n{cell.source}\n```\n", *filter(None, shown), ""]
        return "\n".join([*lines, "::::"])


def _parameters(chapter: chapters.Chapter) -> str:
    """A table of the chapter's parameters."""
    rows = [
        [f"`{item.name}`", f"`{item.type}`", f"`{item.default!r}`", item.allowed or "any", item.meaning]
        for item in chapter.parameters.values()
    ]
    return list_table("parameters", ["parameter", "type", "default", "allowed", "meaning"], rows)


class FindingRole(SphinxRole):
    """`` {finding}`CHAPTER.KEY` ``: the text that the chapter glued under KEY in its stored outputs."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, _, key = self.text.partition(".")
        chapter = chapters.chapter(name)
        self.env.note_dependency(str(chapter.path))
        values = glued(chapter)
        if key not in values:
            message = self.inliner.reporter.error(
                f"{name} glues no {key!r}; it glues {sorted(values)}", line=self.lineno
            )
            return [], [message]
        return [nodes.inline(self.text, values[key], classes=["finding"])], []


def glued(chapter: chapters.Chapter) -> dict[str, str]:
    """The texts glued in a chapter's stored outputs, by key."""
    values = {}
    for cell in chapter.notebook.cells:
        for output in cell.get("outputs", []):
            for mime, text in output.get("data", {}).items():
                # A glued figure has a text too, its repr, which is no literal.
                if mime.startswith(_GLUE) and mime.endswith("text/plain") and text[:1] in "'\"":
                    values[output["metadata"]["scrapbook"]["name"]] = ast.literal_eval(text)
    return values


def add_directives(app: Sphinx, directives: dict[str, type[SphinxDirective]]) -> dict[str, bool]:
    """Add them, and say what an extension of the book says of itself: pages may be read and written in parallel."""
    for name, directive in directives.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("finding", FindingRole())
    return add_directives(
        app,
        {
            "claims-register": ClaimsRegister,
            "claims-summary": ClaimsSummary,
            "rerun-guide": RerunGuide,
            "data-table": DataTable,
            "data-cards": DataCards,
            "about-this-page": AboutThisPage,
            "checked-statements": CheckedStatements,
            "claims-counts": ClaimsCounts,
        },
    )
