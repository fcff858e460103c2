"""Noise calibration of private empirical risk minimisation: what a budget buys, from public numbers alone.

`class_weights` is the only place where the weights' formula stands, and `Weighting` holds what a privacy proof needs to
know about it: how far one record can move the weighted sum of the losses. `calibrate` and `calibrate_gaussian` turn a
privacy budget into the noise and the penalty of objective perturbation, `largest_move` says how far one record
moves a minimiser. Every constant is proved for the exact minimiser; what is lost between it and a solver's result is a
part of the budget of its own (`helpers.erm.perturbation`).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

from helpers.erm.losses import LOGISTIC, Loss, Softmax
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, NeighboringRelation
from helpers.validation import check_boolean, check_choice, check_integer, check_real

_LARGEST_EPSILON = 700.0  # e^epsilon overflows a little above this, and nothing is promised there anyway
_SMALLEST = 1e-300  # stands for no penalty of one's own, so that the calibration raises it to what it asks for
_NOTHING_LEFT = (
    "epsilon must exceed what the Jacobian costs when regularization may not be raised, got {!r}; "
    "raise epsilon, regularization or n_records"
)


class Weighting(NamedTuple):
    """What a change of one record can do to the weights.

    Attributes
    ----------
    mass : float
        Bound on sum_i |w_i - w_i'| over the records that stay, plus the weights of the record that leaves and of the
        one that enters. Times the length of a record it bounds how far the sum of the gradients moves.
    gained : float
        Bound on the part of `mass` that is more weight in one of the two data sets: only that can raise its Jacobian
        determinant over the other's.
    own : float
        Bound on the part of `gained` that belongs to the record that enters or leaves, whose Hessian has a low rank;
        the part of the other records is at most gained - own.
    """

    mass: float
    gained: float
    own: float


def fixed_weights(largest: float = 1.0, neighbouring: NeighboringRelation = REPLACE_ONE) -> Weighting:
    """Weights that are a public function of the record alone, at most `largest`.

    >>> fixed_weights()
    Weighting(mass=2.0, gained=1.0, own=1.0)
    """
    largest = check_real("largest", largest, low=0, inclusive="high")
    moved = 1.0 if check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)) == ADD_REMOVE else 2.0
    return Weighting(moved * largest, largest, largest)


def balanced_weights(n_classes: int = 2) -> Weighting:
    """The inverse-frequency weights of `class_weights`, which move for every record when one label changes.

    Write H = 1/sum_k (1/n_k). A class has weight H/n_k, hence the whole of it H. Moving a record from class a to class
    b changes H by at most 1, so each of the K - 2 other classes moves by at most 1 in total; the classes a and b
    together move by 2 (w_a + w_b') <= 2 - 2/(n_a + n_b), half of it the weights of the record that leaves and enters.
    Adding a record moves at most as much.

    >>> balanced_weights(2)
    Weighting(mass=2.0, gained=2.0, own=1.0)
    """
    most = float(check_integer("n_classes", n_classes, low=2))
    return Weighting(most, most, 1.0)


UNWEIGHTED = fixed_weights()
BALANCED = balanced_weights()


def class_weights(counts: ArrayLike) -> NDArray[np.float64]:
    """Inverse-frequency weights of the classes, between 0 and 1.

    Two classes: w_k = n_other / n, also where a class is empty (a class of all records then weighs 0). More classes:
    w_k = (1/n_k) / sum_j (1/n_j), with 1 in place of the count of an empty class. scikit-learn's "balanced" weights,
    n / (K n_k), have no bound, and leaving an empty class out would change all other weights by order 1.

    Parameters
    ----------
    counts : array (K,)
        Numbers of records, or public estimates of them, at least 0 and not all 0.

    Returns
    -------
    ndarray (K,)

    Raises
    ------
    ValueError
        Fewer than two classes, negative counts, or no records.

    Source: Differential Privacy Under Class Imbalance, Equation (4).

    >>> class_weights([90, 10]), class_weights([10, 0]), class_weights([6, 3, 2]).round(3)
    (array([0.1, 0.9]), array([0., 1.]), array([0.167, 0.333, 0.5  ]))
    """
    counts = np.asarray(counts, dtype=float)
    if counts.ndim != 1 or len(counts) < 2 or not np.all(counts >= 0) or not 0 < counts.sum() < np.inf:
        raise ValueError(f"counts must be at least two non-negative numbers, not all 0, got {counts.tolist()!r}")
    if len(counts) == 2:
        return counts[::-1] / counts.sum()
    inverse = 1 / np.maximum(counts, 1)
    return inverse / inverse.sum()


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


def calibrate(
    *,
    epsilon: float,
    n_records: int,
    regularization: float,
    radius: float = 1.0,
    loss: Loss | Softmax = LOGISTIC,
    weighting: Weighting = UNWEIGHTED,
    raise_regularization: bool = True,
) -> Calibration:
    """Constants of objective perturbation, the best that are proved here.

    Let T = R^2 / (n L) and g = noise_rate R, with L the total penalty. A change of one record moves b by at most
    mass R, and raises the Jacobian's log determinant by at most gained c T.

    * A loss that cannot pull and bend at once (logistic, softmax) needs nothing for the Jacobian once T <= free_ratio
      g. So L is raised to mass steepness R^2 / (free_ratio n epsilon), for logistic loss 2 R^2 / (n epsilon), and the
      whole of epsilon goes to the noise. If L may not be raised, g solves own_cost + (gained - own) cost(g, T) +
      (mass - gained) steepness g = epsilon, about a square root in epsilon.
    * Other losses pay log(1 + own c T) + (gained - own) c T, the changed record by its rank and the others by the
      trace norm; L is raised until that is at most epsilon/2. Without weights under replace-one, epsilon/4: this is
      the L of the published fallback, at 1.5 times its noise rate.

    Parameters
    ----------
    epsilon : float
        Budget, in (0, 700].
    n_records : int
        n >= 1, public.
    regularization : float
        lambda > 0.
    radius : float
        Public bound R > 0 on a record's norm.
    loss : Loss or Softmax
    weighting : Weighting
        What one record does to the weights; it belongs to a neighbouring relation.
    raise_regularization : bool
        Whether more than `regularization` may be used.

    Raises
    ------
    ValueError
        A parameter out of range; or epsilon does not cover the Jacobian and `raise_regularization` is False.

    Source: proved in the chapters on private and on weighted private ERM.

    >>> calibrate(epsilon=1.0, n_records=1000, regularization=1e-3)
    Calibration(noise_rate=0.5, total_regularization=0.002)
    """
    epsilon = check_real("epsilon", epsilon, low=0, high=_LARGEST_EPSILON, inclusive="high")
    n_records = check_integer("n_records", n_records, low=1)
    regularization = check_real("regularization", regularization, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    # T of the docstring is this over the total penalty L.
    bend = radius**2 / n_records
    if check_boolean("raise_regularization", raise_regularization):
        if loss.free_ratio > 0:
            # The largest T at which the Jacobian costs nothing when the whole of epsilon goes to the noise.
            limit = loss.free_ratio * epsilon / (weighting.mass * loss.steepness)
        else:
            # Without weights the Jacobian may cost a quarter of epsilon under replace-one: L is then that of the
            # published fallback, which leaves less of epsilon to the noise.
            plain = weighting.gained == weighting.own
            limit = _ratio_of_share(weighting.own / (2 * weighting.mass) if plain else 0.5, epsilon, loss, weighting)
        regularization = max(regularization, bend / limit)

    ratio, pull = bend / regularization, weighting.mass * loss.steepness
    whole = epsilon / pull
    # The tolerance is for a penalty that was raised to just this limit, up to rounding.
    if ratio <= loss.free_ratio * whole * (1 + 1e-14):
        return Calibration(whole / radius, regularization)  # no record can pull and bend at once
    # The largest g that one of two theorems allows: a share for the determinant, or both together, record by record.
    g = (epsilon - determinant_cost(ratio, loss, weighting)) / pull
    if joint_cost(whole, ratio, loss, weighting) <= epsilon * (1 + 1e-14):
        g = max(g, whole)
    elif joint_cost(0.0, ratio, loss, weighting) < epsilon:
        # The cost grows with g: it is below epsilon at 0 and above it at `whole`.
        g = max(g, brentq(lambda g: joint_cost(g, ratio, loss, weighting) - epsilon, 0.0, whole, xtol=1e-15))
    if g <= 0:
        raise ValueError(_NOTHING_LEFT.format(epsilon))
    return Calibration(g / radius, regularization)


def calibrate_gaussian(
    *,
    epsilon: float,
    delta: float,
    n_records: int,
    regularization: float,
    radius: float = 1.0,
    loss: Loss | Softmax = LOGISTIC,
    weighting: Weighting = UNWEIGHTED,
    raise_regularization: bool = True,
) -> tuple[float, float]:
    """Constants of (epsilon, delta)-DP objective perturbation with Gaussian noise; see `gaussian_objective_delta`.

    For logistic loss L is raised to mass R^2 / (n epsilon) and the Jacobian costs nothing: where the loss exceeds
    epsilon, some record's (z_i)_+ is so large that its best slope is 1, where it does not bend. Otherwise L is raised
    until the Jacobian costs at most epsilon/2.

    Parameters
    ----------
    epsilon, n_records, regularization, radius, loss, weighting, raise_regularization
        As in `calibrate`.
    delta : float
        In (0, 1).

    Returns
    -------
    scale, total_regularization : float
        Standard deviation of each coordinate of the noise b, and lambda + Delta.

    Raises
    ------
    ValueError
        As in `calibrate`.

    Source: Kifer, Smith and Thakurta 2012; Redberg, Koskela and Wang 2023 for a fixed direction.

    >>> scale, total = calibrate_gaussian(epsilon=1.0, delta=1e-6, n_records=1000, regularization=1e-2)
    >>> round(scale, 3), total
    (8.674, 0.01)
    """
    epsilon = check_real("epsilon", epsilon, low=0, high=_LARGEST_EPSILON, inclusive="high")
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    n_records = check_integer("n_records", n_records, low=1)
    regularization = check_real("regularization", regularization, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    bend = radius**2 / n_records
    if check_boolean("raise_regularization", raise_regularization):
        # Of the losses here only the logistic one: a record of slope 1, the steepest, does not bend.
        free = loss.free_ratio >= 1
        limit = epsilon / weighting.mass if free else _ratio_of_share(0.5, epsilon, loss, weighting)
        regularization = max(regularization, bend / limit)
    # For logistic loss the determinant adds nothing at small T.
    nothing = loss.free_ratio >= 1 and bend / regularization <= epsilon / weighting.mass * (1 + 1e-14)
    jacobian = 0.0 if nothing else determinant_cost(bend / regularization, loss, weighting)
    if jacobian >= epsilon:
        raise ValueError(_NOTHING_LEFT.format(epsilon))
    low, high = 1e-12 * epsilon, 1.0
    while gaussian_objective_delta(epsilon, high, jacobian) < delta:
        high *= 2
    # 0 is underflow, not privacy: such shifts are far below the one sought.
    shift = brentq(lambda a: gaussian_objective_delta(epsilon, a, jacobian) - delta, low, high, xtol=1e-14)
    # The shift is how far one record moves b, in standard deviations of the noise.
    return float(weighting.mass * loss.steepness * radius / shift), regularization


def gaussian_objective_delta(epsilon: float, shift: float, jacobian: float = 0.0) -> float:
    """Delta at `epsilon` of objective perturbation with Gaussian noise, whatever direction the noise moves in.

    When a label changes, every record moves b a little, in proportions that depend on the output: b moves by sum m_i
    p_i u_i with sum m_i <= mass, 0 <= p_i <= 1 and u_i fixed, in no fixed direction. Under the neighbour's noise, the
    loss is at most jacobian + sum (m_i/mass) shift (z_i)_+ with z_i standard normal (or shorter), and since (e^x -
    e^epsilon)_+ is convex, delta is at most its mean for a single z: e^{jacobian + shift^2/2} Phi(shift - z0) -
    e^epsilon Phi(-z0), z0 = (epsilon - jacobian)/shift. This is for margin losses. A softmax record pulls along the
    largest of K - 1 such z_i, and delta is at most K - 1 times as large.

    Parameters
    ----------
    epsilon : float
        > `jacobian`.
    shift : float
        mass steepness R / noise_scale, > 0.
    jacobian : float
        What the log determinant can change by, >= 0; 0 for logistic loss if epsilon >= mass T.

    >>> round(gaussian_objective_delta(1.0, 0.25), 7)
    5.1e-06
    """
    cut = (epsilon - jacobian) / shift
    # Logarithms of the two terms of delta, which is their difference: each may overflow or vanish by itself.
    above = jacobian + shift**2 / 2 + log_ndtr(shift - cut)
    below = epsilon + log_ndtr(-cut)
    return float(min(1.0, math.exp(min(above, 700.0)) * -math.expm1(min(below - above, 0.0))))


def largest_move(
    *,
    n_records: int,
    regularization: float,
    radius: float = 1.0,
    loss: Loss | Softmax = LOGISTIC,
    weighting: Weighting = UNWEIGHTED,
) -> float:
    """How far the minimiser moves at most when one record changes: mass steepness R / (n lambda).

    Parameters
    ----------
    n_records, regularization, radius, loss, weighting
        As in `calibrate`.

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Corollary 8; weights by `Weighting`.

    >>> largest_move(n_records=100, regularization=0.5)
    0.04
    """
    return weighting.mass * loss.steepness * radius / (n_records * regularization)


def default_regularization(
    n_records: int,
    dimension: int,
    epsilon: float,
    *,
    delta: float = 0.0,
    radius: float = 1.0,
    largest_norm: float = 10.0,
    loss: Loss | Softmax = LOGISTIC,
    weighting: Weighting = UNWEIGHTED,
) -> float:
    """A penalty that needs no private data: pure noise moves the coefficients by largest_norm/R on average.

    Without a signal the minimiser is -b/(n lambda). At the rate of a penalty where the Jacobian is free b has mean
    length mass steepness R d / epsilon, which is 2 R d / epsilon for the logistic loss without weights or with balanced
    ones; Gaussian noise, sqrt(d) standard deviations.

    Parameters
    ----------
    n_records, dimension : int
        n and d (coefficients, the intercept included), public.
    epsilon : float
        Budget.
    radius : float
        R, public bound on a record's norm.
    largest_norm : float
        Of the coefficients times R, above 0.
    delta : float
        0, or in (0, 1) for Gaussian noise.
    loss, weighting
        As in `calibrate`.

    >>> default_regularization(1000, 10, 1.0)
    0.002
    """
    n_records = check_integer("n_records", n_records, low=1)
    dimension = check_integer("dimension", dimension, low=1)
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    radius = check_real("radius", radius, low=0, inclusive="neither")
    largest_norm = check_real("largest_norm", largest_norm, low=0, inclusive="neither")
    if check_real("delta", delta, low=0, high=1, inclusive="low") > 0:
        problem: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "n_records": n_records, "radius": radius}
        # The scale at the least penalty that the calibration allows; a larger penalty needs no more noise.
        scale, _ = calibrate_gaussian(**problem, regularization=_SMALLEST, loss=loss, weighting=weighting)
        return math.sqrt(dimension) * scale * radius / (largest_norm * n_records)
    return weighting.mass * loss.steepness * dimension * radius**2 / (largest_norm * n_records * epsilon)


def _ratio_of_share(share, epsilon, loss, weighting) -> float:
    """Largest T at which the determinant's change costs at most that share of epsilon."""
    high = 1.0
    while determinant_cost(high, loss, weighting) < share * epsilon:
        high *= 2
    return brentq(lambda ratio: determinant_cost(ratio, loss, weighting) - share * epsilon, 0.0, high, xtol=1e-300)


def determinant_cost(ratio: float, loss: Loss | Softmax, weighting: Weighting) -> float:
    """Bound on the log determinant's change: the changed record by its rank, all others by the trace norm."""
    others = (weighting.gained - weighting.own) * loss.curvature * ratio
    return loss.log_determinant(weighting.own * ratio) + others


def joint_cost(g: float, ratio: float, loss: Loss | Softmax, weighting: Weighting) -> float:
    """Bound on the privacy loss that looks at a record's pull and bend together."""
    own = loss.own_cost(weighting.own * g, weighting.own * ratio)
    others = (weighting.gained - weighting.own) * loss.cost(g, ratio)
    return own + others + (weighting.mass - weighting.gained) * loss.steepness * g
