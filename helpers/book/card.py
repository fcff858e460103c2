"""The privacy card of a published classifier as one HTML page: what is promised, how good it is, at what risk.

Everything on it is public, or has been released with the classifier; nothing is computed from records. Its headings
follow the questions of NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025): the unit, the
parameters, the accounting, the bounding of contributions, the threats and what is excluded. What stands on every card
is in `card.html`.
"""

import html
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.book import results
from helpers.book.shapes import plot_shapes
from helpers.data.schema import Schema
from helpers.meta import spending
from helpers.meta.published import PublishedClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee

QUALITY = "private-classifiers-quality"
"""The recorded table of what each `method` reached: `relation`, `dataset`, `n`, `minority`, `features`, `epsilon`,
`splits`, and of each score the mean, `SCORE_low` and `SCORE_high`, the least and most of single fits."""
METHOD = "moments"
"""The classifier of `dpbook fit`, as that table calls it."""
GUESSING = 0.5  # balanced accuracy of a classifier that does not look at the records
_NEAR = 0.1  # above it, in balanced accuracy, that is still close to guessing
_USEFUL = 0.15  # above it, from which on it is called useful
_MOST_EPSILON = 10.0  # from which on the odds of the promise are beyond 20,000 to 1
_MANY_FITS = 3
_SCORES = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
_MEANING = {
    "balanced accuracy": "balanced accuracy (mean over the classes of the share that is recognised)",
    "recall": "recall (share of the rare cases that is found)",
    "precision": "precision (share of the alarms that is right)",
}
_SIMILAR = 2.0  # ratio of epsilon times rare records that is similar
_BAR = 1.96  # standard deviations of the noise in a 95 % interval
_RELATIONS = {REPLACE_ONE: "replace-one", ADD_REMOVE: "add/remove"}


def render(classifier: PublishedClassifier, spent: Sequence[Guarantee] = ()) -> str:
    """The page.

    Parameters
    ----------
    classifier : PublishedClassifier
    spent : sequence of Guarantee
        Of all fits to the table that are known, this one too.

    Returns
    -------
    str
        HTML without scripts or references to other files; the shapes of the model are SVG within it.
    """
    schema, guarantee, sizes = classifier.schema, classifier.guarantee, classifier.model.sizes_
    word, reason = verdict(classifier)
    texts = {
        "label": schema.label,
        "word": word,
        "reason": reason,
        **{name: f"{level:.2f}" for name, level in zip(("guessing", "near", "useful"), _levels(schema), strict=True)},
        "unit": _unit(schema),
        "relation": _relation(guarantee),
        "epsilon": f"{guarantee.epsilon:g}",
        "odds": _odds(guarantee.epsilon),
        "belief": _belief(guarantee.epsilon),
        "delta": f"1 in {1 / guarantee.delta:,.0f}",
        "together": _together(spent),
        "records": f"{sizes.n_records:,.0f} {_units(schema)}",
        "known": "public" if guarantee.neighbouring is REPLACE_ONE else "with noise",
        "rare": schema.class_names[-1],
        "count": f"{sizes.counts[-1]:,.0f}",
        "reach": f"{_BAR * sizes.noise_scale:,.0f}",
        "shared": "" if schema.person is None else "; each row of a person with m rows counts 1/m",
        "bounding": _bounding(schema),
        "accounting": _accounting(classifier, spent),
        "basis": schema.basis,
        "first": schema.class_names[0],
        "versions": ", ".join(f"{name} {version}" for name, version in classifier.versions.items()),
    }
    return page(
        "card.html",
        texts,
        warnings="".join(f'<p class="warning">{html.escape(text)}.</p>' for text in warnings(classifier, spent)),
        guarantee=guarantee._repr_html_(),
        measured=_measured(classifier),
        recorded=_recorded(classifier),
        shapes=_shapes(classifier),
        columns=_columns(schema),
    )


def verdict(classifier: PublishedClassifier) -> tuple[str, str]:
    """Whether the classifier is of use, in a word, and the reason.

    "useful", "limited" (better than guessing, and not by much), "guessing" (close to it at best) or "unknown" (what
    was measured allows both, or nothing was).
    """
    if classifier.quality is None:
        band = recorded_quality(_product(classifier), _RELATIONS[classifier.guarantee.neighbouring])
        if band is None or band.balanced_accuracy.max() >= GUESSING + _NEAR:
            return "unknown", "nobody was held out, so nothing was measured"
        return "guessing", (
            f"nobody was held out, and on all {len(band)} recorded tables with a similar product of epsilon and "
            f"rare records the balanced accuracy was below {GUESSING + _NEAR:g}, where guessing has {GUESSING:g}"
        )
    low, _, high = classifier.quality.intervals().loc["balanced accuracy"]
    guessing, near, useful = _levels(classifier.schema)
    reason = (
        f"on people who were held out its balanced accuracy was {low:.2f} to {high:.2f} (95 % interval), where "
        f"guessing has {guessing:.2f} and no error 1.00"
    )
    if low >= useful:
        return "useful", reason
    if high < near:
        return "guessing", reason
    return ("limited" if low > guessing else "unknown"), reason


def _levels(schema: Schema) -> tuple[float, float, float]:
    """Balanced accuracy of guessing, below which a classifier is close to it, and from which on it is useful."""
    # With more classes guessing is worse, and the levels keep their distances from it.
    guessing = 1 / len(schema.class_names)
    near, useful = (guessing + 2 * above * (1 - guessing) for above in (_NEAR, _USEFUL))
    return guessing, near, useful


def warnings(classifier: PublishedClassifier, spent: Sequence[Guarantee] = ()) -> list[str]:
    """What should be known before the classifier is used, from public and released numbers alone."""
    guarantee, sizes = classifier.guarantee, classifier.model.sizes_
    found = []
    if guarantee.epsilon > _MOST_EPSILON:
        found.append(
            f"epsilon is {guarantee.epsilon:g}: above {_MOST_EPSILON:g} the promise is too weak to protect anybody"
        )
    if guarantee.unit != "person":
        found.append("the promise is for single rows: a person of whom there are several is protected less, or not")
    if guarantee.delta * sizes.n_records > 1:
        found.append(
            f"delta is {guarantee.delta:g}, more than one over the {sizes.n_records:,.0f} records: that would "
            "allow to publish one of them"
        )
    if sizes.counts[-1] > sizes.n_records / 2:
        found.append(
            f"the class that was named as the rare one has {sizes.counts[-1]:,.0f} of {sizes.n_records:,.0f} records: "
            "recall, precision and alarms are about the frequent class"
        )
    if sizes.counts[-1] < _BAR * sizes.noise_scale:
        found.append(
            f"the rare class has about {sizes.counts[-1]:,.0f} records, and the noise on this count reaches "
            f"{_BAR * sizes.noise_scale:,.0f}: there may be none"
        )
    band = recorded_quality(_product(classifier), _RELATIONS[guarantee.neighbouring])
    if band is not None and band.balanced_accuracy.median() < GUESSING + _NEAR / 2:
        found.append(
            f"epsilon times rare records is about {_product(classifier):,.0f}, where most recorded tables were near "
            f"guessing (median balanced accuracy {band.balanced_accuracy.median():.2f})"
        )
    if len(spent) >= _MANY_FITS:
        together = spending.total(spent)
        found.append(f"this is fit number {len(spent)} to this table: all together promise only {together}")
    return found


def _odds(epsilon: float) -> str:
    """What even odds become at most."""
    return f"{math.exp(min(epsilon, 700)):,.3g}"


def _belief(epsilon: float) -> str:
    """How sure somebody who was undecided becomes at most, in per cent."""
    return f"{100 / (1 + math.exp(-epsilon)):.3g}"


def _together(spent: Sequence[Guarantee]) -> str:
    """What all fits of the table give away to somebody who sees all of them."""
    if len(spent) < 2:
        return ""
    total = spending.total(spent)
    return (
        f" This is fit number {len(spent)} to the table that is noted: whoever reads all of them may become at most "
        f"{_belief(total.epsilon)} % sure, and a bet at even odds one at {_odds(total.epsilon)} to 1; a "
        f"probability of 1 in {1 / total.delta:,.0f} is left out."
    )


def recorded_quality(product: float, relation: str = "replace-one") -> pd.DataFrame | None:
    """All recorded results with a similar product of epsilon and number of rare records.

    Parameters
    ----------
    product : float
        Of numbers that are public or released, since the choice of rows depends on them.
    relation : {"replace-one", "add/remove"}

    Returns
    -------
    DataFrame or None
        Rows of the recorded table, within a factor of two; None where there are none.
    """
    if QUALITY not in results.recorded_names():
        return None
    table, _ = results.recorded(QUALITY)
    table = table[(table.method == METHOD) & (table.relation == relation)]
    products = table.epsilon * table.minority
    table = table[products.between(product / _SIMILAR, product * _SIMILAR)]
    return table if len(table) else None


def _product(classifier: PublishedClassifier) -> float:
    """Epsilon times the released number of rare records, of which there is at least one."""
    return classifier.guarantee.epsilon * max(float(classifier.model.sizes_.counts[-1]), 1.0)


def _relation(guarantee: Guarantee) -> str:
    theirs = "what is recorded of one person, say Alice" if guarantee.unit == "person" else "one certain row"
    if guarantee.neighbouring is REPLACE_ONE:
        return f"the table holds {theirs}, or something else in its place"
    return f"the table holds {theirs}, or does not"


def _unit(schema: Schema) -> str:
    if schema.person is not None:
        return f"A person, with all rows that have the same {schema.person!r}."
    if schema.rows_per_person is None:
        return (
            "A row, and no person: how many rows a person has is not known. Somebody with ten rows is protected with "
            "ten times this epsilon, which may be no protection."
        )
    rows = "one row" if schema.rows_per_person == 1 else f"at most {schema.rows_per_person} rows"
    return (
        f"A person, who has {rows} in the table. This is what the schema states; nobody has counted it for this card."
    )


def _units(schema: Schema) -> str:
    """What is counted once: people where a column names them, else rows."""
    return "rows" if schema.person is None else "people"


def _bounding(schema: Schema) -> str:
    said = "A row counts once, and no more than any other."
    if schema.person is not None:
        said = "Each row of a person with m rows counts with weight 1/m, so that all people weigh the same."
    elif (schema.rows_per_person or 1) > 1:
        said = f"All noise is {schema.rows_per_person} times what it would be for one row of a person."
    if schema.quoted_newlines:
        said += (
            " Cells in quotes may hold line breaks here: a record that opens a quote and does not close it would take "
            "the lines after it with it, and from that the promise does not protect."
        )
    return said


def _accounting(classifier: PublishedClassifier, spent: Sequence[Guarantee]) -> str:
    guarantee = classifier.guarantee
    told = f"{guarantee.source[:1].upper()}{guarantee.source[1:]}."
    if len(spent) > 1:
        earlier = "earlier fit that is" if len(spent) == 2 else f"{len(spent) - 1} earlier fits that are"
        told += f" Together with the {earlier} noted for this table: {spending.total(spent)}."
    elif spent:
        told += " No earlier fit to this table is noted."
    return told


def _measured(classifier: PublishedClassifier) -> str:
    """What was measured on the people held out, in sentences and as a table."""
    if classifier.quality is None:
        return "<p>Nobody was held out, so nothing was measured.</p>"
    table, names = classifier.quality.intervals(), classifier.schema.class_names
    low, middle, high = table.loc["precision"]
    units, held = _units(classifier.schema), np.maximum(classifier.quality.counts.sum(axis=1), 0)
    # Where so few alarms are right, the reciprocal says only that there are very many for a case.
    least, most = 1 / max(high, 1e-3), f"{1 / low:,.0f}" if low > 1e-3 else "more than 1,000"
    alarms = f"about {1 / middle:,.0f} ({least:,.0f} to {most})" if middle > 1e-3 else f"at least {least:,.0f}"
    said = (
        f"About {held.sum():,.0f} {units} were held out, each counted once, about {held[-1]:,.0f} of them {names[-1]} "
        f"(noisy counts). Of the alarms, {100 * low:.3g} to {100 * high:.3g} % are right. "
        f"Alarms for each case found: {alarms}."
    )
    if classifier.model.recall is not None:
        said += f" It was asked to find {100 * classifier.model.recall:g} % of the cases."
    if classifier.model.alarms is not None:
        said += f" It was asked for {classifier.model.alarms:g} alarms in 1,000 {units}."
    if len(names) == 2:
        said += (
            f" It says {names[-1]} from a probability of {classifier.threshold:.2g} on: where cases are rare, the best "
            "cut-off may be far below one half."
        )
    meaning = _MEANING | {"alarms per 1,000": f"alarms per 1,000 {units}"}
    digits = {"precision": 3, "alarms per 1,000": 0}
    rows = [
        (meaning[name], *(f"{value:,.{digits.get(name, 2)}f}" for value in row))
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return f"<p>{html.escape(said)}</p>" + html_table((f"of {units} like these", "at least", "about", "at most"), rows)


def _recorded(classifier: PublishedClassifier) -> str:
    """What was reached on other tables with a similar product of epsilon and rare records."""
    relation = _RELATIONS[classifier.guarantee.neighbouring]
    table = recorded_quality(_product(classifier), relation)
    if table is None:
        return "<p>No results are recorded for other tables of this kind.</p>"
    rows = (
        (name, *(f"{value:.2f}" for value in (table[score].min(), table[score].median(), table[score].max())))
        for score, name in _SCORES.items()
    )
    return (
        f"<p>On {table.dataset.nunique()} other tables with a similar product of epsilon and rare records "
        f"({_product(classifier) / _SIMILAR:,.0f} to {_product(classifier) * _SIMILAR:,.0f}; {relation}) "
        f"the same method reached, in means over splits:</p>"
        + html_table(("", "worst table", "median", "best table"), rows)
    )


def _shapes(classifier: PublishedClassifier) -> str:
    """The figure of the model's functions, as SVG."""
    figure = plot_shapes(classifier.model, class_names=classifier.schema.class_names)
    return wide(svg(figure, "what each column adds to the log-odds"))


def _columns(schema: Schema) -> str:
    """The schema as a table: name, kind and allowed values of each column, the label last."""
    rows = []
    for column in schema.columns:
        ends = [_day(end) if column.kind == "date" else f"{end:g}" for end in (column.low, column.high)]
        bounds = " to ".join(ends) + (" or missing" if column.missing else "")
        rows.append((column.name, column.kind, bounds if column.is_ordered else column.rule))
    return html_table(("column", "kind", "values"), [*rows, (schema.label, "label", ", ".join(schema.class_names))])


def _day(days: float) -> str:
    """The date that many days after 1970-01-01.

    >>> _day(17897.0)
    '2019-01-01'
    """
    return str(np.datetime64(math.floor(days), "D"))


def page(template: str, texts: Mapping[str, str], **markup: str) -> str:
    """A template of this folder with its texts, which are escaped, its markup, and the style that such pages share."""
    source, style = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in (template, "page.css"))
    return Template(source).substitute({key: html.escape(text) for key, text in texts.items()}, style=style, **markup)


def svg(figure: Figure, label: str) -> str:
    """The figure as SVG within a page; `label` says in words what it shows."""
    drawn = io.StringIO()
    # The same figure gives the same bytes: no date, no random names of elements.
    with matplotlib.rc_context({"svg.hashsalt": "card", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    _, _, rest = drawn.getvalue().partition("<svg")
    return f'<svg role="img" aria-label="{html.escape(label)}"{rest}'


def html_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return wide(f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>")


def wide(content: str) -> str:
    """The content in a box that scrolls sideways on a narrow screen and can be reached by keyboard."""
    return f'<div class="wide" tabindex="0">{content}</div>'
