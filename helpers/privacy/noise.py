"""How noise is drawn, and with which probabilities choices are made: the laws themselves, without records or bills.

What draws here on behalf of a release is the `Ledger`, which knows the sensitivity and writes the bill.

**Integers are exact.** `discrete_laplace` draws by integer arithmetic alone: epsilon is the stated one, to the last
digit.

**Reals are not**, and a release says so by `EXACT_REALS` in `assumes`. A floating-point sampler reaches few of the
numbers that its density covers, and which ones it can add up to depends on the private value: of 10^6 outputs of value
1 plus `Generator.laplace()`, 80 % cannot be had from value 0 with any noise, so each of them tells the two apart for
certain (Mironov 2012). So every real-valued release is rounded to a public grid of about 2^-20 of the noise's scale
(`to_grid`), which costs nothing and leaves 0 of 10^6: a grid point can be missed only where the noise is beyond 20
scales, two in 10^9 entries, and at 7 scales its odds are off by about a millionth.
Choices among candidates have their probabilities to about 2^-52 each. Running times are not covered.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from helpers.checks import check_boolean, check_choice, check_integer, check_real
from helpers.privacy.accounting import ADD_REMOVE, REPLACE_ONE
from helpers.privacy.guarantees import RELATION_NAMES

EXACT_REALS = "exact real arithmetic"
NORMS = ("l1", "l2", "linf")
"""From the largest norm of a vector to the smallest, so a bound on one also bounds those after it."""
_GRID_BITS = 20
_LARGEST_COUNT = 1 << 62


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a query between neighbouring data sets.

    Parameters
    ----------
    value : float
        In the units of the query, above 0.
    neighbouring : NeighboringRelation
        `ADD_REMOVE` or `REPLACE_ONE`.
    norm : {"l1", "l2", "linf"}
        Norm of the change; the three coincide for a single number. A vector of scores to choose from has an
        "linf" one.

    Raises
    ------
    ValueError
        A field is out of range.

    Notes
    -----
    Source: Dwork, McSherry, Nissim and Smith 2006, Definition 2.

    >>> Sensitivity(1, ADD_REMOVE, "l1").value
    1.0
    """

    value: float
    neighbouring: NeighboringRelation
    norm: str

    def __post_init__(self):
        object.__setattr__(self, "value", check_real("value", self.value, low=0, inclusive="high"))
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        check_choice("norm", self.norm, NORMS)


# Values


def to_grid(value: ArrayLike, scale: float) -> NDArray[np.float64]:
    """`value` rounded to multiples of a power of two between 2^-21 and 2^-20 of `scale`.

    After noise of that scale it hides which floating-point numbers the noise can reach, and being post-processing it
    takes nothing from the guarantee. Numbers too large for such a multiple to change stay as they are.

    Parameters
    ----------
    value : float or array
        Noisy already.
    scale : float
        Public, above 0: that of the noise.

    Raises
    ------
    ValueError
        `scale` is out of range.

    Notes
    -----
    Source: Mironov 2012, whose snapping mechanism also replaces the sampler.

    >>> float(to_grid(math.pi, 2.0**10))
    3.1416015625
    """
    exponent = math.frexp(check_real("scale", scale, low=0, inclusive="neither"))[1] - 1 - _GRID_BITS
    value = np.asarray(value, dtype=float)
    with np.errstate(over="ignore"):
        steps = np.rint(np.ldexp(value, -exponent))
        return np.where(np.isfinite(steps), np.ldexp(steps, exponent), value)


def spherical_gamma(dimension: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw, of shape (dimension,), from the density proportional to exp(-rate ||b||_2).

    The direction is uniform and the norm is Gamma distributed with shape `dimension` and scale 1 / rate.

    Parameters
    ----------
    dimension : int
        At least 1.
    rate : float
        Inverse units of the noise, above 0.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1.

    >>> round(float(np.linalg.norm(spherical_gamma(3, 2.0, np.random.default_rng(0)))), 2)
    1.42
    """
    dimension = check_integer("dimension", dimension, low=1)
    rate = check_real("rate", rate, low=0, inclusive="neither")
    direction = rng.normal(size=dimension)
    return direction / np.linalg.norm(direction) * rng.gamma(dimension, 1 / rate)


def discrete_laplace(value: NDArray[np.integer], rate: Fraction, rng: np.random.Generator) -> NDArray[np.int64]:
    """Integers plus independent noise k with probability proportional to exp(-rate |k|), drawn from random bits.

    Not up to rounding: the rate is a fraction, and all arithmetic is on integers. Results beyond 2^62 in size are cut
    to that.

    Source: Ghosh, Roughgarden and Sundararajan 2012; drawn by Canonne, Kamath and Steinke 2020, Algorithm 2.

    >>> discrete_laplace(np.array([10, 20]), Fraction(1, 2), np.random.default_rng(0)).tolist()
    [6, 20]
    """
    noisy = [number + _two_sided_geometric(rate, rng) for number in value.ravel().tolist()]
    return np.array([min(max(number, -_LARGEST_COUNT), _LARGEST_COUNT) for number in noisy]).reshape(value.shape)


def _two_sided_geometric(rate: Fraction, rng: np.random.Generator) -> int:
    """An integer k with probability proportional to exp(-rate |k|), exactly."""
    while True:
        # X = part + whole * denominator has probability proportional to exp(-X / denominator).
        part = _integer_below(rate.denominator, rng)
        if not _bernoulli_exp(part, rate.denominator, rng):
            continue
        whole = 0
        while _bernoulli_exp(1, 1, rng):
            whole += 1
        size = (part + whole * rate.denominator) // rate.numerator
        negative = _integer_below(2, rng)
        if size or not negative:  # zero must not come with two signs
            return -size if negative else size


def _bernoulli_exp(numerator: int, denominator: int, rng: np.random.Generator) -> bool:
    """True with probability exp(-x), x = numerator / denominator in [0, 1].

    The first k at which a coin of probability x/k fails is odd with probability 1 - x + x^2/2 - ... = exp(-x).
    """
    k = 1
    while _integer_below(k * denominator, rng) < numerator:
        k += 1
    return k % 2 == 1


def _integer_below(limit: int, rng: np.random.Generator) -> int:
    """Uniform on 0, ..., limit - 1, by rejection."""
    bits = (limit - 1).bit_length()
    while True:
        number = int.from_bytes(rng.bytes((bits + 7) // 8), "big") >> (-bits % 8)
        if number < limit:
            return number


def noisy_class_counts(
    counts: NDArray[np.integer], epsilon: float, neighbouring: NeighboringRelation, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Exact numbers (n_classes,) of records of each class with the noise that makes them epsilon-DP, exactly.

    The counts are disjoint, so as a vector they move by 1 in l1 when a record is added or removed, and by 2 when one is
    replaced. With two classes and replace-one, where the number of records is public, one count is enough: the second
    class's moves by 1 and the first class is the rest, so both have half the noise.

    Source: Dwork, McSherry, Nissim and Smith 2006 (histograms).
    """
    if neighbouring is REPLACE_ONE and counts.size == 2:
        second = discrete_laplace(counts[1], Fraction(epsilon), rng)
        return np.array([counts.sum() - second, second])
    return discrete_laplace(counts, Fraction(epsilon) / (1 if neighbouring is ADD_REMOVE else 2), rng)


# Choices


def exponential_probabilities(
    scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, *, monotonic: bool = False
) -> NDArray[np.float64]:
    """Probability (n_candidates,) of each candidate in the exponential mechanism; private, as the scores are.

    It is proportional to exp(epsilon score / (2 sensitivity)).

    Parameters
    ----------
    scores : array of shape (n_candidates,)
        Private; larger is better. The number of candidates is public.
    sensitivity : Sensitivity
        Largest change of any one score ("linf"; the larger l1 and l2 bounds will do).
    epsilon : float
        Above 0.
    monotonic : bool
        Promise that adding a record never lowers a score (or never raises one), as with counts. Then the
        normalising constant moves in the same direction as the scores, the factor 2 is not needed and is
        dropped. Add/remove only: a replaced record raises some scores and lowers others.

    Raises
    ------
    ValueError
        A public parameter is out of range, or `scores` is not a non-empty vector.

    Source: McSherry and Talwar 2007, Theorem 6; for monotonic scores, the argument above.

    >>> exponential_probabilities([0.0, 1.0], Sensitivity(1.0, ADD_REMOVE, "linf"), 2.0).round(4).tolist()
    [0.2689, 0.7311]
    """
    check_sensitivity(sensitivity)
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    if check_boolean("monotonic", monotonic) and sensitivity.neighbouring is not ADD_REMOVE:
        raise ValueError(
            f"neighbouring must be add/remove-one for monotonic scores, got {RELATION_NAMES[sensitivity.neighbouring]}"
        )
    scale = (1 if monotonic else 2) * sensitivity.value
    return softmax(epsilon / scale * as_scores(scores))


def exponential_choice(
    scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator, *, monotonic: bool = False
) -> int:
    """Position of a candidate, drawn with `exponential_probabilities`."""
    probabilities = exponential_probabilities(scores, sensitivity, epsilon, monotonic=monotonic)
    return int(rng.choice(probabilities.size, p=probabilities))


def noisy_max(scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator) -> int:
    """Position of the largest score after each got exponential noise of mean 2 sensitivity / epsilon.

    Source: McKenna and Sheldon 2020, Theorem 1 (permute and flip); equality with noisy max: Ding et al. 2021.
    """
    scores = as_scores(scores)
    return int(np.argmax(scores + rng.exponential(2 * sensitivity.value / epsilon, size=scores.shape)))


def check_sensitivity(sensitivity: Sensitivity) -> None:
    """Refuse what does not say its relation and norm."""
    if not isinstance(sensitivity, Sensitivity):
        raise ValueError(f"sensitivity must be a Sensitivity, got {sensitivity!r}")


def as_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """A vector of scores; anything else is refused."""
    scores = np.asarray(scores, dtype=float)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"scores must be a non-empty vector, got shape {scores.shape}")
    return scores
