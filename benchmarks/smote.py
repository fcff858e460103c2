"""Speed of SMOTE's helpers: exact k-occurrence against scikit-learn's neighbour search, and the corrected guarantee."""

import argparse

import numpy as np
from dp_accounting import GaussianDpEvent
from sklearn.neighbors import NearestNeighbors

from benchmarks import timing
from helpers.privacy import REPLACE_ONE, Guarantee
from helpers.resampling import smote

K = 5


def in_degrees_by_scikit_learn(X) -> np.ndarray:
    """k-occurrence from scikit-learn's lists; which of several equally near points counts is left to chance there."""
    lists = NearestNeighbors(n_neighbors=K).fit(X).kneighbors(return_distance=False)
    return np.bincount(lists.ravel(), minlength=len(X))


def k_occurrence(rounds: int) -> None:
    """10,000 points in 30 dimensions, in general position and on a grid where many distances tie."""
    normal = np.random.default_rng(0).normal(size=(10_000, 30))
    for kind, X in (("normal", normal), ("rounded to halves", np.round(2 * normal) / 2)):
        ours, theirs = smote.in_degrees(X, K), in_degrees_by_scikit_learn(X)
        print(f"k-occurrence, k = {K}, 10,000 x 30, {kind}: {np.mean(ours == theirs):.2%} of the counts agree")
        contenders = {
            "scikit-learn": lambda X=X: timing.cpu_seconds(lambda: in_degrees_by_scikit_learn(X)),
            "helpers.smote": lambda X=X: timing.cpu_seconds(lambda: smote.in_degrees(X, K)),
        }
        timing.show(timing.alternate(contenders, rounds), "scikit-learn")


def amplification(rounds: int) -> None:
    """The guarantee for 100,000 new records from 10,000, for a pure learner and for one with Gaussian noise."""
    setting = {"d": 30, "k": K, "n_minority": 10_000, "n_new": 100_000, "neighbouring": REPLACE_ONE}
    noisy = Guarantee(0.01, 1e-9, REPLACE_ONE, event=GaussianDpEvent(2000.0))

    def timed(learner, delta):
        return lambda: timing.cpu_seconds(lambda: smote.amplification(learner, delta=delta, **setting))

    print("corrected amplification, n_new = 100,000")
    contenders = {"pure": timed(0.001, None), "pure, at delta": timed(0.001, 1e-5), "Gaussian": timed(noisy, 1e-5)}
    timing.show(timing.alternate(contenders, rounds), "pure")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    timing.describe_machine()
    with timing.one_core():
        k_occurrence(rounds)
        amplification(rounds)
