"""Speed of helpers.synthesis beside what it buys: seconds of a fit, the error of its marginals, and the AUC.

Published sizes (100 rounds of 100 steps, as Table 12) in either parameterisation on abalone; then all synthesisers at
their defaults, with XGBoost trained on balanced records. A fit runs on one thread, or on a GPU where the network finds
one. Splits are shared, the budget is epsilon = 1. Where `make synthesis-peer` has installed dpmm, its synthesisers get
the same codes and budget, in a process of their own; they take minutes a fit where six attributes have few levels, and
hours on other tables. Every fit is kept as it ends, and is not run again before its code has changed;
`results/synthesis-fits.csv` is written when all have ended.
"""

import argparse
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from xgboost import XGBClassifier

from benchmarks import recording, timing
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


def error_of(model, domain: Domain, records) -> float:
    """Error of 3-way marginals, from 100,000 samples, so that every method is measured alike."""
    return marginal_error(domain, (records.X, records.y), model.sample(100_000, random_state=0), order=3)


def auc_of(made: tuple, test, seed: int) -> float:
    """Of XGBoost on the records that were made."""
    learner = XGBClassifier(n_estimators=60, max_depth=4, n_jobs=1, random_state=seed).fit(*made)
    return roc_auc_score(test.y, learner.predict_proba(test.X)[:, 1])


def published(parameters: dict, rounds: int, data_set: str, seed: int) -> dict[str, float]:
    """A fit of GEM at its published size; by the clock and of the processor, whose ratio says how busy the core was."""
    records = data.load(data_set)
    domain = Domain.from_dataset(records)
    GEM(EPSILON, domain=domain, **parameters | {"T": 1, "max_iters": 1}).fit(records.X, records.y)  # imports
    model = GEM(EPSILON, domain=domain, random_state=seed, **parameters | {"T": rounds})
    started = time.perf_counter()
    cpu = timing.cpu_seconds(lambda: model.fit(records.X, records.y))
    seconds = time.perf_counter() - started
    return _rounded({"seconds": seconds, "cpu_seconds": cpu, "error": error_of(model, domain, records)})


def ours(make, data_set: str, seed: int) -> dict[str, float | None]:
    """A synthesiser of ours at its defaults, and XGBoost on balanced records."""
    records = data.load(data_set)
    domain = Domain.from_dataset(records)
    train, test = data.split(records, 0.3, seed)
    model = BalancedSynthesizer(make(domain), n_samples=N_SAMPLES, random_state=seed)
    started = time.perf_counter()
    cpu = timing.cpu_seconds(lambda: model.fit(train.X, train.y))
    seconds = time.perf_counter() - started
    same = model.synthesizer_.domain_ == domain  # private bins take a one-hot block for real numbers
    error = error_of(model.synthesizer_, domain, train) if same else None
    auc = auc_of(model.sample(random_state=seed), test, seed)
    return _rounded({"seconds": seconds, "cpu_seconds": cpu, "error": error, "auc": auc})


def theirs(label: str, limit: float, data_set: str, seed: int) -> dict[str, float]:
    """A synthesiser of dpmm under its own accounting, which is for records added or removed."""
    records = data.load(data_set)
    domain = Domain.from_dataset(records)
    train, test = data.split(records, 0.3, seed)
    started = time.perf_counter()
    made, cpu = _peer_sample(label, domain.encode(train.X, train.y), domain.sizes, seed, limit)
    seconds = time.perf_counter() - started
    auc = auc_of(domain.decode(made, np.random.default_rng(seed)), test, seed)
    return _rounded({"seconds": seconds, "cpu_seconds": cpu, "auc": auc})


def _rounded(found: dict) -> dict[str, float | None]:
    return {name: None if value is None else round(float(value), 4) for name, value in found.items()}


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
    parser.add_argument("--data", nargs="*", default=["car_eval_34"], help="sets for the methods' defaults")
    parser.add_argument("--rounds", type=int, default=PAPER["T"], help="of GEM at its published size; 0 leaves it out")
    parser.add_argument("--limit", type=float, default=3600, help="seconds by the clock for one fit of the peer")
    parser.add_argument("--methods", nargs="*", default=list(DEFAULTS), choices=DEFAULTS, help="of ours")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="of dpmm's")
    arguments = parser.parse_args()
    timing.describe_machine()
    fits: dict[tuple[str, str], partial] = {}
    if arguments.rounds:
        what = f"{arguments.rounds} rounds of {GEM(**PAPER).max_iters} steps"
        for name, parameters in PUBLISHED.items():
            fits[what, name] = partial(published, parameters, arguments.rounds)
    fits |= {("ours", name): partial(ours, DEFAULTS[name]) for name in arguments.methods}
    if PEER.is_file():
        fits |= {("dpmm", name): partial(theirs, name, arguments.limit) for name in arguments.peers}
    cells = [
        {"what": what, "data_set": name, "method": f"{what}: {method}", "seed": seed}
        for what, method in fits
        for name in (arguments.data if what in ("ours", "dpmm") else ["abalone"])
        for seed in range(arguments.seeds)
    ]
    with timing.one_core():
        trials = {f"{what}: {method}": partial(_of, fit) for (what, method), fit in fits.items()}
        table = recording.run("synthesis", trials, cells).rename(columns={"data_set": "data"})
    table["method"] = [method.removeprefix(f"{what}: ") for what, method in zip(table.what, table.method, strict=True)]
    recording.record(table, "synthesis-fits", {"epsilon": EPSILON}, table.cpu_seconds.sum())
    means = table.drop(columns="seed").groupby(["what", "data", "method"], sort=False)
    print(means.agg(["mean", "std"]).round(3).to_string())


def _of(fit, what: str, **cell) -> dict:
    """One fit; what it is of is known by its method."""
    return fit(**cell)


if __name__ == "__main__":
    main()
