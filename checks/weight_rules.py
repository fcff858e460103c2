"""Search for the neighbouring data sets and the output at which a private softmax loses most privacy.

As `checks.worst_case` does for margin losses: what is found is a true lower bound of the mechanism's epsilon.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize as descend

from checks.exact_loss import softmax_privacy_loss
from helpers.checks import check_choice, check_integer, check_real
from helpers.erm.calibration import class_weights
from helpers.erm.losses import zero_sum_basis


class SoftmaxWorstCase(NamedTuple):
    """What a search found; `softmax_privacy_loss(C, data, neighbour, ...)` with these weights gives `loss` again.

    Attributes
    ----------
    loss : float
        The largest privacy loss found.
    C : ndarray (K - 1, d)
        The output at which it occurs.
    data, neighbour : pairs of ndarray (g, d) and (g,)
        Distinct rows and their classes; the last one belongs to the record that changes.
    weights, neighbour_weights : ndarray (g,)
        Class weight of each row times the number of records it stands for.
    counts : ndarray (K,)
        Records of each class in the first data set.
    """

    loss: float
    C: np.ndarray
    data: tuple[np.ndarray, np.ndarray]
    neighbour: tuple[np.ndarray, np.ndarray]
    weights: np.ndarray
    neighbour_weights: np.ndarray
    counts: np.ndarray


def worst_case_softmax_loss(
    calibration,
    *,
    counts,
    dimension,
    rng,
    class_weight=None,
    radius=1.0,
    n_restarts=20,
) -> SoftmaxWorstCase:
    """Largest privacy loss found for several classes, over outputs and replace-one neighbours.

    One kind of records a class stays. Every start has the record that changes leave the rarest class there is, or a
    random one, for another class; output and rows lie along one direction first, and are then optimised together.

    Parameters
    ----------
    calibration : Calibration
        Or anything with `noise_rate` and `total_regularization`.
    counts : sequence of K int
        Records of each class in the first data set, at least two in all.
    dimension : int
        Length of a row, the constant included.
    rng : numpy.random.Generator
    class_weight : None or "balanced"
        "balanced" uses `class_weights` of each data set's own counts.
    radius : float
    n_restarts : int

    Returns
    -------
    SoftmaxWorstCase

    Raises
    ------
    ValueError
        A parameter out of range.

    >>> from helpers.erm import Softmax, calibrate
    >>> tight = calibrate(epsilon=1.0, n_records=30, regularization=1e-6, loss=Softmax(3))
    >>> rng = np.random.default_rng(0)
    >>> 0.4 < worst_case_softmax_loss(tight, counts=[10, 10, 10], dimension=1, rng=rng, n_restarts=4).loss <= 1.0
    True
    """
    counts = np.array([check_integer("counts", count, low=0) for count in counts])
    if len(counts) < 2 or counts.sum() < 2:
        raise ValueError(f"counts must be of two classes and two records at least, got {counts.tolist()!r}")
    dimension = check_integer("dimension", dimension, low=1)
    check_choice("class_weight", class_weight, (None, "balanced"))
    radius = check_real("radius", radius, low=0, inclusive="neither")
    n_restarts = check_integer("n_restarts", n_restarts, low=1)
    found = [_softmax_ascent(calibration, counts, dimension, class_weight, radius, rng) for _ in range(n_restarts)]
    return max(found, key=lambda case: case.loss)


def _softmax_ascent(calibration, counts, dimension, class_weight, radius, rng) -> SoftmaxWorstCase:
    """One start: which classes the record leaves and enters, then everything else by gradient ascent."""
    classes, size = len(counts), (len(counts) - 1) * dimension
    occupied = np.flatnonzero(counts)
    before = occupied[np.argmin(counts[occupied])] if rng.random() < 0.5 else rng.choice(occupied)
    after = rng.choice(np.delete(np.arange(classes), before))
    stay = counts - np.eye(classes, dtype=int)[before]
    kinds = np.flatnonzero(stay)
    sides, weights = [], []
    for label in (before, after):
        codes = np.append(kinds, label)
        each = np.ones(classes)
        if class_weight == "balanced":
            each = class_weights(stay + np.eye(classes, dtype=int)[label])
        sides.append(codes)
        weights.append(each[codes] * np.append(stay[kinds], 1))

    def unpack(theta):
        rows = theta[size:].reshape(len(kinds) + 2, dimension)
        rows = radius * rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        here, there = rows[:-1], np.vstack([rows[:-2], rows[-1:]])
        return theta[:size].reshape(classes - 1, dimension) / radius, (here, sides[0]), (there, sides[1])

    def loss(theta):
        C, here, there = unpack(theta)
        return softmax_privacy_loss(
            C,
            here,
            there,
            noise_rate=calibration.noise_rate,
            total_regularization=calibration.total_regularization,
            n_records=int(counts.sum()),
            weights=weights[0],
            neighbour_weights=weights[1],
        )

    start = _softmax_start(kinds, classes, dimension, rng)
    best = descend(lambda theta: -loss(theta), start, method="L-BFGS-B", options={"maxiter": 200}).x
    C, here, there = unpack(best)
    return SoftmaxWorstCase(loss(best), C, here, there, *weights, counts)


def _softmax_start(kinds, classes, dimension, rng) -> np.ndarray:
    """Scores and rows along one direction, over several orders of magnitude."""
    along = rng.standard_normal(dimension)
    along /= np.linalg.norm(along)
    scores = rng.standard_normal(classes)
    C = 10 ** rng.uniform(-1, 2) * np.outer(zero_sum_basis(classes) @ scores, along)
    rows = rng.choice([-1.0, 1.0], size=(len(kinds) + 2, 1)) * along
    rows += rng.choice([0.01, 0.3, 1.0]) * rng.standard_normal(rows.shape)
    return np.concatenate([C.ravel(), rows.ravel()])
