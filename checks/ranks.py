"""Average ranks of methods over data sets: Friedman's test, the critical difference, and the diagram of both.

The chapters that compare many methods use it. Tests assume that the data sets behind the ranks are independent of one
another; settings of one data set are not. Only methods that keep their guarantee are ranked: a broken promise buys
accuracy, and whoever takes it into a rank or a best-of moves the places of all others.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from helpers.study import metrics

_ROW = 1.0  # height of a line of text, the unit of the vertical axis
_BAR = 0.45  # between two bars
_MARGIN = 0.04  # of the ruler's length, between its end and a name
_MARKED = "#D55E00"  # vermillion of the palette by Okabe and Ito, as in the other figures


def guaranteed(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame itself, if every method in it keeps its guarantee.

    Parameters
    ----------
    frame : DataFrame
        With columns `method` and `guarantee_holds`.

    Raises
    ------
    ValueError
        A method whose guarantee does not hold.

    >>> guaranteed(pd.DataFrame({"method": ["a", "b"], "guarantee_holds": [True, False]}))
    Traceback (most recent call last):
    ValueError: only methods whose guarantee holds can be ranked or counted, got 'b'
    """
    broken = frame.method[~frame.guarantee_holds.astype(bool)]
    if len(broken):
        raise ValueError(f"only methods whose guarantee holds can be ranked or counted, got {broken.iloc[0]!r}")
    return frame


def best_of(frame: pd.DataFrame, by: Sequence[str], metric: str) -> pd.DataFrame:
    """The rows of the best method of each setting, chosen after seeing all results.

    Parameters
    ----------
    frame : DataFrame
        As for `guaranteed`, with one row for each method and setting.
    by : sequence of str
        Columns of a setting.
    metric : str
        The largest value is best, or the smallest of `metrics.LOWER_IS_BETTER`; of equal ones the first.

    Raises
    ------
    ValueError
        A method whose guarantee does not hold.

    >>> rows = pd.DataFrame({"method": ["a", "b"], "dataset": "x", "auc": [0.6, 0.7], "guarantee_holds": True})
    >>> best_of(rows, ["dataset"], "auc").method.tolist()
    ['b']
    """
    groups = guaranteed(frame).groupby(list(by), sort=False)[metric]
    return frame.loc[groups.idxmin() if metric in metrics.LOWER_IS_BETTER else groups.idxmax()]


def average_ranks(frame: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    """Average rank of every method over data sets, with Friedman's test; 1 is best.

    Methods with equal values on a data set share the mean of their ranks, so the ranks of k methods sum to k(k + 1)/2
    on every one and so do the averages.

    Parameters
    ----------
    frame : DataFrame
        One row per `method` and `dataset`.
    values : sequence of str
        Metric columns to rank by. The smallest value ranks first in the columns of `metrics.LOWER_IS_BETTER`, the
        largest in all others.

    Returns
    -------
    DataFrame
        `method`, `metric`, `average_rank`, `n_blocks` data sets, `p_value` of the hypothesis that all methods rank
        alike (Friedman's statistic in the F form of Iman and Davenport) and `critical_difference`: two methods whose
        average ranks differ by more differ at the level of 5 % (Nemenyi). NaN with one method or data set.

    Raises
    ------
    ValueError
        A method twice on a data set, or without a value on one.

    Source: Demsar 2006, section 3.2.2.

    >>> table = pd.DataFrame({"dataset": [1, 1, 2, 2], "method": list("abab"), "auc": [0.9, 0.8, 0.7, 0.7]})
    >>> average_ranks(table, ["auc"])["average_rank"].tolist()
    [1.25, 1.75]
    """
    if frame.duplicated(["method", "dataset"]).any():
        raise ValueError("frame must have one row per method and data set, got repeated rows")
    tables = []
    for metric in values:
        wide = frame.pivot(index="dataset", columns="method", values=metric)[list(frame.method.unique())]
        incomplete = wide.index[wide.isna().any(axis=1)]
        if len(incomplete):
            raise ValueError(f"every method must have {metric!r} on every data set, not so on {incomplete[0]}")
        n, k = wide.shape
        critical = np.nan
        if n > 1 and k > 1:
            least = stats.studentized_range.ppf(metrics.LEVEL, k, np.inf)
            critical = float(least / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))
        ranks = wide.rank(axis=1, ascending=metric in metrics.LOWER_IS_BETTER)
        tables.append(
            pd.DataFrame(
                {
                    "method": ranks.columns,
                    "metric": metric,
                    "average_rank": ranks.mean().to_numpy(),
                    "n_blocks": len(ranks),
                    "p_value": _friedman(ranks.to_numpy()),
                    "critical_difference": critical,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _friedman(ranks: np.ndarray) -> float:
    """p-value of Iman and Davenport for ranks (N data sets, k methods), ties included."""
    n, k = ranks.shape
    if n < 2 or k < 2:
        return float("nan")
    # scipy's own test has no ranks of fewer than three methods, and none where all tie.
    centre = (k + 1) / 2
    spread = ((ranks - centre) ** 2).sum()
    if spread == 0:  # all methods tie on every data set
        return 1.0
    chi2 = (k - 1) * n**2 * ((ranks.mean(axis=0) - centre) ** 2).sum() / spread
    left = n * (k - 1) - chi2
    return float(stats.f.sf((n - 1) * chi2 / left, k - 1, (k - 1) * (n - 1))) if left > 1e-9 else 0.0


def groups(ranks: Sequence[float], critical_difference: float) -> list[tuple[int, int]]:
    """First and last positions, in increasing order of rank, of the largest groups within one critical difference.

    Parameters
    ----------
    ranks : sequence of float
        Increasing.
    critical_difference : float

    Returns
    -------
    list of (int, int)
        Groups of at least two that are part of no other group, the best ranks first.

    >>> groups([1.0, 1.8, 2.1, 3.5, 4.0], 1.2)
    [(0, 2), (3, 4)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= critical_difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def plot_ranks(table: pd.DataFrame, ax: Axes, *, marked: Collection[str] = ()) -> None:
    """A critical-difference diagram of one metric: rank 1, the best, is on the left.

    Methods under one bar have average ranks within the critical difference of one another: this many blocks do not tell
    them apart.

    Parameters
    ----------
    table : DataFrame
        Rows of `average_ranks` for one metric: `method`, `average_rank`, `critical_difference`.
    ax : Axes
        Drawn on alone; its frame and ticks go.
    marked : collection of str
        Methods written in another colour.

    Raises
    ------
    ValueError
        Fewer than two methods, one twice, or several critical differences (more than one metric).

    Source: Demsar 2006, Figure 1.
    """
    table = table.sort_values("average_rank", kind="stable")
    names, ranks = table["method"].tolist(), table["average_rank"].tolist()
    if len(names) < 2 or len(set(names)) < len(names) or table["critical_difference"].nunique(dropna=False) != 1:
        raise ValueError("table must hold one metric of two or more different methods, one row each")
    critical = float(table["critical_difference"].iloc[0])
    bars = groups(ranks, critical)
    below = _BAR * (len(bars) + 1)
    _draw_ruler(ax, len(names), critical)
    for place, (first, last) in enumerate(bars, 1):
        ends = [ranks[first] - 0.03, ranks[last] + 0.03]
        ax.plot(ends, [-_BAR * place] * 2, color="black", linewidth=3, linestyle="-", solid_capstyle="butt")
    half = (len(names) + 1) // 2
    for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        on_left = place < half
        y = -below - _ROW * (place if on_left else len(names) - 1 - place)
        edge = 1 - _MARGIN * len(names) if on_left else len(names) * (1 + _MARGIN)
        colour = _MARKED if name in marked else "black"
        ax.plot([rank, rank, edge], [0, y, y], color=colour, linewidth=0.8, linestyle="-")
        text = f"{name} {rank:.1f} " if on_left else f" {rank:.1f} {name}"
        ax.text(edge, y, text, ha="right" if on_left else "left", va="center", color=colour, fontsize=8)
    ax.set(ylim=(-below - _ROW * half, 2.2 * _ROW))


def _draw_ruler(ax: Axes, n_methods: int, critical: float) -> None:
    ax.set_axis_off()
    ax.plot([1, n_methods], [0, 0], color="black", linewidth=1, linestyle="-")
    for rank in range(1, n_methods + 1):
        ax.plot([rank, rank], [0, 0.2], color="black", linewidth=0.8, linestyle="-")
        if n_methods <= 12 or rank in (1, n_methods) or rank % 5 == 0:
            ax.text(rank, 0.3, str(rank), ha="center", va="bottom", fontsize=8)
    if critical == critical:  # no number where there is one block
        ax.plot([1, 1 + critical], [1.5 * _ROW] * 2, color="black", linewidth=2, linestyle="-")
        ax.text(1 + critical, 1.5 * _ROW, f"  critical difference {critical:.1f}", va="center", fontsize=8)
