"""The regularised empirical risk of a linear classifier: its rows, and what the records add to its derivatives.

A record enters as its feature vector z_i, clipped and with the constant feature inside the ball, and its class: s_i = 1
or -1, or a code where there are more. Everything about the records is a sum (`MarginSums`, `SoftmaxSums`) over the
blocks of a `Table`. Minimising is left to `helpers.erm.solver`, tables that memory does not hold to
`helpers.erm.partitions`.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax as probabilities

from helpers.erm.losses import Loss, zero_sum_basis
from helpers.privacy import noise_generator

_SHORTEST = 1e-150
_EXTREME = 1e-100
_ENTRIES = 1 << 18  # of a block: what a core's cache holds


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
        d, total = self.base.shape[1], np.empty((self.width, self.width))
        scaled = weights if self.factors is None else weights * self.factors
        twice = scaled if self.factors is None else scaled * self.factors
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
    """Feature vectors z of norm at most `radius`, the constant feature included; parameters as in `design_matrix`.

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


def design_matrix(
    X: NDArray, *, radius: float, fit_intercept: bool = True, intercept_scaling: float = 1.0, rows: str = "clip"
) -> NDArray[np.float64]:
    """Feature vectors z of norm at most `radius`, the constant feature included.

    Rows longer than `radius` are shortened to it. With an intercept, z = [x, a radius] / sqrt(1 + a^2), so that the
    constant feature lies inside the ball and is regularised like any other; without one, z = x.

    Parameters
    ----------
    X : ndarray (n, d)
        Finite numbers, in the units of `radius`.
    radius : float
        Public bound R > 0 on the Euclidean norm of a record.
    intercept_scaling : float
        a > 0: size of the constant feature beside the longest x.
    rows : {"clip", "unit"}
        "unit": shorter rows are lengthened to `radius` too; a row of length 0 stays what it is.

    Returns
    -------
    ndarray (n, d + 1), or (n, d) without an intercept

    >>> design_matrix(np.array([[3.0, 4.0]]), radius=1.0).round(3)
    array([[0.424, 0.566, 0.707]])
    """
    found = factored_rows(X, radius=radius, fit_intercept=fit_intercept, intercept_scaling=intercept_scaling, rows=rows)
    return found.written(order="F")


def signed_rows(X: NDArray, positive: NDArray, *, radius: float, fit_intercept: bool = True) -> NDArray[np.float64]:
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

    def cut(self, part: slice) -> "Block":
        """The records of a slice."""
        factors = None if self.rows.factors is None else self.rows.factors[part]
        rows = self.rows._replace(base=self.rows.base[part], factors=factors)
        return Block(rows, *(None if rest is None else rest[part] for rest in (self.codes, self.weights)))

    def every(self, stride: int) -> "Block":
        """Every `stride`-th record."""
        every = self.cut(slice(None, None, stride))
        return every._replace(rows=Rows(np.ascontiguousarray(every.rows.written())))

    def weighted(self, class_weights: NDArray | None, values: NDArray) -> NDArray[np.float64]:
        """Values (m,) or (m, k) of the records times their weights."""
        for each in (self.weights, None if class_weights is None else class_weights[self.codes]):
            if each is not None:
                values = values * (each if values.ndim == 1 else each[:, None])
        return values


class Table(ABC):
    """Records in blocks, wherever they are: all that a solver wants to know of them are sums over the blocks.

    Attributes
    ----------
    width : int
        Number of entries of a row.
    sizes : ndarray (K,) of int64
        Records of each class, with their multiplicities.
    assumes : tuple of str
        What a guarantee has to assume because of where the records are.
    """

    width: int
    sizes: NDArray[np.int64]
    assumes: tuple[str, ...] = ()

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def total(
        self, function: Callable[..., Any], *arguments: Any, beside: list | None = None, kept: list | None = None
    ) -> Any:
        """Sum over the blocks of function(*arguments, block), or of function(*arguments, block, rest).

        `beside` holds the rest of each block. With a list `kept` the function returns two things: the first is summed,
        and the second is appended to the list, to be the rest later, where the blocks are at hand.
        """

    @abstractmethod
    def sample(self, stride: int) -> "LocalTable":
        """About one row in `stride`, in memory, for approximations that cost nothing but time if they are bad."""

    @abstractmethod
    def fingerprint(self) -> tuple[bytes, ...]:
        """Hashes of the blocks, for noise that is keyed by an integer and the data."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and entries of a row."""
        return len(self), self.width


class LocalTable(Table):
    """Blocks that this process has, or makes anew on every pass.

    Parameters
    ----------
    blocks : list or other iterable of Block
    n_rows, width : int
    sizes : ndarray (K,) of int64, optional
    keeps : bool, optional
        Whether what a function computes beside its sum is kept until the next; only where blocks are in memory.

    >>> table = LocalTable(pieces(Block(Rows(np.array([[1.0], [2.0]])))), 2, 1)
    >>> float(table.total(lambda block: block.rows.base.sum()))
    3.0
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        n_rows: int,
        width: int,
        sizes: NDArray[np.int64] | None = None,
        keeps: bool = True,
    ):
        self.blocks, self._n_rows, self.width, self._keeps = blocks, n_rows, width, keeps
        if sizes is not None:
            self.sizes = sizes

    def __len__(self):
        return self._n_rows

    def total(self, function, *arguments, beside=None, kept=None):
        rests = ((rest,) for rest in beside) if beside else itertools.repeat(())
        pairs: list[Any] = []  # sums of 1, 2, 4 ... blocks: added up so, they round off by their number's logarithm
        for number, (block, rest) in enumerate(zip(self.blocks, rests, strict=False), 1):
            part = function(*arguments, block, *rest)
            if kept is not None:
                part, rest = part
                if self._keeps:
                    kept.append(rest)
            while number % 2 == 0:
                part, number = pairs.pop() + part, number // 2
            pairs.append(part)
        return sum(reversed(pairs))

    def sample(self, stride):
        return joined([block.every(stride) for block in self.blocks], self.width)

    def fingerprint(self):
        return tuple(hashed(block) for block in self.blocks)


def block_rows(width: int) -> int:
    """Number of rows of a block."""
    return max(_ENTRIES // max(width, 1), 1)


def pieces(block: Block) -> list[Block]:
    """A block cut into such as a core's cache holds."""
    m, d = block.rows.base.shape
    size = block_rows(d)
    return [block] if m <= size else [block.cut(slice(a, a + size)) for a in range(0, m, size)]


def joined(blocks: list[Block], width: int) -> LocalTable:
    """One table of rows that are written out."""
    rows = np.concatenate([np.empty((0, width)), *(block.rows.base for block in blocks)])
    codes, weights = (
        None if not blocks or blocks[0][part] is None else np.concatenate([block[part] for block in blocks])
        for part in (1, 2)
    )
    return LocalTable(pieces(Block(Rows(rows), codes, weights)), len(rows), width)


def hashed(block: Block) -> bytes:
    """What tells the records of a block from others."""
    arrays = (block.rows.written(), block.codes, block.weights)
    return noise_generator(0, *(array for array in arrays if array is not None)).bytes(16)


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
    n_classes : int
    class_weights : ndarray (K,), optional

    >>> block = Block(Rows(np.array([[1.0]])), np.array([0]))
    >>> SoftmaxSums(2).pull(np.zeros(1), block)[0].round(3)
    array([-0.707])
    """

    n_classes: int
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
                bend = p @ (basis[a] * basis[b]) - mean[:, a] * mean[:, b]
                total[a, :, b] = total[b, :, a] = block.rows.gram(block.weighted(self.class_weights, bend))
        return total.reshape(k * d, k * d)

    def product(self, beta: NDArray, vector: NDArray, block: Block, bends: NDArray | None = None) -> NDArray:
        """The Hessian at beta times a vector: ((K - 1) d,)."""
        basis, p = self._predictions(beta, block, bends)
        along = block.rows.scores(vector.reshape(len(basis), -1).T) @ basis
        along -= np.einsum("ij,ij->i", p, along)[:, None]
        along *= p
        return block.rows.sums(basis @ block.weighted(self.class_weights, along).T).ravel()

    def _predictions(self, beta, block, known=None):
        basis = zero_sum_basis(self.n_classes)
        if known is not None:
            return basis, known
        return basis, probabilities(block.rows.scores(beta.reshape(len(basis), -1).T) @ basis, axis=1)
