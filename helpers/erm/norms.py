"""The shape of noise: the smallest convex body that holds all rows, its norm, and draws of density exp(-rate ||b||_K).

Let K be a convex body, the same as -K, that holds every possible row, and let ||b||_K be the least r with b in rK.
Objective perturbation is epsilon-DP with noise of density proportional to exp(-g ||b||_K) wherever it is with noise of
density proportional to exp(-g ||b||_2 / R), R being a bound on the rows' Euclidean norm; `helpers.erm.calibrate` gives
g = noise_rate R and the penalty.

Proof. At a fixed output a record of weight w and slope p in [0, 1] pulls b by w p z, and ||w p z||_K <= w p, because
the row z is in K: this is all that the proof for the ball knows about the pull, by the triangle inequality, which holds
in every norm. What the record adds to the Jacobian w p (1 - p) z z' depends on the penalty ||beta||^2 and not on the
noise, and only its trace is used, at most w p (1 - p) R^2. So the costs of `calibrate`, functions of g and of T = R^2 /
(n L), are those of the ball: for weights that are public or balanced, under replace-one and add/remove-one, with an
offset inside the loss. Several classes: a record pulls by the matrix v z' with ||v||_2 <= sqrt 2, and any norm with ||v
z'|| <= ||v||_2 ||z||_K will do; for a cube this is the largest column norm.

Two limits. A linear image of such noise serves the images of the rows (integrate over the kernel), and a body inside a
subspace serves rows inside it, since a minimiser stays there. But a *minimiser* does not move as its gradient does: a
change v of the gradient moves it by H^-1 v with H >= L, and for v in the cube [-1, 1]^D that can be (1 + sqrt D)/2
times as long as v / L in the cube's norm (and no longer: A = L H^-1 is half the identity plus half a contraction). So
output perturbation has to stay with the ball.

A smaller body means less noise: E ||b||_2^2 is (p + 1)(p + 2) / g^2 times that of a uniform point of the body of
dimension p. `RowPolytope` is the smallest body for records of numbers in intervals and levels of public lists.

Source: Hardt and Talwar 2010 (K-norm mechanism); Awan and Slavkovic 2021 (K-norms in the objective); the constants for
weights and several classes, the rows' polytope and its sampler are derived here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, xlogy

from helpers.validation import check_integer, check_real

_SHRINK = 1 - 1e-12  # norms stay below the radius in floating point too
_SMALLEST = 1e-150


@dataclass(frozen=True)
class RowPolytope:
    """Smallest convex body that holds the rows z and -z of all records with these attributes.

    A number lies in an interval about 0. A one-hot block of k columns is t (s (e_c - 1/k)), the corner c of a regular
    simplex, where t = 1 is the constant feature in units of its size, which is the row's last entry. With w = y/s + t/k
    for the entries y of a block, a row has w = e_c, and -z has w = -e_c. Then ||b||_K is the largest of |b_j| /
    width_j and of the sums of |w| over the blocks, which are at least |t|. (It is at most 1 at rows, and b is P u - N v
    with u, v mixtures of rows and P + N = ||b||_K: P and N are the largest sums of the positive and the negative parts
    of w over the blocks, and as their difference is t in all blocks, the rest can go to any one level in both parts.)

    Parameters
    ----------
    widths : sequence of D floats
        Largest size of each entry of a row, at least 0. Noise is 0 where it is 0.
    blocks : sequence of sequences of int
        Positions of the one-hot blocks, of two columns or more. The last position belongs to the constant feature and
        to no block. Without blocks the body is a box.

    Raises
    ------
    ValueError
        A width below 0 or not finite, all of them 0, or blocks that overlap, are too small or hold the last position.

    >>> RowPolytope((0.5, 0.5)).norm([0.25, -0.5])
    1.0
    """

    widths: tuple[float, ...]
    blocks: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self):
        widths = tuple(check_real("widths", width, low=0) for width in self.widths)
        if not any(widths):
            raise ValueError(f"widths must be above 0 somewhere, got {widths!r}")
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "blocks", check_blocks(self.blocks, len(widths) - 1))
        if any(min(widths[-1], *(widths[column] for column in block)) <= 0 for block in self.blocks):
            raise ValueError("widths of blocks and of the constant feature must be above 0")

    @property
    def dimension(self) -> int:
        """Dimension p of the space that rows can fill: D less one for each block, and less the entries of width 0."""
        return len(self._numbers) + sum(len(block) - 1 for block in self.blocks) + bool(self.blocks)

    def norm(self, b: ArrayLike) -> float:
        """||b||_K of a vector (D,), or of a matrix (K - 1, D) for several classes, where columns count by their length.

        A row's entries in a block sum to 0, so of b's entries there only the differences from their mean count.

        >>> RowPolytope((0.5, 0.5, 0.5, 1.0), [(0, 1, 2)]).norm([0.5, -0.25, -0.25, 1.0])
        1.0
        """
        b = np.asarray(b, dtype=float)
        if b.shape[-1:] != (len(self.widths),) or b.ndim not in (1, 2) or (self.blocks and b.size > b.shape[-1]):
            raise ValueError(f"b must have {len(self.widths)} columns, and one row with blocks, got shape {b.shape}")
        sizes = np.abs(b) if b.ndim == 1 else np.linalg.norm(b, axis=0)
        parts = list(sizes[self._numbers] / np.array(self.widths)[self._numbers])
        if self.blocks:
            t = float(np.ravel(b)[-1]) / self.widths[-1]
            for block, scale in zip(self.blocks, self._scales, strict=True):
                # w = y/s + t/k, from the part of y that rows can have.
                y = np.ravel(b)[list(block)]
                parts.append(np.abs((y - y.mean()) / scale + t / len(block)).sum())
        return float(max(parts))

    def draw(self, rate: float, rng: np.random.Generator, n_scores: int = 1) -> NDArray[np.float64]:
        """One draw (n_scores, D) of density proportional to exp(-rate ||b||_K): a Gamma length times a uniform point.

        Parameters
        ----------
        rate : float
            Above 0.
        rng : numpy.random.Generator
            Has to be secret.
        n_scores : int
            K - 1 for K classes; 1 with blocks.

        >>> RowPolytope((1.0, 2.0)).draw(1.0, np.random.default_rng(0)).shape
        (1, 2)
        """
        rate = check_real("rate", rate, low=0, inclusive="neither")
        n_scores = check_integer("n_scores", n_scores, low=1, high=1 if self.blocks else None)
        point = np.zeros((n_scores, len(self.widths)))
        numbers = self._numbers
        # Uniform points of balls, one a number; those of one dimension are intervals.
        if n_scores == 1:
            balls = rng.uniform(-1, 1, (1, len(numbers)))
        else:
            directions = rng.normal(size=(n_scores, len(numbers)))
            # A uniform point of a ball in m dimensions has a uniform direction and a length of law U^{1/m}.
            balls = directions / np.linalg.norm(directions, axis=0) * rng.uniform(size=len(numbers)) ** (1 / n_scores)
        point[:, numbers] = balls * np.array(self.widths)[numbers]
        if self.blocks:
            t = self._constant(rng)
            point[0, -1] = t * self.widths[-1]
            for block, scale in zip(self.blocks, self._scales, strict=True):
                # The body is symmetric: its slice at -t is minus that at t.
                w = math.copysign(1.0, t) * _slice_point(len(block), abs(t), rng)
                point[0, list(block)] = scale * (w - t / len(block))
        # In p dimensions a Gamma length of shape p + 1, times a uniform point of the body, has this density (Hardt and
        # Talwar 2010, Section 4).
        return point * rng.gamma(n_scores * self.dimension + 1, 1 / rate)

    @cached_property
    def _numbers(self) -> NDArray[np.intp]:
        """Positions of the entries that are numbers: not in a block, not always 0, and with blocks not the constant."""
        alone = np.array(self.widths) > 0
        for block in self.blocks:
            alone[[*block, -1]] = False
        return np.flatnonzero(alone)

    @cached_property
    def _scales(self) -> list[float]:
        """s of each block; its largest entry is s (1 - 1/k)."""
        return [self.widths[block[0]] / (1 - 1 / len(block)) for block in self.blocks]

    def _log_share(self, t) -> float:
        """Log volume of the body at the constant's value t >= 0, over that at 0; concave by Brunn and Minkowski."""
        sizes = map(len, self.blocks)
        return float(sum(logsumexp(_log_weights(k, t)) - logsumexp(_log_weights(k, 0.0)) for k in sizes))

    @cached_property
    def _knee(self) -> float:
        """Value t of the constant at which the slice's volume has fallen to 1/e of that at 0; 1 if it never does."""
        return 1.0 if self._log_share(1.0) >= -1 else brentq(lambda t: self._log_share(t) + 1, 0.0, 1.0)

    def _constant(self, rng) -> float:
        """The constant's value t at a uniform point: rejection from a flat piece and, beyond the knee, an exponential.

        A concave function that is 0 at 0 lies below the line through its value at the knee, from there on.
        """
        knee = self._knee
        slope = -self._log_share(knee) / knee
        tail = (math.exp(-slope * knee) - math.exp(-slope)) / slope if knee < 1 else 0.0
        while True:
            # One of the two pieces under the bound on the volume, by its area.
            if rng.uniform() * (knee + tail) < knee:
                t, bound = knee * rng.uniform(), 0.0
            else:
                # An exponential law cut to [knee, 1], by inverting its distribution function.
                t = knee - math.log1p(rng.uniform() * math.expm1(-slope * (1 - knee))) / slope
                bound = -slope * t
            # Accepted with probability volume over bound; 1 - U is never 0.
            if math.log(1 - rng.uniform()) + bound <= self._log_share(min(t, 1.0)):
                return t if rng.uniform() < 0.5 else -t


def check_blocks(blocks: Iterable[Iterable[int]], n_columns: int) -> tuple[tuple[int, ...], ...]:
    """Public one-hot blocks as tuples of columns.

    Raises
    ------
    ValueError
        A block of fewer than two columns, a column outside 0, ..., n_columns - 1, or one that is named twice.

    >>> check_blocks([[0, 1], [3, 4, 5]], 6)
    ((0, 1), (3, 4, 5))
    """
    try:
        found = tuple(tuple(check_integer("blocks", column, low=0) for column in block) for block in blocks)
    except TypeError:
        raise ValueError(f"blocks must be lists of columns, got {blocks!r}") from None
    columns = [column for block in found for column in block]
    fits = all(len(block) > 1 for block in found) and len(set(columns)) == len(columns)
    if not fits or max(columns, default=-1) >= n_columns:
        raise ValueError(f"blocks must be of two or more columns below {n_columns}, each once, got {blocks!r}")
    return found


def simplex_rows(boxed: NDArray, X: NDArray, blocks: tuple[tuple[int, ...], ...], radius: float) -> NDArray[np.float64]:
    """Rows in which every attribute has the same length: radius / sqrt(number of attributes) at most.

    A block becomes a corner of a regular simplex. Its entries are cut to [0, 1] and divided by their sum; without any,
    they are all 1/k, the middle of the simplex. So every record has a row inside the body, and a valid one its corner.

    Parameters
    ----------
    boxed : ndarray (n, d)
        Rows as `helpers.data.into_ball` has them, of which the numbers are used.
    X : ndarray (n, d)
        Of which the blocks are used.
    blocks : tuple of tuples of int
    radius : float

    >>> simplex_rows(np.array([[0.0, 0.0, 0.5]]), np.array([[0.0, 1.0, 7.0]]), [(0, 1)], 1.0).round(3).tolist()
    [[-0.5, 0.5, 0.612]]
    """
    d = X.shape[1]
    n_attributes = d - sum(len(block) - 1 for block in blocks)
    # `into_ball` gives each of d columns the length radius / sqrt(d); here a block counts as one attribute, so numbers
    # may be longer.
    rows = boxed * math.sqrt(d / n_attributes)
    for block in blocks:
        k = len(block)
        part = np.clip(X[:, list(block)], 0, 1)
        total = part.sum(axis=1, keepdims=True)
        share = np.divide(part, total, out=np.full_like(part, 1 / k), where=total > 0)
        # e_c - 1/k has length sqrt((k - 1)/k); so a corner gets the length radius / sqrt(n_attributes).
        length = _SHRINK * radius * math.sqrt(k / (k - 1) / n_attributes)
        rows[:, list(block)] = length * (share - 1 / k)
    return rows


def surface_rows(boxed: NDArray, radius: float) -> NDArray[np.float64]:
    """Rows lengthened until their largest entry is that of the box, radius / sqrt(d); a row of zeros stays one.

    Parameters
    ----------
    boxed : ndarray (n, d)
        As `helpers.data.into_ball` has them.
    radius : float

    >>> surface_rows(np.array([[0.1, -0.2]]), 2.0).round(3).tolist()
    [[0.707, -1.414]]
    """
    largest = np.abs(boxed).max(axis=1, keepdims=True)
    factor = np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > _SMALLEST)
    return boxed * factor * (_SHRINK * radius / math.sqrt(boxed.shape[1]))


@lru_cache(maxsize=256)
def _pieces(k) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """The slice {w in R^k: sum w = t, sum |w| <= 1}, t in [0, 1], in pieces with i entries above 0, k - i below.

    With N the sum of the negative ones, a piece has the volume C(k, i) times the integral of (N + t)^{i-1} N^{k-i-1} /
    ((i-1)! (k-i-1)!) over N from 0 to (1 - t)/2. The binomial formula makes it a sum over l of powers N^{e-1}, e = k -
    i + l, all of them positive: of each i and e, the power of t and the logarithm of the factor are given. The last
    entry stands for the piece without negative entries.
    """
    i, term = np.array([(i, term) for i in range(1, k) for term in range(i)]).T
    power, rest = k - i + term, i - 1 - term
    log_factor = gammaln(k + 1) - gammaln(i + 1) - gammaln(k - i + 1) - gammaln(k - i)
    log_factor = log_factor - gammaln(term + 1) - gammaln(rest + 1) - np.log(power)
    last = ([k], [0], [k - 1], [-gammaln(k)])
    i, power, rest, log_factor = (
        np.append(one, end) for one, end in zip((i, power, rest, log_factor), last, strict=True)
    )
    return i, power, rest, log_factor


def _log_weights(k, t) -> NDArray[np.float64]:
    """Log volumes of the pieces of the slice at t, one for each term of `_pieces`."""
    _, power, rest, log_factor = _pieces(k)
    return log_factor + xlogy(rest, t) + xlogy(power, (1 - t) / 2)


def _slice_point(k, t, rng) -> NDArray[np.float64]:
    """A uniform point of the slice: a piece by its volume, N by its power, and uniform shares of both sums."""
    weights = _log_weights(k, t)
    piece = rng.choice(len(weights), p=np.exp(weights - logsumexp(weights)))
    i, power = (int(of_pieces[piece]) for of_pieces in _pieces(k)[:2])
    # N has a density in proportion to N^{power - 1} on its interval.
    negative = (1 - t) / 2 * rng.uniform() ** (1 / power) if power else 0.0
    order, point = rng.permutation(k), np.empty(k)
    point[order[:i]] = (negative + t) * _shares(i, rng)
    point[order[i:]] = -negative * _shares(k - i, rng)
    return point


def _shares(n, rng) -> NDArray[np.float64]:
    """Shares (n,) that sum to 1, uniform among all such; exponential numbers over their sum are."""
    parts = rng.standard_exponential(n)
    return parts / parts.sum() if n else parts
