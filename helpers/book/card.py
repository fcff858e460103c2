"""The privacy card of a published classifier as one HTML page: what is promised, what was learned, what to expect.

Everything on it is public, or has been released with the classifier; nothing is computed from records.
"""

import html
import io
import math
from collections.abc import Iterable

import matplotlib
import numpy as np
import pandas as pd

from helpers.book import results
from helpers.book.shapes import plot_shapes
from helpers.data.schema import Column
from helpers.meta.published import PublishedClassifier
from helpers.privacy import REPLACE_ONE

QUALITY = "private-classifiers-quality"
"""The recorded table of what each `method` reached: `relation`, `dataset`, `n`, `minority`, `features`, `epsilon`,
`splits`, and of each score the mean, `SCORE_low` and `SCORE_high`, the least and most of single fits."""
METHOD = "moments"
"""The classifier of `dpbook fit`, as that table calls it."""
_SCORES = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
_NEAREST = 3
_BAR = 1.96
_SHAPES = "what each column adds to the log-odds"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.privacy-card { border: 1px solid #bbb; border-left: .4rem solid #0072b2; border-radius: .25rem; padding: .6rem .9rem; }
.privacy-card-title { font-weight: 600; margin: 0 0 .3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .9rem; margin: 0; }
dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; } ul { margin: 0; padding-left: 1.1rem; }
table { border-collapse: collapse; font-size: .9rem; } svg { max-width: 100%; height: auto; }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem; border-bottom: 1px solid #ccc; }
.wide { overflow-x: auto; }
@media (max-width: 40rem) { dl { display: block; } dt { margin-top: .4rem; } .wide svg { max-width: none; } }
"""


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
    sections = {
        "": classifier.guarantee._repr_html_(),
        "What the guarantee is not about": _items(_limits(classifier)),
        "Records": _items(_records(classifier)),
        "What was learned": _shapes(classifier),
        "Expected quality": _quality(classifier),
        "What is public": _public(classifier),
        "Made with": html.escape(", ".join(f"{name} {version}" for name, version in classifier.versions.items())),
    }
    body = "".join((f"<h2>{title}</h2>" if title else "") + part for title, part in sections.items())
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Privacy card</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><h1>A private classifier of {html.escape(classifier.schema.label)}</h1>{body}</body></html>\n"
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
        return (np.log(table[column].clip(lower=1e-9)) - math.log(max(value, 1e-9))).abs()

    table = table[away("epsilon", epsilon) == away("epsilon", epsilon).min()]
    order = (away("n", n_records) + away("minority", max(n_minority, 1.0))).sort_values(kind="stable").index
    return table.loc[order[:_NEAREST]], label


def _limits(classifier: PublishedClassifier) -> list[str]:
    limits = [
        "Other releases from the same records: each further fit adds to the budget.",
        "How long the fit took, and who ran it on which file.",
        "Predictions for other tables, which are computed from those tables without noise.",
        "What the population is like: it can be learned from the classifier whether a person took part or not.",
    ]
    if classifier.guarantee.neighbouring is not REPLACE_ONE:
        limits.append("Delta must be far less than one over the number of records, which is not shown to be so here.")
    return limits


def _size(classifier: PublishedClassifier) -> tuple[float, float, float]:
    """Number of records, and records of the last class with the noise's standard deviation; all as released."""
    marginals = classifier.model.marginals_
    return marginals.n_records, float(marginals.counts[-1]), marginals.spread


def _records(classifier: PublishedClassifier) -> list[str]:
    n_records, count, spread = _size(classifier)
    is_public = classifier.guarantee.neighbouring is REPLACE_ONE
    hidden = "; so few that the noise may be all of it" if count < _BAR * spread else ""
    return [
        f"All: {n_records:,.0f} ({'public' if is_public else 'with noise'}).",
        f"{classifier.schema.class_names[-1]}: {count:,.0f} ± {_BAR * spread:,.0f} "
        f"(a noisy count; 95 % of the noise is within this{hidden}).",
        "The prediction is the class whose probability exceeds its share by most, so a rare class is not overlooked.",
    ]


def _shapes(classifier: PublishedClassifier) -> str:
    figure = plot_shapes(classifier.model, class_names=classifier.schema.class_names)
    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "card", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    svg = drawn.getvalue()
    return (
        "<p>What each column adds to the log-odds; bands and bars are 95 % of the noise, and of nothing else.</p>"
        + _wide(svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{_SHAPES}"', 1))
    )


def _quality(classifier: PublishedClassifier) -> str:
    n_records, count, _ = _size(classifier)
    relation = "replace-one" if classifier.guarantee.neighbouring is REPLACE_ONE else "add/remove"
    found = expected_quality(n_records, count, classifier.guarantee.epsilon, relation)
    if found is None:
        return "<p>No results are recorded for this classifier: what to expect is not known.</p>"
    table, label = found
    beyond = "" if table.within.all() else " No recorded set is as large, or as small, as yours."
    rows = (
        (row["dataset"], f"{row['n']:,}", f"{row['minority']:,}", *(_ranged(row, score) for score in _SCORES))
        for _, row in table.iterrows()
    )
    return (
        f"<p>What this classifier reached at epsilon = {table.epsilon.iloc[0]:g} ({relation}) on the recorded data "
        "sets nearest in size: means, and in brackets the least and most of single fits on "
        f"{table.splits.min()} splits or more ({html.escape(label)}). How hard a set is differs more than its size: "
        f"this is no promise for yours, and nothing of it was computed from your records.{beyond}</p>"
        + _table(("data set", "records", "of the rare class", *_SCORES.values()), rows)
    )


def _ranged(row: pd.Series, score: str) -> str:
    return f"{row[score]:.2f} ({row[f'{score}_low']:.2f} to {row[f'{score}_high']:.2f})"


def _public(classifier: PublishedClassifier) -> str:
    schema = classifier.schema
    rows = [(column.name, column.kind, _values(column)) for column in schema.columns]
    rows.append((schema.label, "label", ", ".join(schema.class_names)))
    return (
        f"<p>{html.escape(schema.basis)}</p>"
        + _table(("column", "kind", "values"), rows)
        + "<p>A number outside its bounds counts as the nearest bound. A cell that is nothing of the above counts as "
        "missing where that is allowed, else as the middle of the bounds or the first value; a label that is none "
        f"counts as {html.escape(schema.class_names[0])}.</p>"
    )


def _values(column: Column) -> str:
    if not column.is_ordered:
        return column.rule
    return f"{column.low:g} to {column.high:g}" + (" or missing" if column.missing else "")


def _items(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return _wide(f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>")


def _wide(content: str) -> str:
    """What may be wider than a phone, and is moved by itself there; the keyboard reaches it."""
    return f'<div class="wide" tabindex="0">{content}</div>'
