"""MST: a tree of noisy pairs of attributes, chosen by how far each pair is from independence.

Single attributes are measured first; a spanning tree of pairs is chosen, edge by edge, by the exponential mechanism;
then its pairs are measured. The distribution is the one on this tree that is nearest to all answers, found by mirror
descent with exact inference (sums along the tree). The label is the root, so that records with a given label are drawn
exactly.
"""

from collections.abc import Sequence

import numpy as np
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray

from helpers.privacy import REPLACE_ONE
from helpers.synthesis.base import Fitted, ZcdpSynthesizer
from helpers.synthesis.curator import Attributes, Curator, Measurement
from helpers.synthesis.privbayes import BayesianNetwork, Edge, conditional_table

_STEPS = 200  # of mirror descent
_FIRST_STEP = 2.0  # of mirror descent; it is halved where it is too long


class MST(ZcdpSynthesizer):
    """A spanning tree of noisy pairs of attributes; (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta, domain, classes, n_bins, random_state
        As in `GEM`.
    workload : {"label", "all"}
        Which pairs may be edges. "all": as published; a rare label hangs on few attributes then, and the records of its
        class differ from others in little else. "label": only those with the label, which is the tree of naive Bayes.
    neighbouring : NeighboringRelation
        What neighbouring data sets are. `REPLACE_ONE`: the number of records is public. `ADD_REMOVE`: it is measured.

    Attributes
    ----------
    model_ : BayesianNetwork
    measurements_, domain_, classes_, n_records_, guarantee_
        As in `GEM`.

    Raises
    ------
    ValueError
        As `GEM`.

    Notes
    -----
    A third of the budget (in zCDP) each for the single attributes, the choices and the pairs; where no choice is left,
    its part goes to the pairs. How many choices are left depends on those before, so the guarantee is that of the whole
    budget, which is never exceeded (a privacy filter: Feldman and Zrnic 2021).

    With the label in every pair, or with a single attribute beside it, there is no choice at all: the number of answers
    is public and all noise is Gaussian. Together they are then one Gaussian mechanism, whose exact curve affords some
    18 % more than zCDP at epsilon 1.

    Proof: as `AIM`; without choices, Dong, Roth and Su 2022, Corollary 3.3, and Balle and Wang 2018.

    Source: McKenna, Miklau and Sheldon 2021, Algorithm 1; inference: McKenna, Sheldon and Miklau 2019, Algorithm 1.

    >>> from helpers.data.domain import Domain
    >>> X, y = np.repeat([[0.2], [0.8]], 500, axis=0), np.repeat([0, 1], 500)
    >>> model = MST(1.0, domain=Domain.from_bounds([[0, 1]], n_bins=2), random_state=0).fit(X, y)
    >>> made, _ = model.sample(1000, label=1, random_state=0)
    >>> round(float((made > 0.5).mean()), 1), str(model.guarantee_)
    (1.0, '(1, 1e-05)-DP, replace-one')
    """

    k = 2
    _source = "MST (McKenna, Miklau and Sheldon 2021)"

    def _fit_model(self, curator: Curator, sizes: tuple[int, ...], budget: float) -> Fitted:
        third = budget / 3
        # Under add/remove the number of records is one more answer.
        each = third / (len(sizes) if self.neighbouring is REPLACE_ONE else len(sizes) + 1)
        n_records = curator.total(each)
        singles = [curator.measure((j,), each) for j in range(len(sizes))]
        shares = [conditional_table(measured.counts) for measured in singles]
        part_of = list(range(len(sizes)))  # of the forest so far, by attribute
        edges: list[Attributes] = []
        left, candidates = budget - third, self._workload(len(sizes))
        while len(candidates) > len(set(part_of)) - 1:  # not all of them are needed
            expected = [n_records * np.outer(shares[i], shares[j]) for i, j in candidates]
            # A tree has one edge less than it has attributes, so the third is cut into that many parts.
            i, j = candidates[curator.choose_farthest(candidates, expected, third / (len(sizes) - 1))]
            edges.append((i, j))
            left -= third / (len(sizes) - 1)
            # The two trees that the edge joins become one; an edge inside it would close a circle.
            part_of = [part_of[i] if part == part_of[j] else part for part in part_of]
            candidates = [(a, b) for a, b in candidates if part_of[a] != part_of[b]]
        edges += candidates
        pairs = [curator.measure(edge, left / len(edges)) for edge in edges]
        network = _rooted(edges, len(sizes) - 1)
        tables = fit_tree(network, [*singles, *pairs], n_records, _STEPS)
        model = BayesianNetwork(network, tables)
        return {"model_": model, "n_records_": n_records, "measurements_": [*singles, *pairs]}

    def _makes_choices(self, n_attributes: int) -> bool:
        return len(self._workload(n_attributes)) > n_attributes - 1  # more pairs than a tree has edges

    def _bound(self, n_attributes: int, total: float) -> DpEvent | None:
        # Without choices the tree and all prices are known beforehand, and the bill is the same for all answers.
        return super()._bound(n_attributes, total) if self._makes_choices(n_attributes) else None


def fit_tree(
    network: Sequence[Edge], measurements: Sequence[Measurement], n_records: float, n_steps: int
) -> list[NDArray[np.float64]]:
    """Conditional tables of the distribution on a tree that is nearest to noisy counts.

    Parameters
    ----------
    network : sequence of pairs (attribute, parents)
        At most one parent each, every parent before its children.
    measurements : sequence of Measurement
        Of all single attributes and all edges, each once.
    n_records : float
    n_steps : int
        Of mirror descent; 0 leaves all tables uniform.

    Returns
    -------
    list of arrays (size,) for the root and (size of the parent, size) for the others
        In the order of `network`; rows add up to 1.

    Notes
    -----
    It minimises the squared errors of all marginals, each divided by its noise's variance.

    >>> counts = {(0,): np.array([6.0, 2.0]), (1,): np.array([4.0, 4.0]), (0, 1): np.array([[4.0, 2], [0, 2]])}
    >>> answers = [Measurement(attributes, noisy, 1.0) for attributes, noisy in counts.items()]
    >>> [table.round(2).tolist() for table in fit_tree([(0, ()), (1, (0,))], answers, 8.0, 500)]
    [[0.75, 0.25], [[0.67, 0.33], [0.0, 1.0]]]
    """
    least = min(measured.scale for measured in measurements)
    # Weights are inverse variances, relative to the most exact answer.
    targets = [(m.attributes, m.counts / n_records, (least / m.scale) ** 2) for m in measurements]
    sizes = {m.attributes[0]: len(m.counts) for m in measurements}
    logits = [np.zeros([sizes[j] for j in (*parents, child)]) for child, parents in network]
    tables, marginals = _law(network, logits)

    def loss_of(marginals):
        return sum(weight * np.sum((marginals[attributes] - share) ** 2) for attributes, share, weight in targets) / 2

    loss, step = loss_of(marginals), _FIRST_STEP
    for _ in range(n_steps):
        slopes = {at: weight * (marginals[at] - share) for at, share, weight in targets}
        # Logits of an attribute given its parent move by the slopes at its own marginal and at the pair's.
        either_way = slopes | {at[::-1]: slope.T for at, slope in slopes.items()}
        moved = [
            part - step * sum(either_way[at] for at in {(child,), (*parents, child)})
            for (child, parents), part in zip(network, logits, strict=True)
        ]
        next_tables, after = _law(network, moved)
        expected = sum(np.sum(slope * (marginals[at] - after[at])) for at, slope in slopes.items())
        # A step is kept if the loss falls by half of what the slopes promise; steps grow a little after each success.
        if loss - (lower := loss_of(after)) >= expected / 2:
            logits, tables, marginals, loss = moved, next_tables, after, lower
            step *= 1.1
        else:
            step /= 2
    return tables


def _law(network: Sequence[Edge], logits: Sequence[NDArray]) -> tuple[list[NDArray], dict[Attributes, NDArray]]:
    """Tables of each attribute given its parent; marginals of every attribute, and of every edge in either order."""
    into = {child: 0.0 for child, _ in network}
    tables = []
    for (child, parents), part in reversed(list(zip(network, logits, strict=True))):
        # From the leaves to the root: each passes on what it sums up to.
        whole = part + into[child]
        # Sums of exponentials in logarithms, so that none overflows.
        highest = whole.max(axis=-1, keepdims=True)
        table = np.exp(whole - highest)
        sums = table.sum(axis=-1, keepdims=True)
        tables.append(table / sums)
        for parent in parents:
            into[parent] = into[parent] + (highest + np.log(sums))[:, 0]
    tables.reverse()
    found: dict[Attributes, NDArray] = {}
    for (child, parents), table in zip(network, tables, strict=True):
        for parent in parents:
            pair = found[parent,][:, None] * table
            found |= {(parent, child): pair, (child, parent): pair.T}
            table = pair.sum(axis=0)
        found[child,] = table
    return tables, found


def _rooted(edges: Sequence[Attributes], root: int) -> tuple[Edge, ...]:
    """The tree as attributes with their parents, from the root on."""
    network: list[Edge] = [(root, ())]
    for parent, _ in network:  # grows while it is read
        # i + j - parent is the other end of an edge.
        near = sorted(i + j - parent for i, j in edges if parent in (i, j))
        network += [(child, (parent,)) for child in near if child not in {placed for placed, _ in network}]
    return tuple(network)
