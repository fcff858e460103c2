"""Runs in the peers' environment: for every line read, one fit of a classifier of diffprivlib or interpret.

A line is JSON: the file with the records (X, y, and the other rows X_test), what is public about the columns (`low`,
`high`, `n_levels`, 0 for numbers, and `norm`, the largest length of a row), the method, its own parameters, epsilon,
delta and a seed. Answers with the CPU seconds of the fit; log-odds of the minority of X, then X_test, are in the file
that the line names. Every budget is spent as the libraries document it.
"""

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import GaussianNB, LogisticRegression, RandomForestClassifier
from interpret.privacy import DPExplainableBoostingClassifier

LARGEST = 700.0  # log-odds: a probability of 0 or 1 has no finite ones


def model(task: dict):
    """A classifier for the task."""
    method, parameters = task["method"], dict(task["parameters"])
    common = {"epsilon": task["epsilon"], "random_state": task["seed"]}
    box = (np.array(task["low"]), np.array(task["high"]))
    if method == "diffprivlib LR":
        return LogisticRegression(data_norm=task["norm"], max_iter=1000, **common, **parameters)
    if method == "diffprivlib GNB":
        return GaussianNB(bounds=box, **common, **parameters)
    if method == "diffprivlib RF":
        return RandomForestClassifier(bounds=box, classes=[0, 1], n_jobs=1, **common, **parameters)
    is_nominal = parameters.pop("levels") == "nominal"
    types = ["nominal" if n and is_nominal else "continuous" for n in task["n_levels"]]
    return DPExplainableBoostingClassifier(
        delta=task["delta"],
        privacy_bounds=np.column_stack(box),
        feature_types=types,
        n_jobs=1,
        **common,
        **parameters,
    )


def log_odds(fitted, X: np.ndarray) -> np.ndarray:
    """Of the minority (n,)."""
    if hasattr(fitted, "decision_function"):
        return fitted.decision_function(X)
    logs = fitted.predict_log_proba(X)
    return np.clip(logs[:, 1], -LARGEST, 0) - np.clip(logs[:, 0], -LARGEST, 0)


def main() -> None:
    """Answer until there are no more lines."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for line in sys.stdin:
        task = json.loads(line)
        with np.load(task["records"]) as data:
            X, y, X_test = data["X"], data["y"], data["X_test"]
        made = model(task)
        started = time.process_time()
        made.fit(X, y)
        seconds = time.process_time() - started
        np.save(task["scores"], np.concatenate([log_odds(made, X), log_odds(made, X_test)]))
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
