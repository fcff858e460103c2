"""Noise, selection and error of private coordinate descent as they are printed, and what they really cost and say.

`printed_variance` is the slide's, `published_variance` the paper's, which has the right order and a safe constant.
`gradient_bound` and `coordinate_bound` are the printed utilities with constant 1, `descent_bound` what they follow from
(the proof is in chapter coordinate-descent), and `greedy_order` the printed one of greedy descent, which has a factor
too little.
`selection_loss` and `selection_delta` integrate the choice of argmax_j |g_j + Laplace(b_j)| exactly; with b_j in
proportion to the coordinate's own sensitivity that choice is not private at the epsilon it is printed for. What a
practitioner should use is `helpers.erm.coordinate_descent` and `helpers.erm.greedy`.
"""

import math

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from helpers.checks import check_choice, check_integer, check_real
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

_NODES, _WEIGHTS = leggauss(40)
_REACH = np.array([0.0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])  # ends of pieces, in scales of the noise


def printed_variance(limit, n_updates, n_records, epsilon) -> float:
    """The slide's variance of the noise on a mean slope, without its unnamed constant: L T / (n epsilon)^2.

    It is linear in L, where a variance has to be quadratic, and knows no delta: in other units of the loss it is
    another amount of privacy.

    Parameters
    ----------
    limit : float
        L > 0, bound on one record's slope along the coordinate.
    n_updates, n_records : int
        T and n, at least 1.
    epsilon : float
        Above 0.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Mangold's slides, "Contribution 1: DP-CD".

    >>> printed_variance(0.5, 100, 1000, 1.0)
    5e-05
    """
    limit, n_updates, n_records, epsilon = _public(limit, n_updates, n_records, epsilon)
    return limit * n_updates / (n_records * epsilon) ** 2


def published_variance(limit, n_updates, n_records, epsilon, delta) -> float:
    """The paper's variance of the noise on a mean slope, 12 L^2 T log(1/delta) / (n epsilon)^2, for epsilon <= 1.

    Replace-one. The least that suffices is 4 L^2 T / (n mu)^2 with mu = `helpers.privacy.gaussian_mu`.

    Parameters
    ----------
    limit, n_updates, n_records
        As in `printed_variance`.
    epsilon : float
        In (0, 1].
    delta : float
        In (0, 1).

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Mangold, Bellet, Salmon and Tommasi 2022, Theorem 1.

    >>> round(published_variance(0.5, 100, 1000, 1.0, 1e-6), 6)
    0.004145
    """
    limit, n_updates, n_records, epsilon = _public(limit, n_updates, n_records, epsilon)
    check_real("epsilon", epsilon, low=0, high=1, inclusive="high")
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    return 12 * limit**2 * n_updates * math.log(1 / delta) / (n_records * epsilon) ** 2


def gradient_bound(longest, distance, dimension, n_records, mu) -> float:
    """Error of noisy gradients after the best number of small steps: sqrt(p) Lambda ||w* - w_0|| / (n mu).

    The slide's sqrt(p log(1/delta)) Lambda ||W|| / (n epsilon), with its constant: mu = `helpers.privacy.gaussian_mu`
    is about epsilon / sqrt(2 log(1/delta)).

    Parameters
    ----------
    longest : float
        Lambda > 0, bound on the length of one record's gradient; twice that under replace-one.
    distance : float
        Of the minimiser from the start, at least 0.
    dimension, n_records : int
        p and n, at least 1.
    mu : float
        Gaussian parameter of the whole run, above 0.

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Mangold's slides, "Utility of DP-SGD".

    >>> gradient_bound(1.0, 2.0, 4, 100, 0.1)
    0.4
    """
    longest = check_real("longest", longest, low=0, inclusive="neither")
    distance = check_real("distance", distance, low=0)
    dimension, n_records = check_integer("dimension", dimension, low=1), check_integer("n_records", n_records, low=1)
    return math.sqrt(dimension) * longest * distance / (n_records * check_real("mu", mu, low=0, inclusive="neither"))


def coordinate_bound(limits, smoothness, optimum, n_records, mu, *, split="printed") -> float:
    """Error of noisy slopes after the best number of small steps: sqrt(p) ||L||_{1/M} ||w*||_M / (n mu).

    Parameters
    ----------
    limits, smoothness : array (p,)
        L_j and M_j > 0: bounds on one record's slope and on the loss's curvature along each coordinate. Under
        replace-one the limits count twice.
    optimum : array (p,)
        Minimiser, measured from the start.
    n_records, mu
        As in `gradient_bound`.
    split : {"printed", "best"}
        "printed": noise in proportion to L_j. "best": variances in proportion to L_j sqrt(M_j), the least bound for
        the same privacy, with sum_j L_j / sqrt(M_j) in place of sqrt(p) ||L||_{1/M}.

    Raises
    ------
    ValueError
        A parameter out of range, or arrays of different lengths.

    Source: Mangold's slides, "Utility of DP-CD", with the constant 1.

    >>> [round(coordinate_bound([1.0, 0.1], [1.0, 1.0], [1.0, 1.0], 100, 0.1, split=s), 3) for s in ("printed", "best")]
    [0.201, 0.156]
    """
    check_choice("split", split, ("printed", "best"))
    limits, smoothness = _positive("limits", limits), _positive("smoothness", smoothness)
    optimum = np.asarray(optimum, dtype=float)
    if not len(limits) == len(smoothness) == optimum.size:
        raise ValueError(f"limits, smoothness and optimum must be of one length, got {len(limits)} limits")
    ratios = limits / np.sqrt(smoothness)
    size = math.sqrt(len(limits)) * np.linalg.norm(ratios) if split == "printed" else ratios.sum()
    return gradient_bound(float(size), float(np.linalg.norm(np.sqrt(smoothness) * optimum)), 1, n_records, mu)


def descent_bound(smoothness, variances, optimum, excess, n_updates, step=1.0) -> float:
    """Error of the mean of T updates of noisy coordinate descent, coordinates drawn uniformly, convex loss.

    p ||w*||_M^2 / (2 step T) + p excess / ((2 - step) T) + step sum_j s_j^2 / M_j / (2 - step), for steps of length
    step / M_j. Both bounds above are its limit for small steps.

    Parameters
    ----------
    smoothness, optimum
        As in `coordinate_bound`.
    variances : array (p,)
        Of the noise on the mean slope along each coordinate, at least 0.
    excess : float
        Loss at the start less the least loss.
    n_updates : int
        T >= 1.
    step : float
        In (0, 1].

    Raises
    ------
    ValueError
        A parameter out of range, or arrays of different lengths.

    >>> descent_bound([1.0, 1.0], [0.1, 0.1], [1.0, 0.0], 0.5, 20)
    0.3
    """
    smoothness, n_updates = _positive("smoothness", smoothness), check_integer("n_updates", n_updates, low=1)
    variances, optimum = np.asarray(variances, dtype=float), np.asarray(optimum, dtype=float)
    if not smoothness.size == variances.size == optimum.size or not (variances >= 0).all():
        raise ValueError(f"variances must be {smoothness.size} numbers of at least 0, got {variances.tolist()!r}")
    step = check_real("step", step, low=0, high=1, inclusive="high")
    way, p = smoothness @ optimum**2 / (2 * step), len(smoothness)
    noise = step * (variances / smoothness).sum()
    return float(p * way / n_updates + (p * check_real("excess", excess, low=0) / n_updates + noise) / (2 - step))


def greedy_order(limits, smoothness, optimum, n_records, epsilon, delta, *, repaired=False) -> float:
    """Error of greedy coordinate descent as printed, without its constant, or with the factor that it lacks.

    log(1/delta) log(p) L_max^(2/3) ||w*||_{M,1}^(4/3) / (n epsilon)^(2/3). A loss in other units multiplies the error
    by s and this by s^(4/3). `repaired`: (L_j^2 / M_j)^(1/3) at its largest in place of L_max^(2/3), which makes it
    a bound of the same units as the loss.

    Parameters
    ----------
    limits, smoothness, optimum, n_records
        As in `coordinate_bound`; p >= 2.
    epsilon, delta : float
        Above 0, and in (0, 1).

    Raises
    ------
    ValueError
        A parameter out of range, or arrays of different lengths.

    Source: Mangold's slides, "Utility of DP-GCD".

    >>> args = np.ones(2), np.ones(2), np.ones(2), 1000, 1.0, 1e-6
    >>> round(greedy_order(*args), 3), greedy_order(*args) == greedy_order(*args, repaired=True)
    (0.241, True)
    """
    limits, smoothness = _positive("limits", limits), _positive("smoothness", smoothness)
    optimum = np.asarray(optimum, dtype=float)
    if not len(limits) == len(smoothness) == optimum.size > 1:
        raise ValueError(
            f"limits, smoothness and optimum must be of one length of at least 2, got {len(limits)} limits"
        )
    n_records, epsilon = (
        check_integer("n_records", n_records, low=1),
        check_real("epsilon", epsilon, low=0, inclusive="neither"),
    )
    logs = math.log(1 / check_real("delta", delta, low=0, high=1, inclusive="neither")) * math.log(len(limits))
    largest = np.max(limits**2 / smoothness) if repaired else np.max(limits) ** 2
    reach = float(np.sqrt(smoothness) @ np.abs(optimum))
    return float(logs * largest ** (1 / 3) * reach ** (4 / 3) / (n_records * epsilon) ** (2 / 3))


def printed_scales(limits, n_records, epsilon, neighbouring=REPLACE_ONE) -> NDArray[np.float64]:
    """Laplace scales (K,) of a noisy maximum of mean slopes, each from its own sensitivity: 2 c L_j / (n epsilon).

    Parameters
    ----------
    limits : array (K,)
        L_j > 0, bounds on one record's slope along each coordinate.
    n_records, epsilon
        As in `printed_variance`.
    neighbouring : NeighboringRelation
        c = 1 under `ADD_REMOVE`, 2 under `REPLACE_ONE`.

    Raises
    ------
    ValueError
        A parameter out of range.

    >>> printed_scales([0.01, 1.0], 1000, 1.0, ADD_REMOVE).tolist()
    [2e-05, 0.002]
    """
    moved = 1 if check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)) == ADD_REMOVE else 2
    n_records = check_integer("n_records", n_records, low=1)
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    return 2 * moved * _positive("limits", limits) / (n_records * epsilon)


def selection_loss(slopes, neighbour, scales, counts=None) -> float:
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
        How many coordinates are like each one; 1 if left out.

    Raises
    ------
    ValueError
        Arrays of different lengths, or numbers out of range.

    >>> others = np.array([0.0, 0.1]), np.array([0.0, 0.1 - 1e-3])
    >>> round(selection_loss(*others, printed_scales([0.01, 1.0], 1000, 1.0, ADD_REMOVE), [1, 20]), 2)
    10.0
    """
    one, other = (log_choices(g, scales, counts) for g in (slopes, neighbour))
    return float(np.max(np.abs(one - other)))


def selection_delta(slopes, neighbour, scales, epsilon, counts=None) -> float:
    """Smallest delta at `epsilon` for the choice on these two data sets, in either direction.

    Parameters
    ----------
    slopes, neighbour, scales, counts
        As in `selection_loss`.
    epsilon : float
        At least 0.

    Raises
    ------
    ValueError
        As `selection_loss`.

    >>> selection_delta([0.1, 0.2], [0.1, 0.2], [1.0, 1.0], 0.0)
    0.0
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    one, other = (np.exp(log_choices(g, scales, counts)) for g in (slopes, neighbour))
    numbers = _counts(counts, len(one))
    return max(float(numbers @ np.maximum(p - math.exp(epsilon) * q, 0.0)) for p, q in ((one, other), (other, one)))


def log_choices(slopes: ArrayLike, scales: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
    """Log probability (K,) that argmax_j |g_j + Laplace(b_j)| is a given coordinate of each kind.

    The integral over the winner's value of its density times the chance that all others stay below, by Gauss-Legendre
    rules between points where no density or distribution changes by more than a few orders of magnitude.

    Parameters, errors
        As in `selection_loss`.

    >>> np.exp(log_choices([0.0, 0.0], [1.0, 1.0])).round(6).tolist()
    [0.5, 0.5]
    """
    scales = _positive("scales", scales)
    slopes = np.abs(np.asarray(slopes, dtype=float))
    if slopes.shape != scales.shape or not np.isfinite(slopes).all():
        raise ValueError(f"slopes must be {len(scales)} finite numbers, as many as scales, got shape {slopes.shape}")
    numbers = _counts(counts, len(scales))
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


def _counts(counts, size) -> NDArray[np.float64]:
    numbers = np.ones(size) if counts is None else np.asarray(counts, dtype=float)
    if numbers.shape != (size,) or not ((numbers >= 1) & (numbers == np.round(numbers))).all():
        raise ValueError(f"counts must be {size} integers of at least 1, got {counts!r}")
    return numbers


def _positive(name, values) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values) or not ((values > 0) & (values < np.inf)).all():
        raise ValueError(f"{name} must be positive finite numbers (K,), got {values.tolist()!r}")
    return values


def _public(limit, n_updates, n_records, epsilon):
    return (
        check_real("limit", limit, low=0, inclusive="neither"),
        check_integer("n_updates", n_updates, low=1),
        check_integer("n_records", n_records, low=1),
        check_real("epsilon", epsilon, low=0, inclusive="neither"),
    )
