"""Private ensembles beside one private model, on draws of one data set at a prescribed imbalance.

A draw has a size, a ratio and a seed; its training and test part, and the bags and the noise of everything that is
fitted to it, follow from these. Whoever fits a model says which total budget it has.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from helpers import data
from helpers.data import Dataset
from helpers.privacy import PrivacyLeakWarning
from helpers.study import metrics

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
