"""The exact privacy loss of objective perturbation, and the epsilon that theorems prove for given constants.

For fixed data the output of objective perturbation has a density in closed form, so that every calibration can be
confronted with the truth: `privacy_loss` for margin losses, `softmax_privacy_loss` for several classes. All of it is
about exact minimisers. The search for data where the loss is large belongs to `worst_case`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from helpers.erm.calibration import UNWEIGHTED, Calibration, Weighting, determinant_cost, joint_cost
from helpers.erm.losses import LOGISTIC, Loss, Softmax
from helpers.erm.risk import Block, MarginSums, Rows, SoftmaxSums

Norm = Callable[..., Any]
RowsAndClasses = tuple[ArrayLike, ArrayLike]


def proven_epsilon(
    calibration: Calibration,
    *,
    n_records: int,
    radius: float = 1.0,
    loss: Loss | Softmax = LOGISTIC,
    weighting: Weighting = UNWEIGHTED,
) -> float:
    """The epsilon that the theorems of this package prove for given constants, wherever they come from.

    The smaller of two bounds: shift of the noise plus change of the determinant, and both together record by record.

    Parameters
    ----------
    calibration : Calibration
        Or anything with `noise_rate` and `total_regularization`.
    n_records, radius, loss, weighting
        As in `calibrate`; the relation is that of `weighting`.

    >>> from helpers.erm import Calibration
    >>> round(proven_epsilon(Calibration(0.4753, 0.01), n_records=1000), 4)
    0.9506
    """
    g = calibration.noise_rate * radius
    ratio = radius**2 / (n_records * calibration.total_regularization)
    separate = weighting.mass * loss.steepness * g + determinant_cost(ratio, loss, weighting)
    return min(separate, joint_cost(g, ratio, loss, weighting))


def privacy_loss(
    beta: ArrayLike,
    data: ArrayLike,
    neighbour: ArrayLike,
    *,
    noise_rate: float,
    total_regularization: ArrayLike,
    n_records: int | None = None,
    loss: Loss = LOGISTIC,
    weights: ArrayLike | None = None,
    neighbour_weights: ArrayLike | None = None,
    norm: Norm = np.linalg.norm,
    center: ArrayLike = 0.0,
) -> float:
    """Exact log density ratio, data over neighbour, of objective perturbation at the output `beta`.

    For fixed data the map from noise b to minimiser is a bijection: b = -sum w loss' - n L beta, with Jacobian A =
    n L I + sum w loss'' z z' (up to sign). Hence the ratio is noise_rate (||b'|| - ||b||) + log det A - log det A'.
    The mechanism is epsilon-DP exactly if this never exceeds epsilon on neighbouring data.

    Parameters
    ----------
    beta : array (d,)
        Output, in the coordinates of the signed rows.
    data, neighbour : array (n, d), (n', d)
        Signed rows (`signed_rows`) of two data sets.
    noise_rate : float
        As in `Calibration`.
    total_regularization : float or array (d,)
        As in `Calibration`, or one number a coordinate.
    n_records : int, optional
        The public n that divides the loss; may be left out for two data sets of the same size.
    weights, neighbour_weights : array (n,), (n',), optional
        Of the records, at least 0; a row that stands for m equal records has m times their weight. All 1 if left out.
    norm : callable
        Of the noise, such as a `RowPolytope`'s; `noise_rate` is in its units.
    center : array (d,), optional
        What the penalty pulls beta to, public or released before; an offset b0 inside the loss is b0/c along the
        constant feature c. Then b = -sum w loss' - n L (beta - center).

    Raises
    ------
    ValueError
        Data sets of different size without `n_records`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, proof of Theorem 2.

    >>> import numpy as np
    >>> round(privacy_loss([0.0], [[1.0]], [[-1.0]], noise_rate=0.5, total_regularization=1.0), 4)
    0.0
    """
    beta, data, neighbour = (np.asarray(a, dtype=float) for a in (beta, data, neighbour))
    n = _divisor(data, neighbour, n_records)
    stiffness = n * np.asarray(total_regularization, dtype=float)
    pull = np.broadcast_to(-stiffness * np.asarray(center, dtype=float), beta.shape)
    here = _log_density(beta, data, noise_rate, stiffness, pull, loss, weights, norm)
    return here - _log_density(beta, neighbour, noise_rate, stiffness, pull, loss, neighbour_weights, norm)


def _log_density(beta, rows, noise_rate, stiffness, pull, loss, weights, norm) -> float:
    """Log density of the output up to a constant that the data do not enter; `stiffness` is n (lambda + Delta)."""
    noise = gradient(beta, rows, loss, stiffness, pull, weights, 1)  # a divisor of 1: sums, also of no record
    jacobian = curvature_sum(beta, rows, loss, weights) + stiffness * np.eye(len(beta))
    return float(np.linalg.slogdet(jacobian)[1] - noise_rate * norm(noise))


def _divisor(data: Any, neighbour: Any, n_records: int | None) -> int:
    """The public number of records: one that is given, or that of both data sets."""
    if n_records is None and len(data) != len(neighbour):
        raise ValueError(
            f"n_records must be given for data sets of different size, got {len(data)} and {len(neighbour)} records"
        )
    return len(data) if n_records is None else n_records


def softmax_privacy_loss(
    C: ArrayLike,
    data: RowsAndClasses,
    neighbour: RowsAndClasses,
    *,
    noise_rate: float,
    total_regularization: float,
    n_records: int | None = None,
    weights: ArrayLike | None = None,
    neighbour_weights: ArrayLike | None = None,
    norm: Norm = np.linalg.norm,
    center: ArrayLike = 0.0,
) -> float:
    """Exact log density ratio, data over neighbour, of multinomial objective perturbation at the output C.

    Parameters
    ----------
    C : array (K - 1, d)
        Output in the coordinates of `zero_sum_basis`.
    data, neighbour : pairs (Z, codes)
        Rows (n, d) inside the ball and classes (n,) of two data sets.
    others
        As in `privacy_loss`.

    Raises
    ------
    ValueError
        Data sets of different size without `n_records`.

    >>> import numpy as np
    >>> one, other = ([[1.0]], [0]), ([[1.0]], [1])
    >>> round(softmax_privacy_loss([[1.0], [0.0]], one, other, noise_rate=0.5, total_regularization=1.0), 4)
    0.6753
    """
    C, n = np.asarray(C, dtype=float), _divisor(data[0], neighbour[0], n_records)
    stiffness = n * total_regularization
    pull = np.broadcast_to(-total_regularization * np.asarray(center, dtype=float), C.shape)

    def log_density(pair, weights):
        Z, codes = np.asarray(pair[0], dtype=float), np.asarray(pair[1])
        noise = n * softmax_gradient(C, Z, codes, total_regularization, pull, weights, n)
        jacobian = softmax_curvature_sum(C, Z, weights) + stiffness * np.eye(C.size)
        return float(np.linalg.slogdet(jacobian)[1] - noise_rate * norm(noise))

    return log_density(data, weights) - log_density(neighbour, neighbour_weights)


def gradient(beta, rows, loss, regularization, linear, weights=None, n_records=None) -> np.ndarray:
    """Gradient (d,) of (1/n) sum weight loss(rows beta) + (regularization/2) ||beta||^2 + linear'beta.

    `n_records` is the n that divides the sum, the number of rows if left out.
    """
    total = MarginSums(loss).pull(beta, Block(Rows(rows), None, weights))[0]
    return total / (n_records or len(rows)) + regularization * beta + linear


def curvature_sum(beta, rows, loss, weights=None) -> np.ndarray:
    """Hessian (d, d) of the weighted *sum* of the losses."""
    return MarginSums(loss).hessian(beta, Block(Rows(rows), None, weights))


def softmax_gradient(C, Z, codes, regularization, linear, weights=None, n_records=None) -> np.ndarray:
    """Gradient (K - 1, d) of (1/n) sum weight (-log p_code) + (regularization/2) ||C||^2 + <linear, C>."""
    total = SoftmaxSums(Softmax(len(C) + 1)).pull(C.ravel(), Block(Rows(Z), codes, weights))[0]
    return total.reshape(C.shape) / (n_records or len(Z)) + regularization * C + linear


def softmax_curvature_sum(C, Z, weights=None) -> np.ndarray:
    """Hessian ((K - 1) d, (K - 1) d) of the weighted *sum* of the losses."""
    return SoftmaxSums(Softmax(len(C) + 1)).hessian(C.ravel(), Block(Rows(Z), None, weights))
