"""Mechanisms with finitely many outputs and data sets with finitely many values: definitions by brute force.

A mechanism on one data set is a vector of probabilities, outputs on the last axis, so that thousands of pairs are one
array. Nothing is estimated; `enumeration` does the same in exact fractions for resampling.
"""

import itertools

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from helpers.privacy import ADD_REMOVE


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64] | float:
    """Largest P(S) - e^epsilon Q(S) over all sets S of outputs: the delta that the pair needs in this order.

    Parameters
    ----------
    p, q : array of shape (..., n_outputs)
        Probabilities; leading axes broadcast.
    epsilon : float or array
        In nats, broadcast against the leading axes.

    Source: Balle, Barthe and Gaboardi 2018, Theorem 1.

    >>> round(float(hockey_stick([0.75, 0.25], [0.25, 0.75], 0.0)), 2)
    0.5
    """
    factor = np.exp(np.asarray(epsilon, dtype=float))[..., None]
    return np.maximum(np.asarray(p, dtype=float) - factor * np.asarray(q, dtype=float), 0.0).sum(axis=-1)


def renyi_divergence(log_p: ArrayLike, log_q: ArrayLike, order: float) -> NDArray[np.float64] | float:
    """D_order(P || Q) in nats from log probabilities, outputs on the last axis.

    Source: Mironov 2017, Definition 3.

    >>> round(float(renyi_divergence(np.log([0.75, 0.25]), np.log([0.25, 0.75]), 2.0)), 4)
    0.8473
    """
    log_p, log_q = np.asarray(log_p, dtype=float), np.asarray(log_q, dtype=float)
    return logsumexp(order * log_p + (1 - order) * log_q, axis=-1) / (order - 1)


def neighbouring_histograms(
    n_records: int, n_values: int, neighbouring: NeighboringRelation
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every data set of `n_records` records with `n_values` possible values, beside each of its neighbours.

    A data set is the number of records of each value: their order does not matter.

    Parameters
    ----------
    n_records : int
        At least 1.
    n_values : int
        At least 2.
    neighbouring : NeighboringRelation
        Under `ADD_REMOVE` the neighbour has one record more, under `REPLACE_ONE` one record has another value (or,
        once for each value that occurs, the same one).

    Returns
    -------
    data, neighbours : array of shape (n_pairs, n_values)

    >>> [pairs.tolist() for pairs in neighbouring_histograms(1, 2, ADD_REMOVE)]
    [[[0, 1], [0, 1], [1, 0], [1, 0]], [[1, 1], [0, 2], [2, 0], [1, 1]]]
    """
    counts = itertools.product(range(n_records + 1), repeat=n_values)
    unit = np.eye(n_values, dtype=int)
    leaving = [np.zeros(n_values, dtype=int)] if neighbouring is ADD_REMOVE else list(unit)
    pairs = [
        (data, data - out + new)
        for data in map(np.array, counts)
        if data.sum() == n_records
        for out in leaving
        if (data >= out).all()
        for new in unit
    ]
    here, there = map(np.array, zip(*pairs, strict=True))
    return here, there
