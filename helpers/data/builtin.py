"""Data sets that are always there: a simulator and scikit-learn's bundled sets made imbalanced.

They need no file and no network, and equal seeds give equal records. The bounds of the mixture follow from its
parameters; those of its defaults, and of the bundled sets, stand on their cards. What has to be fetched is left to the
other modules.
"""

import math

import numpy as np
from sklearn import datasets as sklearn_datasets

from helpers.checks import check_integer, check_real
from helpers.data.dataset import Dataset
from helpers.data.sets import card

MIXTURE_DISTANCE = 4 * math.sqrt(2)
_BOUND_SDS = 5


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    if not isinstance(seed, np.random.Generator):
        seed = check_integer("seed", seed, low=0)
    return np.random.default_rng(seed)


def gaussian_mixture(
    *,
    n: int = 1000,
    d: int = 2,
    minority: float = 0.1,
    distance: float = MIXTURE_DISTANCE,
    sd: float = 2.0,
    seed: int | np.random.Generator = 0,
) -> Dataset:
    """Two spherical Gaussians: N(0, sd^2 I) with probability 1 - `minority`, otherwise N(mu, sd^2 I).

    mu points along (1, ..., 1) at the given distance from 0. The defaults are the mixture of the paper's
    decision-boundary figure: n = 1000, means (0, 0) and (4, 4), covariance 4 I, minority probability 0.1. The
    distance of the means does not change with d, so neither does the AUC of the best classifier,
    Phi(distance/(sd sqrt 2)). Class counts are random.

    Parameters
    ----------
    n, d : int
        Records and features.
    minority : float
        Probability of the minority class, in (0, 0.5].
    distance, sd : float
        Distance of the means and standard deviation of every coordinate.
    seed : int or Generator

    Raises
    ------
    ValueError
        A parameter out of range.

    Source: Differential Privacy Under Class Imbalance (ICML version), Figure 4 and the paragraph before it.

    >>> gaussian_mixture(n=1000, seed=0).n_features
    2
    >>> gaussian_mixture(n=10, d=3, seed=1).bounds.round(2).tolist()[0]
    [-10.0, 13.27]
    """
    n = check_integer("n", n, low=1)
    d = check_integer("d", d, low=1)
    minority = check_real("minority", minority, low=0, high=0.5, inclusive="high")
    distance = check_real("distance", distance, low=0)
    sd = check_real("sd", sd, low=0, inclusive="neither")
    rng = _generator(seed)
    y = (rng.random(n) < minority).astype(np.int64)
    shift = distance / math.sqrt(d)
    X = sd * rng.standard_normal((n, d)) + shift * y[:, None]
    names = tuple(f"x{j + 1}" for j in range(d))
    bounds = np.tile([-_BOUND_SDS * sd, shift + _BOUND_SDS * sd], (d, 1))
    return card("gaussian_mixture").schema.records(X, y, "gaussian_mixture", feature_names=names, bounds=bounds)


def _bundled(name: str, X: np.ndarray, positive: np.ndarray, ratio, seed, **changes) -> Dataset:
    """One class against the rest; `ratio` thins the minority to n1 = n0/ratio (nearest integer), chosen by `seed`."""
    rows = np.arange(positive.size)
    if ratio is not None:
        ratio = check_real("ratio", ratio, low=0, inclusive="neither")
        minority = np.flatnonzero(positive)
        keep = math.floor((positive.size - minority.size) / ratio + 0.5)
        if not 1 <= keep <= minority.size:
            raise ValueError(
                f"ratio must leave between 1 and {minority.size} minority records of {name!r}, got {ratio!r} "
                f"({keep} records)"
            )
        chosen = _generator(seed).choice(minority, keep, replace=False)
        rows = np.sort(np.concatenate([np.flatnonzero(~positive), chosen]))
    return card(name).schema.records(X[rows], positive[rows].astype(np.int64), name, **changes)


def breast_cancer(*, ratio: float | None = 10, seed: int | np.random.Generator = 0) -> Dataset:
    """Wisconsin diagnostic breast cancer, malignant = 1, thinned to n0/n1 = `ratio` (None: all 212, ratio 1.7).

    >>> breast_cancer().counts.tolist()
    [357, 36]
    """
    bunch = sklearn_datasets.load_breast_cancer()
    return _bundled("breast_cancer", bunch.data, bunch.target == 0, ratio, seed)


def wine(*, ratio: float | None = 10, seed: int | np.random.Generator = 0) -> Dataset:
    """Wine recognition, third cultivar = 1, thinned to n0/n1 = `ratio` (None: all 48, ratio 2.7).

    >>> wine().counts.tolist()
    [130, 13]
    """
    bunch = sklearn_datasets.load_wine()
    return _bundled("wine", bunch.data, bunch.target == 2, ratio, seed)


def digits(*, digit: int = 8, ratio: float | None = None, seed: int | np.random.Generator = 0) -> Dataset:
    """Handwritten digits, 8 x 8 pixels of 0..16, one digit = 1 against the rest (ratio about 9 without thinning).

    >>> digits().counts.tolist()
    [1623, 174]
    """
    digit = check_integer("digit", digit, low=0, high=9)
    bunch = sklearn_datasets.load_digits()
    names = ("rest", f"digit {digit}")
    return _bundled("digits", bunch.data, bunch.target == digit, ratio, seed, class_names=names)
