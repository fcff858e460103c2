"""A sample of the recorded trials of the benchmark, run again with today's code: how many agree to the digits kept.

Trials are drawn at random, some of every pipeline but those of GEM at the published size, and kept as they end in
`results/benchmark-again.csv` with the largest difference of any measure. An interrupted run goes on; delete the file to
draw anew.
"""

import argparse

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.recording import RESULTS, record
from helpers.study import benchmark

NAME = "benchmark-again"
KEY = ["method", "dataset", "epsilon", "seed"]
MEASURES = [*benchmark.MEASURES, "pr_auc"]
COSTLY = ("GEM", "AIM", "SGD")  # half as many
DIGITS = 6


def drawn(trials: pd.DataFrame, each: int) -> pd.DataFrame:
    """So many trials of every pipeline that the registry has, always the same ones."""
    rng = np.random.default_rng(0)
    parts = []
    for method, part in trials.groupby("method", sort=False):
        if method in benchmark.PIPELINES | benchmark.PUBLIC and method not in benchmark.SLOW:
            n = each // 2 if any(word in method for word in COSTLY) else each
            parts.append(part.iloc[np.sort(rng.choice(len(part), min(n, len(part)), replace=False))])
    return pd.concat(parts)


def difference(row) -> float:
    """Largest change of a measure; 0 if all are the same to the digits kept."""
    with threadpool_limits(1):
        pipeline = (benchmark.PIPELINES | benchmark.PUBLIC)[row.method]
        now = benchmark.trial(pipeline, row.dataset, row.epsilon, row.seed)
    return max(abs(round(now[measure], DIGITS) - getattr(row, measure)) for measure in MEASURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=12, help="trials of every pipeline")
    each = parser.parse_args().each
    trials = pd.read_csv(RESULTS / "benchmark-trials.csv")
    path = RESULTS / f"{NAME}.csv"
    rows = pd.read_csv(path).to_dict("records") if path.is_file() else []
    done = {tuple(row[name] for name in KEY) for row in rows}
    for row in drawn(trials, each).itertuples():
        key = {name: getattr(row, name) for name in KEY}
        if tuple(key.values()) not in done:
            rows.append(key | {"difference": difference(row)})
            record(pd.DataFrame(rows), NAME, {"each": each}, trials.seconds.mean() * len(rows), chapter="benchmark")
    agree = (
        pd.DataFrame(rows).assign(agrees=lambda table: table["difference"] == 0).groupby("method", sort=False).agrees
    )
    print(agree.agg(["sum", "size"]).to_string())


if __name__ == "__main__":
    main()
