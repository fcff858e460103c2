"""Checks of public parameters, with one wording for every error message, and classes that declare theirs.

Each check names the parameter, the value and what is allowed, and runs before any private record is read. It looks
only at public arguments, `label_codes` and `validate_records` apart.
"""

import math
from collections.abc import Callable, Collection
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data


def _refuse(name: str, value: Any, allowed: str) -> None:
    """Raise the one wording of all these checks."""
    raise ValueError(f"{name} must be {allowed}, got {value!r}")


def check_real(
    name: str, value: Any, *, low: float = -math.inf, high: float = math.inf, inclusive: str = "both"
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
    try:
        fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer or a fraction that no double holds
        fits = False
    with_low, with_high = inclusive in ("both", "low"), inclusive in ("both", "high")
    # Compared before it is made a float: rounding could move a fraction onto an end that is excluded.
    excluded = fits and ((value == low and not with_low) or (value == high and not with_high))
    if not (fits and low <= value <= high) or excluded:
        left = "[" if with_low and low > -math.inf else "("
        right = "]" if with_high and high < math.inf else ")"
        _refuse(name, value, f"a finite number in {left}{low}, {high}{right}")
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
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    if not fits or (low is not None and value < low) or (high is not None and value > high):
        ends = ("(-inf" if low is None else f"[{low}"), ("inf)" if high is None else f"{high}]")
        _refuse(name, value, f"an integer in {', '.join(ends)}")
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


# What a name may stand for: takes the name and the value, and raises a ValueError that says what is allowed.
Check = Callable[[str, Any], Any]


def real(**interval: Any) -> Check:
    """For a declaration: a number in an interval, with the arguments of `check_real`."""
    return partial(check_real, **interval)


_MOST = 1_000_000  # of whatever costs time or memory once for each


def integer(**interval: Any) -> Check:
    """For a declaration: an integer in an interval, with the arguments of `check_integer`; at most a million if nothing
    else is said."""
    return partial(check_integer, **{"high": _MOST, **interval})


def choice(*choices: Any) -> Check:
    """For a declaration: one of the choices."""
    return partial(check_choice, choices=choices)


def optional(check: Check) -> Check:
    """For a declaration: None, or what another check allows."""
    return lambda name, value: None if value is None else check(name, value)


def any_value(name: str, value: Any) -> Any:
    """For a declaration: allowed here, because a method of the class checks it together with other parameters."""
    return value


class DeclaredParameters:
    """An estimator that declares, in `_allowed`, what each of its public parameters may be.

    Each class declares the parameters that it adds or narrows, and inherits the others. A rule between several
    parameters stands in the class's own `_check_parameters`, after this one's.

    >>> class Noisy(DeclaredParameters):
    ...     _allowed = {"epsilon": real(low=0, inclusive="neither")}
    ...     def __init__(self, epsilon):
    ...         self.epsilon = epsilon
    >>> Noisy(0.0)._check_parameters()
    Traceback (most recent call last):
        ...
    ValueError: epsilon must be a finite number in (0, inf), got 0.0
    """

    _allowed: ClassVar[dict[str, Check]] = {}

    def _check_parameters(self) -> None:
        """Refuse, with a ValueError, public parameters outside what the class declares."""
        declared: dict[str, Check] = {}
        # From the base to the class itself, so that a class may narrow what its base allows.
        for cls in reversed(type(self).__mro__):
            declared |= vars(cls).get("_allowed", {})
        for name, check in declared.items():
            check(name, getattr(self, name))


def check_classes(name: str, classes: Any, n_classes: int | None = None) -> NDArray:
    """The sorted labels of a public set of classes: two or more, or `n_classes`, all different.

    Raises
    ------
    ValueError
        Another number of labels, equal ones, or no vector of labels.

    >>> check_classes("classes", ("yes", "no")).tolist()
    ['no', 'yes']
    """
    fits = np.ndim(classes) == 1 and len(np.unique(classes)) == len(classes)
    if not fits or len(classes) < 2 or n_classes not in (None, len(classes)):
        wanted = {None: "two or more", 2: "two"}.get(n_classes, str(n_classes))
        _refuse(name, classes, f"{wanted} different labels")
    return np.unique(classes)


def check_bounds(name: str, bounds: ArrayLike, n_features: int | None = None) -> NDArray[np.float64]:
    """Public bounds (d, 2) of features, the lower one first, as floats.

    They are of a size at which arithmetic fails for no record inside: an error there would tell something about it.

    Raises
    ------
    ValueError
        Another shape, not finite, in the wrong order, beyond 1e150, or different but by less than 1e-150.

    >>> check_bounds("bounds", [[0, 1], [-2, 2]], 2).tolist()
    [[0.0, 1.0], [-2.0, 2.0]]
    """
    try:
        bounds = np.asarray(bounds, dtype=float)
    except (TypeError, ValueError):
        bounds = np.empty(0)
    fits = bounds.ndim == 2 and bounds.shape[1] == 2 and n_features in (None, len(bounds))
    if not fits or not np.isfinite(bounds).all() or (bounds[:, 0] > bounds[:, 1]).any():
        rows = "d" if n_features is None else n_features
        raise ValueError(f"{name} must be finite, of shape ({rows}, 2), the lower one first")
    # Halves, because the difference of two large bounds may overflow.
    halves = bounds[:, 1] / 2 - bounds[:, 0] / 2
    if np.abs(bounds).max(initial=0.0) > 1e150 or (halves[halves > 0] < 1e-150).any():
        raise ValueError(f"{name} must be at most 1e150 in size and, where they differ, at least 1e-150 apart")
    return bounds


def label_codes(y: ArrayLike, classes: NDArray) -> NDArray[np.intp]:
    """Positions (n,) of the labels y (n,) among the sorted `classes`.

    Raises
    ------
    ValueError
        A label outside `classes`: no guarantee is about such a record.

    >>> label_codes(["b", "a"], np.array(["a", "b"])).tolist()
    [1, 0]
    """
    if not np.isin(y, classes).all():
        from sklearn.utils.multiclass import check_classification_targets, type_of_target  # half a second

        check_classification_targets(y)  # says so if these are no labels at all
        if len(classes) == 2 and type_of_target(y) == "multiclass":
            raise ValueError("Only binary classification is supported. The type of the target is multiclass.")
        raise ValueError(f"y must hold labels among classes={tuple(classes.tolist())!r}, found others")
    return np.searchsorted(classes, y)


def validate_records(estimator: Any, X: ArrayLike, y: ArrayLike, **options: Any) -> tuple[NDArray, NDArray]:
    """scikit-learn's `validate_data` for private records: no error or warning tells what stands in a cell.

    Parameters
    ----------
    estimator : BaseEstimator
    X : array (n, d)
    y : array (n,)
    options
        As for `validate_data`.

    Raises
    ------
    ValueError
        As `validate_data`.

    >>> from sklearn.linear_model import LinearRegression
    >>> validate_records(LinearRegression(), [["3 children"]], [1], dtype=float)
    Traceback (most recent call last):
        ...
    ValueError: X and y must hold real numbers, found entries that are none
    """
    refused = "X and y must hold real numbers, found entries that are none"
    try:
        with np.errstate(all="ignore"):  # sums and casts of huge entries warn
            return validate_data(estimator, X, y, **options)
    except ValueError as error:
        if "Complex data not supported" in str(error):
            refused = f"Complex data not supported: {refused}"
        elif "could not convert" not in str(error):
            raise
    # Outside the handler: an error raised inside would carry scikit-learn's, which quotes the cell.
    raise ValueError(refused)
