"""How long the noise vector of private empirical risk minimisation is."""

import math

from scipy.special import gammaincinv

from helpers.validation import check_choice

METHODS = ("derived", "printed")


def noise_norm_bound(dimension: int, rate: float, failure: float, *, method: str = "derived") -> float:
    """A number that ||b|| exceeds with probability at most `failure`, b of density prop. to exp(-rate ||b||).

    The norm is Gamma(dimension, 1/rate). "derived" is its exact quantile, "printed" the union bound over the
    `dimension` exponential variables whose sum has that law: dimension log(dimension/failure) / rate.

    Parameters
    ----------
    dimension : int
        d >= 1.
    rate : float
        > 0, in 1 / (units of b).
    failure : float
        delta in (0, 1).

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Lemma 4.

    >>> [round(noise_norm_bound(100, 0.5, 0.05, method=m), 1) for m in ("derived", "printed")]
    [234.0, 1520.2]
    """
    if check_choice("method", method, METHODS) == "printed":
        return dimension * math.log(dimension / failure) / rate
    return float(gammaincinv(dimension, 1 - failure)) / rate
