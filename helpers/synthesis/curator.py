"""The only thing that sees private records: it answers counting questions with noise and keeps the bill.

A `Curator` holds coded records, measures marginals (tables of counts over some attributes) with Gaussian or Laplace
noise, and chooses one of several candidates by the exponential mechanism. Every answer puts the event that was executed
into a `Ledger`, so that a guarantee is made from what was done and not from what was planned. What is asked, and what
is made of the answers, is left to the synthesisers.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import ZCDpEvent
from numpy.typing import NDArray

from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    Sensitivity,
    event_epsilon,
    exponential,
    laplace,
    to_grid,
)
from helpers.privacy.search import largest

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


class Ledger:
    """The events that were executed, in order."""

    def __init__(self):
        self.events: list[DpEvent] = []

    def event(self) -> DpEvent:
        """All of them as one; equal ones are counted.

        >>> ledger = Ledger()
        >>> ledger.events += [GaussianDpEvent(2.0), GaussianDpEvent(2.0)]
        >>> ledger.event()
        ComposedDpEvent(events=[SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.0), count=2)])
        """
        counted = Counter(self.events)
        return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in counted.items()])

    def rho(self) -> float:
        """What Gaussian and zero-concentrated events cost together, in zCDP.

        Source: Bun and Steinke 2016, Lemma 1.7 and Proposition 1.6.
        """
        return math.fsum(map(_rho, self.events))

    def epsilon(self) -> float:
        """What Laplace and pure events cost together, by basic composition."""
        return math.fsum(map(_epsilon, self.events))


def _rho(event: DpEvent) -> float:
    match event:
        case ZCDpEvent():
            return event.rho
        case GaussianDpEvent():
            return 0.5 / event.noise_multiplier**2
    raise TypeError(f"no zero-concentrated event: {event!r}")


def _epsilon(event: DpEvent) -> float:
    match event:
        case LaplaceDpEvent():
            return 1 / event.noise_multiplier
        case ApproximateDpEvent(delta=0.0):
            return event.epsilon
    raise TypeError(f"no pure event: {event!r}")


@lru_cache
def zcdp_budget(epsilon: float, delta: float) -> float:
    """Largest rho for which rho-zCDP is (epsilon, delta)-DP by the accountant that guarantees are made with.

    Source: Bun and Steinke 2016, through dp-accounting's Renyi accountant.

    >>> round(zcdp_budget(1.0, 1e-5), 4)
    0.0306
    """

    def affordable(rho):
        return rho == 0 or event_epsilon(ZCDpEvent(rho), delta, ADD_REMOVE, method="rdp") <= epsilon

    return largest(affordable, 0.0, epsilon)


class Curator:
    """Holds coded records (n, m) and answers about them; never kept on a fitted object.

    Parameters
    ----------
    codes : array (n, m) of int
        Private.
    sizes : sequence of m int
        Number of codes of each attribute, public.
    neighbouring : NeighboringRelation
        Under replace-one n is public.
    rng : numpy.random.Generator
        Source of the noise.
    ledger : Ledger

    Notes
    -----
    Sensitivities, in counts. A record is in one cell of a marginal, so adding it changes one cell by 1, and replacing
    it two cells by 1 each: l1 1 or 2, l2 1 or sqrt(2), largest cell 1 under either relation.
    """

    def __init__(
        self,
        codes: NDArray,
        sizes: Sequence[int],
        neighbouring: NeighboringRelation,
        rng: np.random.Generator,
        ledger: Ledger,
    ):
        self._codes = codes
        self._sizes = tuple(sizes)
        self._neighbouring = neighbouring
        self._rng = rng
        self._counted: dict[Attributes, NDArray] = {}
        self.ledger = ledger

    def measure(self, attributes: Attributes, rho: float) -> Measurement:
        """A marginal with Gaussian noise of variance (1 or 2) / (2 rho): rho-zCDP.

        Source: Bun and Steinke 2016, Proposition 1.6.
        """
        multiplier = 1 / math.sqrt(2 * rho)
        scale = multiplier * math.sqrt(self._moved_cells)
        counts = self._counts(attributes)
        noisy = to_grid(counts + self._rng.normal(scale=scale, size=counts.shape), scale)
        self.ledger.events.append(GaussianDpEvent(multiplier))
        return Measurement(attributes, noisy, scale)

    def measure_purely(self, attributes: Attributes, epsilon: float) -> Measurement:
        """A marginal with Laplace noise of scale (1 or 2) / epsilon: epsilon-DP."""
        change = Sensitivity(float(self._moved_cells), self._neighbouring, "l1")
        noisy, guarantee = laplace(self._counts(attributes), change, epsilon, self._rng)
        self.ledger.events.append(LaplaceDpEvent(1 / guarantee.epsilon))
        return Measurement(attributes, noisy, math.sqrt(2) * change.value / epsilon)

    def total(self, measure, budget: float) -> float:
        """Number of records: public under replace-one, else measured; at least 1."""
        if self._neighbouring is REPLACE_ONE:
            return float(len(self._codes))
        return max(float(measure((), budget).counts), 1.0)

    def choose_worst(self, candidates: Sequence[Attributes], expected: Sequence[NDArray], rho: float) -> int:
        """Position of a candidate whose counts are far from the expected ones in their worst cell: rho-zCDP.

        The score is the largest difference of a cell, which one record moves by at most 1.
        """
        scores = [np.abs(self._counts(a) - e).max() for a, e in zip(candidates, expected, strict=True)]
        return self._choose_zcdp(np.array(scores), 1.0, rho)

    def choose_farthest(
        self,
        candidates: Sequence[Attributes],
        expected: Sequence[NDArray],
        weights: NDArray,
        penalties: NDArray,
        rho: float,
    ) -> int:
        """Position of a candidate with a large weight * (l1 distance of counts and expected ones - penalty): rho-zCDP.

        One record moves a score by at most the largest weight, times 2 under replace-one.
        """
        distances = [np.abs(self._counts(a) - e).sum() for a, e in zip(candidates, expected, strict=True)]
        return self._choose_zcdp(weights * (distances - penalties), self._moved_cells * float(max(weights)), rho)

    def choose_purely(self, scores: NDArray, sensitivity: float, epsilon: float) -> int:
        """Position drawn with probability proportional to exp(epsilon score / (2 sensitivity)): epsilon-DP."""
        choice = exponential(scores, Sensitivity(sensitivity, self._neighbouring, "linf"), epsilon, self._rng)
        self.ledger.events.append(ApproximateDpEvent(epsilon, 0.0))
        return choice.value

    def exact_counts(self, attributes: Attributes) -> NDArray[np.float64]:
        """The marginal without noise, for scores of `choose_purely`; nothing else may be made of it."""
        return self._counts(attributes)

    def _choose_zcdp(self, scores: NDArray, sensitivity: float, rho: float) -> int:
        """The exponential mechanism at epsilon = sqrt(8 rho).

        It is epsilon^2/8-zCDP, not only epsilon^2/2, because its privacy loss has a range of epsilon: the logarithm of
        the odds of two outcomes moves by epsilon at most. Source: Cesar and Rogers 2021, Lemma 3.2.
        """
        change = Sensitivity(sensitivity, self._neighbouring, "linf")
        choice = exponential(scores, change, math.sqrt(8 * rho), self._rng)
        self.ledger.events.append(ZCDpEvent(rho))
        return choice.value

    @property
    def _moved_cells(self) -> int:
        return 1 if self._neighbouring is ADD_REMOVE else 2

    def _counts(self, attributes: Attributes) -> NDArray[np.float64]:
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
