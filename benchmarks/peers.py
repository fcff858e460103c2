"""Runs in the peers' environment: for every line read, one fit of a classifier of diffprivlib or interpret.

A line is JSON: the file with the records (X scaled by its bounds to [-1, 1], y, and X_test), the method, its own
parameters, epsilon, delta and a seed. Answers with the CPU seconds of the fit; P(minority) of X_test is in the file
that the line names. Every budget is spent as the libraries document it.
"""

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import GaussianNB, LogisticRegression, RandomForestClassifier
from interpret.privacy import DPExplainableBoostingClassifier


def model(method: str, parameters: dict, d: int, epsilon: float, delta: float, seed: int):
    """A classifier for d features in [-1, 1]."""
    box = (-np.ones(d), np.ones(d))
    if method == "diffprivlib LR":
        return LogisticRegression(epsilon=epsilon, data_norm=np.sqrt(d), max_iter=1000, random_state=seed, **parameters)
    if method == "diffprivlib GNB":
        return GaussianNB(epsilon=epsilon, bounds=box, random_state=seed, **parameters)
    if method == "diffprivlib RF":
        return RandomForestClassifier(
            epsilon=epsilon, bounds=box, classes=[0, 1], n_jobs=1, random_state=seed, **parameters
        )
    return DPExplainableBoostingClassifier(
        epsilon=epsilon,
        delta=delta,
        privacy_bounds=np.column_stack(box),
        feature_types=["continuous"] * d,
        n_jobs=1,
        random_state=seed,
        **parameters,
    )


def main() -> None:
    """Answer until there are no more lines."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        task = json.loads(line)
        data = np.load(task["records"])
        made = model(
            task["method"], task["parameters"], data["X"].shape[1], task["epsilon"], task["delta"], task["seed"]
        )
        started = time.process_time()
        made.fit(data["X"], data["y"])
        seconds = time.process_time() - started
        np.save(task["scores"], made.predict_proba(data["X_test"])[:, 1])
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
