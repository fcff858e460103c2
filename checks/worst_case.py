"""Search for the neighbouring data sets and the output at which objective perturbation loses most privacy.

The privacy loss is known in closed form (`checks.exact_loss`), for margin losses also its derivatives with
respect to the output and to every row. What a search finds is a true lower bound of the mechanism's epsilon, exhibited
by data; that nothing worse exists is for a proof to say. Searches for several classes are in `checks.weight_rules`,
and searches that start from the proof of the price in `checks.erm_audit`.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize as descend

from checks.exact_loss import privacy_loss
from helpers.erm.calibration import Calibration, class_weights
from helpers.erm.losses import LOGISTIC

_FLIPS = ((1, 0), (0, 1), (1, 1), (0, 0))


class Found(NamedTuple):
    """What a search found: the loss of `data` over `neighbour` at `output`, which `exact_loss` gives again.

    Attributes
    ----------
    loss : float
    output : ndarray (d,) or (K - 1, d)
    data, neighbour : ndarray (g, d), or pairs of ndarray (g, d) and (g,)
        Signed rows for a margin loss, rows and classes for the softmax; the record that changes stands last.
    weights, neighbour_weights : ndarray (g,)
        Class weight of each row times the number of records it stands for.
    """

    loss: float
    output: NDArray[np.float64]
    data: Any
    neighbour: Any
    weights: NDArray[np.float64]
    neighbour_weights: NDArray[np.float64]


def worst_case_loss(
    calibration: Calibration,
    *,
    n_records: int,
    dimension: int,
    rng: np.random.Generator,
    class_weight: Literal["balanced"] | None = None,
    minority: int | None = None,
    fit_intercept: bool = False,
    n_restarts: int = 20,
    n_groups: int | None = None,
) -> Found:
    """Largest loss found for the logistic loss, over outputs and replace-one neighbours, by ascent from random starts.

    The records that stay are of a few kinds, each kind repeated, so `n_records` may be large at no cost. Every start
    draws labels of the record that changes, counts of the classes (unless given), rows and an output along the changed
    record, over several orders of magnitude; then all of it but the labels is optimised together.

    Parameters
    ----------
    calibration : Calibration
        Constants for rows in the unit ball; `total_regularization` may be one number a coordinate.
    n_records : int
        n >= 2.
    dimension : int
        Length of a row, the constant included.
    rng : numpy.random.Generator
    class_weight : "balanced", optional
        Uses `class_weights` of each data set's own counts.
    minority : int, optional
        Records of class 1 in the first data set, in [0, n].
    fit_intercept : bool
        Whether the last coordinate of a row is the constant 1 / sqrt(2), as `design_matrix` has it.
    n_restarts : int
    n_groups : int, optional
        Kinds of records a class; d of them if left out, and no more than 8.

    >>> from helpers.erm import calibrate
    >>> tight = calibrate(epsilon=1.0, n_records=100, regularization=1e-6)
    >>> worst = worst_case_loss(tight, n_records=100, dimension=2, rng=np.random.default_rng(0), n_restarts=4)
    >>> 0.8 < worst.loss <= 1.0
    True
    """
    found = []
    for _ in range(n_restarts):
        flip, count = _draw_labels(n_records, minority, rng)
        sides = _pair(n_records, count, flip, n_groups or min(dimension, 8), class_weight)
        found.append(_ascend(*sides, calibration, n_records, dimension, fit_intercept, rng))
    return max(found, key=lambda case: case.loss)


def _draw_labels(n_records, minority, rng) -> tuple[tuple[int, int], int]:
    """Labels of the record before and after, and a count of class 1 that allows them."""
    flips = [flip for flip in _FLIPS if minority is None or (minority >= 1 if flip[0] else minority < n_records)]
    flip = flips[rng.integers(len(flips))]
    if minority is not None:
        return flip, minority
    low, high = (1, n_records) if flip[0] == 1 else (0, n_records - 1)
    share = rng.choice([0.0, 0.5, 1.0, rng.random(), np.exp(rng.uniform(-np.log(n_records), 0))])
    return flip, int(np.clip(round(share * n_records), low, high))


def _pair(n_records, minority, flip, n_groups, class_weight) -> tuple[list[NDArray], list[NDArray]]:
    """Signs (g,) and weights (g,) of the kinds of records in both data sets, whose features are still free."""
    stay = np.array([n_records - minority, minority])
    stay[flip[0]] -= 1
    kinds = np.minimum(n_groups, stay)
    classes = np.repeat([0, 1], kinds)
    # Each class in kinds of nearly equal size, and the record that changes.
    sizes = [n // many + (k < n % many) for n, many in zip(stay, kinds, strict=True) for k in range(many)]
    signs, weights = [], []
    for label in flip:
        labels, counts = np.append(classes, label), stay + np.eye(2, dtype=int)[label]
        each = np.ones(2) if class_weight is None else class_weights(counts)
        signs.append(2 * labels - 1)
        weights.append(np.append(sizes, 1) * each[labels])
    return signs, weights


def _ascend(signs, weights, calibration, n_records, dimension, fit_intercept, rng) -> Found:
    kinds, free = len(signs[0]), dimension - fit_intercept
    stiffness = n_records * np.broadcast_to(np.asarray(calibration.total_regularization, dtype=float), dimension)
    rate = calibration.noise_rate

    def unpack(theta):
        """Output, free features, rows, and the signed rows of both data sets."""
        features = theta[dimension:].reshape(kinds + 1, free)
        rows = features / np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
        if fit_intercept:
            rows = np.column_stack([rows, np.ones(len(rows))]) / np.sqrt(2)
        other = signs[1][:, None] * np.vstack([rows[:-2], rows[-1:]])
        return theta[:dimension], features, signs[0][:, None] * rows[:-1], other

    def objective(theta):
        beta, features, data, other = unpack(theta)
        value, slope, pull = _log_density(beta, data, weights[0], rate, stiffness)
        value2, slope2, pull2 = _log_density(beta, other, weights[1], rate, stiffness)
        change = np.zeros((kinds + 1, dimension))
        change[:-1] += signs[0][:, None] * pull
        change[:-2] -= (signs[1][:, None] * pull2)[:-1]
        change[-1] -= signs[1][-1] * pull2[-1]
        inner = _features_gradient(features, change[:, :-1] / np.sqrt(2) if fit_intercept else change)
        return value2 - value, -np.concatenate([slope - slope2, inner.ravel()])

    start = _start(kinds, free, dimension, rng)
    found = descend(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxfun": 600})
    beta, _, data, other = unpack(found.x)
    options = {"n_records": n_records, "weights": weights[0], "neighbour_weights": weights[1]}
    return Found(privacy_loss(beta, data, other, **calibration._asdict(), **options), beta, data, other, *weights)


def _start(kinds, free, dimension, rng) -> NDArray[np.float64]:
    """Rows in random directions, half the time with the changed record along the output: there the noise moves most."""
    beta = rng.standard_normal(dimension)
    beta *= 10 ** rng.uniform(-2, 3) / np.linalg.norm(beta)
    features = rng.standard_normal((kinds + 1, free))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    if rng.random() < 0.5:
        along = beta[:free] / np.linalg.norm(beta[:free])
        sides = rng.choice([-1.0, 1.0], size=(kinds + 1, 1))
        features = sides * along + rng.choice([0.01, 0.3, 1.0]) * features
    return np.concatenate([beta, features.ravel()])


def _features_gradient(features, change) -> NDArray[np.float64]:
    """Derivative with respect to the features, from that with respect to the rows that were cut to the unit ball."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    outside = norms > 1
    unit = features / np.where(outside, norms, 1.0)
    along = np.sum(unit * change, axis=1, keepdims=True)
    return np.where(outside, (change - along * unit) / np.maximum(norms, 1.0), change)


def _log_density(beta, rows, weights, rate, stiffness) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """-rate ||b|| + log det A with its derivatives with respect to beta (d,) and to the rows (g, d)."""
    margins = rows @ beta
    slope, bend, twist = (weights * part(margins) for part in (LOGISTIC.slope, LOGISTIC.bend, LOGISTIC.twist))
    noise = slope @ rows + stiffness * beta
    length = np.linalg.norm(noise)
    unit = noise / max(length, 1e-300)
    jacobian = (rows * bend[:, None]).T @ rows + np.diag(stiffness)
    solved = np.linalg.solve(jacobian, rows.T).T
    leverage = np.sum(rows * solved, axis=1)
    toward = rows @ unit
    value = np.linalg.slogdet(jacobian)[1] - rate * length
    by_beta = (twist * leverage) @ rows - rate * (jacobian @ unit)
    by_rows = np.outer(twist * leverage - rate * bend * toward, beta)
    by_rows += 2 * bend[:, None] * solved - rate * np.outer(slope, unit)
    return value, by_beta, by_rows
