"""Speed of helpers.synthesis beside what it buys: CPU seconds of a fit, the error of its marginals, and the AUC.

Published sizes (100 rounds of 100 steps, as Table 12) in either parameterisation on abalone, then all synthesisers at
their defaults with XGBoost trained on balanced synthetic data. Splits are shared, the budget is epsilon = 1.
"""

import argparse

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
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


def error_of(model, domain: Domain, records) -> float:
    """Error of 3-way marginals, from 100,000 samples, so that every method is measured alike."""
    return marginal_error(domain, (records.X, records.y), model.sample(100_000, random_state=0), order=3)


def published_sizes(seeds: int) -> None:
    records = data.load("abalone")
    domain = Domain.from_dataset(records)
    rows = []
    for name, parameters in PUBLISHED.items():
        for seed in range(seeds):
            model = GEM(EPSILON, domain=domain, random_state=seed, **parameters)
            seconds = timing.cpu_seconds(lambda model=model: model.fit(records.X, records.y))
            rows.append((name, seconds, error_of(model, domain, records)))
    show(rows, ["fit of abalone, 100 rounds of 100 steps", "CPU seconds", "error of 3-way marginals"])


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


def show(rows: list[tuple], columns: list[str]) -> None:
    """Mean and standard deviation over seeds."""
    table = pd.DataFrame(rows, columns=columns).groupby(columns[0], sort=False).agg(["mean", "std"])
    print(table.round(3).to_string(), end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="fits of everything; at least 2 for deviations")
    parser.add_argument("--data", nargs="*", default=["mammography", "abalone"], help="sets for the methods' defaults")
    arguments = parser.parse_args()
    with timing.one_core():
        import torch

        torch.set_num_threads(1)
        published_sizes(arguments.seeds)
        for name in arguments.data:
            defaults(name, arguments.seeds)


if __name__ == "__main__":
    main()
