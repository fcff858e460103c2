"""The defaults of private logistic regression and of private gradient descent: what each costs on development sets.

It fits every value of every setting, the others at their defaults, on the sixteen development sets of
`benchmarks.reserve`, and nothing else ever chose a default, and says how far each default is from the best value,
known for each data set (the oracle), and how far a choice on the fifteen other sets is. A run goes on where it was
interrupted, one data set after the other.

The score is the mean of AUC and balanced accuracy, for the threshold's share that of AUC and of 1 less the distance of
the recall from its target. The best of several noisy means is better than it really is, so an oracle is chosen on half
of the splits and measured on the other half, in turns; its regret can be below 0. Sets of more than 100 columns have
fewer splits, since their fits take longer than all others together.
"""

import itertools
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks import recording
from benchmarks.reserve import DEVELOPMENT
from helpers import data, paths
from helpers.erm import DPGradientDescentClassifier, default_regularization
from helpers.meta import PrivateLogisticRegression, ThresholdClassifier

SCORES = paths.RESULTS / "defaults-scores.csv"
EPSILONS = (0.1, 0.5, 1.0, 5.0)
BUDGETS = ("pure", "delta = n^-2")
SPLITS, SPLITS_OF_WIDE_SETS, WIDE, TEST = 6, 2, 100, 0.3
TARGET_RECALL = 0.9
SHAPES = {
    "ball, unit rows": ("ball", "unit"),
    "ball": ("ball", "clip"),
    "cube": ("cube", "clip"),
    "cube, unit rows": ("cube", "unit"),
}
SHAPES |= {"Gaussian, unit rows": ("gaussian", "unit"), "Gaussian": ("gaussian", "clip")}
VALUES = {  # of each setting; the first is the default, and for a recall what `ThresholdClassifier` advises
    "largest_norm": (10.0, 1.0, 3.0, 30.0, 100.0),
    "counts_share": (0.1, 0.03, 0.3),
    "intercept_scaling": (0.1, 0.01, 0.3, 1.0),
    "threshold_share": (0.3, 0.03, 0.1),
}
OF_BUDGET = {
    "pure": {"shape": ("cube, unit rows", "cube", "ball, unit rows", "ball")},
    "delta = n^-2": {
        "shape": ("Gaussian, unit rows", "Gaussian"),
        "descent: n_steps": (100, 10, 30, 300),
        "descent: step": (1.0, 0.3, 3.0, 10.0),
    },
}


def settings(budget: str) -> Iterator[tuple[str, object]]:
    """Every setting that the budget has, with each of its values."""
    for name, values in (VALUES | OF_BUDGET[budget]).items():
        yield from ((name, value) for value in values)


def model(name: str, value, records, n: int, epsilon: float, delta: float, seed: int):
    """An unfitted classifier with all settings but one at their defaults."""
    common = {"bounds": records.bounds, "random_state": seed}
    if name.startswith("descent"):
        own = {name.removeprefix("descent: "): value}
        return DPGradientDescentClassifier(epsilon, delta, scale="private", prior="offset", **own, **common)
    if name == "largest_norm":
        penalty = _penalty(records.X.shape[1] + 1, n, epsilon, delta, value)
        return PrivateLogisticRegression(epsilon, delta, regularization=penalty, **common)
    if name == "shape":
        noise, rows = SHAPES[value]
        return PrivateLogisticRegression(epsilon, delta, noise=noise, rows=rows, **common)
    if name == "threshold_share":
        inner = PrivateLogisticRegression(epsilon, delta, bounds=common["bounds"])
        options = {"target_recall": TARGET_RECALL, "threshold_share": value}
        return ThresholdClassifier(inner, epsilon, "recall", random_state=common["random_state"], **options)
    return PrivateLogisticRegression(epsilon, delta, **{name: value}, **common)


def _penalty(dimension, n, epsilon, delta, largest_norm):
    share = 1 - VALUES["counts_share"][0]
    return default_regularization(n, dimension, share * epsilon, delta=delta, largest_norm=largest_norm)


def score(name: str, fitted, X, y) -> float:
    """How good the fitted classifier is on new records."""
    scores = fitted.decision_function(X)
    area = roc_auc_score(y, scores)
    if name.startswith("descent"):
        return (area + balanced_accuracy_score(y, scores >= fitted.offset_)) / 2
    if name == "threshold_share":
        return (area + 1 - abs(recall_score(y, fitted.predict(X)) - TARGET_RECALL)) / 2
    return (area + balanced_accuracy_score(y, fitted.predict(X))) / 2


def measured(dataset: str) -> list[dict]:
    """Mean scores on one data set by budget, epsilon, setting, value and half of the splits."""
    started, records = time.process_time(), data.load(dataset)
    count = SPLITS if records.X.shape[1] <= WIDE else SPLITS_OF_WIDE_SETS
    halves = StratifiedShuffleSplit(count, test_size=TEST, random_state=0).split(records.X, records.y)
    found = []
    for seed, (train, test) in enumerate(halves):
        for budget, epsilon in itertools.product(BUDGETS, EPSILONS):
            delta = 0.0 if budget == "pure" else len(train) ** -2.0
            for name, value in settings(budget):
                fitted = model(name, value, records, len(train), epsilon, delta, seed)
                fitted.fit(records.X[train], records.y[train])
                reached = score(name, fitted, records.X[test], records.y[test])
                found.append((budget, epsilon, name, value, seed % 2, reached))
    keys = ["budget", "epsilon", "setting", "value", "half"]
    table = pd.DataFrame(found, columns=[*keys, "score"])
    table = table.groupby(keys, sort=False).score.agg(splits="count", score="mean").reset_index().round(5)
    table["seconds"] = round((time.process_time() - started) / len(table), 4)
    return table.to_dict("records")


def main() -> None:
    """Regret of every default and of a choice on the other data sets, by setting, budget and epsilon."""
    cells = [{"dataset": name} for name in DEVELOPMENT]
    recording.run("defaults", measured, cells).to_csv(SCORES, index=False)
    scores, found = pd.read_csv(SCORES, converters={"value": _label}), []
    for (budget, name), part in scores.groupby(["budget", "setting"], sort=False):
        default = _label((VALUES | OF_BUDGET[budget])[name][0])
        for epsilon, cell in part.groupby("epsilon"):
            table = cell.pivot_table(index=["half", "dataset"], columns="value", values="score")
            found.append(
                {"setting": name, "budget": budget, "epsilon": epsilon, "default": default} | _regret(table, default)
            )
    parameters = {"data sets": scores.dataset.nunique(), "splits": SPLITS, "of wide sets": SPLITS_OF_WIDE_SETS}
    recording.record(pd.DataFrame(found).round(4), "defaults-regret", parameters, scores.seconds.sum())


def _label(value) -> str:
    """One text for 100, 100.0 and "100"."""
    try:
        return f"{float(value):g}"
    except ValueError:
        return value


def _regret(table: pd.DataFrame, default: str) -> dict[str, object]:
    """Of scores with a column a value and a row a half and data set."""
    whole = table.groupby("dataset").mean()
    sums, oracle, elsewhere = whole.sum(), [], []
    for name, row in whole.iterrows():
        best = [table.loc[half, :].loc[name].idxmax() for half in (0, 1)]
        oracle.append(np.mean([table.loc[(1 - half, name), best[half]] for half in (0, 1)]))
        elsewhere.append(row[(sums - row).idxmax()])
    regret = pd.Series(oracle, whole.index) - whole[default]
    wide = student.ppf(0.975, len(regret) - 1) * regret.std() / np.sqrt(len(regret))
    return {
        "score": whole[default].mean(),
        "regret": regret.mean(),
        "low": regret.mean() - wide,
        "high": regret.mean() + wide,
        "regret of a choice on the other sets": np.mean(np.array(oracle) - elsewhere),
        "in hindsight": (whole.max(axis=1) - whole[default]).mean(),
        "best fixed value": sums.idxmax(),
        "its gain": sums.max() / len(whole) - whole[default].mean(),
    }


if __name__ == "__main__":
    main()
