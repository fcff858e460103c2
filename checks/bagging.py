"""What the chapter on bagging compares: private ensembles of many sizes beside one private model.

All on draws of one data set at a prescribed imbalance. A draw has a size, a ratio and a seed; its training and test
part, and the bags and the noise of everything that is fitted to it, follow from these. Whoever fits a model says which
total budget it has. The tables of the appendix use the same draws, scores and models.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import BaseEstimator, clone

from helpers import data
from helpers.data import Dataset
from helpers.privacy import PrivacyLeakWarning
from helpers.study import comparison, metrics

METRICS = ("f1", "balanced_accuracy", "auc")


def feasible(records: Dataset, n: int, ratio: float) -> bool:
    """Whether `n` records at imbalance `ratio` = n0/n1 can be drawn without replacement.

    >>> toy = Dataset("toy", [[0.0], [1.0], [1.0]], [0, 0, 1], ("x",))
    >>> feasible(toy, 3, 2.0), feasible(toy, 3, 1.0)
    (True, False)
    """
    needed = math.floor(n / (1 + ratio) + 0.5)
    return bool(needed <= records.counts[1] and n - needed <= records.counts[0])


def drawn(records: Dataset, n: int, ratio: float, seed: int, test_share: float) -> tuple[Dataset, Dataset]:
    """Training and test part of `n` records at imbalance `ratio`, split by class."""
    part = data.subsample(records, n, ratio, np.random.default_rng([seed, n, int(ratio)]))
    return data.split(part, test_share, seed)


def scored(model: BaseEstimator, test: Dataset, **names: Any) -> dict[str, Any]:
    """`METRICS` on the test part: decisions as in `predict`, the ranking by probabilities (or shares of votes)."""
    decided = metrics.score(test.y, (model.predict(test.X) == 1).astype(float), 0.5)
    ranked = metrics.score(test.y, model.predict_proba(test.X)[:, 1], 0.5)
    return names | {key: (ranked if key == "auc" else decided)[key] for key in METRICS}


def single(learner: BaseEstimator, train: Dataset, epsilon: float, seed: int) -> BaseEstimator:
    """One private model with the whole of `epsilon`."""
    return clone(learner).set_params(epsilon=epsilon, random_state=seed).fit(train.X, train.y)


def ensemble(
    kind: Callable[..., BaseEstimator], learner: BaseEstimator, train: Dataset, m: int, seed: int, **budget: Any
) -> BaseEstimator:
    """A private ensemble of `m` learners within the total `epsilon` and `delta` of `budget`; leaks are not reported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return kind(learner, m, random_state=seed, **budget).fit(train.X, train.y)


def compared(
    train: Dataset,
    test: Dataset,
    learner: BaseEstimator,
    kinds: Mapping[str, Callable[..., BaseEstimator]],
    learners: Sequence[int],
    seed: int,
    **budget: float,
) -> Iterator[dict[str, Any]]:
    """Scores of one private model ("DPLR"), then of all kinds and sizes with hard and soft votes, within one budget.

    A kind whose bags would lack a class, and that looks at public labels, is left out.

    Yields
    ------
    dict
        `method`, `m`, `voting` and `METRICS`.
    """
    one = single(learner, train, budget["epsilon"], seed)
    yield scored(one, test, method="DPLR", m=1, voting="hard")
    for m in learners:
        for name, kind in kinds.items():
            if kind(learner, m).sampling == "public-strata" and min(train.counts) < m:
                continue
            model = ensemble(kind, learner, train, m, seed, **budget)
            for voting in ("hard", "soft"):
                yield scored(model.set_params(voting=voting), test, method=name, m=m, voting=voting)


def over_new_data(gains: pd.DataFrame, test_share: float) -> pd.DataFrame:
    """Paired gains with 95 % intervals over repetitions, widened to what they are over new data of the distribution.

    For recorded gains whose trials are gone; `comparison.paired_gains` does it from trials.

    Parameters
    ----------
    gains : DataFrame
        Columns `mean`, `sd` and `n` (at least 2); its `low` and `high` are replaced.
    test_share : float
        Share of the records in the test part, in (0, 1).

    Source: Nadeau and Bengio 2003, equation (9).

    >>> gains = pd.DataFrame({"mean": [0.1], "sd": [0.1], "n": [10]})
    >>> over_new_data(gains, 0.3)[["low", "high"]].round(3).values.tolist()
    [[-0.064, 0.264]]
    """
    error = gains.sd * np.sqrt(1 / gains.n + test_share / (1 - test_share))
    half = stats.t.ppf(0.975, gains.n - 1) * error
    return gains.assign(low=gains["mean"] - half, high=gains["mean"] + half)


def gap_of_means(new: pd.DataFrame, old: pd.DataFrame) -> pd.DataFrame:
    """Difference of two independent means, with Welch's 95 % interval; for means without their trials.

    It takes trials as independent, so it is over repetitions on one data set; where the trials share splits,
    `comparison.paired_gains` has the narrower interval.

    Parameters
    ----------
    new, old : DataFrame
        Columns `mean`, `sd` and `n` (at least 2); rows are matched by their index.

    Returns
    -------
    DataFrame
        `mean` (new minus old), `low`, `high` and `sign`, on the rows that both have; NaN where a mean is missing.

    >>> a, b = (pd.DataFrame({"mean": [m], "sd": [0.1], "n": [10]}) for m in (0.8, 0.6))
    >>> gap_of_means(a, b)[["low", "high"]].round(3).values.tolist()
    [[0.106, 0.294]]
    """
    new, old = new.align(old, join="inner", axis=0)
    parts = [table.sd**2 / table.n for table in (new, old)]
    error = np.sqrt(parts[0] + parts[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = error**4 / (parts[0] ** 2 / (new.n - 1) + parts[1] ** 2 / (old.n - 1))
    # Two constants differ by exactly their difference, with whatever degrees of freedom.
    margin = stats.t.ppf((1 + metrics.LEVEL) / 2, freedom.fillna(np.inf)) * error
    gap = new["mean"] - old["mean"]
    return comparison.signed(pd.DataFrame({"mean": gap, "low": gap - margin, "high": gap + margin}))
