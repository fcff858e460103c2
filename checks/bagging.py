"""What the chapter on bagging compares: ensembles of many sizes beside one private model, and intervals for new data.

Draws, scores and models are `checks.ensembles`, which the tables of the appendix use too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import BaseEstimator

from checks.ensembles import ensemble, scored, single
from helpers.data import Dataset


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
        `method`, `m`, `voting` and `ensembles.METRICS`.
    """
    one = single(learner, train, budget["epsilon"], seed)
    yield scored(one, test, method="DPLR", m=1, voting="hard")
    for m in learners:
        for name, kind in kinds.items():
            if getattr(kind(learner, m), "public_labels", False) and min(train.counts) < m:
                continue
            model = ensemble(kind, learner, train, m, seed, **budget)
            for voting in ("hard", "soft"):
                yield scored(model.set_params(voting=voting), test, method=name, m=m, voting=voting)


def over_new_data(gains: pd.DataFrame, test_share: float, *, level: float = 0.95) -> pd.DataFrame:
    """Paired gains with intervals over repetitions, widened to what they are over new data of the distribution.

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
    share = test_share
    error = gains.sd * np.sqrt(1 / gains.n + share / (1 - share))
    half = stats.t.ppf((1 + level) / 2, gains.n - 1) * error
    return gains.assign(low=gains["mean"] - half, high=gains["mean"] + half)
