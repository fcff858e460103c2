"""Centre and scale of the features, released privately: where the middle of the bounds is far from the records.

`private_standard` releases means and mean squares together. What they are for, and how much of a budget they may have,
is left to the estimators.
"""

import math
from typing import NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray

from helpers.checks import check_bounds, check_choice, check_real
from helpers.erm.scaling import from_bounds, public_divisor
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Release,
    Sensitivity,
    gaussian,
    gaussian_multiplier,
    laplace,
)

_SMALLEST_VARIANCE = 0.05**2  # in units of half the bounds' width: a feature that hardly moves is not blown up
_FLOOR = 2.0  # standard deviations of the noise below which a variance says nothing


class Standard(NamedTuple):
    """A centre and a scale for each feature, in its units.

    Attributes
    ----------
    center, scale : ndarray (d,)
        `scale` is above 0, and 1 for a feature whose bounds coincide.

    >>> Standard(np.array([1.0]), np.array([2.0])).applied(np.array([[5.0]]))
    array([[2.]])
    """

    center: NDArray
    scale: NDArray

    def applied(self, X) -> NDArray:
        """X (n, d) less the centre, over the scale and sqrt(d), so that rows are about 1 long."""
        return (X - self.center) / (self.scale * math.sqrt(len(self.center)))


def private_standard(
    X: ArrayLike,
    bounds: ArrayLike,
    epsilon: float,
    delta: float = 0.0,
    neighbouring: NeighboringRelation = REPLACE_ONE,
    n_records: int | None = None,
    rng: np.random.Generator | None = None,
) -> Release:
    """Centre and standard deviation of each feature between its public bounds.

    A value u in [-1, 1], in units of the bounds, adds u and u^2 to two sums. Replaced by v it moves them by t = u - v
    and t s, s = u + v, where |s| + |t| <= 2. So t^2 (1 + s^2) <= t^2 (1 + (2 - t)^2) <= 4, as much as for the sum of u
    alone: with Gaussian noise the squares are free. In l1, t (1 + s) <= t (3 - t) <= 9/4. Added or removed, it moves
    them by at most (1, 1). Over the features these add up to 2 sqrt(d) and 9 d/4, or sqrt(2 d) and 2 d.

    Means are drawn to the middle of the bounds by as much as their noise makes them too long; variances below two
    standard deviations of the noise are raised to that, and are at most 1.

    Parameters
    ----------
    X : array (n, d)
        Private, finite; values outside the bounds are clipped to them.
    bounds : array (d, 2)
        Public, the lower one first.
    epsilon : float
        Above 0.
    delta : float
        0 for Laplace noise, or in (0, 1) for Gaussian noise.
    neighbouring : NeighboringRelation
    n_records : int, optional
        Public number >= 1 that divides the sums; the number of rows if left out, which is public under replace-one
        only.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

    Returns
    -------
    Release
        The value is a `Standard`.

    Raises
    ------
    ValueError
        A public parameter out of range, bounds of another shape, no `n_records` under add/remove, or X not finite.

    Source: Gaussian and Laplace mechanisms, as in `helpers.privacy`; positive-part James-Stein for the means.

    >>> X, rng = np.linspace(0.0, 1.0, 2001)[:, None], np.random.default_rng(0)
    >>> found = private_standard(X, [[0.0, 4.0]], epsilon=2.0, rng=rng).value
    >>> found.center.round(1).tolist(), found.scale.round(1).tolist()
    ([0.5], [0.3])
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    check_real("delta", delta, low=0, high=1, inclusive="low")
    divisor = public_divisor(n_records, neighbouring, X)
    bounds, X = check_bounds(bounds), np.asarray(X, dtype=float)
    d = len(bounds)
    if X.ndim != 2 or X.shape[1] != d or not np.isfinite(X).all():
        raise ValueError(f"X must hold finite numbers in {d} columns, as many as bounds has rows")
    low, high = bounds.T
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    units = np.where(half > 0, half, 1.0)
    U = np.clip((np.clip(X, low, high) - middle) / units, -1, 1)
    sums = np.append(U.sum(axis=0), (U**2).sum(axis=0))
    replaced = neighbouring is REPLACE_ONE
    if delta > 0:
        change = Sensitivity(2 * math.sqrt(d) if replaced else math.sqrt(2 * d), neighbouring, "l2")
        noisy, guarantee = gaussian(sums, change, epsilon, delta, rng)
        spread = change.value * gaussian_multiplier(epsilon, delta)
    else:
        change = Sensitivity(2.25 * d if replaced else 2.0 * d, neighbouring, "l1")
        noisy, guarantee = laplace(sums, change, epsilon, rng)
        spread = math.sqrt(2) * change.value / epsilon
    mean, square, spread = noisy[:d] / divisor, np.clip(noisy[d:] / divisor, 0, 1), spread / divisor
    mean = np.clip(mean * max(0.0, 1 - spread**2 / max(np.mean(mean**2), spread**2)), -1, 1)
    variance = np.clip(square - mean**2, max(_FLOOR * spread, _SMALLEST_VARIANCE), None)
    standard = Standard(middle + units * mean, units * np.sqrt(np.minimum(variance, 1.0)))
    return Release(standard, from_bounds(guarantee, n_records))
