"""Domains that are made from private records, with noise and a bill.

`noisy_domain` finds bins of about equal mass from noisy histograms. A domain that is known beforehand is better and
costs nothing: `helpers.data.domain`.
"""

import warnings
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.data.domain import Attribute, Domain
from helpers.privacy import Ledger
from helpers.synthesis.curator import Curator, Measurement

# Ends of the first histogram's cells: a fit sees the order of magnitude of numbers between 2^-30 and 2^40.
_MAGNITUDES = 2.0 ** np.arange(-30, 41)
_COARSE = np.concatenate([-_MAGNITUDES[::-1], [0.0], _MAGNITUDES])
_FINE = 256
# Standard deviations of noise above which a cell of the first histogram counts as occupied: Laplace noise is beyond in
# one of 280 columns.
_CLEAR = 7.0


def noisy_domain(
    ledger: Ledger, d: int, classes: Sequence[Hashable], *, n_bins: int, budget: float, pure: bool
) -> Domain:
    """A domain of real attributes whose bins hold about equally many records, from two noisy histograms a column.

    The first, over orders of magnitude, finds a range; the second, of 256 cells of one width in that range, is cut into
    bins of about equal noisy mass. Values outside the range are clipped to it afterwards.

    Parameters
    ----------
    ledger : Ledger
        Of records X (n, d), finite.
    d : int
    classes : sequence of labels
        Public.
    n_bins : int
        Largest number of bins of an attribute.
    budget : float
        Of both histograms of all columns.
    pure : bool
        Unit of the budget and kind of the noise, as in `Curator`.

    Warns
    -----
    UserWarning
        Names the columns in which no order of magnitude stood out from the noise: their range is [-1, 1] then.
    """

    def histograms(edges: Sequence[NDArray]) -> list[Measurement]:
        cells = [Attribute("cell", "real", (j,), tuple(ends.tolist())) for j, ends in enumerate(edges)]
        coded = ledger.view(lambda X: np.column_stack([cell.encode(X) for cell in cells]))
        curator = Curator(coded, [cell.size for cell in cells], pure)
        # There are two histograms of each of d columns, and every record is in all of them: each gets an equal part.
        return [curator.measure((j,), budget / (2 * d)) for j in range(d)]

    ranges = []
    for measured in histograms([_COARSE] * d):
        occupied = np.flatnonzero(measured.counts > _CLEAR * measured.scale)
        ranges.append(_COARSE[[occupied[0], occupied[-1] + 1]].tolist() if occupied.size else None)
    if unseen := [f"x{j + 1}" for j, found in enumerate(ranges) if found is None]:
        warnings.warn(
            f"all numbers of {', '.join(unseen)} drown in noise, so that [-1, 1] is taken for their range: "
            "declare a domain, or spend more on the bins",
            stacklevel=3,
        )
    fine = [np.linspace(low, high, _FINE + 1) for low, high in (found or (-1.0, 1.0) for found in ranges)]
    attributes = [
        Attribute(f"x{j + 1}", "real", (j,), _equal_mass(ends, measured.counts, n_bins))
        for j, (ends, measured) in enumerate(zip(fine, histograms(fine), strict=True))
    ]
    return Domain(attributes, classes, "bins from noisy histograms of the records")


def _equal_mass(ends: NDArray, counts: NDArray, n_bins: int) -> tuple[float, ...]:
    """Ends of at most n_bins bins between which the noisy counts grow by about the same."""
    # Noise can make the running sum fall; its running maximum is sorted, as the search below needs.
    below = np.concatenate([[0.0], np.maximum.accumulate(np.maximum(np.cumsum(counts), 0.0))])
    inner = np.searchsorted(below, below[-1] * np.arange(1, n_bins) / n_bins)
    return tuple(ends[np.unique([0, *inner, len(ends) - 1])].tolist())
