"""Private boosted trees, for the comparison on development sets (`benchmarks.variants`).

Two ways to choose where a tree splits: from the records, by the exponential mechanism (Li et al. 2020), or at random
without them (Maddock et al. 2022, who found that it does no worse). Both start from the noisy share of the minority and
split between bins of about equal private weight, which the first release of `PrivateMomentClassifier` gives; in their
leaves are Newton steps, as sums of slopes and of curvatures with Gaussian noise.

Learnt splits have a budget of zero-concentrated privacy, the largest rho with rho + 2 sqrt(rho log(1/delta)) <= epsilon
(Bun and Steinke 2016). The first release and the leaves of parameter mu are mu^2/2 of it, and a choice by the
exponential mechanism of epsilon is epsilon^2/8 (Cesar and Rogers 2021). The gain of a split is the sum over its sides
of (sum of the residuals)^2/(records + 1). One residual more, at most 1 in size, changes one side by at most 3 (Li et
al. 2020, Lemma 1), and it is in one node of a level only.

The numbers of trees and of levels in `variants` are among the best of eight each, on these sets at epsilon 1.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit

from benchmarks.classifiers import Outcome, Split
from benchmarks.literature import by_moments, decided, first_release, moved_by, private_bins
from helpers.privacy import gaussian_epsilon

_RATE = 0.3
_LEAST = 1 - math.sqrt(2)  # of a residual: then another record in one leaf moves it no further than one in another leaf
_SPLITS = 0.5  # of the budget of a tree, where splits are learnt
GAIN = 3.0
"""Most that one residual more or less changes a gain."""


def learnt_trees(count: int, depth: int) -> Callable:
    """Gradient boosting of trees that are learnt (Li et al. 2020), all from all records."""

    def fit(split: Split, epsilon: float, relation) -> Outcome:
        mu = concentrated_mu(epsilon, split.delta)
        ranks = first_release(split, gaussian_epsilon(split.delta, mu), relation, "learnt trees")
        choice, leaf_mu = shared_out(ranks.mu, count, depth)
        rate = choice / (2 * GAIN * moved_by(relation))

        def choose(bins, sizes, residuals, nodes, width):
            parts = zip(bins, sizes, strict=True)
            gains = np.concatenate([gains_of_splits(*part, residuals, nodes, width) for part in parts], axis=1)
            return (rate * gains + ranks.rng.gumbel(size=gains.shape)).argmax(axis=1)

        return _boosted(ranks, split, count, depth, choose, _leaf_sensitivity(relation) / leaf_mu)

    return fit


def concentrated_mu(epsilon: float, delta: float) -> float:
    """The parameter of a Gaussian mechanism that is the whole of a budget of zero-concentrated privacy."""
    root = math.sqrt(-math.log(delta))
    return math.sqrt(2) * (math.sqrt(root**2 + epsilon) - root)


def shared_out(mu: float, count: int, depth: int) -> tuple[float, float]:
    """Epsilon of a level of choices, and the parameter of the leaves of a tree."""
    each = mu / math.sqrt(count)
    return 2 * each * math.sqrt(_SPLITS / depth), each * math.sqrt(1 - _SPLITS)


def random_trees(count: int, depth: int, after_moments: float = 0.0) -> Callable:
    """Newton boosting of trees whose splits are drawn without the records (Maddock et al. 2022).

    They can start from what the moment classifier says for its share of the second release.
    """

    def fit(split: Split, epsilon: float, relation) -> Outcome:
        ranks, start = first_release(split, epsilon, relation, "random trees"), (0.0, 0.0)
        if after_moments:
            by_moments(ranks, relation, part=after_moments)
            start = tuple(
                rows @ ranks.model.coef_[0] + ranks.model.intercept_[0] for rows in (ranks.rows, ranks.tested)
            )

        def choose(bins, sizes, residuals, nodes, width):
            return ranks.rng.integers(sum(sizes) - len(sizes), size=width)

        spread = _leaf_sensitivity(relation) * math.sqrt(count / (1 - after_moments)) / ranks.mu
        return _boosted(ranks, split, count, depth, choose, spread, start)

    return fit


def _leaf_sensitivity(relation) -> float:
    """How far a record moves slopes, from `_LEAST` to 1, and curvatures, at most 1/4, of one leaf or of two."""
    return math.sqrt(moved_by(relation) * (1 + 1 / 16))


def _boosted(ranks, split, count, depth, choose, spread, start=(0.0, 0.0)) -> Outcome:
    """`count` trees, each fitted to what those before it leave; a split is the last bin of its lower side."""
    bins, tested, weights = private_bins(ranks, split)
    sizes = [len(weight) for weight in weights]
    splits = [(j, cut) for j, size in enumerate(sizes) for cut in range(size - 1)]
    offset = logit(ranks.share)
    scores, new = (np.full(len(X), offset) + part for X, part in zip((split.X, split.X_test), start, strict=True))
    for _ in range(count if splits else 0):
        residuals, bends = np.maximum(split.y - expit(scores), _LEAST), expit(scores) * expit(-scores)
        nodes, of_new = np.zeros(len(scores), int), np.zeros(len(new), int)
        for level in range(depth):
            chosen = [splits[k] for k in choose(bins, sizes, residuals, nodes, 2**level)]
            nodes, of_new = _children(bins, nodes, chosen), _children(tested, of_new, chosen)
        sums = (np.bincount(nodes, part, 2**depth) for part in (residuals, bends))
        slopes, curvatures = (part + ranks.rng.normal(0, spread, 2**depth) for part in sums)
        heights = _RATE * slopes / np.maximum(curvatures, spread)
        scores, new = scores + heights[nodes], new + heights[of_new]
    return decided(new - offset, ranks.share)


def _children(bins, nodes, chosen) -> np.ndarray:
    """The node of every record a level further down."""
    below = np.zeros(len(nodes), int)
    for node, (j, cut) in enumerate(chosen):
        here = nodes == node
        below[here] = 2 * node + (bins[j][here] > cut)
    return below


def gains_of_splits(codes, size, residuals, nodes, width) -> np.ndarray:
    """Gains (width, size - 1) of the splits of an attribute in every node."""
    at = nodes * size + codes
    sums, counts = (
        np.bincount(at, part, width * size).reshape(width, size).cumsum(axis=1) for part in (residuals, None)
    )
    lower, upper = sums[:, :-1], sums[:, -1:] - sums[:, :-1]
    return lower**2 / (counts[:, :-1] + 1) + upper**2 / (counts[:, -1:] - counts[:, :-1] + 1)
