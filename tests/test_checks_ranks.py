"""Average ranks over data sets, Friedman's test, and the diagram of the groups that are not told apart."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from checks import ranks
from checks.ranks import average_ranks, best_of, groups, guaranteed, plot_ranks


@given(k=st.integers(1, 5), blocks=st.integers(1, 6), levels=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_average_ranks_sum_to_k_times_k_plus_one_over_two_whatever_the_ties(k, blocks, levels, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "dataset": np.repeat(np.arange(blocks), k),
            "method": np.tile([f"m{i}" for i in range(k)], blocks),
            "auc": rng.integers(0, levels, k * blocks) / 4,
        }
    )
    table = average_ranks(frame, ["auc"])
    k = len(table)
    assert table["average_rank"].sum() == pytest.approx(k * (k + 1) / 2)
    reverse = average_ranks(frame.rename(columns={"auc": "error"}), ["error"])
    assert (table["average_rank"] + reverse["average_rank"]).tolist() == pytest.approx([k + 1] * k)


def test_average_ranks_by_hand_and_incomplete_data_sets():
    frame = pd.DataFrame(
        {
            "dataset": ["x"] * 3 + ["y"] * 3 + ["z"] * 3,
            "method": list("abc") * 3,
            "auc": [0.9, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5, np.nan, 0.6],
            "f1": [0.3, 0.2, 0.1] * 3,
        }
    )
    with pytest.raises(ValueError, match="'auc' on every data set, not so on z"):
        average_ranks(frame, ["auc", "f1"])
    table = average_ranks(frame[frame.dataset != "z"], values=["auc", "f1"]).set_index(["metric", "method"])
    assert table.loc["auc", "average_rank"].tolist() == [(1.5 + 3) / 2, (1.5 + 2) / 2, (3 + 1) / 2]
    assert table.loc["f1", "average_rank"].tolist() == [1, 2, 3]
    assert table["n_blocks"].tolist() == [2] * 6
    with pytest.raises(ValueError, match="repeated rows"):
        average_ranks(frame.replace({"dataset": {"z": "x"}}), values=["f1"])


def long(values: np.ndarray) -> pd.DataFrame:
    n, k = values.shape
    return pd.DataFrame({"dataset": np.repeat(range(n), k), "method": np.tile(range(k), n), "auc": values.ravel()})


def test_friedman_is_scipys_in_the_form_of_iman_and_davenport():
    values = np.random.default_rng(5).integers(0, 5, (11, 4)) / 4 + np.arange(4) * 0.1
    chi2 = stats.friedmanchisquare(*values.T).statistic
    expected = stats.f.sf(10 * chi2 / (11 * 3 - chi2), 3, 30)
    table = average_ranks(long(values), ["auc"])
    assert table.p_value.tolist() == pytest.approx([expected] * 4)
    # Demsar's table for four classifiers: q = 2.569 at 5 %.
    assert table.critical_difference[0] == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 11)), rel=1e-3)


def test_extreme_ranks():
    same_order = average_ranks(long(np.tile([0.9, 0.5, 0.1], (5, 1))), ["auc"])
    assert same_order.p_value[0] == 0
    all_tied = average_ranks(long(np.full((5, 3), 0.5)), ["auc"])
    assert all_tied.p_value[0] == 1
    assert average_ranks(long(np.full((1, 3), 0.5)), ["auc"]).p_value.isna().all()


def test_friedman_keeps_its_level():
    values = np.random.default_rng(6).random((400, 8, 3))
    blocks = stats.rankdata(values, axis=2)
    rejected = sum(ranks._friedman(block) <= 0.05 for block in blocks)
    assert stats.binomtest(rejected, 400).proportion_ci(0.999).low <= 0.05
    assert rejected > 4


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_the_largest_within_the_critical_difference(seed):
    rng = np.random.default_rng(seed)
    places, critical = sorted(rng.uniform(1, 9, rng.integers(2, 10)).tolist()), float(rng.uniform(0, 9))
    n = len(places)
    together = {(i, j) for i in range(n) for j in range(i + 1, n) if places[j] - places[i] <= critical}
    largest = {(i, j) for i, j in together if not {(i - 1, j), (i, j + 1)} & together}
    assert set(groups(places, critical)) == largest
    assert groups(places, critical) == sorted(largest)


def ranked(k=5):
    rng = np.random.default_rng(0)
    blocks = [{"dataset": d, "method": f"m{m}", "auc": m + rng.normal()} for d in range(8) for m in range(k)]
    return average_ranks(pd.DataFrame(blocks), ["auc"])


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


def test_a_method_without_its_guarantee_is_neither_ranked_nor_best():
    frame = pd.DataFrame({"dataset": list("xxyy"), "method": list("abab"), "auc": [0.6, 0.9, 0.7, 0.2]})
    honest = frame.assign(guarantee_holds=True, error=1 - frame.auc)
    assert guaranteed(honest) is honest
    for metric in ("auc", "error"):
        assert best_of(honest, ["dataset"], metric).method.tolist() == ["b", "a"]
    for judge in (guaranteed, lambda rows: best_of(rows, ["dataset"], "auc")):
        with pytest.raises(ValueError, match="guarantee holds can be ranked or counted, got 'b'"):
            judge(honest.assign(guarantee_holds=honest.method != "b"))
