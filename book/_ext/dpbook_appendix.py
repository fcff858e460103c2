"""Sphinx extension for the appendix of the benchmark: all measures as figures, and all cells of Tables 13 to 20.

It adds the directives `benchmark-figures` and `benchmark-tables`. Both read what `dpbook record app-benchmark` has left
in `results/` when the book is built, so the page cannot differ from the recorded numbers.
"""

import base64
import math
from html import escape

import pandas as pd
from checks.printed_tables import reference_table
from docutils import nodes
from helpers import paths
from helpers.book.results import recorded
from helpers.study import metrics
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dpbook_pages import add_directives
from dpbook_panels import Panels

CURVES = (
    "GEM, paper's size + XGBoost",
    "weighted LogReg",
    "LogReg",
    "weighted DP-SGD FTT, printed",
    "GEM as wrapped + XGBoost",
    "AIM + XGBoost",
    "LogReg + threshold",
    "additive moments",
)
"""Pipelines drawn: the paper's four, GEM also with a misread budget, and three others."""
_NO_INTERVAL = (math.nan, math.nan)
_FAR = 2.0  # standard errors from which on a cell is marked


class BenchmarkFigures(SphinxDirective):
    """Every measure over the budget, a fold each, one panel a data set."""

    def run(self) -> list[nodes.Node]:
        trials, label = _read(self, "app-benchmark-trials")
        figures = all_panels(trials)
        folds = "".join(figure.html(is_open=place == 0) for place, figure in enumerate(figures))
        return [nodes.raw("", f"<p>{escape(label)}</p>{figures[0].legend()}{folds}", format="html")]


class BenchmarkTables(SphinxDirective):
    """Every cell of Tables 13 to 20: printed, ours, and whether they are far apart."""

    def run(self) -> list[nodes.Node]:
        cells, label = _read(self, "app-benchmark-cells")
        numbers = reference_table("dpci_tables13-20_nonprivate").drop_duplicates("dataset").set_index("dataset")
        content = cells.to_csv(index=False)
        link = f"data:text/csv;base64,{base64.b64encode(content.encode()).decode()}"
        tables = "".join(
            cells_table(part, f"{numbers.label_in_document[dataset]}: {dataset}")
            for dataset, part in cells.groupby("dataset", sort=False)
        )
        head = f'<p>{escape(label)} <a download="benchmark-cells.csv" href="{link}">CSV</a></p>'
        return [nodes.raw("", head + tables, format="html")]


def _read(directive: SphinxDirective, name: str) -> tuple[pd.DataFrame, str]:
    directive.env.note_dependency(str(paths.RESULTS / f"{name}.csv"))
    return recorded(name)


def measures() -> dict[str, str]:
    """Keys of the measures and how the paper calls them."""
    from checks.benchmark import MEASURES  # takes seconds: it imports all methods

    return MEASURES


def all_panels(trials: pd.DataFrame) -> list[Panels]:
    """One `Panels` a measure, from trials with `method`, `dataset`, `epsilon`, `seed` and the measures.

    Intervals are Student's, 95 %, over splits, where there are five or more.
    """
    private = trials[trials.epsilon.map(math.isfinite) & trials.method.isin(CURVES)]
    public = trials[~trials.epsilon.map(math.isfinite)]
    budgets = sorted(private.epsilon.unique())
    figures = []
    for measure, name in measures().items():
        table = metrics.summary(private, ["dataset", "method", "epsilon"], values=[measure])
        points = {
            (row.dataset, row.method, row.epsilon): (row.mean, *((row.low, row.high) if row.n >= 5 else _NO_INTERVAL))
            for row in table.itertuples()
        }
        drawn = {key[:2] for key in points}
        curves = {
            dataset: {
                curve: [points.get((dataset, curve, budget), (math.nan, *_NO_INTERVAL)) for budget in budgets]
                for curve in CURVES
                if (dataset, curve) in drawn
            }
            for dataset in private.dataset.unique()
        }
        best = public.groupby(["dataset", "method"])[measure].mean().groupby("dataset").max().to_dict()
        low = -0.5 if measure == "mcc" else 0.0
        figures.append(Panels(budgets, curves, best, name, "epsilon", (low, 1.0)))
    return figures


def cells_table(cells: pd.DataFrame, title: str) -> str:
    """One of Tables 13 to 20 as a fold: rows are methods, columns measures, a cell is "printed ours"."""
    names = measures()
    columns = [key for key in names if key in set(cells.metric)]
    head = "".join(f"<th>{escape(names[key])}</th>" for key in columns)
    rows = []
    for method, part in cells.groupby("method", sort=False):
        by_metric = {row.metric: row for row in part.itertuples()}
        body = "".join(_cell(by_metric.get(key)) for key in columns)
        rows.append(f"<tr><td>{escape(method)}</td>{body}</tr>")
    far = int((cells.z.abs() >= _FAR).sum())
    return (
        f'<details class="panels"><summary>{escape(title)} ({far} of {len(cells)} cells differ)</summary>'
        f'<div class="book-table-scroll" tabindex="0"><table class="book-table"><thead><tr><th>pipeline</th>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _cell(row) -> str:
    if row is None:
        return "<td></td>"
    means = f"printed {row.printed:.2f} (sd {row.printed_sd:.2f}), ours {row.ours:.2f} (sd {row.sd:.2f})"
    told = f"{means}, {row.n:.0f} splits, z = {row.z:.1f}"
    text = f"{row.printed:.2f} {row.ours:.2f}"
    return f'<td title="{told}">{f"<strong>{text}</strong>" if abs(row.z) >= _FAR else text}</td>'


def setup(app: Sphinx) -> dict[str, bool]:
    return add_directives(app, {"benchmark-figures": BenchmarkFigures, "benchmark-tables": BenchmarkTables})
