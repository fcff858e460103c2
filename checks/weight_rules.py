"""Search for the neighbouring data sets and the output at which a private softmax loses most privacy.

As `checks.worst_case` does for margin losses: what is found is a true lower bound of the mechanism's epsilon.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize as descend

from checks.exact_loss import softmax_privacy_loss
from checks.worst_case import Found
from helpers.erm.calibration import Calibration, class_weights
from helpers.erm.losses import zero_sum_basis


def worst_case_softmax_loss(
    calibration: Calibration,
    *,
    counts: Sequence[int],
    dimension: int,
    rng: np.random.Generator,
    class_weight: Literal["balanced"] | None = None,
    n_restarts: int = 20,
) -> Found:
    """Largest privacy loss found for several classes, over outputs and replace-one neighbours.

    One kind of records a class stays. Every start has the record that changes leave the rarest class there is, or a
    random one, for another class; output and rows lie along one direction first, and are then optimised together.

    Parameters
    ----------
    calibration : Calibration
        Constants for rows in the unit ball.
    counts : sequence of K int
        Records of each class in the first data set, at least two in all.
    dimension : int
        Length of a row, the constant included.
    rng : numpy.random.Generator
    class_weight : "balanced", optional
        Uses `class_weights` of each data set's own counts.
    n_restarts : int

    >>> from helpers.erm import Softmax, calibrate
    >>> tight = calibrate(epsilon=1.0, n_records=30, regularization=1e-6, loss=Softmax(3))
    >>> rng = np.random.default_rng(0)
    >>> 0.4 < worst_case_softmax_loss(tight, counts=[10, 10, 10], dimension=1, rng=rng, n_restarts=4).loss <= 1.0
    True
    """
    found = [_ascend(calibration, np.array(counts), dimension, class_weight, rng) for _ in range(n_restarts)]
    return max(found, key=lambda case: case.loss)


def _ascend(calibration, counts, dimension, class_weight, rng) -> Found:
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
        each = np.ones(classes) if class_weight is None else class_weights(stay + np.eye(classes, dtype=int)[label])
        sides.append(codes)
        weights.append(each[codes] * np.append(stay[kinds], 1))
    constants = {**calibration._asdict(), "n_records": int(counts.sum())}
    constants |= {"weights": weights[0], "neighbour_weights": weights[1]}

    def unpack(theta):
        rows = theta[size:].reshape(len(kinds) + 2, dimension)
        rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        pairs = (rows[:-1], sides[0]), (np.vstack([rows[:-2], rows[-1:]]), sides[1])
        return theta[:size].reshape(classes - 1, dimension), *pairs

    def lost(theta):
        return softmax_privacy_loss(*unpack(theta), **constants)

    start = _start(kinds, classes, dimension, rng)
    best = descend(lambda theta: -lost(theta), start, method="L-BFGS-B", options={"maxiter": 200}).x
    return Found(lost(best), *unpack(best), *weights)


def _start(kinds, classes, dimension, rng) -> NDArray[np.float64]:
    """Scores and rows along one direction, over several orders of magnitude."""
    along = rng.standard_normal(dimension)
    along /= np.linalg.norm(along)
    scores = rng.standard_normal(classes)
    C = 10 ** rng.uniform(-1, 2) * np.outer(zero_sum_basis(classes) @ scores, along)
    rows = rng.choice([-1.0, 1.0], size=(len(kinds) + 2, 1)) * along
    rows += rng.choice([0.01, 0.3, 1.0]) * rng.standard_normal(rows.shape)
    return np.concatenate([C.ravel(), rows.ravel()])
