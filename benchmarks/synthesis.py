"""Speed of helpers.synthesis beside what it buys: CPU seconds of a fit, the error of its marginals, and the AUC.

Published sizes (100 rounds of 100 steps, as Table 12) in either parameterisation on abalone, on two threads or a GPU
(where there is one); then all synthesisers at their defaults, on one thread, with XGBoost trained on balanced records.
Splits are shared, the budget is epsilon = 1. Where `make synthesis-peer` has installed dpmm, its synthesisers get the
same codes and budget, in a process of their own; they take minutes a fit.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits
from xgboost import XGBClassifier

from benchmarks import timing
from helpers import data
from helpers.synthesis import AIM, GEM, PAPER, BalancedSynthesizer, Domain, PrivBayes
from helpers.synthesis.quality import marginal_error

EPSILON = 1.0
N_SAMPLES = 10_000
PUBLISHED = {
    "GEM, network": PAPER,
    "GEM, direct": PAPER | {"parameterization": "direct", "lr": None},
}
DEFAULTS = {
    "GEM": lambda domain: GEM(EPSILON, domain=domain),
    "GEM, pairs, 10 rounds": lambda domain: GEM(EPSILON, domain=domain, k=2, T=10, max_idxs=None),
    "GEM, all marginals": lambda domain: GEM(EPSILON, domain=domain, workload="all"),
    "GEM, private bins": lambda domain: GEM(EPSILON, classes=domain.classes),
    "AIM": lambda domain: AIM(EPSILON, domain=domain),
    "AIM, all marginals": lambda domain: AIM(EPSILON, domain=domain, workload="all"),
    "PrivBayes, degree 1": lambda domain: PrivBayes(EPSILON, domain=domain, degree=1),
    "PrivBayes, degree 2": lambda domain: PrivBayes(EPSILON, domain=domain),
}

PEERS = ("MST", "PrivBayes", "AIM")
PEER = Path(__file__).parent / ".venv-synthesis" / "bin" / "python"


def error_of(model, domain: Domain, records) -> float:
    """Error of 3-way marginals, from 100,000 samples, so that every method is measured alike."""
    return marginal_error(domain, (records.X, records.y), model.sample(100_000, random_state=0), order=3)


def published_sizes(seeds: int, rounds: int) -> None:
    """By the clock and of the processor: the ratio says how much of the second core was used, and how busy it was."""
    records = data.load("abalone")
    domain = Domain.from_dataset(records)
    rows = []
    for name, parameters in PUBLISHED.items():
        for seed in range(seeds):
            model = GEM(EPSILON, domain=domain, random_state=seed, **parameters | {"T": rounds})
            started = time.perf_counter()
            cpu = timing.cpu_seconds(lambda model=model: model.fit(records.X, records.y))
            rows.append((name, time.perf_counter() - started, cpu, error_of(model, domain, records)))
    title = f"fit of abalone, {rounds} rounds of {PAPER['max_iters']} steps, two threads"
    show(rows, [title, "seconds", "CPU seconds", "error of 3-way marginals"])


def defaults(name: str, seeds: int) -> None:
    records = data.load(name)
    domain = Domain.from_dataset(records)
    rows = []
    for label, make in DEFAULTS.items():
        for seed in range(seeds):
            train, test = data.split(records, 0.3, seed)
            model = BalancedSynthesizer(make(domain), n_samples=N_SAMPLES, random_state=seed)
            seconds = timing.cpu_seconds(lambda model=model, train=train: model.fit(train.X, train.y))
            learner = XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1).fit(*model.sample(random_state=seed))
            auc = roc_auc_score(test.y, learner.predict_proba(test.X)[:, 1])
            same = model.synthesizer_.domain_ == domain  # private bins take a one-hot block for real numbers
            error = error_of(model.synthesizer_, domain, train) if same else np.nan
            rows.append((label, seconds, error, auc))
    show(rows, [f"fit of {name}", "CPU seconds", "error of 3-way marginals", "AUC"])


def peers(name: str, seeds: int, limit: float) -> None:
    """dpmm's synthesisers under its own accounting, which is for records added or removed."""
    records = data.load(name)
    domain = Domain.from_dataset(records)
    rows = []
    for label in PEERS:
        for seed in range(seeds):
            train, test = data.split(records, 0.3, seed)
            made, seconds = _peer_sample(label, domain.encode(train.X, train.y), domain.sizes, seed, limit)
            X, y = domain.decode(made, np.random.default_rng(seed))
            learner = XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1).fit(X, y)
            rows.append((f"dpmm {label}", seconds, roc_auc_score(test.y, learner.predict_proba(test.X)[:, 1])))
    show(rows, [f"fit of {name}", "CPU seconds", "AUC"])


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


def show(rows: list[tuple], columns: list[str]) -> None:
    """Mean and standard deviation over seeds."""
    table = pd.DataFrame(rows, columns=columns).groupby(columns[0], sort=False).agg(["mean", "std"])
    print(table.round(3).to_string(), end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="fits of everything; at least 2 for deviations")
    parser.add_argument("--data", nargs="*", default=["mammography", "abalone"], help="sets for the methods' defaults")
    parser.add_argument("--rounds", type=int, default=PAPER["T"], help="of GEM at its published size; 0 leaves it out")
    parser.add_argument("--limit", type=float, default=3600, help="seconds by the clock for one fit of the peer")
    arguments = parser.parse_args()
    import torch

    timing.describe_machine()
    if arguments.rounds:
        torch.set_num_threads(2)
        with threadpool_limits(2):
            published_sizes(arguments.seeds, arguments.rounds)
    torch.set_num_threads(1)
    with timing.one_core():
        for name in arguments.data:
            defaults(name, arguments.seeds)
            if PEER.is_file():
                peers(name, arguments.seeds, arguments.limit)


if __name__ == "__main__":
    main()
