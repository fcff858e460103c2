"""Private linear classifiers on one training problem: how near to the least loss, by what is known of the scale.

A method is an algorithm and a knowledge of the scale of the features. All algorithms get the same knowledge in the same
way, the same number of settings, and (epsilon, 1/n^2) under add/remove-one with public n, so that a difference between
two of them is a difference of algorithms. Tuning looks at the records and is not paid for; it says what a method could
do, not what a release would.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from helpers.erm import (
    DPCoordinateDescentClassifier,
    DPGradientDescentClassifier,
    DPGreedyCoordinateClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
    default_regularization,
)
from helpers.erm.scaling import SCALE_SHARE, box_frame, floored
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger, NeighboringRelation, Release, gaussian_multiplier
from helpers.validation import check_bounds

_SHARE = SCALE_SHARE  # for a private scale
_SAMPLE = 0.05
_SELECTIONS = {"DP-GCD": "gumbel", "DP-GCD, Laplace": "laplace"}
_PERTURBATIONS = ("objective", "objective, Gaussian", "output")


class Setting(NamedTuple):
    """What is tuned.

    Attributes
    ----------
    step : float
        In units of 1 / (the loss's curvature times the mean square length that the frame expects of a row or entry);
        with one clip, of 1 / (curvature times the square of the longest possible row). A perturbation divides its
        default penalty by it.
    clip : float
        Length of a row at which it is clipped, in units of the frame; with one clip, of the longest possible row.
    passes : int
        Looks at all records; no part of a perturbation.
    """

    step: float
    clip: float
    passes: int


class Problem:
    """Logistic loss without intercept, (penalty / 2) ||w||^2 added.

    Parameters
    ----------
    X : array (n, p)
    y : array (n,)
        0 and 1.
    bounds : array (p, 2), optional
        Public; left out where X is standardised, which is then taken as public knowledge ("given").
    penalty : float
        At least 0; with a penalty the scale has to be given, for it is part of what the penalty means.

    >>> X = np.array([[1.0], [1.0], [1.0], [-1.0]])
    >>> problem = Problem(X, np.array([1, 1, 0, 0]))
    >>> round(float(problem.optimum[0]), 3), round(problem.gap(np.zeros(1)), 3)
    (1.099, 0.233)
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, bounds: ArrayLike | None = None, penalty: float = 0.0):
        self.X, self.y = np.asarray(X, dtype=float), np.asarray(y)
        self.bounds = None if bounds is None else np.asarray(bounds, dtype=float)
        self.penalty = penalty

    def __reduce__(self):
        # Without what has been computed since: stored trials are found again by the problem they close over.
        return Problem, (self.X, self.y, self.bounds, self.penalty)

    def loss(self, w: NDArray[np.float64]) -> float:
        """Mean loss and penalty at w (p,)."""
        margins = (2.0 * self.y - 1) * (self.X @ w)
        return float(np.logaddexp(0.0, -margins).mean() + self.penalty / 2 * (w @ w))

    @cached_property
    def optimum(self) -> NDArray[np.float64]:
        """The minimiser (p,)."""
        C = 1 / (len(self.y) * self.penalty) if self.penalty else np.inf
        solver = LogisticRegression(C=C, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        return solver.fit(self.X, self.y).coef_[0]

    @cached_property
    def least(self) -> float:
        """Loss of the minimiser."""
        return self.loss(self.optimum)

    def gap(self, w: NDArray[np.float64]) -> float:
        """(loss - least) / least."""
        return (self.loss(w) - self.least) / self.least


def settings(steps: Sequence[float], clips: Sequence[float], passes: Sequence[int]) -> list[Setting]:
    """All combinations: what every method may try."""
    return [Setting(step, clip, number) for number in passes for clip in clips for step in steps]


def coefficients(
    problem: Problem, algorithm: str, scale: str, setting: Setting, epsilon: float, seed: int
) -> NDArray[np.float64]:
    """Coefficients (p,) in the units of X that one private run leaves.

    Parameters
    ----------
    problem : Problem
    algorithm : {"DP-GD", "DP-SGD", "DP-CD", "DP-CD, drawn", "DP-GCD", "DP-GCD, Laplace"} or a perturbation
        "DP-SGD": Poisson samples of a twentieth. "DP-CD": whole sweeps by the sweep lemma, clipped by record;
        "DP-CD, drawn": coordinates drawn independently, clipped by coordinate, noise as exact accounting has it.
        "objective" (delta = 0), "objective, Gaussian" and "output" perturb the objective or its minimiser.
    scale : {"one clip", "box", "private", "given"}
        "one clip": features as they are, one clip and one step for all. "box": by the farther bound. "private": root
        mean squares, released by a tenth of the budget. "given": X is standardised, and that is not paid for.
    setting : Setting
    epsilon : float
    seed : int

    Raises
    ------
    ValueError
        Bounds that are missing, or are there beside a given scale; or what the estimators refuse.

    >>> X, y = np.array([[-1.0], [1.0]] * 500), np.array([0, 1, 1, 1] * 250)
    >>> w = coefficients(Problem(X, y), "DP-GD", "given", Setting(1.0, 1.0, 64), epsilon=1.0, seed=0)
    >>> round(float(w[0]), 1)
    1.1
    """
    if (scale == "given") != (problem.bounds is None):
        raise ValueError(f"scale must be 'given' where there are no bounds, and only there, got {scale!r}")
    if problem.penalty and scale != "given":
        raise ValueError(f"scale must be 'given' with a penalty, got {scale!r}")
    fit = _perturbed if algorithm in _PERTURBATIONS else _descended
    return fit(problem, algorithm, scale, setting, epsilon, seed)


def tuned(trials: pd.DataFrame, by: Sequence[str], value: str = "gap") -> pd.DataFrame:
    """The setting of least mean `value` over seeds for each group of `by`, and whether it lies at the end of a list.

    Parameters
    ----------
    trials : DataFrame
        Columns `by`, `step`, `clip`, `passes`, `value`.

    Returns
    -------
    DataFrame
        `by`, the setting, `value`, and `at_end`: whether the best step is the smallest or largest of its group.

    >>> trials = pd.DataFrame({"method": "a", "step": [1.0, 2.0, 3.0], "clip": 1.0, "passes": 8, "gap": [3, 1, 2]})
    >>> tuned(trials, ["method"])[["step", "gap", "at_end"]].to_numpy().tolist()
    [[2.0, 1.0, False]]
    """
    by = list(by)
    means = trials.groupby([*by, *Setting._fields], sort=False)[value].mean().reset_index()
    steps = means.groupby(by, sort=False).step
    means["at_end"] = (means.step == steps.transform("min")) | (means.step == steps.transform("max"))
    return means.loc[means.groupby(by, sort=False)[value].idxmin()].reset_index(drop=True)


def private_second_moments(
    X: NDArray,
    bounds: ArrayLike,
    epsilon: float,
    delta: float = 0.0,
    *,
    n_records: int,
    rng: np.random.Generator,
    neighbouring: NeighboringRelation = REPLACE_ONE,
    center: ArrayLike | None = None,
) -> Release:
    """Mean square of each feature about a public centre, in units of the distance of the farther bound.

    A record adds a vector of [0, 1]^d to the sum, so adding, removing or replacing one moves it by at most sqrt(d) in
    l2 and by at most d in l1. Released means are raised to two standard deviations of their noise, below which they say
    nothing, and are at most 1.

    Parameters
    ----------
    X : ndarray (n, d)
        Private, finite; values outside the bounds are clipped to them.
    bounds : array (d, 2)
        Public, the lower one first. A feature whose bounds coincide with its centre counts as 0.
    epsilon : float
        Above 0.
    delta : float
        0 for Laplace noise, or in (0, 1) for Gaussian noise.
    n_records : int
        Public number >= 1 that divides the sum.
    rng : numpy.random.Generator
        Has to be secret, and `assumes` says so.
    neighbouring : NeighboringRelation
        `REPLACE_ONE` or `ADD_REMOVE`.
    center : float or array (d,), optional
        Public; the middle of the bounds if left out.

    Returns
    -------
    Release
        The value is an array (d,) in (0, 1].

    Source: Gaussian and Laplace mechanisms, as in `helpers.privacy`; the floor is post-processing.

    >>> X, rng = np.linspace(-3.0, 3.0, 2001)[:, None], np.random.default_rng(0)
    >>> private_second_moments(X, [[-3.0, 3.0]], epsilon=1.0, n_records=2001, rng=rng).value.round(3)
    array([0.334])
    """
    box, ledger = box_frame(*check_bounds("bounds", bounds).T, center), Ledger(X, neighbouring, rng)
    d = len(box.low)

    def squares(X):
        return np.array([column @ column for column in box.rows(X).T])

    if delta > 0:
        multiplier = gaussian_multiplier(epsilon, delta)
        noisy, noise_scale = ledger.gaussian(squares, math.sqrt(d), multiplier), math.sqrt(d) * multiplier
        source = "Gaussian mechanism (Balle and Wang 2018, Theorem 9)"
    else:
        noisy, noise_scale = ledger.laplace(squares, float(d), epsilon), math.sqrt(2) * d / epsilon
        source = "Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006, Proposition 1)"
    ledger.assume("feature bounds public", "number that divides the sums public")
    return Release(floored(noisy, n_records, noise_scale), ledger.guarantee(epsilon, delta, source=source))


def _descended(problem, algorithm, scale, setting, epsilon, seed):
    n, p = problem.X.shape
    common = {"epsilon": epsilon, "delta": 1 / n**2, "neighbouring": ADD_REMOVE, "n_records": n, "random_state": seed}
    common |= {"center": 0.0, "fit_intercept": False, "bounds": problem.bounds}
    # Rows of a known scale are divided by sqrt(p), so their coefficients are sqrt(p) times as large.
    common |= {"penalty": "l2" if problem.penalty else None, "regularization": (problem.penalty or 1.0) / p}
    step, radius = setting.step, setting.clip
    if scale == "one clip":
        step, radius = step * radius**2, radius * _longest(problem)
    names = {"one clip": None, "box": "public", "given": np.ones(p)}
    common |= {"scale": names.get(scale, scale), "step": step, "radius": radius}
    match algorithm:
        case "DP-CD":
            model = DPCoordinateDescentClassifier(sweeps=setting.passes, **common)
        case "DP-CD, drawn":
            model = DPCoordinateDescentClassifier(sweeps=setting.passes, order="iid", clip="coordinate", **common)
        case "DP-GD" | "DP-SGD":
            rate = _SAMPLE if algorithm == "DP-SGD" else None
            model = DPGradientDescentClassifier(n_steps=setting.passes, average=0.5, sample_rate=rate, **common)
        case _:
            model = DPGreedyCoordinateClassifier(n_steps=setting.passes, selection=_SELECTIONS[algorithm], **common)
    return model.fit(problem.X, problem.y).coef_[0]


def _longest(problem) -> float:
    return float(np.linalg.norm(np.abs(problem.bounds).max(axis=1)))


def _perturbed(problem, algorithm, scale, setting, epsilon, seed):
    n, p = problem.X.shape
    delta, left = (0.0 if algorithm != "objective, Gaussian" else 1 / n**2), 1.0
    lengths = np.ones(p)
    if scale in ("box", "private"):
        lengths = np.abs(problem.bounds).max(axis=1)
    if scale == "private":
        left = 1 - _SHARE
        rng = np.random.default_rng([seed, p, n])
        spent = (_SHARE * epsilon, _SHARE * delta)
        options = {"n_records": n, "rng": rng, "neighbouring": ADD_REMOVE, "center": 0.0}
        lengths = lengths * np.sqrt(private_second_moments(problem.X, problem.bounds, *spent, **options).value)
    factors = 1 / (lengths * math.sqrt(p)) if scale != "one clip" else np.full(p, 1 / _longest(problem))
    penalty = default_regularization(n, p, epsilon, radius=setting.clip) / setting.step
    common = {"epsilon": left * epsilon, "regularization": penalty, "radius": setting.clip, "fit_intercept": False}
    common |= {"neighbouring": ADD_REMOVE, "n_records": n, "random_state": seed}
    if algorithm == "output":
        model = OutputPerturbationClassifier(**common)
    else:
        model = ObjectivePerturbationClassifier(delta=left * delta, **common)
    return model.fit(problem.X * factors, problem.y).coef_[0] * factors
