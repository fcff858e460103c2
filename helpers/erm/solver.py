"""Minimisers of regularised empirical risks, each with a certified distance to the exact one.

Privacy theorems speak of exact minimisers, so a private learner must know how far from it a solver stops: every result
here lies within a distance that the caller fixed in advance, whatever the data (see `newton` for the proof, and for
what rounding leaves of it). No problem fails: there is always a result, and it is finite. What the distance costs in
privacy is left to `helpers.erm.perturbation`.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, cg

from helpers.erm.losses import Softmax
from helpers.erm.partitions import LocalTable, Table, pieces
from helpers.erm.risk import Block, MarginSums, Rows, SoftmaxSums

_COARSE = 8  # every how many rows a first approximation looks at
_ENOUGH = 512  # rows that such an approximation needs
_LARGEST_SAMPLE = 1 << 23  # its entries
_COARSE_GRADIENT = 1e-2  # largest gradient of the approximation, in units of all rows pulling together
_WIDTH = 20  # entries of a row from which on its part of a Hessian takes as long as its part of a gradient
_PASSES = 5  # gradients that may be spent on one Hessian
_TINY = np.finfo(float).tiny
_UNTRIED = 2  # products for a digit, before any
_FEWEST_PRODUCTS = 20  # that are tried before a Hessian is computed instead
_LOOSE = 0.25  # largest relative residual of a Newton step
_NEAR = 5  # times the gradient that is wanted: a step whose residual would be smaller goes on until it arrives
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
    return _minimize_block(Block(Rows(rows), None, weights), loss, regularization, linear, distance, n_records, longest)


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
    block = Block(Rows(Z), codes, weights)
    return _minimize_block(block, Softmax(n_classes), regularization, linear, distance, n_records, longest)


def _minimize_block(block, loss, regularization, linear, distance, n_records, longest) -> Solution:
    rows, weights = block.rows.base, block.weights
    n_records = n_records or len(rows)
    if longest is None:
        longest = math.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
    mean_weight = (len(rows) if weights is None else float(weights.sum())) / n_records
    table = LocalTable(pieces(block), *rows.shape)
    sizes = {"n_records": n_records, "mean_weight": mean_weight, "longest": longest}
    return minimize_table(table, loss, regularization, linear, distance=distance, **sizes)


def minimize_table(
    table: Table, loss, regularization, linear, *, distance, n_records, mean_weight, longest, class_weights=None
) -> Solution:
    """`minimize` or `minimize_softmax`, by the loss, for records wherever they are.

    A Hessian of all records is computed where it takes no longer than a few gradients. Elsewhere, Newton's systems are
    solved by conjugate gradients from products with it, preconditioned by the Hessian of a sample where that is cheap;
    where they do not converge in the time of a Hessian, one is computed after all.

    Parameters
    ----------
    table : Table
    loss : Loss or Softmax
    linear : ndarray (d,) or (K - 1, d)
    mean_weight : float
        Sum of the records' weights over `n_records`.
    class_weights : ndarray (K,), optional
        What the classes weigh, on top of the weights of the blocks; included in `mean_weight`.
    others
        As in `minimize`.
    """
    linear = np.asarray(linear)
    risk = _Risk(table, loss, regularization, linear.ravel(), n_records, class_weights, regularization * distance)
    start = np.zeros(linear.size)
    stride = max(_COARSE, math.ceil(len(table) * table.width / _LARGEST_SAMPLE))
    if len(table) > stride * _ENOUGH:
        # A sample of the rows is cheap to solve and saves about half of the passes over all of them.
        fewer = table.sample(stride)
        share = len(fewer) / len(table)
        start = minimize_table(
            fewer,
            loss,
            regularization,
            linear,
            distance=max(distance, _COARSE_GRADIENT * loss.steepness * longest * mean_weight / regularization),
            n_records=n_records * share,
            mean_weight=mean_weight,
            longest=longest,
            class_weights=class_weights,
        ).beta.ravel()
        risk.sample, risk.share = fewer, share
    solution = newton(
        risk.derivatives,
        start,
        distance=distance,
        strength=regularization,
        twist=loss.largest_twist * longest**3 * mean_weight,
        scale=loss.steepness * longest * mean_weight + np.linalg.norm(linear),
        bend=loss.curvature * longest**2 * mean_weight,
        same_piece=risk.same_piece if getattr(loss, "quadratic", False) else None,
    )
    return solution._replace(beta=solution.beta.reshape(linear.shape))


class _Risk:
    """Derivatives of the regularised mean over a table, and what solves systems with its Hessian.

    Attributes
    ----------
    sample, share : Table, float
        Some of the records, if there are many, and their share of all.
    """

    def __init__(self, table, loss, regularization, linear, n_records, class_weights, wanted):
        many = isinstance(loss, Softmax)
        self._sums = SoftmaxSums(loss.n_classes, class_weights) if many else MarginSums(loss, class_weights)
        self._table, self._n_records = table, n_records
        self._regularization, self._linear, self._wanted = regularization, linear, wanted
        pairs = loss.n_classes / 2 if many else 1  # Hessians of pairs of classes beside the gradients of classes
        entries = max(len(table), 1) * table.width * (loss.n_classes - 1 if many else 1)
        # Gradients in whose time a Hessian can be computed, and decomposed.
        self._summing, self._decomposing = pairs * table.width / _WIDTH, linear.size**3 / (3 * _WIDTH * entries)
        self._direct = self._summing + self._decomposing <= _PASSES
        self.sample, self.share, self._inverse = None, 0.0, None
        self._products, self._digits = 0, []

    def derivatives(self, beta):
        """The gradient at beta, and a function without arguments for what solves systems with the Hessian there."""
        total, bends = self._table.total_and_rest(self._sums.pull, beta)
        gradient = total / self._n_records + self._regularization * beta + self._linear
        self._digits.append(math.log10(max(np.linalg.norm(gradient) / max(self._wanted, _TINY), 1.0)))
        return gradient, lambda: self._system(beta, bends)

    def same_piece(self, one, other) -> bool:
        """Whether no record is on different quadratic pieces of its loss at two points."""
        return self._table.total(self._sums.jumps, one, other) == 0

    def _system(self, beta, bends):
        if self._direct:
            return self._computed(beta, bends)
        if self._inverse is None and self.sample is not None and self._inverse_pays():
            self._inverse = self._sampled_inverse(beta)
        patience = max(math.ceil(self._summing + self._decomposing), _FEWEST_PRODUCTS)
        product, otherwise = (partial(method, beta, bends) for method in (self._product, self._give_up))
        return Conjugate(product, self._inverse, patience, otherwise)

    def _inverse_pays(self) -> bool:
        """Whether it takes less than the products that it spares: with it one makes a digit, without as many as now."""
        gained = self._digits[0] - self._digits[-1]
        rate = self._products / gained if gained > 0 else _UNTRIED
        spared = self._digits[-1] * (rate - 1)
        return self.share * self._summing + self._decomposing <= min(spared, _PASSES)

    def _product(self, beta, bends, vector):
        self._products += 1
        total = self._table.total(self._sums.product, beta, vector, beside=bends)
        return total / self._n_records + self._regularization * vector

    def _computed(self, beta, bends):
        hessian = self._table.total(self._sums.hessian, beta, beside=bends) / self._n_records
        return Direct(self._regularized(hessian), self._regularization)

    def _give_up(self, beta, bends):
        self._direct = True
        return self._computed(beta, bends)

    def _sampled_inverse(self, beta):
        hessian = self.sample.total(self._sums.hessian, beta) / (self._n_records * self.share)
        solve = Direct(self._regularized(hessian), self._regularization)
        return LinearOperator(hessian.shape, matvec=lambda vector: solve(vector)[0], dtype=float)

    def _regularized(self, hessian):
        total = self._regularization * np.eye(self._linear.size)
        total += hessian  # just 0 where there are no records
        return total


class Direct:
    """Solves linear systems with a matrix, also where rounding has made its small eigenvalues negative.

    Parameters
    ----------
    matrix : ndarray (d, d)
        Symmetric.
    strength : float
        > 0: lower bound on its eigenvalues.

    >>> Direct(2 * np.eye(1), 2.0)(np.ones(1))
    (array([0.5]), 0.0)
    """

    def __init__(self, matrix, strength):
        factor, failed = lapack.dpotrf(matrix, lower=True)  # scipy.linalg's wrappers take longer than small systems do
        if failed:
            values, vectors = linalg.eigh(matrix, check_finite=False)
            values = np.maximum(values, strength)
            self._solve = lambda vector: vectors @ (vectors.T @ vector / values)
        else:
            self._solve = lambda vector: lapack.dpotrs(factor, vector, lower=True)[0]

    def __call__(self, vector, allowed=0.0, guess=None) -> tuple[np.ndarray, float]:
        """Solution (d,), and the norm of its residual in exact arithmetic."""
        return self._solve(vector), 0.0


class Conjugate:
    """Solves linear systems by conjugate gradients, and otherwise in another way.

    Parameters
    ----------
    product : callable
        Of a vector (d,), to the matrix times it.
    inverse : LinearOperator or None
        Preconditioner.
    patience : int
        Products before it gives up.
    otherwise : callable
        Without arguments, to a solver that is used from then on.
    """

    def __init__(self, product, inverse, patience, otherwise):
        self._product, self._inverse, self._patience, self._otherwise = product, inverse, patience, otherwise
        self._other = None

    def __call__(self, vector, allowed, guess=None) -> tuple[np.ndarray, float]:
        """Solution (d,), and a bound on the norm of its residual: `allowed`, or that of `otherwise`."""
        if self._other is None:
            matrix = LinearOperator((len(vector), len(vector)), matvec=self._product, dtype=float)
            limits = {"rtol": 0.0, "atol": allowed, "maxiter": self._patience}
            found, failed = cg(matrix, vector, guess, M=self._inverse, **limits)
            if not failed:
                return found, allowed
            self._other = self._otherwise()
        return self._other(vector, allowed)


def newton(derivatives, start, *, distance, strength, twist=math.inf, scale=0.0, bend=0.0, same_piece=None) -> Solution:
    """A point within `distance` of the minimiser beta* of a strongly convex function.

    Newton's method with a line search, and three ways to know that it has arrived. Let g and H be gradient and Hessian,
    A = H(a) from this or an earlier point a, q = A^-1 g(beta), and p what stands in for q: g(beta) - A p = r, hence
    ||p - q|| <= e = ||r|| / strength.

    * Strong convexity: ||beta - beta*|| <= ||g(beta)|| / strength.
    * Contraction: let theta = (twist/strength) (||beta - a|| + 2 ||q||). If theta <= 1/2, then ||beta - q - beta*|| <=
      theta ||q|| / (1 - theta). Proof: the map x -> x - A^-1 g(x) has derivative A^-1 (H(a) - H(x)), of norm at most
      theta in the ball of radius 2 ||q|| around beta. It moves beta by ||q||, so it maps that ball into itself, and its
      only fixed point there is a zero of g, hence beta*. So ||beta - beta*|| <= ||q|| / (1 - theta), and the image of
      beta is closer by the factor theta. With ||q|| <= ||p|| + e, beta - p is within that bound and e of beta*.
    * Pieces: if g is linear on a convex set that holds beta and beta - p, and a = beta, then g(beta - p) = r, so beta -
      p is within e of beta* by strong convexity.

    Steps are solved for loosely while they are long, and up to an e of half the distance where that is the last.

    It always arrives. The line search ends where the slope along the step has lost a tenth at least, and has not passed
    the minimum by much. As slopes of a convex function grow, the function falls by a fixed multiple of its squared
    first slope over its largest curvature, so the gradients converge to 0 and the first way is open at last.

    Computed gradients carry rounding errors, some 1e-16 of the terms that they add up. Where one is at that level and
    does not fall any more, or no step is a progress, the solver stops and returns the point with the smallest gradient.
    `Guarantee.assumes` speaks of exact real arithmetic, and this is one thing that it means.

    Parameters
    ----------
    derivatives : callable
        Of a vector (d,), to the gradient (d,) there and a function without arguments for what solves systems with the
        Hessian there: `Direct` or `Conjugate`.
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

    >>> newton(lambda x: (2 * x - 3, lambda: Direct(2 * np.eye(1), 2.0)), np.zeros(1), distance=1e-9, strength=2.0).beta
    array([1.5])
    """
    beta, (slope, system) = start, derivatives(start)
    solve = anchor = None
    best = Solution(beta, math.inf, math.inf, 0)

    def after_step(step, residual, moved=0.0):
        error = residual / strength
        length = np.linalg.norm(step) + error
        theta = twist / strength * (moved + 2 * length)
        return float(theta * length / (1 - theta) + error) if theta <= 0.5 else math.inf

    for iteration in range(_MAX_ITERATIONS):
        size = float(np.linalg.norm(slope))
        falling = size <= best.gradient_norm / 2
        if size < best.gradient_norm:
            best = Solution(beta, size / strength, size, iteration)
        if size <= strength * distance:
            return best
        if isinstance(solve, Direct):
            step, residual = solve(slope)
            bound = after_step(step, residual, np.linalg.norm(beta - anchor))
            if bound <= distance:
                return Solution(beta - step, bound, size, iteration)
        if not falling and size <= _ROUNDING * (scale + (strength + bend) * np.linalg.norm(beta)):
            break
        solve, anchor = system(), beta
        step, residual = solve(slope, _allowed(size, scale, strength * distance))
        piece = same_piece is not None and same_piece(beta, beta - step)
        if piece or after_step(step, 0.0) <= distance / 2:
            if residual > strength * distance / 2:
                step, residual = solve(slope, strength * distance / 2, step)
            bound = after_step(step, residual)
            if bound <= distance:
                return Solution(beta - step, bound, size, iteration + 1)
            if piece and (residual == 0 or same_piece(beta, beta - step)):
                return Solution(beta - step, residual / strength, size, iteration + 1)
        if twist / strength * 2 * np.linalg.norm(step) <= _TRUSTED:
            beta = beta - step
            slope, system = derivatives(beta)
            continue
        found = _line_search(derivatives, beta, step, slope @ step, strength + bend)
        if found is None:
            break
        beta, (slope, system) = found
    return best


def _allowed(size, scale, wanted):
    """Residual of a Newton step from a gradient of norm `size`: smaller where the gradient is, or what arrives."""
    loose = size * min(_LOOSE, math.sqrt(size / scale)) if scale else 0.0
    return loose if loose > _NEAR * wanted else wanted / 2


def _line_search(derivatives, beta, step, fall, curvature):
    """A point beta - t step with its derivatives; None if rounding leaves none. `fall` is minus the slope at t = 0.

    Only slopes are compared, because values cannot be near the minimum. A slope that is negative still says that
    everything before was progress; one that is slightly positive needs a look at half the way, unless it takes back
    less than half of what the largest curvature leaves of the fall.
    """
    low, high, t = 0.0, math.inf, 1.0
    little = fall**2 / (4 * curvature * (step @ step)) if curvature else 0.0
    for _ in range(_MAX_TRIALS):
        candidate = beta - t * step
        found = derivatives(candidate)
        slope = -(found[0] @ step)
        if slope < -_STEEP * fall:
            low = t
        elif (
            slope <= 0
            or t * slope <= little
            or (slope <= _FLAT * fall and -(derivatives(beta - t / 2 * step)[0] @ step) <= -2 * _FLAT * fall)
        ):
            return candidate, found
        else:
            high = t
        t = 2 * t if math.isinf(high) else (low + high) / 2
    return None
