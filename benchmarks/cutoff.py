"""One private cut-off for the scores of any private classifier, so that decisions of different models can be compared.

A tree of noisy counts says where the scores lie, a second histogram how many records of either class are in each of a
few cells between these places. The cut-off is the edge above which the share of the rare records that are there exceeds
that of the common ones by most, which is best for balanced accuracy. It is the same as to make the share of rare
records rise with the score (isotonic regression) and to cut where it exceeds that of all records.

Both counts are pure: the model's epsilon and theirs add up, and delta stays the model's.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from helpers.privacy import ADD_REMOVE, Ledger

SHARE = 0.2  # of epsilon, for all methods alike, with the other constants chosen on development sets with ours
_PLACES = 0.5  # of that, what the places of the scores cost
_LEVELS = 10  # of the tree: 1,024 cells of log-odds
_LARGEST = 10.0  # log-odds, to which scores are clipped
_RANKS = (0.5, 0.65, 0.75, 0.85, 0.92, 0.97)  # shares of the records below the edges


def log_odds(probabilities: NDArray) -> NDArray[np.float64]:
    """Scores for a cut-off: of probabilities in [0, 1], a bounded number each."""
    least = 1 / (1 + math.exp(_LARGEST))
    return logit(np.clip(probabilities, least, 1 - least))


def cut_off(ledger: Ledger, epsilon: float) -> float:
    """The score above which a record is called rare: pure epsilon-DP.

    Parameters
    ----------
    ledger : Ledger
        Of scores (n,), log-odds from something that is private itself, and of labels (n,) in {0, 1}.
    epsilon : float
        Above 0.

    Notes
    -----
    A record is in one node a level of the tree and in one cell of one class's histogram; one that replaces another can
    change two. Edges are private by themselves, so that the second histogram may depend on them (composition).

    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], [9000, 1000])
    >>> round(cut_off(Ledger((rng.normal(2 * y), y), ADD_REMOVE, rng), 10.0), 1)
    0.9
    """
    moved = 1 if ledger.neighbouring is ADD_REMOVE else 2
    edges = _edges(ledger.integers(_tree, moved * _LEVELS, _PLACES * epsilon))

    def cells(records):
        scores, y = records
        places = np.searchsorted(edges, scores, side="right")
        return np.bincount(places + y * (len(edges) + 1), minlength=2 * len(edges) + 2)

    counts = np.maximum(ledger.integers(cells, moved, epsilon - _PLACES * epsilon), 0).reshape(2, -1)
    common, rare = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # Of the records above each edge, from the first on: a cut-off below all of them would say "rare" to everybody.
    gained = np.cumsum((rare - common)[::-1])[::-1][1:]
    return float(edges[np.argmax(gained)])


def _tree(records) -> NDArray[np.int64]:
    """Numbers of records in the nodes of every level, the two halves first."""
    places = (np.clip(records[0], -_LARGEST, _LARGEST) + _LARGEST) * (2**_LEVELS / (2 * _LARGEST))
    level = np.bincount(np.minimum(places.astype(int), 2**_LEVELS - 1), minlength=2**_LEVELS)
    levels = []
    while len(level) > 1:
        levels.append(level)
        level = level.reshape(-1, 2).sum(axis=1)
    return np.concatenate(levels[::-1])


def _edges(nodes: NDArray) -> NDArray[np.float64]:
    """Scores at the ranks `_RANKS`, increasing, by descent from the root of a noisy tree."""
    starts = [2**level - 2 for level in range(1, _LEVELS + 1)]
    total = max(nodes[0] + nodes[1], 1)
    found = []
    for rank in _RANKS:
        at, left = 0, rank * total
        for start in starts:
            below = max(nodes[start + 2 * at], 0)  # records in the lower half of the node
            at, left = (2 * at + 1, left - below) if left > below else (2 * at, left)
        found.append((at + 1) * 2 * _LARGEST / 2**_LEVELS - _LARGEST)
    return np.unique(found)
