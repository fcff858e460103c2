"""What the printed private threshold leaks: the exact delta of two Gaussian releases whose variances differ.

The classifier that releases a private threshold is `helpers.erm.midpoint`'s.
"""

import math

from scipy.special import ndtr

from checks.two_gaussians import midpoint_sd
from helpers.privacy import gaussian_delta


def flip_delta(n0: int, n1: int, epsilon: float, delta: float, *, change: str = "record") -> dict[str, float]:
    """Exact delta of the printed mechanism when one record leaves class 1 for class 0.

    Parameters
    ----------
    n0, n1 : int
        Counts before; n1 at least 2.
    epsilon, delta : float
        What each class mean is calibrated to. The claim for the pair is (2 epsilon, 2 delta).
    change : {"record", "label", "width"}
        "record": value and label change, and the means move as far as clipped values allow. "label": the value stays.
        "width": the means are left where they are and only the noise scales change (a part of the leak, no neighbour).

    Returns
    -------
    dict
        `minority`: the release of class 1's mean at epsilon; `midpoint`: the released midpoint at 2 epsilon.

    Notes
    -----
    A mean of values in [-R, R] moves by at most 2R/n when a record joins or leaves, n being the larger count. One
    value moves the two means in opposite directions, so with the value kept the midpoint moves by at most R/n1.

    >>> round(flip_delta(400, 20, 0.5, 1e-5, change="width")["minority"], 6)
    0.000128
    """
    moved0, moved1 = {"record": (2 / (n0 + 1), 2 / n1), "label": (0.0, 2 / n1), "width": (0.0, 0.0)}[change]
    multiplier = math.sqrt(2 * math.log(1.25 / delta)) / epsilon  # of the classic noise, in sensitivities
    before, after = (midpoint_sd(*counts, 0.0, 1.0, multiplier)[1] for counts in ((n0, n1), (n0 + 1, n1 - 1)))
    return {
        "minority": two_gaussian_delta(epsilon, moved1, 2 * multiplier / n1, 2 * multiplier / (n1 - 1)),
        "midpoint": two_gaussian_delta(2 * epsilon, (moved0 + moved1) / 2, before, after),
    }


def private_counts_sd(n0: int, n1: int, mean0: float, mean1: float, radius: float, multiplier: float) -> float:
    """Noise part of the midpoint with private counts (replace-one), to first order in 1/n1.

    The sums carry noise 2R m, the count sqrt(2) m, and an error g of n1 moves the midpoint by
    -(mean1/n1 - mean0/n0) g/2.

    >>> round(private_counts_sd(4000, 400, -1.0, 1.0, 5.0, 3.73), 4)
    0.0474
    """
    sums = 2 * radius * math.hypot(1 / n0, 1 / n1)
    count = math.sqrt(2) * (mean1 / n1 - mean0 / n0)
    return multiplier / 2 * math.hypot(sums, count)


def two_gaussian_delta(epsilon: float, shift: float, sd: float, other_sd: float) -> float:
    """Smallest delta for N(0, sd^2) against N(shift, other_sd^2), both ways; exact for unequal variances.

    Parameters
    ----------
    epsilon : float
        At least 0.
    shift : float
        Distance of the means.
    sd, other_sd : float
        Above 0.

    Notes
    -----
    Source: the log likelihood ratio is a quadratic, so the set where it exceeds epsilon is an interval or the
    outside of one. Equal variances: Balle and Wang 2018, Theorem 8.

    >>> round(two_gaussian_delta(1.0, 0.5, 1.0, 1.0), 5), round(two_gaussian_delta(0.5, 0.0, 10.0, 9.0), 5)
    (0.00683, 0.00398)
    """
    return max(_one_way(epsilon, shift, sd, other_sd), _one_way(epsilon, shift, other_sd, sd))


def _one_way(epsilon: float, shift: float, sd: float, other_sd: float) -> float:
    """Excess of N(0, sd^2) over e^epsilon N(shift, other_sd^2)."""
    if sd == other_sd:
        return gaussian_delta(epsilon, abs(shift) / sd)
    # log ratio - epsilon = square x^2 + linear x + constant
    square = (1 / other_sd**2 - 1 / sd**2) / 2
    linear = -shift / other_sd**2
    constant = shift**2 / (2 * other_sd**2) + math.log(other_sd / sd) - epsilon
    discriminant = linear**2 - 4 * square * constant
    if discriminant <= 0:
        return max(-math.expm1(epsilon), 0.0) if square > 0 else 0.0
    low, high = sorted((-linear + sign * math.sqrt(discriminant)) / (2 * square) for sign in (-1, 1))

    def mass(mean, scale):
        left, right = (low - mean) / scale, (high - mean) / scale
        # Between the ends by the tail that is smaller, so that digits survive far out.
        inside = ndtr(-left) - ndtr(-right) if left > 0 else ndtr(right) - ndtr(left)
        return ndtr(left) + ndtr(-right) if square > 0 else inside

    return float(max(mass(0.0, sd) - math.exp(epsilon) * mass(shift, other_sd), 0.0))
