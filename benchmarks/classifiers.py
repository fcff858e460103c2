"""Private classifiers of this project beside those of other libraries, on the reserve sets.

`python -m benchmarks.classifiers tune` chooses the peers' settings on development sets, `run` makes the comparison, and
both go on where they were interrupted: every fit is a row of a CSV. `tables` makes what the book shows of them. Every
method gets the whole of one budget, the same splits (70 % to train), bounds and delta = n^-2, but for those that are
pure. Ours run under both neighbouring relations; a peer under its own.

A peer has no threshold for rare classes. Each gets what this project's logistic regression has: a tenth of epsilon buys
a noisy share of the minority, which is the threshold on its probabilities. Its Brier score is of the probabilities.
"""

import argparse
import itertools
import json
import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import expit
from sklearn.metrics import average_precision_score, balanced_accuracy_score, brier_score_loss, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks import recording, reserve
from helpers import data
from helpers.book.card import QUALITY
from helpers.data import Domain
from helpers.erm import (
    DPGradientDescentClassifier,
    ObjectivePerturbationClassifier,
    PrivateMomentClassifier,
    default_regularization,
)
from helpers.meta import PrivateLogisticRegression, ThresholdClassifier
from helpers.neural import Schedule
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, class_counts, noise_generator
from helpers.study import comparison

ROOT = Path(__file__).parents[1]
TUNED, TRIALS = ROOT / "results" / "classifiers-tuned.csv", ROOT / "results" / "classifiers-trials.csv"
EPSILONS = (1.0, 0.5, 5.0, 0.1)
SPLITS, TUNING_SPLITS, TEST = 10, 1, 0.3
SETS = (*reserve.RESERVE, *reserve.SECOND)
THRESHOLD_SHARE = 0.1
TUNING_SETS = ("abalone", "car_eval_34", "yeast_me2", "mammography")
GRIDS = {  # of parameters; the first is the library's default or a usual choice
    "diffprivlib LR": [{"C": c} for c in (1.0, 0.1, 0.01, 0.001)],
    "diffprivlib GNB": [{}],
    "diffprivlib RF": [{"n_estimators": n, "max_depth": d} for n, d in ((10, 5), (10, 3))],
    "DP-EBM": [{"max_rounds": rounds} for rounds in (300, 30)],
    "Opacus LR": [{"lr": lr, "epochs": epochs} for epochs in (10, 40) for lr in (0.5, 4.0)],
    "Opacus MLP": [{"lr": lr, "epochs": epochs} for epochs in (10, 40) for lr in (0.5, 2.0)],
}
_BATCHES = 10  # of Opacus, an epoch


class Split(NamedTuple):
    """Records to train on and to test on, with what is public."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    dataset: data.Dataset
    seed: int

    @property
    def delta(self) -> float:
        return len(self.y) ** -2.0

    def scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """X and X_test in [-1, 1] by the bounds; 0 where a bound has no width."""
        low, high = self.dataset.bounds.T
        width = np.where(high > low, high - low, 1.0)
        return tuple(np.clip(2 * (X - low) / width - 1, -1, 1) * (high > low) for X in (self.X, self.X_test))


class Outcome(NamedTuple):
    """Scores of the test records, their threshold, P(minority), and CPU seconds of the fit."""

    scores: np.ndarray
    threshold: float
    probabilities: np.ndarray
    seconds: float


def splits(dataset: data.Dataset, count: int) -> Iterator[Split]:
    """Stratified splits; the seed of a split is its number, and the seed of the methods' noise too."""
    halves = StratifiedShuffleSplit(count, test_size=TEST, random_state=0).split(dataset.X, dataset.y)
    for seed, (train, test) in enumerate(halves):
        yield Split(dataset.X[train], dataset.y[train], dataset.X[test], dataset.y[test], dataset, seed)


# Ours: a split, a budget and a relation


def moments(split: Split, epsilon: float, relation) -> Outcome:
    """`PrivateMomentClassifier` with the schema's levels, 32 cells a number, and its defaults."""
    domain = Domain.from_dataset(split.dataset, n_bins=32)
    model = PrivateMomentClassifier(epsilon, split.delta, domain, neighbouring=relation, random_state=split.seed)
    seconds = _fit(model, split)
    return Outcome(model.decision_function(split.X_test), 0.0, model.predict_proba(split.X_test)[:, 1], seconds)


def logistic(split: Split, epsilon: float, relation) -> Outcome:
    """Logistic regression by objective perturbation with a private threshold: the book's recommendation so far."""
    penalty = default_regularization(len(split.y), split.X.shape[1] + 1, epsilon)
    inner = ObjectivePerturbationClassifier(
        regularization=penalty, bounds=split.dataset.bounds, neighbouring=relation, **_divisor(split, relation)
    )
    model = ThresholdClassifier(inner, epsilon, threshold_share=THRESHOLD_SHARE, random_state=split.seed)
    seconds = _fit(model, split)
    found = model.predict_proba(split.X_test)[:, 1]
    return Outcome(found, model.threshold_, found, seconds)


def offset(split: Split, epsilon: float, relation, *, pure: bool) -> Outcome:
    """`PrivateLogisticRegression` with its defaults: a noisy count inside the loss and as threshold."""
    delta = 0.0 if pure else split.delta
    common = {"bounds": split.dataset.bounds, "neighbouring": relation, "random_state": split.seed}
    model = PrivateLogisticRegression(epsilon, delta, **common, **_divisor(split, relation))
    seconds = _fit(model, split)
    found = model.predict_proba(split.X_test)[:, 1]
    return Outcome(model.decision_function(split.X_test), float(model.threshold_), found, seconds)


def descent(split: Split, epsilon: float, relation) -> Outcome:
    """Gradient descent on the private scale, with the private share of the minority as offset and as threshold."""
    model = DPGradientDescentClassifier(
        epsilon,
        split.delta,
        scale="private",
        prior="offset",
        bounds=split.dataset.bounds,
        neighbouring=relation,
        random_state=split.seed,
        **_divisor(split, relation),
    )
    seconds = _fit(model, split)
    found = model.decision_function(split.X_test)
    return Outcome(found, float(model.offset_), expit(found), seconds)


def _divisor(split, relation) -> dict:
    return {"n_records": len(split.y)} if relation is ADD_REMOVE else {}


def _fit(model, split) -> float:
    started = time.process_time()
    model.fit(split.X, split.y)
    return time.process_time() - started


# Peers: also with parameters of their own


def _with_threshold(split, epsilon, relation, fit: Callable[[float], tuple[np.ndarray, float]]) -> Outcome:
    """A peer's probabilities for its part of epsilon, and the noisy share of the minority for the rest."""
    noise = noise_generator(split.seed, split.dataset.name, split.y)
    counts = np.maximum(class_counts(split.y, [0, 1], THRESHOLD_SHARE * epsilon, relation, noise).value, 1)
    share = counts[1] / counts.sum()
    found, seconds = fit((1 - THRESHOLD_SHARE) * epsilon)
    return Outcome(found, float(share), found, seconds)


def opacus(split: Split, epsilon: float, relation, *, hidden: int, lr: float, epochs: int) -> Outcome:
    """A network of one hidden layer, or none, by Opacus' DP-SGD; noise from privacy loss distributions."""

    def fit(budget):
        from opacus import PrivacyEngine

        X, X_test = (torch.tensor(x, dtype=torch.float32) for x in split.scaled())
        y = torch.tensor(split.y, dtype=torch.float32)
        torch.manual_seed(split.seed)
        d = X.shape[1]
        layers = [torch.nn.Linear(d, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)] if hidden else []
        model = torch.nn.Sequential(*(layers or [torch.nn.Linear(d, 1)]))
        records = torch.utils.data.TensorDataset(X, y)
        loader = torch.utils.data.DataLoader(records, batch_size=math.ceil(len(y) / _BATCHES))
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=lr),
            data_loader=loader,
            noise_multiplier=_multiplier(len(loader), epochs, budget, split.delta),
            max_grad_norm=1.0,
        )
        started = time.process_time()
        for _ in range(epochs):
            for rows, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(model(rows)[:, 0], labels).backward()
                optimizer.step()
        seconds = time.process_time() - started
        with torch.no_grad():
            return torch.sigmoid(model(X_test)[:, 0]).double().numpy(), seconds

    return _with_threshold(split, epsilon, relation, fit)


@cache
def _multiplier(batches: int, epochs: int, epsilon: float, delta: float) -> float:
    """Noise of Opacus' steps, which see each record with probability 1/batches."""
    plan = Schedule.constant(batches * epochs, sample_rate=1 / batches).calibrate(epsilon, delta)
    return float(plan.noise_multipliers[0])


class Elsewhere:
    """The process in the peers' environment."""

    def __init__(self, python: str):
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("peers.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._folder = tempfile.TemporaryDirectory()

    def __call__(self, method: str, split: Split, epsilon: float, relation, **parameters) -> Outcome:
        records, scores = (str(Path(self._folder.name) / name) for name in ("records.npz", "scores.npy"))

        def fit(budget):
            X, X_test = split.scaled()
            np.savez(records, X=X, y=split.y, X_test=X_test)
            task = {"records": records, "scores": scores, "method": method, "parameters": parameters}
            task |= {"epsilon": budget, "delta": split.delta, "seed": split.seed}
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
            seconds = float(self._process.stdout.readline())
            return np.load(scores), seconds

        return _with_threshold(split, epsilon, relation, fit)


# The runs


OURS = {
    f"{name}, {word}": (method, relation)
    for name, method in (
        ("moments", moments),
        ("logistic + threshold", logistic),
        ("offset logistic", partial(offset, pure=False)),
        ("offset logistic (pure)", partial(offset, pure=True)),
        ("gradient descent", descent),
    )
    for word, relation in (("replace-one", REPLACE_ONE), ("add/remove", ADD_REMOVE))
}


PEERS = {  # and the relation of each: that of the proof, or of the sensitivities in its source
    "diffprivlib LR": REPLACE_ONE,
    "diffprivlib GNB": ADD_REMOVE,
    "diffprivlib RF": ADD_REMOVE,
    "DP-EBM": ADD_REMOVE,
    "Opacus LR": ADD_REMOVE,
    "Opacus MLP": ADD_REMOVE,
}


def peers(python: str) -> dict[str, tuple[Callable, object]]:
    """What fits each peer, and its relation."""
    networks = {"Opacus LR": partial(opacus, hidden=0), "Opacus MLP": partial(opacus, hidden=16)}
    elsewhere = Elsewhere(python)
    return {name: (networks.get(name, partial(elsewhere, name)), relation) for name, relation in PEERS.items()}


def measured(outcome: Outcome, y: np.ndarray) -> dict[str, float]:
    """Metrics of one fit."""
    predicted = outcome.scores >= outcome.threshold
    return {
        "auc": roc_auc_score(y, outcome.scores),
        "ap": average_precision_score(y, outcome.scores),
        "balanced_accuracy": balanced_accuracy_score(y, predicted),
        "f1": f1_score(y, predicted, zero_division=0.0),
        "brier": brier_score_loss(y, np.clip(outcome.probabilities, 0, 1)),
        "seconds": outcome.seconds,
    }


class Rows:
    """A CSV with one row a key, which grows by a row at a time."""

    def __init__(self, path: Path, key: tuple[str, ...]):
        self.path, self.key = path, key
        done = pd.read_csv(path, dtype=str) if path.exists() else pd.DataFrame(columns=list(key))
        self._done = set(done[list(key)].itertuples(index=False, name=None))

    def add(self, key: tuple, work: Callable[[], dict[str, float]]) -> None:
        """A row of this key, if there is none."""
        if tuple(map(str, key)) in self._done:
            return
        numbers = {name: round(value, 6) for name, value in work().items()}
        row = pd.DataFrame([dict(zip(self.key, key, strict=True)) | numbers])
        row.to_csv(self.path, mode="a", header=not self.path.exists(), index=False)


def tune(python: str) -> None:
    """Every setting of every peer on the tuning sets, at epsilon 1."""
    rows, methods = Rows(TUNED, ("dataset", "method", "parameters", "split")), peers(python)
    for name in TUNING_SETS:
        for split in splits(data.load(name), TUNING_SPLITS):
            for method, parameters in ((method, one) for method, grid in GRIDS.items() for one in grid):
                work = partial(_trial, *methods[method], split, 1.0, parameters)
                rows.add((name, method, json.dumps(parameters), split.seed), work)


def _trial(call, relation, split, epsilon, parameters) -> dict[str, float]:
    return measured(call(split, epsilon, relation, **parameters), split.y_test)


def chosen() -> dict[str, dict]:
    """Each peer's setting with the best mean of AUC and balanced accuracy on the tuning sets."""
    table = pd.read_csv(TUNED)
    table["value"] = table.auc + table.balanced_accuracy
    means = table.groupby(["method", "parameters"]).value.mean().reset_index()
    best = means.loc[means.groupby("method").value.idxmax()]
    return {row.method: json.loads(row.parameters) for row in best.itertuples()}


def run(python: str) -> None:
    """The comparison, the budget of most interest first and all splits of it before the next."""
    rows, settings = Rows(TRIALS, ("dataset", "method", "epsilon", "split")), chosen()
    methods, halves = OURS | peers(python), {name: list(splits(reserve.load(name), SPLITS)) for name in SETS}
    first, *others = EPSILONS
    order = [(first, seed) for seed in range(SPLITS)] + [(e, seed) for seed in range(SPLITS) for e in others]
    for (epsilon, seed), name in itertools.product(order, SETS):
        for method, (call, relation) in methods.items():
            work = partial(_trial, call, relation, halves[name][seed], epsilon, settings.get(method, {}))
            rows.add((name, method, epsilon, seed), work)


def tables(python: str) -> None:
    """From the trials that there are: what the book shows, and what the card of a fitted classifier shows."""
    trials = pd.read_csv(TRIALS)
    sets = trials.groupby(["method", "epsilon", "split"]).dataset.transform("nunique")
    trials = trials[sets == len(SETS)]  # splits of an interrupted run do not count before all sets have them
    by = trials.groupby(["method", "epsilon", "dataset"], sort=False)
    means = by[["auc", "ap", "balanced_accuracy", "f1", "brier", "seconds"]].mean().round(4)
    means = means.assign(splits=by.split.nunique()).reset_index()
    means.insert(3, "reserve", np.where(means.dataset.isin(list(reserve.SECOND)), "second", "first"))
    record(means, "private-classifiers-comparison", trials)
    record(_quality(trials), QUALITY, trials)
    record(_gains(trials), "private-classifiers-gains", trials)


def _quality(trials: pd.DataFrame) -> pd.DataFrame:
    """What each method reaches on a set of such a size: the mean, least and most of single fits."""
    by = trials.groupby(["method", "dataset", "epsilon"], sort=False)
    table = by.agg(splits=("split", "nunique")).reset_index()
    for score in ("auc", "balanced_accuracy"):
        for name, how in {score: "mean", f"{score}_low": "min", f"{score}_high": "max"}.items():
            table[name] = by[score].agg(how).to_numpy().round(4)
    loaded = {name: reserve.load(name) for name in SETS}
    sizes = {name: (len(one.y), int(one.y.sum()), one.X.shape[1]) for name, one in loaded.items()}
    for at, (column, share) in enumerate({"n": 1 - TEST, "minority": 1 - TEST, "features": 1}.items(), start=2):
        table.insert(at, column, [round(share * sizes[name][at - 2]) for name in table.dataset])
    relations = {name: "replace-one" if relation is REPLACE_ONE else "add/remove" for name, relation in _relations()}
    table.insert(1, "relation", table.method.map(relations))
    return table.assign(method=table.method.str.removesuffix(", replace-one").str.removesuffix(", add/remove"))


def _relations():
    """Each method and its relation."""
    return [*PEERS.items(), *((name, relation) for name, (_, relation) in OURS.items())]


def _gains(trials: pd.DataFrame) -> pd.DataFrame:
    """Gains of the moment classifier over all others of the same relation, over data sets and in single ones.

    Two methods are compared on the splits that both have. `holm` are p-values corrected for the comparisons with all
    libraries in AUC and balanced accuracy at one epsilon.
    """
    found = []
    for base in ("moments, replace-one", "moments, add/remove"):
        relation = dict(_relations())
        same = trials[[relation[name] is relation[base] for name in trials.method]]
        for metric in ("auc", "balanced_accuracy", "ap", "f1"):
            gains = comparison.paired_gains(
                same, {"method": base}, values=[metric], test_fraction=TEST, by=["epsilon", "dataset"], split="split"
            )
            for (epsilon, method), part in gains.groupby(["epsilon", "method"]):
                better = comparison.signed_rank(part.assign(mean=-part["mean"]))
                signs = {"clearly better": (part.high < 0).sum(), "clearly worse": (part.low > 0).sum()}
                key = {
                    "epsilon": epsilon,
                    "metric": metric,
                    "moments": base,
                    "over": method,
                    "splits": part.n.min(),
                    "gain": -part["mean"].mean(),
                    "median": -part["mean"].median(),
                }
                found.append(key | better | signs)
    table = pd.DataFrame(found)
    family = table[table.over.isin(PEERS) & table.metric.isin(["auc", "balanced_accuracy"])]
    corrected = family.groupby("epsilon").p_value.transform(comparison.holm)
    table.insert(table.columns.get_loc("p_value") + 1, "holm", corrected)
    return table.round(4)


def record(table: pd.DataFrame, name: str, trials: pd.DataFrame) -> None:
    """Keep a table that was made from these trials."""
    counts = trials.groupby(["epsilon", trials.columns.intersection(["method", "variant"])[0]]).split.nunique()
    splits = {f"{epsilon:g}": sorted(set(part)) for epsilon, part in counts.groupby("epsilon")}
    parameters = {"splits by epsilon, of some methods and of others": splits}
    recording.record(table, name, parameters, trials.seconds.sum(), **{"settings of peers": chosen()})


def main() -> None:
    """Tune, run, or make the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tune", "run", "tables"))
    parser.add_argument("--peers", default=str(ROOT / "benchmarks" / ".venv-peers" / "bin" / "python"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    {"tune": tune, "run": run, "tables": tables}[arguments.what](arguments.peers)


if __name__ == "__main__":
    main()
