"""The choice of a coordinate in greedy descent as it is printed, what it really costs, and the printed error.

`selection_loss` and `selection_delta` integrate the choice of argmax_j |g_j + Laplace(b_j)| exactly; with b_j in
proportion to the coordinate's own sensitivity that choice is not private at the epsilon it is printed for. What a
practitioner should use is `helpers.erm.greedy`.
"""

import math

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from helpers.privacy import ADD_REMOVE, REPLACE_ONE, NeighboringRelation

_NODES, _WEIGHTS = leggauss(40)
_REACH = np.array([0.0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])  # ends of pieces, in scales of the noise


def greedy_order(
    limits: ArrayLike,
    smoothness: ArrayLike,
    optimum: ArrayLike,
    n_records: int,
    epsilon: float,
    delta: float,
    *,
    repaired: bool = False,
) -> float:
    """Error of greedy coordinate descent as printed, without its constant, or with the factor that it lacks.

    log(1/delta) log(p) L_max^(2/3) ||w*||_{M,1}^(4/3) / (n epsilon)^(2/3). A loss in other units multiplies the error
    by s and this by s^(4/3). `repaired`: (L_j^2 / M_j)^(1/3) at its largest in place of L_max^(2/3), which makes it
    a bound of the same units as the loss.

    Parameters
    ----------
    limits, smoothness, optimum, n_records
        As in `checks.coordinate_descent.coordinate_bound`; p >= 2.
    epsilon, delta : float
        Above 0, and in (0, 1).

    Source: Mangold's slides, "Utility of DP-GCD".

    >>> args = np.ones(2), np.ones(2), np.ones(2), 1000, 1.0, 1e-6
    >>> round(greedy_order(*args), 3), greedy_order(*args) == greedy_order(*args, repaired=True)
    (0.241, True)
    """
    limits, smoothness = np.asarray(limits, dtype=float), np.asarray(smoothness, dtype=float)
    logs = math.log(1 / delta) * math.log(len(limits))
    largest = np.max(limits**2 / smoothness) if repaired else np.max(limits) ** 2
    reach = float(np.sqrt(smoothness) @ np.abs(optimum))
    return float(logs * largest ** (1 / 3) * reach ** (4 / 3) / (n_records * epsilon) ** (2 / 3))


def printed_scales(
    limits: ArrayLike, n_records: int, epsilon: float, neighbouring: NeighboringRelation = REPLACE_ONE
) -> NDArray[np.float64]:
    """Laplace scales (K,) of a noisy maximum of mean slopes, each from its own sensitivity: 2 c L_j / (n epsilon).

    Parameters
    ----------
    limits : array (K,)
        L_j > 0, bounds on one record's slope along each coordinate.
    n_records, epsilon
        As in `checks.coordinate_descent.printed_variance`.
    neighbouring : NeighboringRelation
        c = 1 under `ADD_REMOVE`, 2 under `REPLACE_ONE`.

    >>> printed_scales([0.01, 1.0], 1000, 1.0, ADD_REMOVE).tolist()
    [2e-05, 0.002]
    """
    moved = 1 if neighbouring == ADD_REMOVE else 2
    return 2 * moved * np.asarray(limits, dtype=float) / (n_records * epsilon)


def selection_loss(slopes: ArrayLike, neighbour: ArrayLike, scales: ArrayLike, counts: ArrayLike = 1) -> float:
    """Largest |log ratio| of the probabilities with which a coordinate is chosen from two data sets.

    With one coordinate of a small scale b_1, and m others of scale b whose slopes one record moves together by D =
    epsilon b / 2, the loss is about min(m, b / b_1) epsilon / 2: each of the others is that much likelier to be out of
    the way, or else the first one's own noise carries it past them all.

    Parameters
    ----------
    slopes, neighbour : array (K,)
        Mean slopes g on the two.
    scales : array (K,)
        b > 0: the choice is argmax_j |g_j + Laplace(b_j)|.
    counts : array (K,) of int, optional
        How many coordinates are like each one.

    >>> others = np.array([0.0, 0.1]), np.array([0.0, 0.1 - 1e-3])
    >>> round(selection_loss(*others, printed_scales([0.01, 1.0], 1000, 1.0, ADD_REMOVE), [1, 20]), 2)
    10.0
    """
    one, other = (log_choices(g, scales, counts) for g in (slopes, neighbour))
    return float(np.max(np.abs(one - other)))


def selection_delta(
    slopes: ArrayLike, neighbour: ArrayLike, scales: ArrayLike, epsilon: float, counts: ArrayLike = 1
) -> float:
    """Smallest delta at `epsilon` for the choice on these two data sets, in either direction.

    Parameters
    ----------
    slopes, neighbour, scales, counts
        As in `selection_loss`.
    epsilon : float
        At least 0.

    >>> selection_delta([0.1, 0.2], [0.1, 0.2], [1.0, 1.0], 0.0)
    0.0
    """
    one, other = (np.exp(log_choices(g, scales, counts)) for g in (slopes, neighbour))
    pairs = (one, other), (other, one)
    return max(float(np.sum(counts * np.maximum(p - math.exp(epsilon) * q, 0.0))) for p, q in pairs)


def log_choices(slopes: ArrayLike, scales: ArrayLike, counts: ArrayLike = 1) -> NDArray[np.float64]:
    """Log probability (K,) that argmax_j |g_j + Laplace(b_j)| is a given coordinate of each kind.

    The integral over the winner's value of its density times the chance that all others stay below, by Gauss-Legendre
    rules between points where no density or distribution changes by more than a few orders of magnitude.

    Parameters
        As in `selection_loss`.

    >>> np.exp(log_choices([0.0, 0.0], [1.0, 1.0])).round(6).tolist()
    [0.5, 0.5]
    """
    slopes, scales = np.abs(slopes), np.asarray(scales, dtype=float)
    numbers = np.broadcast_to(np.asarray(counts, dtype=float), scales.shape)
    ends = np.unique(np.maximum(slopes[:, None] + scales[:, None] * np.append(-_REACH, _REACH), 0.0))
    halves = np.diff(ends)[:, None] / 2
    points = (ends[:-1, None] + halves * (1 + _NODES)).ravel()
    weights = np.log((halves * _WEIGHTS).ravel())
    densities, below = (law(points, slopes[:, None], scales[:, None]) for law in (_log_density, _log_below))
    integrands = densities - below + numbers @ below
    return logsumexp(integrands + weights, axis=1)


def _log_below(x, slope, scale):
    """log P(|slope + Laplace(scale)| < x), x > 0, without cancellation in the tails."""
    near, far = np.minimum(x, slope) / scale, np.maximum(x, slope) / scale
    inside = near - far + np.log(-np.expm1(-2 * near.clip(min=1e-300))) - math.log(2)
    outside = np.log1p(-np.exp(near - far + np.log1p(np.exp(-2 * near)) - math.log(2)).clip(max=1 - 1e-16))
    return np.where(x < slope, inside, outside)


def _log_density(x, slope, scale):
    """Log density of |slope + Laplace(scale)| at x > 0."""
    near, far = np.minimum(x, slope) / scale, np.maximum(x, slope) / scale
    return near - far + np.log1p(np.exp(-2 * near)) - np.log(2 * scale)
