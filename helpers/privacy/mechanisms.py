"""The mechanisms the chapters use: noisy values, noisy choices, and private class counts.

Each takes the sensitivity with its neighbouring relation, and returns the value together with the `Guarantee` it was
released under; public parameters are checked before private ones are looked at. Noise comes from `secure_generator`;
a generator that the caller brings (for public data, tests and pages) is named in the guarantee's `assumes`. That the
stated sensitivity is true, and that the private values are finite, is the caller's promise.

**Integers are exact.** `discrete_laplace` and `class_counts` draw by integer arithmetic alone: epsilon is the stated
one, to the last digit.

**Reals are not**, and say so by `EXACT_REALS` in `assumes`. A floating-point sampler reaches few of the numbers that
its density covers, and which ones it can add up to depends on the private value: of 10^6 outputs of value 1 plus
`Generator.laplace()`, 80 % cannot be had from value 0 with any noise, so each of them tells the two apart for certain
(Mironov 2012). So every real-valued release is rounded to a public grid of about 2^-20 of the noise's scale
(`to_grid`), which costs nothing and leaves 0 of 10^6: a grid point can be missed only where the noise is beyond 20
scales, two in 10^9 entries, and at 7 scales its odds are off by about a millionth.
Choices among candidates have their probabilities to about 2^-52 each. Running times are not covered.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, LaplaceDpEvent, NeighboringRelation
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from helpers.checks import check_boolean, check_choice, check_integer, check_real
from helpers.privacy.accounting import ADD_REMOVE, REPLACE_ONE, gaussian_mu
from helpers.privacy.guarantees import RELATION_NAMES, Guarantee
from helpers.privacy.randomness import noise_assumptions, secure_generator

EXACT_REALS = "exact real arithmetic"

# From the largest norm of a vector to the smallest, so a bound on one also bounds those after it.
_NORMS = ("l1", "l2", "linf")
_GAUSSIAN_SOURCES = {
    "analytic": "Balle and Wang 2018, Theorem 9",
    "classic": "Dwork and Roth 2014, Theorem A.1",
}
_GRID_BITS = 20
_LARGEST_COUNT = 1 << 62
# Noisy counts are raised to one record before they become priors.
_SMALLEST_COUNT = 1.0


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

    >>> Sensitivity(1.0, ADD_REMOVE, "l1").replace_one().value
    2.0
    """

    value: float
    neighbouring: NeighboringRelation
    norm: str

    def __post_init__(self):
        object.__setattr__(self, "value", check_real("value", self.value, low=0, inclusive="high"))
        check_choice("neighbouring", self.neighbouring, (ADD_REMOVE, REPLACE_ONE))
        check_choice("norm", self.norm, _NORMS)

    def replace_one(self) -> "Sensitivity":
        """The replace-one sensitivity that follows: replacing is removing and adding, so at most twice this.

        Source: triangle inequality.

        >>> Sensitivity(0.5, REPLACE_ONE, "l2").replace_one().value
        0.5
        """
        if self.neighbouring is REPLACE_ONE:
            return self
        return replace(self, value=2 * self.value, neighbouring=REPLACE_ONE)


class Release(NamedTuple):
    """A value that may be published, and the guarantee it was released under."""

    value: Any
    guarantee: Guarantee


# Noisy values


def laplace(
    value: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator | None = None
) -> Release:
    """`value` plus independent Laplace noise of scale sensitivity / epsilon: pure epsilon-DP.

    Parameters
    ----------
    value : float or array
        Private. The release has its shape.
    sensitivity : Sensitivity
        In l1 (any norm for a single number); the guarantee has its relation.
    epsilon : float
        Above 0.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        A public parameter is out of range or the norm is not the one needed.

    Notes
    -----
    Source: Dwork, McSherry, Nissim and Smith 2006, Proposition 1.

    >>> released = laplace(10.0, Sensitivity(1.0, ADD_REMOVE, "l1"), 0.5, np.random.default_rng(0))
    >>> round(released.value, 2), str(released.guarantee)
    (10.64, '(0.5, 0)-DP, add/remove-one')
    """
    epsilon, rng = _check_public(sensitivity, epsilon), _source(rng)
    scale = _noise_scale(sensitivity, epsilon)
    value = _as_floats(value, sensitivity, "l1")
    noisy = to_grid(value + rng.laplace(scale=scale, size=value.shape), scale)
    source = "Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006, Proposition 1)"
    return Release(_unwrap(noisy), _pure(sensitivity, epsilon, source, rng, LaplaceDpEvent(1 / epsilon)))


def discrete_laplace(
    value: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator | None = None
) -> Release:
    """Integers plus independent two-sided geometric noise: pure epsilon-DP, exactly.

    Noise k has probability proportional to exp(-epsilon |k| / sensitivity). Not up to rounding: epsilon is read as the
    fraction that its double is, and noise is drawn from random bits by integer arithmetic.

    Parameters
    ----------
    value : int or array of an integer type
        Private. The release has its shape, as int64, or is an int; beyond 2^62 in size it is cut to that.
    sensitivity : Sensitivity
        A whole number, in l1 (any norm for a single number); the guarantee has its relation.
    epsilon : float
        Above 0.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        A public parameter is out of range, the norm is not the one needed, or `value` is not of an integer type.

    Notes
    -----
    Source: Ghosh, Roughgarden and Sundararajan 2012; drawn by Canonne, Kamath and Steinke 2020, Algorithm 2.

    >>> released = discrete_laplace(10, Sensitivity(1.0, ADD_REMOVE, "l1"), 0.5, np.random.default_rng(0))
    >>> released.value, str(released.guarantee)
    (6, '(0.5, 0)-DP, add/remove-one')
    """
    epsilon, rng = _check_public(sensitivity, epsilon), _source(rng)
    if sensitivity.value != int(sensitivity.value):
        raise ValueError(f"sensitivity must be a whole number for integers, got {sensitivity.value!r}")
    value = np.asarray(value)
    if value.dtype.kind not in "iu":
        raise ValueError(f"value must be of an integer type, got {value.dtype}")
    _check_size(value, sensitivity, "l1")
    rate = Fraction(epsilon) / int(sensitivity.value)
    noisy = [number + _two_sided_geometric(rate, rng) for number in value.ravel().tolist()]
    within = np.array([min(max(number, -_LARGEST_COUNT), _LARGEST_COUNT) for number in noisy]).reshape(value.shape)
    guarantee = Guarantee(
        epsilon,
        0.0,
        sensitivity.neighbouring,
        DiscreteLaplaceDpEvent(float(rate), int(sensitivity.value)),
        noise_assumptions(rng),
        "discrete Laplace mechanism (Canonne, Kamath and Steinke 2020, Algorithm 2)",
    )
    return Release(int(within) if within.ndim == 0 else within, guarantee)


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


def gaussian(
    value: ArrayLike,
    sensitivity: Sensitivity,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
    calibration: str = "analytic",
) -> Release:
    """`value` plus independent Gaussian noise: (epsilon, delta)-DP.

    Parameters
    ----------
    value : float or array
        Private. The release has its shape.
    sensitivity : Sensitivity
        In l2; an l1 bound will do, being larger. The guarantee has its relation.
    epsilon : float
        Above 0; below 1 for the classic calibration.
    delta : float
        In (0, 1).
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.
    calibration : {"analytic", "classic"}
        See `gaussian_multiplier`.

    Returns
    -------
    Release
        The event of the guarantee holds the noise actually used, which with the classic calibration is more
        than needed.

    Raises
    ------
    ValueError
        A public parameter is out of range or the norm is not the one needed.

    Notes
    -----
    Source: Balle and Wang 2018, Theorem 9 (analytic); Dwork and Roth 2014, Theorem A.1 (classic).

    >>> released = gaussian(10.0, Sensitivity(1.0, ADD_REMOVE, "l2"), 1.0, 1e-5, np.random.default_rng(0))
    >>> round(released.value, 2), str(released.guarantee)
    (10.47, '(1, 1e-05)-DP, add/remove-one')
    """
    epsilon, rng = _check_public(sensitivity, epsilon), _source(rng)
    multiplier = gaussian_multiplier(epsilon, delta, calibration)
    scale = _noise_scale(sensitivity, 1 / multiplier)
    value = _as_floats(value, sensitivity, "l2")
    noisy = to_grid(value + rng.normal(scale=scale, size=value.shape), scale)
    guarantee = Guarantee(
        epsilon,
        delta,
        sensitivity.neighbouring,
        GaussianDpEvent(multiplier),
        (EXACT_REALS, *noise_assumptions(rng)),
        f"Gaussian mechanism ({_GAUSSIAN_SOURCES[calibration]})",
    )
    return Release(_unwrap(noisy), guarantee)


def gaussian_multiplier(epsilon: float, delta: float, calibration: str = "analytic") -> float:
    """Standard deviation of the Gaussian mechanism for l2 sensitivity 1.

    Parameters
    ----------
    epsilon : float
        Above 0; below 1 for the classic calibration, whose proof ends there and whose claim is false for
        large epsilon.
    delta : float
        In (0, 1).
    calibration : {"analytic", "classic"}
        "analytic" is the least noise that suffices; "classic" is sqrt(2 log(1.25/delta))/epsilon.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Source: Balle and Wang 2018, Theorem 9 (analytic); Dwork and Roth 2014, Theorem A.1 (classic).

    >>> round(gaussian_multiplier(0.5, 1e-5), 2), round(gaussian_multiplier(0.5, 1e-5, "classic"), 2)
    (7.03, 9.69)
    """
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    if check_choice("calibration", calibration, ("analytic", "classic")) == "analytic":
        return 1 / gaussian_mu(epsilon, delta)
    if epsilon >= 1:
        raise ValueError(f"epsilon must be below 1 for the classic calibration, got {epsilon!r}")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def k_norm(
    value: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator | None = None
) -> Release:
    """`value` plus noise of density proportional to exp(-epsilon ||b||_2 / sensitivity): pure epsilon-DP.

    Parameters
    ----------
    value : float or array
        Private. The release has its shape; the norm is that of the flattened array.
    sensitivity : Sensitivity
        In l2; an l1 bound will do, being larger. The guarantee has its relation.
    epsilon : float
        Above 0.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        A public parameter is out of range, the norm is not the one needed, or `value` has no entry.

    Notes
    -----
    Source: Hardt and Talwar 2010, Section 4; Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1.

    >>> released = k_norm([0.0, 0.0], Sensitivity(1.0, REPLACE_ONE, "l2"), 2.0, np.random.default_rng(0))
    >>> released.value.round(2).tolist(), str(released.guarantee)
    ([0.91, -0.96], '(2, 0)-DP, replace-one')
    """
    epsilon, rng = _check_public(sensitivity, epsilon), _source(rng)
    scale = _noise_scale(sensitivity, epsilon)
    value = _as_floats(value, sensitivity, "l2")
    noisy = to_grid(value + spherical_gamma(value.size, 1 / scale, rng).reshape(value.shape), scale)
    source = "K-norm mechanism (Hardt and Talwar 2010, Section 4)"
    return Release(_unwrap(noisy), _pure(sensitivity, epsilon, source, rng))


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


def spherical_gamma(dimension: int, rate: float, rng: np.random.Generator | None = None) -> NDArray[np.float64]:
    """One draw, of shape (dimension,), from the density proportional to exp(-rate ||b||_2).

    The direction is uniform and the norm is Gamma distributed with shape `dimension` and scale 1 / rate.

    Parameters
    ----------
    dimension : int
        At least 1.
    rate : float
        Inverse units of the noise, above 0.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

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
    rate, rng = check_real("rate", rate, low=0, inclusive="neither"), _source(rng)
    direction = rng.normal(size=dimension)
    return direction / np.linalg.norm(direction) * rng.gamma(dimension, 1 / rate)


# Noisy choices


def exponential(
    scores: ArrayLike,
    sensitivity: Sensitivity,
    epsilon: float,
    rng: np.random.Generator | None = None,
    *,
    monotonic: bool = False,
) -> Release:
    """Index of a candidate, drawn with probability proportional to exp(epsilon score / (2 sensitivity)).

    Parameters
    ----------
    scores : array of shape (n_candidates,)
        Private; larger is better. The number of candidates is public.
    sensitivity : Sensitivity
        Largest change of any one score ("linf"; the larger l1 and l2 bounds will do). The guarantee has its
        relation.
    epsilon : float
        Above 0.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.
    monotonic : bool
        Promise that adding a record never lowers a score (or never raises one), as with counts. Then the
        normalising constant moves in the same direction as the scores, the factor 2 is not needed and is
        dropped. Add/remove only: a replaced record raises some scores and lowers others.

    Returns
    -------
    Release
        The value is an int.

    Raises
    ------
    ValueError
        A public parameter is out of range, or `scores` is not a non-empty vector.

    Notes
    -----
    Source: McSherry and Talwar 2007, Theorem 6; for monotonic scores, the argument above.

    >>> released = exponential([1.0, 5.0], Sensitivity(1.0, ADD_REMOVE, "linf"), 2.0, np.random.default_rng(0))
    >>> released.value, str(released.guarantee)
    (1, '(2, 0)-DP, add/remove-one')
    """
    rng = _source(rng)
    probabilities = exponential_probabilities(scores, sensitivity, epsilon, monotonic=monotonic)
    assumes = ("scores monotone in the records",) if monotonic else ()
    source = "exponential mechanism (McSherry and Talwar 2007, Theorem 6)"
    choice = int(rng.choice(probabilities.size, p=probabilities))
    return Release(choice, _pure(sensitivity, epsilon, source, rng, assumes=assumes))


def exponential_probabilities(
    scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, *, monotonic: bool = False
) -> NDArray[np.float64]:
    """Probability with which `exponential` draws each candidate; private, as the scores are.

    Parameters, errors and source as in `exponential`; the result has shape (n_candidates,).

    >>> exponential_probabilities([0.0, 1.0], Sensitivity(1.0, ADD_REMOVE, "linf"), 2.0).round(4).tolist()
    [0.2689, 0.7311]
    """
    epsilon = _check_public(sensitivity, epsilon)
    if check_boolean("monotonic", monotonic) and sensitivity.neighbouring is not ADD_REMOVE:
        raise ValueError(
            f"neighbouring must be add/remove-one for monotonic scores, got {RELATION_NAMES[sensitivity.neighbouring]}"
        )
    scale = (1 if monotonic else 2) * sensitivity.value
    return softmax(epsilon / scale * _as_scores(scores))


def report_noisy_max(
    scores: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator | None = None
) -> Release:
    """Index of the largest score after each got exponential noise of mean 2 sensitivity / epsilon.

    The choice has the distribution of permute-and-flip, whose expected score is never below that of the
    exponential mechanism at the same epsilon. Scores need not be monotone. Only the index is released, not
    the noisy score.

    Parameters
    ----------
    scores : array of shape (n_candidates,)
        Private; larger is better. The number of candidates is public.
    sensitivity : Sensitivity
        Largest change of any one score ("linf"; the larger l1 and l2 bounds will do). The guarantee has its
        relation.
    epsilon : float
        Above 0.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

    Returns
    -------
    Release
        The value is an int.

    Raises
    ------
    ValueError
        A public parameter is out of range, or `scores` is not a non-empty vector.

    Notes
    -----
    Source: McKenna and Sheldon 2020, Theorem 1; equality with noisy max: Ding et al. 2021.

    >>> released = report_noisy_max([1.0, 9.0], Sensitivity(1.0, ADD_REMOVE, "linf"), 2.0, np.random.default_rng(0))
    >>> released.value, str(released.guarantee)
    (1, '(2, 0)-DP, add/remove-one')
    """
    epsilon, rng = _check_public(sensitivity, epsilon), _source(rng)
    scores = _as_scores(scores)
    noisy = scores + rng.exponential(2 * sensitivity.value / epsilon, size=scores.shape)
    source = "report noisy max with exponential noise (McKenna and Sheldon 2020, Theorem 1)"
    return Release(int(np.argmax(noisy)), _pure(sensitivity, epsilon, source, rng))


# Class counts


def class_counts(
    y: ArrayLike,
    classes: ArrayLike,
    epsilon: float,
    neighbouring: NeighboringRelation,
    rng: np.random.Generator | None = None,
) -> Release:
    """Noisy number of records of each class: pure epsilon-DP, exactly.

    The counts are disjoint, so as a vector they move by 1 in l1 when a record is added or removed, and by 2 when one is
    replaced. With two classes and replace-one, where the number of records is public, one count is enough: the second
    class's moves by 1 and the first class is the rest, so both have half the noise.

    Parameters
    ----------
    y : array of shape (n,)
        Private labels; empty classes are counted as 0. Those outside `classes` are not counted (with two classes and
        replace-one: they are counted as the first class).
    classes : array of shape (n_classes,)
        Public and distinct, never taken from `y`: that a class occurs at all is private.
    epsilon : float
        Above 0.
    neighbouring : NeighboringRelation
        `ADD_REMOVE` or `REPLACE_ONE`.
    rng : numpy.random.Generator, optional
        Left out: `secure_generator`. One that is given has to be secret, and `assumes` says so.

    Returns
    -------
    Release
        The value is an array of shape (n_classes,) of int64, which may be negative.

    Raises
    ------
    ValueError
        A public parameter is out of range, or `y` is not one-dimensional.

    Notes
    -----
    Source: Dwork, McSherry, Nissim and Smith 2006 (histograms); noise as in `discrete_laplace`.

    >>> released = class_counts([0, 0, 0, 1], [0, 1], 1.0, ADD_REMOVE, np.random.default_rng(0))
    >>> released.value.tolist(), str(released.guarantee)
    ([0, 1], '(1, 0)-DP, add/remove-one')
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    classes, rng = _check_classes(classes), _source(rng)
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y must be one-dimensional, got shape {y.shape}")
    counts = np.array([np.count_nonzero(y == label) for label in classes])
    if neighbouring is REPLACE_ONE and classes.size == 2:
        counts[0] = y.size - counts[1]
    noisy, guarantee = noisy_class_counts(counts, epsilon, neighbouring, rng)
    size = ("number of records public",) if neighbouring is REPLACE_ONE and classes.size == 2 else ()
    return Release(noisy, replace(guarantee, assumes=("class list", *size, *guarantee.assumes)))


def noisy_class_counts(
    counts: NDArray[np.integer], epsilon: float, neighbouring: NeighboringRelation, rng: np.random.Generator
) -> Release:
    """`class_counts` from the exact numbers (n_classes,) of records of each class."""
    if neighbouring is REPLACE_ONE and counts.size == 2:
        second, guarantee = discrete_laplace(counts[1], Sensitivity(1.0, neighbouring, "l1"), epsilon, rng)
        return Release(np.array([counts.sum() - second, second]), guarantee)
    change = Sensitivity(1.0 if neighbouring is ADD_REMOVE else 2.0, neighbouring, "l1")
    return discrete_laplace(counts, change, epsilon, rng)


def class_priors(
    y: ArrayLike,
    classes: ArrayLike,
    epsilon: float,
    neighbouring: NeighboringRelation,
    rng: np.random.Generator | None = None,
) -> Release:
    """Positive class proportions that add up to 1, computed from `class_counts` alone, hence with its
    guarantee.

    Noisy counts below one record are raised to one, so an empty class gets a small prior, and no records at
    all give priors near 1 / n_classes when epsilon is large.

    Parameters, errors and source as in `class_counts` (and post-processing: Dwork and Roth 2014, Proposition
    2.1).

    Returns
    -------
    Release
        The value is an array of shape (n_classes,).

    >>> class_priors([0] * 30 + [1] * 10, [0, 1], 1.0, ADD_REMOVE, np.random.default_rng(0)).value.round(2).tolist()
    [0.73, 0.27]
    """
    counts, guarantee = class_counts(y, classes, epsilon, neighbouring, rng)
    positive = np.maximum(counts, _SMALLEST_COUNT)
    return Release(positive / positive.sum(), guarantee)


def _check_classes(classes: ArrayLike) -> NDArray:
    classes = np.asarray(classes)
    if classes.ndim != 1 or classes.size == 0 or np.unique(classes).size < classes.size:
        raise ValueError(f"classes must be a non-empty vector of distinct labels, got {classes.tolist()!r}")
    return classes


def _check_public(sensitivity: Sensitivity, epsilon: float) -> float:
    if not isinstance(sensitivity, Sensitivity):
        raise ValueError(f"sensitivity must be a Sensitivity, got {sensitivity!r}")
    return check_real("epsilon", epsilon, low=0, inclusive="neither")


def _source(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        return secure_generator()
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy.random.Generator or None, got {rng!r}")
    return rng


def _noise_scale(sensitivity: Sensitivity, rate: float) -> float:
    """sensitivity / rate, refused where a double cannot hold it."""
    return check_real("sensitivity / epsilon", sensitivity.value / rate, low=0, inclusive="neither")


def _as_floats(value: ArrayLike, sensitivity: Sensitivity, norm: str) -> NDArray[np.float64]:
    """The private value as an array, refused where the sensitivity's norm does not bound the one needed."""
    value = np.asarray(value, dtype=float)
    _check_size(value, sensitivity, norm)
    return value


def _check_size(value: NDArray, sensitivity: Sensitivity, norm: str) -> None:
    if value.size == 0:
        raise ValueError(f"value must not be empty, got shape {value.shape}")
    if value.size > 1 and _NORMS.index(sensitivity.norm) > _NORMS.index(norm):
        raise ValueError(f"sensitivity must be in {norm} for a vector, got {sensitivity.norm!r}")


def _as_scores(scores: ArrayLike) -> NDArray[np.float64]:
    scores = np.asarray(scores, dtype=float)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"scores must be a non-empty vector, got shape {scores.shape}")
    return scores


def _unwrap(value: NDArray[np.float64]) -> float | NDArray[np.float64]:
    return float(value) if value.ndim == 0 else value


def _pure(
    sensitivity: Sensitivity,
    epsilon: float,
    source: str,
    rng: np.random.Generator,
    event: DpEvent | None = None,
    assumes: tuple[str, ...] = (),
) -> Guarantee:
    assumes = (*assumes, EXACT_REALS, *noise_assumptions(rng))
    return Guarantee(epsilon, 0.0, sensitivity.neighbouring, event, assumes, source)
