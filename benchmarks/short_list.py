"""The short list of the page on choosing a method, and the private choice among it, on sets that settings never saw.

`python -m benchmarks.short_list run` makes the trials and goes on where it was interrupted; `tables` keeps them for the
book. The sets are the two reserves (`benchmarks.reserve`), the benchmark's eight, and four that were made for this
page: California's districts with a price at the top of its scale, and three simulated ones, of which in the last only
attributes in pairs tell anything. (Its first version had one pair of numbers, from which no method learned at epsilon
1; the other three are as they were written down.) On the reserves, private moments were run before with the same
settings and splits (`benchmarks.classifiers`), and those trials are taken.
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import fetch_california_housing
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from benchmarks import classifiers, contenders, recording, reserve
from checks import benchmark
from checks.which_method import CHOICE, MOMENTS, SHORT_LIST, learn
from helpers import data, paths

TRIALS = Path(__file__).parents[1] / "results" / "short-list-trials.csv"
EPSILONS = (1.0, 0.5, 5.0, 0.1)
NEW = ("California, top price", "simulated, linear", "simulated, curved", "simulated, XOR")
GROUPS = {"first reserve": tuple(reserve.RESERVE), "second reserve": tuple(reserve.SECOND)}
GROUPS |= {"benchmark": benchmark.DATASETS, "new": NEW}
_SIMULATED = 6000  # records
_CALIFORNIA = {  # from the meaning of the attributes: incomes and ages end where the census cuts them off
    "MedInc": (0, 15), "HouseAge": (1, 52), "AveRooms": (1, 20), "AveBedrms": (0, 5), "Population": (0, 10_000),
    "AveOccup": (1, 10), "Latitude": (32.5, 42), "Longitude": (-124.5, -114),
}  # fmt: skip
_TOP = 5.0  # in 100,000 dollars: prices above are not told apart


def load(name: str) -> data.Dataset:
    """One of the sets of `GROUPS`."""
    if name in benchmark.DATASETS:
        return data.load(name)
    if name in reserve.RESERVE or name in reserve.SECOND:
        return reserve.load(name)
    return _california() if name == NEW[0] else _simulated(name)


def _california() -> data.Dataset:
    folders = [folder / "california" for folder in paths.data_folders()]
    home = next((folder for folder in folders if (folder / "cal_housing_py3.pkz").is_file()), None)
    found = fetch_california_housing(data_home=home)
    bounds = np.array([_CALIFORNIA[name] for name in found.feature_names], dtype=float)
    X, y = np.clip(found.data, *bounds.T), (found.target > _TOP).astype(np.int64)
    return data.Dataset(NEW[0], X, y, tuple(found.feature_names), bounds, "written down from the attributes' meaning")


def _simulated(name: str) -> data.Dataset:
    """About one record in twenty is rare. Attributes are numbers in [-4, 4]; for XOR they are bits, and a record may be
    rare where each of three pairs of bits agrees, so that no bit alone tells anything."""
    rng = np.random.default_rng(0)
    low, high = (0.0, 1.0) if name == "simulated, XOR" else (-4.0, 4.0)
    names = tuple(f"x{j + 1}" for j in range(8))
    if name == "simulated, XOR":
        X = rng.integers(2, size=(_SIMULATED, 8)).astype(float)
        chance = 0.4 * (X[:, :6:2] == X[:, 1:6:2]).all(axis=1)
        names = tuple(f"{one}=on" for one in names)
    else:
        X = rng.standard_normal((_SIMULATED, 8))
        X[:, 1:] = 0.5 * X[:, :-1] + np.sqrt(0.75) * X[:, 1:]  # neighbours are correlated
        X = X.clip(low, high)
        score = X @ np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0, 0.0])
        if name == "simulated, curved":
            score = 2 * np.tanh(X[:, 0]) + X[:, 1] - X[:, 2] ** 2 + np.sin(2 * X[:, 3])
        chance = 1 / (1 + np.exp(-2 * (score - np.quantile(score, 0.95))))
    y = (rng.random(_SIMULATED) < chance).astype(np.int64)
    return data.Dataset(name, X, y, names, np.tile([low, high], (8, 1)), "those of the simulation")


def splits(name: str, count: int) -> Iterator[tuple[int, data.Dataset, data.Dataset]]:
    """Those of the earlier comparison that a set was in, so that trials are paired with its own."""
    records = load(name)
    if name in benchmark.DATASETS or name in NEW:
        for seed in range(count):
            yield seed, *data.split(records, benchmark.TEST_SHARE, seed)
        return
    # Of a larger number of splits the first ones are the same.
    for split in contenders.splits(records, count):
        parts = (split.X, split.y), (split.X_test, split.y_test)
        public = records.feature_names, records.bounds, records.bounds_basis
        yield split.seed, *(data.Dataset(name, X, y, *public) for X, y in parts)


def measured(method: str, train: data.Dataset, test: data.Dataset, epsilon: float, seed: int) -> dict[str, float]:
    """Metrics of one fit."""
    started = time.process_time()
    learnt = learn(method, train, epsilon, seed)
    scores = learnt.of(test.X)
    return {
        "auc": roc_auc_score(test.y, scores),
        "ap": average_precision_score(test.y, scores),
        "balanced_accuracy": balanced_accuracy_score(test.y, scores >= learnt.threshold),
        "seconds": time.process_time() - started,
    }


def run(n_splits: int, epsilons: list[float], methods: list[str], groups: list[str]) -> None:
    """The trials that there are not yet, split by split."""
    rows = classifiers.Rows(TRIALS, ("dataset", "method", "epsilon", "split"))
    for name in (name for group in groups for name in GROUPS[group]):
        is_reserve = name in reserve.RESERVE or name in reserve.SECOND
        own = [method for method in methods if not (is_reserve and method == MOMENTS)]
        for seed, train, test in splits(name, n_splits):
            for method, epsilon in itertools.product(own, epsilons):
                rows.get((name, method, epsilon, seed), partial(measured, method, train, test, epsilon, seed))


def tables() -> None:
    """All trials of the short list with what is public of each set, as the book shows them."""
    own, earlier = pd.read_csv(TRIALS), pd.read_csv(classifiers.TRIALS)
    earlier = earlier[earlier.method == f"{MOMENTS}, replace-one"].assign(method=MOMENTS)
    # There the name without "own" stands for decisions at the cut-off that all methods have in common.
    earlier["balanced_accuracy"] = earlier.own_balanced_accuracy
    trials = pd.concat([own, earlier[own.columns]], ignore_index=True).rename(columns={"ap": "pr_auc"})
    sets = {name: load(name) for name in trials.dataset.unique()}
    share = 1 - benchmark.TEST_SHARE
    trials["group"] = trials.dataset.map({name: group for group, names in GROUPS.items() for name in names})
    trials["n"] = trials.dataset.map({name: round(share * one.n) for name, one in sets.items()})
    trials["minority"] = trials.dataset.map({name: round(share * int(one.y.sum())) for name, one in sets.items()})
    trials["features"] = trials.dataset.map({name: one.n_features for name, one in sets.items()})
    by = trials.groupby(["method", "epsilon"]).split.nunique()
    parameters = {"most splits by method and epsilon": {f"{m}, {e:g}": int(n) for (m, e), n in by.items()}}
    recording.record(trials, "which-method-trials", parameters, trials.seconds.sum())


def main() -> None:
    """Run, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "tables"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--methods", nargs="+", default=[*SHORT_LIST, CHOICE], choices=[*SHORT_LIST, CHOICE])
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if arguments.what == "run":
        run(arguments.splits, arguments.epsilons, arguments.methods, arguments.groups)
    else:
        tables()


if __name__ == "__main__":
    main()
