"""The benchmark's pictures and its appendix: small multiples, tables of cells."""

import html
import math
import re
from xml.etree import ElementTree

import dpbook_appendix as appendix
import pytest
from dpbook_panels import COLOURS, Panels

from helpers.book import recorded

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
    assert [path.count("h6") for path in (paths[0], paths[2])] == [2, 0]  # a point between gaps is visible too
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
    trials, _ = recorded("app-benchmark-trials")
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
    cells, _ = recorded("app-benchmark-cells")
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
    choice, _ = recorded("app-benchmark-choice")
    known = {"method", "dataset", "epsilon", "splits", "records", "features", "rare", "seconds"}
    assert known | set(appendix.measures()) <= set(choice)
    assert not choice.duplicated(["method", "dataset", "epsilon"]).any()
    assert (choice.groupby("method").size() == choice.dataset.nunique() * choice.epsilon.nunique()).all()
    assert (choice.splits >= 5).all()
