"""Features on one scale, public or private, and linear classifiers whose steps and clips are in its units.

`ScaledLinearClassifier` is what descent methods share: rows in a frame of public or released numbers, clipping,
penalties by their proximal steps, and a noisy log prior as a fixed offset inside the loss. How often the records are
looked at, and what that costs, is left to the subclasses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from helpers.erm.losses import LOGISTIC
from helpers.erm.perturbation import PrivateLinearClassifier, Public
from helpers.erm.risk import Block, Rows, Table
from helpers.privacy import Ledger
from helpers.validation import Check, check_choice, check_classes, choice, optional, real

_VALUES = (-1e100, 1e100)  # of features without bounds: their squares and products stay finite
_SCALES = (1e-50, 1e50)
_SMALLEST_LIMIT = 1e-100
_SMALLEST_REACH = 1e-150
_FLOOR = 2.0  # standard deviations of the noise below which a second moment says nothing
SCALE_SHARE = 0.1
"""Share of the budget (of mu^2, or of rho) that the release of a private scale costs."""


def per_feature(name: str, value: Any, low: float, high: float, n_features: int) -> NDArray[np.float64]:
    """A public number, or one for each of `n_features`, all of them in [low, high], as an array (d,).

    Raises
    ------
    ValueError
        Anything else.

    >>> per_feature("center", 0.5, -1.0, 1.0, 2).tolist()
    [0.5, 0.5]
    """
    try:
        found = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        found = np.empty((0, 0))
    if found.shape not in ((), (n_features,)) or not ((found >= low) & (found <= high)).all():
        raise ValueError(
            f"{name} must be a number in [{low:g}, {high:g}] or {n_features} of them, one a feature, got {value!r}"
        )
    return np.broadcast_to(found, n_features)


def floored(noisy: NDArray, n_records: int, noise_scale: float) -> NDArray[np.float64]:
    """Mean squares (d,) from noisy sums (d,), each at least twice the scale of its noise, and at most 1."""
    return np.minimum(np.maximum(noisy, _FLOOR * noise_scale) / n_records, 1.0)


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


def box_frame(low: NDArray, high: NDArray, center: ArrayLike | None = None) -> Frame:
    """The frame whose entries lie in [-1, 1]; 0 at the public centre, which is the middle of the bounds if left out."""
    center = low / 2 + high / 2 if center is None else per_feature("center", center, *_VALUES, len(low))
    reach = np.maximum(high - center, center - low)
    factor = np.divide(1.0, reach, out=np.zeros_like(reach), where=reach >= _SMALLEST_REACH)
    return Frame(low, high, center, factor, None, np.ones_like(reach), 1.0)


def _check_scale(name: str, value: Any) -> None:
    if isinstance(value, str | None):
        check_choice(name, value, (None, "auto", "public", "private"))
    else:
        per_feature(name, value, *_SCALES, np.size(value))


@dataclass(eq=False, repr=False)
class ScaledLinearClassifier(PrivateLinearClassifier):
    """Frame, clipping, penalty and prior offset of the descent methods, for two classes. Not for use by itself.

    Rows have about unit length where the scale is known: with `scale` public or private an entry is x_j over its scale,
    over sqrt(D), D the number of entries. `radius` clips in these units: `_limits` says what one record can add to the
    sum of the slopes along each coordinate, before its weight.
    """

    _rows_in_ball = _takes_parts = False
    _allowed: ClassVar[dict[str, Check]] = {
        "delta": real(low=0, high=1, inclusive="neither"),
        "step": real(low=0, high=1e6, inclusive="high"),
        "scale": _check_scale,
        "center": optional(lambda name, value: per_feature(name, value, *_VALUES, np.size(value))),
        "penalty": choice(None, "l2"),
        "classes": partial(check_classes, n_classes=2),
    }

    delta: float = 1e-6  # may be given by position
    _: KW_ONLY
    step: float = 1.0
    scale: str | ArrayLike | None = "auto"
    center: ArrayLike | None = None
    penalty: str | None = "l2"

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores (n,), positive for the second class: X, clipped to the bounds, times `coef_` plus `intercept_`."""
        check_is_fitted(self)
        checked = validate_data(self, X, dtype=np.float64, reset=False)
        frame = self._frame(checked.shape[1])
        return np.clip(checked, frame.low, frame.high) @ self.coef_[0] + self.intercept_[0]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bounds is None and isinstance(self.scale, str) and self.scale != "auto":
            raise ValueError(f"bounds must be given with scale={self.scale!r}, got None")

    @property
    def _has_no_scale(self) -> bool:
        auto = isinstance(self.scale, str) and self.scale == "auto"
        return self.scale is None or (auto and self.bounds is None)

    @property
    def _scale_share(self) -> float:
        """Part of the budget that the scale costs."""
        return SCALE_SHARE if isinstance(self.scale, str) and self.scale == "private" else 0.0

    # Rows

    def _rows(self, X: NDArray, constant: bool = True) -> Rows:
        return Rows(self._frame(X.shape[1]).rows(X))

    def _frame(self, d: int) -> Frame:
        """The public frame; what is private about the scale comes later, as a release."""
        size = d + bool(self.fit_intercept)
        low, high = np.tile(_VALUES, (d, 1)).T if self.bounds is None else np.array(self.bounds, dtype=float).T
        box = box_frame(low, high, self.center)
        if self._has_no_scale:
            # As in `ERMClassifier`: rows of the ball share its length with the constant.
            parts = size - d + 1
            moment, factor = self.radius**2 / parts, np.full(d, 1 / math.sqrt(parts))
        elif isinstance(self.scale, str):
            moment, factor = 1 / size, math.sqrt(1 / size) * box.factor
        else:
            moment, factor = 1 / size, math.sqrt(1 / size) / per_feature("scale", self.scale, *_SCALES, d)
        largest = np.full(size, math.sqrt(moment))  # the last entry is the constant's own size
        # Above 0 where the bounds leave a feature at its centre too: what it bounds is then 0 and costs nothing.
        largest[:d] = np.maximum(np.maximum(high - box.center, box.center - low) * factor, _SMALLEST_LIMIT)
        constant = math.sqrt(moment) if self.fit_intercept else None
        return Frame(low, high, box.center, factor, constant, largest, moment)

    def _private_frame(self, ledger: Ledger, public: Public, multiplier: float) -> tuple[Frame, Ledger]:
        """The frame of the steps and the ledger of its `Margins`, with what scale "private" releases first.

        `multiplier` is the noise of that release over its sensitivity: it costs `SCALE_SHARE` of the budget.
        """
        d = self.n_features_in_
        frame = self._frame(d)
        lengths = np.ones(len(frame.largest))  # that entries of rows are divided by
        if not isinstance(self.scale, str | None):
            ledger.assume("scale of the features public")
        if self._scale_share:

            def squares(records):
                rows = records.rows
                if not isinstance(rows, Table):
                    rows = Table([Block(Rows(rows))], rows.shape)
                return (np.zeros(d) + rows.total(_squares, d)) * len(lengths)

            size = math.sqrt(d)  # each record adds a vector of [0, 1]^d
            noisy = ledger.gaussian(squares, size, multiplier)
            self.moments_ = floored(noisy, public.divisor, size * multiplier)
            lengths[:d] = np.sqrt(self.moments_)
            frame = frame._replace(factor=frame.factor / lengths[:d], largest=frame.largest / lengths)

        def margins(records):
            weights = self._weights(records.sizes) if self.class_weight == "balanced" else public.weights
            made = partial(Margins, lengths=lengths, weights=weights, longest=longest, offset=offset)
            if isinstance(records.rows, Table):
                return MarginTable(records.rows, made)
            return made(records.rows, records.codes)

        longest, offset = self._longest(frame), self.offset_
        return frame, ledger.view(margins)

    # Steps

    def _rate(self, frame: Frame) -> float:
        """Length of a step on the mean slope along one coordinate: `step` over its smoothness."""
        # The mean of the losses bends along a coordinate by at most the loss's curvature times the mean square of an
        # entry.
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
        # A row's entry is (x - center) * factor: the factor goes into the coefficient, and the centre into the
        # intercept.
        coef = beta[: len(frame.factor)] * frame.factor
        constant = 0.0 if frame.constant is None else beta[-1] * frame.constant
        self.coef_, self.intercept_ = coef[None], np.array([self.offset_ + constant - coef @ frame.center])


def _squares(d: int, block: Block) -> NDArray[np.float64]:
    """Sums (d,) of the squares of the first d entries of rows."""
    return np.array([column @ column for column in block.rows.base.T[:d]])


class Margins:
    """Rows times the sign of their class, and their scores at the coefficients so far: private, and in a ledger only.

    Parameters
    ----------
    rows : ndarray (m, D)
        They are overwritten.
    codes : ndarray (m,) of int
        Classes 0 and 1.
    lengths : ndarray (D,)
        What entries of rows are divided by.
    weights : ndarray (2,), or None if all are 1.
        Of the classes.
    longest : float
        Length that a record's gradient is clipped to.
    offset : float
        Part of all scores.

    Attributes
    ----------
    signed : ndarray (m, D)
    values : ndarray (m,)
        s_i (offset + z_i'beta), at beta = 0 in the beginning.
    weights : ndarray (m,), or None if all are 1.
    caps : ndarray (m,)
        Largest slope of the loss at which a record's gradient is not too long.
    buffer : ndarray (m,)
        For what the records pull.
    """

    def __init__(self, rows: NDArray, codes: NDArray, *, lengths: NDArray, weights: Any, longest: float, offset: float):
        signs = 2.0 * codes - 1
        for column, length in zip(rows.T, lengths, strict=True):
            column /= length
            column *= signs
        self.signed, self.values = rows, offset * signs
        self.weights = None if weights is None else weights[codes]
        # Of numpy's two ways to add up products, the one over columns makes no table.
        self.caps = longest / np.maximum(np.sqrt(sum(column * column for column in self.signed.T)), longest)
        self.buffer = np.empty(len(self.values))

    def move(self, j: int, by: float) -> None:
        """Follow coefficient j, which has grown by `by`."""
        self.values += by * self.signed[:, j]

    def pull(self, beta: NDArray, rate: float | None, rng: Any) -> NDArray[np.float64]:
        """Weighted sum (D,) of what records pull at coefficients beta; with a rate, of those that `rng` draws."""
        seen: Any = slice(None) if rate is None else np.flatnonzero(rng.random(len(self.values)) < rate)
        rows, scores = self.signed[seen], self.values[seen] + self.signed[seen] @ beta
        pull = np.minimum(logistic_pull(scores, out=scores), self.caps[seen])
        return (pull if self.weights is None else pull * self.weights[seen]) @ rows


class MarginTable(NamedTuple):
    """Records in parts, whose `Margins` are made of a copy of the rows for every sum.

    Attributes
    ----------
    table : Table
        Of rows of the frame.
    make : callable
        Of rows and codes, to their `Margins`.
    """

    table: Table
    make: Callable[[NDArray, NDArray], Margins]

    def pull(self, beta: NDArray, rate: float | None, rng: Any) -> NDArray[np.float64]:
        """As that of `Margins`; with Dask there can be no rate, as a worker has no generator."""
        return np.zeros(len(beta)) + self.table.total(_pull, self.make, beta, rate, rng)


def _pull(make: Callable, beta: NDArray, rate: float | None, rng: Any, block: Block) -> NDArray[np.float64]:
    return make(block.rows.base.copy(order="F"), block.codes).pull(beta, rate, rng)


def logistic_pull(margins: NDArray, out: NDArray) -> NDArray[np.float64]:
    """Minus the slope of the logistic loss, in [0, 1]; numpy's exp is ten times as fast as scipy's expit."""
    with np.errstate(over="ignore"):
        np.exp(margins, out=out)
    out += 1
    return np.reciprocal(out, out=out)
