"""Upper and lower bounds on the error of a private threshold between two Gaussian classes, as printed and corrected."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import integrate
from scipy.special import ndtr, ndtri

from checks.two_gaussians import midpoint_sd


def upper_bound(
    n0: int, n1: int, sd: float, radius: float, multiplier: float, beta: float, version: str = "corrected"
) -> float:
    """An error of the midpoint that is exceeded with probability at most beta/2, when `radius` is that of `radius_for`.

    Parameters
    ----------
    multiplier : float
        Noise in units of a mean's sensitivity; sqrt(2 log(1.25/delta))/epsilon in the paper.
    version : {"corrected", "printed"}
        "corrected": the standard deviation times the normal quantile at 1 - beta/8: beta/4 for clipping and beta/4 for
        the normal. "printed": 2 sqrt(log(4/beta)) and four times the sampling variance; true, but loose.

    Notes
    -----
    Source: Differential Privacy Under Class Imbalance, Proposition 12.

    >>> [round(upper_bound(1000, 50, 1.0, 5.0, 9.69, 0.1, version), 2) for version in ("printed", "corrected")]
    [3.77, 2.18]
    """
    sampling, noise = midpoint_sd(n0, n1, sd, radius, multiplier)
    printed = 2 * math.sqrt(math.log(4 / beta)) * math.hypot(2 * sampling, noise)
    return {"printed": printed, "corrected": float(ndtri(1 - beta / 8)) * math.hypot(sampling, noise)}[version]


def lower_bound(n0: int, n1: int, sd: float, beta: float, version: str = "corrected") -> float:
    """The distance of the lower bound of Proposition 12.

    "corrected": for every estimator, private or not, some means make its error at least this with probability at
    least beta; the maximum likelihood estimator attains it. "printed": twice that, which no theorem supports: an
    estimator that is constant is exact for some means.

    >>> [round(lower_bound(1000, 50, 1.0, 0.1, version), 3) for version in ("printed", "corrected")]
    [0.238, 0.119]
    """
    sampling, _ = midpoint_sd(n0, n1, sd, 1.0, 0.0)
    return float(ndtri(1 - beta / 2)) * sampling * {"printed": 2, "corrected": 1}[version]


def least_average_miss(beta: float, half_range: float) -> float:
    """Least probability, over all estimators, of missing a normal mean by z_{1 - beta/2} standard deviations or more.

    The mean is uniform on [-half_range, half_range] (in standard deviations), so the value is a lower bound on the
    maximum over that range; it tends to beta as the range grows.

    Notes
    -----
    Source: the Bayes estimator; given x, the posterior is a normal cut off at the ends, and the best interval is
    the one nearest to x that lies inside.

    >>> round(least_average_miss(0.1, 20.0), 3), round(least_average_miss(0.1, 1000.0), 4)
    (0.092, 0.0998)
    """
    z = float(ndtri(1 - beta / 2))

    def best(x):
        centre = np.clip(x, z - half_range, half_range - z)
        return ndtr(centre + z - x) - ndtr(centre - z - x)

    edge, _ = integrate.quad(best, half_range - z, half_range + 12)
    middle = (1 - beta) * (half_range - z)
    return float(1 - (middle + edge) / half_range)


def clipped_mean_errors(
    n: int, sd: float, radius: float, mean: float, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Errors of `draws` means of n clipped normals, every value drawn, in blocks of about four million.

    Returns
    -------
    array of shape (draws,)
        Mean of the clipped values minus `mean`.
    """
    block = max(4_000_000 // n, 1)
    errors = np.empty(draws)
    for start in range(0, draws, block):
        values = rng.standard_normal((min(block, draws - start), n), dtype=np.float32)
        np.clip(values, (-radius - mean) / sd, (radius - mean) / sd, out=values)
        errors[start : start + len(values)] = sd * values.mean(axis=1, dtype=np.float64)
    return errors
