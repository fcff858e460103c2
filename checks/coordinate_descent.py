"""Noise and error of private coordinate descent as they are printed, with the constants that make them comparable.

`printed_variance` is the slide's. `gradient_bound` and `coordinate_bound` are the printed utilities with constant 1,
`descent_bound` what they follow from (the proof is on the page app-coordinate-descent). What a practitioner should use
is `helpers.erm.coordinate_descent`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike


def printed_variance(limit: float, n_updates: int, n_records: int, epsilon: float) -> float:
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

    Source: Mangold's slides, "Contribution 1: DP-CD".

    >>> printed_variance(0.5, 100, 1000, 1.0)
    5e-05
    """
    return limit * n_updates / (n_records * epsilon) ** 2


def gradient_bound(longest: float, distance: float, dimension: int, n_records: int, mu: float) -> float:
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

    Source: Mangold's slides, "Utility of DP-SGD".

    >>> gradient_bound(1.0, 2.0, 4, 100, 0.1)
    0.4
    """
    return math.sqrt(dimension) * longest * distance / (n_records * mu)


def coordinate_bound(
    limits: ArrayLike, smoothness: ArrayLike, optimum: ArrayLike, n_records: int, mu: float, *, split: str = "printed"
) -> float:
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

    Source: Mangold's slides, "Utility of DP-CD", with the constant 1.

    >>> [round(coordinate_bound([1.0, 0.1], [1.0, 1.0], [1.0, 1.0], 100, 0.1, split=s), 3) for s in ("printed", "best")]
    [0.201, 0.156]
    """
    limits, roots = np.asarray(limits, dtype=float), np.sqrt(smoothness)
    ratios = limits / roots
    size = {"printed": math.sqrt(len(limits)) * np.linalg.norm(ratios), "best": ratios.sum()}[split]
    return gradient_bound(float(size), float(np.linalg.norm(roots * np.asarray(optimum))), 1, n_records, mu)


def descent_bound(
    smoothness: ArrayLike, variances: ArrayLike, optimum: ArrayLike, excess: float, n_updates: int, step: float = 1.0
) -> float:
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

    >>> descent_bound([1.0, 1.0], [0.1, 0.1], [1.0, 0.0], 0.5, 20)
    0.3
    """
    smoothness, variances, optimum = (np.asarray(values, dtype=float) for values in (smoothness, variances, optimum))
    way, p = smoothness @ optimum**2 / (2 * step), len(smoothness)
    noise = step * (variances / smoothness).sum()
    return float(p * way / n_updates + (p * excess / n_updates + noise) / (2 - step))
