"""Features on one scale, public or private, and linear classifiers whose steps and clips are in its units.

`private_second_moments` releases how large each feature is, in units of its public bounds. `ScaledLinearClassifier` is
what descent methods share: rows in a frame of public or released numbers, clipping, penalties by their proximal steps,
and a noisy log prior as a fixed offset inside the loss. How often the records are looked at, and what that costs, is
left to the subclasses.
"""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.checks import (
    Check,
    check_bounds,
    check_choice,
    check_classes,
    check_integer,
    check_real,
    choice,
    real,
)
from helpers.erm.linear import Records
from helpers.erm.losses import LOGISTIC
from helpers.erm.perturbation import PrivateLinearClassifier, Public
from helpers.erm.risk import Rows
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Ledger,
    Release,
    gaussian_multiplier,
    secure_generator,
)

_LARGEST_VALUE = 1e100  # without bounds: squares and products of features stay finite
_LARGEST_STEP = 1e6
_SMALLEST_LIMIT = 1e-100
_SMALLEST_REACH = 1e-150
_BLOCK = 1 << 16  # entries of the table of clipped slopes
_FLOOR = 2.0  # standard deviations of the noise below which a second moment says nothing
SCALE_SHARE = 0.1
"""Of the budget, for the release of a private scale (of mu^2, or of rho, or of epsilon where delta is 0)."""


def private_second_moments(
    X: ArrayLike,
    bounds: ArrayLike,
    epsilon: float,
    delta: float = 0.0,
    neighbouring: NeighboringRelation = REPLACE_ONE,
    n_records: int | None = None,
    rng: np.random.Generator | None = None,
    center: ArrayLike | None = None,
) -> Release:
    """Mean square of each feature about a public centre, in units of the distance of the farther bound.

    A record adds a vector of [0, 1]^d to the sum, so adding, removing or replacing one moves it by at most sqrt(d) in
    l2 and by at most d in l1. Released means are raised to two standard deviations of their noise, below which they say
    nothing, and are at most 1.

    Parameters
    ----------
    X : array (n, d)
        Private, finite; values outside the bounds are clipped to them.
    bounds : array (d, 2)
        Public, the lower one first. A feature whose bounds coincide with its centre counts as 0.
    epsilon : float
        Above 0.
    delta : float
        0 for Laplace noise, or in (0, 1) for Gaussian noise.
    neighbouring : NeighboringRelation
        `REPLACE_ONE` or `ADD_REMOVE`.
    n_records : int, optional
        Public number >= 1 that divides the sum; the number of rows if left out, which is public under replace-one only.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.
    center : float or array (d,), optional
        Public; the middle of the bounds if left out.

    Returns
    -------
    Release
        The value is an array (d,) in (0, 1].

    Raises
    ------
    ValueError
        A public parameter out of range, bounds of another shape, no `n_records` under add/remove, or X not finite.

    Source: Gaussian and Laplace mechanisms, as in `helpers.privacy`; the floor is post-processing.

    >>> X, rng = np.linspace(-3.0, 3.0, 2001)[:, None], np.random.default_rng(0)
    >>> private_second_moments(X, [[-3.0, 3.0]], epsilon=1.0, rng=rng).value.round(3)
    array([0.334])
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    check_real("delta", delta, low=0, high=1, inclusive="low")
    if n_records is not None:
        check_integer("n_records", n_records, low=1)
    elif neighbouring is ADD_REMOVE:
        raise ValueError("n_records must be a public integer under add/remove-one, got None")
    bounds = check_bounds(bounds)
    if not len(bounds):
        raise ValueError("bounds must have at least one row, one a feature, got none")
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.shape[1] != len(bounds):
        raise ValueError(f"X must have {len(bounds)} columns, as many as bounds has rows, got shape {X.shape}")
    if not np.isfinite(X).all():
        raise ValueError("X must hold finite numbers, found NaN or infinity")
    d = len(bounds)
    box = _box(bounds[:, 0], bounds[:, 1], public_center(center, d))
    ledger = Ledger(X, neighbouring, secure_generator() if rng is None else rng)

    def squares(X):
        return np.array([column @ column for column in box.rows(X).T])

    if delta > 0:
        multiplier = gaussian_multiplier(epsilon, delta)
        noisy, spread = ledger.gaussian(squares, math.sqrt(d), multiplier), math.sqrt(d) * multiplier
        source = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
    else:
        noisy, spread = ledger.laplace(squares, float(d), epsilon), math.sqrt(2) * d / epsilon
        source = "Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006, Proposition 1)"
    ledger.assume("feature bounds public", *(() if n_records is None else ("number that divides the sums public",)))
    moments = _floored(noisy, max(ledger.n_records(), 1) if n_records is None else n_records, spread)
    return Release(moments, ledger.guarantee(epsilon, delta, source=source))


def public_center(center: ArrayLike | None, n_features: int) -> NDArray[np.float64] | None:
    """The public centre of the features as an array (d,); None where it is left to the bounds.

    Raises
    ------
    ValueError
        Neither a finite number nor `n_features` of them, or beyond 1e100.

    >>> public_center(0.5, 2).tolist()
    [0.5, 0.5]
    """
    if center is None:
        return None
    try:
        center = np.asarray(center, dtype=float)
    except (TypeError, ValueError):
        center = np.empty((0, 0))
    fits = center.ndim == 0 or center.shape == (n_features,)
    if not fits or not (np.abs(center) <= _LARGEST_VALUE).all():
        raise ValueError(f"center must be a finite number or {n_features} of them, one a feature")
    return np.broadcast_to(center, n_features)


def _floored(noisy, n_records, spread) -> NDArray[np.float64]:
    """Mean squares from noisy sums whose noise has standard deviation `spread`."""
    return np.minimum(np.maximum(noisy, _FLOOR * spread) / n_records, 1.0)


class Frame(NamedTuple):
    """What turns features into rows: z_j = (x_j clipped to [low_j, high_j] - center_j) factor_j, then a constant.

    Attributes
    ----------
    low, high, center, factor : ndarray (d,)
        `factor` is 0 for a feature that its bounds leave at the centre.
    constant : float or None
        The last entry of every row; None without an intercept.
    largest : ndarray (D,)
        Bounds on the size of the entries of a row, the constant included; infinite without bounds.
    moment : float
        Mean square of an entry that the step is made for.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    center: NDArray[np.float64]
    factor: NDArray[np.float64]
    constant: float | None
    largest: NDArray[np.float64]
    moment: float

    def rows(self, X: NDArray) -> NDArray[np.float64]:
        """Rows (n, D), columns one after the other: coordinate steps run along them."""
        n, d = X.shape
        rows = np.empty((n, len(self.largest)), order="F")
        for j in range(d):
            column = np.clip(X[:, j], self.low[j], self.high[j], out=rows[:, j])
            column -= self.center[j]
            column *= self.factor[j]
        if self.constant is not None:
            rows[:, d] = self.constant
        return rows

    def rescaled(self, lengths: NDArray) -> "Frame":
        """The frame whose features are divided by `lengths` (d,)."""
        longer = self.largest.copy()
        longer[: len(lengths)] /= lengths
        return self._replace(factor=self.factor / lengths, largest=longer)


def _box(low, high, center=None) -> Frame:
    """The frame whose entries lie in [-1, 1]; 0 at the centre, and everywhere if both bounds are there."""
    center = low / 2 + high / 2 if center is None else center
    reach = np.maximum(high - center, center - low)
    factor = np.divide(1.0, reach, out=np.zeros_like(reach), where=reach >= _SMALLEST_REACH)
    return Frame(low, high, center, factor, None, np.ones_like(reach), 1.0)


def _check_scale(name: str, value: Any) -> None:
    if value is None or (isinstance(value, str) and value in ("auto", "public", "private")):
        return
    try:
        scale = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        scale = np.empty(0)
    if scale.ndim != 1 or not scale.size or not ((scale >= 1e-50) & (scale <= 1e50)).all():
        raise ValueError(f"{name} must be None, 'auto', 'public', 'private' or numbers in [1e-50, 1e50], got {value!r}")


class ScaledLinearClassifier(PrivateLinearClassifier):
    """Frame, clipping, penalty and prior offset of the descent methods, for two classes. Not for use by itself.

    Rows have about unit length where the scale is known: with `scale` public or private an entry is x_j over its scale,
    over sqrt(D), D the number of entries. `radius` clips in these units: `_limits` says what one record can add to the
    sum of the slopes along each coordinate, before its weight.
    """

    _rows_in_ball = False
    _allowed: ClassVar[dict[str, Check]] = {
        "delta": real(low=0, high=1, inclusive="neither"),
        "step": real(low=0, high=_LARGEST_STEP, inclusive="high"),
        "scale": _check_scale,
        "center": lambda name, value: public_center(value, np.size(value)),
        "penalty": choice(None, "l2"),
        "classes": lambda name, value: check_classes(value, 2),
    }

    offset_: float

    def __init__(
        self,
        delta=1e-6,
        step=1.0,
        scale="auto",
        center=None,
        penalty="l2",
        **shared,
    ):
        super().__init__(delta=delta, **shared)
        self.step = step
        self.scale = scale
        self.center = center
        self.penalty = penalty

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores (n,), positive for the second class: X, clipped to the bounds, times `coef_` plus `intercept_`."""
        check_is_fitted(self)
        checked = validate_data(self, X, dtype=np.float64, reset=False)
        return np.clip(checked, *self._ends(checked.shape[1])) @ self.coef_[0] + self.intercept_[0]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bounds is None and isinstance(self.scale, str) and self.scale != "auto":
            raise ValueError(f"bounds must be given with scale={self.scale!r}, got None")

    @property
    def _scale_is_private(self) -> bool:
        return isinstance(self.scale, str) and self.scale == "private"

    @property
    def _has_no_scale(self) -> bool:
        auto = isinstance(self.scale, str) and self.scale == "auto"
        return self.scale is None or (auto and self.bounds is None)

    def _learn(self, ledger: Ledger, divisor: int, width: int) -> None:
        if not isinstance(self.scale, str | None):
            ledger.assume("scale of the features public")
        super()._learn(ledger, divisor, width)

    # Rows

    def _rows(self, X: NDArray, constant: bool = True) -> Rows:
        return Rows(self._frame(X.shape[1]).rows(X))

    def _ends(self, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.bounds is None:
            return np.full(d, -_LARGEST_VALUE), np.full(d, _LARGEST_VALUE)
        low, high = np.asarray(self.bounds, dtype=float).T
        return low, high

    def _frame(self, d: int) -> Frame:
        """The public frame; what is private about the scale comes later, as a release."""
        size = d + bool(self.fit_intercept)
        low, high = self._ends(d)
        box = _box(low, high, public_center(self.center, d))
        if self._has_no_scale:
            # As in `ERMClassifier`: rows of the ball share its length with the constant.
            parts = size - d + 1
            moment, factor = self.radius**2 / parts, np.full(d, 1 / math.sqrt(parts))
        elif isinstance(self.scale, str):
            moment, factor = 1 / size, math.sqrt(1 / size) * box.factor
        else:
            scale = np.asarray(self.scale, dtype=float)
            if len(scale) != d:
                raise ValueError(f"scale must have one number a feature, {d}, got {len(scale)}")
            moment, factor = 1 / size, math.sqrt(1 / size) / scale
        largest = np.full(size, math.sqrt(moment))  # the last entry is the constant's own size
        # Above 0 where the bounds leave a feature at its centre too: what it bounds is then 0 and costs nothing.
        largest[:d] = np.maximum(np.maximum(high - box.center, box.center - low) * factor, _SMALLEST_LIMIT)
        constant = math.sqrt(moment) if self.fit_intercept else None
        return Frame(low, high, box.center, factor, constant, largest, moment)

    def _private_frame(self, ledger, public, release, spread) -> tuple[Frame, Ledger]:
        """The frame of the steps and the ledger of its `Margins`, with what scale "private" releases first.

        `release` takes a ledger and a query, the sums (d,) of the squares of the features, and gives them with noise of
        standard deviation `spread`.
        """
        d = self.n_features_in_
        frame = self._frame(d)
        if self._scale_is_private:

            def squares(records):
                numbers = 1.0 if records.multiplicity is None else records.multiplicity.astype(float)
                columns = records.rows.T[:d]
                return np.array([(numbers * column) @ column for column in columns]) * records.rows.shape[1]

            self.moments_ = _floored(release(ledger, squares), public.divisor, spread)
            lengths = np.sqrt(self.moments_)

            def rescaled(records):
                for column, length in zip(records.rows.T[:d], lengths, strict=True):
                    column /= length
                return records

            frame, ledger = frame.rescaled(lengths), ledger.view(rescaled)
        return frame, ledger.view(lambda records: Margins(self, records, frame, public))

    def _gaussian_frame(self, ledger: Ledger, public: Public, mu: float) -> tuple[Frame, Ledger, float]:
        """As `_private_frame`, by a Gaussian mechanism with `SCALE_SHARE` of mu^2; and what is left of mu."""
        size, multiplier = math.sqrt(self.n_features_in_), 1 / (math.sqrt(SCALE_SHARE) * mu)

        def release(ledger, squares):
            return ledger.gaussian(squares, size, multiplier)

        frame, steps = self._private_frame(ledger, public, release, size * multiplier)
        return frame, steps, mu * math.sqrt(1 - (SCALE_SHARE if self._scale_is_private else 0.0))

    # Steps

    def _rate(self, frame: Frame) -> float:
        """Length of a step on the mean slope along one coordinate: `step` over its smoothness."""
        return self.step / (LOGISTIC.curvature * frame.moment)

    def _longest(self, frame: Frame) -> float:
        """Most that a record's gradient can measure, clipped or by its bounds."""
        return min(self.radius, float(np.linalg.norm(frame.largest)))

    def _limits(self, frame: Frame) -> NDArray[np.float64]:
        """Most that one record of weight 1 adds to the sum along each coordinate (D,), clipped or by its bounds."""
        return np.minimum(self.radius / math.sqrt(len(frame.largest)), frame.largest)

    def _proximal(self, beta: Any, rate: float) -> Any:
        """The minimiser of (u - beta)^2 / (2 rate) + penalty(u); never moves two points apart."""
        return beta if self.penalty is None else beta / (1 + rate * self.regularization)

    def _store_units(self, beta: NDArray, frame: Frame) -> None:
        """Set `coef_` and `intercept_` in the units of X clipped to its bounds, from coefficients of the rows."""
        coef = beta[: len(frame.factor)] * frame.factor
        constant = 0.0 if frame.constant is None else beta[-1] * frame.constant
        self.coef_, self.intercept_ = coef[None], np.array([self.offset_ + constant - coef @ frame.center])


class Margins:
    """Rows times the sign of their class, and their scores at the coefficients so far: private, and in a ledger only.

    Parameters
    ----------
    model : ScaledLinearClassifier
    records : Records
        Their rows are overwritten.
    frame : Frame
    public : Public

    Attributes
    ----------
    signed : ndarray (m, D)
    values : ndarray (m,)
        s_i (offset + z_i'beta), at beta = 0 in the beginning.
    weights, class_weights : ndarray (m,) or None
        Of the rows, with their multiplicity and without it; None if all are 1.
    multiplicity : ndarray (m,) of int64, or None if every row is one record.
    caps : ndarray (m,)
        Largest slope of the loss at which a record's gradient is not too long.
    """

    def __init__(self, model: ScaledLinearClassifier, records: Records, frame: Frame, public: Public):
        signs = 2.0 * records.codes - 1
        for column in records.rows.T:
            column *= signs
        self.signed, self.values = records.rows, model.offset_ * signs
        self.multiplicity = numbers = records.multiplicity
        weights = model._weights(records) if model.class_weight == "balanced" else public.weights
        self.class_weights = of_class = None if weights is None else weights[records.codes]
        if of_class is None:
            self.weights = None if numbers is None else numbers.astype(float)
        else:
            self.weights = of_class if numbers is None else of_class * numbers
        longest = model._longest(frame)
        # Of numpy's two ways to add up products, the one over columns makes no table.
        self.caps = longest / np.maximum(np.sqrt(sum(column * column for column in self.signed.T)), longest)
        self._pull = np.empty(len(self.values))

    def move(self, j: int, by: float) -> None:
        """Follow coefficient j, which has grown by `by`."""
        self.values += by * self.signed[:, j]

    def pull(self) -> NDArray[np.float64]:
        """Minus the slope (m,) of the loss at the margins, in [0, 1]; overwritten by the next call."""
        return logistic_pull(self.values, out=self._pull)


def logistic_pull(margins: NDArray, out: NDArray) -> NDArray[np.float64]:
    """Minus the slope of the logistic loss, in [0, 1]; numpy's exp is ten times as fast as scipy's expit."""
    with np.errstate(over="ignore"):
        np.exp(margins, out=out)
    out += 1
    return np.reciprocal(out, out=out)


def clipped_sums(signed: NDArray, pull: NDArray, limits: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Weighted sums (D,) of what the records pull along each coordinate, in blocks so that memory stays bounded."""
    totals, width = np.empty(len(limits)), max(_BLOCK // max(len(pull), 1), 1)
    for start in range(0, len(limits), width):
        block = slice(start, start + width)
        part = signed[:, block].T * pull
        bound = limits[block, None]
        totals[block] = np.clip(part, -bound, bound, out=part) @ weights
    return totals
