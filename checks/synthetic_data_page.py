"""What the page on synthetic data takes from recorded trials and from the published ranks."""

import numpy as np
import pandas as pd

from helpers.study import comparison

MEASURES = ["auc", "f1", "balanced_accuracy", "precision", "recall", "worst_class_accuracy", "macro_accuracy", "g_mean"]
MAKERS = {
    "MST": "MST, label in all pairs + XGBoost",
    "AIM": "AIM + XGBoost",
    "GEM": "GEM + XGBoost",
    "PrivBayes": "PrivBayes + XGBoost",
}
"""Synthesisers, each with the pipeline that learns from its records."""
DIRECT = {"auc": "LogReg", "balanced_accuracy": "LogReg + threshold"}
"""For each measure, the direct regression that is judged by it."""
CURVES = {"proper": "GEM", "misread": "GEM as wrapped"}
"""How the table of GEM's curves calls GEM with 20 rounds, by its budget."""
_SIZED = {
    "proper": "GEM, paper's size + XGBoost",
    "misread": "GEM as wrapped + XGBoost",
}  # 100 rounds, in the benchmark
_REGRESSIONS = {"LogReg": "logistic", "weighted LogReg": "weighted logistic"}  # in the benchmark, in the curves
_SHORT = {"auc": "auc", "balanced_accuracy": "ba"}  # in the keys of the page


def private_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """The benchmark's trials with privacy, with their budget in a column that is called as in the table of curves."""
    return trials[np.isfinite(trials.epsilon)].rename(columns={"epsilon": "budget"})


# GEM with its proper and with a misread budget


def hundred_rounds(trials: pd.DataFrame) -> pd.DataFrame:
    """Private trials of GEM with 100 rounds and of two regressions, on the splits and budgets of the former."""
    chosen = trials[trials.method.isin([*_SIZED.values(), *_REGRESSIONS])]
    proper = chosen[chosen.method == _SIZED["proper"]]
    chosen = chosen[chosen.seed.isin(proper.seed) & chosen.budget.isin(proper.budget)]
    return chosen.replace({"method": _REGRESSIONS})


def gem_ranks(curves: pd.DataFrame, sized: pd.DataFrame) -> dict[tuple[str, int], pd.DataFrame]:
    """Average ranks of GEM and of two regressions on eight measures, by GEM's budget and its number of rounds."""
    return {
        ("proper", 20): _ranks_of_three(curves, CURVES["proper"]),
        ("proper", 100): _ranks_of_three(sized, _SIZED["proper"]),
        ("misread", 20): _ranks_of_three(curves, CURVES["misread"]),
        ("misread", 100): _ranks_of_three(sized, _SIZED["misread"]),
    }


def _ranks_of_three(trials: pd.DataFrame, gem: str) -> pd.DataFrame:
    three = trials[trials.method.isin([gem, *_REGRESSIONS.values()])].replace({"method": {gem: "GEM"}})
    ranks = three.groupby(["dataset", "budget", "seed"])[MEASURES].rank(ascending=False)
    return ranks.groupby(three.method).mean()


def published_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Average ranks of the paper's Table 3, a row for each pipeline and a column for each measure."""
    return table.pivot(index="row_label", columns="col_label", values="mean_value")


def first_on(ranks: pd.DataFrame, name: str) -> list[str]:
    """The measures on which a method has the best average rank."""
    return [measure for measure in ranks if ranks[measure].idxmin() == name]


def over_sets(trials: pd.DataFrame, method: str, baseline: str, measure: str) -> dict[str, float]:
    """Signed rank test, over data sets, of the mean gain over all budgets and splits; a positive gain is better."""
    both = trials[trials.method.isin([method, baseline])]
    mean = both.groupby(["dataset", "method"])[measure].mean().unstack()
    gain = (mean[method] - mean[baseline]).rename("mean").reset_index()
    return comparison.signed_rank(gain) | {"gain": gain["mean"].mean()}


def gem_texts(curves: pd.DataFrame) -> dict[str, str]:
    """On how many data sets GEM with 20 rounds is worse, or with a misread budget better, than weighted regression."""
    found = {}
    for budget, name in CURVES.items():
        test = over_sets(curves, name, "weighted logistic", "balanced_accuracy")
        told = test["n_better"] if budget == "misread" else test["n_worse"]
        found[f"sets_{budget}"] = f"{told} of {test['n']}"
        found[f"p_{budget}"] = f"{test['p_value']:.3f}"
    return found


# Made-up records and direct training


def means_at_one(trials: pd.DataFrame) -> pd.DataFrame:
    """Means of each method over data sets and splits at a budget of 1."""
    return trials[trials.budget == 1].groupby("method")[[*DIRECT]].mean()


def beside(trials: pd.DataFrame, first: str, second: str, measure: str, dataset: str | None = None) -> pd.Series:
    """Means of two methods at a budget of 1 on the same splits, with the difference; over one data set or all eight."""
    chosen = trials[(trials.budget == 1) & ((trials.dataset == dataset) | (dataset is None))]
    sides = [chosen[chosen.method == name] for name in (first, second)]
    settings = {"settings": ["dataset", "budget"], "apart": ["method", "delta"]}
    return comparison.side_by_side(*sides, values=[measure], test_fraction=0.3, **settings).iloc[0]


def gains_over_direct(trials: pd.DataFrame, maker: str, measure: str) -> pd.DataFrame:
    """The gain of a synthesiser over direct regression, one row a data set and budget."""
    both = trials[trials.method.isin([MAKERS[maker], DIRECT[measure]])]
    baseline, by = {"method": DIRECT[measure]}, ["dataset", "budget"]
    return comparison.both_gains(both, baseline, values=[measure], test_fraction=0.3, by=by)


def maker_texts(trials: pd.DataFrame) -> dict[str, str]:
    """What the text says of the synthesisers, of private moments and of direct regression."""
    at_one, found = means_at_one(trials), {}
    for measure, short in _SHORT.items():
        found[f"{short}_MST"] = f"{at_one[measure][MAKERS['MST']]:.2f}"
        found[f"{short}_moments"] = f"{at_one[measure]['additive moments']:.2f}"
        clinic = beside(trials, MAKERS["MST"], DIRECT[measure], measure, "mammography")
        found[f"clinic_{short}"] = f"{clinic['first']:.2f}"
        found[f"clinic_{short}_direct"] = f"{clinic['second']:.2f}"
        for maker, method in MAKERS.items():
            found[f"p_{short}_{maker}"] = f"{over_sets(trials, method, DIRECT[measure], measure)['p_value']:.2g}"
    return found


def gain_texts(trials: pd.DataFrame) -> dict[str, str]:
    """Each synthesiser's mean gain over direct regression, and how many gains are better, worse and open."""
    found = {}
    for maker in MAKERS:
        for measure, short in _SHORT.items():
            gains = gains_over_direct(trials, maker, measure)
            better, worse = (gains.sign == comparison.BETTER).sum(), (gains.sign == comparison.WORSE).sum()
            found[f"gain_{short}_{maker}"] = f"{gains['mean'].mean():+.3f}"
            found[f"signs_{short}_{maker}"] = f"{better}, {worse}, {len(gains) - better - worse}"
    return found
