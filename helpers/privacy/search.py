"""One search for the boundary of a monotone condition, always rounded to the side that is safe."""

from collections.abc import Callable


def smallest(holds: Callable[[float], bool], low: float, high: float, *, relative: float = 1e-10) -> float:
    """Smallest number in [low, high] where `holds`, which holds at `high` and from some number on.

    Parameters
    ----------
    holds : callable
        Monotone: false, then true. Not called at `high`.
    low, high : float
        0 <= low <= high.
    relative : float
        Width of the final bracket over its upper end.

    Returns
    -------
    float
        Never too small: `holds` is true there.

    >>> round(smallest(lambda x: x * x >= 2, 0.0, 2.0), 6)
    1.414214
    """
    if holds(low):
        return low
    while high - low > relative * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def largest(holds: Callable[[float], bool], low: float, high: float, *, relative: float = 1e-10) -> float:
    """Largest number in [low, high] where `holds`, which holds at `low` and up to some number.

    Returns
    -------
    float
        Never too large: `holds` is true there.

    >>> round(largest(lambda x: x * x <= 2, 0.0, 2.0), 6)
    1.414214
    """
    if holds(high):
        return high
    while high - low > relative * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
