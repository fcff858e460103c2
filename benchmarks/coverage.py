"""Does the quality on a privacy card hold the truth? Tables of known truth, fitted, measured and looked up.

Of 36 tables (AUC of the best score .75, .85 or .95; complications 2, 4.2 or 10 %; columns that act alone or together;
both neighbouring relations) and three budgets each, how often the 95 % intervals of `Quality.intervals` hold what the
classifier reaches on 100,000 other patients. Run with `make -C benchmarks coverage`; two minutes.
"""

import itertools

import pandas as pd

from checks.patients import SCHEMA, patients
from helpers.meta.published import PublishedClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE

AUCS, SHARES, EPSILONS = (0.75, 0.85, 0.95), (0.02, 0.042, 0.1), (0.3, 1.0, 3.0)
_N = 3000


def truth(classifier: PublishedClassifier, table: pd.DataFrame) -> dict[str, float]:
    """What a classifier reaches on a table, by the names of `Quality.intervals`."""
    X, y, _ = SCHEMA.encode(table)
    alarm, ill = classifier.model.predict(X) == 1, y == 1
    return {
        "balanced accuracy": (alarm[ill].mean() + (~alarm)[~ill].mean()) / 2,
        "recall": alarm[ill].mean(),
        "precision": ill[alarm].mean(),
        "alarms per 1,000": 1000 * alarm.mean(),
    }


def outcomes() -> pd.DataFrame:
    """A row for each fit and score: its interval, the truth, and whether the one holds the other."""
    rows = []
    tables = itertools.product(AUCS, SHARES, (False, True), (REPLACE_ONE, ADD_REMOVE))
    for seed, (auc, share, interacting, relation) in enumerate(tables):
        table = patients(_N, auc, share, interacting=interacting, seed=seed)
        others = patients(100_000, auc, share, interacting=interacting, seed=1000)
        for epsilon in EPSILONS:
            fitted = PublishedClassifier.fit(table, SCHEMA, epsilon=epsilon, neighbouring=relation, random_state=seed)
            reached = truth(fitted, others)
            rows += [
                (auc, share, interacting, relation.name, epsilon, score, low, high, reached[score])
                for score, low, _, high in fitted.quality.intervals().itertuples()
            ]
    names = ("auc", "share", "interacting", "relation", "epsilon", "score", "low", "high", "truth")
    table = pd.DataFrame(rows, columns=names)
    return table.assign(held=table.truth.between(table.low, table.high), width=table.high - table.low)


if __name__ == "__main__":
    found = outcomes()
    print(found.groupby("score")[["held"]].mean().round(3))
    print(found.groupby(["relation", "epsilon"])[["held"]].mean().round(3))
    accuracy = found[found.score == "balanced accuracy"]
    print(accuracy.groupby(["relation", "epsilon"])[["truth", "width"]].mean().round(3))
    print(f"{found.held.mean():.1%} of {len(found)} intervals hold the truth")
