"""The privacy card of a published classifier as one HTML page: what is promised, what was learned, what to expect.

Everything on it is public, or has been released with the classifier; nothing is computed from records. What stands on
every card is in `card.html`.
"""

import html
import io
import math
from collections.abc import Iterable
from pathlib import Path
from string import Template

import matplotlib
import numpy as np
import pandas as pd

from helpers.book import results
from helpers.book.shapes import plot_shapes
from helpers.data.schema import Schema
from helpers.meta.published import PublishedClassifier
from helpers.privacy import REPLACE_ONE

QUALITY = "private-classifiers-quality"
"""The recorded table of what each `method` reached: `relation`, `dataset`, `n`, `minority`, `features`, `epsilon`,
`splits`, and of each score the mean, `SCORE_low` and `SCORE_high`, the least and most of single fits."""
METHOD = "moments"
"""The classifier of `dpbook fit`, as that table calls it."""
_SCORES = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
_DELTA = "<li>Delta must be far less than one over the number of records, which is not shown to be so here.</li>"
_NEAREST = 3  # recorded data sets that are shown
_BAR = 1.96  # standard deviations of the noise in a 95 % interval


def render(classifier: PublishedClassifier) -> str:
    """The page.

    Parameters
    ----------
    classifier : PublishedClassifier

    Returns
    -------
    str
        HTML without scripts or references to other files; the shapes of the model are SVG within it.
    """
    schema, guarantee, marginals = classifier.schema, classifier.guarantee, classifier.model.marginals_
    is_public = guarantee.neighbouring is REPLACE_ONE
    relation = "replace-one" if is_public else "add/remove"
    count, reach = float(marginals.counts[-1]), _BAR * marginals.noise_scale
    texts = {
        "label": schema.label,
        "records": f"{marginals.n_records:,.0f}",
        "known": "public" if is_public else "with noise",
        "rare": schema.class_names[-1],
        "count": f"{count:,.0f}",
        "reach": f"{reach:,.0f}",
        "hidden": "; so few that the noise may be all of it" if count < reach else "",
        "basis": schema.basis,
        "first": schema.class_names[0],
        "versions": ", ".join(f"{name} {version}" for name, version in classifier.versions.items()),
    }
    return Template(Path(__file__).with_name("card.html").read_text(encoding="utf-8")).substitute(
        {key: html.escape(text) for key, text in texts.items()},
        guarantee=guarantee._repr_html_(),
        delta="" if is_public else _DELTA,
        shapes=_shapes(classifier),
        quality=_quality(expected_quality(marginals.n_records, count, guarantee.epsilon, relation)),
        columns=_columns(schema),
    )


def expected_quality(
    n_records: float, n_minority: float, epsilon: float, relation: str = "replace-one"
) -> tuple[pd.DataFrame, str] | None:
    """Recorded results of the data sets that are most like one of this size at about this epsilon.

    Parameters
    ----------
    n_records, n_minority : float
        Public or released, since the choice of rows depends on them.
    epsilon : float
    relation : {"replace-one", "add/remove"}

    Returns
    -------
    (DataFrame, str) or None
        Rows of the recorded table, nearest first, and its label; None where no such table is recorded. The column
        `within` says whether the recorded sets have such sizes at all.
    """
    if QUALITY not in results.recorded_names():
        return None
    table, label = results.recorded(QUALITY)
    table = table[(table.method == METHOD) & (table.relation == relation)]
    asked = {"n": n_records, "minority": n_minority}
    table = table.assign(within=all(table[name].min() <= size <= table[name].max() for name, size in asked.items()))

    def away(column: str, value: float) -> pd.Series:
        # Distance in ratios: 100 records are as far from 1,000 as these from 10,000.
        return (np.log(table[column].clip(lower=1e-9)) - math.log(max(value, 1e-9))).abs()

    table = table[away("epsilon", epsilon) == away("epsilon", epsilon).min()]
    order = (away("n", n_records) + away("minority", max(n_minority, 1.0))).sort_values(kind="stable").index
    return table.loc[order[:_NEAREST]], label


def _shapes(classifier: PublishedClassifier) -> str:
    """The figure of the model's functions, as SVG."""
    figure = plot_shapes(classifier.model, class_names=classifier.schema.class_names)
    drawn = io.StringIO()
    # The same model gives the same bytes: no date, no random names of elements.
    with matplotlib.rc_context({"svg.hashsalt": "card", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    _, _, svg = drawn.getvalue().partition("<svg")
    return _wide(f'<svg role="img" aria-label="what each column adds to the log-odds"{svg}')


def _quality(found: tuple[pd.DataFrame, str] | None) -> str:
    """The answer of `expected_quality` as a paragraph and a table."""
    if found is None:
        return "<p>No results are recorded for this classifier: what to expect is not known.</p>"
    table, label = found
    beyond = "" if table.within.all() else " No recorded set is as large, or as small, as yours."
    rows = (
        (row["dataset"], f"{row['n']:,}", f"{row['minority']:,}", *(_ranged(row, score) for score in _SCORES))
        for _, row in table.iterrows()
    )
    return (
        f"<p>What this classifier reached at epsilon = {table.epsilon.iloc[0]:g} ({table.relation.iloc[0]}) on the "
        "recorded data sets nearest in size: means, and in brackets the least and most of single fits on "
        f"{table.splits.min()} splits or more ({html.escape(label)}). How hard a set is differs more than its size: "
        f"this is no promise for yours, and nothing of it was computed from your records.{beyond}</p>"
        + _table(("data set", "records", "of the rare class", *_SCORES.values()), rows)
    )


def _ranged(row: pd.Series, score: str) -> str:
    return f"{row[score]:.2f} ({row[f'{score}_low']:.2f} to {row[f'{score}_high']:.2f})"


def _columns(schema: Schema) -> str:
    """The schema as a table: name, kind and allowed values of each column, the label last."""
    rows = []
    for column in schema.columns:
        bounds = f"{column.low:g} to {column.high:g}" + (" or missing" if column.missing else "")
        rows.append((column.name, column.kind, bounds if column.is_ordered else column.rule))
    return _table(("column", "kind", "values"), [*rows, (schema.label, "label", ", ".join(schema.class_names))])


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return _wide(f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>")


def _wide(content: str) -> str:
    """The content in a box that scrolls sideways on a narrow screen and can be reached by keyboard."""
    return f'<div class="wide" tabindex="0">{content}</div>'
