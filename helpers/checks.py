"""Checks of public parameters, with one wording for every error message.

Each check names the parameter, the value and what is allowed, and runs before any private record is read. It looks
only at public arguments; shapes and types of data are left to `sklearn.utils.check_array`.
"""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np


def _refuse(name: str, value: Any, allowed: str) -> None:
    raise ValueError(f"{name} must be {allowed}, got {value!r}")


def _interval(low, high, inclusive: str) -> str:
    left = "[" if inclusive in ("both", "low") and low is not None else "("
    right = "]" if inclusive in ("both", "high") and high is not None else ")"
    return f"{left}{'-inf' if low is None else low}, {'inf' if high is None else high}{right}"


def check_real(
    name: str, value: Any, *, low: float | None = None, high: float | None = None, inclusive: str = "both"
) -> float:
    """A finite real number between `low` and `high`, as float.

    Parameters
    ----------
    inclusive : {"both", "low", "high", "neither"}
        Which ends belong to the interval.

    Raises
    ------
    ValueError
        Not a real number (booleans are refused), NaN, infinite or out of range.

    >>> check_real("epsilon", 1, low=0, inclusive="neither")
    1.0
    """
    allowed = f"a finite number in {_interval(low, high, inclusive)}"
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        _refuse(name, value, allowed)
    below = low is not None and (value < low or (value == low and inclusive in ("high", "neither")))
    above = high is not None and (value > high or (value == high and inclusive in ("low", "neither")))
    if below or above:
        _refuse(name, value, allowed)
    return float(value)


def check_integer(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """An integer in [low, high].

    Raises
    ------
    ValueError
        Not an integer (booleans and floats are refused) or out of range.

    >>> check_integer("n_seeds", 10, low=1)
    10
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        _refuse(name, value, f"an integer in {_interval(low, high, 'both')}")
    if (low is not None and value < low) or (high is not None and value > high):
        _refuse(name, value, f"an integer in {_interval(low, high, 'both')}")
    return int(value)


def check_boolean(name: str, value: Any) -> bool:
    """True or False; a text such as "no", which Python takes for true, is refused, and so are numbers.

    Raises
    ------
    ValueError
        Anything else.

    >>> check_boolean("fit_intercept", False)
    False
    """
    if not isinstance(value, bool | np.bool_):
        _refuse(name, value, "True or False")
    return bool(value)


def check_choice(name: str, value: Any, choices: Collection[Any]) -> Any:
    """One of `choices`.

    Raises
    ------
    ValueError
        Not among the choices; the message lists them.

    >>> check_choice("method", "pld", ("rdp", "pld"))
    'pld'
    """
    if value not in choices:
        _refuse(name, value, "one of " + ", ".join(repr(choice) for choice in choices))
    return value
