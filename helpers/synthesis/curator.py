"""Counting questions that synthesisers ask about coded records, and what they may cost.

A `Curator` measures marginals (tables of counts over some attributes) with noise, and chooses one of several candidates
by the exponential mechanism. All its budgets are of one kind, either in zCDP, with Gaussian noise, or in pure epsilon,
with Laplace noise. Records, noise and bill are the `Ledger`'s.
What is asked, and what is made of the answers, is left to the synthesisers.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger

Attributes = tuple[int, ...]
"""Positions of attributes, increasing; the label is the last of all."""
Counter = Callable[[Attributes], NDArray[np.float64]]
"""A function from attributes to the counts of their marginal."""

LARGEST_MARGINAL = 1 << 22
"""Cells that one marginal may have: 32 MiB as doubles."""
LARGEST_WORKLOAD = 1 << 26
"""Cells that all marginals of a workload together may have: 512 MiB as doubles."""


class Measurement(NamedTuple):
    """A noisy marginal: `counts` has one axis an attribute, and noise of standard deviation `scale` in each cell."""

    attributes: Attributes
    counts: NDArray[np.float64]
    scale: float


class Curator:
    """Counting questions about coded records, with noise; the ledger holds the records and keeps the bill.

    Parameters
    ----------
    ledger : Ledger
        Of codes (n, m), as `Domain.encode` gives them.
    sizes : sequence of m int
        Number of codes of each attribute, public.
    pure : bool
        Whether budgets are parts of a pure epsilon, else of rho in zero-concentrated privacy.

    Notes
    -----
    Sensitivities, in counts. A record is in one cell of a marginal, so adding it changes one cell by 1, and replacing
    it two cells by 1 each: l1 1 or 2, l2 1 or sqrt(2), largest cell 1 under either relation.
    """

    def __init__(self, ledger: Ledger, sizes: Sequence[int], pure: bool = False):
        self.ledger, self._pure = ledger, pure
        self._counts = ledger.view(lambda codes: _counter(codes, sizes))

    def measure(self, attributes: Attributes, budget: float) -> Measurement:
        """A marginal with Gaussian noise of variance (1 or 2) / (2 budget), or Laplace noise of scale (1 or 2)/budget.

        Source: Bun and Steinke 2016, Proposition 1.6; Dwork, McSherry, Nissim and Smith 2006, Proposition 1.
        """
        if self._pure:
            noisy = self._counts.laplace(lambda counts: counts(attributes), float(self._moved_cells), budget)
            return Measurement(attributes, noisy, math.sqrt(2) * self._moved_cells / budget)
        # Gaussian noise of multiplier m costs rho = 1 / (2 m^2); two cells that move by 1 each are a move of sqrt(2) in
        # l2.
        multiplier, moved = 1 / math.sqrt(2 * budget), math.sqrt(self._moved_cells)
        noisy = self._counts.gaussian(lambda counts: counts(attributes), moved, multiplier)
        return Measurement(attributes, noisy, moved * multiplier)

    def total(self, budget: float) -> float:
        """Number of records: public under replace-one, else measured; at least 1."""
        if self.ledger.neighbouring is REPLACE_ONE:
            return float(self.ledger.n_records())
        # The marginal of no attributes has one cell, which holds all records.
        return max(float(self.measure((), budget).counts), 1.0)

    def choose(self, scores: Callable[[Counter], NDArray], sensitivity: float, budget: float) -> int:
        """Position of a large score, drawn by the exponential mechanism.

        `scores` makes them from a function that gives the exact counts of a marginal; one record moves each by at most
        `sensitivity`.
        """
        # The unit of the budget is that of the noise: pure epsilon, or rho in zero-concentrated privacy.
        epsilon, rho = (budget, None) if self._pure else (None, budget)
        return self._counts.choose(scores, sensitivity, epsilon=epsilon, rho=rho)

    def choose_worst(self, candidates: Sequence[Attributes], expected: Sequence[NDArray], budget: float) -> int:
        """Position of a candidate whose counts are far from the expected ones in their worst cell.

        The score is the largest difference of a cell, which one record moves by at most 1.
        """

        def scores(counts):
            return np.array([np.abs(counts(a) - e).max() for a, e in zip(candidates, expected, strict=True)])

        return self.choose(scores, 1.0, budget)

    def choose_farthest(
        self, candidates: Sequence[Attributes], expected: Sequence[NDArray], budget: float, weights=1.0, penalties=0.0
    ) -> int:
        """Position of a candidate with a large weight * (l1 distance of counts and expected ones - penalty).

        Weights and penalties are numbers, or arrays of one a candidate. One record moves a score by at most the largest
        weight, times 2 under replace-one.
        """

        def scores(counts):
            distances = [np.abs(counts(a) - e).sum() for a, e in zip(candidates, expected, strict=True)]
            return weights * (np.array(distances) - penalties)

        return self.choose(scores, self._moved_cells * float(np.max(weights)), budget)

    @property
    def _moved_cells(self) -> int:
        """Cells of a marginal that one record moves by 1: the one it leaves and the one it enters."""
        return 1 if self.ledger.neighbouring is ADD_REMOVE else 2


def _counter(codes: NDArray, sizes: Sequence[int]) -> Counter:
    """Exact marginals of coded records (n, m), each counted once."""

    # Exact counts are kept inside the private view, since choices ask for the same marginals again and again.
    @cache
    def counts(attributes):
        shape = tuple(sizes[j] for j in attributes)
        # Without attributes all records are in the one cell 0; else a cell's number is that of its codes in C order.
        cells = np.zeros(len(codes), dtype=np.intp)
        if attributes:
            cells = np.ravel_multi_index(codes[:, list(attributes)].T, shape)
        return np.bincount(cells, minlength=math.prod(shape)).astype(float).reshape(shape)

    return counts


def check_cells(workload: Sequence[Attributes], sizes: Sequence[int], parameter: str) -> None:
    """Refuse marginals that no memory holds, before anything is counted.

    Raises
    ------
    ValueError
        With the number of cells and of those allowed, and the parameter that decides about them.
    """
    cells = [math.prod(sizes[j] for j in attributes) for attributes in workload]
    if max(cells) > LARGEST_MARGINAL:
        raise ValueError(
            f"{parameter} must leave marginals of at most {LARGEST_MARGINAL:,} cells, got one of {max(cells):,}"
        )
    if sum(cells) > LARGEST_WORKLOAD:
        raise ValueError(
            f"{parameter} must leave a workload of at most {LARGEST_WORKLOAD:,} cells, "
            f"got {sum(cells):,} in {len(cells):,} marginals"
        )
