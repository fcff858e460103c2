"""Metrics against hand-computed confusion matrices, and what is said about them over seeds and blocks."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from helpers.study import metrics

NEEDS_BOTH_CLASSES = [
    "auc",
    "pr_auc",
    "f1",
    "balanced_accuracy",
    "precision",
    "recall",
    "specificity",
    "worst_class_accuracy",
    "macro_accuracy",
    "g_mean",
    "mcc",
]


def from_confusion(tp, fn, fp, tn):
    y = [1] * (tp + fn) + [0] * (fp + tn)
    return y, [0.9] * tp + [0.1] * fn + [0.8] * fp + [0.2] * tn


@pytest.mark.parametrize(("tp", "fn", "fp", "tn"), [(3, 1, 2, 14), (1, 9, 0, 90), (5, 0, 95, 0), (4, 6, 30, 60)])
def test_binary_metrics_are_the_formulas_of_the_confusion_matrix(tp, fn, fp, tn):
    row = metrics.score(*from_confusion(tp, fn, fp, tn))
    recall, specificity = tp / (tp + fn), tn / (tn + fp)
    margins = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    expected = {
        "recall": recall,
        "specificity": specificity,
        "precision": tp / (tp + fp),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "balanced_accuracy": (recall + specificity) / 2,
        "macro_accuracy": (recall + specificity) / 2,
        "worst_class_accuracy": min(recall, specificity),
        "g_mean": math.sqrt(recall * specificity),
        "mcc": (tp * tn - fp * fn) / math.sqrt(margins) if margins else 0.0,
        "accuracy": (tp + tn) / (tp + fn + fp + tn),
        "prevalence": (tp + fn) / (tp + fn + fp + tn),
        "n": tp + fn + fp + tn,
        "undefined_precision": 0,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_auc_is_the_share_of_ordered_pairs_with_ties_counted_half():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 2, 60), rng.integers(0, 8, 60) / 8
    difference = scores[y == 1][:, None] - scores[y == 0][None, :]
    pairs = (difference > 0).mean() + (difference == 0).mean() / 2
    assert metrics.score(y, scores)["auc"] == pytest.approx(pairs)


def test_average_precision_by_hand():
    # Ranked from the top: 1, 0, 1, 0, 0. Precision 1 at recall 1/2, 2/3 at recall 1.
    row = metrics.score([1, 0, 1, 0, 0], [0.9, 0.8, 0.7, 0.2, 0.1])
    assert row["pr_auc"] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


@given(
    data=st.lists(st.tuples(st.integers(0, 1), st.integers(-50, 50)), min_size=4, max_size=40).filter(
        lambda rows: 0 < sum(label for label, _ in rows) < len(rows)
    ),
    seed=st.integers(0, 1000),
)
def test_rank_metrics_do_not_depend_on_order_or_on_a_monotone_transform(data, seed):
    y, scores = np.array(data).T
    row = metrics.score(y, scores)
    moved = np.random.default_rng(seed).permutation(len(y))
    assert metrics.score(y[moved], scores[moved]) == pytest.approx(row)
    bent = metrics.score(y, np.arctan(scores / 7.0) + 3)
    assert (bent["auc"], bent["pr_auc"]) == pytest.approx((row["auc"], row["pr_auc"]))
    assert metrics.score(1 - y, -scores)["auc"] == pytest.approx(row["auc"])


def test_a_score_equal_to_the_threshold_predicts_the_minority():
    assert metrics.score([0, 1], [0.2, 0.5])["recall"] == 1
    assert metrics.score([0, 1], [0.2, 0.5], threshold=0.51)["recall"] == 0


def test_undefined_precision_is_flagged(recwarn):
    y, scores = [0, 0, 1], [0.1, 0.2, 0.3]
    row = metrics.score(y, scores)
    assert (row["precision"], row["undefined_precision"], row["f1"], row["mcc"]) == (0, 1, 0, 0)
    assert not recwarn.list


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_class_leaves_only_accuracy_and_prevalence(label, recwarn):
    row = metrics.score([label] * 4, [0.1, 0.9, 0.9, 0.9])
    assert all(math.isnan(row[name]) for name in NEEDS_BOTH_CLASSES)
    assert (row["accuracy"], row["prevalence"]) == (0.75 if label else 0.25, label)
    assert not recwarn.list


def one_hot(predicted, n_classes):
    return np.eye(n_classes)[predicted]


def test_multiclass_metrics_by_hand():
    y, predicted = [0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1, 2, 0]
    row = metrics.score(y, one_hot(predicted, 3))
    recalls = [3 / 4, 1, 1 / 2]
    precisions = [3 / 4, 2 / 3, 1]
    f1 = [2 * p * r / (p + r) for p, r in zip(precisions, recalls, strict=True)]
    # With 0/1 scores the one-against-rest AUC is the mean of recall and specificity of that class.
    auc = [(3 / 4 + 3 / 4) / 2, (1 + 5 / 6) / 2, (1 / 2 + 1) / 2]
    correlated, squares_true, squares_predicted = 6 * 8 - (4 * 4 + 2 * 3 + 2 * 1), 64 - 24, 64 - 26
    expected = {
        "recall_0": recalls[0],
        "recall_1": recalls[1],
        "recall_2": recalls[2],
        "balanced_accuracy": np.mean(recalls),
        "macro_accuracy": np.mean(recalls),
        "recall": np.mean(recalls),
        "precision": np.mean(precisions),
        "f1": np.mean(f1),
        "worst_class_accuracy": 1 / 2,
        "g_mean": np.prod(recalls) ** (1 / 3),
        "auc": np.mean(auc),
        "mcc": correlated / math.sqrt(squares_true * squares_predicted),
        "accuracy": 6 / 8,
        "absent_classes": 0,
        "undefined_precision": 0,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_multiclass_means_run_over_the_classes_that_occur(recwarn):
    row = metrics.score([0, 0, 1, 1], one_hot([0, 0, 1, 2], 3))
    assert row["absent_classes"] == 1
    assert math.isnan(row["recall_2"])
    assert (row["balanced_accuracy"], row["worst_class_accuracy"]) == (0.75, 0.5)
    assert row["g_mean"] == pytest.approx(math.sqrt(0.5))
    assert row["undefined_precision"] == 0
    never_predicted = metrics.score([0, 1, 2], one_hot([0, 1, 1], 3))
    assert (never_predicted["undefined_precision"], never_predicted["g_mean"]) == (1, 0)
    assert math.isnan(metrics.score([1, 1], one_hot([0, 1], 3))["auc"])
    assert not recwarn.list


@pytest.mark.parametrize(
    ("y", "scores", "options", "message"),
    [
        ([0, 1], [0.1], {}, "scores must be an array of shape"),
        ([0, 1], [[0.1, 0.9], [0.2, 0.8]], {}, "K >= 3"),
        ([], [], {}, "n >= 1"),
        ([0, 1], [0.1, math.nan], {}, "scores must be finite"),
        ([0, 2], [0.1, 0.2], {}, "y must be codes"),
        ([-1, 1], [0.1, 0.2], {}, "y must be codes"),
        ([0, 1], [0.1, 0.2], {"threshold": math.inf}, "threshold must be"),
    ],
)
def test_score_refuses_bad_input(y, scores, options, message):
    with pytest.raises(ValueError, match=message):
        metrics.score(y, scores, **options)


def trials(values, **columns):
    return pd.DataFrame({"seed": range(len(values)), "auc": values, **columns})


def test_summary_is_one_row_per_setting_and_metric_and_counts_what_is_undefined():
    frame = pd.concat(
        [
            trials([0.8, 0.9, 0.7], method="a", f1=[0.1, np.nan, 0.3]),
            trials([0.5, 0.5, 0.5], method="b", f1=[np.nan] * 3),
        ]
    )
    table = metrics.summary(frame, ["method"], ["auc", "f1"]).set_index(["method", "metric"])
    assert table.index.tolist() == [("a", "auc"), ("a", "f1"), ("b", "auc"), ("b", "f1")]
    assert table["n"].tolist() == [3, 2, 3, 0]
    assert table["n_undefined"].tolist() == [0, 1, 0, 3]
    assert table.loc[("a", "f1"), ["mean", "sd"]].tolist() == pytest.approx([0.2, math.sqrt(0.02)])
    # t quantile with 2 degrees of freedom: 4.3027
    assert table.loc[("a", "auc"), "low"] == pytest.approx(0.8 - 4.302653 * 0.1 / math.sqrt(3), abs=1e-6)
    assert table.loc[("b", "auc"), ["low", "high"]].tolist() == [0.5, 0.5]
    assert table.loc[("b", "f1"), ["mean", "sd", "low", "high"]].isna().all()


def test_one_seed_has_no_interval():
    row = metrics.summary(trials([0.8], method="a"), "method", ["auc"]).iloc[0]
    assert (row["mean"], row["n"]) == (0.8, 1)
    assert row[["sd", "low", "high"]].isna().all()


def test_intervals_cover_the_mean_about_as_often_as_they_say():
    n_settings, n_seeds, nominal = 600, 10, metrics.LEVEL
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "setting": np.repeat(np.arange(n_settings), n_seeds),
            "seed": np.tile(np.arange(n_seeds), n_settings),
            "value": rng.normal(3.0, 2.0, n_settings * n_seeds),
        }
    )
    table = metrics.summary(frame, "setting", ["value"])
    covered = int(((table["low"] <= 3.0) & (table["high"] >= 3.0)).sum())
    exact = binomtest(covered, n_settings).proportion_ci(0.999, method="exact")
    assert exact.low <= nominal <= exact.high
    assert covered / n_settings > 0.9


@pytest.mark.parametrize("columns", [("nothing", ["auc"]), ("method", ["f2"])])
def test_summary_refuses_unknown_columns(columns):
    with pytest.raises(KeyError, match=r"nothing|f2"):
        metrics.summary(trials([0.8, 0.9], method="a"), *columns)


def test_summary_refuses_a_trial_that_occurs_twice():
    frame = pd.concat([trials([0.8, 0.9], method="a")] * 2)
    with pytest.raises(ValueError, match="repeated rows"):
        metrics.summary(frame, "method", ["auc"])


def test_summary_refuses_differences_under_a_metric_s_name():
    with pytest.raises(ValueError, match=r"auc must be in \[0, 1\], got -0.1 to 0.2 .*comparison\.paired_gains"):
        metrics.summary(trials([-0.1, 0.2], method="a"), "method", ["auc"])
    assert metrics.summary(trials([-0.1, 0.2], method="a"), "method", ["auc"], ranges={"auc": (-1, 1)}).low[0] == -1


def test_intervals_stay_inside_the_range_of_the_metric():
    frame = trials([0.99, 1.0, 0.6], method="a", mcc=[-1.0, -0.9, -0.2], seconds=[0.1, 0.0, 3.0])
    table = metrics.summary(frame, "method", ["auc", "mcc", "seconds"]).set_index("metric")
    assert table.high["auc"] == 1
    assert table.low["mcc"] == -1
    assert table.low["seconds"] < 0, "a column without a known range is not clipped"
    assert metrics.summary(frame, "method", ["seconds"], ranges={"seconds": (0, np.inf)}).low[0] == 0


def test_an_interval_says_what_it_is_over():
    frame = trials([0.5, 0.52, 0.48, 0.5], method="a")
    here, elsewhere = (metrics.summary(frame, "method", ["auc"], test_fraction=f).iloc[0] for f in (None, 0.3))
    assert (here.over, elsewhere.over) == (metrics.THIS_DATA, metrics.NEW_DATA)
    # sqrt(1/4 + 3/7) against sqrt(1/4)
    assert (elsewhere.high - elsewhere.low) / (here.high - here.low) == pytest.approx(math.sqrt(1 + 12 / 7))
    with pytest.raises(ValueError, match="test_fraction must be"):
        metrics.summary(frame, "method", ["auc"], test_fraction=1.0)
