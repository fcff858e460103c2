"""How much risk the noise of private empirical risk minimisation costs, as bounds with every constant explicit.

Each bound holds with a stated probability for every distribution on the unit ball. For the noise, `method="printed"`
has the constants of Chaudhuri, Monteleoni and Sarwate 2011 and `method="derived"` those that the same quantities allow.
What the paper quotes with an unnamed constant, the error of estimation, is derived here either way.
Privacy is not decided here: the rate of the noise comes from a calibration.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from checks.noise_norm import noise_norm_bound
from helpers.erm.losses import LOGISTIC
from helpers.privacy import furthest
from helpers.validation import check_choice

MECHANISMS = ("output", "objective")

_SHELL = 1.25  # ratio of neighbouring radii in the union bound over norms; between 1.1 and 1.5 it hardly matters
_SHELLS = range(1, 60)  # all that can exceed the innermost, and many more


class ExcessBound(NamedTuple):
    """Upper bound on L(f_priv) - L(f_0) as the sum of its parts, in units of the loss.

    Attributes
    ----------
    noise : float
        What the privacy noise adds to the regularised empirical risk.
    estimation : float
        What the sample says wrongly about the released classifier, after the penalty has paid its share.
    regularization : float
        lambda ||f_0||^2 / 2.
    sampling : float
        What the sample says wrongly about f_0.
    """

    noise: float
    estimation: float
    regularization: float
    sampling: float

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(self)


def empirical_gap_bound(
    mechanism: str,
    *,
    n_records: int,
    dimension: int,
    noise_rate: float,
    regularization: float,
    failure: float,
    curvature: float = LOGISTIC.curvature,
    method: str = "derived",
) -> float:
    """Bound on J(f_priv) - min J that fails with probability at most `failure`, for fixed data in the unit ball.

    Output perturbation: J is (curvature + lambda)-smooth and its gradient vanishes at the minimiser, so the gap is at
    most (curvature + lambda) ||b||^2 / 2. Objective perturbation: the gradient of J at the output is -b/n and J is
    lambda-strongly convex, so the gap is at most ||b||^2 / (2 n^2 lambda), half of what the paper finds.

    Parameters
    ----------
    mechanism : {"output", "objective"}
    n_records, dimension : int
        n and d, both at least 1.
    noise_rate : float
        Of the vector added to the minimiser ("output"), or of the linear term b ("objective").
    regularization : float
        lambda > 0, the whole of it (lambda + Delta).
    failure : float
        In (0, 1).
    curvature : float
        c > 0, bound on the second derivative of the loss.
    method : {"derived", "printed"}
        "printed" are Lemmas 3 and 5 with the true rate of the noise in place of epsilon / 2.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Lemmas 3 and 5.

    >>> size = dict(n_records=1000, dimension=5, noise_rate=0.5, regularization=0.01, failure=0.05)
    >>> [round(empirical_gap_bound("objective", **size, method=m), 4) for m in ("derived", "printed")]
    [0.0168, 0.2121]
    """
    check_choice("mechanism", mechanism, MECHANISMS)
    squared = noise_norm_bound(dimension, noise_rate, failure, method=method) ** 2
    if mechanism == "output":
        return (curvature + regularization) / 2 * squared
    gap = squared / (n_records**2 * regularization)
    return gap if method == "printed" else gap / 2


def excess_loss_bound(
    mechanism: str, *, n_records: int, regularization: float, comparator_norm: float, failure: float, **problem: Any
) -> ExcessBound:
    """Bound on L(f_priv) - L(f_0) that fails with probability at most 2 `failure`, for n independent records.

    The empirical gap counts once. What the sample says wrongly about the released classifier is bounded for all
    classifiers at once (`estimation_error`), so that neither its norm nor a quoted theorem enters.

    Parameters
    ----------
    comparator_norm : float
        ||f_0|| > 0.
    failure : float
        delta in (0, 1/2): half of the probability that the bound fails.
    n_records, regularization, problem
        As in `empirical_gap_bound`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Theorems 3 and 4; proved in the chapter on sample sizes.

    >>> size = dict(n_records=10**4, dimension=10, noise_rate=0.5, regularization=1e-2, comparator_norm=3, failure=0.05)
    >>> [round(excess_loss_bound("objective", **size, method=m).total, 4) for m in ("derived", "printed")]
    [0.386, 0.3968]
    """
    size: dict[str, Any] = {"n_records": n_records, "regularization": regularization}
    gap = empirical_gap_bound(mechanism, **size, failure=failure, **problem)
    estimation = estimation_error(failure / 2) / (regularization * n_records)
    sampling = comparator_norm * math.sqrt(2 * math.log(2 / failure) / n_records)
    return ExcessBound(gap, estimation, regularization * comparator_norm**2 / 2, sampling)


def estimation_error(failure: float) -> float:
    """E such that sup_f L(f) - risk(f) - lambda ||f||^2/2 <= E / (lambda n), except with probability `failure`.

    Within radius B the supremum of L - risk is at most B a / sqrt(n), a = 2 + sqrt(2 log(1/failure)): symmetrisation
    and contraction give 2 B/sqrt(n), bounded differences the rest. Shell j = 0, 1, 2, ... has the radius B_j = k r^j /
    (lambda sqrt(n)) and the share 1/((j + 1)(j + 2)) of the failure; inside it at least lambda B_{j-1}^2/2 is the
    penalty's. So E is the largest of k a_0 and k (r^j a_j - k r^(2j - 2)/2), with k = r^2 a_0/2. The penalty grows
    faster than a_j, and no largest norm is needed.

    >>> round(estimation_error(0.025), 1)
    25.9
    """

    def slope(j):
        return 2 + math.sqrt(2 * math.log((j + 1) * (j + 2) / failure))

    k = _SHELL**2 * slope(0) / 2
    return k * max(slope(0), *(_SHELL**j * slope(j) - k * _SHELL ** (2 * j - 2) / 2 for j in _SHELLS))


def sufficient_constant() -> int:
    """A whole C with which Equation 42 and Theorems 3 and 4 hold for every failure delta below 1/2.

    With lambda = target/||f_0||^2 and n = C x the printed maximum, half of the target is the penalty's. Of the rest,
    with D = log(1/delta), estimation takes at most E(delta/2)/(C D), sampling sqrt(2 log(2/delta)/(C D)) and the noise
    4/C^2 on the output, 8/C^2 in the objective, where C >= 4 makes epsilon' at least epsilon/2. All shrink when D
    grows, so delta = 1/2 decides.

    Source: proved in the chapter on sample sizes.

    >>> sufficient_constant()
    99
    """

    def shares(constant):
        """Parts of the target that estimation, sampling and noise take at n = `constant` times the maximum."""
        each = constant * math.log(2)
        return estimation_error(0.25) / each + math.sqrt(2 * math.log(4) / each) + 8 / constant**2

    return math.ceil(furthest(lambda c: shares(c) <= 0.5, 10**6, 4, relative=1e-9))


def sample_size(bound: Callable[[int], float], target: float) -> int:
    """Smallest n, up to 0.1 %, at which a bound that decreases with n is at most `target`.

    Parameters
    ----------
    bound : callable
        From n (int) to a number; infinite where nothing is promised.
    target : float
        > 0.

    >>> sample_size(lambda n: 1000 / n, 0.5)
    2000
    """
    high = 1
    while bound(high) > target:
        high *= 2
    return int(furthest(lambda n: bound(int(n)) <= target, high, max(high // 2, 1), relative=1e-3))
