"""Speed of private coordinate descent: 64 sweeps of electricity beside as many full gradients, and memory.

Contenders take turns on one core. Memory is what NumPy allocates above the records themselves, at its peak.
"""

import tracemalloc
from collections.abc import Callable

import numpy as np

from benchmarks import timing
from helpers import data
from helpers.erm import DPCoordinateDescentClassifier, DPGradientDescentClassifier, DPGreedyCoordinateClassifier
from helpers.privacy import ADD_REMOVE

SWEEPS = 64


def classifiers(records: data.Dataset) -> dict[str, Callable[[], object]]:
    """Unfitted models that look at the records 64 times."""
    common = {"epsilon": 1.0, "delta": 1 / records.n**2, "bounds": records.bounds, "fit_intercept": False}
    scaled = {"scale": "private", "center": 0.0}
    return {
        "sweeps, row clip": lambda: DPCoordinateDescentClassifier(sweeps=SWEEPS, **scaled, **common),
        "sweeps, coordinate clip": lambda: DPCoordinateDescentClassifier(
            sweeps=SWEEPS, clip="coordinate", **scaled, **common
        ),
        "sweeps, independent order": lambda: DPCoordinateDescentClassifier(
            sweeps=SWEEPS, order="iid", **scaled, **common
        ),
        "greedy steps": lambda: DPGreedyCoordinateClassifier(n_steps=SWEEPS, **scaled, **common),
        "full gradients": lambda: DPGradientDescentClassifier(n_steps=SWEEPS, **scaled, **common),
        "gradients of a tenth": lambda: DPGradientDescentClassifier(
            n_steps=SWEEPS, sample_rate=0.1, neighbouring=ADD_REMOVE, n_records=records.n, **scaled, **common
        ),
    }


def speed(records: data.Dataset, rounds: int) -> None:
    """CPU seconds of one fit of all records."""
    models = classifiers(records)
    print(f"{SWEEPS} passes over {records.name}, {records.n:,} x {records.X.shape[1]}")
    contenders = {
        name: lambda make=make: timing.cpu_seconds(lambda: make().fit(records.X, records.y))
        for name, make in models.items()
    }
    timing.show(timing.alternate(contenders, rounds), "full gradients")


def memory(records: data.Dataset) -> None:
    """Peak of what a fit allocates, in sizes of X."""
    X, y = np.ascontiguousarray(records.X), np.asarray(records.y)
    for name, make in classifiers(records).items():
        model = make()
        tracemalloc.start()
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{name}: peak {peak / X.nbytes:.2f} X of {X.nbytes / 2**20:.1f} MiB")
    print()


if __name__ == "__main__":
    rounds = timing.asked_rounds(__doc__)
    timing.describe_machine()
    with timing.one_core():
        for name in ("electricity", "madelon"):
            records = data.load(name)
            speed(records, rounds)
            memory(records)
