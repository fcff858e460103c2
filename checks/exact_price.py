"""The exact price of objective perturbation: the least epsilon that holds for given constants, and what comes near.

With noise rate g and stiffness S = n (lambda + Delta), one record pulls with p <= steepness and bends with v. For
margin losses the privacy loss never exceeds

    add/remove   sup over margins of  g R p + log(1 + v R^2/S),
    replace-one  g R more,

and comes as near to it as one likes when n grows and d >= 2: `price`. For the softmax `softmax_price` is the same
supremum over predictions; it is attained under add/remove for d >= K, and an upper bound under replace-one.
`constructed_loss` exhibits data that come near.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize as descend
from scipy.special import softmax

from checks.exact_loss import privacy_loss
from helpers.erm.losses import LOGISTIC, Loss
from helpers.privacy import REPLACE_ONE, NeighboringRelation

_WIDEST = 40.0  # margins beyond which no loss used here bends
_SQRT2 = math.sqrt(2)


def quartic(h: float) -> Loss:
    """The smooth hinge of fourth degree: 0 above 1 + h, 1 - m below 1 - h, curvature 3/(4h) at most between.

    Parameters
    ----------
    h : float
        Half the width of the bend, in [1e-10, 1e10].

    Source: Chapelle 2007; Chaudhuri, Monteleoni and Sarwate 2011, Equation 23.

    >>> quartic(0.5).curvature, float(quartic(0.5).slope(np.array(1.0)))
    (1.5, -0.5)
    """

    def place(margins):  # 1 where the bend begins, -1 where it ends
        return np.clip((1 - np.asarray(margins)) / h, -1, 1)

    def slope(margins):
        return -(2 + 3 * place(margins) - place(margins) ** 3) / 4

    def bend(margins):
        return 3 * (1 - place(margins) ** 2) / (4 * h)

    return Loss(slope, bend, 3 / (4 * h))


class Price(NamedTuple):
    """The least epsilon that holds for every n, and the margin of the record that costs it.

    Attributes
    ----------
    epsilon : float
    margin : float
        Infinite or far out where the supremum is that of a misclassified record without curvature.
    """

    epsilon: float
    margin: float


def price(
    noise_rate: float,
    stiffness: float,
    *,
    loss: Loss = LOGISTIC,
    radius: float = 1.0,
    neighbouring: NeighboringRelation = REPLACE_ONE,
) -> Price:
    """The exact epsilon of objective perturbation with a margin loss, over all n, data and outputs, d >= 2.

    Parameters
    ----------
    noise_rate : float
        The noise b has density proportional to exp(-noise_rate ||b||).
    stiffness : float
        n (lambda + Delta), > 0.
    loss : Loss
    radius : float
        Bound R > 0 on a record's norm.
    neighbouring : NeighboringRelation

    Source: the theorem on the exact epsilon in the chapter on private ERM.

    >>> from helpers.privacy import ADD_REMOVE
    >>> price(0.5, 2.0).epsilon, round(price(0.5, 0.5, neighbouring=ADD_REMOVE).epsilon, 4)
    (1.0, 0.7013)
    """
    pull, bend = noise_rate * radius, radius**2 / stiffness
    margins = np.linspace(-_WIDEST, _WIDEST, 8001)
    for width in (1e-2, 1e-5, 1e-8):  # the last rounds find edges at which the curvature jumps
        each = -pull * loss.slope(margins) + np.log1p(bend * loss.bend(margins))
        best = margins[np.argmax(each)]
        margins = best + np.linspace(-width, width, 2001)
    return Price(float(each.max() + pull * (neighbouring == REPLACE_ONE)), float(best))


def softmax_price(
    noise_rate: float, stiffness: float, n_classes: int, *, neighbouring: NeighboringRelation = REPLACE_ONE
) -> float:
    """The same for K classes and rows in the unit ball: exact under add/remove and d >= K, a bound under replace-one.

    One record with prediction p and class y pulls with ||p - e_y|| and raises the log determinant by that of I + t H,
    H = diag(p) - p p', t = 1/stiffness: det = prod(1 + t p_k) sum(p_k / (1 + t p_k)).

    Parameters
    ----------
    n_classes : int
        K >= 2.
    others
        As in `price`.

    >>> from helpers.privacy import ADD_REMOVE
    >>> round(softmax_price(0.5, 8.0, 3), 4), round(softmax_price(0.5, 0.1, 2, neighbouring=ADD_REMOVE), 3)
    (1.4142, 2.182)
    """

    bend = 1 / stiffness

    def negative(scores):
        p = softmax(np.append(scores, 0.0))
        gap = p - np.eye(n_classes)[-1]
        return -(noise_rate * np.linalg.norm(gap) + np.log1p(bend * p).sum() + np.log(np.sum(p / (1 + bend * p))))

    starts = [shift + 4.0 * np.eye(n_classes - 1)[0] * one for shift in (-2.0, 0.0, 2.0, 5.0) for one in (0, 1)]
    found = [-descend(negative, start, method="BFGS").fun for start in starts]
    return float(max(*found, noise_rate * _SQRT2) + noise_rate * _SQRT2 * (neighbouring == REPLACE_ONE))


def constructed_loss(noise_rate: float, stiffness: float, *, loss: Loss = LOGISTIC, radius: float = 1.0) -> float:
    """Largest exact privacy loss over a grid of the replace-one pairs that prove `price`, at 2,000 records.

    The output is K e2. All records but one lie at a small angle below e1, misclassified by a wide margin; the odd one
    is near -e1, at the margin of the price; in the neighbour it has joined the others.

    Parameters
    ----------
    noise_rate, stiffness, loss, radius
        As in `price`.

    >>> round(constructed_loss(0.5, 2.0), 2)
    0.98
    """
    n, worst = 2000, price(noise_rate, stiffness, loss=loss, radius=radius).margin
    constants: dict[str, Any] = {"noise_rate": noise_rate, "total_regularization": stiffness / n, "n_records": n}
    constants |= {"loss": loss, "weights": np.array([n - 1.0, 1.0]), "neighbour_weights": np.array([float(n)])}
    best = -math.inf
    for tilt in np.geomspace(0.003, 0.5, 10):
        others = radius * np.array([[math.cos(tilt), -math.sin(tilt)]])
        for length in np.geomspace(3, 3e4, 20):
            for margin in {max(worst, -edge) for edge in (1.0, 2.0, 4.0, 8.0)}:
                aside = min(max(margin / length, -1.0), 1.0)
                odd = radius * np.array([[-math.sqrt(1 - aside**2), aside]])
                data = np.vstack([others, odd])
                best = max(best, privacy_loss([0.0, length / radius], data, others, **constants))
    return best
