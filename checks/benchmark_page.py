"""What the page on the benchmark takes from its recorded trials and from the published ranks."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from checks import benchmark
from checks.ranks import average_ranks, best_of, guaranteed
from helpers.study import comparison

MEASURES = {key: name for key, name in benchmark.MEASURES.items() if key != "mcc"}
MEASURES["macro_accuracy"] = "Macro-Avg-ACC"
"""Keys of `metrics.score`, and how the paper's Table 3 calls them."""
BOTH = ["auc", "balanced_accuracy"]
SETTING = ["dataset", "epsilon"]
MOMENTS, GEM, PLAIN, WEIGHTED = "additive moments", "GEM + XGBoost", "LogReg", "weighted LogReg"
OFFSET = "offset LogReg, cube"
SHOWN = [
    GEM,
    PLAIN,
    WEIGHTED,
    "AIM + XGBoost",
    "MST, label in all pairs + XGBoost",
    "DP-SGD linear",
    "LogReg + threshold",
    OFFSET,
]
"""The pipelines of Figure 1, those of the paper first."""
FOUR = {
    "GEM + trees": "GEM, paper's size + XGBoost",
    "regression": PLAIN,
    "weighted regression": WEIGHTED,
    "weighted transformer": "weighted DP-SGD FTT, printed",
}
"""The paper's pipelines in the words of the page, each with its name in the registry."""
_PRINTED = {
    "GEM + XGBoost": "GEM + trees",
    "Priv. LogReg": "regression",
    "Priv. Weighted LogReg": "weighted regression",
    "Priv. Weighted FTT": "weighted transformer",
}
_WORDS = {
    "additive moments": "private moments",
    "MST, label in all pairs": "MST",
    "offset LogReg, cube": "regression, share built in",
    "offset LogReg, Gaussian": "regression, share built in, Gaussian noise",
    "LogReg + threshold": "regression, moved cut-off",
    "LogReg": "regression",
    "XGBoost": "trees",
    "DP-SGD linear": "regression by DP-SGD",
    "coordinate descent": "regression by coordinate descent",
    "greedy coordinates": "regression by greedy coordinates",
    "gradient descent": "regression by gradient descent",
}  # replaced in this order
_SHORT = {"auc": "auc", "balanced_accuracy": "ba"}  # in the keys of the page


def plain(name: str) -> str:
    """A name of the registry in words."""
    name = "MST, fewer pairs" + name[3:] if name.startswith("MST + ") else name
    for old, new in _WORDS.items():
        name = name.replace(old, new)
    return name


def word(number: int) -> str:
    """A number up to eight in words, and a larger one in digits."""
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")
    return words[number] if number < len(words) else f"{number:,}"


# Trials


def private_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """The recorded trials of private pipelines that keep their promise."""
    trials = benchmark.labelled(trials)
    return guaranteed(trials[np.isfinite(trials.epsilon) & trials.guarantee_holds])


def complete(trials: pd.DataFrame) -> list[str]:
    """The pipelines that ran on all splits and promise to hide that one record is replaced."""
    splits = trials.groupby("method").seed.nunique()
    return [name for name in splits.index[splits == splits.max()] if "add/remove" not in name]


def mean_scores(field: pd.DataFrame, choice: pd.DataFrame) -> pd.DataFrame:
    """Means over the splits, one row a pipeline, data set and budget, with the sizes of the data set."""
    means = field.groupby(["method", *SETTING, "guarantee_holds"])[BOTH].mean().reset_index()
    sizes = choice.drop_duplicates("dataset").set_index("dataset")
    return means.assign(**{column: means.dataset.map(sizes[column]) for column in ("rare", "records")})


def ranks_over_sets(scores: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """`average_ranks` of the means on each data set."""
    return average_ranks(scores.groupby(["method", "dataset"])[list(measures)].mean().reset_index(), measures)


# The paper's four pipelines


def published_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Average ranks of the paper's Table 3, where its version on arXiv is complete: pipelines by measures."""
    ranks = table.assign(rank=pd.to_numeric(table.mean_arxiv))
    ranks = ranks.pivot(index="row_label", columns="col_label", values="rank")[[*MEASURES.values()]]
    return ranks.rename(index=_PRINTED)


def published_leads(ranks: pd.DataFrame) -> pd.Series:
    """By how many ranks the first pipeline leads the second, on each measure except recall."""
    return ranks.drop(columns="Recall").apply(lambda column: column.sort_values().iloc[1] - column.min())


def four_on_the_same_splits(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials of the paper's four pipelines on the splits and budgets that all four have."""
    four = trials[trials.method.isin(FOUR.values())]
    return four[four.groupby([*SETTING, "seed"]).method.transform("nunique") == len(FOUR)]


def ranks_of_four(four: pd.DataFrame) -> pd.DataFrame:
    """Our average ranks of the paper's four pipelines over data sets and budgets: pipelines by measures."""
    means = four.groupby(["method", *SETTING])[[*MEASURES]].mean().reset_index()
    ranks = means.groupby(SETTING)[[*MEASURES]].rank(ascending=False).groupby(means.method).mean()
    return ranks.loc[[*FOUR.values()]].set_axis([*FOUR])


def gem_firsts_of_three(field: pd.DataFrame) -> dict[float | str, int]:
    """On how many measures GEM with 20 rounds is ahead of both regressions, at each budget and over "all" of them."""
    three = field[field.method.isin([GEM, PLAIN, WEIGHTED])]
    means = three.groupby(["method", *SETTING])[[*MEASURES]].mean().reset_index()
    ranks = means.groupby(SETTING)[[*MEASURES]].rank(ascending=False).assign(method=means.method)
    parts = {"all": ranks} | {budget: ranks.loc[part.index] for budget, part in means.groupby("epsilon")}
    return {key: int((part.groupby("method").mean().idxmin() == GEM).sum()) for key, part in parts.items()}


def three_texts(field: pd.DataFrame) -> dict[str, str]:
    """What the text says of GEM with 20 rounds and both regressions, by the budget."""
    firsts = gem_firsts_of_three(field)
    return {"gem_smallest": word(firsts[0.05]), "gem_small": word(firsts[0.1]), "gem_pooled": word(firsts["all"])}


def gem_apart_from_weighted(over: pd.DataFrame) -> int:
    """On how many measures the ranks of GEM and weighted regression differ by more than the critical difference."""
    rank = over.pivot(index="metric", columns="method", values="average_rank")
    gaps = (rank[FOUR["GEM + trees"]] - rank[WEIGHTED]).abs()
    return int((gaps > over.critical_difference.iloc[0]).sum())


def four_texts(published: pd.DataFrame, four: pd.DataFrame) -> dict[str, str]:
    """What the text says of the ranks of the paper's four pipelines."""
    best, over = ranks_of_four(four).idxmin(), ranks_over_sets(four, [*MEASURES])
    leads = published_leads(published)
    return {
        "gem_firsts": word((best == "GEM + trees").sum()),
        "weighted_firsts": word((best == "weighted regression").sum()),
        "splits_four": word(four.seed.nunique()),
        "critical_four": f"{over.critical_difference.iloc[0]:.1f}",
        "apart_two": word(gem_apart_from_weighted(over)),
        "lead_low": f"{leads.min():.2f}",
        "lead_high": f"{leads.max():.2f}",
    }


# Private moments against others


def moments_beside(field: pd.DataFrame, other: str, budget: float) -> pd.DataFrame:
    """Means of private moments and another pipeline on the same splits, with the difference, one row a measure."""
    columns = ["method", *SETTING, "seed", "delta", *BOTH]
    sides = [field.loc[(field.method == name) & (field.epsilon == budget), columns] for name in (MOMENTS, other)]
    share = benchmark.TEST_SHARE
    both = comparison.side_by_side(
        *sides, values=BOTH, settings=SETTING, apart=["method", "delta"], test_fraction=share
    )
    return both.set_index("metric")


def moments_at_one(field: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Private moments beside each other pipeline at a budget of 1."""
    return {name: moments_beside(field, name, 1.0) for name in field.method.unique() if name != MOMENTS}


def gem_hundred_at_one(trials: pd.DataFrame) -> pd.Series:
    """Means of GEM with 100 rounds at a budget of 1."""
    return trials[(trials.method == FOUR["GEM + trees"]) & (trials.epsilon == 1)][BOTH].mean()


def single_sets(field: pd.DataFrame) -> pd.DataFrame:
    """Gains of each other pipeline over private moments at a budget of 1, one row a data set and measure."""
    at_one, baseline, share = field[field.epsilon == 1], {"method": MOMENTS}, benchmark.TEST_SHARE
    return comparison.both_gains(at_one, baseline, values=BOTH, test_fraction=share, by="dataset")


def moments_texts(field: pd.DataFrame, at_one: dict[str, pd.DataFrame]) -> dict[str, str]:
    """What the text says of private moments beside other pipelines."""
    rest = pd.concat([at_one[name] for name in SHOWN[3:]]).sign
    return {
        "rest": f"{len(rest)}",
        "rest_better": f"{(rest == comparison.BETTER).sum()}",
        "rest_open": f"{(rest == comparison.OPEN).sum()}",
        "moments_auc": f"{at_one[GEM].loc['auc', 'first']:.2f}",
        "moments_ba": f"{at_one[GEM].loc['balanced_accuracy', 'first']:.2f}",
        "gem_auc": f"{at_one[GEM].loc['auc', 'second']:.2f}",
    }


def single_texts(trials: pd.DataFrame, field: pd.DataFrame) -> dict[str, str]:
    """What the appendix says of GEM with 100 rounds and of single data sets."""
    sized, single = gem_hundred_at_one(trials), single_sets(field)
    found = {"n_single": f"{len(single) // 2}"}
    for measure, key in _SHORT.items():
        sign = single[single.metric == measure].sign
        found[f"sized_{key}"] = f"{sized[measure]:.2f}"
        found[f"single_{key}_ahead"] = f"{(sign == comparison.WORSE).sum()}"  # of private moments
        found[f"single_{key}_behind"] = f"{(sign == comparison.BETTER).sum()}"
    return found


# Who leads where


def pairs_apart(over: pd.DataFrame, measure: str) -> int:
    """How many pairs of pipelines have average ranks that differ by more than the critical difference."""
    rows = over[over.metric == measure]
    return sum(abs(one - two) > rows.critical_difference.iloc[0] for one, two in combinations(rows.average_rank, 2))


def moments_where_rare(means: pd.DataFrame) -> pd.Series:
    """Mean AUC of private moments by the budget and by whether a data set has more than 200 rare records."""
    moments = means[means.method == MOMENTS]
    return moments.groupby(["epsilon", (moments.rare > 200).rename("rich")]).auc.mean()


def leader_texts(means: pd.DataFrame) -> dict[str, str]:
    """What the text says of the pipelines with the highest AUC, of pairs of ranks and of rare records."""
    top, over, rich = best_of(means, SETTING, "auc"), ranks_over_sets(means, BOTH), moments_where_rare(means)
    largest = means[(means.method == MOMENTS) & (means.epsilon == 5)].set_index("dataset").auc
    return {
        "led_auc": f"{(top.method == MOMENTS).sum()}",
        "leaders_auc": f"{top.method.nunique()}",
        "leaders_one": word(top[top.epsilon == 1].method.nunique()),
        "n_settings": f"{len(top)}",
        "critical": f"{over.critical_difference.iloc[0]:.1f}",
        "pairs_auc": f"{pairs_apart(over, 'auc')}",
        "pairs_ba": f"{pairs_apart(over, 'balanced_accuracy')}",
        "rich_small": f"{rich[0.1, True]:.2f}",
        "poor_small": f"{rich[0.1, False]:.2f}",
        "poor_large": f"{rich[5, False]:.2f}",
        "abalone_19": f"{largest['abalone_19']:.2f}",
        "abalone": f"{largest['abalone']:.2f}",
    }
