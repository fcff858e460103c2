"""One rule for the settings of every method: a climb from the usual setting, over development sets and tuning seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def climb(
    axes: Mapping[str, Sequence[Any]], start: Mapping[str, Any], value: Callable[[dict[str, Any]], float]
) -> tuple[dict[str, Any], list[str]]:
    """The setting that is better than all that differ from it by one step of one axis.

    From `start` on, all neighbours of the best setting so far are tried, until none is better: the best one lies
    within what was tried, unless it is at the end of an axis, where the axis is cut off.

    Parameters
    ----------
    axes : mapping of name to values
        Numbers in increasing order, with the previous and the next one as neighbours; all values of other axes are
        neighbours of one another.
    start : mapping
        One value an axis: what the library or its tutorial uses.
    value : callable
        What a setting is worth, the mean over development sets and seeds; asked once a setting.

    Returns
    -------
    dict, list of str
        The setting, and the axes of numbers at whose end it is.

    >>> axes, start = {"x": range(10), "kind": ("a", "b")}, {"x": 0, "kind": "a"}
    >>> climb(axes, start, lambda one: -abs(one["x"] - 3) - (one["kind"] == "a"))
    ({'x': 3, 'kind': 'b'}, [])
    """
    found: dict[tuple, float] = {}

    def worth(setting: dict[str, Any]) -> float:
        key = tuple(setting.values())
        if key not in found:
            found[key] = value(setting)
        return found[key]

    best = dict(start)
    while True:
        around = [best | {name: other} for name in axes for other in _next_to(axes[name], best[name])]
        winner = max([best, *around], key=worth)
        if winner == best:
            return best, [name for name, values in axes.items() if _is_at_an_end(values, best[name])]
        best = winner


def _next_to(values: Sequence[Any], one: Any) -> list[Any]:
    at = list(values).index(one)
    if not _are_numbers(values):
        return [other for other in values if other != one]
    return [values[k] for k in (at - 1, at + 1) if 0 <= k < len(values)]


def _is_at_an_end(values: Sequence[Any], one: Any) -> bool:
    return _are_numbers(values) and one in (values[0], values[-1])


def _are_numbers(values: Sequence[Any]) -> bool:
    return len(values) > 1 and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
