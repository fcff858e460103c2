"""Runs in the peer's environment: for every line read, a tolerance, one fit of diffprivlib's logistic regression.

Answers with the fit's CPU seconds.
"""

import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression


def main(file: str, epsilon: str, regularization: str) -> None:
    """Fit with the rows already in the unit ball; C is the same penalty in scikit-learn's scale."""
    warnings.simplefilter("ignore")
    data = np.load(file)
    X, y = data["X"], data["y"]
    penalty = 1 / (float(regularization) * len(X))
    print("ready", flush=True)
    for seed, line in enumerate(sys.stdin):
        model = LogisticRegression(
            epsilon=float(epsilon), data_norm=1.0, C=penalty, tol=float(line), max_iter=1000, random_state=seed
        )
        started = time.process_time()
        model.fit(X, y)
        print(time.process_time() - started, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
