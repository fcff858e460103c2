"""Comparisons: paired differences, intervals that cover what they say they are over, tests over data sets."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers.study import comparison, metrics
from helpers.study.comparison import BETTER, OPEN, WORSE

COMMON = {"values": ["auc"], "test_fraction": None}


def grid(**columns) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [dict(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    return pd.DataFrame(rows).assign(auc=rng.uniform(0.4, 0.9, len(rows)), error=rng.uniform(0.1, 0.4, len(rows)))


# ------------------------------------------------------------------------------------------------ paired gains


def test_a_gain_is_the_difference_on_the_same_split():
    trials = grid(epsilon=[1.0, 5.0], method=["plain", "copies", "shift"], seed=range(6)).sample(frac=1, random_state=1)
    gains = comparison.paired_gains(trials, {"method": "plain"}, by="epsilon", **COMMON).set_index(
        ["epsilon", "method"]
    )
    assert len(gains) == 4
    wide = trials.pivot(index=["epsilon", "seed"], columns="method", values="auc")
    for epsilon, method in gains.index:
        difference = (wide[method] - wide["plain"]).loc[epsilon]
        row = gains.loc[(epsilon, method)]
        paired = stats.ttest_rel(wide[method].loc[epsilon], wide["plain"].loc[epsilon]).confidence_interval()
        assert [row["mean"], row.low, row.high] == pytest.approx([difference.mean(), paired.low, paired.high])
    assert set(gains.baseline) == {"plain"}


def test_smaller_errors_are_gains():
    trials = grid(method=["a", "b"], seed=range(4))
    gains = comparison.paired_gains(trials, {"method": "a"}, values=["auc", "error"], test_fraction=None)
    means = trials.groupby("method")[["auc", "error"]].mean()
    wanted = [means.auc.b - means.auc.a, means.error.a - means.error.b]
    assert gains["mean"].tolist() == pytest.approx(wanted)


def test_a_baseline_without_the_variants_of_its_rivals():
    """One model has no number of learners; every ensemble is compared with it."""
    one = grid(size=[500], method=["one"], m=[1], seed=range(3))
    many = grid(size=[500], method=["bags"], m=[5, 10], seed=range(3))
    gains = comparison.paired_gains(
        pd.concat([one, many]), {"method": "one"}, by="size", variants=["method", "m"], **COMMON
    )
    assert gains[["size", "method", "m"]].values.tolist() == [[500, "bags", 5], [500, "bags", 10]]


def test_undefined_metrics_are_left_out_in_pairs():
    trials = pd.DataFrame({"seed": [0, 1, 2] * 2, "method": list("aaabbb"), "auc": [0.5, np.nan, 0.6, 0.6, 0.7, 0.9]})
    row = comparison.paired_gains(trials, {"method": "a"}, **COMMON).iloc[0]
    assert (row.n, row.n_undefined) == (2, 1)
    assert row["mean"] == pytest.approx(0.2)


def test_gains_stay_in_their_range_and_signs_follow_from_the_interval():
    trials = pd.DataFrame({"seed": [0, 1] * 4, "method": list("aabbccdd"), "auc": [0, 0, 1, 0.8, 0, 0.9, 0.5, 0.5]})
    gains = comparison.paired_gains(trials, {"method": "d"}, **COMMON).set_index("method")
    assert (gains.high <= 1).all()
    assert (gains.low >= -1).all()
    assert gains.sign.to_dict() == {"a": WORSE, "b": OPEN, "c": OPEN}
    single = comparison.paired_gains(trials[trials.seed == 0], {"method": "d"}, **COMMON)
    assert (single.sign == OPEN).all(), "one split decides nothing"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: (t, {"method": "z"}), "a baseline 'z' on its split"),
        (lambda t: (pd.concat([t, t[:1]]), {"method": "a"}), "repeated rows"),
        (lambda t: (t.drop(index=0), {"method": "a"}), "a baseline 'a' on its split, not so in 0"),
    ],
)
def test_incomplete_pairs_are_refused(change, message):
    trials, baseline = change(grid(method=["a", "b"], seed=range(3)))
    with pytest.raises(ValueError, match=message):
        comparison.paired_gains(trials, baseline, **COMMON)


def test_two_baselines_on_one_split_are_refused():
    trials = grid(method=["a", "b"], m=[1, 2], seed=range(3))
    with pytest.raises(ValueError, match="several on one split"):
        comparison.paired_gains(trials, {"method": "a"}, variants=["method", "m"], **COMMON)


# ------------------------------------------------------------------------------------------ what intervals cover


def overlapping_means(n_worlds: int, n_splits: int, fraction: float, seed: int) -> np.ndarray:
    """Mean of a random test part of each of many data sets, shape (worlds, splits); the truth is 0."""
    rng = np.random.default_rng(seed)
    n_test = round(60 * fraction)
    records = rng.standard_normal((n_worlds, 60))
    order = rng.random((n_worlds, n_splits, 60)).argpartition(n_test, axis=2)[:, :, :n_test]
    return np.take_along_axis(records[:, None, :], order, axis=2).mean(axis=2)


def test_corrected_intervals_cover_and_naive_ones_do_not():
    worlds, n_splits, fraction = 1500, 20, 0.3
    scores = overlapping_means(worlds, n_splits, fraction, seed=2)
    trials = pd.DataFrame(
        {"world": np.repeat(np.arange(worlds), n_splits), "seed": np.tile(np.arange(n_splits), worlds)}
    ).assign(method="new", score=scores.ravel())
    both = pd.concat([trials, trials.assign(method="old", score=0.0)])
    covered = {}
    for given_fraction in (None, fraction):
        gains = comparison.paired_gains(
            both, {"method": "old"}, by="world", values=["score"], test_fraction=given_fraction
        )
        covered[given_fraction] = int(((gains.low <= 0) & (gains.high >= 0)).sum())
    right = stats.binomtest(covered[fraction], worlds).proportion_ci(0.999)
    naive = stats.binomtest(covered[None], worlds).proportion_ci(0.999)
    assert right.low <= 0.95, "not wider than it says"
    assert right.high >= 0.93
    assert naive.high < 0.6


def test_the_correction_is_exact_in_expectation_for_means_of_test_parts():
    """Two test parts share a fraction f of their records: var(mean) = E[sd^2] (1/J + f/(1 - f)), not E[sd^2]/J."""
    fraction, n_splits = 0.3, 10
    scores = overlapping_means(20_000, n_splits, fraction, seed=3)
    ratio = scores.mean(axis=1).var() / scores.var(axis=1, ddof=1).mean()
    assert ratio == pytest.approx(1 / n_splits + fraction / (1 - fraction), rel=0.05)


# ------------------------------------------------------------------------------------------------------- tallies


def test_a_tally_counts_settings_with_an_interval():
    gains = pd.DataFrame(
        {"kind": list("xxxy"), "mean": [0.3, -0.2, 0.1, 0.5], "low": [0.1, -0.3, -0.1, np.nan]}
    ).assign(high=[0.4, -0.1, 0.4, np.nan])
    table = comparison.tally(gains, "kind").set_index("kind")
    assert table.index.tolist() == ["x"]
    assert table.loc["x", [BETTER, WORSE, "settings"]].tolist() == [1, 1, 3]
    assert table.loc["x", "largest gain"] == 0.3
    assert comparison.in_words(gains) == "better in 1 and worse in 1 of 3"
    assert comparison.in_words(gains[:0]) == "better in 0 and worse in 0 of 0"


def test_what_chance_explains():
    """Without any effect, more than `by chance` of 400 settings are clearly better in at most 2.5 % of studies."""
    gains = pd.DataFrame({"mean": np.zeros(400), "low": -1.0, "high": 1.0})
    [most] = comparison.tally(gains)["by chance"]
    assert stats.binom.sf(most, 400, 0.025) <= 0.025 < stats.binom.sf(most - 1, 400, 0.025)


# ----------------------------------------------------------------------------------------- tests over data sets


def test_signed_rank_counts_all_sign_patterns():
    mean = np.array([0.02, -0.05, 0.2, 0.03, -0.15, 0.0, 0.0, 0.0, 0.25])
    found = comparison.signed_rank(pd.DataFrame({"dataset": range(9), "mean": mean}))
    # By hand: a zero's rank is halved between the sides, so it never moves the difference of the rank sums.
    ranks = stats.rankdata(np.abs(mean))[mean != 0]
    sums = np.array([ranks @ signs for signs in itertools.product((-1, 1), repeat=6)])
    observed = ranks @ np.sign(mean[mean != 0])
    assert found["p_value"] == pytest.approx(np.mean(np.abs(sums) >= abs(observed) - 1e-9))
    assert (found["n"], found["n_better"], found["n_worse"]) == (9, 4, 2)
    assert comparison.signed_rank(pd.DataFrame({"dataset": range(3), "mean": [0.0] * 3}))["p_value"] == 1


def test_signed_rank_wants_one_number_a_data_set():
    with pytest.raises(ValueError, match="one number for each"):
        comparison.signed_rank(pd.DataFrame({"dataset": [1, 1, 2], "mean": [0.1, 0.2, 0.3]}))


def test_the_words_are_those_of_the_metrics_module():
    trials = grid(method=["a", "b"], seed=range(3))
    over = [
        comparison.paired_gains(trials, {"method": "a"}, values=["auc"], test_fraction=f).over[0] for f in (None, 0.3)
    ]
    assert over == [metrics.THIS_DATA, metrics.NEW_DATA]


# --------------------------------------------------------------------------------- two numbers beside one another


SIDES = {"values": ["auc"], "settings": ["dataset", "learner"], "test_fraction": 0.3}


def side(**changes) -> pd.DataFrame:
    return grid(dataset=["a", "b"], seed=range(4)).drop(columns="error").assign(**{"learner": "trees"} | changes)


def test_two_numbers_are_means_of_the_same_splits_with_both_intervals():
    first, second = side(method="MST"), side(method="GEM", auc=lambda frame: frame.auc[::-1].to_numpy())
    row = comparison.side_by_side(first.sample(frac=1, random_state=0), second, **SIDES).iloc[0]
    assert [row["first"], row["second"]] == pytest.approx([first.auc.mean(), second.auc.mean()])
    assert (row.n, row.n_settings) == (4, 2)
    by_split = [frame.groupby("seed").auc.mean().to_numpy() for frame in (first, second)]
    paired = stats.ttest_rel(*by_split).confidence_interval()
    assert [row.gain, row.low, row.high] == pytest.approx([row["first"] - row["second"], paired.low, paired.high])
    wider = np.sqrt((1 / 4 + 0.3 / 0.7) / (1 / 4))
    assert (row.high_new - row.low_new) / (row.high - row.low) == pytest.approx(wider)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"learner": "XGBoost's defaults"}, "the same learner, got 'trees' and \"XGBoost's defaults\""),
        ({"dataset": "a", "seed": range(8)}, "the same dataset, got 'a', 'b' and 'a'"),
        ({"seed": [0, 1, 2, 3, 4, 5, 6, 7]}, "got 4 in the first alone, as dataset b, learner trees, seed 0"),
        ({"seed": 0}, "one row per"),
        ({"auc": np.nan}, "got repeated or NaN"),
        ({"delta": 1e-5}, "a column 'delta', got it on one side"),
    ],
)
def test_numbers_of_different_trials_are_refused_by_name(changes, refused):
    with pytest.raises(ValueError, match=refused):
        comparison.side_by_side(side(method="MST"), side(method="GEM", **changes), **SIDES)


def test_a_side_with_fewer_splits_and_a_setting_that_nobody_names_are_refused():
    ten, three = side(method="MST"), side(method="GEM")
    with pytest.raises(ValueError, match="the same splits, got 2 in the first alone"):
        comparison.side_by_side(ten, three[three.seed < 3], **SIDES)
    with pytest.raises(ValueError, match="got 'rounds' in neither"):
        comparison.side_by_side(ten.assign(rounds=20), three.assign(rounds=100), **SIDES)
    named = SIDES | {"settings": ["dataset", "learner", "rounds"]}
    with pytest.raises(ValueError, match="the same rounds, got 20 and 100"):
        comparison.side_by_side(ten.assign(rounds=20), three.assign(rounds=100), **named)
    apart = comparison.side_by_side(
        ten.assign(rounds=20), three.assign(rounds=100), apart=["method", "rounds"], **SIDES
    )
    assert apart.gain[0] == 0


def test_both_intervals_are_those_of_paired_gains_and_holm_is_over_the_family():
    trials = grid(epsilon=[0.1, 1.0, 5.0], method=["plain", "copies", "shift"], seed=range(6))
    trials["auc"] += 0.2 * ((trials.method == "copies") & (trials.epsilon == 5.0))
    shared = {"values": ["auc"], "by": "epsilon"}
    gains = comparison.both_gains(trials, {"method": "plain"}, test_fraction=0.3, **shared)
    narrow, wide = (
        comparison.paired_gains(trials, {"method": "plain"}, test_fraction=share, **shared) for share in (None, 0.3)
    )
    pd.testing.assert_frame_equal(gains[["mean", "low", "high", "over"]], narrow[["mean", "low", "high", "over"]])
    assert gains[["low_new", "high_new"]].to_numpy().tolist() == wide[["low", "high"]].to_numpy().tolist()
    assert gains.sign.tolist() == wide.sign.tolist()
    assert set(gains.family) == {3}
    one = gains.assign(family=1).groupby("method").holm.min()
    single = comparison.both_gains(
        trials, {"method": "plain"}, test_fraction=0.3, family=["method", "epsilon"], **shared
    )
    assert set(single.family) == {1}
    # An interval of 95 % excludes 0 where the p-value of its own test is below 5 %.
    assert ((single.holm < 0.05) == (single.sign != OPEN)).all()
    assert one.to_numpy() == pytest.approx(np.minimum(3 * single.groupby("method").holm.min().to_numpy(), 1))
    counted = comparison.both_tallies(gains, "method").set_index("method")
    assert counted.settings.tolist() == [3, 3]
    assert (counted["better, new data"] <= counted["better, these splits"]).all()
    assert (counted["better, Holm"] <= counted["better, new data"]).all()


def test_holm_is_sequential_and_leaves_out_what_has_no_number():
    values = pd.Series([0.01, np.nan, 0.04, 0.03, 0.9])
    assert comparison.holm(values).tolist() == pytest.approx([0.04, np.nan, 0.09, 0.09, 0.9], nan_ok=True)
