"""What the page on private moments takes from the recorded comparison, and how its method divides the budget."""

import math
from collections.abc import Iterable

import pandas as pd

from helpers.data.domain import Domain
from helpers.erm import moments
from helpers.erm.marginals import marginals_move
from helpers.privacy import NeighboringRelation, gaussian_mu

OURS = "moments, add/remove"
OWN = {
    "moments": "private moments",
    "offset logistic": "logistic, share built in",
    "offset logistic (pure)": "logistic, share built in, delta 0",
    "logistic + threshold": "logistic, noisy share",
    "gradient descent": "gradient descent",
}
"""This project's own methods, each with its name on the page."""
NAMES = OWN | {
    "diffprivlib LR": "diffprivlib logistic",
    "diffprivlib RF": "diffprivlib forest",
    "diffprivlib GNB": "diffprivlib naive Bayes",
    "DP-SGD LR": "DP-SGD logistic",
    "DP-SGD MLP": "DP-SGD network",
}


def mean_scores(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over the data sets of what is measured, one row a method."""
    measured = ["auc", "balanced_accuracy", "own_balanced_accuracy", "recall_at_alarms"]
    return trials.groupby("method")[measured].mean()


def methods_of_libraries(methods: Iterable[str]) -> list[str]:
    """Those methods that are not this project's own."""
    return [name for name in methods if name.split(", ")[0] not in OWN]


def nearest_library(gains: pd.DataFrame, metric: str) -> pd.Series:
    """The lead of private moments, one record added or removed, over the library that it leads by least on average."""
    leads = gains[gains.over.isin(methods_of_libraries(gains.over)) & (gains.moments == OURS)]
    return leads[leads.metric == metric].sort_values("gain").iloc[0]


def account_shares(domain: Domain, relation: NeighboringRelation) -> dict[str, float]:
    """Shares of the budget of each noisy sum for two classes, without the Newton step."""
    parts = moments._precisions(relation, marginals_move(domain), 2, step=False)
    cells = moments._MARGINALS[relation]
    return {"size": parts.size, "cells": cells, "common": parts.common, "second": parts.second, "rare": parts.rare}


def noise_in_average_row(width: int, share: float, n: int, rare: int, epsilon: float) -> float:
    """Typical length of the noise in the average of the rare records' rows, at delta = n^-2."""
    return math.sqrt(width / share) / (gaussian_mu(epsilon, n**-2.0) * rare)
