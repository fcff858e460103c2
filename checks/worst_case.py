"""Search for the neighbouring data sets and the output at which objective perturbation loses most privacy.

The privacy loss is known in closed form (`checks.exact_loss`), for margin losses also its derivatives with
respect to the output and to every row. What a search finds is a true lower bound of the mechanism's epsilon, exhibited
by data; that nothing worse exists is for a proof to say.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize as descend

from checks.exact_loss import privacy_loss
from helpers.checks import check_choice, check_integer, check_real
from helpers.erm.calibration import class_weights
from helpers.erm.losses import LOGISTIC

_FLIPS = ((1, 0), (0, 1), (1, 1), (0, 0))


class WorstCase(NamedTuple):
    """What a search found; `privacy_loss(beta, data, neighbour, ...)` with these weights gives `loss` again.

    Attributes
    ----------
    loss : float
        The largest privacy loss found.
    beta : ndarray (d,)
        The output at which it occurs.
    data, neighbour : ndarray (g, d)
        Distinct signed rows; the last one belongs to the record that changes.
    weights, neighbour_weights : ndarray (g,)
        Class weight of each row times the number of records it stands for.
    minority : int
        Records of class 1 in `data`.
    """

    loss: float
    beta: np.ndarray
    data: np.ndarray
    neighbour: np.ndarray
    weights: np.ndarray
    neighbour_weights: np.ndarray
    minority: int


class _Pair(NamedTuple):
    """Labels, multiplicities and class weights of two neighbouring data sets whose features are still free."""

    signs: np.ndarray
    neighbour_signs: np.ndarray
    weights: np.ndarray
    neighbour_weights: np.ndarray


def worst_case_loss(
    calibration,
    *,
    n_records,
    dimension,
    rng,
    loss=LOGISTIC,
    class_weight=None,
    minority=None,
    radius=1.0,
    fit_intercept=False,
    n_restarts=20,
    n_groups=None,
    offset=0.0,
) -> WorstCase:
    """Largest privacy loss found over outputs and replace-one neighbours, by gradient ascent from random starts.

    The records that stay are of a few kinds, each kind repeated, so `n_records` may be large at no cost. Every start
    draws labels of the record that changes, counts of the classes (unless given), rows and an output along the changed
    record, over several orders of magnitude; then all of it but the labels is optimised together.

    Parameters
    ----------
    calibration : Calibration
        Or anything with `noise_rate` and `total_regularization` (a number, or one a coordinate).
    n_records : int
        n >= 2.
    dimension : int
        Length of a row, the constant included.
    rng : numpy.random.Generator
    loss : Loss
        With its `twist`.
    class_weight : None or "balanced"
        "balanced" uses `class_weights` of each data set's own counts.
    minority : int, optional
        Records of class 1 in the first data set, in [0, n].
    radius : float
    fit_intercept : bool
        Whether the last coordinate of a row is the constant radius / sqrt(2), as `design_matrix` has it.
    n_restarts : int
    n_groups : int, optional
        Kinds of records a class; d of them if left out, and no more than 8.
    offset : float
        Log-odds inside the loss, the same for both data sets; other than 0 with `fit_intercept` only.

    Returns
    -------
    WorstCase

    Raises
    ------
    ValueError
        A parameter out of range, or a loss without third derivative.

    >>> from helpers.erm import calibrate
    >>> tight = calibrate(epsilon=1.0, n_records=100, regularization=1e-6)
    >>> worst = worst_case_loss(tight, n_records=100, dimension=2, rng=np.random.default_rng(0), n_restarts=4)
    >>> 0.8 < worst.loss <= 1.0
    True
    """
    n_records = check_integer("n_records", n_records, low=2)
    dimension = check_integer("dimension", dimension, low=2 if fit_intercept else 1)
    radius = check_real("radius", radius, low=0, inclusive="neither")
    check_choice("class_weight", class_weight, (None, "balanced"))
    n_restarts = check_integer("n_restarts", n_restarts, low=1)
    n_groups = min(dimension, 8) if n_groups is None else check_integer("n_groups", n_groups, low=1)
    offset = check_real("offset", offset, **({} if fit_intercept else {"low": 0, "high": 0}))
    center = np.zeros(dimension)
    center[-1] = offset * np.sqrt(2) / radius
    if loss.twist is None:
        raise ValueError("loss must have a third derivative (twist) to be searched, got None")
    if minority is not None:
        minority = check_integer("minority", minority, low=0, high=n_records)
    best = None
    for _ in range(n_restarts):
        flip, count = _draw_labels(n_records, minority, rng)
        pair = _pair(n_records, count, flip, n_groups, class_weight)
        found = _ascend(pair, calibration, n_records, center, loss, radius, fit_intercept, rng)
        if best is None or found.loss > best.loss:
            best = found._replace(minority=count)
    return best


def _draw_labels(n_records, minority, rng) -> tuple[tuple[int, int], int]:
    """Labels of the record before and after, and a count of class 1 that allows them."""
    flips = [flip for flip in _FLIPS if minority is None or _fits(flip[0], minority, n_records)]
    flip = flips[rng.integers(len(flips))]
    if minority is not None:
        return flip, minority
    low, high = (1, n_records) if flip[0] == 1 else (0, n_records - 1)
    share = rng.choice([0.0, 0.5, 1.0, rng.random(), np.exp(rng.uniform(-np.log(n_records), 0))])
    return flip, int(np.clip(round(share * n_records), low, high))


def _fits(label, minority, n_records) -> bool:
    return minority >= 1 if label == 1 else minority <= n_records - 1


def _pair(n_records, minority, flip, n_groups, class_weight) -> _Pair:
    before, after = flip
    stay = np.array([n_records - minority, minority])
    stay[before] -= 1
    counts = [stay + np.eye(2, dtype=int)[label] for label in flip]
    weights = [np.ones(2) if class_weight is None else class_weights(count) for count in counts]
    classes, sizes = [], []
    for label in (0, 1):
        kinds = min(n_groups, stay[label])
        sizes += [stay[label] // kinds + (k < stay[label] % kinds) for k in range(kinds)]
        classes += [label] * kinds
    classes = np.array(classes, dtype=int)
    sizes = np.append(sizes, 1)
    labels = [np.append(classes, label) for label in (before, after)]
    return _Pair(
        2 * labels[0] - 1,
        2 * labels[1] - 1,
        sizes * weights[0][labels[0]],
        sizes * weights[1][labels[1]],
    )


def _ascend(pair, calibration, n_records, center, loss, radius, fit_intercept, rng) -> WorstCase:
    dimension = len(center)
    kinds, free = len(pair.signs), dimension - fit_intercept
    stiffness = n_records * np.broadcast_to(np.asarray(calibration.total_regularization, dtype=float), dimension)
    rate = calibration.noise_rate

    def unpack(theta):
        beta, features = theta[:dimension] / radius, theta[dimension:].reshape(kinds + 1, free)
        return beta, features

    def objective(theta):
        beta, features = unpack(theta)
        rows = _rows(features, radius, fit_intercept)
        data = pair.signs[:, None] * rows[:-1]
        other = pair.neighbour_signs[:, None] * np.vstack([rows[:-2], rows[-1:]])
        value, slope, pull = _log_density(beta, data, pair.weights, rate, stiffness, loss, center)
        value2, slope2, pull2 = _log_density(beta, other, pair.neighbour_weights, rate, stiffness, loss, center)
        change = np.zeros_like(rows)
        change[:-1] += pair.signs[:, None] * pull
        change[:-2] -= (pair.neighbour_signs[:, None] * pull2)[:-1]
        change[-1] -= pair.neighbour_signs[-1] * pull2[-1]
        inner = _rows_gradient(features, change, radius, fit_intercept)
        return value2 - value, -np.concatenate([(slope - slope2) / radius, inner.ravel()])

    start = _start(pair, kinds, free, dimension, rng)
    found = descend(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxfun": 600})
    beta, features = unpack(found.x)
    rows = _rows(features, radius, fit_intercept)
    data = pair.signs[:, None] * rows[:-1]
    other = pair.neighbour_signs[:, None] * np.vstack([rows[:-2], rows[-1:]])
    exact = privacy_loss(
        beta,
        data,
        other,
        noise_rate=rate,
        total_regularization=calibration.total_regularization,
        n_records=n_records,
        loss=loss,
        weights=pair.weights,
        neighbour_weights=pair.neighbour_weights,
        center=center,
    )
    return WorstCase(exact, beta, data, other, pair.weights, pair.neighbour_weights, 0)


def _start(pair, kinds, free, dimension, rng) -> np.ndarray:
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


def _rows(features, radius, fit_intercept) -> np.ndarray:
    rows = radius * features / np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    if not fit_intercept:
        return rows
    return np.column_stack([rows, np.full(len(rows), radius)]) / np.sqrt(2)


def _rows_gradient(features, change, radius, fit_intercept) -> np.ndarray:
    """Derivative with respect to the features, from the derivative with respect to `_rows`."""
    if fit_intercept:
        change = change[:, :-1] / np.sqrt(2)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    outside = norms > 1
    unit = features / np.where(outside, norms, 1.0)
    along = np.sum(unit * change, axis=1, keepdims=True)
    return radius * np.where(outside, (change - along * unit) / np.maximum(norms, 1.0), change)


def _log_density(beta, rows, weights, rate, stiffness, loss, center=0.0) -> tuple[float, np.ndarray, np.ndarray]:
    """-rate ||b|| + log det A with its derivatives with respect to beta (d,) and to the rows (g, d)."""
    margins = rows @ beta
    slope, bend, twist = weights * loss.slope(margins), weights * loss.bend(margins), weights * loss.twist(margins)
    noise = slope @ rows + stiffness * (beta - center)
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
