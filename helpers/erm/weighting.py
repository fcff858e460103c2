"""Class weights, and how far one record can move the weighted sum of the losses.

`class_weights` is the only place where the weights' formula stands; `Weighting` holds the two numbers that a privacy
proof needs to know about it. What follows from them for the noise is left to `helpers.erm.calibration`.
"""

from typing import NamedTuple

import numpy as np

from helpers.checks import check_choice, check_integer, check_real
from helpers.privacy import ADD_REMOVE, REPLACE_ONE


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


def fixed_weights(largest=1.0, neighbouring=REPLACE_ONE) -> Weighting:
    """Weights that are a public function of the record alone, at most `largest`.

    >>> fixed_weights()
    Weighting(mass=2.0, gained=1.0, own=1.0)
    """
    largest = check_real("largest", largest, low=0, inclusive="high")
    moved = 1.0 if check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE)) == ADD_REMOVE else 2.0
    return Weighting(moved * largest, largest, largest)


def balanced_weights(n_classes=2) -> Weighting:
    """The inverse-frequency weights of `class_weights`, which move for every record when one label changes.

    Write H = 1/sum_k (1/n_k). A class has weight H/n_k, hence the whole of it H. Moving a record from class a to class
    b changes H by at most 1, so each of the K - 2 other classes moves by at most 1 in total; the classes a and b
    together move by 2 (w_a + w_b') <= 2 - 2/(n_a + n_b), half of it the weights of the record that leaves and enters.
    Adding a record moves at most as much.

    >>> balanced_weights(2)
    Weighting(mass=2.0, gained=2.0, own=1.0)
    """
    n_classes = float(check_integer("n_classes", n_classes, low=2))
    return Weighting(n_classes, n_classes, 1.0)


UNWEIGHTED = fixed_weights()
BALANCED = balanced_weights()


def class_weights(counts) -> np.ndarray:
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
