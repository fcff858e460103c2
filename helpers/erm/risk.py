"""The regularised empirical risk of a linear classifier: its rows, its gradient and its Hessian.

A record enters as its signed row s_i z_i, where z_i is the clipped feature vector with the constant feature inside the
ball and s_i = +1 or -1 is its class; with more classes as z_i and a class code. Minimising is left to
`helpers.erm.solver`.
"""

import numpy as np
from scipy.special import softmax as probabilities

from helpers.erm.losses import zero_sum_basis

_BLOCK = 8192  # rows per pass: bounds the temporary of a Hessian, and fits a core's cache at the usual widths


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


def signed_rows(X, positive, *, radius, fit_intercept=True) -> np.ndarray:
    """Rows s_i z_i of the risk.

    Parameters
    ----------
    X, radius, fit_intercept
        As in `design_matrix`.
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


def gradient(beta, rows, loss, regularization, linear, weights=None, n_records=None) -> np.ndarray:
    """Gradient (d,) of (1/n) sum weight loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta.

    `n_records` is the n that divides the sum, the number of rows if left out.
    """
    slope = loss.slope(rows @ beta)
    slope = slope if weights is None else weights * slope
    return slope @ rows / (n_records or len(rows)) + regularization * beta + linear


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


def softmax_gradient(C, Z, codes, regularization, linear, weights=None, n_records=None) -> np.ndarray:
    """Gradient (K - 1, d) of (1/n) sum weight (-log p_code) + (regularization/2) ||C||^2 + <linear, C>."""
    basis = zero_sum_basis(len(C) + 1)
    residual = probabilities(Z @ C.T @ basis, axis=1)
    residual[np.arange(len(Z)), codes] -= 1
    if weights is not None:
        residual *= weights[:, None]
    return basis @ residual.T @ Z / (n_records or len(Z)) + regularization * C + linear


def softmax_curvature_sum(C, Z, weights=None) -> np.ndarray:
    """Hessian ((K - 1) d, (K - 1) d) of the weighted *sum* of the losses."""
    k, d = C.shape
    basis = zero_sum_basis(k + 1)
    p = probabilities(Z @ C.T @ basis, axis=1)
    mean = p @ basis.T
    total = np.empty((k, d, k, d))
    for a in range(k):
        for b in range(a, k):
            bend = p @ (basis[a] * basis[b]) - mean[:, a] * mean[:, b]
            total[a, :, b] = total[b, :, a] = weighted_gram(Z, bend if weights is None else weights * bend)
    return total.reshape(k * d, k * d)
