"""The private classifiers that are compared, each as its authors would run it on one public schema.

A method takes a split, a budget and a neighbouring relation, and gives log-odds of the minority for the records of
either part, with the cut-off that is its own. What all of them know is the same: the bounds of numbers, and which
levels an attribute has. Methods that need numbers see a level as a column of 0 and 1; methods that take one attribute
after the other see an attribute with levels as one.
"""

import json
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from xgboost import XGBClassifier

from benchmarks import cutoff, gradients
from helpers import data
from helpers.data import Domain
from helpers.erm import (
    DPGradientDescentClassifier,
    ObjectivePerturbationClassifier,
    PrivateMomentClassifier,
    default_regularization,
)
from helpers.meta import PrivateLogisticRegression, ThresholdClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, class_counts, noise_generator

TEST = 0.3
COUNT_SHARE = 0.05  # of epsilon, for the noisy count of the classes that a peer without one is given
N_SYNTHETIC = 4000
LIMIT = 3600.0  # seconds by the clock for one fit of a synthesiser


class Split:
    """Records to train on and to test on, with what is public.

    Attributes
    ----------
    X, y, X_test, y_test : ndarrays
    dataset : Dataset
        For its bounds and names.
    seed : int
        Of the methods' noise: the number of the split.
    """

    def __init__(self, dataset: data.Dataset, train: NDArray, test: NDArray, seed: int):
        self.dataset, self.seed = dataset, seed
        self.X, self.y, self.X_test, self.y_test = dataset.X[train], dataset.y[train], dataset.X[test], dataset.y[test]

    @property
    def delta(self) -> float:
        return len(self.y) ** -2.0

    @cached_property
    def columns(self) -> "Table":
        """Numbers in [-1, 1] and a column of 0 and 1 a level."""
        attributes = Domain.from_dataset(self.dataset).attributes
        d = self.dataset.X.shape[1]
        is_level = np.isin(np.arange(d), [j for one in attributes if one.kind == "one-hot" for j in one.columns])
        low = np.where(is_level, 0.0, -1.0)
        made = (np.where(is_level, X, _scaled(X, self.dataset.bounds)) for X in (self.X, self.X_test))
        return Table(*made, low, np.ones(d), np.zeros(d, dtype=int), math.sqrt(len(attributes)))

    @cached_property
    def attributes(self) -> "Table":
        """One column an attribute: numbers in [-1, 1], and the places of levels in their list."""
        attributes = Domain.from_dataset(self.dataset).attributes
        sizes = np.array([one.size if one.kind == "one-hot" else 0 for one in attributes])

        def made(X):
            scaled = _scaled(X, self.dataset.bounds)
            both = [
                one.encode(X) if size else scaled[:, one.columns[0]]
                for one, size in zip(attributes, sizes, strict=True)
            ]
            return np.column_stack(both).astype(float)

        low, high = np.where(sizes > 0, 0.0, -1.0), np.where(sizes > 0, sizes - 1.0, 1.0)
        norm = float(np.sqrt((np.maximum(abs(low), high) ** 2).sum()))
        return Table(made(self.X), made(self.X_test), low, high, sizes, norm)


class Table(NamedTuple):
    """X and X_test with one public range a column, the number of its levels (0 for numbers), and a row's largest
    length."""

    X: NDArray
    X_test: NDArray
    low: NDArray
    high: NDArray
    n_levels: NDArray
    norm: float


class Fitted(NamedTuple):
    """Log-odds of the minority for the records of both parts, the method's own cut-off, and CPU seconds of the fit."""

    train: NDArray
    test: NDArray
    cut: float
    seconds: float

    @classmethod
    def of(cls, score: Callable[[NDArray], NDArray], split: Any, cut: float, seconds: float) -> "Fitted":
        """From a function of rows; `split` has X and X_test."""
        return cls(score(split.X), score(split.X_test), cut, seconds)


def splits(dataset: data.Dataset, count: int) -> Iterator[Split]:
    """Stratified splits; the number of a split is the seed of the methods' noise too."""
    halves = StratifiedShuffleSplit(count, test_size=TEST, random_state=0).split(dataset.X, dataset.y)
    for seed, (train, test) in enumerate(halves):
        yield Split(dataset, train, test, seed)


def _scaled(X: NDArray, bounds: NDArray) -> NDArray:
    """Columns in [-1, 1] by their bounds; 0 where these are one number."""
    low, high = bounds.T
    width = np.where(high > low, high - low, 1.0)
    return np.clip(2 * (X - low) / width - 1, -1, 1) * (high > low)


# Ours


def moments(split: Split, epsilon: float, relation) -> Fitted:
    """`PrivateMomentClassifier` with the schema's levels, 32 cells a number, and its defaults."""
    domain = Domain.from_dataset(split.dataset, n_bins=32)
    model = PrivateMomentClassifier(epsilon, split.delta, domain, neighbouring=relation, random_state=split.seed)
    seconds = _fit(model, split)
    shift = float(logit(model.priors_[1]))  # its scores are log-odds as if both classes were equally frequent
    return Fitted.of(lambda X: model.decision_function(X) + shift, split, shift, seconds)


def logistic(split: Split, epsilon: float, relation) -> Fitted:
    """Logistic regression by objective perturbation with a private threshold."""
    penalty = default_regularization(len(split.y), split.X.shape[1] + 1, epsilon)
    inner = ObjectivePerturbationClassifier(
        regularization=penalty, bounds=split.dataset.bounds, neighbouring=relation, **_divisor(split, relation)
    )
    model = ThresholdClassifier(inner, epsilon, random_state=split.seed)
    seconds = _fit(model, split)
    return Fitted.of(model.estimator_.decision_function, split, float(logit(model.threshold_)), seconds)


def offset(split: Split, epsilon: float, relation, *, pure: bool) -> Fitted:
    """`PrivateLogisticRegression` with its defaults: a noisy count inside the loss and as threshold."""
    common = {"bounds": split.dataset.bounds, "neighbouring": relation, "random_state": split.seed}
    model = PrivateLogisticRegression(epsilon, 0.0 if pure else split.delta, **common, **_divisor(split, relation))
    seconds = _fit(model, split)
    return Fitted.of(model.decision_function, split, float(model.threshold_), seconds)


def descent(split: Split, epsilon: float, relation) -> Fitted:
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
    return Fitted.of(model.decision_function, split, float(model.offset_), seconds)


def _divisor(split, relation) -> dict:
    return {"n_records": len(split.y)} if relation is ADD_REMOVE else {}


def _fit(model, split) -> float:
    started = time.process_time()
    model.fit(split.X, split.y)
    return time.process_time() - started


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


# Without privacy: what the records would give


def without_privacy(split: Split, epsilon: float, relation, *, trees: bool) -> Fitted:
    """Logistic regression on the columns, or boosted trees, with the library's defaults."""
    table = split.columns
    model = XGBClassifier(n_jobs=1, random_state=0) if trees else LogisticRegression(max_iter=2000)
    started = time.process_time()
    model.fit(table.X, split.y)
    seconds = time.process_time() - started
    return Fitted.of(lambda X: cutoff.log_odds(model.predict_proba(X)[:, 1]), table, 0.0, seconds)


# Peers: also with parameters of their own


_AVERAGED = {"last": 0.0, "second half": 0.5, "all": 1.0}  # of the steps of a descent


def dp_sgd(
    split: Split, epsilon: float, relation, *, hidden: int, weighted: bool, average: str, **parameters
) -> Fitted:
    """DP-SGD with class weights from a noisy count, or none; in either case the count is the cut-off."""
    table, noise = split.columns, noise_generator(split.seed, "dp-sgd", split.dataset.name, epsilon, split.X)
    share = _noisy_share(split, COUNT_SHARE * epsilon, relation, noise)
    weights = np.array([0.5 / (1 - share), 0.5 / share]) if weighted else np.ones(2)
    started = time.process_time()
    own = {"hidden": hidden, "average": _AVERAGED[average], **parameters}
    score = gradients.fit(table.X, split.y, weights, (1 - COUNT_SHARE) * epsilon, split.delta, noise, **own)
    # Weights make both classes equally frequent; probabilities are those of the records as they are.
    shift = float(logit(share)) if weighted else 0.0
    seconds = time.process_time() - started
    return Fitted.of(lambda X: score(X) + shift, table, float(logit(share)), seconds)


def _noisy_share(split, epsilon, relation, noise) -> float:
    counts = np.maximum(class_counts(split.y, [0, 1], epsilon, relation, noise).value, 1)
    return float(counts[1] / counts.sum())


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

    def __call__(self, method: str, layout: str, split: Split, epsilon: float, relation, **parameters) -> Fitted:
        """One fit; `layout` is "columns" or "attributes". The library's own cut-off is a probability of one half."""
        table: Table = getattr(split, layout)
        records, scores = (str(Path(self._folder.name) / name) for name in ("records.npz", "scores.npy"))
        np.savez(records, X=table.X, y=split.y, X_test=table.X_test)
        task = {"records": records, "scores": scores, "method": method, "parameters": parameters}
        task |= {name: getattr(table, name).tolist() for name in ("low", "high", "n_levels")}
        task |= {"norm": table.norm, "epsilon": epsilon, "delta": split.delta, "seed": split.seed}
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        seconds = float(self._process.stdout.readline())
        train, test = np.split(np.load(scores), [len(split.y)])
        return Fitted(train, test, 0.0, seconds)


def synthetic(python: str, label: str, split: Split, epsilon: float, relation) -> Fitted:
    """Boosted trees without privacy on balanced records from a synthesiser of dpmm, numbers in 16 cells."""
    domain, noise = Domain.from_dataset(split.dataset, n_bins=16), noise_generator(split.seed, label, split.X)
    share = _noisy_share(split, COUNT_SHARE * epsilon, relation, noise)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "records.npz", Path(folder) / "made.npz"
        np.savez(source, codes=domain.encode(split.X, split.y), sizes=np.array(domain.sizes))
        script = Path(__file__).with_name("synthesis_peer.py")
        arguments = [label, source, target, (1 - COUNT_SHARE) * epsilon, split.delta, split.seed, N_SYNTHETIC]
        subprocess.run([python, script, *map(str, arguments)], check=True, timeout=LIMIT, capture_output=True)
        with np.load(target) as made:
            codes, seconds = made["codes"], float(made["seconds"])
    X, y = domain.decode(codes, np.random.default_rng(split.seed))
    trees = XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1, random_state=split.seed).fit(X, y)
    shift = float(logit(share))  # the records that were made are of either class equally often
    return Fitted.of(lambda X: cutoff.log_odds(trees.predict_proba(X)[:, 1]) + shift, split, shift, seconds)


def _ladder(low: float, high: float, factor: float = 2.0) -> tuple[float, ...]:
    """Powers of the factor between two of them, each with two digits."""
    count = round(math.log(high / low) / math.log(factor))
    return tuple(float(f"{low * factor**k:.2g}") for k in range(count + 1))


_DESCENT = {
    "steps": (10, 30, 100, 300, 1000),
    "sample": (0.03, 0.1, 1.0),
    "rate": _ladder(0.125, 64.0),
    "clip": (0.1, 0.3, 1.0, 3.0, 10.0),
    "average": tuple(_AVERAGED),
    "weighted": (False, True),
}
_TUTORIAL = {"steps": 100, "sample": 0.1, "rate": 1.0, "clip": 1.0, "average": "last", "weighted": False}
SETTINGS: dict[str, tuple[dict, dict]] = {  # of the peers: axes that are climbed, their ends the limits; the start
    "diffprivlib LR": ({"C": (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0)}, {"C": 1.0}),
    "diffprivlib GNB": ({}, {}),
    "diffprivlib RF": (
        {"n_estimators": (3, 10, 30), "max_depth": (2, 3, 5, 8)},
        {"n_estimators": 10, "max_depth": 5},
    ),
    "DP-EBM": (
        {
            "max_rounds": (10, 30, 100, 300, 1000),
            "learning_rate": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
            "max_bins": (8, 16, 32, 64),
            "levels": ("nominal", "codes"),
        },
        {"max_rounds": 300, "learning_rate": 0.01, "max_bins": 32, "levels": "nominal"},
    ),
    "DP-SGD LR": (_DESCENT, _TUTORIAL),
    "DP-SGD MLP": (_DESCENT, _TUTORIAL),
}
PEERS = {  # and the relation of each: that of the proof, or of the sensitivities in its source
    "diffprivlib LR": REPLACE_ONE,
    "diffprivlib GNB": ADD_REMOVE,
    "diffprivlib RF": ADD_REMOVE,
    "DP-EBM": ADD_REMOVE,
    "DP-SGD LR": ADD_REMOVE,
    "DP-SGD MLP": ADD_REMOVE,
}
SYNTHESISERS = {f"dpmm {label} + trees": label for label in ("MST", "PrivBayes", "AIM")}  # under add/remove
CEILINGS = {  # without noise or privacy
    "moments, no noise": (moments, ADD_REMOVE),
    "logistic, no privacy": (partial(without_privacy, trees=False), ADD_REMOVE),
    "trees, no privacy": (partial(without_privacy, trees=True), ADD_REMOVE),
}


def peers(python: str) -> dict[str, tuple[Callable, object]]:
    """What fits each peer, and its relation."""
    elsewhere = Elsewhere(python)
    made = {f"DP-SGD {name}": partial(dp_sgd, hidden=units) for name, units in (("LR", 0), ("MLP", 16))}
    # Trees and additive models take one attribute after the other, the others need columns.
    layouts = {"DP-EBM": "attributes", "diffprivlib RF": "attributes"}
    return {
        name: (made.get(name) or partial(elsewhere, name, layouts.get(name, "columns")), relation)
        for name, relation in PEERS.items()
    }
