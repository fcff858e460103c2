"""What ran on the reserve sets after the comparison, and chose nothing: the best variant, and what noise costs.

`python -m benchmarks.tried` fits, on the splits of `benchmarks.classifiers`, the variant that looked best on
development sets and, not private, two oracles and what is usual without privacy: logistic regression, a random forest
and XGBoost with their libraries' settings and the share of the minority as threshold. It writes
`results/private-classifiers-tried.csv`: their means beside those of the classifier, and the differences with tests over
data sets. Fits are kept in `runs/`.
"""

import itertools
import time
import warnings
from collections.abc import Callable
from functools import partial

import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

from benchmarks import literature, reserve, variants
from benchmarks.accounts import AccountsByClass
from benchmarks.classifiers import (
    EPSILONS,
    ROOT,
    SPLITS,
    TEST,
    TRIALS,
    Outcome,
    Rows,
    Split,
    measured,
    record,
    splits,
)
from helpers.privacy import ADD_REMOVE, REPLACE_ONE
from helpers.study import comparison

KEPT = ROOT / "runs" / "classifiers-tried.csv"
KEY = ("dataset", "method", "epsilon", "split")
METHODS = {
    "an account for each class": lambda split, *budget: variants.of_model(
        *variants.fitted(split, *budget, AccountsByClass), split
    ),
    "oracle: no noise on the class means": literature.oracle("sums"),
    "oracle: no noise at all": literature.oracle("all"),
}
USUAL = {
    "logistic regression, not private": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=10**4)
    ),
    "random forest, not private": lambda seed: RandomForestClassifier(random_state=seed),
    "XGBoost, not private": lambda seed: XGBClassifier(random_state=seed, n_jobs=1),
}
_RELATIONS = {"replace-one": REPLACE_ONE, "add/remove": ADD_REMOVE}
_METRICS = ("auc", "balanced_accuracy", "ap", "brier")


def main() -> None:
    """Fit, and write the table."""
    warnings.simplefilter("ignore")
    KEPT.parent.mkdir(exist_ok=True)
    rows = Rows(KEPT, KEY)
    for name in reserve.RESERVE:
        for split, epsilon in itertools.product(splits(reserve.load(name), SPLITS), EPSILONS):
            for (method, fit), (word, relation) in itertools.product(METHODS.items(), _RELATIONS.items()):
                work = partial(variants.trial, fit, split, epsilon, relation)
                rows.add((name, f"{method}, {word}", epsilon, split.seed), work)
        for split, (method, make) in itertools.product(splits(reserve.load(name), SPLITS), USUAL.items()):
            rows.add((name, method, EPSILONS[0], split.seed), partial(usual, make, split))
    tried = pd.read_csv(KEPT)
    both = pd.concat([pd.read_csv(TRIALS), tried])
    record(pd.DataFrame(_differences(both)).round(4), "private-classifiers-tried", tried)


def usual(make: Callable, split: Split) -> dict[str, float]:
    """Metrics of a classifier without privacy: it has no epsilon, and stands beside the first."""
    model = make(split.seed)
    started = time.process_time()
    model.fit(split.X, split.y)
    seconds = time.process_time() - started
    found = model.predict_proba(split.X_test)[:, 1]
    return measured(Outcome(found, float(split.y.mean()), found, seconds), split.y_test)


def _differences(trials: pd.DataFrame):
    """From the classifier, over data sets; a negative `gain` in the Brier score says that it is larger."""
    for method, word in itertools.product([*METHODS, *USUAL], _RELATIONS):
        base, name = f"moments, {word}", method if method in USUAL else f"{method}, {word}"
        pair = trials[trials.method.isin([base, name])]
        gains = comparison.paired_gains(
            pair.assign(brier=-pair.brier),
            {"method": base},
            values=_METRICS,
            test_fraction=TEST,
            by=["epsilon", "dataset"],
            split="split",
        )
        for (epsilon, metric), part in gains.groupby(["epsilon", "metric"]):
            means = pair[pair.epsilon == epsilon].groupby("method")[metric].mean()
            key = {"tried": method, "relation": word, "epsilon": epsilon, "metric": metric}
            found = {"moments": means[base], "it": means[name], "gain": part["mean"].mean()}
            yield key | found | comparison.signed_rank(part)


if __name__ == "__main__":
    main()
