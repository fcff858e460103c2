"""Multinomial logistic regression as the margin loss of several classes, and its exact minimiser.

Scores that add up to zero over the classes lose nothing, because the softmax does not see a common shift. So the
parameter is C of shape (K - 1, d), the scores are Z C'Q with Q an orthonormal basis of the zero-sum vectors, and
noise is needed in (K - 1) d dimensions instead of K d. Privacy constants are left to `helpers.erm.analysis`.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import helmert
from scipy.special import softmax as probabilities

from helpers.checks import check_integer
from helpers.erm.objective import Solution, newton, weighted_gram


@dataclass(frozen=True)
class Softmax:
    """Constants of the softmax loss of K classes on rows of norm at most 1.

    The gradient of a record is (p - e_y) x', of norm at most sqrt(2); its Hessian has the trace 1 - sum p_k^2 <= 1 -
    1/K. With v = 1 - p_y and r the norm of p - e_y, the trace is 2v - r^2 <= min(2, 2r sqrt((K - 1)/K)) - r^2, which
    is 0 where r is largest: a record cannot pull and bend at once.

    Parameters
    ----------
    n_classes : int
        K >= 2.

    >>> Softmax(4).curvature, round(Softmax(4).cost(1.0, 0.1), 4)
    (0.75, 1.4142)
    """

    n_classes: int

    steepness = math.sqrt(2)
    free_ratio = 1 / (2 * math.sqrt(2))

    def __post_init__(self):
        check_integer("n_classes", self.n_classes, low=2)

    @property
    def curvature(self) -> float:
        """Largest trace of the Hessian."""
        return 1 - 1 / self.n_classes

    def cost(self, g, t) -> float:
        """Bound on g (norm of the gradient) + t (trace of the Hessian) over all predictions; concave in r."""
        slant = math.sqrt(self.curvature)
        if t == 0:
            return g * self.steepness
        rising = (g + 2 * t * slant) / (2 * t)
        falling = min(max(g / (2 * t), 1 / slant), self.steepness)
        r = rising if rising * slant <= 1 else falling
        return g * r + t * (2 * min(1.0, r * slant) - r * r)

    def own_cost(self, g, t) -> float:
        """The smaller of two bounds on one record's share of the loss."""
        return min(self.cost(g, t), g * self.steepness + self.log_determinant(t))

    def log_determinant(self, t) -> float:
        """Most that one record of weight t can add to a log determinant: its Hessian has rank K - 1."""
        return (self.n_classes - 1) * math.log1p(t * self.curvature / (self.n_classes - 1))


def zero_sum_basis(n_classes) -> np.ndarray:
    """Orthonormal basis Q (K - 1, K) of the vectors whose entries add up to zero.

    >>> zero_sum_basis(2).round(3)
    array([[ 0.707, -0.707]])
    """
    return helmert(n_classes)


def softmax_gradient(C, Z, codes, regularization, linear, weights=None) -> np.ndarray:
    """Gradient (K - 1, d) of (1/n) sum weight (-log p_code) + (regularization/2) ||C||^2 + <linear, C>."""
    basis = zero_sum_basis(len(C) + 1)
    residual = probabilities(Z @ C.T @ basis, axis=1)
    residual[np.arange(len(Z)), codes] -= 1
    if weights is not None:
        residual *= weights[:, None]
    return basis @ residual.T @ Z / len(Z) + regularization * C + linear


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


def minimize_softmax(Z, codes, n_classes, regularization, linear, *, tol, weights=None) -> Solution:
    """Minimiser C (K - 1, d) of the weighted mean softmax loss + (regularization/2) ||C||^2 + <linear, C>.

    Parameters
    ----------
    Z : ndarray (n, d)
        Rows, as from `helpers.erm.design_matrix`.
    codes : ndarray (n,) of int
        Classes 0..K-1.
    linear : ndarray (K - 1, d)
    others
        As in `helpers.erm.minimize`.

    Raises
    ------
    RuntimeError
        The tolerance was not reached; nothing is returned.

    >>> Z, codes = np.eye(3), np.arange(3)
    >>> C = minimize_softmax(Z, codes, 3, 0.1, np.zeros((2, 3)), tol=1e-10).beta
    >>> (C.T @ zero_sum_basis(3)).round(2)[0]
    array([ 1.01, -0.51, -0.51])
    """
    shape = (n_classes - 1, Z.shape[1])

    def derivatives(flat):
        C = flat.reshape(shape)

        def hessian():
            total = softmax_curvature_sum(C, Z, weights) / len(Z)
            total[np.diag_indices_from(total)] += regularization
            return total

        return softmax_gradient(C, Z, codes, regularization, linear, weights).ravel(), hessian

    solution = newton(derivatives, np.zeros(shape[0] * shape[1]), tol=tol)
    return solution._replace(beta=solution.beta.reshape(shape))
