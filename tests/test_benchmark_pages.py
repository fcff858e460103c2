"""The benchmark's pictures and its appendix: groups of ranks, small multiples, tables of cells."""

import html
import math
import re
from xml.etree import ElementTree

import dpbook_appendix as appendix
import numpy as np
import pandas as pd
import pytest
from dpbook_panels import COLOURS, Panels
from matplotlib.figure import Figure

from helpers.book import recorded
from helpers.book.ranks import groups, plot_ranks
from helpers.study import comparison

# ------------------------------------------------------------------------------------------ ranks


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_the_largest_within_the_critical_difference(seed):
    rng = np.random.default_rng(seed)
    ranks, critical = sorted(rng.uniform(1, 9, rng.integers(2, 10)).tolist()), float(rng.uniform(0, 9))
    n = len(ranks)
    together = {(i, j) for i in range(n) for j in range(i + 1, n) if ranks[j] - ranks[i] <= critical}
    largest = {(i, j) for i, j in together if not {(i - 1, j), (i, j + 1)} & together}
    assert set(groups(ranks, critical)) == largest
    assert groups(ranks, critical) == sorted(largest)


def test_groups_need_ranks_in_order():
    with pytest.raises(ValueError, match="ranks must increase"):
        groups([2.0, 1.0], 1.0)


def ranked(k=5):
    rng = np.random.default_rng(0)
    blocks = [{"dataset": d, "method": f"m{m}", "auc": m + rng.normal()} for d in range(8) for m in range(k)]
    return comparison.average_ranks(pd.DataFrame(blocks))


def test_the_diagram_has_every_method_at_its_rank_and_a_bar_a_group():
    table, ax = ranked(), Figure().subplots()
    plot_ranks(table, ax, marked=["m0"])
    texts = [text.get_text() for text in ax.texts]
    lines = [line.get_xydata() for line in ax.lines]
    for row in table.itertuples():
        assert any(f"{row.average_rank:.1f}" in text and row.method in text for text in texts)
        assert any(len(line) == 3 and line[0, 0] == row.average_rank and line[0, 1] == 0 for line in lines)
    bars = [line for line in ax.lines if line.get_linewidth() == 3]
    assert len(bars) == len(groups(sorted(table.average_rank), table.critical_difference[0]))
    assert any(f"critical difference {table.critical_difference[0]:.1f}" in text for text in texts)


def test_the_diagram_takes_one_metric():
    table = ranked()
    for bad in (table.head(1), pd.concat([table, table]), table.assign(critical_difference=range(len(table)))):
        with pytest.raises(ValueError, match="one metric of two or more"):
            plot_ranks(bad, Figure().subplots())


# ----------------------------------------------------------------------------------------- panels


def panels(**changes):
    points = {
        "here": {
            "GEM <1>": [(0.5, 0.4, 0.6), (math.nan,) * 3, (0.9, 0.8, 1.3)],
            "AIM": [(0.25, math.nan, math.nan)] * 3,
        }
    }
    return Panels(**{"x": [0.1, 1.0, 10.0], "curves": points, "levels": {"here": 0.75}, "measure": "AUC",
                     "x_label": "epsilon", "y_range": (0.0, 1.0)} | changes)  # fmt: skip


def test_a_panel_draws_means_and_intervals_where_they_are():
    picture = ElementTree.fromstring(re.search(r"<svg role.*?</svg>", panels().html())[0])
    paths = [path.get("d") for path in picture.iter("path") if path.get("stroke") in COLOURS[:2]]
    assert len(paths) == 3  # AIM has no interval
    heights = [[float(y) for y in re.findall(r" ([\d.]+)", path)] for path in (paths[0], paths[2])]
    assert paths[0].count("M") == 2  # a gap where there is no mean
    top, bottom = panels()._y(1.0), panels()._y(0.0)
    assert heights[0] == pytest.approx([(top + bottom) / 2, bottom + 0.9 * (top - bottom)], abs=0.06)
    assert heights[1] == pytest.approx([bottom + 0.25 * (top - bottom)] * 3, abs=0.06)
    ends = [float(y) for y in re.findall(r"[ V]([\d.]+)", paths[1])]
    assert ends[-1] == top  # an interval beyond the axis ends at it
    assert "at 10: GEM <1> 0.90, AIM 0.25" in picture.get("aria-label")


def test_names_are_texts_and_folds_open_on_request():
    assert html.escape("GEM <1>") in panels().legend()
    assert "<1>" not in panels().legend() + panels().html()
    assert panels().html(is_open=True).startswith('<details class="panels" open>')
    assert panels().html().startswith('<details class="panels">')


# --------------------------------------------------------------------------------------- appendix


def test_the_figures_show_the_recorded_means_with_intervals_from_five_splits_on():
    trials, _ = recorded("benchmark-trials")
    figures = appendix.all_panels(trials)
    assert [figure.measure for figure in figures] == list(appendix.measures().values())
    recall = dict(zip(appendix.measures(), figures, strict=True))["recall"]
    for (dataset, method, epsilon), part in trials.groupby(["dataset", "method", "epsilon"]):
        if method not in appendix.CURVES:
            continue
        mean, low, _ = recall.curves[dataset][method][list(recall.x).index(epsilon)]
        assert mean == pytest.approx(part.recall.mean())
        assert math.isfinite(low) == (len(part) >= 5)


def test_the_tables_hold_every_recorded_cell_and_mark_those_that_differ():
    cells, _ = recorded("benchmark-cells")
    for _, part in cells.groupby("dataset"):
        page = appendix.cells_table(part, "Table <x>")
        assert page.count("title=") == len(part)
        assert page.count("<strong>") == (part.z.abs() >= 2).sum()
        row = part.iloc[0]
        assert f"{row.printed:.2f} {row.ours:.2f}" in page
        assert f"({(part.z.abs() >= 2).sum()} of {len(part)} cells differ)" in page
        assert "Table &lt;x&gt;" in page


def test_the_choice_is_data_that_others_can_read():
    """What each pipeline reached on each set at each budget, with what is public of the set and what a trial costs."""
    choice, _ = recorded("benchmark-choice")
    known = {"method", "dataset", "epsilon", "splits", "records", "features", "rare", "seconds"}
    assert known | set(appendix.measures()) <= set(choice)
    assert not choice.duplicated(["method", "dataset", "epsilon"]).any()
    assert (choice.groupby("method").size() == choice.dataset.nunique() * choice.epsilon.nunique()).all()
    assert (choice.splits >= 5).all()
