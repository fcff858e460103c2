"""The mechanisms the chapters use: single noisy values, noisy choices, and private class counts.

Each takes the sensitivity with its neighbouring relation, and returns the value together with the `Guarantee` it was
released under; public parameters are checked before private ones are looked at. Each is a `Ledger` of one release,
which draws the noise and writes the guarantee. Noise comes from `secure_generator`; a generator that the caller brings
(for public data, tests and pages) is named in the guarantee's `assumes`. That the stated sensitivity is true, and that
the private values are finite, is the caller's promise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import ArrayLike, NDArray

from helpers.privacy.accounting import ADD_REMOVE, REPLACE_ONE, gaussian_multiplier, unwrapped
from helpers.privacy.guarantees import Guarantee
from helpers.privacy.ledger import NORMS, Ledger, Sensitivity, as_scores, check_sensitivity
from helpers.validation import check_choice, check_real


class Release(NamedTuple):
    """A value that may be published, and the guarantee it was released under."""

    value: Any
    guarantee: Guarantee


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
    ledger = _ledger_of(value, sensitivity, epsilon, rng)
    noisy = ledger.laplace(_as_floats(sensitivity, "l1"), sensitivity.value, epsilon)
    source = "Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006, Proposition 1)"
    # A number that went in comes out as a number, not as an array without dimensions.
    return Release(unwrapped(noisy), ledger.guarantee(epsilon, 0.0, source=source))


def gaussian(
    value: ArrayLike,
    sensitivity: Sensitivity,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
) -> Release:
    """`value` plus independent Gaussian noise: (epsilon, delta)-DP.

    Parameters
    ----------
    value : float or array
        Private. The release has its shape.
    sensitivity : Sensitivity
        In l2; an l1 bound will do, being larger. The guarantee has its relation.
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).
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
    Source: Balle and Wang 2018, Theorem 9.

    >>> released = gaussian(10.0, Sensitivity(1.0, ADD_REMOVE, "l2"), 1.0, 1e-5, np.random.default_rng(0))
    >>> round(released.value, 2), str(released.guarantee)
    (10.47, '(1, 1e-05)-DP, add/remove-one')
    """
    # `gaussian_multiplier` checks epsilon and delta, before a ledger holds the private value.
    multiplier, ledger = gaussian_multiplier(epsilon, delta), _ledger_of(value, sensitivity, epsilon, rng)
    noisy = ledger.gaussian(_as_floats(sensitivity, "l2"), sensitivity.value, multiplier)
    source = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
    return Release(unwrapped(noisy), ledger.guarantee(epsilon, delta, source=source))


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
    ledger = _ledger_of(scores, sensitivity, epsilon, rng)
    choice = ledger.choose(as_scores, sensitivity.value, epsilon=epsilon, law="permute_and_flip")
    source = "report noisy max with exponential noise (McKenna and Sheldon 2020, Theorem 1)"
    return Release(choice, ledger.guarantee(epsilon, 0.0, source=source))


def class_counts(
    y: ArrayLike,
    classes: ArrayLike,
    epsilon: float,
    neighbouring: NeighboringRelation,
    rng: np.random.Generator | None = None,
) -> Release:
    """Noisy number of records of each class: pure epsilon-DP, exactly.

    With two classes and replace-one, where the number of records is public, one count is enough, and both have half the
    noise.

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
    Source: Dwork, McSherry, Nissim and Smith 2006 (histograms); Ghosh, Roughgarden and Sundararajan 2012 (noise).

    >>> released = class_counts([0, 0, 0, 1], [0, 1], 1.0, ADD_REMOVE, np.random.default_rng(0))
    >>> released.value.tolist(), str(released.guarantee)
    ([2, -3], '(1, 0)-DP, add/remove-one')
    """
    check_choice("neighbouring", neighbouring, (ADD_REMOVE, REPLACE_ONE))
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    # All public parameters are checked here, before the labels are looked at: an error must not depend on them.
    classes = np.asarray(classes)
    if classes.ndim != 1 or classes.size == 0 or np.unique(classes).size < classes.size:
        raise ValueError(f"classes must be a non-empty vector of distinct labels, got {classes.tolist()!r}")

    def counted(y):
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y must be one-dimensional, got shape {y.shape}")
        counts = np.array([np.count_nonzero(y == label) for label in classes])
        if neighbouring is REPLACE_ONE and classes.size == 2:
            # The ledger noises only the second count here and takes the first from the sum, which must therefore be the
            # number of records, whatever labels occur.
            counts[0] = y.size - counts[1]
        return counts

    ledger = Ledger(y, neighbouring, rng)
    noisy = ledger.class_counts(counted, classes.size, epsilon)
    source = "discrete Laplace mechanism (Ghosh, Roughgarden and Sundararajan 2012)"
    return Release(noisy, ledger.guarantee(epsilon, 0.0, source=source))


def _ledger_of(value: ArrayLike, sensitivity: Sensitivity, epsilon: float, rng: np.random.Generator | None) -> Ledger:
    """A ledger of one private value, once the public parameters have been checked."""
    check_sensitivity(sensitivity)
    check_real("epsilon", epsilon, low=0, inclusive="neither")
    return Ledger(value, sensitivity.neighbouring, rng)


def _as_floats(sensitivity: Sensitivity, norm: str) -> Callable[[ArrayLike], NDArray[np.float64]]:
    """A query for the value as an array, refused where the sensitivity's norm does not bound the one needed."""

    def query(value):
        value = np.asarray(value)
        # A text or None would be read as a number, and NaN plus noise is the exact NaN.
        if value.size == 0 or value.dtype.kind not in "biuf" or not np.isfinite(value).all():
            raise ValueError("value must be one or more finite numbers, got something else")
        value = value.astype(float)
        # `NORMS` runs from the largest norm to the smallest: a bound in a larger norm also holds in a smaller one. For
        # one number all three agree.
        if value.size > 1 and NORMS.index(sensitivity.norm) > NORMS.index(norm):
            raise ValueError(f"sensitivity must be in {norm} for a vector, got {sensitivity.norm!r}")
        return value

    return query
