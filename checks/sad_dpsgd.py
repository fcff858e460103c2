"""How the page on SAD-DPSGD compares noise schedules on skin images, from its recorded trainings."""

from collections.abc import Sequence

import pandas as pd

from helpers.study import comparison

_MEASURES = ("accuracy", "balanced_accuracy", "auc", "mcc")
_SETTING = ("epsilon", "delta", "decision")


def gains(trials: pd.DataFrame, baseline: str, by: Sequence[str] = _SETTING) -> pd.DataFrame:
    """Differences to a schedule; the AUC does not depend on the decision and is kept once."""
    found = comparison.paired_gains(trials, {"method": baseline}, values=_MEASURES, by=by, test_fraction=None)
    return found[~((found.decision == "prior") & (found.metric == "auc"))]


def at_same_setting(trials: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Differences to a schedule, where all have one learning rate and the clipping norm does not fall."""
    return gains(trials[(trials.grid == "equal") & (trials.clip_decay == 1)], baseline)


def three_ways(trials: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Differences to constant noise: at the same setting, with one search each, and with the search repeated."""
    free = gains(trials[trials.grid != "equal"], "DPSGD", [*_SETTING, "grid"])
    return {
        "same setting": at_same_setting(trials, "DPSGD"),
        "one search each": free[free.grid == "full"],
        "search repeated": free[free.grid == "resampled"],
    }


def leads(accuracies: pd.DataFrame) -> pd.Series:
    """How far SAD-DPSGD is ahead of the next best method in each row, with a method in each column."""
    return accuracies["SAD-DPSGD"] - accuracies.drop(columns="SAD-DPSGD").max(axis=1)
