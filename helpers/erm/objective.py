"""The regularised empirical risk of a linear classifier, and its exact minimiser.

A record enters as its signed row s_i z_i, where z_i is the clipped feature vector with the constant feature
inside the ball and s_i = +1 or -1 is its class; the minimiser is found by Newton's method and returned with the
gradient norm it reached. Noise, privacy constants and estimator conventions are left to the other modules of this
package.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from helpers.checks import check_real

_BLOCK = 8192  # rows per pass: bounds the temporary of a Hessian, and fits a core's cache at the usual widths
_COARSE = 8  # every how many rows a first approximation looks at
_ENOUGH = 512  # rows that such an approximation needs
_COARSE_TOL = 1e4  # its tolerance, in units of the final one
_MAX_ITERATIONS = 500
_SHORTEST_STEP = 2.0**-40
_ROUNDING = 1e-14  # of a mean of losses, relative


@dataclass(frozen=True)
class Loss:
    """A convex margin loss, differentiable with a slope of at most 1 and a second derivative almost everywhere.

    Attributes
    ----------
    slope, bend : callable
        First and second derivative with respect to the margin m = s z'beta, elementwise.
    curvature : float
        c, an upper bound of the second derivative.
    twist : callable, optional
        Third derivative; only the search for worst cases follows it.
    joint : callable, optional
        (g, t) -> sup over margins of g |slope| + t bend, for g, t >= 0. Left out, g + t curvature stands in, which is
        right for losses whose largest slope and largest bend occur together.
    own_joint : callable, optional
        The same with log(1 + t bend), for a single record: its Hessian has rank one.
    free_ratio : float
        Largest t/g at which that supremum is just g: bending then costs nothing beside the slope.
    bend_at_slope : callable, optional
        `bend` as a function of `slope`, where that is cheaper; for the solver.
    value : callable, optional
        The loss itself; the solver needs it where `bend` jumps.
    """

    slope: Callable[[np.ndarray], np.ndarray]
    bend: Callable[[np.ndarray], np.ndarray]
    curvature: float
    twist: Callable[[np.ndarray], np.ndarray] | None = None
    joint: Callable[[float, float], float] | None = None
    own_joint: Callable[[float, float], float] | None = None
    free_ratio: float = 0.0
    bend_at_slope: Callable[[np.ndarray], np.ndarray] | None = None
    value: Callable[[np.ndarray], np.ndarray] | None = None

    steepness = 1.0  # largest slope; `Softmax` has another

    def cost(self, g, t) -> float:
        """Supremum of g |slope| + t bend over all margins.

        >>> LOGISTIC.cost(1.0, 1.0), LOGISTIC.cost(1.0, 3.0)
        (1.0, 1.3333333333333333)
        """
        return g + t * self.curvature if self.joint is None else self.joint(g, t)

    def own_cost(self, g, t) -> float:
        """Supremum of g |slope| + log(1 + t bend) over all margins.

        >>> round(LOGISTIC.own_cost(1.0, 3.0), 4)
        1.1965
        """
        return g + self.log_determinant(t) if self.own_joint is None else self.own_joint(g, t)

    def log_determinant(self, t) -> float:
        """Most that one record of weight t can add to a log determinant."""
        return math.log1p(t * self.curvature)


def _logistic_slope(margins):
    return -expit(-margins)


def _logistic_bend(margins):
    return expit(margins) * expit(-margins)


def _logistic_bend_at_slope(slope):
    return -slope * (1 + slope)


def _logistic_twist(margins):
    return _logistic_bend(margins) * (expit(-margins) - expit(margins))


def _logistic_joint(g, t):
    # A record of slope p bends by p(1 - p); where g >= t the maximum over p is at p = 1.
    return g if g >= t else (g + t) ** 2 / (4 * t)


def _logistic_own_joint(g, t):
    if g >= t:
        return g
    # Where the derivative in p vanishes: g t p^2 + (2 - g) t p - (g + t) = 0.
    b = (2 - g) * t
    p = 2 * (g + t) / (b + math.sqrt(b * b + 4 * g * t * (g + t)))
    return g * p + math.log1p(t * p * (1 - p))


LOGISTIC = Loss(
    _logistic_slope,
    _logistic_bend,
    0.25,
    _logistic_twist,
    _logistic_joint,
    _logistic_own_joint,
    free_ratio=1.0,
    bend_at_slope=_logistic_bend_at_slope,
)


def huber(h) -> Loss:
    """The Huber SVM loss: 0 for margins above 1 + h, 1 - m below 1 - h, and (1 + h - m)^2 / (4h) between.

    Its second derivative is 1/(2h) between and 0 elsewhere. Largest slope and largest bend meet at m = 1 - h, so
    nothing is saved by looking at both together.

    Parameters
    ----------
    h : float
        Half the width of the quadratic piece, > 0.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Section 3.4.2.

    >>> huber(0.5).curvature, float(huber(0.5).slope(np.array(1.0)))
    (1.0, -0.5)
    """
    h = check_real("h", h, low=0, inclusive="neither")

    def slope(margins):
        return -np.clip((1 + h - margins) / (2 * h), 0.0, 1.0)

    def bend(margins):
        return np.where(np.abs(1 - np.asarray(margins)) <= h, 1 / (2 * h), 0.0)

    def value(margins):
        short = 1 + h - margins  # of the margin from which on there is no loss
        return np.where(short > 2 * h, short - h, np.maximum(short, 0) ** 2 / (4 * h))

    return Loss(slope, bend, 1 / (2 * h), np.zeros_like, value=value)


class Solution(NamedTuple):
    """Minimiser (d,), Euclidean norm of the gradient there, Newton steps taken."""

    beta: np.ndarray
    gradient_norm: float
    n_iter: int


def design_matrix(X, *, radius, fit_intercept=True) -> np.ndarray:
    """Feature vectors z of norm at most `radius`, the constant feature included.

    Rows longer than `radius` are shortened to it. With an intercept, z = [x, radius] / sqrt(2), so that the
    constant feature lies inside the ball and is regularised like any other; without one, z = x.

    Parameters
    ----------
    X : ndarray (n, d)
        Finite numbers, in the units of `radius`.
    radius : float
        Public bound R > 0 on the Euclidean norm of a record.

    Returns
    -------
    ndarray (n, d + 1), or (n, d) without an intercept

    >>> design_matrix(np.array([[3.0, 4.0]]), radius=1.0).round(3)
    array([[0.424, 0.566, 0.707]])
    """
    n, d = X.shape
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    shrink = radius / np.maximum(norms, radius)
    # Columns one after the other: the solver's products run along them.
    if not fit_intercept:
        return np.multiply(X, shrink[:, None], order="F")
    rows = np.empty((n, d + 1), order="F")
    np.multiply(X, (shrink / np.sqrt(2))[:, None], out=rows[:, :d])
    rows[:, d] = radius / np.sqrt(2)
    return rows


def into_ball(X, bounds, *, radius) -> np.ndarray:
    """The box of public bounds mapped onto [-1, 1]^d radius / sqrt(d); values outside are clipped to it first.

    The map looks at one record at a time and at nothing but the bounds, so neighbouring data sets stay neighbouring.
    A feature whose two bounds coincide becomes 0.

    Parameters
    ----------
    X : ndarray (n, d)
    bounds : ndarray (d, 2)
        Lower and upper bound of each feature, public.
    radius : float

    >>> into_ball(np.array([[5.0], [12.0]]), np.array([[0.0, 10.0]]), radius=2.0)
    array([[0.],
           [2.]])
    """
    low, high = bounds.T
    half = (high - low) / 2
    scale = np.divide(1.0, half, out=np.zeros_like(half), where=half > 0)
    return np.clip((X - (low + high) / 2) * scale, -1, 1) * (radius / np.sqrt(X.shape[1]))


def signed_rows(X, positive, *, radius, fit_intercept=True) -> np.ndarray:
    """Rows s_i z_i, all that a margin loss needs to know about the data.

    Parameters
    ----------
    X : ndarray (n, d)
    positive : ndarray (n,) of bool
        True for the second class (s = +1), False for the first (s = -1).

    Returns
    -------
    ndarray (n, d + 1), or (n, d) without an intercept; see `design_matrix`

    >>> signed_rows(np.array([[0.6]]), np.array([False]), radius=1.0, fit_intercept=False)
    array([[-0.6]])
    """
    rows = design_matrix(X, radius=radius, fit_intercept=fit_intercept)
    rows *= np.where(positive, 1.0, -1.0)[:, None]
    return rows


def gradient(beta, rows, loss, regularization, linear, weights=None) -> np.ndarray:
    """Gradient (d,) of (1/n) sum weight loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta."""
    slope = loss.slope(rows @ beta)
    slope = slope if weights is None else weights * slope
    return slope @ rows / len(rows) + regularization * beta + linear


def curvature_sum(beta, rows, loss, weights=None) -> np.ndarray:
    """Hessian (d, d) of the weighted *sum* of the losses, in blocks of rows so that memory stays bounded."""
    bend = loss.bend(rows @ beta)
    return weighted_gram(rows, bend if weights is None else weights * bend)


def weighted_gram(rows, weights) -> np.ndarray:
    """rows' diag(weights) rows, in blocks of rows so that memory stays bounded."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        total += (block * weights[start : start + _BLOCK, None]).T @ block
    return total


def minimize(rows, loss, regularization, linear, *, tol, weights=None) -> Solution:
    """Minimiser of (1/n) sum weight loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta.

    Parameters
    ----------
    rows : ndarray (n, d)
        Signed rows.
    regularization : float or ndarray (d,)
        Total quadratic coefficient, > 0.
    linear : ndarray (d,)
        Coefficient of the linear term (noise / n, or zeros).
    tol : float
        Absolute bound on the gradient norm.
    weights : ndarray (n,), optional
        At least 0; all 1 if left out. The sum is divided by n whatever they are.

    Raises
    ------
    RuntimeError
        The tolerance was not reached; nothing is returned.

    >>> minimize(np.array([[1.0], [1.0]]), LOGISTIC, 1.0, np.zeros(1), tol=1e-12).beta.round(4)
    array([0.4011])
    """
    diagonal = np.diag_indices(rows.shape[1])

    def derivatives(beta):
        slope = loss.slope(rows @ beta)
        pull = slope if weights is None else weights * slope

        def hessian():
            bend = loss.bend(rows @ beta) if loss.bend_at_slope is None else loss.bend_at_slope(slope)
            total = weighted_gram(rows, bend if weights is None else weights * bend) / len(rows)
            total[diagonal] += regularization
            return total

        return pull @ rows / len(rows) + regularization * beta + linear, hessian

    def value(beta):
        losses = loss.value(rows @ beta)
        mean = np.mean(losses if weights is None else weights * losses)
        return mean + np.sum(regularization * beta**2) / 2 + linear @ beta

    start = np.zeros(rows.shape[1])
    if len(rows) > _COARSE * _ENOUGH:
        # A sample of the rows is cheap to solve and saves about half of the passes over all of them.
        sample = slice(None, None, _COARSE)
        fewer, coarse = np.asfortranarray(rows[sample]), None if weights is None else weights[sample]
        start = minimize(fewer, loss, regularization, linear, tol=_COARSE_TOL * tol, weights=coarse).beta
    return newton(derivatives, start, tol=tol, value=None if loss.value is None else value)


def newton(derivatives, start, *, tol, value=None) -> Solution:
    """The point where the gradient of a strongly convex function vanishes.

    Newton's method with step halving. For a function with a continuous Hessian the gradient norm is the merit: the
    Newton direction decreases it, the only stationary point is the minimiser, and unlike the function it can be
    compared down to rounding error. Where the Hessian jumps, the norm can grow along that direction, but the function
    cannot; there it decides, and the norm only below its rounding error.

    Parameters
    ----------
    derivatives : callable
        Of a vector (d,), to the gradient (d,) there and a function without arguments for the Hessian (d, d).
    start : ndarray (d,)
    tol : float
        Absolute bound on the gradient norm.
    value : callable, optional
        The function, of a vector (d,); needed if its Hessian is not continuous.

    Raises
    ------
    RuntimeError
        The tolerance was not reached; nothing is returned.

    >>> newton(lambda x: (2 * x - 3, lambda: 2 * np.eye(1)), np.zeros(1), tol=1e-9).beta
    array([1.5])
    """
    beta, (slope, hessian) = start, derivatives(start)
    for iteration in range(_MAX_ITERATIONS):
        norm = np.linalg.norm(slope)
        if norm <= tol:
            return Solution(beta, float(norm), iteration)
        try:
            step = np.linalg.solve(hessian(), slope)
        except np.linalg.LinAlgError:
            break
        before, decrease, scale = None if value is None else value(beta), slope @ step, 1.0
        while scale >= _SHORTEST_STEP:
            candidate = beta - scale * step
            slope, hessian = derivatives(candidate)
            shorter = np.linalg.norm(slope) <= (1 - 1e-4 * scale) * norm
            if value is None:
                accepted = shorter
            else:
                change = value(candidate) - before
                accepted = change <= -1e-4 * scale * decrease or (shorter and change <= _ROUNDING * abs(before))
            if accepted:
                break
            scale /= 2
        else:
            break
        beta = candidate
    raise RuntimeError(
        f"the minimiser was not reached to a gradient norm of {tol:.3g}; nothing is released. "
        "Raise tol or regularization."
    )
