"""Minimisers of regularised empirical risks, each with a certified distance to the exact one.

Privacy theorems speak of exact minimisers, so a private learner must know how far from it a solver stops: every result
here lies within a distance that the caller fixed in advance, whatever the data (see `newton` for the proof, and for
what rounding leaves of it). No problem fails: there is always a result, and it is finite. What the distance costs in
privacy is left to `helpers.erm.perturbation`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from helpers.erm.losses import Softmax
from helpers.erm.risk import softmax_curvature_sum, softmax_gradient, weighted_gram

_COARSE = 8  # every how many rows a first approximation looks at
_ENOUGH = 512  # rows that such an approximation needs
_COARSE_GRADIENT = 1e-3  # largest gradient of the approximation, in units of all rows pulling together
_ROUNDING = 2.0**-49  # 16 units in the last place: below it, a computed gradient is rounding error
_TRUSTED = 0.25  # contraction factor from which on Newton steps need no search
_STEEP, _FLAT = 0.9, 0.1  # share of the first slope that the line search leaves, at most before and after the minimum
_MAX_ITERATIONS = 1000
_MAX_TRIALS = 200


class Solution(NamedTuple):
    """An approximate minimiser.

    Attributes
    ----------
    beta : ndarray (d,) or (K - 1, d)
    distance : float
        Bound on its Euclidean distance to the exact minimiser, in exact arithmetic; at most what was asked for, except
        where rounding leaves no more progress.
    gradient_norm : float
        At the last point where the gradient was computed, which is `beta` or one Newton step before it.
    n_iter : int
        Newton steps taken.
    """

    beta: np.ndarray
    distance: float
    gradient_norm: float
    n_iter: int


def minimize(rows, loss, regularization, linear, *, distance, weights=None, n_records=None, longest=None) -> Solution:
    """Minimiser of (1/n) sum weight loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta.

    Parameters
    ----------
    rows : ndarray (m, d)
        Signed rows.
    loss : Loss
    regularization : float
        Total quadratic coefficient, > 0.
    linear : ndarray (d,)
        Coefficient of the linear term (noise / n, or zeros).
    distance : float
        > 0: how far the result may be from the exact minimiser, in the units of beta.
    weights : ndarray (m,), optional
        At least 0, the number of records that a row stands for included; all 1 if left out.
    n_records : int, optional
        n, which divides the sum whatever the weights are; m if left out.
    longest : float, optional
        Bound on the norm of a row, if one is known.

    >>> from helpers.erm.losses import LOGISTIC
    >>> minimize(np.array([[1.0], [1.0]]), LOGISTIC, 1.0, np.zeros(1), distance=1e-12).beta.round(4)
    array([0.4011])
    """
    n_records = n_records or len(rows)
    if longest is None:
        longest = math.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
    mean_weight = (len(rows) if weights is None else float(weights.sum())) / n_records
    diagonal = np.diag_indices(rows.shape[1])

    def weigh(values):
        return values if weights is None else weights * values

    def derivatives(beta):
        slope = loss.slope(rows @ beta)

        def hessian():
            bend = loss.bend(rows @ beta) if loss.bend_at_slope is None else loss.bend_at_slope(slope)
            total = weighted_gram(rows, weigh(bend)) / n_records
            total[diagonal] += regularization
            return total

        return weigh(slope) @ rows / n_records + regularization * beta + linear, hessian

    def same_piece(one, other):
        here, there = rows @ one, rows @ other
        bend, apart = loss.bend(here), loss.slope(here) != loss.slope(there)
        # Both ends of a loss are flat, but their slopes differ.
        return np.array_equal(bend, loss.bend(there)) and not (apart & (bend == 0)).any()

    start = np.zeros(rows.shape[1])
    if len(rows) > _COARSE * _ENOUGH:
        # A sample of the rows is cheap to solve and saves about half of the passes over all of them.
        sample = slice(None, None, _COARSE)
        fewer, coarse = np.asfortranarray(rows[sample]), None if weights is None else weights[sample]
        start = minimize(
            fewer,
            loss,
            regularization,
            linear,
            distance=max(distance, _COARSE_GRADIENT * longest * mean_weight / regularization),
            weights=coarse,
            n_records=n_records * len(fewer) / len(rows),
            longest=longest,
        ).beta
    return newton(
        derivatives,
        start,
        distance=distance,
        strength=regularization,
        twist=loss.largest_twist * longest**3 * mean_weight,
        scale=longest * mean_weight + np.linalg.norm(linear),
        bend=loss.curvature * longest**2 * mean_weight,
        same_piece=same_piece if loss.quadratic else None,
    )


def minimize_softmax(
    Z, codes, n_classes, regularization, linear, *, distance, weights=None, n_records=None, longest=None
) -> Solution:
    """Minimiser C (K - 1, d) of the weighted mean softmax loss + (regularization/2) ||C||^2 + <linear, C>.

    Parameters
    ----------
    Z : ndarray (m, d)
        Rows, as from `helpers.erm.design_matrix`.
    codes : ndarray (m,) of int
        Classes 0..K-1.
    linear : ndarray (K - 1, d)
    others
        As in `minimize`.

    >>> from helpers.erm.losses import zero_sum_basis
    >>> Z, codes = np.eye(3), np.arange(3)
    >>> C = minimize_softmax(Z, codes, 3, 0.1, np.zeros((2, 3)), distance=1e-10).beta
    >>> (C.T @ zero_sum_basis(3)).round(2)[0]
    array([ 1.01, -0.51, -0.51])
    """
    n_records, loss = n_records or len(Z), Softmax(n_classes)
    if longest is None:
        longest = math.sqrt(np.einsum("ij,ij->i", Z, Z).max(initial=0.0))
    mean_weight = (len(Z) if weights is None else float(weights.sum())) / n_records
    shape = (n_classes - 1, Z.shape[1])

    def derivatives(flat):
        C = flat.reshape(shape)

        def hessian():
            total = softmax_curvature_sum(C, Z, weights) / n_records
            total[np.diag_indices_from(total)] += regularization
            return total

        return softmax_gradient(C, Z, codes, regularization, linear, weights, n_records).ravel(), hessian

    solution = newton(
        derivatives,
        np.zeros(shape[0] * shape[1]),
        distance=distance,
        strength=regularization,
        twist=loss.largest_twist * longest**3 * mean_weight,
        scale=loss.steepness * longest * mean_weight + np.linalg.norm(linear),
        bend=loss.curvature * longest**2 * mean_weight,
    )
    return solution._replace(beta=solution.beta.reshape(shape))


def newton(derivatives, start, *, distance, strength, twist=math.inf, scale=0.0, bend=0.0, same_piece=None) -> Solution:
    """A point within `distance` of the minimiser beta* of a strongly convex function.

    Newton's method with a line search, and three ways to know that it has arrived. Let g and H be gradient and Hessian,
    and let q = A^-1 g(beta), with A = H(a) from this or an earlier point a.

    * Strong convexity: ||beta - beta*|| <= ||g(beta)|| / strength.
    * Contraction: let theta = (twist/strength) (||beta - a|| + 2 ||q||). If theta <= 1/2, then ||beta - q - beta*|| <=
      theta ||q|| / (1 - theta). Proof: the map x -> x - A^-1 g(x) has derivative A^-1 (H(a) - H(x)), of norm at most
      theta in the ball of radius 2 ||q|| around beta. It moves beta by ||q||, so it maps that ball into itself, and its
      only fixed point there is a zero of g, hence beta*. So ||beta - beta*|| <= ||q|| / (1 - theta), and the image of
      beta is closer by the factor theta.
    * Pieces: if g is linear on a convex set that holds beta and beta - H(beta)^-1 g(beta), the latter is beta*.

    It always arrives. The line search ends where the slope along the step has lost a tenth at least, and has not passed
    the minimum by much. As slopes of a convex function grow, the function falls by a fixed multiple of its squared
    first slope over its largest curvature, so the gradients converge to 0 and the first way is open at last.

    Computed gradients carry rounding errors, some 1e-16 of the terms that they add up. Where one is at that level and
    does not fall any more, or no step is a progress, the solver stops and returns the point with the smallest gradient.
    `Guarantee.assumes` speaks of exact real arithmetic, and this is one thing that it means.

    Parameters
    ----------
    derivatives : callable
        Of a vector (d,), to the gradient (d,) there and a function without arguments for the Hessian (d, d).
    start : ndarray (d,)
    distance : float
        > 0.
    strength : float
        > 0: lower bound on the eigenvalues of the Hessian.
    twist : float
        Lipschitz constant of the Hessian; infinite if there is none.
    scale, bend : float
        Size of the terms that the gradient adds up, and what it grows by with beta, for its rounding error.
    same_piece : callable, optional
        Whether the gradient is linear on a convex set that holds two points; for functions of quadratic pieces.

    >>> newton(lambda x: (2 * x - 3, lambda: 2 * np.eye(1)), np.zeros(1), distance=1e-9, strength=2.0).beta
    array([1.5])
    """
    beta, (slope, hessian) = start, derivatives(start)
    solve = anchor = None
    best = Solution(beta, math.inf, math.inf, 0)

    def after_step(step, moved):
        theta = twist / strength * (moved + 2 * step)
        return float(theta * step / (1 - theta)) if theta <= 0.5 else math.inf

    for iteration in range(_MAX_ITERATIONS):
        size = float(np.linalg.norm(slope))
        falling = size <= best.gradient_norm / 2
        if size < best.gradient_norm:
            best = Solution(beta, size / strength, size, iteration)
        if size <= strength * distance:
            return best
        if solve is not None:
            step = solve(slope)
            bound = after_step(np.linalg.norm(step), np.linalg.norm(beta - anchor))
            if bound <= distance:
                return Solution(beta - step, bound, size, iteration)
        if not falling and size <= _ROUNDING * (scale + (strength + bend) * np.linalg.norm(beta)):
            break
        solve, anchor = _solver(hessian(), strength), beta
        step = solve(slope)
        bound = after_step(np.linalg.norm(step), 0.0)
        if bound <= distance:
            return Solution(beta - step, bound, size, iteration + 1)
        if same_piece is not None and same_piece(beta, beta - step):
            return Solution(beta - step, 0.0, size, iteration + 1)
        if twist / strength * 2 * np.linalg.norm(step) <= _TRUSTED:
            beta = beta - step
            slope, hessian = derivatives(beta)
            continue
        found = _line_search(derivatives, beta, step, slope @ step)
        if found is None:
            break
        beta, (slope, hessian) = found
    return best


def _solver(hessian, strength) -> Callable[[np.ndarray], np.ndarray]:
    """Solves linear systems with the Hessian, also where rounding has made its small eigenvalues negative."""
    factor, failed = lapack.dpotrf(hessian, lower=True)  # scipy.linalg's wrappers take longer than small systems do
    if failed:
        values, vectors = linalg.eigh(hessian, check_finite=False)
        values = np.maximum(values, strength)
        return lambda vector: vectors @ (vectors.T @ vector / values)
    return lambda vector: lapack.dpotrs(factor, vector, lower=True)[0]


def _line_search(derivatives, beta, step, fall):
    """A point beta - t step with its derivatives; None if rounding leaves none. `fall` is minus the slope at t = 0.

    Only slopes are compared, because values cannot be near the minimum. A slope that is negative still says that
    everything before was progress; one that is slightly positive needs a look at half the way.
    """
    low, high, t = 0.0, math.inf, 1.0
    for _ in range(_MAX_TRIALS):
        candidate = beta - t * step
        found = derivatives(candidate)
        slope = -(found[0] @ step)
        if slope < -_STEEP * fall:
            low = t
        elif slope <= 0 or (
            slope <= _FLAT * fall and -(derivatives(beta - t / 2 * step)[0] @ step) <= -2 * _FLAT * fall
        ):
            return candidate, found
        else:
            high = t
        t = 2 * t if math.isinf(high) else (low + high) / 2
    return None
