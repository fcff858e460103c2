"""Comparisons of methods: paired gains with an interval that says what it is over, and tests over data sets.

A gain is the difference of two methods on the same split; positive is better. Its interval is over one of two things.
Repetitions on one data set share its records, so what differs between them is noise, seeds and splits; Student's t
covers their mean, a statement about *this data set*. A statement about *new data of the same distribution* needs the
wider interval of Nadeau and Bengio, because the splits overlap. Statements over several data sets are tests of one
number for each of them. A number of one method that stands beside a number of another comes from `side_by_side`, which
refuses trials that were run in different ways. Metrics themselves belong to `helpers.study.metrics`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from helpers.study import metrics

BETTER, WORSE, OPEN = "clearly better", "clearly worse", "open"
_EXACT_UP_TO = 13  # data sets; 2^13 sign patterns are counted one by one
_COSTS = frozenset({"seconds", "spent", "undefined_precision"})  # measured of a trial, and no metric of it


def paired_gains(
    trials: pd.DataFrame,
    baseline: Mapping[str, Any],
    *,
    values: Sequence[str],
    test_fraction: float | None,
    by: str | Sequence[str] = (),
    variants: Sequence[str] | None = None,
    split: str = "seed",
) -> pd.DataFrame:
    """Gain of every method over a baseline on the same split, with a 95 % interval and what it is over.

    Parameters
    ----------
    trials : DataFrame
        One row per trial, metrics in columns.
    baseline : mapping of column to value
        The rows that all others are compared with, such as {"method": "unmodified"}.
    values : sequence of str
        Metric columns. Where a smaller value is better (`metrics.LOWER_IS_BETTER`) the difference is turned round.
    test_fraction : float or None
        None: the interval is over repetitions on this data set. The share of the records in the test part, in (0, 1)
        (1/k for k folds): it is over new data of the same distribution (Nadeau and Bengio).
    by : str or sequence of str
        Columns of a setting, in which a method and its baseline agree (data set, budget ...).
    variants : sequence of str, optional
        Columns that tell the methods of a setting apart; by default those of `baseline`.
    split : str
        Column of the seed, split or fold that a method and its baseline share.

    Returns
    -------
    DataFrame
        One row per setting, method and metric: the columns of `by` and `variants`, `baseline`, `metric`, `mean`, `sd`,
        `low`, `high`, `n` pairs used, `n_undefined` pairs left out because a metric was NaN, `over`, and `sign`:
        "clearly better" where the interval lies above 0, "clearly worse" where it lies below, else "open".

    Raises
    ------
    ValueError
        A baseline that occurs twice on one split, a repeated trial, or a trial whose split has no baseline.
    KeyError
        Unknown columns.

    Source: Nadeau and Bengio 2003, Inference for the generalization error, equation (9).

    >>> trials = pd.DataFrame({"seed": [0, 1, 2] * 2, "method": list("aaabbb"), "auc": [.5, .6, .7, .6, .8, .9]})
    >>> gains = paired_gains(trials, {"method": "a"}, values=["auc"], test_fraction=None)
    >>> gains.loc[0, ["mean", "low", "high"]].astype(float).round(3).tolist(), gains.sign[0]
    ([0.167, 0.023, 0.31], 'clearly better')
    >>> paired_gains(trials, {"method": "a"}, values=["auc"], test_fraction=0.3).sign[0]
    'open'
    """
    by, values = [by] if isinstance(by, str) else list(by), list(values)
    variants = list(baseline) if variants is None else list(variants)
    if trials.duplicated([*by, *variants, split]).any():
        raise ValueError(f"trials must have one row per {[*by, *variants, split]}, got repeated rows")
    name = ", ".join(str(value) for value in baseline.values())
    is_base = np.logical_and.reduce([trials[column] == value for column, value in baseline.items()])
    base, rest = trials[is_base].set_index([*by, split])[values], trials[~is_base].set_index([*by, split])
    if not base.index.is_unique:
        raise ValueError(
            f"baseline must be one row per {[*by, split]}, got several on one split for {dict(baseline)!r}"
        )
    alone = rest.index[~rest.index.isin(base.index)]
    if len(alone):
        raise ValueError(f"every trial must have a baseline {name!r} on its split, not so in {alone[0]}")
    signs = np.array([-1 if value in metrics.LOWER_IS_BETTER else 1 for value in values])
    rest[values] = signs * (rest[values].to_numpy(float) - base.loc[rest.index].to_numpy(float))
    # A difference of two metrics in [low, high] lies in [low - high, high - low].
    spans = {value: (low - high, high - low) for value in values for low, high in [metrics.metric_range(value)]}
    table = metrics.summary(
        rest.reset_index(), [*by, *variants], values, seed=split, test_fraction=test_fraction, ranges=spans
    )
    table.insert(len(by) + len(variants), "baseline", name)
    return signed(table)


def side_by_side(
    first: pd.DataFrame,
    second: pd.DataFrame,
    *,
    values: Sequence[str],
    settings: Sequence[str],
    test_fraction: float,
    apart: Sequence[str] = ("method",),
    split: str = "seed",
) -> pd.DataFrame:
    """Means of two methods that may stand beside one another: of the same splits, learner and settings, or refused.

    A sentence, caption or table that sets one method's number beside another's takes both from here, so that the two
    cannot come from different runs. Over several settings (data sets, say) each split's mean over them counts once.

    Parameters
    ----------
    first, second : DataFrame
        One row per trial of either side.
    values : sequence of str
        Metric columns.
    settings : sequence of str
        Columns that say how a trial was run, such as data set, budget, delta and learner. Both sides must have them,
        with the same values on the same splits.
    test_fraction : float
        The share of the records in the test part, in (0, 1).
    apart : sequence of str
        Columns in which the sides differ on purpose; what is written about the numbers has to say so.
    split : str
        Column of the seed, split or fold.

    Returns
    -------
    DataFrame
        One row a metric: `metric`; `first` and `second`, the means; `gain`, positive where the first side is better;
        its 95 % interval `low` and `high` over repetitions on this data set, `low_new` and `high_new` over new data
        of the same distribution; `n` splits; `n_settings` that are averaged in each; `sign`, by the wider interval.

    Raises
    ------
    ValueError
        What differs between the sides, by name: a setting, the splits, or a column that one side lacks; a column that
        is no metric and stands neither in `settings` nor in `apart`; repeated trials; a metric that is NaN.

    >>> gem = pd.DataFrame({"method": "GEM", "learner": "trees", "seed": [0, 1, 2], "auc": [0.6, 0.7, 0.8]})
    >>> mst = gem.assign(method="MST", auc=[0.7, 0.9, 0.8])
    >>> row = side_by_side(mst, gem, values=["auc"], settings=["learner"], test_fraction=0.3).iloc[0]
    >>> row[["first", "second", "low", "high", "n"]].astype(float).round(2).tolist(), row.sign
    ([0.8, 0.7, -0.15, 0.35, 3.0], 'open')
    >>> logistic = mst.assign(learner="logistic")
    >>> side_by_side(logistic, gem, values=["auc"], settings=["learner"], test_fraction=0.3)
    Traceback (most recent call last):
    ValueError: both sides must have the same learner, got 'logistic' and 'trees'
    """
    values, settings, sides = list(values), list(settings), (first, second)
    known = {*values, *settings, *apart, split}
    for column in dict.fromkeys([*settings, split, *values, *first.columns, *second.columns]):
        if not all(column in side for side in sides) and column not in apart:
            raise ValueError(f"both sides must have a column {column!r}, got it on one side or none")
        if column not in known and column not in _COSTS and not np.isfinite(metrics.metric_range(column)).all():
            raise ValueError(f"settings or apart must name every column that is no metric, got {column!r} in neither")
    for column in settings:
        found = [set(side[column].astype(object).where(side[column].notna(), None)) for side in sides]
        if found[0] != found[1]:
            raise ValueError(f"both sides must have the same {column}, got {_listed(found[0])} and {_listed(found[1])}")
    keys = [*settings, split]
    for side in sides:
        if side.duplicated(keys).any() or side[values].isna().any(axis=None):
            raise ValueError(f"a side must have one row per {keys}, with numbers for {values}, got repeated or NaN")
    ours, theirs = (side.set_index(keys)[values].astype(float) for side in sides)
    for one, other, word in ((ours, theirs, "first"), (theirs, ours, "second")):
        alone = one[~one.index.isin(other.index)].reset_index()[keys]
        if len(alone):
            named = ", ".join(f"{column} {value}" for column, value in alone.iloc[0].items())
            raise ValueError(f"both sides must have the same splits, got {len(alone)} in the {word} alone, as {named}")
    both = pd.concat([first.assign(_side="first"), second.assign(_side="second")])
    both = both.groupby(["_side", split])[values].mean().reset_index()
    gains, wide = (
        paired_gains(both, {"_side": "second"}, values=values, test_fraction=share, split=split)
        for share in (None, test_fraction)
    )
    means = {word: side[values].mean().to_numpy() for word, side in zip(("first", "second"), sides, strict=True)}
    return pd.DataFrame(
        {"metric": gains.metric, **means, "gain": gains["mean"], "low": gains.low, "high": gains.high}
        | {"low_new": wide.low, "high_new": wide.high, "n": gains.n}
        | {"n_settings": len(first) // gains.n, "sign": wide.sign}
    )


def _listed(found: set) -> str:
    return ", ".join(sorted(map(repr, found)))


def both_gains(
    trials: pd.DataFrame,
    baseline: Mapping[str, Any],
    *,
    values: Sequence[str],
    test_fraction: float,
    by: str | Sequence[str] = (),
    variants: Sequence[str] | None = None,
    split: str = "seed",
    family: Sequence[str] | None = None,
) -> pd.DataFrame:
    """`paired_gains` with both kinds of interval, and whether a gain is told from 0 beside all others of its family.

    Parameters
    ----------
    trials, baseline, values, test_fraction, by, variants, split
        As in `paired_gains`.
    family : sequence of str, optional
        Gains that agree in these columns are one family, the ones that a sentence counts. By default the columns of
        `variants` and the metric: all settings of one method.

    Returns
    -------
    DataFrame
        As of `paired_gains`, where `low`, `high` and `over` are those of repetitions on this data set; `low_new` and
        `high_new`, over new data of the same distribution, by which `sign` is decided; `family`, the number of gains in
        it, and `holm`, the p-value of the wider interval's test corrected for them.

    >>> trials = pd.DataFrame({"seed": [0, 1, 2] * 2, "method": list("aaabbb"), "auc": [.5, .6, .7, .6, .8, .9]})
    >>> gains = both_gains(trials, {"method": "a"}, values=["auc"], test_fraction=0.3)
    >>> gains.loc[0, ["low", "low_new", "holm"]].astype(float).round(3).tolist(), gains.sign[0]
    ([0.023, -0.05, 0.081], 'open')
    """
    gains, wide = (
        paired_gains(trials, baseline, values=values, test_fraction=share, by=by, variants=variants, split=split)
        for share in (None, test_fraction)
    )
    family = [*(baseline if variants is None else variants), "metric"] if family is None else list(family)
    by_family = _p_values(wide, test_fraction).groupby([gains[column] for column in family])
    return gains.assign(
        sign=wide.sign,
        low_new=wide.low,
        high_new=wide.high,
        family=by_family.transform("count"),
        holm=by_family.transform(holm),
    )


def both_tallies(gains: pd.DataFrame, by: str | Sequence[str]) -> pd.DataFrame:
    """How many settings are better and worse by either interval of `both_gains`, and after Holm's correction.

    Returns
    -------
    DataFrame
        One row for each value of the columns `by`: `settings` (with an interval), `mean gain`, and `better` and
        `worse` followed by "these splits", "new data" and "Holm".

    >>> gains = pd.DataFrame({"method": "a", "mean": [.2, -.1], "low": [.1, -.3], "high": [.3, -.01],
    ...                       "low_new": [.05, -.4], "high_new": [.4, .1], "holm": [.03, .2]})
    >>> both_tallies(gains, "method").iloc[0, 3:].astype(int).tolist()
    [1, 1, 1, 0, 1, 0]
    """
    by = [by] if isinstance(by, str) else list(by)
    known = gains[gains.low.notna()]
    is_told = known.holm <= 1 - metrics.LEVEL
    counted = {
        "better, these splits": known.low > 0,
        "worse, these splits": known.high < 0,
        "better, new data": known.low_new > 0,
        "worse, new data": known.high_new < 0,
        "better, Holm": is_told & (known["mean"] > 0),
        "worse, Holm": is_told & (known["mean"] < 0),
    }
    parts = known.assign(**counted).groupby(by, sort=False)
    means = parts["mean"].agg(["size", "mean"]).rename(columns={"size": "settings", "mean": "mean gain"})
    return means.join(parts[list(counted)].sum()).reset_index()


def signed(table: pd.DataFrame) -> pd.DataFrame:
    """The table of intervals with their `sign`, as in `paired_gains`."""
    return table.assign(sign=np.select([table.low > 0, table.high < 0], [BETTER, WORSE], OPEN))


def tally(gains: pd.DataFrame, by: str | Sequence[str] = ()) -> pd.DataFrame:
    """How many settings are clearly better and worse, and how many of either chance alone would give.

    Parameters
    ----------
    gains : DataFrame
        From `paired_gains`, or another table with `mean`, `low` and `high`.
    by : str or sequence of str
        One row for each value of these columns; by default one row in all.

    Returns
    -------
    DataFrame
        `clearly better`, `clearly worse`, `settings` (with an interval), `mean gain`, `largest gain`, and `by chance`:
        the most settings on one side that 2.5 % a setting explain, the 97.5 % point of a binomial number. That
        takes settings as independent, which settings of one data set are not.

    >>> gains = pd.DataFrame({"mean": [.2, .1, -.1], "low": [.1, -.1, -.3], "high": [.3, .2, .1]})
    >>> tally(gains).iloc[0].round(3).tolist()
    [1.0, 0.0, 3.0, 0.067, 0.2, 1.0]
    """
    by = [by] if isinstance(by, str) else list(by)
    decided, rows = gains[gains.low.notna()], []
    for key, part in decided.groupby(by, sort=False, dropna=False) if by else [((), decided)]:
        better, worse, by_chance = (part.low > 0).sum(), (part.high < 0).sum(), stats.binom.ppf(0.975, len(part), 0.025)
        rows.append((*key, better, worse, len(part), part["mean"].mean(), part["mean"].max(), int(by_chance)))
    return pd.DataFrame(rows, columns=[*by, BETTER, WORSE, "settings", "mean gain", "largest gain", "by chance"])


def holm(p_values: pd.Series) -> pd.Series:
    """p-values times the number of hypotheses that are left when their turn comes, the smallest first; NaN stays.

    Of a family of true hypotheses even one is rejected at the level alpha with probability at most alpha, however the
    tests depend on one another.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.

    >>> holm(pd.Series([0.04, 0.01, 0.03])).round(2).tolist()
    [0.06, 0.03, 0.06]
    """
    ordered = p_values.dropna().sort_values()
    return (ordered * np.arange(len(ordered), 0, -1)).cummax().clip(upper=1.0).reindex(p_values.index)


def tested(gains: pd.DataFrame, *, test_fraction: float | None) -> pd.DataFrame:
    """The gains with the p-value of Student's t, against no gain, and with Holm's correction over all of these rows.

    Parameters
    ----------
    gains : DataFrame
        From `paired_gains`: the family of comparisons that one sentence speaks of.
    test_fraction : float or None
        The one of their intervals.

    Returns
    -------
    DataFrame
        With `p_value` (two-sided; below .05 where the interval leaves out 0), `holm`, and `sign` after the correction.

    >>> trials = pd.DataFrame({"seed": [0, 1, 2] * 2, "method": list("aaabbb"), "auc": [.5, .6, .7, .6, .8, .9]})
    >>> gains = paired_gains(trials, {"method": "a"}, values=["auc"], test_fraction=None)
    >>> tested(gains, test_fraction=None)[["p_value", "holm"]].round(3).to_numpy().tolist()
    [[0.038, 0.038]]
    """
    table = gains.assign(p_value=_p_values(gains, test_fraction))
    table["holm"] = holm(table["p_value"])
    decided = table["holm"] < 1 - metrics.LEVEL
    return table.assign(
        sign=np.select([decided & (table["mean"] > 0), decided & (table["mean"] < 0)], [BETTER, WORSE], OPEN)
    )


def _p_values(gains: pd.DataFrame, test_fraction: float | None) -> pd.Series:
    """Two-sided p-values of Student's t for rows of `paired_gains` with intervals of the same kind."""
    overlap = 0.0 if test_fraction is None else test_fraction / (1 - test_fraction)
    error = gains["sd"] * np.sqrt(1 / gains["n"].clip(lower=1) + overlap)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 2 * stats.t.sf((gains["mean"] / error).abs(), gains["n"] - 1)
    # Where all splits agree the error is 0: a gain of 0 is none, any other one is sure on these records.
    return pd.Series(np.where(error == 0, (gains["mean"] == 0).astype(float), found), gains.index)


def in_words(gains: pd.DataFrame) -> str:
    """A tally as a phrase: "better in 3 and worse in 1 of 40".

    >>> in_words(pd.DataFrame({"mean": [.2], "low": [.1], "high": [.3]}))
    'better in 1 and worse in 0 of 1'
    """
    row = tally(gains).iloc[0]
    return f"better in {row[BETTER]:.0f} and worse in {row[WORSE]:.0f} of {row['settings']:.0f}"


def signed_rank(gains: pd.DataFrame) -> dict[str, float]:
    """Wilcoxon's signed rank test that a gain is as often up as down, over data sets.

    Parameters
    ----------
    gains : DataFrame
        One row a `dataset` with its `mean` gain. Data sets are the independent units here, settings of one are not.

    Returns
    -------
    dict
        `p_value` (two-sided), `n` data sets, `n_better` and `n_worse`. Ties and zeros are kept (a zero counts half for
        either side); up to 13 data sets all sign patterns are counted, so the p-value is exact.

    Raises
    ------
    ValueError
        A data set twice, fewer than two, or a gain that is NaN.

    Source: Demsar 2006, Statistical comparisons of classifiers over multiple data sets, section 3.1.3.

    >>> signed_rank(pd.DataFrame({"dataset": list("abcdef"), "mean": [.1, .2, .3, .4, .5, .6]}))["p_value"]
    0.03125
    """
    if gains["dataset"].duplicated().any() or len(gains) < 2 or gains["mean"].isna().any():
        raise ValueError(f"gains must have one number for each of at least two data sets, got {len(gains)} rows")
    mean = gains["mean"].to_numpy(float)
    method = stats.PermutationMethod(n_resamples=2**_EXACT_UP_TO) if mean.size <= _EXACT_UP_TO else "auto"
    # Where all gains are 0 there are no signs to test.
    p_value = stats.wilcoxon(mean, zero_method="zsplit", method=method).pvalue if mean.any() else 1.0
    return {
        "p_value": float(p_value),
        "n": mean.size,
        "n_better": int((mean > 0).sum()),
        "n_worse": int((mean < 0).sum()),
    }
