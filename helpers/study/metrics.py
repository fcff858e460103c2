"""Metrics of a classifier under class imbalance, and their means over repetitions with an interval.

Every number comes from scikit-learn's functions; this module decides only what happens where
they are undefined, and writes it down: a metric that needs a class which does not occur is NaN, never a silent 0 or 1.
Comparisons of methods are left to `helpers.study.comparison`.
None of these numbers is private: a score computed on private records is a release that the caller has to account for.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    matthews_corrcoef,
    precision_recall_fscore_support,
    roc_auc_score,
)

from helpers.validation import check_real

_NAN = float("nan")
LEVEL = 0.95  # nominal coverage of every interval
_ROUNDING = 1e-9  # by which a metric may lie outside its range

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


def score(y: np.ndarray, scores: np.ndarray, threshold: float = 0.5) -> dict[str, float]:
    """One row of metrics.

    Two classes: `scores` has shape (n,), a higher score means more probably the minority (class 1), and class 1 is
    predicted where score >= threshold. More classes: `scores` has shape (n, K), K >= 3, the largest column is
    predicted (the first one on ties) and the threshold is not used.

    Keys, two classes: `auc`, `pr_auc` (average precision), `f1`, `balanced_accuracy`, `precision`, `recall`,
    `specificity`, `worst_class_accuracy` = min(recall, specificity), `macro_accuracy` = (recall + specificity)/2, which
    equals balanced accuracy, `g_mean` = sqrt(recall * specificity), `mcc`, `accuracy`, `prevalence` = n1/n, `n` and
    `undefined_precision`. More classes: `auc` and `pr_auc` are means of one class against the rest, `f1`, `precision`
    and `recall` are macro means, `worst_class_accuracy` is the least recall, `g_mean` the geometric mean of the
    recalls; `recall_<code>` per class and `absent_classes` are added, `specificity` and `prevalence` left out.

    Where a metric is undefined:

    * nothing predicted as class 1 (as some class): precision is 0/0 and counts as 0, the convention under which the
      paper's tables print precision 0.00; `undefined_precision` counts such classes, so that a mean over seeds can be
      read with it. F1 is then 0, and MCC of a constant prediction is 0;
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
    y, scores = np.asarray(y), np.asarray(scores, dtype=np.float64)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y must be an array of shape (n,) with n >= 1, got shape {y.shape}")
    is_binary = scores.shape == y.shape
    if not is_binary and not (scores.ndim == 2 and scores.shape[0] == y.size and scores.shape[1] >= 3):
        raise ValueError(
            f"scores must be an array of shape ({y.size},), or ({y.size}, K) with K >= 3, got shape {scores.shape}"
        )
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite, got NaN or infinite values")
    codes, present = np.arange(2 if is_binary else scores.shape[1]), np.unique(y)
    if not np.isin(y, codes).all():
        raise ValueError(f"y must be codes 0..{codes[-1]}, got {present[:10].tolist()}")
    y, threshold = y.astype(np.int64), check_real("threshold", threshold)
    predicted = (scores >= threshold).astype(int) if is_binary else scores.argmax(axis=1)
    # One pass for all that counts say, since most of the time goes into each call's own checks.
    counted = precision_recall_fscore_support(y, predicted, labels=codes, zero_division=np.nan)
    precisions, recalls, f1 = np.nan_to_num(counted[0]), counted[1], counted[2]
    shown = codes[1:] if is_binary else present  # classes whose metrics are averaged
    # Scores of those classes, one a column.
    columns = scores[:, None] if is_binary else scores[:, present]
    occurring = recalls[present]

    def against_the_rest(metric: Callable[[np.ndarray, np.ndarray], float]) -> float:
        if present.size < 2:
            return _NAN
        return float(np.mean([metric(y == k, column) for k, column in zip(shown, columns.T, strict=True)]))

    row = {
        "auc": against_the_rest(roc_auc_score),
        "pr_auc": against_the_rest(average_precision_score),
        "f1": f1[shown].mean(),
        "balanced_accuracy": occurring.mean(),
        "precision": precisions[shown].mean(),
        "recall": recalls[shown].mean(),
        **({"specificity": recalls[0]} if is_binary else {}),
        "worst_class_accuracy": occurring.min(),
        "macro_accuracy": occurring.mean(),
        "g_mean": np.sqrt(occurring.prod()) if is_binary else occurring.prod() ** (1 / present.size),
        "mcc": matthews_corrcoef(y, predicted) if present.size > 1 else _NAN,
    }
    row = row if present.size > 1 else dict.fromkeys(row, _NAN)
    row["accuracy"] = accuracy_score(y, predicted)
    if is_binary:
        row["prevalence"] = y.mean()
    else:
        row |= {f"recall_{code}": recall for code, recall in enumerate(recalls)}
    return (
        {name: float(value) for name, value in row.items()}
        | {"n": y.size, "undefined_precision": np.setdiff1d(shown, predicted).size}
        | ({} if is_binary else {"absent_classes": codes.size - present.size})
    )


def summary(
    frame: pd.DataFrame,
    by: str | Sequence[str],
    values: Sequence[str],
    *,
    seed: str = "seed",
    test_fraction: float | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> pd.DataFrame:
    """Mean, standard deviation and Student's 95 % interval over repetitions, and what the interval is over.

    Repetitions on one data set share records: random splits of it overlap. Their mean is covered by the usual interval
    as a statement about this data set (its noise, seeds and splits). As a statement about new data of the same
    distribution that interval is too narrow, 6.6 times for a hundred 70/30 splits; `test_fraction` widens it.

    Parameters
    ----------
    frame : DataFrame
        One row per trial.
    by : str or sequence of str
        Columns that identify a setting (method, data set, epsilon ...).
    values : sequence of str
        Metric columns.
    seed : str
        Column that tells the trials of a setting apart; where it exists, it is checked for repeats.
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
        A trial that occurs twice, values outside the metric's range (as differences under a metric's name are), or bad
        arguments.
    KeyError
        Unknown columns.

    Source: Nadeau and Bengio 2003, Inference for the generalization error, equation (9).

    >>> trials = pd.DataFrame({"method": "a", "seed": [0, 1, 2], "auc": [0.8, 0.9, 0.7]})
    >>> summary(trials, "method", ["auc"]).loc[0, ["mean", "sd", "low", "high"]].astype(float).round(3).tolist()
    [0.8, 0.1, 0.552, 1.0]
    """
    overlap = 0.0
    if test_fraction is not None:
        test_fraction = check_real("test_fraction", test_fraction, low=0, high=1, inclusive="neither")
        # The correlation of two splits' results is not 0: this is what the corrected variance adds to 1/n (equation 9).
        overlap = test_fraction / (1 - test_fraction)
    by = [by] if isinstance(by, str) else list(by)
    if seed in frame.columns and frame.duplicated([*by, seed]).any():
        raise ValueError(f"frame must have one row per setting and {seed!r}, got repeated rows")
    rows = []
    for setting, trials in frame.groupby(by, sort=False, dropna=False):
        for metric in values:
            sample = trials[metric].dropna().astype(np.float64)
            least, most = (ranges or {}).get(metric, metric_range(metric))
            if (sample < least - _ROUNDING).any() or (sample > most + _ROUNDING).any():
                raise ValueError(
                    f"{metric} must be in [{least:g}, {most:g}], got {sample.min():g} to {sample.max():g} "
                    "(differences come from comparison.paired_gains, or get a name of their own)"
                )
            # A single trial has no standard deviation: pandas gives NaN, and so the interval is.
            n, mean, sd = len(sample), sample.mean(), sample.std()
            margin = stats.t.ppf((1 + LEVEL) / 2, n - 1) * (sd * np.sqrt(1 / max(n, 1) + overlap))
            low, high = np.clip([mean - margin, mean + margin], least, most)
            over = NEW_DATA if overlap else THIS_DATA
            rows.append((*setting, metric, mean, sd, low, high, n, len(trials) - n, over))
    return pd.DataFrame(rows, columns=[*by, "metric", "mean", "sd", "low", "high", "n", "n_undefined", "over"])
