"""Losses of linear classification, with the constants that privacy proofs and the solver need.

A margin loss looks at m = s z'beta, where z is a record's feature vector and s = +1 or -1 its class; the softmax loss
looks at K scores, one a class, whose sum is zero. Sums over records are left to `helpers.erm.risk`, and what the
constants mean for the noise to `helpers.erm.calibration`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.special import expit

from helpers.validation import check_integer, check_real


@dataclass(frozen=True)
class Loss:
    """A convex margin loss, differentiable with a slope of at most 1 and a second derivative almost everywhere.

    Attributes
    ----------
    slope, bend : callable
        First and second derivative with respect to the margin m = s z'beta, elementwise.
    curvature : float
        c, an upper bound of the second derivative.
    twist : callable, optional
        Third derivative; only the search for worst cases follows it.
    joint : callable, optional
        (g, t) -> sup over margins of g |slope| + t bend, for g, t >= 0. Left out, g + t curvature stands in, which is
        right for losses whose largest slope and largest bend occur together.
    own_joint : callable, optional
        The same with log(1 + t bend), for a single record: its Hessian has rank one.
    free_ratio : float
        Largest t/g at which that supremum is just g: bending then costs nothing beside the slope.
    bend_at_slope : callable, optional
        `bend` as a function of `slope`, where that is cheaper; for the solver.
    shift : float
        What is added to a margin before its slope is looked up: it rounds off more than a small margin does.
    smooth : bool
        Whether the second derivative is continuous.
    """

    slope: Callable[[np.ndarray], np.ndarray]
    bend: Callable[[np.ndarray], np.ndarray]
    curvature: float
    twist: Callable[[np.ndarray], np.ndarray] | None = None
    joint: Callable[[float, float], float] | None = None
    own_joint: Callable[[float, float], float] | None = None
    free_ratio: float = 0.0
    bend_at_slope: Callable[[np.ndarray], np.ndarray] | None = None
    shift: float = 0.0
    smooth: bool = True

    steepness = 1.0  # largest slope; `Softmax` has another

    def cost(self, g: float, t: float) -> float:
        """Supremum of g |slope| + t bend over all margins.

        >>> LOGISTIC.cost(1.0, 1.0), LOGISTIC.cost(1.0, 3.0)
        (1.0, 1.3333333333333333)
        """
        return g + t * self.curvature if self.joint is None else self.joint(g, t)

    def own_cost(self, g: float, t: float) -> float:
        """Supremum of g |slope| + log(1 + t bend) over all margins.

        >>> round(LOGISTIC.own_cost(1.0, 3.0), 4)
        1.1965
        """
        return g + self.log_determinant(t) if self.own_joint is None else self.own_joint(g, t)

    def log_determinant(self, t: float) -> float:
        """Most that one record of weight t can add to a log determinant."""
        return math.log1p(t * self.curvature)


def _logistic() -> Loss:
    """log(1 + exp(-m)), whose record of slope -p bends by p(1 - p)."""

    def slope(margins):
        return -expit(-margins)

    def bend(margins):
        return expit(margins) * expit(-margins)

    def twist(margins):
        return bend(margins) * (expit(-margins) - expit(margins))

    def joint(g, t):
        # The maximum of g p + t p(1 - p) over p; where g >= t it is at p = 1.
        return g if g >= t else (g + t) ** 2 / (4 * t)

    def own_joint(g, t):
        if g >= t:
            return g
        # Where the derivative in p vanishes: g t p^2 + (2 - g) t p - (g + t) = 0.
        b = (2 - g) * t
        # The positive root, in the form in which no digits cancel.
        p = 2 * (g + t) / (b + math.sqrt(b * b + 4 * g * t * (g + t)))
        return g * p + math.log1p(t * p * (1 - p))

    def bend_at_slope(slope):
        return -slope * (1 + slope)

    return Loss(slope, bend, 0.25, twist, joint, own_joint, free_ratio=1.0, bend_at_slope=bend_at_slope)


LOGISTIC = _logistic()


def huber(h: float) -> Loss:
    """The Huber SVM loss: 0 for margins above 1 + h, 1 - m below 1 - h, and (1 + h - m)^2 / (4h) between.

    Its second derivative is 1/(2h) between and 0 elsewhere. Largest slope and largest bend meet at m = 1 - h, so
    nothing is saved by looking at both together.

    Parameters
    ----------
    h : float
        Half the width of the quadratic piece, in [1e-10, 1e10].

    Source: Chaudhuri, Monteleoni and Sarwate 2011, Section 3.4.2.

    >>> huber(0.5).curvature, float(huber(0.5).slope(np.array(1.0)))
    (1.0, -0.5)
    """
    h = check_real("h", h, low=1e-10, high=1e10)

    def slope(margins):
        return -np.clip((1 + h - margins) / (2 * h), 0.0, 1.0)

    def bend(margins):
        return np.where(np.abs(1 - np.asarray(margins)) <= h, 1 / (2 * h), 0.0)

    return Loss(slope, bend, 1 / (2 * h), np.zeros_like, shift=1 + h, smooth=False)


@dataclass(frozen=True)
class Softmax:
    """Constants of the softmax loss of K classes on rows of norm at most 1.

    Scores that add up to zero over the classes lose nothing, because the softmax does not see a common shift: the
    parameter is C of shape (K - 1, d), the scores are Z C'Q with Q = `zero_sum_basis`, and noise is needed in (K - 1) d
    dimensions instead of K d.

    The gradient of a record is (p - e_y) x', of norm at most sqrt(2); its Hessian has the trace 1 - sum p_k^2 <= 1 -
    1/K. With v = 1 - p_y and r the norm of p - e_y, the trace is 2v - r^2 <= min(2, 2r sqrt((K - 1)/K)) - r^2, which is
    0 where r is largest: a record cannot pull and bend at once.

    Parameters
    ----------
    n_classes : int
        K >= 2.

    >>> Softmax(4).curvature, round(Softmax(4).cost(1.0, 0.1), 4)
    (0.75, 1.4142)
    """

    n_classes: int

    steepness = math.sqrt(2)
    free_ratio = 1 / (2 * math.sqrt(2))
    shift = 0.0
    smooth = True

    def __post_init__(self):
        check_integer("n_classes", self.n_classes, low=2)

    @property
    def curvature(self) -> float:
        """Largest trace of the Hessian."""
        return 1 - 1 / self.n_classes

    def cost(self, g: float, t: float) -> float:
        """Bound on g (norm of the gradient) + t (trace of the Hessian) over all predictions; concave in r."""
        slant = math.sqrt(self.curvature)
        if t == 0:
            return g * self.steepness
        # The bound on the trace is 2 r slant - r^2 for small r and 2 - r^2 beyond r = 1/slant: the maximum of either
        # piece.
        rising = (g + 2 * t * slant) / (2 * t)
        falling = min(max(g / (2 * t), 1 / slant), self.steepness)
        r = rising if rising * slant <= 1 else falling
        return g * r + t * (2 * min(1.0, r * slant) - r * r)

    def own_cost(self, g: float, t: float) -> float:
        """The smaller of two bounds on one record's share of the loss."""
        return min(self.cost(g, t), g * self.steepness + self.log_determinant(t))

    def log_determinant(self, t: float) -> float:
        """Most that one record of weight t can add to a log determinant: its Hessian has rank K - 1."""
        return (self.n_classes - 1) * math.log1p(t * self.curvature / (self.n_classes - 1))


def zero_sum_basis(n_classes: int) -> NDArray[np.float64]:
    """Matrix Q (K - 1, K) with orthonormal rows, each of which sums to zero over the K classes.

    Scores C'Q with free C (K - 1,) are all vectors of K scores that sum to zero, and ||C|| is their length.

    >>> zero_sum_basis(2).round(3)
    array([[ 0.707, -0.707]])
    """
    return helmert(n_classes)
