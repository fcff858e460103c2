"""Speed of helpers.synthesis beside what it buys: seconds of a fit, the error of its marginals, and the AUC.

Published sizes (100 rounds of 100 steps, as Table 12) in either parameterisation on abalone; then all synthesisers at
their defaults, with XGBoost trained on balanced records. A fit runs on one thread, or on a GPU where the network finds
one. Splits are shared, the budget is epsilon = 1. Where `make synthesis-peer` has installed dpmm, its synthesisers get
the same codes and budget, in a process of their own; they take minutes a fit. Every fit is kept in
`results/synthesis-fits.csv` as it ends, and is not run again: delete a row to measure it anew.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from xgboost import XGBClassifier

from benchmarks import timing
from benchmarks.recording import RESULTS, record
from checks.synthetic_data import marginal_error
from helpers import data
from helpers.privacy import ADD_REMOVE
from helpers.synthesis import AIM, GEM, MST, PAPER, BalancedSynthesizer, Domain, PrivBayes

EPSILON = 1.0
N_SAMPLES = 10_000
PUBLISHED = {
    "GEM, network": PAPER,
    "GEM, direct": PAPER | {"parameterization": "direct", "lr": None},
}
DEFAULTS = {
    "GEM": lambda domain: GEM(EPSILON, domain=domain),
    "GEM, pairs, 10 rounds": lambda domain: GEM(EPSILON, domain=domain, k=2, T=10),
    "GEM, all marginals": lambda domain: GEM(EPSILON, domain=domain, workload="all"),
    "GEM, private bins": lambda domain: GEM(EPSILON, classes=domain.classes),
    "AIM": lambda domain: AIM(EPSILON, domain=domain),
    "AIM, all marginals": lambda domain: AIM(EPSILON, domain=domain, workload="all"),
    "AIM, all marginals, add/remove": lambda domain: AIM(
        EPSILON, domain=domain, workload="all", neighbouring=ADD_REMOVE
    ),
    "MST": lambda domain: MST(EPSILON, domain=domain),
    "MST, all pairs": lambda domain: MST(EPSILON, domain=domain, workload="all"),
    "MST, all pairs, add/remove": lambda domain: MST(EPSILON, domain=domain, workload="all", neighbouring=ADD_REMOVE),
    "PrivBayes, degree 1": lambda domain: PrivBayes(EPSILON, domain=domain, degree=1),
    "PrivBayes, degree 2": lambda domain: PrivBayes(EPSILON, domain=domain),
}

PEERS = ("MST", "PrivBayes", "AIM")
PEER = Path(__file__).parent / ".venv-synthesis" / "bin" / "python"
FITS = "synthesis-fits"
KEY = ["what", "data", "method", "seed"]


class Fits:
    """The fits that were measured, one row each, kept as they end."""

    def __init__(self):
        path = RESULTS / f"{FITS}.csv"
        self.rows = pd.read_csv(path).to_dict("records") if path.is_file() else []

    def add(self, what: str, name: str, method: str, seed: int, measure: Callable[[], dict[str, float]]) -> None:
        """Measure, unless it was; `measure` returns CPU seconds and scores. The load is that before the fit."""
        key = dict(zip(KEY, (what, name, method, seed), strict=True))
        if any(key == {column: row[column] for column in KEY} for row in self.rows):
            return
        load, started = os.getloadavg()[0], time.perf_counter()
        measured = measure()
        row = (
            key | {"seconds": time.perf_counter() - started, "load": load} | measured
        )  # a peer's own, where it has one
        self.rows.append(row)
        table = pd.DataFrame(self.rows).round(4)
        record(table, FITS, {"epsilon": EPSILON}, table.cpu_seconds.sum(), chapter="synthetic-data")

    def show(self) -> None:
        """Means and deviations over seeds."""
        table = pd.DataFrame(self.rows).drop(columns="seed").groupby(KEY[:-1], sort=False)
        print(table.agg(["mean", "std"]).round(3).to_string())


def error_of(model, domain: Domain, records) -> float:
    """Error of 3-way marginals, from 100,000 samples, so that every method is measured alike."""
    return marginal_error(domain, (records.X, records.y), model.sample(100_000, random_state=0), order=3)


def auc_of(made: tuple, test, seed: int) -> float:
    """Of XGBoost on the records that were made."""
    learner = XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1, random_state=seed).fit(*made)
    return roc_auc_score(test.y, learner.predict_proba(test.X)[:, 1])


def published_sizes(fits: Fits, seeds: int, rounds: int) -> None:
    """By the clock and of the processor: the ratio says how much of its core a fit had."""
    records = data.load("abalone")
    domain = Domain.from_dataset(records)
    for name, parameters in PUBLISHED.items():
        GEM(EPSILON, domain=domain, **parameters | {"T": 1, "max_iters": 1}).fit(records.X, records.y)  # imports

        def measure(seed, parameters=parameters):
            model = GEM(EPSILON, domain=domain, random_state=seed, **parameters | {"T": rounds})
            started = time.perf_counter()
            cpu = timing.cpu_seconds(lambda: model.fit(records.X, records.y))
            return {
                "seconds": time.perf_counter() - started,
                "cpu_seconds": cpu,
                "error": error_of(model, domain, records),
            }

        for seed in range(seeds):
            what = f"{rounds} rounds of {GEM(**PAPER).max_iters} steps"
            fits.add(what, "abalone", name, seed, lambda seed=seed, measure=measure: measure(seed))


def defaults(fits: Fits, name: str, seeds: int, methods: list[str]) -> None:
    records = data.load(name)
    domain = Domain.from_dataset(records)

    def measure(label, seed):
        train, test = data.split(records, 0.3, seed)
        model = BalancedSynthesizer(DEFAULTS[label](domain), n_samples=N_SAMPLES, random_state=seed)
        seconds = timing.cpu_seconds(lambda: model.fit(train.X, train.y))
        same = model.synthesizer_.domain_ == domain  # private bins take a one-hot block for real numbers
        error = error_of(model.synthesizer_, domain, train) if same else np.nan
        return {"cpu_seconds": seconds, "error": error, "auc": auc_of(model.sample(random_state=seed), test, seed)}

    for label in methods:
        for seed in range(seeds):
            fits.add("ours", name, label, seed, lambda label=label, seed=seed: measure(label, seed))


def peers(fits: Fits, name: str, seeds: int, limit: float, methods: list[str]) -> None:
    """dpmm's synthesisers under its own accounting, which is for records added or removed."""
    records = data.load(name)
    domain = Domain.from_dataset(records)

    def measure(label, seed):
        train, test = data.split(records, 0.3, seed)
        made, seconds = _peer_sample(label, domain.encode(train.X, train.y), domain.sizes, seed, limit)
        return {"cpu_seconds": seconds, "auc": auc_of(domain.decode(made, np.random.default_rng(seed)), test, seed)}

    for label in methods:
        for seed in range(seeds):
            fits.add("dpmm", name, label, seed, lambda label=label, seed=seed: measure(label, seed))


def _peer_sample(label: str, codes, sizes, seed: int, limit: float) -> tuple[np.ndarray, float]:
    """Balanced codes from the peer, and its CPU seconds; it is stopped after `limit` seconds by the clock."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "records.npz", Path(folder) / "made.npz"
        np.savez(source, codes=codes, sizes=np.array(sizes))
        script = Path(__file__).with_name("synthesis_peer.py")
        arguments = [label, source, target, EPSILON, 1e-5, seed, N_SAMPLES]
        subprocess.run([PEER, script, *map(str, arguments)], check=True, timeout=limit)
        with np.load(target) as made:
            return made["codes"], float(made["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="fits of everything; at least 2 for deviations")
    parser.add_argument("--data", nargs="*", default=["mammography", "abalone"], help="sets for the methods' defaults")
    parser.add_argument("--rounds", type=int, default=PAPER["T"], help="of GEM at its published size; 0 leaves it out")
    parser.add_argument("--limit", type=float, default=3600, help="seconds by the clock for one fit of the peer")
    parser.add_argument("--methods", nargs="*", default=list(DEFAULTS), choices=DEFAULTS, help="of ours")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="of dpmm's")
    arguments = parser.parse_args()
    timing.describe_machine()
    fits = Fits()
    with timing.one_core():
        if arguments.rounds:
            published_sizes(fits, arguments.seeds, arguments.rounds)
        for name in arguments.data:
            defaults(fits, name, arguments.seeds, arguments.methods)
            if PEER.is_file():
                peers(fits, name, arguments.seeds, arguments.limit, arguments.peers)
    fits.show()


if __name__ == "__main__":
    main()
