"""Two Gaussian classes on a line: what a threshold does to every metric, and the error of a private threshold.

Everything here has a closed form or a one-dimensional integral, so printed formulas and bounds can be held against
exact values: rates and metrics of a population, the delta of two Gaussians with different variances, the error of the
private midpoint with its upper and lower bounds. The classifier that releases it is `helpers.erm.midpoint`'s.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import integrate, optimize
from scipy.special import expit, log_ndtr, ndtr, ndtri

from helpers.checks import check_choice, check_integer, check_real
from helpers.erm.midpoint import COUNTS
from helpers.privacy import gaussian_delta

METRICS = ("recall", "precision", "f1", "balanced_accuracy", "g_mean", "weighted_error")
CHANGES = ("record", "label", "width")
_SMALLEST_COUNT = 1.0  # by which a sum is divided


def _numbers(name: str, values) -> np.ndarray:
    """A number or an array of numbers as floats; infinite ones are allowed, NaN is not."""
    try:
        numbers = np.asarray(values, float)
    except (TypeError, ValueError):
        numbers = np.asarray(math.nan)
    if np.isnan(numbers).any():
        raise ValueError(f"{name} must be a number or an array of numbers without NaN, got {values!r}")
    return numbers


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

    Raises
    ------
    ValueError
        A parameter is out of range.

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

    def __post_init__(self):
        check_real("mean0", self.mean0)
        check_real("mean1", self.mean1, low=self.mean0, inclusive="neither")
        for name in ("sd0", "sd1", "ratio"):
            check_real(name, getattr(self, name), low=0, inclusive="neither")

    def threshold(self, gamma):
        """The point gamma * mean1 + (1 - gamma) * mean0 (Equation (3)); arrays are taken entry by entry.

        >>> float(Population().threshold(0.5))
        0.0
        """
        gamma = _numbers("gamma", gamma)
        return self.mean0 + gamma * (self.mean1 - self.mean0)

    def gamma(self, threshold):
        """The gamma of a threshold; the inverse of `threshold`."""
        return (_numbers("threshold", threshold) - self.mean0) / (self.mean1 - self.mean0)

    def rates(self, threshold, noise_sd=0.0):
        """True and false positive rate at a threshold, or their means when it carries Gaussian noise.

        Parameters
        ----------
        threshold, noise_sd : float or array
            Units of X; noise_sd at least 0.

        Returns
        -------
        tpr, fpr : float or array

        Raises
        ------
        ValueError
            A threshold that is no number, or a noise_sd below 0.
        """
        threshold, noise_sd = _numbers("threshold", threshold), _numbers("noise_sd", noise_sd)
        if (noise_sd < 0).any():
            raise ValueError(f"noise_sd must be at least 0, got {noise_sd.min()}")
        tpr = ndtr((self.mean1 - threshold) / np.hypot(self.sd1, noise_sd))
        fpr = ndtr((self.mean0 - threshold) / np.hypot(self.sd0, noise_sd))
        return tpr, fpr

    def metrics(self, threshold, weight: float = 1.0) -> dict[str, np.ndarray]:
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
            The metrics of `METRICS` by name, of the threshold's shape; `weighted_error` is
            P(Y=1) weight FNR + P(Y=0) FPR. Where no record is called 1, precision is 0/0; it is then defined as its
            limit for a growing threshold: 1, or 0 if class 1 has the smaller deviation. (scikit-learn, which sees
            only counts, defines 0.)

        Raises
        ------
        ValueError
            A threshold that is no number (NaN), or a weight out of range.

        Notes
        -----
        Source: the definitions, with P(Y = 1) = 1/(1 + ratio). They correct Table 10.

        >>> {name: round(float(value), 3) for name, value in Population(ratio=20.0).metrics(0.0).items()}["f1"]
        0.336
        """
        weight = check_real("weight", weight, low=0, inclusive="neither")
        threshold = _numbers("threshold", threshold)
        tpr, fpr = self.rates(threshold)
        return {
            "recall": tpr,
            "precision": self._precision(threshold),
            "f1": 2 * tpr / (1 + tpr + self.ratio * fpr),
            "balanced_accuracy": (tpr + 1 - fpr) / 2,
            "g_mean": np.sqrt(tpr * (1 - fpr)),
            "weighted_error": (weight * (1 - tpr) + self.ratio * fpr) / (1 + self.ratio),
        }

    def _precision(self, threshold):
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
        noise_sd = check_real("noise_sd", noise_sd, low=0)
        nodes, mass = np.polynomial.hermite_e.hermegauss(201)
        values = self.metrics(check_real("threshold", threshold) + noise_sd * nodes, weight)
        return {name: float(mass @ value / mass.sum()) for name, value in values.items()}

    def bayes_threshold(self, weight: float = 1.0) -> float:
        """Threshold with the least weighted error, for equal variances.

        It is the midpoint plus sd^2 log(ratio/weight)/(mean1 - mean0): the midpoint only where weight = ratio.

        Raises
        ------
        ValueError
            Unequal variances, where the best rule is no threshold (see `optimal_threshold` for the best threshold).

        Notes
        -----
        Source: the likelihood ratio test.

        >>> round(Population(ratio=20.0).bayes_threshold(), 3)
        1.498
        """
        weight = check_real("weight", weight, low=0, inclusive="neither")
        if self.sd0 != self.sd1:
            raise ValueError(f"sd0 must be equal to sd1 for the Bayes threshold, got {self.sd0!r} and {self.sd1!r}")
        middle, gap = (self.mean0 + self.mean1) / 2, self.mean1 - self.mean0
        return middle + self.sd0**2 * math.log(self.ratio / weight) / gap

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

        Raises
        ------
        ValueError
            Another metric, or a weight out of range.

        Notes
        -----
        Source: the weighted error falls where weight times the density of class 1 is below ratio times that of
        class 0, and rises where it is above; balanced accuracy is the case weight = ratio. The others are searched.

        >>> round(Population(ratio=20.0).optimal_threshold("f1"), 3)
        0.964
        >>> Population(sd1=0.5, ratio=1000.0).optimal_threshold("weighted_error")
        inf
        """
        check_choice("metric", metric, METRICS[2:])
        weight = check_real("weight", weight, low=0, inclusive="neither")
        if metric == "weighted_error":
            return self._least_error(weight)
        if metric == "balanced_accuracy":
            return self._least_error(self.ratio)
        return self._searched(metric)

    def _least_error(self, weight):
        """Where the log of weight f1/(ratio f0), a quadratic in the distance from mean0, crosses 0 upwards."""
        gap = self.mean1 - self.mean0
        square = (1 / self.sd0**2 - 1 / self.sd1**2) / 2
        linear = gap / self.sd1**2
        constant = math.log(weight / self.ratio) + math.log(self.sd0 / self.sd1) - gap**2 / (2 * self.sd1**2)
        discriminant = linear**2 - 4 * square * constant
        # Far out the wider class wins: beyond the other crossing the error falls again, towards this end.
        end = math.inf if square < 0 else -math.inf
        if discriminant <= 0:
            return end
        # This form of the root has no cancellation, and is the midpoint formula for equal variances.
        crossing = self.mean0 - 2 * constant / (linear + math.sqrt(discriminant))
        if square == 0:
            return crossing
        errors = self.metrics(np.array([crossing, end]), weight)["weighted_error"]
        return crossing if errors[0] <= errors[1] else end

    def _searched(self, metric):
        reach = 9 * max(self.sd0, self.sd1) + abs(math.log(self.ratio)) * self.sd0**2 / (self.mean1 - self.mean0)
        ends = (
            (self.mean0 - reach, self.mean1 + reach),
            (self.mean0 - 9 * self.sd0, self.mean0 + 9 * self.sd0),
            (self.mean1 - 9 * self.sd1, self.mean1 + 9 * self.sd1),
        )
        grid = np.unique(np.concatenate([np.linspace(*pair, 4001) for pair in ends]))
        # Points that nearly coincide would leave no room to search between them, with the best one outside.
        grid = grid[np.append(True, np.diff(grid) > 1e-5 * min(self.sd0, self.sd1))]
        best = int(np.argmax(self.metrics(grid)[metric]))
        found = optimize.minimize_scalar(
            lambda point: -float(self.metrics(point)[metric]),
            bounds=(grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]),
            method="bounded",
            options={"xatol": 1e-9},
        )
        candidates = np.array([-math.inf, math.inf, found.x])
        return float(candidates[np.argmax(self.metrics(candidates)[metric])])

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """`n` independent records: values and labels."""
        n = check_integer("n", n, low=1)
        y = (rng.random(n) < 1 / (1 + self.ratio)).astype(np.int64)
        x = rng.standard_normal(n) * np.where(y, self.sd1, self.sd0) + np.where(y, self.mean1, self.mean0)
        return x, y


def simulated_metrics(population: Population, threshold: float, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Recall, precision, F1 and balanced accuracy counted on `n` simulated records, in blocks of a million.

    Raises
    ------
    ValueError
        `n` below 1, or so small that no record of a class, or no positive prediction, was drawn; a threshold that is
        not finite.
    """
    threshold = check_real("threshold", threshold)
    counts = np.zeros((2, 2))
    for start in range(0, check_integer("n", n, low=1), 1_000_000):
        x, y = population.sample(min(1_000_000, n - start), rng)
        counts += np.bincount(2 * y + (x >= threshold), minlength=4).reshape(2, 2)
    (tn, fp), (fn, tp) = counts
    if not (tp + fn and tn + fp and tp + fp):
        raise ValueError(f"n must be large enough for both classes and a positive prediction, got {n}")
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
    n = check_integer("n", n, low=1)
    tpr, fpr = (float(rate) for rate in population.rates(check_real("threshold", threshold)))
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


def printed_metrics(gamma, separation: float, ratio: float) -> dict[str, np.ndarray]:
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
    separation = check_real("separation", separation, low=0, inclusive="neither")
    ratio = check_real("ratio", ratio, low=0, inclusive="neither")
    gamma = _numbers("gamma", gamma)
    hit, false = ndtr((1 - gamma) * separation), ndtr(-gamma * separation)
    return {
        "recall": (1 + ratio) * hit,
        "precision": hit / (hit + (1 + ratio) * false),
        "f1": hit / (hit + false / 2),
        "balanced_accuracy": (hit + 1 - false) / 2,
    }


# Privacy


def two_gaussian_delta(epsilon: float, shift: float, sd: float, other_sd: float) -> float:
    """Smallest delta for N(0, sd^2) against N(shift, other_sd^2), both ways; exact for unequal variances.

    Parameters
    ----------
    epsilon : float
        At least 0.
    shift : float
        Distance of the means.
    sd, other_sd : float
        Above 0.

    Notes
    -----
    Source: the log likelihood ratio is a quadratic, so the set where it exceeds epsilon is an interval or the
    outside of one. Equal variances: Balle and Wang 2018, Theorem 8.

    >>> round(two_gaussian_delta(1.0, 0.5, 1.0, 1.0), 5), round(two_gaussian_delta(0.5, 0.0, 10.0, 9.0), 5)
    (0.00683, 0.00398)
    """
    epsilon = check_real("epsilon", epsilon, low=0)
    shift = check_real("shift", shift)
    sd = check_real("sd", sd, low=0, inclusive="neither")
    other_sd = check_real("other_sd", other_sd, low=0, inclusive="neither")
    return max(_one_way(epsilon, shift, sd, other_sd), _one_way(epsilon, shift, other_sd, sd))


def _one_way(epsilon: float, shift: float, sd: float, other_sd: float) -> float:
    """Excess of N(0, sd^2) over e^epsilon N(shift, other_sd^2)."""
    if sd == other_sd:
        return gaussian_delta(epsilon, abs(shift) / sd)
    # log ratio - epsilon = square x^2 + linear x + constant
    square = (1 / other_sd**2 - 1 / sd**2) / 2
    linear = -shift / other_sd**2
    constant = shift**2 / (2 * other_sd**2) + math.log(other_sd / sd) - epsilon
    discriminant = linear**2 - 4 * square * constant
    if discriminant <= 0:
        return max(-math.expm1(epsilon), 0.0) if square > 0 else 0.0
    low, high = sorted((-linear + sign * math.sqrt(discriminant)) / (2 * square) for sign in (-1, 1))

    def mass(mean, scale):
        left, right = (low - mean) / scale, (high - mean) / scale
        # Between the ends by the tail that is smaller, so that digits survive far out.
        inside = ndtr(-left) - ndtr(-right) if left > 0 else ndtr(right) - ndtr(left)
        return ndtr(left) + ndtr(-right) if square > 0 else inside

    return float(max(mass(0.0, sd) - math.exp(epsilon) * mass(shift, other_sd), 0.0))


def printed_sd(n0: int, n1: int, radius: float, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise in the printed midpoint: half of that of two means with scales 2 radius/n_b.

    >>> round(printed_sd(1000, 50, 5.0, 0.5, 1e-5), 4)
    0.9702
    """
    n0, n1 = check_integer("n0", n0, low=1), check_integer("n1", n1, low=1)
    radius = check_real("radius", radius, low=0, inclusive="neither")
    return radius * _classic_multiplier(epsilon, delta) * math.hypot(1 / n0, 1 / n1)


def _classic_multiplier(epsilon, delta) -> float:
    """Standard deviation of the classic Gaussian noise, in units of the sensitivity."""
    epsilon = check_real("epsilon", epsilon, low=0, inclusive="neither")
    delta = check_real("delta", delta, low=0, high=1, inclusive="neither")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def flip_delta(n0: int, n1: int, epsilon: float, delta: float, *, change: str = "record") -> dict[str, float]:
    """Exact delta of the printed mechanism when one record leaves class 1 for class 0.

    Parameters
    ----------
    n0, n1 : int
        Counts before; n1 at least 2.
    epsilon, delta : float
        What each class mean is calibrated to. The claim for the pair is (2 epsilon, 2 delta).
    change : {"record", "label", "width"}
        "record": value and label change, and the means move as far as clipped values allow. "label": the value stays.
        "width": the means are left where they are and only the noise scales change (a part of the leak, no neighbour).

    Returns
    -------
    dict
        `minority`: the release of class 1's mean at epsilon; `midpoint`: the released midpoint at 2 epsilon.

    Notes
    -----
    A mean of values in [-R, R] moves by at most 2R/n when a record joins or leaves, n being the larger count. One
    value moves the two means in opposite directions, so with the value kept the midpoint moves by at most R/n1.

    >>> round(flip_delta(400, 20, 0.5, 1e-5, change="width")["minority"], 6)
    0.000128
    """
    n0 = check_integer("n0", n0, low=1)
    n1 = check_integer("n1", n1, low=2)
    check_choice("change", change, CHANGES)
    moved1 = 0.0 if change == "width" else 2 / n1
    moved0 = 2 / (n0 + 1) if change == "record" else 0.0
    multiplier = _classic_multiplier(epsilon, delta)
    return {
        "minority": two_gaussian_delta(epsilon, moved1, 2 * multiplier / n1, 2 * multiplier / (n1 - 1)),
        "midpoint": two_gaussian_delta(
            2 * epsilon,
            (moved0 + moved1) / 2,
            printed_sd(n0, n1, 1.0, epsilon, delta),
            printed_sd(n0 + 1, n1 - 1, 1.0, epsilon, delta),
        ),
    }


# Error of the midpoint


def released_midpoints(
    sums, totals, radius: float, multiplier: float, counts: str, draws: int, rng: np.random.Generator
) -> np.ndarray:
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
    radius = check_real("radius", radius, low=0, inclusive="neither")
    multiplier = check_real("multiplier", multiplier, low=0)
    draws = check_integer("draws", draws, low=1)
    totals = np.asarray(totals, float)
    if totals.shape != (2,) or (totals < 1).any():
        raise ValueError(f"totals must be two counts of at least 1, got {totals.tolist()}")
    noise = multiplier * 2 * radius * rng.standard_normal((draws, 2))
    told = np.broadcast_to(totals, (draws, 2))
    if counts == "private":
        # Drawn last, so that one seed gives both mechanisms the same noise of the sums.
        minority = totals[1] + multiplier * math.sqrt(2) * rng.standard_normal(draws)
        told = np.maximum(np.column_stack([totals.sum() - minority, minority]), _SMALLEST_COUNT)
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
    bound = check_real("bound", bound, low=0)
    sd = check_real("sd", sd, low=0, inclusive="neither")
    n = check_integer("n", n, low=1)
    beta = check_real("beta", beta, low=0, high=1, inclusive="neither")
    return bound + sd * math.sqrt(2 * math.log(4 * n / beta))


def midpoint_sd(n0: int, n1: int, sd: float, radius: float, multiplier: float) -> tuple[float, float]:
    """Standard deviations of the midpoint: its sampling part, and its noise part with scales 2 radius multiplier/n_b.

    With r = n0/n1 they are sd sqrt((1 + r)/(4 n0)) and radius multiplier sqrt(1 + r^2)/n0. Without clipping the error
    is normal with the root of the sum of their squares.

    >>> sampling, noise = midpoint_sd(1000, 50, 1.0, 5.0, 9.69)
    >>> round(sampling, 4), round(noise, 4)
    (0.0725, 0.9702)
    """
    n0, n1 = check_integer("n0", n0, low=1), check_integer("n1", n1, low=1)
    sd = check_real("sd", sd, low=0)
    radius = check_real("radius", radius, low=0, inclusive="neither")
    multiplier = check_real("multiplier", multiplier, low=0)
    return sd / 2 * math.hypot(n0**-0.5, n1**-0.5), radius * multiplier * math.hypot(1 / n0, 1 / n1)


def private_counts_sd(n0: int, n1: int, mean0: float, mean1: float, radius: float, multiplier: float) -> float:
    """Noise part of the midpoint with private counts (replace-one), to first order in 1/n1.

    The sums carry noise 2R m, the count sqrt(2) m, and an error g of n1 moves the midpoint by
    -(mean1/n1 - mean0/n0) g/2.

    >>> round(private_counts_sd(4000, 400, -1.0, 1.0, 5.0, 3.73), 4)
    0.0474
    """
    n0, n1 = check_integer("n0", n0, low=1), check_integer("n1", n1, low=1)
    radius = check_real("radius", radius, low=0, inclusive="neither")
    mean0 = check_real("mean0", mean0, low=-radius, high=radius)
    mean1 = check_real("mean1", mean1, low=-radius, high=radius)
    multiplier = check_real("multiplier", multiplier, low=0)
    sums = 2 * radius * math.hypot(1 / n0, 1 / n1)
    count = math.sqrt(2) * (mean1 / n1 - mean0 / n0)
    return multiplier / 2 * math.hypot(sums, count)


def upper_bound(
    n0: int, n1: int, sd: float, radius: float, multiplier: float, beta: float, version: str = "corrected"
) -> float:
    """An error of the midpoint that is exceeded with probability at most beta/2, when `radius` is that of `radius_for`.

    Parameters
    ----------
    multiplier : float
        Noise in units of a mean's sensitivity; sqrt(2 log(1.25/delta))/epsilon in the paper.
    version : {"corrected", "printed"}
        "corrected": the standard deviation times the normal quantile at 1 - beta/8: beta/4 for clipping and beta/4 for
        the normal. "printed": 2 sqrt(log(4/beta)) and four times the sampling variance; true, but loose.

    Notes
    -----
    Source: Differential Privacy Under Class Imbalance, Proposition 12.

    >>> [round(upper_bound(1000, 50, 1.0, 5.0, 9.69, 0.1, version), 2) for version in ("printed", "corrected")]
    [3.77, 2.18]
    """
    check_choice("version", version, ("corrected", "printed"))
    beta = check_real("beta", beta, low=0, high=1, inclusive="neither")
    sampling, noise = midpoint_sd(n0, n1, sd, radius, multiplier)
    if version == "printed":
        return 2 * math.sqrt(math.log(4 / beta)) * math.hypot(2 * sampling, noise)
    return float(ndtri(1 - beta / 8)) * math.hypot(sampling, noise)


def lower_bound(n0: int, n1: int, sd: float, beta: float, version: str = "corrected") -> float:
    """The distance of the lower bound of Proposition 12.

    "corrected": for every estimator, private or not, some means make its error at least this with probability at
    least beta; the maximum likelihood estimator attains it. "printed": twice that, which no theorem supports: an
    estimator that is constant is exact for some means.

    >>> [round(lower_bound(1000, 50, 1.0, 0.1, version), 3) for version in ("printed", "corrected")]
    [0.238, 0.119]
    """
    check_choice("version", version, ("corrected", "printed"))
    beta = check_real("beta", beta, low=0, high=1, inclusive="neither")
    sampling, _ = midpoint_sd(n0, n1, sd, 1.0, 0.0)
    return float(ndtri(1 - beta / 2)) * sampling * (2 if version == "printed" else 1)


def least_average_miss(beta: float, half_range: float) -> float:
    """Least probability, over all estimators, of missing a normal mean by z_{1 - beta/2} standard deviations or more.

    The mean is uniform on [-half_range, half_range] (in standard deviations), so the value is a lower bound on the
    maximum over that range; it tends to beta as the range grows.

    Notes
    -----
    Source: the Bayes estimator; given x, the posterior is a normal cut off at the ends, and the best interval is
    the one nearest to x that lies inside.

    >>> round(least_average_miss(0.1, 20.0), 3), round(least_average_miss(0.1, 1000.0), 4)
    (0.092, 0.0998)
    """
    z = float(ndtri(1 - check_real("beta", beta, low=0, high=1, inclusive="neither") / 2))
    half_range = check_real("half_range", half_range, low=z, inclusive="neither")

    def best(x):
        centre = np.clip(x, z - half_range, half_range - z)
        return ndtr(centre + z - x) - ndtr(centre - z - x)

    edge, _ = integrate.quad(best, half_range - z, half_range + 12)
    middle = (1 - beta) * (half_range - z)
    return float(1 - (middle + edge) / half_range)


def clipped_mean_errors(
    n: int, sd: float, radius: float, mean: float, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Errors of `draws` means of n clipped normals, every value drawn, in blocks of about four million.

    Returns
    -------
    array of shape (draws,)
        Mean of the clipped values minus `mean`.
    """
    n, draws = check_integer("n", n, low=1), check_integer("draws", draws, low=1)
    sd, radius = (check_real(k, v, low=0, inclusive="neither") for k, v in (("sd", sd), ("radius", radius)))
    mean = check_real("mean", mean)
    block = max(4_000_000 // n, 1)
    errors = np.empty(draws)
    for start in range(0, draws, block):
        values = rng.standard_normal((min(block, draws - start), n), dtype=np.float32)
        np.clip(values, (-radius - mean) / sd, (radius - mean) / sd, out=values)
        errors[start : start + len(values)] = sd * values.mean(axis=1, dtype=np.float64)
    return errors
