"""Marginal distributions of all attributes in one Gaussian release, and the features of ranks that are made of them.

The histogram of an ordered attribute is released as a tree: at every node the difference of its two halves. A record is
in one node a level, so the noise on an interval adds up over a few differences instead of over all of its cells. What
follows the noise is post-processing: every difference is shrunk towards that of equally full cells, by as much as its
level is noise. With it comes what a learner makes of the marginals, `RankFeatures`.

Source: Xiao, Wang and Gehrke 2011 (the Haar wavelet under differential privacy), with Gaussian noise.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial.legendre import legval
from numpy.typing import NDArray

from helpers.data.domain import Attribute, Domain
from helpers.erm.risk import Block
from helpers.privacy import ClassLedger, Move

_FEW = 4  # cells of an ordered attribute that are not worth a tree
_DEGREES = (1.0, 0.5, 0.35)  # weights of the polynomials of a rank; what is smooth comes first
_LENGTH = 1.6  # root mean square of the rows: most are longer than 1, and are clipped to it
_SHORT = 1e-100  # of squares that are taken to be zero


def marginals_move(domain: Domain) -> Move:
    """How far one record moves the differences and counts that `noisy_marginals` adds noise to, in l2.

    A record adds 1 or -1 to one difference a level of a tree, or 1 to one cell of a histogram. Where one record
    replaces another, their cells part at one level, where a difference changes by 2, and on every finer level two
    differences change by 1: the squared change is at most 4 + 2 (levels - 1) a tree, and 2 a histogram.

    >>> [round(length**2) for length in marginals_move(Domain.from_bounds([[0, 1]], n_bins=32))]
    [5, 12]
    """
    levels = [_levels(attribute) for attribute in domain.attributes]
    added = sum(depth or 1 for depth in levels)
    replaced = sum(2 * depth + 2 if depth else 2 for depth in levels)
    return Move(math.sqrt(added), math.sqrt(replaced))


def noisy_marginals(
    ledger: ClassLedger,
    domain: Domain,
    noise_multiplier: float,
    n_records: float,
    n_rows: int = 1,
    of: Callable[[NDArray], NDArray] | None = None,
) -> list[NDArray[np.float64]]:
    """Shares of the records of a class in the cells (size,) of each attribute; they add up to 1.

    Parameters
    ----------
    ledger : ClassLedger
        Of records that have a `total` (`helpers.erm.risk.Table`).
    domain : Domain
        Public.
    noise_multiplier : float
        Standard deviation of the noise over what a record more or less moves.
    n_records : float
        What is known of their number, above 0.
    n_rows : int
        The most rows of one person, if persons are to be protected and not rows.
    of : callable, optional
        Makes of records (n, d) those that the domain is about, each by itself.
    """
    levels, ends = [_levels(attribute) for attribute in domain.attributes], np.cumsum(domain.sizes[:-1])

    def told(records):
        cells = np.zeros(ends[-1]) + records.total(_cell_counts, domain, of)
        answers = []
        for counts, depth in zip(np.split(cells, ends[:-1]), levels, strict=True):
            # Left half less right half of every node, level by level from the root.
            answers += [level[::2] - level[1::2] for level in node_sums(counts)[1:]] if depth else [counts]
        return answers

    move = Move(*(n_rows * length for length in marginals_move(domain)))
    answers = list(ledger.gaussian(told, move, noise_multiplier))
    noisy = [[answers.pop(0) for _ in range(depth or 1)] for depth in levels]
    return denoised(domain, noisy, n_records, move.added * noise_multiplier)


def _cell_counts(domain: Domain, of: Callable[[NDArray], NDArray] | None, block: Block) -> NDArray:
    """Numbers of records in the cells of all attributes, one after the other."""
    X, weights = block.rows.base if of is None else of(block.rows.base), block.weights
    return np.concatenate([np.bincount(one.encode(X), weights, minlength=one.size) for one in domain.attributes])


class RankFeatures:
    """Additive features of records: polynomials of private mid-ranks, and centred indicators of levels.

    An ordered attribute gives u = 2 rank - 1, between the middles of its cells by linear interpolation, and the
    Legendre polynomials of degree 2 and 3 of u, which are centred and orthogonal under the marginal and weigh less; a
    level of a categorical attribute gives (indicator - share)/sqrt 2, which for two levels is the same as u. All that
    depends on the records is `cells`. The root mean square of a row's length under the marginals is 1.6.

    Parameters
    ----------
    domain : Domain
    cells : list of ndarray
        As from `noisy_marginals`.

    Attributes
    ----------
    tables : list of ndarray (size, columns)
        Values of the features in the cells of each attribute.
    places : list of ndarray (size,)
        Middles of the cells of an ordered attribute, or levels.

    >>> features = RankFeatures(Domain.from_bounds([[0, 4]], n_bins=4), [np.full(4, 0.25)])
    >>> features.rows(np.array([[0.5], [3.5]])).round(2).tolist()
    [[-1.94, 0.63, -0.13], [1.94, 0.63, 0.13]]
    """

    def __init__(self, domain: Domain, cells: list[NDArray[np.float64]]):
        self.domain, square = domain, 0.0
        self.tables: list[NDArray[np.float64]] = []
        self.places: list[NDArray] = []
        for attribute, shares in zip(domain.attributes, cells, strict=True):
            table, places = (np.eye(len(shares)) - shares) / math.sqrt(2), np.array(attribute.levels)
            if attribute.edges:
                edges = np.array(attribute.edges)
                places = edges[:-1] + np.diff(edges) / 2  # the sum of two edges can be more than a double holds
                ranks, basis = 2 * (np.cumsum(shares) - shares / 2) - 1, [np.ones(len(shares))]
                for degree in range(1, min(len(shares), len(_DEGREES) + 1)):
                    # With equal variance where the ranks are uniform: that of degree k is 1/(2 k + 1).
                    values = legval(ranks, np.eye(degree + 1)[degree]) * math.sqrt((2 * degree + 1) / 3)
                    for other in basis:
                        values = values - other * ((shares * other) @ values / max((shares * other) @ other, _SHORT))
                    basis.append(values)
                table = np.column_stack([np.zeros((len(shares), 0)), *map(np.multiply, _DEGREES, basis[1:])])
            self.tables.append(table)
            self.places.append(places)
            square += float(shares @ (table**2).sum(axis=1))
        # The square is 0 where each attribute has one cell with all records.
        factor = _LENGTH / math.sqrt(square) if square > _SHORT else 1.0
        self.tables = [factor * table for table in self.tables]

    @staticmethod
    def count(domain: Domain) -> int:
        """Number D of columns of `rows`."""
        return sum(min(a.size - 1, len(_DEGREES)) if a.edges else a.size for a in domain.attributes)

    def rows(self, X: NDArray) -> NDArray[np.float64]:
        """Rows (n, D) of records X (n, d)."""
        rows, start = np.empty((len(X), self.count(self.domain))), 0
        for attribute, table, places in zip(self.domain.attributes, self.tables, self.places, strict=True):
            stop = start + table.shape[1]
            if attribute.edges and stop > start:
                # Between which two middles of cells a value lies is looked up once for all of its columns.
                at = np.interp(X[:, attribute.columns[0]].astype(float), places, np.arange(len(places)))
                left = np.minimum(at.astype(np.intp), max(len(places) - 2, 0))
                steps = np.diff(table, axis=0)
                rows[:, start:stop] = table[left] + (at - left)[:, None] * steps[left]
            elif not attribute.edges:
                rows[:, start:stop] = table[attribute.encode(X)]
            start = stop
        return rows


def _levels(attribute: Attribute) -> int:
    """Levels of differences of its tree, padded to a power of two; 0 of an attribute that has a histogram."""
    return (attribute.size - 1).bit_length() if attribute.edges and attribute.size > _FEW else 0


def node_sums(table: NDArray) -> list[NDArray[np.float64]]:
    """Sums over the nodes of every level, from the root to the cells."""
    padded = np.zeros(1 << (len(table) - 1).bit_length())
    padded[: len(table)] = table
    sums = [padded]
    while len(sums[0]) > 1:
        sums.insert(0, sums[0].reshape(-1, 2).sum(axis=1))
    return sums


def denoised(
    domain: Domain, noisy: list[list[NDArray]], n_records: float, noise_scale: float
) -> list[NDArray[np.float64]]:
    """Shares of the cells from noisy differences and noisy histograms."""
    cells, nodes, flat = {}, {}, {}
    for j, attribute in enumerate(domain.attributes):
        if _levels(attribute):
            nodes[j] = np.array([n_records])
        else:
            flat[j] = np.full(attribute.size, n_records / attribute.size)
    kept = _shrunk({j: noisy[j][0] - even for j, even in flat.items()}, flat, noise_scale)
    for j, even in flat.items():
        counts = np.maximum(even + kept[j], 0.0)
        cells[j] = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    widths = {j: node_sums(np.ones(domain.attributes[j].size)) for j in nodes}
    for depth in range(max(map(len, noisy), default=0)):
        deep = {j: sizes for j, sizes in nodes.items() if depth < len(noisy[j])}
        halves = {j: widths[j][depth + 1].reshape(-1, 2).T for j in deep}
        evenly = {j: deep[j] * (left - right) / np.maximum(left + right, 1) for j, (left, right) in halves.items()}
        kept = _shrunk({j: noisy[j][depth] - evenly[j] for j in deep}, deep, noise_scale)
        for j, size in deep.items():
            # Neither half of a node holds fewer than no records.
            difference = np.clip(evenly[j] + kept[j], -size, size)
            difference = np.where(halves[j][1] == 0, size, difference)  # nothing is in the padding
            nodes[j] = np.column_stack([size + difference, size - difference]).ravel() / 2
    cells |= {j: sizes[: domain.attributes[j].size] / n_records for j, sizes in nodes.items()}
    return [cells[j] for j in range(len(noisy))]


def _shrunk(
    deviations: dict[int, NDArray], sizes: dict[int, NDArray], noise_scale: float
) -> dict[int, NDArray[np.float64]]:
    """Noisy deviations, each shrunk towards 0 by a normal prior whose standard deviation is a share of its size.

    The share is common to all of them and estimated: their squares less those of the noise, over the squared sizes.
    """
    signal = sum(float(d @ d) - len(d) * noise_scale**2 for d in deviations.values())
    square = sum(float(size @ size) for size in sizes.values())
    share = max(signal, 0.0) / square if square > 0 else 0.0
    return {j: d * (share * sizes[j] ** 2 / (share * sizes[j] ** 2 + noise_scale**2)) for j, d in deviations.items()}
