"""Metrics of a classifier under class imbalance, and their means over repetitions with an interval.

Every number comes from scikit-learn's or imbalanced-learn's functions; this module decides only what happens where
they are undefined, and writes it down: a metric that needs a class which does not occur is NaN, never a silent 0 or 1.
Comparisons of methods are left to `helpers.study.comparison`.
None of these numbers is private: a score computed on private records is a release that the caller has to account for.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from imblearn.metrics import geometric_mean_score
from scipy import stats
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    matthews_corrcoef,
    precision_recall_fscore_support,
    precision_score,
    recall_score,
    roc_auc_score,
)

from helpers.checks import check_choice, check_real

_NAN = float("nan")

THIS_DATA = "repetitions on this data set"
NEW_DATA = "new data of this distribution"
LOWER_IS_BETTER = frozenset({"error"})

_UNIT = ("auc", "pr_auc", "f1", "balanced_accuracy", "precision", "recall", "specificity", "worst_class_accuracy",
         "macro_accuracy", "g_mean", "accuracy", "prevalence", "error")  # fmt: skip
_RANGES = dict.fromkeys(_UNIT, (0.0, 1.0)) | {"mcc": (-1.0, 1.0)}


def metric_range(metric: str) -> tuple[float, float]:
    """Least and largest value a metric can have; infinite for a name that is no key of `score` and not `error`.

    >>> metric_range("mcc"), metric_range("recall_nv"), metric_range("seconds")
    ((-1.0, 1.0), (0.0, 1.0), (-inf, inf))
    """
    return _RANGES.get("recall" if metric.startswith("recall_") else metric, (-np.inf, np.inf))


def score(
    y: np.ndarray,
    scores: np.ndarray,
    threshold: float = 0.5,
    *,
    zero_division: float = 0.0,
    class_names: Sequence[str] | None = None,
) -> dict[str, float]:
    """One row of metrics.

    Two classes: `scores` has shape (n,), a higher score means more probably the minority (class 1), and class 1 is
    predicted where score >= threshold. More classes: `scores` has shape (n, K), K >= 3, the largest column is
    predicted (the first one on ties) and the threshold is not used.

    Keys, two classes: `auc`, `pr_auc` (average precision), `f1`, `balanced_accuracy`, `precision`, `recall`,
    `specificity`, `worst_class_accuracy` = min(recall, specificity), `macro_accuracy` = (recall + specificity)/2, which
    equals balanced accuracy, `g_mean` = sqrt(recall * specificity), `mcc`, `accuracy`, `prevalence` = n1/n, `n` and
    `undefined_precision`. More classes: `auc` and `pr_auc` are means of one class against the rest, `f1`, `precision`
    and `recall` are macro means, `worst_class_accuracy` is the least recall, `g_mean` the geometric mean of the
    recalls; `recall_<class>` per class and `absent_classes` are added, `specificity` and `prevalence` left out.

    Where a metric is undefined:

    * nothing predicted as class 1 (as some class): precision is 0/0 and counts as `zero_division`, 0 by default, the
      convention under which the paper's tables print precision 0.00; `undefined_precision` counts such classes, so that
      a mean over seeds can be read with it. F1 is then 0, and MCC of a constant prediction is 0;
    * only one class occurs in y: all metrics but `accuracy` and `prevalence` are NaN, because each needs both classes;
    * more than two classes and some absent from y: means, minimum and geometric mean run over the classes that occur,
      `absent_classes` says how many do not, and their recall is NaN.

    Parameters
    ----------
    y : array of shape (n,)
        Labels 0 and 1, or codes 0..K-1.
    scores : array of shape (n,) or (n, K)
        Finite; probabilities or any other scores.
    threshold : float
        Decision threshold, two classes only.
    zero_division : float
        Value of an undefined precision, in [0, 1], or NaN; with more than two classes NaN leaves the class out of the
        macro mean.
    class_names : sequence of K str, optional
        For the `recall_<class>` keys; the codes by default.

    Returns
    -------
    dict
        A tidy row: `pandas.DataFrame([score(...) | {"seed": 0}, ...])`.

    Raises
    ------
    ValueError
        Shapes that do not fit, no records, scores that are not finite, other labels.

    Source: Differential Privacy Under Class Imbalance, Section 5 (names of the metrics).

    >>> row = score([0, 0, 0, 1], [0.1, 0.6, 0.2, 0.9])
    >>> row["recall"], row["precision"], round(row["g_mean"], 4)
    (1.0, 0.5, 0.8165)
    """
    y, scores = _check_labels_and_scores(y, scores)
    threshold = check_real("threshold", threshold)
    if not (isinstance(zero_division, float) and np.isnan(zero_division)):
        zero_division = check_real("zero_division", zero_division, low=0, high=1)
    if scores.ndim == 1:
        return _binary(y, scores, (scores >= threshold).astype(int), zero_division)
    names = [str(k) for k in range(scores.shape[1])] if class_names is None else list(class_names)
    if len(names) != scores.shape[1]:
        raise ValueError(f"class_names must be {scores.shape[1]} names, got {len(names)}")
    return _multiclass(y, scores, names, zero_division)


def _check_labels_and_scores(y, scores) -> tuple[np.ndarray, np.ndarray]:
    y, scores = np.asarray(y), np.asarray(scores, dtype=np.float64)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y must be an array of shape (n,) with n >= 1, got shape {y.shape}")
    if scores.shape != y.shape and not (scores.ndim == 2 and scores.shape[0] == y.size and scores.shape[1] >= 3):
        raise ValueError(
            f"scores must be an array of shape ({y.size},), or ({y.size}, K) with K >= 3, got shape {scores.shape}"
        )
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite, got NaN or infinite values")
    n_classes = 2 if scores.ndim == 1 else scores.shape[1]
    if not np.isin(y, np.arange(n_classes)).all():
        raise ValueError(f"y must be codes 0..{n_classes - 1}, got {np.unique(y)[:10].tolist()}")
    return y.astype(np.int64), scores


def _binary(y: np.ndarray, scores: np.ndarray, predicted: np.ndarray, zero_division: float) -> dict[str, float]:
    names = ("auc", "pr_auc", "f1", "balanced_accuracy", "precision", "recall", "specificity")
    row = dict.fromkeys((*names, "worst_class_accuracy", "macro_accuracy", "g_mean", "mcc"), _NAN)
    if 0 < y.sum() < y.size:
        # One pass for all that counts say, since most of the time goes into each call's own checks.
        precisions, recalls, f1, _ = precision_recall_fscore_support(y, predicted, labels=[0, 1], zero_division=0)
        row = {
            "auc": roc_auc_score(y, scores),
            "pr_auc": average_precision_score(y, scores),
            "f1": f1[1],
            "balanced_accuracy": recalls.mean(),
            "precision": precisions[1] if predicted.any() else zero_division,
            "recall": recalls[1],
            "specificity": recalls[0],
            "worst_class_accuracy": recalls.min(),
            "macro_accuracy": recalls.mean(),
            "g_mean": np.sqrt(recalls.prod()),
            "mcc": matthews_corrcoef(y, predicted),
        }
    row |= {"accuracy": np.mean(y == predicted), "prevalence": y.mean()}
    return _plain(row) | {"n": y.size, "undefined_precision": int(not predicted.any())}


def _multiclass(y: np.ndarray, scores: np.ndarray, names: Sequence[str], zero_division: float) -> dict[str, float]:
    predicted, codes = scores.argmax(axis=1), np.arange(scores.shape[1])
    present = np.unique(y)
    keys = ("auc", "pr_auc", "f1", "balanced_accuracy", "precision", "recall")
    row = dict.fromkeys((*keys, "worst_class_accuracy", "macro_accuracy", "g_mean", "mcc"), _NAN)
    recalls = recall_score(y, predicted, average=None, labels=codes, zero_division=np.nan)
    if present.size > 1:
        macro = {"average": "macro", "labels": present}
        row = {
            "auc": np.mean([roc_auc_score(y == k, scores[:, k]) for k in present]),
            "pr_auc": np.mean([average_precision_score(y == k, scores[:, k]) for k in present]),
            "f1": f1_score(y, predicted, **macro),
            "balanced_accuracy": np.mean(recalls[present]),
            "precision": precision_score(y, predicted, **macro, zero_division=zero_division),
            "recall": recall_score(y, predicted, **macro),
            "worst_class_accuracy": recalls[present].min(),
            "macro_accuracy": recalls[present].mean(),
            "g_mean": geometric_mean_score(y, predicted, labels=present, average="multiclass"),
            "mcc": matthews_corrcoef(y, predicted),
        }
    row |= {"accuracy": accuracy_score(y, predicted)}
    row |= {f"recall_{name}": recall for name, recall in zip(names, recalls, strict=True)}
    return _plain(row) | {
        "n": y.size,
        "undefined_precision": int(np.setdiff1d(present, predicted).size),
        "absent_classes": int(codes.size - present.size),
    }


def _plain(row: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items()}


def summary(
    frame: pd.DataFrame,
    by: str | Sequence[str],
    *,
    values: Sequence[str] | None = None,
    seed: str | None = "seed",
    level: float = 0.95,
    test_fraction: float | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> pd.DataFrame:
    """Mean, standard deviation and Student's t interval over repetitions, and what the interval is over.

    Repetitions on one data set share records: random splits of it overlap. Their mean is covered by the usual interval
    as a statement about this data set (its noise, seeds and splits). As a statement about new data of the same
    distribution that interval is too narrow, 6.6 times for a hundred 70/30 splits; `test_fraction` widens it.

    Parameters
    ----------
    frame : DataFrame
        One row per trial.
    by : str or sequence of str
        Columns that identify a setting (method, data set, epsilon ...).
    values : sequence of str, optional
        Metric columns; by default all numeric columns but `by` and `seed`.
    seed : str or None
        Column that tells the trials of a setting apart; left out of the metrics and, where it exists, checked for
        repeats. None skips this.
    level : float
        Nominal coverage, in (0, 1).
    test_fraction : float or None
        None: the interval is over repetitions on this data set. The share of the records in the test part, in (0, 1)
        (1/k for k folds): Student's t with the variance of Nadeau and Bengio, 1/n + test/train in the place of 1/n,
        over new data of the same distribution.
    ranges : mapping of metric to (low, high), optional
        Least and largest possible values; by default those of `metric_range`. Intervals are clipped to them.

    Returns
    -------
    DataFrame
        One row per setting and metric: the columns of `by`, `metric`, `mean`, `sd` (n - 1 in the denominator), `low`,
        `high`, `n` trials used, `n_undefined` trials left out because the metric was NaN, and `over`, what the interval
        is over. With n = 1, `sd` and the interval are NaN.

    Raises
    ------
    ValueError
        Unknown columns, a trial that occurs twice, values outside the metric's range (as differences under a metric's
        name are), or bad arguments.

    Source: Nadeau and Bengio 2003, Inference for the generalization error, equation (9).

    >>> trials = pd.DataFrame({"method": "a", "seed": [0, 1, 2], "auc": [0.8, 0.9, 0.7]})
    >>> summary(trials, "method").loc[0, ["mean", "sd", "low", "high"]].astype(float).round(3).tolist()
    [0.8, 0.1, 0.552, 1.0]
    """
    level = check_real("level", level, low=0, high=1, inclusive="neither")
    overlap = 0.0
    if test_fraction is not None:
        test_fraction = check_real("test_fraction", test_fraction, low=0, high=1, inclusive="neither")
        overlap = test_fraction / (1 - test_fraction)
    by = [by] if isinstance(by, str) else list(by)
    values = metric_columns(frame, [*by, seed]) if values is None else list(values)
    check_columns(frame, [*by, *values])
    if seed in frame.columns and frame.duplicated([*by, seed]).any():
        raise ValueError(f"frame must have one row per setting and {seed!r}, got repeated rows")
    rows = []
    for setting, trials in frame.groupby(by, sort=False, dropna=False):
        for metric in values:
            sample = trials[metric].dropna().to_numpy(np.float64)
            bounds = (ranges or {}).get(metric, metric_range(metric))
            _check_range(metric, sample, bounds)
            low, high = _t_interval(sample, level, overlap)
            rows.append(
                dict(zip(by, setting, strict=True))
                | {
                    "metric": metric,
                    "mean": sample.mean() if sample.size else _NAN,
                    "sd": sample.std(ddof=1) if sample.size > 1 else _NAN,
                    "low": max(low, bounds[0]) if sample.size > 1 else _NAN,
                    "high": min(high, bounds[1]) if sample.size > 1 else _NAN,
                    "n": sample.size,
                    "n_undefined": len(trials) - sample.size,
                    "over": NEW_DATA if overlap else THIS_DATA,
                }
            )
    return pd.DataFrame(rows, columns=[*by, "metric", "mean", "sd", "low", "high", "n", "n_undefined", "over"])


def metric_columns(frame: pd.DataFrame, others: Sequence[str | None]) -> list[str]:
    """The numeric columns of a frame but `others`."""
    numeric = frame.select_dtypes(["number", "bool"]).columns
    return [column for column in numeric if column not in others]


def check_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse names that are no columns of the frame."""
    for column in columns:
        check_choice("column", column, list(frame.columns))


def _check_range(metric: str, sample: np.ndarray, bounds: tuple[float, float]) -> None:
    rounding = 1e-9
    if sample.size and not (bounds[0] - rounding <= sample.min() and sample.max() <= bounds[1] + rounding):
        raise ValueError(
            f"{metric} must be in [{bounds[0]:g}, {bounds[1]:g}], got {sample.min():g} to {sample.max():g} "
            "(differences come from comparison.paired_gains, or get a name of their own)"
        )


def _t_interval(sample: np.ndarray, level: float, overlap: float) -> tuple[float, float]:
    if sample.size < 2:
        return _NAN, _NAN
    error = sample.std(ddof=1) * np.sqrt(1 / sample.size + overlap)
    margin = stats.t.ppf((1 + level) / 2, sample.size - 1) * error
    return float(sample.mean() - margin), float(sample.mean() + margin)
