"""Counting questions that synthesisers ask about coded records, and what they may cost.

A `Curator` measures marginals (tables of counts over some attributes) with noise, and chooses one of several candidates
by the exponential mechanism. All its budgets are of one kind, either in zCDP, with Gaussian noise, or in pure epsilon,
with Laplace noise. Records, noise and bill are the `Ledger`'s.
What is asked, and what is made of the answers, is left to the synthesisers.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger

Attributes = tuple[int, ...]
"""Positions of attributes, increasing; the label is the last of all."""

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
        self._tables = ledger.view(lambda codes: _Tables(codes, tuple(sizes)))

    def measure(self, attributes: Attributes, budget: float) -> Measurement:
        """A marginal with Gaussian noise of variance (1 or 2) / (2 budget), or Laplace noise of scale (1 or 2)/budget.

        Source: Bun and Steinke 2016, Proposition 1.6; Dwork, McSherry, Nissim and Smith 2006, Proposition 1.
        """

        def counts(tables):
            return tables.counts(attributes)

        if self._pure:
            noisy = self._tables.laplace(counts, float(self._moved_cells), budget)
            return Measurement(attributes, noisy, math.sqrt(2) * self._moved_cells / budget)
        multiplier, moved = 1 / math.sqrt(2 * budget), math.sqrt(self._moved_cells)
        return Measurement(attributes, self._tables.gaussian(counts, moved, multiplier), moved * multiplier)

    def total(self, budget: float) -> float:
        """Number of records: public under replace-one, else measured; at least 1."""
        if self.ledger.neighbouring is REPLACE_ONE:
            return float(self.ledger.n_records())
        return max(float(self.measure((), budget).counts), 1.0)

    def choose(self, scores: Callable[[Callable], NDArray], sensitivity: float, budget: float) -> int:
        """Position of a large score, drawn by the exponential mechanism.

        `scores` makes them from a function that gives the exact counts of a marginal; one record moves each by at most
        `sensitivity`.
        """
        epsilon, rho = (budget, None) if self._pure else (None, budget)
        return self._tables.choose(lambda tables: scores(tables.counts), sensitivity, epsilon=epsilon, rho=rho)

    def choose_worst(self, candidates: Sequence[Attributes], expected: Sequence[NDArray], budget: float) -> int:
        """Position of a candidate whose counts are far from the expected ones in their worst cell.

        The score is the largest difference of a cell, which one record moves by at most 1.
        """

        def scores(counts):
            return np.array([np.abs(counts(a) - e).max() for a, e in zip(candidates, expected, strict=True)])

        return self.choose(scores, 1.0, budget)

    def choose_farthest(
        self,
        candidates: Sequence[Attributes],
        expected: Sequence[NDArray],
        weights: NDArray,
        penalties: NDArray,
        budget: float,
    ) -> int:
        """Position of a candidate with a large weight * (l1 distance of counts and expected ones - penalty).

        One record moves a score by at most the largest weight, times 2 under replace-one.
        """

        def scores(counts):
            distances = [np.abs(counts(a) - e).sum() for a, e in zip(candidates, expected, strict=True)]
            return weights * (distances - penalties)

        return self.choose(scores, self._moved_cells * float(max(weights)), budget)

    @property
    def _moved_cells(self) -> int:
        return 1 if self.ledger.neighbouring is ADD_REMOVE else 2


class _Tables:
    """Exact marginals of coded records, each counted once."""

    def __init__(self, codes: NDArray, sizes: tuple[int, ...]):
        self._codes, self._sizes = codes, sizes
        self._counted: dict[Attributes, NDArray] = {}

    def counts(self, attributes: Attributes) -> NDArray[np.float64]:
        if attributes not in self._counted:
            shape = tuple(self._sizes[j] for j in attributes)
            cells = np.zeros(len(self._codes), dtype=np.intp)
            if attributes:
                cells = np.ravel_multi_index(self._codes[:, list(attributes)].T, shape)
            counts = np.bincount(cells, minlength=math.prod(shape)).astype(float)
            self._counted[attributes] = counts.reshape(shape)
        return self._counted[attributes]


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
