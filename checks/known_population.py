"""A threshold on a known population of two Gaussians: metrics as printed, and simulated with their errors."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from checks.two_gaussians import Population


def simulated_metrics(population: Population, threshold: float, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Recall, precision, F1 and balanced accuracy counted on `n` simulated records, in blocks of a million."""
    counts = np.zeros((2, 2))
    for start in range(0, n, 1_000_000):
        x, y = population.sample(min(1_000_000, n - start), rng)
        counts += np.bincount(2 * y + (x >= threshold), minlength=4).reshape(2, 2)
    (tn, fp), (fn, tp) = counts
    recall, precision = tp / (tp + fn), tp / (tp + fp)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * tp / (2 * tp + fp + fn),
        "balanced_accuracy": (recall + tn / (tn + fp)) / 2,
    }


def simulation_errors(population: Population, threshold: float, n: int) -> dict[str, float]:
    """Standard errors of `simulated_metrics` with `n` records.

    Notes
    -----
    Source: the delta method. Every metric is a smooth function of the four frequencies of a confusion matrix that
    does not change when all four are scaled, so its variance is the mean of its squared derivatives over n.

    >>> round(simulation_errors(Population(ratio=20.0), 0.0, 4_000_000)["recall"], 5)
    0.00084
    """
    tpr, fpr = (float(rate) for rate in population.rates(threshold))
    one, zero = 1 / (1 + population.ratio), population.ratio / (1 + population.ratio)
    frequencies = tp, fn, fp, tn = np.array([one * tpr, one * (1 - tpr), zero * fpr, zero * (1 - fpr)])
    called, size = tp + fp, 2 * tp + fp + fn
    recall = np.array([fn, -tp, 0.0, 0.0]) / one**2
    slopes = {
        "recall": recall,
        "precision": np.array([fp, 0.0, -tp, 0.0]) / called**2,
        "f1": 2 * np.array([fp + fn, -tp, -tp, 0.0]) / size**2,
        "balanced_accuracy": (recall + np.array([0.0, 0.0, -tn, fp]) / zero**2) / 2,
    }
    return {name: float(np.sqrt(frequencies @ slope**2 / n)) for name, slope in slopes.items()}


def printed_metrics(gamma: ArrayLike, separation: float, ratio: float) -> dict[str, Any]:
    """The four formulas of Table 10 as printed; three of them are not the metrics they are named after.

    Parameters
    ----------
    gamma : float or array
    separation : float
        (mean1 - mean0)/sd, above 0.
    ratio : float
        P(Y = 0)/P(Y = 1), above 0.

    Notes
    -----
    Source: Differential Privacy Under Class Imbalance, Table 10. `Population.metrics` has the right values.

    >>> round(float(printed_metrics(0.5, 2.0, 20.0)["recall"]), 2)
    17.67
    """
    gamma = np.asarray(gamma)
    hit, false = ndtr((1 - gamma) * separation), ndtr(-gamma * separation)
    return {
        "recall": (1 + ratio) * hit,
        "precision": hit / (hit + (1 + ratio) * false),
        "f1": hit / (hit + false / 2),
        "balanced_accuracy": (hit + 1 - false) / 2,
    }
