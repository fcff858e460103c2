"""The regularised empirical risk of a linear classifier: its rows, its derivatives, and its minimiser.

A record enters as its feature vector z_i, clipped and with the constant feature inside the ball, and its class: s_i = 1
or -1, or a code where there are more. Everything about the records is a sum (`MarginSums`, `SoftmaxSums`) over the
blocks of a `Table`; tables that memory does not hold are left to `helpers.erm.partitions`.

Privacy theorems speak of exact minimisers, so a private learner must know how far from it a solver stops: every result
of `Risk.minimiser` says how far at most, and lies within the distance that the caller fixed in advance unless rounding
forbids it (its docstring has the proof, `precision` what double arithmetic adds to it). No problem fails: there is
always a result, and it is finite. What the distance costs in privacy is left to `helpers.erm.perturbation`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import softmax as probabilities

from helpers.erm.losses import Loss, Softmax, zero_sum_basis
from helpers.privacy import noise_generator

_SHORTEST = 1e-150
_EXTREME = 1e-100
_ENTRIES = 1 << 18  # of a block: what a core's cache holds

# The first approximation of a minimiser is that of every eighth row, or fewer where the rows are many.
_COARSE = 8
_ENOUGH = 512  # rows that such a sample needs; with fewer, no approximation is made
_LARGEST_SAMPLE = 1 << 23  # entries (rows times width) of such a sample, at most
_COARSE_GRADIENT = 1e-2  # gradient at which the approximation stops, over that of all rows pulling together
_WIDTH = 20  # entries of a row from which on its part of a Hessian takes as long as its part of a gradient
# A Hessian is computed where it takes no longer than this many gradients; otherwise only products with it are.
_PASSES = 5
_UNTRIED = 2  # products that one decimal digit of the gradient is assumed to cost before any was computed
_FEWEST_PRODUCTS = 20  # products that conjugate gradients may use before a Hessian is computed instead
_LOOSE = 0.25  # largest relative residual of a Newton step
# A step whose allowed residual is below this many times the wanted gradient is solved until it arrives.
_NEAR = 5
_TINY = np.finfo(float).tiny
_UNIT = 2.0**-53  # largest relative error of one operation
_ROUNDING = 2.0**-49  # 16 units in the last place: below it, a computed gradient is rounding error
_STEEP, _FLAT = 0.9, 0.1  # share of the first slope that the line search leaves, at most before and after the minimum
_MAX_ITERATIONS = 10_000
_MAX_TRIALS = 200


# Rows


class Rows(NamedTuple):
    """Rows z_i = [factor_i x_i, constant] that are not written down, so that a large X is never copied.

    Attributes
    ----------
    base : ndarray (m, d)
        Records x, or rows as they are.
    factors : ndarray (m,), or None if all are 1.
    constant : float, or None without a constant feature.

    >>> Rows(np.array([[3.0, 4.0]]), np.array([2.0]), 1.0).scores(np.array([1.0, 0.0, 5.0]))
    array([11.])
    """

    base: np.ndarray
    factors: np.ndarray | None = None
    constant: float | None = None

    @property
    def width(self) -> int:
        """Number of entries of a row."""
        return self.base.shape[1] + (self.constant is not None)

    def scores(self, beta: NDArray) -> NDArray[np.float64]:
        """z'beta (m,) for beta (d,), or (m, k) for beta (d, k)."""
        slopes = beta if self.constant is None else beta[:-1]
        # The solver starts at 0, where the product need not be computed.
        scores = self.base @ slopes if slopes.any() else np.zeros((len(self.base), *slopes.shape[1:]))
        if self.factors is not None:
            scores *= self.factors if scores.ndim == 1 else self.factors[:, None]
        if self.constant is not None:
            scores += self.constant * beta[-1]
        return scores

    def sums(self, weights: NDArray) -> NDArray[np.float64]:
        """Sums of weight times row: (d,) for weights (m,), (k, d) for (k, m)."""
        sums = (weights if self.factors is None else weights * self.factors) @ self.base
        if self.constant is None:
            return sums
        return np.concatenate([sums, self.constant * weights.sum(axis=-1, keepdims=True)], axis=-1)

    def gram(self, weights: NDArray) -> NDArray[np.float64]:
        """Sum (d, d) of weight z z'; weights (m,) of any sign."""
        d = self.base.shape[1]
        total = np.empty((d, d) if self.constant is None else (d + 1, d + 1))
        scaled = weights if self.factors is None else weights * self.factors
        twice = scaled if self.factors is None else scaled * self.factors
        # Off-diagonal blocks of a softmax Hessian have weights of either sign, which have no square root.
        if weights.min(initial=0.0) >= 0:
            half = self.base * np.sqrt(twice)[:, None]
            np.matmul(half.T, half, out=total[:d, :d])  # takes half the time, since both sides are one array
        else:
            np.matmul((self.base * twice[:, None]).T, self.base, out=total[:d, :d])
        if self.constant is not None:
            total[d, :d] = total[:d, d] = self.constant * (scaled @ self.base)
            total[d, d] = self.constant**2 * weights.sum()
        return total

    def written(self, order: Literal["C", "F"] = "C") -> NDArray[np.float64]:
        """The rows as an array (m, d); `base` itself where they are just that."""
        if self.factors is None and self.constant is None:
            return self.base
        m, d = self.base.shape
        rows = np.empty((m, d + (self.constant is not None)), order=order)
        np.multiply(self.base, 1.0 if self.factors is None else self.factors[:, None], out=rows[:, :d])
        rows[:, d:] = self.constant
        return rows


def factored_rows(
    X: NDArray, *, radius: float, fit_intercept: bool = True, intercept_scaling: float = 1.0, rows: str = "clip"
) -> Rows:
    """Feature vectors z of norm at most `radius`, the constant feature included.

    With an intercept, z = [x, a radius] / sqrt(1 + a^2), so that the constant feature lies inside the ball and is
    penalised like any other; without one, z = x.

    Parameters
    ----------
    X : ndarray (n, d)
        Finite numbers, in the units of `radius`.
    radius : float
        Public bound R > 0 on the Euclidean norm of a record; longer rows are shortened to it.
    intercept_scaling : float
        a > 0: size of the constant feature beside the longest x.
    rows : {"clip", "unit"}
        "unit": shorter rows are lengthened to `radius` too; a row of length 0 stays what it is.

    >>> factored_rows(np.array([[3.0, 4.0]]), radius=1.0, fit_intercept=False).factors
    array([0.2])
    """
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    if rows == "unit":
        # The squares of shorter rows lose digits, and with them the bound.
        factors = np.divide(radius, norms, out=np.zeros(len(X)), where=norms > _SHORTEST)
    else:
        factors = radius / np.maximum(norms, radius)
    if fit_intercept:
        share = 1 / np.sqrt(1 + intercept_scaling**2)
        found = Rows(X, factors * share, intercept_scaling * radius * share)
    else:
        found = Rows(X, factors)
    # Products of these with X or with themselves could leave the range of doubles, those of rows cannot.
    extreme = factors.min(initial=1.0) < _EXTREME or factors.max(initial=1.0) > 1 / _EXTREME
    return Rows(found.written()) if extreme else found


def design_matrix(X: NDArray, *, radius: float, fit_intercept: bool = True) -> NDArray[np.float64]:
    """Feature vectors z of norm at most `radius`, the constant feature included: `factored_rows`, written down.

    Parameters
    ----------
    X, radius, fit_intercept
        As in `factored_rows`.

    Returns
    -------
    ndarray (n, d + 1), or (n, d) without an intercept

    >>> design_matrix(np.array([[3.0, 4.0]]), radius=1.0).round(3)
    array([[0.424, 0.566, 0.707]])
    """
    return factored_rows(X, radius=radius, fit_intercept=fit_intercept).written(order="F")


def signed_rows(X: NDArray, positive: NDArray, *, radius: float, fit_intercept: bool = True) -> NDArray[np.float64]:
    """Rows s_i z_i of the risk.

    Parameters
    ----------
    X, radius, fit_intercept
        As in `factored_rows`.
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


# Tables


class Block(NamedTuple):
    """Some of the records.

    Attributes
    ----------
    rows : Rows
    codes : ndarray (m,) of int, or None
        Classes 0..K-1; None for rows that carry their sign.
    weights : ndarray (m,), or None if all are 1.
        At least 0: multiplicities, or whatever else a record's loss is multiplied by.
    """

    rows: Rows
    codes: np.ndarray | None = None
    weights: np.ndarray | None = None

    def weighted(self, class_weights: NDArray | None, values: NDArray) -> NDArray[np.float64]:
        """Values (m,) or (m, k) of the records times their weights."""
        for each in (self.weights, None if class_weights is None else class_weights[self.codes]):
            if each is not None:
                values = values * (each if values.ndim == 1 else each[:, None])
        return values


def blocks_of(
    parts: Iterable[NDArray],
    codes: NDArray | None = None,
    weights: NDArray | None = None,
    make: Callable[[NDArray], Rows] = Rows,
) -> Iterator[Block]:
    """Blocks, such as a core's cache holds, of records that come in parts, in their order.

    Parameters
    ----------
    parts : iterable of ndarray (m, d)
    codes, weights : ndarray (n,), optional
        Of the records of all parts.
    make : callable
        Of some of the records, to their rows.
    """
    seen = 0
    for X in parts:
        size = max(_ENTRIES // X.shape[1], 1)
        for start in range(0, len(X), size):
            rows = make(X[start : start + size])
            here = slice(seen, seen + len(rows.base))
            yield Block(rows, None if codes is None else codes[here], None if weights is None else weights[here])
            seen = here.stop


@dataclass
class Table:
    """Records in blocks, wherever they are: all that a solver wants to know of them are sums over the blocks.

    Parameters
    ----------
    blocks : list or other iterable of Block
        What this process has, or makes anew on every pass.
    shape : tuple of int
        Number of rows, and of entries of a row.
    sizes : ndarray (K,) of int64, optional
        Records of each class, with their multiplicities.
    keeps : bool
        Whether what a function computes beside its sum is kept until the next; only where blocks are in memory.

    Attributes
    ----------
    assumes : tuple of str
        What a guarantee has to assume because of where the records are.

    >>> table = Table([Block(Rows(np.array([[1.0], [2.0]])))], (2, 1))
    >>> float(table.total(lambda block: block.rows.base.sum()))
    3.0
    """

    blocks: Iterable[Block]
    shape: tuple[int, int]
    sizes: Any = None
    keeps: bool = True

    assumes: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return self.shape[0]

    def total(
        self, function: Callable[..., Any], *arguments: Any, beside: list | None = None, kept: list | None = None
    ) -> Any:
        """Sum over the blocks of function(*arguments, block), or of function(*arguments, block, rest); 0 of none.

        `beside` holds the rest of each block. With a list `kept` the function returns two things: the first is summed,
        and the second is appended to the list, to be the rest later, where the blocks are at hand.
        """
        rests = ((rest,) for rest in beside) if beside else itertools.repeat(())
        pairs: list[Any] = []  # sums of 1, 2, 4 ... blocks: added up so, they round off by their number's logarithm
        for number, (block, rest) in enumerate(zip(self.blocks, rests, strict=False), 1):
            part = function(*arguments, block, *rest)
            if kept is not None:
                part, rest = part
                if self.keeps:
                    kept.append(rest)
            # Two sums of equally many blocks are added up as soon as both are there, as in counting in binary.
            while number % 2 == 0:
                part, number = pairs.pop() + part, number // 2
            pairs.append(part)
        # The last sum is that of the fewest blocks.
        return sum(reversed(pairs))

    def sample(self, stride: int) -> "Table":
        """Every `stride`-th row of each block, written out in memory: a bad approximation from it costs time, and no
        accuracy."""
        found = []
        for rows, *rest in self.blocks:
            factors = None if rows.factors is None else rows.factors[::stride]
            written = np.ascontiguousarray(Rows(rows.base[::stride], factors, rows.constant).written())
            found.append(Block(Rows(written), *(None if each is None else each[::stride] for each in rest)))
        return joined(found, self.shape[1])

    def fingerprint(self) -> tuple[bytes, ...]:
        """Hashes of the blocks, for noise that is keyed by an integer and the data."""
        return tuple(
            # The first bytes of a generator that is keyed by a block's content serve as its hash.
            noise_generator(0, *(part for part in (rows.written(), *rest) if part is not None)).bytes(16)
            for rows, *rest in self.blocks
        )


def joined(blocks: list[Block], width: int) -> Table:
    """One table of rows that are written out."""
    rows = np.concatenate([np.empty((0, width)), *(block.rows.base for block in blocks)])
    codes, weights = (
        None if not blocks or blocks[0][part] is None else np.concatenate([block[part] for block in blocks])
        for part in (1, 2)
    )
    return Table(list(blocks_of([rows], codes, weights)), rows.shape)


# Derivatives


@dataclass(frozen=True)
class MarginSums:
    """What the records of two classes add to the derivatives of the risk: the sums over a block, not divided by n.

    Parameters
    ----------
    loss : Loss
    class_weights : ndarray (2,), optional
        On top of the block's own weights.

    >>> from helpers.erm.losses import LOGISTIC
    >>> MarginSums(LOGISTIC).pull(np.zeros(1), Block(Rows(np.array([[1.0], [2.0]]))))[0]
    array([-1.5])
    """

    loss: Loss
    class_weights: np.ndarray | None = None

    def pull(self, beta: NDArray, block: Block) -> tuple[NDArray, NDArray]:
        """Gradient (d,), and weighted second derivatives (m,), which make `hessian` and `product` cheaper."""
        signs = 1.0 if block.codes is None else 2.0 * block.codes - 1
        margins = signs * block.rows.scores(beta)
        slope = self.loss.slope(margins)
        # p (1 - p) of the logistic loss follows from its slope, without another exponential.
        bend = self.loss.bend(margins) if self.loss.bend_at_slope is None else self.loss.bend_at_slope(slope)
        slope, bend = (block.weighted(self.class_weights, values) for values in (slope, bend))
        return block.rows.sums(signs * slope), bend

    def hessian(self, beta: NDArray, block: Block, bends: NDArray | None = None) -> NDArray[np.float64]:
        """(d, d)."""
        return block.rows.gram(self._bends(beta, block) if bends is None else bends)

    def product(self, beta: NDArray, vector: NDArray, block: Block, bends: NDArray | None = None) -> NDArray:
        """The Hessian at beta times a vector: (d,)."""
        bends = self._bends(beta, block) if bends is None else bends
        return block.rows.sums(bends * block.rows.scores(vector))

    def _bends(self, beta, block):
        signs = 1.0 if block.codes is None else 2.0 * block.codes - 1
        return block.weighted(self.class_weights, self.loss.bend(signs * block.rows.scores(beta)))


@dataclass(frozen=True)
class SoftmaxSums:
    """`MarginSums` for K classes; coefficients C (K - 1, d) come as one vector.

    Parameters
    ----------
    loss : Softmax
    class_weights : ndarray (K,), optional

    >>> block = Block(Rows(np.array([[1.0]])), np.array([0]))
    >>> SoftmaxSums(Softmax(2)).pull(np.zeros(1), block)[0].round(3)
    array([-0.707])
    """

    loss: Softmax
    class_weights: np.ndarray | None = None

    def pull(self, beta: NDArray, block: Block) -> tuple[NDArray, NDArray]:
        """Gradient ((K - 1) d,), and probabilities (m, K), which make `hessian` and `product` cheaper."""
        basis, p = self._predictions(beta, block)
        residual = p.copy()
        residual[np.arange(len(p)), block.codes] -= 1
        return block.rows.sums(basis @ block.weighted(self.class_weights, residual).T).ravel(), p

    def hessian(self, beta: NDArray, block: Block, bends: NDArray | None = None) -> NDArray[np.float64]:
        """((K - 1) d, (K - 1) d)."""
        basis, p = self._predictions(beta, block, bends)
        k, d, mean = len(basis), block.rows.width, p @ basis.T
        total = np.empty((k, d, k, d))
        for a in range(k):
            for b in range(a, k):
                # In the basis, a record's Hessian by its scores is the covariance of the basis vectors under its
                # probabilities.
                bend = p @ (basis[a] * basis[b]) - mean[:, a] * mean[:, b]
                total[a, :, b] = total[b, :, a] = block.rows.gram(block.weighted(self.class_weights, bend))
        return total.reshape(k * d, k * d)

    def product(self, beta: NDArray, vector: NDArray, block: Block, bends: NDArray | None = None) -> NDArray:
        """The Hessian at beta times a vector: ((K - 1) d,)."""
        basis, p = self._predictions(beta, block, bends)
        along = block.rows.scores(vector.reshape(len(basis), -1).T) @ basis
        # (diag(p) - p p') times the scores of the vector, for each record.
        along -= np.einsum("ij,ij->i", p, along)[:, None]
        along *= p
        return block.rows.sums(basis @ block.weighted(self.class_weights, along).T).ravel()

    def _predictions(self, beta, block, known=None):
        basis = zero_sum_basis(self.loss.n_classes)
        if known is not None:
            return basis, known
        return basis, probabilities(block.rows.scores(beta.reshape(len(basis), -1).T) @ basis, axis=1)


# Minimisers


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
    table, n = Table(list(blocks_of([rows], None, weights)), rows.shape), n_records or len(rows)
    mean_weight = (len(rows) if weights is None else float(weights.sum())) / n
    longest = math.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
    risk = Risk(table, MarginSums(loss), regularization, np.asarray(linear), n, mean_weight, longest)
    return risk.minimiser(distance)


@dataclass
class Risk:
    """(1/n) sum weight loss + (regularization/2) ||beta||^2 + linear'beta, of records wherever they are.

    Parameters
    ----------
    table : Table
    sums : MarginSums or SoftmaxSums
        What the records add to the derivatives.
    regularization : float
        Total quadratic coefficient, > 0.
    linear : ndarray (d,) or (K - 1, d)
    n_records : float
        n.
    mean_weight : float
        Sum of the records' weights, those of their classes included, over n.
    longest : float
        Bound on the norm of a row.
    """

    table: Table
    sums: MarginSums | SoftmaxSums
    regularization: float
    linear: NDArray
    n_records: float
    mean_weight: float
    longest: float

    # What the iteration has found out so far, see `_newton_step`.
    _sample: "Risk | None" = field(default=None, init=False)
    _inverse: Any = field(default=None, init=False)  # of the sample's Hessian
    _products: int = field(default=0, init=False)  # that have been computed
    _farthest: float = field(default=0.0, init=False)  # most decimal digits of the gradient that were still to go
    _direct: bool = field(default=False, init=False)  # products did not arrive, and the next systems are no easier

    def minimiser(self, distance: float) -> Solution:
        """A point within `distance` of the minimiser, by Newton's method with a line search.

        It stops at a point beta whose gradient g is at most regularization * distance long, which certifies the
        distance: the risk is strongly convex, hence ||beta - beta*|| <= ||g(beta)|| / regularization for the minimiser
        beta*. It always gets there. The line search ends where the slope along the step has lost a tenth at least, and
        has not passed the minimum by much: it is not above 0, or so little that it takes back less than the half of the
        way before has brought. As slopes of a convex function grow, the function then falls by a fixed multiple of its
        squared first slope over its largest curvature, so the gradients converge to 0. Where the loss is smooth, so
        that Newton's steps are right to first order, it also ends where the gradient is at most half as long as all
        before it, which happens finitely often. Only slopes and gradients are compared, because values cannot be near
        the minimum.

        Computed gradients carry rounding errors. Where one is at that level and does not fall any more, or no step is a
        progress, the solver stops and returns the point with the smallest gradient.

        Steps are solved for loosely while they are long, and the start is the minimiser for a sample of the rows, where
        there are many: it is cheap, and saves up to two thirds of the time.
        """
        (n_rows, width), loss, linear = self.table.shape, self.sums.loss, self.linear.ravel()
        wanted, pull = self.regularization * distance, loss.steepness * self.longest * self.mean_weight
        # `pull` bounds the gradient of the mean loss, `curvature` the largest eigenvalue of the Hessian.
        scale = pull + np.linalg.norm(linear)  # of all rows together, and the noise
        curvature = self.regularization + loss.curvature * self.longest**2 * self.mean_weight
        beta = np.zeros(linear.size)
        stride = max(_COARSE, math.ceil(n_rows * width / _LARGEST_SAMPLE))
        if n_rows > stride * _ENOUGH:
            sample = self.table.sample(stride)
            self._sample = replace(self, table=sample, n_records=self.n_records * sample.shape[0] / n_rows)
            beta = self._sample.minimiser(max(distance, _COARSE_GRADIENT * pull / self.regularization)).beta.ravel()
        best, step, fall = Solution(beta, math.inf, math.inf, 0), np.zeros(linear.size), 0.0
        for iteration in range(_MAX_ITERATIONS):
            # The line search along the last step, which at first is none; `fall` is minus the slope at its beginning.
            low, high, t = 0.0, math.inf, 1.0
            passed: Any = None  # what was found a little behind the minimum
            for _ in range(_MAX_TRIALS):
                bends: list = []
                candidate = beta - t * step
                total = self.table.total(self.sums.pull, candidate, kept=bends)
                gradient = total / self.n_records + self.regularization * candidate + linear
                size, slope = float(np.linalg.norm(gradient)), -(gradient @ step)
                falling = size <= best.gradient_norm / 2
                # Nearly as steep as at the beginning: the step is too short.
                if slope < -_STEEP * fall:
                    low = t
                elif slope <= 0 or size <= wanted or (falling and loss.smooth):
                    # An earlier trial lay a little behind the minimum, and this one falls short of it by more: take the
                    # earlier one.
                    if passed is not None and slope <= -2 * _FLAT * fall:
                        candidate, bends, gradient, size = passed
                    break
                else:
                    high = t
                    # Behind the minimum: the step is too long, but worth keeping if the slope has hardly turned.
                    passed = (candidate, bends, gradient, size) if slope <= _FLAT * fall else None
                # Longer steps until one passes the minimum, bisection afterwards.
                t = 2 * t if math.isinf(high) else (low + high) / 2
            else:
                break  # rounding leaves nothing to be gained
            beta = candidate
            if size < best.gradient_norm:
                best = Solution(beta, size / self.regularization, size, iteration)
            # Arrived; or the gradient does not fall any more and is not larger than its own rounding error.
            if size <= wanted or not (falling or size > _ROUNDING * (scale + curvature * np.linalg.norm(beta))):
                break
            # A residual may be larger where the gradient is, and need not be smaller than what arrives.
            loose = size * min(_LOOSE, math.sqrt(size / scale)) if scale else 0.0
            digits = math.log10(max(size / max(wanted, _TINY), 1.0))
            step = self._newton_step(beta, bends, gradient, loose if loose > _NEAR * wanted else wanted / 2, digits)
            fall = gradient @ step
        return best._replace(beta=best.beta.reshape(self.linear.shape))

    def _newton_step(self, beta, bends, gradient, allowed, digits) -> NDArray[np.float64]:
        """Newton step: the Hessian at beta times this vector is the gradient, up to a residual of length `allowed`.

        A Hessian of all records is computed where it takes no longer than a few gradients. Elsewhere, Newton's systems
        are solved by conjugate gradients from products with it; where they do not converge in the time of a Hessian,
        one is computed after all.

        The inverse of a sample's Hessian preconditions them where it takes less time than the products that it spares
        on the `digits` that the gradient still has to lose: from m rows of width d that Hessian is off by about
        sqrt(d/m), relative to itself, and so much is what each step then leaves of the error.
        """
        n_rows, width = self.table.shape
        # Gradients in whose time a Hessian can be computed, and decomposed; with K classes it has K (K - 1)/2 parts.
        computing = (len(beta) / width + 1) / 2 * width / _WIDTH
        decomposing = len(beta) ** 2 / (3 * _WIDTH * max(n_rows, 1))
        if not self._direct and computing + decomposing > _PASSES:
            self._farthest = max(self._farthest, digits)
            if self._inverse is None and self._sample is not None and (rows := self._sample.table.shape[0]) > width:
                gained = self._farthest - digits
                for_a_digit = self._products / gained if gained > 0 else _UNTRIED
                spared = digits * (for_a_digit - 2 * math.log(10) / math.log(rows / width))
                if rows / n_rows * computing + decomposing <= min(spared, _PASSES):
                    inverse = self._sample._solver(beta)
                    self._inverse = LinearOperator((len(beta), len(beta)), matvec=inverse, dtype=float)

            def product(vector):
                self._products += 1
                total = self.table.total(self.sums.product, beta, vector, beside=bends)
                return total / self.n_records + self.regularization * vector

            hessian = LinearOperator((len(beta), len(beta)), matvec=product, dtype=float)
            patience = max(math.ceil(computing + decomposing), _FEWEST_PRODUCTS)
            step, failed = cg(hessian, gradient, M=self._inverse, rtol=0.0, atol=allowed, maxiter=patience)
            if not failed:
                return step
            self._direct = True
        return self._solver(beta, bends)(gradient)

    def _solver(self, beta, bends=None) -> Callable[[NDArray], NDArray[np.float64]]:
        """Function that solves linear systems with the Hessian at beta."""
        # The penalty keeps every eigenvalue above 0, so a Cholesky factor exists up to rounding.
        hessian = self.regularization * np.eye(len(beta))
        hessian += self.table.total(self.sums.hessian, beta, beside=bends) / self.n_records  # just 0 without records
        factor, failed = lapack.dpotrf(hessian, lower=True)  # scipy.linalg's wrappers take longer than small systems do
        if not failed:
            return lambda vector: lapack.dpotrs(factor, vector, lower=True)[0]
        # Rounding has made small eigenvalues negative, which are no smaller than the penalty in truth.
        values, vectors = linalg.eigh(hessian, check_finite=False)
        values = np.maximum(values, self.regularization)
        return lambda vector: vectors @ (vectors.T @ vector / values)


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
    """Bounds on what rounding does to `Risk.minimiser`, from public numbers.

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
        As in `Risk`, or bounds.
    center : float
        Length of linear / regularization that is hardly ever exceeded.

    Source: Higham 2002, Section 3.1, for sums and inner products.

    >>> from helpers.erm.losses import LOGISTIC
    >>> found = precision(LOGISTIC, 1e-3, width=10, n_rows=1000, mean_weight=1.0, longest=1.0, center=100.0)
    >>> round(found.reach), f"{found.distance:.0e}"
    (549, '2e-09')
    """
    classes = loss.n_classes if isinstance(loss, Softmax) else 1
    # S R kappa of the docstring, and a bound on l: log 2 for the logistic loss, 1 + h for the Huber loss, log K for
    # softmax.
    pull, level = loss.steepness * longest * mean_weight, max(1.0, loss.shift, math.log(classes))
    energy = 2 * (mean_weight * level + pull * center) / regularization
    reach = center + min(math.sqrt(energy), pull / regularization)
    # A block's sum, in an order that only the library knows, has as many terms as the block has rows.
    longest_block = max(_ENTRIES // max(width - 1, 1), 1)
    added = min(longest_block, n_rows) + 160 + 2 * classes
    fixed = added * pull + 4 * loss.curvature * loss.shift * mean_weight * longest
    growing = (width + classes + 8) * math.sqrt(classes) * loss.curvature * longest**2 * mean_weight
    # E + F B of the docstring.
    off = _UNIT * (fixed + (growing + 8 * regularization) * reach) / regularization
    return Precision(reach, min(4 * off, 2 * reach))
