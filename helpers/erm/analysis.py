"""Noise calibration of private empirical risk minimisation, and its exact privacy loss.

`algorithm_2` turns a privacy budget into the noise and regularisation of objective perturbation; `privacy_loss`
is the exact log density ratio of its output on two data sets, so that any calibration can be confronted with the
truth. Drawing the noise belongs to `helpers.privacy`, solving to the module `objective`.
"""

import math
from typing import NamedTuple

import numpy as np

from helpers.erm.objective import LOGISTIC, curvature_sum, gradient
from helpers.privacy import ADD_REMOVE, REPLACE_ONE
from helpers.validation import check_choice, check_integer, check_real


class Calibration(NamedTuple):
    """Constants of objective perturbation.

    Attributes
    ----------
    noise_rate : float
        The noise b has density proportional to exp(-noise_rate ||b||).
    total_regularization : float
        lambda + Delta, the coefficient of ||beta||^2 / 2.
    """

    noise_rate: float
    total_regularization: float


def algorithm_2(
    *,
    epsilon,
    n_records,
    regularization,
    radius=1.0,
    curvature=LOGISTIC.curvature,
    neighbouring=REPLACE_ONE,
) -> Calibration:
    """Constants of Chaudhuri, Monteleoni and Sarwate's Algorithm 2, for records of norm at most `radius`.

    The objective is (1/n) sum loss + (total_regularization/2) ||beta||^2 + b'beta/n, n a public number; its exact
    minimiser is epsilon-DP. One record more or less moves b by at most radius and multiplies the Jacobian
    determinant by at most 1 + t, t = curvature radius^2 / (n (lambda + Delta)); a replacement does both twice. What
    the determinant costs is taken from epsilon. As printed, Delta = 0 whenever anything is left, so the noise grows
    without bound where epsilon approaches that cost from above.

    Parameters
    ----------
    epsilon : float
        Budget, > 0.
    n_records : int
        n >= 1, public: the number of records under replace-one; under add/remove any number fixed in advance.
    regularization : float
        lambda > 0.
    radius : float
        Public bound R > 0 on a record's norm, the constant feature included.
    curvature : float
        c > 0, bound on the second derivative of the loss (its slope is at most 1).
    neighbouring : NeighboringRelation
        The paper's is replace-one; add/remove is the same argument with one record instead of two.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2 and Theorem 2 (R = 1 there).

    >>> [round(x, 4) for x in algorithm_2(epsilon=1.0, n_records=1000, regularization=0.01)]
    [0.4753, 0.01]
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    n_records = check_integer("n_records", n_records, low=1)
    regularization = check_real("regularization", regularization, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    curvature = check_real("curvature", curvature, low=0, inclusive="neither")
    moved = 2 if check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)) == REPLACE_ONE else 1
    bend = curvature * radius**2 / n_records
    left = epsilon - moved * math.log1p(bend / regularization)
    if left > 0:
        return Calibration(left / (moved * radius), regularization)
    return Calibration(epsilon / (2 * moved * radius), bend / math.expm1(epsilon / (2 * moved)))


def privacy_loss(beta, data, neighbour, *, noise_rate, total_regularization, n_records=None, loss=LOGISTIC) -> float:
    """Exact log density ratio, data over neighbour, of objective perturbation at the output `beta`.

    For fixed data the map from noise b to minimiser is a bijection: b = -sum loss' - n L beta, with Jacobian A =
    n L I + sum loss'' z z' (up to sign). Hence the ratio is noise_rate (||b'|| - ||b||) + log det A - log det A'.
    The mechanism is epsilon-DP exactly if this never exceeds epsilon on neighbouring data.

    Parameters
    ----------
    beta : array (d,)
        Output, in the coordinates of the signed rows.
    data, neighbour : array (n, d), (n', d)
        Signed rows (`signed_rows`) of two data sets.
    noise_rate, total_regularization : float
        As in `Calibration`.
    n_records : int, optional
        The public n that divides the loss; may be left out for two data sets of the same size.

    Raises
    ------
    ValueError
        Shapes that do not fit, or different sizes without `n_records`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, proof of Theorem 2.

    >>> import numpy as np
    >>> round(privacy_loss([0.0], [[1.0]], [[-1.0]], noise_rate=0.5, total_regularization=1.0), 4)
    0.0
    """
    beta, data, neighbour = (np.asarray(a, dtype=float) for a in (beta, data, neighbour))
    same_size = n_records is not None or len(data) == len(neighbour)
    if (
        data.ndim != 2
        or neighbour.ndim != 2
        or not beta.shape == data.shape[1:] == neighbour.shape[1:]
        or not same_size
    ):
        raise ValueError(
            "beta, data, neighbour must have shapes (d,), (n, d), (n, d), with n_records (d,), (n, d), (n', d), "
            f"got {beta.shape}, {data.shape}, {neighbour.shape} and n_records={n_records!r}"
        )
    stiffness = total_regularization * (
        len(data) if n_records is None else check_integer("n_records", n_records, low=1)
    )
    here = _log_density(beta, data, noise_rate, stiffness, loss)
    return here - _log_density(beta, neighbour, noise_rate, stiffness, loss)


def _log_density(beta, rows, noise_rate, stiffness, loss) -> float:
    """Log density of the output up to a constant that the data do not enter; `stiffness` is n (lambda + Delta)."""
    n = len(rows)
    noise = n * gradient(beta, rows, loss, stiffness / n, np.zeros_like(beta))
    jacobian = curvature_sum(beta, rows, loss) + stiffness * np.eye(len(beta))
    return float(np.linalg.slogdet(jacobian)[1] - noise_rate * np.linalg.norm(noise))
