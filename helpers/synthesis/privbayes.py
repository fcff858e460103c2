"""PrivBayes: a Bayesian network chosen by noisy mutual information, with noisy tables; pure epsilon-DP, replace-one.

The label is the root, so that records with a given label are drawn exactly. The sensitivity of mutual information
depends on the relation and on the unit: here one record is replaced among a public number n, and logarithms are
natural. (Mutual information divided by an entropy has no small sensitivity: a rare class makes the divisor small.)
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from helpers.synthesis.base import Fitted, Synthesizer
from helpers.synthesis.curator import LARGEST_MARGINAL, Attributes, Curator
from helpers.validation import check_integer, integer

_STRUCTURE_SHARE = 0.3  # of the budget, for the choice of parents
_USEFULNESS = 4.0  # as published: a table's mean count is at least four times the scale of its noise

Edge = tuple[int, Attributes]
"""An attribute and its parents."""


def mutual_information(counts: ArrayLike) -> float:
    """Mutual information, in nats, between the last axis of a table of counts and all others together.

    >>> round(mutual_information([[2, 0], [0, 2]]), 4)
    0.6931
    """
    counts = np.asarray(counts, dtype=float)
    table = counts.reshape(-1, counts.shape[-1])
    shares = table / max(table.sum(), 1.0)  # all of them 0 where there is no record
    information = entr(shares.sum(axis=0)).sum() + entr(shares.sum(axis=1)).sum() - entr(shares).sum()
    return max(float(information), 0.0)


def mutual_information_sensitivity(n: int, *, binary: bool = False) -> float:
    """Largest change of `mutual_information`, in nats, when one of n records is replaced.

    Parameters
    ----------
    n : int
        At least 1.
    binary : bool
        One of the two sides has two values only.

    Raises
    ------
    ValueError
        `n` is out of range.

    Source: Zhang, Cormode, Procopiuc, Srivastava and Xiao 2017, Section 4.2, in nats instead of bits.

    >>> round(mutual_information_sensitivity(1000), 4), round(mutual_information_sensitivity(1000, binary=True), 4)
    (0.0144, 0.0079)
    """
    n = check_integer("n", n, low=1)
    if n == 1:
        return 0.0  # one record has no mutual information, whatever it is
    if binary:
        return math.log(n) / n + (n - 1) / n * math.log(n / (n - 1))
    return 2 / n * math.log((n + 1) / 2) + (n - 1) / n * math.log((n + 1) / (n - 1))


class BayesianNetwork(NamedTuple):
    """A distribution over codes: each attribute given its parents.

    Attributes
    ----------
    edges : tuple of pairs (attribute, parents)
        In the order of sampling; the label, whose position is the last, comes first.
    tables : list of arrays (size of each parent, ..., size of the attribute)
        Conditional probabilities, one table for each of `edges`; they add up to 1 along the last axis.
    """

    edges: tuple[Edge, ...]
    tables: list[NDArray[np.float64]]

    def sample(self, n: int, rng: np.random.Generator, given: Mapping[int, int]) -> NDArray[np.intp]:
        """Codes (n, attributes); exact where the root alone is `given`.

        >>> network = BayesianNetwork(((1, ()), (0, (1,))), [np.array([0.5, 0.5]), np.eye(2)])
        >>> network.sample(2, np.random.default_rng(0), {1: 0}).tolist()
        [[0, 0], [0, 0]]
        """
        codes = np.empty((n, len(self.edges)), dtype=np.intp)
        for (child, parents), table in zip(self.edges, self.tables, strict=True):
            if child in given:
                codes[:, child] = given[child]
            else:
                # Inverse distribution function, with the row of the table that the parents' codes name.
                steps = np.cumsum(table, axis=-1)[tuple(codes[:, j] for j in parents)][..., :-1]
                codes[:, child] = (rng.uniform(size=(n, 1)) >= steps).sum(axis=1)
        return codes


class PrivBayes(Synthesizer):
    """A Bayesian network with noisy structure and noisy tables; epsilon-DP under replace-one.

    Parameters
    ----------
    epsilon : float
        Total budget, > 0.
    degree : int
        Most parents of an attribute.
    domain, classes, n_bins, random_state
        As in `GEM`, with a share of epsilon.

    Attributes
    ----------
    model_ : BayesianNetwork
    domain_ : Domain; classes_ : ndarray; guarantee_ : helpers.privacy.Guarantee

    Raises
    ------
    ValueError
        From `fit`: a parameter out of range, another number of columns than the domain has, a category or a label that
        it does not have.

    Notes
    -----
    The choice of each further attribute with its parents, among all sets of parents that cannot grow, is an exponential
    mechanism; all choices get the same part of the structure's budget, and one without alternatives, or where no parent
    fits, costs nothing. Three tenths of the budget are for choices; the tables get the rest, and what no choice needed.
    A table's number of cells is limited so that its mean count is at least four times the scale of its noise. Tables
    that are part of another are summed out of it instead of measured.

    Proof: in the literature (basic composition; the sensitivity of mutual information); counts are enumerated in
    `tests/test_synthesis_curator.py`.

    Source: Zhang, Cormode, Procopiuc, Srivastava and Xiao 2017, Sections 3 to 5.

    >>> from helpers.data.domain import Domain
    >>> X, y = np.repeat([[0.2], [0.8]], 500, axis=0), np.repeat([0, 1], 500)
    >>> model = PrivBayes(1.0, domain=Domain.from_bounds([[0, 1]], n_bins=2), random_state=0).fit(X, y)
    >>> made, _ = model.sample(1000, label=1, random_state=0)
    >>> round(float((made > 0.5).mean()), 1), str(model.guarantee_)
    (1.0, '(1, 0)-DP, replace-one')
    """

    _pure = True
    _source = "PrivBayes (Zhang et al. 2017), by basic composition"
    _allowed: ClassVar[dict] = {"degree": integer(low=1)}

    def __init__(self, epsilon=1.0, degree=2, **shared):
        super().__init__(epsilon=epsilon, **shared)
        self.degree = degree

    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        for_structure = _STRUCTURE_SHARE * budget
        n = curator.ledger.n_records()
        # With u = 4: a table of c cells has the mean count n / c, and noise of scale 2 m / budget if m tables share the
        # budget. So n / c >= u * 2 m / budget bounds c.
        limit = n * (budget - for_structure) / (2 * len(sizes) * _USEFULNESS)
        network, spent = self._choose_network(curator, sizes, for_structure, n, min(limit, LARGEST_MARGINAL))
        needed = [tuple(sorted((child, *parents))) for child, parents in network]
        # A table inside another one is summed out of it, which costs nothing.
        largest = [one for one in dict.fromkeys(needed) if not any(set(one) < set(other) for other in needed)]
        noisy = [curator.measure(attributes, (budget - spent) / len(largest)) for attributes in largest]
        tables = []
        for child, parents in network:
            wanted = (*parents, child)
            source = next(measured for measured in noisy if set(wanted) <= set(measured.attributes))
            tables.append(conditional_table(_marginal(source.counts, source.attributes, wanted)))
        return {"model_": BayesianNetwork(network, tables)}

    def _choose_network(
        self, curator: Curator, sizes: tuple[int, ...], budget: float, n: int, limit: float
    ) -> tuple[tuple[Edge, ...], float]:
        """The network, and what its choices have cost."""
        label = len(sizes) - 1
        network: list[Edge] = [(label, ())]
        spent = 0.0
        while len(network) < len(sizes):
            chosen = sorted(child for child, _ in network)
            edges = [
                (child, parents)
                for child in range(label)
                if child not in chosen
                for parents in _parent_sets(child, chosen, sizes, self.degree, limit)
            ]
            # Nothing to choose: a choice would cost budget and say nothing.
            if len(edges) == 1 or not any(parents for _, parents in edges):
                network.append(edges[0])
                continue

            def scores(counts, edges=edges):
                tables = [(tuple(sorted((child, *parents))), (*parents, child)) for child, parents in edges]
                return np.array([mutual_information(_marginal(counts(at), at, wanted)) for at, wanted in tables])

            # The smaller sensitivity holds where one side has two values, and must hold for every candidate.
            binary = all(min(sizes[c], math.prod(sizes[j] for j in parents)) <= 2 for c, parents in edges)
            sensitivity = mutual_information_sensitivity(n, binary=binary)
            # Nothing can change where there is one record; any sensitivity will do then.
            choice = curator.choose(scores, sensitivity or 1.0, budget / label)
            network.append(edges[choice])
            spent += budget / label
        return tuple(network), spent


def _parent_sets(child: int, chosen: list[int], sizes: tuple[int, ...], degree: int, limit: float) -> list[Attributes]:
    """Sets of parents to which none can be added: the degree forbids it, or a table of at most `limit` cells does."""

    def maximal(parents):
        cells = sizes[child] * math.prod(sizes[j] for j in parents)
        others = [sizes[j] for j in chosen if j not in parents]
        full = len(parents) == degree or not others or cells * min(others) > limit
        return full and cells <= limit

    orders = range(min(degree, len(chosen)) + 1)
    return [parents for order in orders for parents in combinations(chosen, order) if maximal(parents)] or [()]


def _marginal(counts: NDArray, attributes: Attributes, wanted: Attributes) -> NDArray:
    """Counts of the wanted attributes, in their order, from a marginal that has them and perhaps others."""
    return np.einsum(counts, range(counts.ndim), [attributes.index(j) for j in wanted])


def conditional_table(noisy: NDArray) -> NDArray:
    """Probabilities along the last axis; where nothing positive is left, those of all rows together, or equal ones."""
    positive = np.maximum(noisy, 0.0)
    whole = positive.reshape(-1, positive.shape[-1]).sum(axis=0)
    whole = whole / whole.sum() if whole.sum() > 0 else np.full(len(whole), 1 / len(whole))
    sums = positive.sum(axis=-1, keepdims=True)
    return np.where(sums > 0, positive / np.where(sums > 0, sums, 1.0), whole)
