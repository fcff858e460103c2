"""Two Gaussian classes on a line: what a threshold does to every metric, and the error of a private threshold.

Everything here has a closed form or a one-dimensional integral, so printed formulas and bounds can be held against
exact values: rates and metrics of a population, and the law of the private midpoint. The classifier that releases it
is `helpers.erm.midpoint`'s.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from scipy.special import expit, log_ndtr, ndtr

from helpers.erm.midpoint import COUNTS
from helpers.validation import check_choice


@dataclass(frozen=True)
class Population:
    """X given class b is N(mean_b, sd_b^2), and class 0 is `ratio` times as likely as class 1.

    Parameters
    ----------
    mean0, mean1 : float
        mean0 < mean1: the rule "1 at or above the threshold" knows which class lies above.
    sd0, sd1 : float
        Above 0.
    ratio : float
        P(Y = 0)/P(Y = 1), above 0.

    Notes
    -----
    Source: Differential Privacy Under Class Imbalance, Example 11 (with one variance and equal priors).

    >>> round(float(Population(ratio=20.0).metrics(0.0)["precision"]), 4)
    0.2096
    """

    mean0: float = -1.0
    mean1: float = 1.0
    sd0: float = 1.0
    sd1: float = 1.0
    ratio: float = 1.0

    def threshold(self, gamma: ArrayLike) -> Any:
        """The point gamma * mean1 + (1 - gamma) * mean0 (Equation (3)); arrays are taken entry by entry.

        >>> float(Population().threshold(0.5))
        0.0
        """
        return self.mean0 + np.asarray(gamma) * (self.mean1 - self.mean0)

    def gamma(self, threshold: ArrayLike) -> Any:
        """The gamma of a threshold; the inverse of `threshold`."""
        return (np.asarray(threshold) - self.mean0) / (self.mean1 - self.mean0)

    def rates(self, threshold: ArrayLike, noise_sd: ArrayLike = 0.0) -> tuple[Any, Any]:
        """True and false positive rate at a threshold, or their means when it carries Gaussian noise.

        Parameters
        ----------
        threshold, noise_sd : float or array
            Units of X; noise_sd at least 0.

        Returns
        -------
        tpr, fpr : float or array
        """
        tpr = ndtr((self.mean1 - np.asarray(threshold)) / np.hypot(self.sd1, noise_sd))
        fpr = ndtr((self.mean0 - np.asarray(threshold)) / np.hypot(self.sd0, noise_sd))
        return tpr, fpr

    def metrics(self, threshold: ArrayLike, weight: float = 1.0) -> dict[str, Any]:
        """Exact population metrics of "1 at or above the threshold".

        Parameters
        ----------
        threshold : float or array
            May be infinite: -inf calls every record 1, inf none.
        weight : float
            Cost of a missed record of class 1, where a false alarm costs 1; above 0.

        Returns
        -------
        dict
            `recall`, `precision`, `f1`, `balanced_accuracy`, `g_mean` and `weighted_error`, of the threshold's shape;
            the last is P(Y=1) weight FNR + P(Y=0) FPR. Where no record is called 1, precision is 0/0; it is then its
            limit for a growing threshold: 1, or 0 if class 1 has the smaller deviation. (scikit-learn, which sees only
            counts, defines 0.)

        Notes
        -----
        Source: the definitions, with P(Y = 1) = 1/(1 + ratio). They correct Table 10.

        >>> {name: round(float(value), 3) for name, value in Population(ratio=20.0).metrics(0.0).items()}["f1"]
        0.336
        """
        threshold = np.asarray(threshold)
        tpr, fpr = self.rates(threshold)
        return {
            "recall": tpr,
            "precision": self._precision(threshold),
            "f1": 2 * tpr / (1 + tpr + self.ratio * fpr),
            "balanced_accuracy": (tpr + 1 - fpr) / 2,
            "g_mean": np.sqrt(tpr * (1 - fpr)),
            "weighted_error": (weight * (1 - tpr) + self.ratio * fpr) / (1 + self.ratio),
        }

    def _precision(self, threshold: NDArray) -> Any:
        # Far out both rates underflow together; the logarithm of their odds does not, or only where the limit is met.
        log_tpr = log_ndtr((self.mean1 - threshold) / self.sd1)
        log_fpr = log_ndtr((self.mean0 - threshold) / self.sd0)
        nobody = np.isneginf(log_tpr) & np.isneginf(log_fpr)
        limit = 1.0 if self.sd1 >= self.sd0 else 0.0
        odds = np.where(nobody, 0.0, log_tpr) - np.where(nobody, 0.0, log_fpr) - math.log(self.ratio)
        return np.where(nobody, limit, expit(odds))[()]

    def noisy_metrics(self, threshold: float, noise_sd: float, weight: float = 1.0) -> dict[str, float]:
        """Means of the metrics when the threshold is Gaussian with standard deviation `noise_sd`, by quadrature.

        >>> round(Population(ratio=20.0).noisy_metrics(0.0, 0.5)["balanced_accuracy"], 4)
        0.8145
        """
        nodes, mass = np.polynomial.hermite_e.hermegauss(201)
        values = self.metrics(threshold + noise_sd * nodes, weight)
        return {name: float(mass @ value / mass.sum()) for name, value in values.items()}

    def bayes_threshold(self) -> float:
        """Threshold with the least error, for equal variances: the midpoint plus sd^2 log(ratio)/(mean1 - mean0).

        Notes
        -----
        Source: the likelihood ratio test.

        >>> round(Population(ratio=20.0).bayes_threshold(), 3)
        1.498
        """
        middle, gap = (self.mean0 + self.mean1) / 2, self.mean1 - self.mean0
        return middle + self.sd0**2 * math.log(self.ratio) / gap

    def optimal_threshold(self, metric: str, weight: float = 1.0) -> float:
        """Best threshold for a metric: largest F1, G-mean or balanced accuracy, or least weighted error.

        Parameters
        ----------
        metric : {"f1", "g_mean", "balanced_accuracy", "weighted_error"}
            Recall and precision have no optimum in the interior.
        weight : float
            As in `metrics`; only the weighted error depends on it.

        Returns
        -------
        float
            inf where it is best to call no record 1, -inf where it is best to call every record 1. Unequal
            deviations can have that effect: a narrow class 1 under a large ratio has nowhere the larger density.

        Notes
        -----
        The best point of a grid, polished between its neighbours, against both infinite thresholds.

        >>> round(Population(ratio=20.0).optimal_threshold("f1"), 3)
        0.964
        >>> Population(sd1=0.5, ratio=1000.0).optimal_threshold("weighted_error")
        inf
        """

        def value(points):
            return self.metrics(points, weight)[metric] * (-1 if metric == "weighted_error" else 1)

        reach = 9 * max(self.sd0, self.sd1)
        reach += abs(math.log(self.ratio / weight)) * self.sd0**2 / (self.mean1 - self.mean0)
        ends = (
            (self.mean0 - reach, self.mean1 + reach),
            (self.mean0 - 9 * self.sd0, self.mean0 + 9 * self.sd0),
            (self.mean1 - 9 * self.sd1, self.mean1 + 9 * self.sd1),
        )
        grid = np.unique(np.concatenate([np.linspace(*pair, 4001) for pair in ends]))
        # Points that nearly coincide would leave no room to search between them, with the best one outside.
        grid = grid[np.append(True, np.diff(grid) > 1e-5 * min(self.sd0, self.sd1))]
        best = int(np.argmax(value(grid)))
        bounds = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        options = {"xatol": 1e-9}
        found = optimize.minimize_scalar(lambda x: -float(value(x)), bounds=bounds, method="bounded", options=options)
        candidates = np.array([-math.inf, math.inf, found.x])
        return float(candidates[np.argmax(value(candidates))])

    def sample(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """`n` independent records: values and labels."""
        y = (rng.random(n) < 1 / (1 + self.ratio)).astype(np.int64)
        x = rng.standard_normal(n) * np.where(y, self.sd1, self.sd0) + np.where(y, self.mean1, self.mean0)
        return x, y


# Error of the midpoint


def released_midpoints(
    sums: ArrayLike,
    totals: ArrayLike,
    radius: float,
    multiplier: float,
    counts: str,
    draws: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Many thresholds that `MidpointClassifier` with gamma 1/2 (replace-one) releases for one data set.

    With public counts and the classic multiplier these are those of the printed mechanism too, whose means are not
    clipped; it takes the private counts for public ones, and promises nothing (`flip_delta`).

    Parameters
    ----------
    sums, totals : array-like of shape (2,)
        Sum of the clipped values, and number of records, of class 0 and of class 1.
    multiplier : float
        Noise in units of the sensitivity, 1/mu of the mechanism; at least 0.
    counts : {"private", "public"}

    Returns
    -------
    array of shape (draws,)
        It shows how the mechanism behaves. It is no release: it carries no guarantee.

    >>> released_midpoints([-400.0, 40.0], [400, 40], 3.0, 0.0, "private", 2, np.random.default_rng(0))
    array([0., 0.])
    """
    check_choice("counts", counts, COUNTS)
    totals = np.asarray(totals, float)
    noise = multiplier * 2 * radius * rng.standard_normal((draws, 2))
    told = np.broadcast_to(totals, (draws, 2))
    if counts == "private":
        # Drawn last, so that one seed gives both mechanisms the same noise of the sums.
        minority = totals[1] + multiplier * math.sqrt(2) * rng.standard_normal(draws)
        told = np.maximum(np.column_stack([totals.sum() - minority, minority]), 1.0)
    means = np.clip((np.asarray(sums, float) + noise) / told, -radius, radius)
    return means.mean(axis=1)


def radius_for(bound: float, sd: float, n: int, beta: float) -> float:
    """The clipping radius of Proposition 12, bound + sd sqrt(2 log(4n/beta)).

    Values of n records with means in [-bound, bound] then all lie inside with probability at least 1 - beta/4.

    Notes
    -----
    Source: Proposition 12; 2 (1 - Phi(t)) <= e^{-t^2/2} instead of Lemma 13, which gives 1 - beta/2.

    >>> round(radius_for(1.0, 1.0, 1050, 0.1), 3)
    5.614
    """
    return bound + sd * math.sqrt(2 * math.log(4 * n / beta))


def midpoint_sd(n0: int, n1: int, sd: float, radius: float, multiplier: float) -> tuple[float, float]:
    """Standard deviations of the midpoint: its sampling part, and its noise part with scales 2 radius multiplier/n_b.

    With r = n0/n1 they are sd sqrt((1 + r)/(4 n0)) and radius multiplier sqrt(1 + r^2)/n0. Without clipping the error
    is normal with the root of the sum of their squares.

    >>> sampling, noise = midpoint_sd(1000, 50, 1.0, 5.0, 9.69)
    >>> round(sampling, 4), round(noise, 4)
    (0.0725, 0.9702)
    """
    return sd / 2 * math.hypot(n0**-0.5, n1**-0.5), radius * multiplier * math.hypot(1 / n0, 1 / n1)
