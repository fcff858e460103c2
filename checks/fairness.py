"""Group gaps of a classifier, and how far privacy noise can move them.

A gap is F_k = P(event | group k) - P(event), the event being "predicted positive" or "predicted right" among all
records or among those of one label: `Gap` measures it, and bounds it for every model whose scores lie within a given
reach. `output_reach` and `objective_reach` say how far private scores are from those without noise, the published
constants stand beside them. Nothing here is private: gaps of private records are releases that a caller would have to
pay for.

Rates by group and their differences over all groups are left to `fairlearn.metrics`, whose definitions these are: a
`Gap` is an entry of `MetricFrame.by_group` less `MetricFrame.overall`. What fairlearn does not have is the gap as a
linear function of the events, which the bounds need. They differ where a group has no record of a label: a `Gap` is
NaN there, fairlearn 0.15 takes the group's rate for 0, and so may report a difference that nobody has seen.

`load_members` says who belongs to which group, for the data sets that know it: sex and race in Adult, sex and age in
HAM10000. Groups are attributes of persons, as private as the labels; here they serve to measure what a classifier does
to whom.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from helpers.data.catalogue import ham10000_metadata, load
from helpers.validation import check_choice

_AGES = {"under 45": (0.0, 45.0), "45 to 64": (45.0, 65.0), "65 and over": (65.0, np.inf)}  # from, and below
# Data set -> attribute -> its levels, public: a level is known whether or not a record has it.
LEVELS = {
    "adult": {
        "sex": ("Female", "Male"),
        "race": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"),
    },
    "ham10000": {"sex": ("female", "male", "unknown"), "age": (*_AGES, "unknown")},
}
# Notion: label that the records have (None: any), and whether the event is a right prediction or a positive one.
_NOTIONS = {
    "demographic_parity": (None, "positive"),
    "equal_opportunity": (1, "positive"),
    "false_positive_rate": (0, "positive"),
    "accuracy_parity": (None, "right"),
}
NOTIONS = tuple(_NOTIONS)
FAILURE, SLACK = 0.01, 0.002
"""Probability that a reach is exceeded by more than the slack, which is a share of 2 (1 - share of the group)."""
_LARGEST_THIRD_DERIVATIVE = 1 / (6 * math.sqrt(3))  # of the logistic loss


@dataclass(frozen=True, eq=False)
class Gap:
    """The gap of one group as a linear function of the events: F_k = sum_i coefficients_i event_i.

    Records are classified positive where their score is above 0. A group without records of the notion's label, or one
    that leaves no others, has the gap NaN.

    Parameters
    ----------
    y : array (n,)
        Labels 0 and 1.
    member : array (n,) of bool
        Who is in the group.
    notion : {"demographic_parity", "equal_opportunity", "false_positive_rate", "accuracy_parity"}
        Equal opportunity compares true positive rates; it is also minus the gap of false negative rates.

    Source: the gap, Mangold's defence slides "Measuring Group Fairness".

    >>> gap = Gap([1, 1, 0, 0], [True, True, False, False])
    >>> gap.of(np.array([0.3, -0.1, -0.2, -0.4])), gap.interval(np.array([0.3, -0.1, -0.2, -0.4]), reach=0.15)
    (0.25, (0.25, 0.5))
    """

    y: NDArray
    member: NDArray[np.bool_]
    notion: str = "demographic_parity"

    def __post_init__(self):
        for name in ("y", "member"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))

    @cached_property
    def counted(self) -> NDArray:
        """Records (n,) of bool that the notion is about."""
        label = _NOTIONS[self.notion][0]
        return np.ones(len(self.y), bool) if label is None else np.equal(self.y, label)

    @property
    def sizes(self) -> tuple[int, int]:
        """Records counted in the group, and outside."""
        return int((self.counted & self.member).sum()), int((self.counted & ~self.member).sum())

    @cached_property
    def coefficients(self) -> NDArray:
        """(1 - share)/n_k for the group, -(1 - share)/n_rest for the others, 0 for records that do not count (n,)."""
        inside, outside = self.sizes
        if not inside or not outside:
            return np.full(len(self.y), np.nan)
        # P(event) is a mean over the group and the rest: F_k = (1 - share) (P_k - P_rest).
        rest = outside / (inside + outside)
        return np.where(self.member, rest / inside, -rest / outside) * self.counted

    def events(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """Whether the event happens, of the shape of `scores` (n,) or (models, n)."""
        positive = np.asarray(scores) > 0
        return positive if _NOTIONS[self.notion][1] == "positive" else positive == (self.y == 1)

    def of(self, scores: ArrayLike) -> float | NDArray[np.float64]:
        """F_k: a number for scores (n,), an array (models,) for scores (models, n)."""
        values = self.events(scores) @ self.coefficients
        return float(values) if values.ndim == 0 else values

    @cached_property
    def feasible(self) -> tuple[float, float]:
        """Least and largest F_k of all predictions: -(1 - share of the group) and 1 - share.

        >>> Gap([1, 0, 1, 0], [True, False, False, False]).feasible
        (-0.75, 0.75)
        """
        return self._extremes(np.ones(len(self.y), bool), np.zeros(len(self.y), bool))

    def width_share(self, low: float, high: float) -> float:
        """Width of an interval over that of `feasible`: 1 says nothing about the gap.

        >>> Gap([1, 0, 1, 0], [True, False, False, False]).width_share(-0.25, 0.5)
        0.5
        """
        least, most = self.feasible
        return (high - low) / (most - least)

    def interval(self, scores: ArrayLike, reach: ArrayLike, slack: float = 0.0) -> tuple[float, float]:
        """Between what two values F_k lies for every model whose scores differ from these by at most `reach`.

        Only records with |score| <= reach can change sides. Those that have the event can lose it, the others can gain
        it, and a coefficient's sign says which of the two raises F_k. With slack the two values could be beyond what
        any predictions attain, and are cut there: the interval is within `feasible`.

        Parameters
        ----------
        scores : array (n,)
        reach : float or array (n,)
            At least 0; infinite where nothing is known.
        slack : float
            Weight of the records that may move further, as a share of 2 (1 - share of the group): `output_reach`.

        >>> Gap([1, 0], [True, False]).interval(np.array([1.0, 1.0]), reach=2.0)
        (-0.5, 0.5)
        """
        low, high = self._extremes(np.abs(scores) <= np.asarray(reach), self.events(scores))
        (least, most), further = self.feasible, slack * float(np.abs(self.coefficients).sum())
        return max(low - further, least), min(high + further, most)

    def _extremes(self, free: NDArray[np.bool_], events: NDArray[np.bool_]) -> tuple[float, float]:
        """Least and largest F_k if the `free` records (n,) may have the event or not, and all others keep theirs."""
        # Sums over events in the order of `of`, and not the gap plus what changes. Rounding never turns the order of
        # two numbers around, and so cannot put outside what `of` says of one of these models.
        low, high = (np.where(free, signs, events) @ self.coefficients for signs in self._signs)
        return float(low), float(high)

    @cached_property
    def _signs(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whose event lowers the gap, and whose raises it, (n,) each."""
        return self.coefficients < 0, self.coefficients > 0

    def fraction(self, scores: ArrayLike, reach: ArrayLike) -> float:
        """(1 - share)(q_k + q_rest), q the fractions of records with |score| <= reach: a bound of |change of F_k|."""
        return float(np.abs(self.coefficients) @ (np.abs(scores) <= np.asarray(reach)))

    def printed(self, scores: ArrayLike, reach: ArrayLike) -> float:
        """mean(reach/|score|) in the group plus the same mean over all, the printed chi_k times the displacement.

        Infinite where a score is 0. With "reach" L d, L the Lipschitz constants and d the distance of the models.

        Source: Mangold's defence slides, "Bound on Difference of Fairness".
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.divide(reach, np.abs(scores))
        return self._group_plus_all(np.where(np.isnan(ratio), 0.0, ratio))

    def printed_fraction(self, scores: ArrayLike, reach: ArrayLike) -> float:
        """q_k + q, what is left of the printed bound without Markov's inequality.

        Source: the code published with Mangold et al. 2023, whose optimised Chernoff bound equals it.
        """
        return self._group_plus_all((np.abs(scores) <= np.asarray(reach)).astype(float))

    def expected_flips(self, scores: ArrayLike, scale: ArrayLike) -> float:
        """(1 - share)(q_k + q_rest) with q the expected share of signs that noise N(0, scale_i^2) on the scores flips.

        Exact for one linear model under Gaussian output perturbation, scale_i = noise scale times length of the row;
        a bound of the mean of |change of F_k|.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = ndtr(-np.abs(scores) / np.asarray(scale))
        return float(np.abs(self.coefficients) @ np.nan_to_num(chance))

    def sampling(self, failure: float = FAILURE) -> float:
        """What to add on either side of `interval` so that it holds for the population, not these records only.

        By Hoeffding's inequality for four proportions, with probability 1 - failure over records drawn independently
        of the models, given the group's share. The population's gap is within `feasible` too.

        >>> round(Gap([1] * 200, [True] * 100 + [False] * 100).sampling(0.01), 3)
        0.173
        """
        sizes = np.array(self.sizes)
        return float(sizes[1] / sizes.sum() * np.sqrt(math.log(4 / failure) / (2 * sizes)).sum())

    def _group_plus_all(self, values: NDArray[np.float64]) -> float:
        return float(values[self.counted & self.member].mean() + values[self.counted].mean())


def output_reach(
    lengths: ArrayLike, scale: float, *, failure: float = FAILURE, slack: float = SLACK
) -> NDArray[np.float64]:
    """How far Gaussian noise on a linear model's coefficients moves its scores, without a factor sqrt(p).

    x'(w_private - w) is N(0, scale^2 |x|^2) for each x, so |score moved| > z scale |x| has the probability 2 Phi(-z).
    With coefficients c of a gap, sum |c| = 2 (1 - share), the weight of the records that move further than that has
    the mean 4 (1 - share) Phi(-z); by Markov's inequality it is at most 2 (1 - share) slack with probability 1 -
    failure, if Phi(-z) = slack failure / 2. So `interval(scores, reach, slack)` of the private model holds the gap of
    the model without noise, and the other way round.

    Parameters
    ----------
    lengths : array (n,)
        Euclidean norms of the rows, the constant feature included.
    scale : float
        Standard deviation of each coefficient's noise: `noise_scale_` of a fitted `OutputPerturbationClassifier`.
    failure, slack : float
        In (0, 1), chosen in advance.

    Returns
    -------
    ndarray (n,)

    >>> output_reach(np.array([1.0]), 0.01).round(4)
    array([0.0426])
    """
    return float(-ndtri(slack * failure / 2)) * scale * np.asarray(lengths)


def objective_reach(
    lengths: ArrayLike,
    scale: float,
    *,
    n_records: int,
    regularization: float,
    failure: float = FAILURE,
    slack: float = SLACK,
) -> NDArray[np.float64]:
    """How far Gaussian noise in the objective moves the scores of logistic regression, without a factor sqrt(p).

    Let w(b) minimise the risk with the linear term b'w/n, b ~ N(0, scale^2 I), L its total penalty, rows of
    norm at most R = 1, weights at most 1, and v = scale/(nL).

    * Spread. b -> x'w(b) has the gradient -H^{-1}x/n, of norm at most |x|/(nL). So by Gaussian concentration it is
      within z v |x| of its mean except with probability 2 exp(-z^2/2), and its variance is at most v^2 |x|^2.
    * Bias. Let d, d' be what b and -b move the minimiser by, H the Hessian without noise. The two gradients add up to
      zero: H(d + d') = -(r + r'), r = mean of weight z_i (Taylor remainder of the slope at z_i'd), which is at most k
      (z_i'd)^2/2, k = 1/(6 sqrt 3) the largest third derivative. With M the mean of E (z_i'd)^2, |E x'd| <= a |x|, a =
      k R M / (2L), and M <= R^2 (v^2 + a^2). So a <= A (v^2 + a^2), A = k R^3 / (2L). The mean is continuous in the
      scale and 0 at 0, so a is at most the smaller root, (1 - sqrt(1 - 4 A^2 v^2)) / (2A), as long as 2 A v <= 1.

    The reach is (z v + a) |x|, and `interval` is used as with `output_reach`.

    Parameters
    ----------
    lengths, failure, slack
        As in `output_reach`.
    scale : float
        Standard deviation of each coordinate of b: `noise_scale_` of a fitted classifier.
    n_records, regularization
        n that divides the loss, and the total penalty.

    Returns
    -------
    ndarray (n,)
        Infinite where 2 A v > 1: nothing is proved there.

    >>> objective_reach(np.array([1.0]), 10.0, n_records=30_000, regularization=0.01).round(4)
    array([0.1654])
    """
    spread = scale / (n_records * regularization)
    bend = _LARGEST_THIRD_DERIVATIVE / (2 * regularization)
    if 2 * bend * spread > 1:
        return np.full(np.shape(lengths), np.inf)
    # The smaller root, written without a difference of near numbers.
    bias = 2 * bend * spread**2 / (1 + math.sqrt(1 - (2 * bend * spread) ** 2))
    return (math.sqrt(2 * math.log(2 / (failure * slack))) * spread + bias) * np.asarray(lengths)


def released_gaps(
    gaps: Mapping[Hashable, Gap],
    coefficients: ArrayLike,
    rows: ArrayLike,
    scale: float,
    *,
    n_models: int,
    rng: np.random.Generator,
) -> dict[Hashable, NDArray[np.float64]]:
    """Gaps of a linear model under output perturbation, draw by draw, and what each draw says by itself.

    Parameters
    ----------
    gaps : dict of Gap
        All about the records of `rows`.
    coefficients : array (p,)
        Of the model without noise.
    rows : array (n, p)
    scale : float
        Standard deviation of each coefficient's noise.
    n_models : int
    rng : numpy.random.Generator

    Returns
    -------
    dict of ndarray (n_models, 3)
        For each key of `gaps`: the private model's gap, and its interval for the gap without noise.

    >>> gaps = {"first": Gap([1, 0], [True, False])}
    >>> drawn = released_gaps(gaps, [1.0], [[1.0], [-1.0]], 0.1, n_models=2, rng=np.random.default_rng(0))
    >>> drawn["first"].round(3).tolist()
    [[0.5, 0.498, 0.5], [0.5, 0.498, 0.5]]
    """
    coefficients, rows = np.asarray(coefficients, float), np.asarray(rows, float)
    reach = output_reach(np.linalg.norm(rows, axis=1), scale)
    found = {key: np.empty((n_models, 3)) for key in gaps}
    for place in range(n_models):
        scores = rows @ (coefficients + scale * rng.standard_normal(len(coefficients)))
        for key, gap in gaps.items():
            found[key][place] = gap.of(scores), *gap.interval(scores, reach, SLACK)
    return found


def published_reach(
    lengths: ArrayLike, *, epsilon: float, delta: float, n_records: int, dimension: int, regularization: float
) -> NDArray[np.float64]:
    """Lipschitz constant times displacement as in the published code, for rows in the unit ball.

    The constant is 2 sqrt(2) |x| where the margin of two classes has |x|; the displacement's tail is sqrt(32 p
    log(1.25/delta) log(2/failure)) / (epsilon lambda n), where it is the noise scale times the quantile of a chi
    variable with p degrees of freedom.

    Parameters
    ----------
    lengths : array (n,)
        As in `output_reach`.
    epsilon, delta, n_records, regularization
        As in `OutputPerturbationClassifier`.
    dimension : int
        p, number of coefficients.

    Source: the code published with Mangold et al. 2023 (pmangold/fairness-privacy), read at commit a7a03ae.

    >>> published_reach(np.array([1.0]), epsilon=1.0, delta=1e-9, n_records=30_000, dimension=109,
    ...                 regularization=0.01).round(2)
    array([5.87])
    """
    tail = math.sqrt(32 * dimension * math.log(1.25 / delta) * math.log(2 / FAILURE))
    return 2 * math.sqrt(2) * np.asarray(lengths) * tail / (epsilon * regularization * n_records)


def load_members(name: str, attribute: str, level: str) -> NDArray[np.bool_]:
    """Which records of `helpers.data.load(name)` are in one group (n,), of bool.

    Parameters
    ----------
    name, attribute, level
        As in `LEVELS`. Nobody has to be in the group.

    Raises
    ------
    ValueError
        A data set, an attribute or a level that `LEVELS` does not have, before anything is loaded.
    DatasetUnavailable
        As `load` does.

    >>> int(load_members("adult", "race", "Black").sum())
    4685
    """
    levels = LEVELS[check_choice("name", name, tuple(LEVELS))]
    check_choice("level", level, levels[check_choice("attribute", attribute, tuple(levels))])
    if name == "adult":
        adult = load("adult")
        return adult.X[:, adult.feature_names.index(f"{attribute}={level}")] == 1
    known = ham10000_metadata()[attribute]
    if attribute == "age" and level in _AGES:
        youngest, beyond = _AGES[level]
        return ((known >= youngest) & (known < beyond)).to_numpy()
    return (known.isna() if attribute == "age" else known == level).to_numpy()


# What the main page takes from its recorded models: how far noise and class weights moved a gap.

_WOMEN = ("women", "demographic_parity")
_SMALL_GROUP = ("Black", "equal_opportunity")
_STRONG, _WEAK = 0.01, 0.001
"""The two penalties of the table on the page."""


def bounds_in_words(bounds: pd.DataFrame) -> dict[str, str]:
    """What the text says of the table of bounds on Adult, by the key that it is glued under."""
    cell = bounds.set_index(["penalty", "group", "notion"])
    weak = cell.loc[(_WEAK, *_WOMEN)]
    return {
        "models": f"{cell.models[(_STRONG, *_WOMEN)]:,.0f}",
        "weak_count": f"{weak.here:.2f}",
        "weak_mean": f"{weak['mean']:.2f}",
        "weak_seen": f"{weak.q99:.2f}",
        "n_small": f"{cell.n[(_STRONG, *_SMALL_GROUP)]:,}",
    }


def moved_by_weights(runs: pd.DataFrame, gap: str) -> float:
    """How far class weights moved a gap of the model without noise; `gap` is a column of the recorded learners."""
    mean = runs.groupby("method")[gap].mean()
    return abs(mean["not private, weights"] - mean["not private"])


def moved_by_noise(runs: pd.DataFrame, gap: str) -> float:
    """The farthest that noise in the objective moved a gap in any recorded model, with or without class weights."""
    mean = runs.groupby("method")[gap].mean()
    return max(
        (runs[gap][runs.method == f"private{end}"] - mean[f"not private{end}"]).abs().max() for end in ("", ", weights")
    )


def moves_in_words(runs: pd.DataFrame) -> dict[str, str]:
    """What the text says of the recorded learners, by the key that it is glued under."""
    return {
        "weights_parity": f"{moved_by_weights(runs, 'women, parity'):.2f}",
        "weights_small": f"{moved_by_weights(runs, 'Black, TPR'):.2f}",
        "noise_max": f"{moved_by_noise(runs, 'women, parity'):.2f}",
        "noise_small": f"{moved_by_noise(runs, 'Black, TPR'):.2f}",
        "fits": f"{(runs.method == 'private').sum()}",
    }
