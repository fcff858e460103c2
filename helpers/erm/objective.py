"""The regularised empirical risk of a linear classifier, and its exact minimiser.

A record enters as its signed row s_i z_i, where z_i is the clipped feature vector with the constant feature
inside the ball and s_i = +1 or -1 is its class; the minimiser is found by Newton's method and returned with the
gradient norm it reached. Noise, privacy constants and estimator conventions are left to the other modules of this
package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

_BLOCK = 8192  # rows per pass: bounds the temporary of a Hessian, and fits a core's cache at the usual widths
_MAX_ITERATIONS = 500
_SHORTEST_STEP = 2.0**-40


@dataclass(frozen=True)
class Loss:
    """A convex margin loss, twice differentiable, with slope at most 1.

    Attributes
    ----------
    slope, bend : callable
        First and second derivative with respect to the margin m = s z'beta, elementwise.
    curvature : float
        c, an upper bound of the second derivative.
    """

    slope: Callable[[np.ndarray], np.ndarray]
    bend: Callable[[np.ndarray], np.ndarray]
    curvature: float


def _logistic_slope(margins):
    return -expit(-margins)


def _logistic_bend(margins):
    return expit(margins) * expit(-margins)


LOGISTIC = Loss(_logistic_slope, _logistic_bend, 0.25)


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
    if not fit_intercept:
        return X * shrink[:, None]
    rows = np.empty((n, d + 1))
    np.multiply(X, (shrink / np.sqrt(2))[:, None], out=rows[:, :d])
    rows[:, d] = radius / np.sqrt(2)
    return rows


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


def gradient(beta, rows, loss, regularization, linear) -> np.ndarray:
    """Gradient (d,) of (1/n) sum loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta."""
    return loss.slope(rows @ beta) @ rows / len(rows) + regularization * beta + linear


def curvature_sum(beta, rows, loss) -> np.ndarray:
    """Hessian (d, d) of the *sum* of the losses, in blocks of rows so that memory stays bounded."""
    weights = loss.bend(rows @ beta)
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        total += (block * weights[start : start + _BLOCK, None]).T @ block
    return total


def minimize(rows, loss, regularization, linear, *, tol) -> Solution:
    """Minimiser of (1/n) sum loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta.

    Newton's method with step halving. The gradient norm is the merit function: the Newton direction always
    decreases it, the objective is strongly convex, so its only stationary point is the minimiser, and unlike the
    objective it can be compared down to rounding error.

    Parameters
    ----------
    rows : ndarray (n, d)
        Signed rows.
    regularization : float
        Total quadratic coefficient, > 0.
    linear : ndarray (d,)
        Coefficient of the linear term (noise / n, or zeros).
    tol : float
        Absolute bound on the gradient norm.

    Raises
    ------
    RuntimeError
        The tolerance was not reached; nothing is returned.

    >>> minimize(np.array([[1.0], [1.0]]), LOGISTIC, 1.0, np.zeros(1), tol=1e-12).beta.round(4)
    array([0.4011])
    """
    beta = np.zeros(rows.shape[1])
    slope = gradient(beta, rows, loss, regularization, linear)
    norm = np.linalg.norm(slope)
    for iteration in range(_MAX_ITERATIONS):
        if norm <= tol:
            return Solution(beta, float(norm), iteration)
        hessian = curvature_sum(beta, rows, loss) / len(rows)
        hessian[np.diag_indices_from(hessian)] += regularization
        try:
            step = cho_solve(cho_factor(hessian), slope)
        except LinAlgError:
            break
        scale, previous = 1.0, norm
        while scale >= _SHORTEST_STEP:
            candidate = beta - scale * step
            slope = gradient(candidate, rows, loss, regularization, linear)
            norm = np.linalg.norm(slope)
            if norm <= (1 - 1e-4 * scale) * previous:
                break
            scale /= 2
        else:
            break
        beta = candidate
    raise RuntimeError(
        f"the minimiser was not reached to a gradient norm of {tol:.3g}; nothing is released. "
        "Raise tol or regularization."
    )
