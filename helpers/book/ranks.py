"""Average ranks as Demsar draws them: a ruler with the methods at their ranks, bars over those that are not told apart.

It draws what `helpers.study.comparison.average_ranks` has computed; whether the blocks behind it are independent, so
that the critical difference means anything, is said there.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes

from helpers.book.display import OKABE_ITO

_ROW = 1.0  # height of a line of text, the unit of the vertical axis
_BAR = 0.45  # between two bars
_MARGIN = 0.04  # of the ruler's length, between its end and a name


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
    if any(later < earlier for earlier, later in pairwise(ranks)):
        raise ValueError(f"ranks must increase, got {list(ranks)!r}")
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
        Rows of `comparison.average_ranks` for one metric: `method`, `average_rank`, `critical_difference`.
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
        ax.plot(ends, [-_BAR * place] * 2, color=OKABE_ITO["black"], linewidth=3, linestyle="-", solid_capstyle="butt")
    half = (len(names) + 1) // 2
    for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        on_left = place < half
        y = -below - _ROW * (place if on_left else len(names) - 1 - place)
        edge = 1 - _MARGIN * len(names) if on_left else len(names) * (1 + _MARGIN)
        colour = OKABE_ITO["vermillion" if name in marked else "black"]
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
