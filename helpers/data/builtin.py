"""Data sets that are always there: a simulator and scikit-learn's bundled sets made imbalanced.

They need no file and no network, and equal seeds give equal records. Their bounds are the simulator's parameters or
ranges printed in the bundled descriptions, rounded outwards. What has to be fetched is left to the other modules.
"""

import math

import numpy as np
from sklearn import datasets as sklearn_datasets

from helpers.checks import check_integer, check_real
from helpers.data.dataset import Dataset

MIXTURE_DISTANCE = 4 * math.sqrt(2)
_BOUND_SDS = 5

LICENCE = "CC BY 4.0 (UCI), bundled with scikit-learn (BSD-3-Clause)"
_DESCRIPTION = (
    "assumption: constants rounded outwards from the range table in scikit-learn's description of the set, "
    "published with the benchmark and treated as public"
)

_BREAST_CANCER_BOUNDS = (
    *((6, 30), (9, 40), (40, 190), (100, 2600), (0, 0.2), (0, 0.4), (0, 0.5), (0, 0.3), (0.1, 0.4), (0, 0.1)),
    *((0, 3), (0, 5), (0, 22), (0, 550), (0, 0.04), (0, 0.2), (0, 0.4), (0, 0.06), (0, 0.08), (0, 0.03)),
    *((7, 40), (12, 50), (50, 260), (150, 4300), (0, 0.3), (0, 1.1), (0, 1.3), (0, 0.3), (0.1, 0.7), (0, 0.3)),
)
_WINE_BOUNDS = (
    *((11, 15), (0, 6), (1, 4), (10, 30), (70, 170), (0, 4), (0, 6)),
    *((0, 1), (0, 4), (1, 13), (0, 2), (1, 4), (250, 1700)),
)


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
    return Dataset(
        name="gaussian_mixture",
        X=X,
        y=y,
        feature_names=tuple(f"x{j + 1}" for j in range(d)),
        bounds=np.tile([-_BOUND_SDS * sd, shift + _BOUND_SDS * sd], (d, 1)),
        bounds_basis=f"the simulator's public means plus or minus {_BOUND_SDS} standard deviations; a draw outside "
        "(probability below 1e-6 per value) would be clipped",
        source="simulated here",
        licence="none needed",
    )


def _bundled(name: str, bunch, positive: np.ndarray, positive_name: str, ratio, seed, bounds, basis) -> Dataset:
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
    return Dataset(
        name=name,
        X=bunch.data[rows],
        y=positive[rows].astype(np.int64),
        feature_names=tuple(bunch.feature_names),
        bounds=bounds,
        bounds_basis=basis,
        source=f"scikit-learn, sklearn.datasets.load_{name}",
        licence=LICENCE,
        class_names=("rest", positive_name),
    )


def breast_cancer(*, ratio: float | None = 10, seed: int | np.random.Generator = 0) -> Dataset:
    """Wisconsin diagnostic breast cancer, malignant = 1, thinned to n0/n1 = `ratio` (None: all 212, ratio 1.7).

    >>> breast_cancer().counts.tolist()
    [357, 36]
    """
    bunch = sklearn_datasets.load_breast_cancer()
    return _bundled(
        "breast_cancer",
        bunch,
        bunch.target == 0,
        "malignant",
        ratio,
        seed,
        _BREAST_CANCER_BOUNDS,
        _DESCRIPTION,
    )


def wine(*, ratio: float | None = 10, seed: int | np.random.Generator = 0) -> Dataset:
    """Wine recognition, third cultivar = 1, thinned to n0/n1 = `ratio` (None: all 48, ratio 2.7).

    >>> wine().counts.tolist()
    [130, 13]
    """
    bunch = sklearn_datasets.load_wine()
    return _bundled("wine", bunch, bunch.target == 2, "class_2", ratio, seed, _WINE_BOUNDS, _DESCRIPTION)


def digits(*, digit: int = 8, ratio: float | None = None, seed: int | np.random.Generator = 0) -> Dataset:
    """Handwritten digits, 8 x 8 pixels of 0..16, one digit = 1 against the rest (ratio about 9 without thinning).

    >>> digits().counts.tolist()
    [1623, 174]
    """
    digit = check_integer("digit", digit, low=0, high=9)
    bunch = sklearn_datasets.load_digits()
    bounds = np.tile([0.0, 16.0], (64, 1))
    basis = "pixel counts of 4 x 4 blocks, 0..16 by construction"
    return _bundled("digits", bunch, bunch.target == digit, f"digit {digit}", ratio, seed, bounds, basis)
