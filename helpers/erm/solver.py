"""Minimisers of regularised empirical risks, each with a certified distance to the exact one.

Privacy theorems speak of exact minimisers, so a private learner must know how far from it a solver stops: every result
here says how far at most, and lies within the distance that the caller fixed in advance unless rounding forbids it
(`minimize_table` has the proof, `rounding` what double arithmetic adds to it). No problem fails: there is always a
result, and it is finite. What the distance costs in privacy is left to `helpers.erm.perturbation`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, cg

from helpers.erm.losses import Loss, Softmax
from helpers.erm.risk import Block, LocalTable, MarginSums, Rows, SoftmaxSums, Table, block_rows, pieces

_COARSE = 8  # every how many rows a first approximation looks at
_ENOUGH = 512  # rows that such an approximation needs
_LARGEST_SAMPLE = 1 << 23  # its entries
_COARSE_GRADIENT = 1e-2  # largest gradient of the approximation, in units of all rows pulling together
_WIDTH = 20  # entries of a row from which on its part of a Hessian takes as long as its part of a gradient
_PASSES = 5  # gradients that may be spent on one Hessian
_TINY = np.finfo(float).tiny
_UNTRIED = 2  # products that a digit is taken to cost before any has been tried
_FEWEST_PRODUCTS = 20  # that are tried before a Hessian is computed instead
_LOOSE = 0.25  # largest relative residual of a Newton step
_NEAR = 5  # times the gradient that is wanted: a step whose residual would be smaller goes on until it arrives
_UNIT = 2.0**-53  # largest relative error of one operation
_ROUNDING = 2.0**-49  # 16 units in the last place: below it, a computed gradient is rounding error
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
    n_iter : int
        Newton steps taken.
    """

    beta: np.ndarray
    distance: float
    gradient_norm: float
    n_iter: int


def minimize(
    rows: NDArray,
    loss: Loss,
    regularization: float,
    linear: NDArray,
    *,
    distance: float,
    weights: NDArray | None = None,
    n_records: int | None = None,
) -> Solution:
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

    >>> from helpers.erm.losses import LOGISTIC
    >>> minimize(np.array([[1.0], [1.0]]), LOGISTIC, 1.0, np.zeros(1), distance=1e-12).beta.round(4)
    array([0.4011])
    """
    n = n_records or len(rows)
    longest = math.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
    mean_weight = (len(rows) if weights is None else float(weights.sum())) / n
    table = LocalTable(pieces(Block(Rows(rows), None, weights)), *rows.shape)
    return minimize_table(
        table,
        loss,
        regularization,
        linear,
        distance=distance,
        n_records=n,
        mean_weight=mean_weight,
        longest=longest,
    )


def minimize_table(
    table: Table,
    loss: Loss | Softmax,
    regularization: float,
    linear: NDArray,
    *,
    distance: float,
    n_records: float,
    mean_weight: float,
    longest: float,
    class_weights: NDArray | None = None,
) -> Solution:
    """`minimize` for both losses and for records wherever they are: Newton's method with a line search.

    It stops at a point beta whose gradient g is at most regularization * distance long, which certifies the distance:
    the risk is strongly convex, hence ||beta - beta*|| <= ||g(beta)|| / regularization for the minimiser beta*. It
    always gets there. The line search ends where the slope along the step has lost a tenth at least, and has not passed
    the minimum by much. As slopes of a convex function grow, the function falls by a fixed multiple of its squared
    first slope over its largest curvature, so the gradients converge to 0.

    Computed gradients carry rounding errors. Where one is at that level and does not fall any more, or no step is a
    progress, the solver stops and returns the point with the smallest gradient.

    Steps are solved for loosely while they are long. A Hessian of all records is computed where it takes no longer than
    a few gradients. Elsewhere, Newton's systems are solved by conjugate gradients from products with it, preconditioned
    by the Hessian of a sample where that is cheap; where they do not converge in the time of a Hessian, one is computed
    after all.

    Parameters
    ----------
    table : Table
    loss : Loss or Softmax
    linear : ndarray (d,) or (K - 1, d)
    mean_weight : float
        Sum of the records' weights over `n_records`.
    longest : float
        Bound on the norm of a row.
    class_weights : ndarray (K,), optional
        What the classes weigh, on top of the weights of the blocks; included in `mean_weight`.
    others
        As in `minimize`.
    """
    linear, wanted = np.asarray(linear), regularization * distance
    risk = _Risk(table, loss, regularization, linear.ravel(), n_records, class_weights, wanted)
    pull = loss.steepness * longest * mean_weight  # of all rows together
    beta = np.zeros(linear.size)
    stride = max(_COARSE, math.ceil(len(table) * table.width / _LARGEST_SAMPLE))
    if len(table) > stride * _ENOUGH:
        # A sample of the rows is cheap to solve and saves about half of the passes over all of them.
        risk.sample = table.sample(stride)
        risk.share = len(risk.sample) / len(table)
        beta = minimize_table(
            risk.sample,
            loss,
            regularization,
            linear,
            distance=max(distance, _COARSE_GRADIENT * pull / regularization),
            n_records=n_records * risk.share,
            mean_weight=mean_weight,
            longest=longest,
            class_weights=class_weights,
        ).beta.ravel()
    scale, curvature = pull + np.linalg.norm(linear), regularization + loss.curvature * longest**2 * mean_weight
    gradient, bends = risk.derivatives(beta)
    best = Solution(beta, math.inf, math.inf, 0)
    for iteration in range(_MAX_ITERATIONS):
        size = float(np.linalg.norm(gradient))
        falling = size <= best.gradient_norm / 2
        if size < best.gradient_norm:
            best = Solution(beta, size / regularization, size, iteration)
        if size <= wanted or not (falling or size > _ROUNDING * (scale + curvature * np.linalg.norm(beta))):
            break
        # A residual may be larger where the gradient is, and need not be smaller than what arrives.
        loose = size * min(_LOOSE, math.sqrt(size / scale)) if scale else 0.0
        step = risk.newton_step(beta, bends, gradient, loose if loose > _NEAR * wanted else wanted / 2)
        found = _line_search(risk.derivatives, beta, step, gradient @ step, curvature)
        if found is None:
            break
        beta, (gradient, bends) = found
    return best._replace(beta=best.beta.reshape(linear.shape))


class Precision(NamedTuple):
    """What double arithmetic leaves of a minimiser, whatever the records and the noise are.

    Attributes
    ----------
    reach : float
        Length to which a result has to be shortened where it is longer, as hardly any is.
    distance : float
        The least that can be promised: for every rho from here on, a result whose computed gradient is at most rho / 4
        times the penalty long, and which is shortened to `reach`, is within rho of the exact minimiser, shortened as
        well.
    """

    reach: float
    distance: float


def precision(
    loss: Loss | Softmax,
    regularization: float,
    *,
    width: int,
    n_rows: int,
    mean_weight: float,
    longest: float,
    center: float,
) -> Precision:
    """Bounds on what rounding does to `minimize_table`, from public numbers.

    Let u be the unit roundoff 2^-53, L the penalty, kappa the mean weight, R the longest row, S and c the steepness and
    curvature of the loss, a = -linear/L the minimiser without records and A its length. Three steps.

    *How long a minimiser is.* The loss is convex, at least 0 and at most l + S R A in the mean at a, l being the loss
    at 0. As L/2 ||beta* - a||^2 is at most kappa times that, beta* is at most B = A + sqrt(2 kappa (l + S R A) / L)
    long, and at most A + kappa S R / L, as its gradient is 0.

    *What a gradient is off by.* The score of a record is an inner product of `width` terms, right to (width + 8) u R
    ||beta||; what is added to a margin (`Loss.shift`) is right to 4 u of it, and its slope, to c times both and to 8
    more units. A block adds up its rows in an order that the library chooses, so a sum of m terms is right to m u times
    the sum of their sizes, and blocks are added up in pairs. With two terms of the size L ||beta|| this makes

        e(||beta||) = u [((m + 160) S + 4 c shift) kappa R + ((width + 8) kappa c R^2 + 8 L) ||beta||],

    for K classes with K more terms a row and scores of length sqrt(K). By strong convexity beta is within rho/4 + e / L
    of beta* if its computed gradient is at most L rho/4 long: rho/4 + E + F ||beta||, say.

    *Noise of every length.* `center` bounds A but for once in e^50 fits, whose noise is longer. Let Pi shorten vectors
    to length B. If x = ||beta|| <= B, then Pi beta is within rho/4 + E + F B of Pi beta*, as Pi is a contraction. If x
    > B, it is within 2 (B/x) ||beta - beta*|| <= 2 (rho/4 + E + F B): where ||beta*|| >= B, because unit vectors along
    beta and beta* differ by at most 2 ||beta - beta*|| / (x + ||beta*||); else because with t = B/x the difference is t
    (beta - beta*) - (1 - t) beta*, whose second part is no longer than its first can be: (1 - t) ||beta*|| <= t (x -
    ||beta*||). So rho = 4 (E + F B) can be promised, and 2 B always. As Pi beta* is made of beta* alone, whatever is
    proved about the privacy of beta* is true of it.

    That the solver arrives at a computed gradient of L rho/4, which is above e, is tested and not proved.

    Parameters
    ----------
    loss : Loss or Softmax
    regularization : float
    width : int
        Entries of a row.
    n_rows : int
        Bound on the number of rows.
    mean_weight, longest : float
        As in `minimize_table`, or bounds.
    center : float
        Length of linear / regularization that is hardly ever exceeded.

    Source: Higham 2002, Section 3.1, for sums and inner products.

    >>> from helpers.erm.losses import LOGISTIC
    >>> found = precision(LOGISTIC, 1e-3, width=10, n_rows=1000, mean_weight=1.0, longest=1.0, center=100.0)
    >>> round(found.reach), f"{found.distance:.0e}"
    (549, '2e-09')
    """
    classes = loss.n_classes if isinstance(loss, Softmax) else 1
    pull, level = loss.steepness * longest * mean_weight, max(1.0, loss.shift, math.log(classes))
    energy = 2 * (mean_weight * level + pull * center) / regularization
    reach = center + min(math.sqrt(energy), pull / regularization)
    added = min(block_rows(max(width - 1, 1)), n_rows) + 160 + 2 * classes
    fixed = added * pull + 4 * loss.curvature * loss.shift * mean_weight * longest
    growing = (width + classes + 8) * math.sqrt(classes) * loss.curvature * longest**2 * mean_weight
    off = _UNIT * (fixed + (growing + 8 * regularization) * reach) / regularization
    return Precision(reach, min(4 * off, 2 * reach))


class _Risk:
    """Derivatives of the regularised mean over a table, and the steps that Newton's method takes on it.

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
        self.sample: Any = None
        self.share, self._inverse = 0.0, None
        self._products, self._digits = 0, []

    def derivatives(self, beta) -> tuple:
        """The gradient at beta, and what makes the Hessian there cheaper."""
        bends: list = []
        total = self._table.total(self._sums.pull, beta, kept=bends)
        gradient = total / self._n_records + self._regularization * beta + self._linear
        self._digits.append(math.log10(max(np.linalg.norm(gradient) / max(self._wanted, _TINY), 1.0)))
        return gradient, bends

    def newton_step(self, beta, bends, gradient, allowed) -> np.ndarray:
        """What the Hessian at beta takes to the gradient, or to a vector at most `allowed` away from it."""
        if not self._direct:
            if self._inverse is None and self.sample is not None and self._inverse_pays():
                solve = self._solver(self.sample, self._n_records * self.share, beta)
                self._inverse = LinearOperator((len(beta), len(beta)), matvec=solve, dtype=float)

            def product(vector):
                self._products += 1
                total = self._table.total(self._sums.product, beta, vector, beside=bends)
                return total / self._n_records + self._regularization * vector

            matrix = LinearOperator((len(beta), len(beta)), matvec=product, dtype=float)
            patience = max(math.ceil(self._summing + self._decomposing), _FEWEST_PRODUCTS)
            step, failed = cg(matrix, gradient, M=self._inverse, rtol=0.0, atol=allowed, maxiter=patience)
            if not failed:
                return step
            self._direct = True  # from now on: the next systems are no easier
        return self._solver(self._table, self._n_records, beta, bends)(gradient)

    def _inverse_pays(self) -> bool:
        """Whether the inverse of the sample's Hessian takes less time than the products that it spares.

        From m rows of width d that Hessian is off by about sqrt(d/m), relative to itself, and so much is what each step
        of conjugate gradients then leaves of the error.
        """
        rows_a_column = len(self.sample) / self.sample.width
        if rows_a_column <= 1:
            return False
        gained = self._digits[0] - self._digits[-1]
        now = self._products / gained if gained > 0 else _UNTRIED  # products for a digit
        spared = self._digits[-1] * (now - 2 * math.log(10) / math.log(rows_a_column))
        return self.share * self._summing + self._decomposing <= min(spared, _PASSES)

    def _solver(self, table, n_records, beta, bends=None):
        """Function that solves linear systems with the Hessian of a table at beta."""
        hessian = self._regularization * np.eye(len(beta))
        hessian += table.total(self._sums.hessian, beta, beside=bends) / n_records  # just 0 without records
        factor, failed = lapack.dpotrf(hessian, lower=True)  # scipy.linalg's wrappers take longer than small systems do
        if not failed:
            return lambda vector: lapack.dpotrs(factor, vector, lower=True)[0]
        # Rounding has made small eigenvalues negative, which are no smaller than the penalty in truth.
        values, vectors = linalg.eigh(hessian, check_finite=False)
        values = np.maximum(values, self._regularization)
        return lambda vector: vectors @ (vectors.T @ vector / values)


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
