"""What the page on class weights and a moved cut-off takes from its recorded study and from the published ranks."""

import pandas as pd

from helpers.study import comparison

SHORT = {"auc": "auc", "balanced_accuracy": "ba"}
"""Measures, each with the name that it has in the keys of the page."""
_PENALTIES = {0.0: "public", 1e-4: "e4", 1e-3: "e3", 1e-2: "e2", 1e-1: "e1"}  # 0: from public numbers


def moved_cut_off_minus_weights(gains: pd.DataFrame) -> pd.DataFrame:
    """Differences between the moved cut-off and class weights on random splits."""
    return gains[(gains.method == "threshold") & (gains.baseline == "weights") & (gains.splits == "random")]


def lead_over_weights(over: pd.DataFrame, metric: str) -> dict[str, float]:
    """Mean lead of the moved cut-off under the penalty from public numbers, and its signed rank test over data sets."""
    public = over[(over.regularization == 0) & (over.metric == metric)]
    tested = comparison.signed_rank(public.groupby("dataset")["mean"].mean().reset_index())
    return {"mean": public["mean"].mean(), **tested}


def better_worse_open(over: pd.DataFrame) -> tuple[int, int, int]:
    """In how many settings the interval of the difference lies above zero, lies below zero, and contains zero."""
    better, worse = int((over.low > 0).sum()), int((over.high < 0).sum())
    return better, worse, len(over) - better - worse


def by_penalty_in_words(over: pd.DataFrame) -> dict[str, str]:
    """Mean difference and count of settings by measure and penalty, by the key that each is glued under."""
    found = {}
    for (metric, penalty), part in over.groupby(["metric", "regularization"]):
        better, worse, not_told = better_worse_open(part)
        found[f"{SHORT[metric]}_at_{_PENALTIES[penalty]}"] = f"{part['mean'].mean():+.3f}"
        found[f"{SHORT[metric]}_open_{_PENALTIES[penalty]}"] = f"{better}, {worse}, {not_told}"
    return found


def worse_rankings_in_words(over: pd.DataFrame) -> str:
    """On which data sets the moved cut-off ranks worse than weights under the strongest penalty, as a phrase."""
    strongest = over[(over.regularization == over.regularization.max()) & (over.metric == "auc") & (over.high < 0)]
    sets = " and ".join(sorted(strongest.dataset.unique()))
    return f"{len(strongest)} combinations with a worse ranking are all on {sets}"


def published_ranks(ranks: pd.DataFrame) -> dict[str, float]:
    """Mean ranks of the private regression without and with weights, by the key that each is glued under."""
    value = ranks.set_index(["row_label", "col_label"]).mean_value
    rows = {"plain": "Priv. LogReg", "weights": "Priv. Weighted LogReg"}
    columns = {"auc": "AUC", "ba": "Bal-ACC"}
    return {f"rank_{short}_{key}": value[rows[key], columns[short]] for key in rows for short in columns}


def lead_of_private_moments(quality: pd.DataFrame) -> pd.DataFrame:
    """Mean lead of private moments over a regression with a moved cut-off, one row a budget; one record replaced."""
    replaced = quality[quality.relation == "replace-one"]
    means = replaced.groupby(["method", "epsilon"])[list(SHORT)].mean()
    return means.loc["moments"] - means.loc["logistic + threshold"]
