"""Speed of helpers.erm: one fit against diffprivlib and scikit-learn, a benchmark grid, and a million rows.

diffprivlib needs an older scikit-learn, so it runs in an environment of its own, `make -C benchmarks peer`, in a
process that fits when told to; its seconds are its own. Each library solves to its default
accuracy, and diffprivlib also to a hard tolerance.
"""

import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks import timing
from helpers import data
from helpers.erm import ObjectivePerturbationClassifier

HERE = Path(__file__).resolve().parent
PEER = HERE / ".venv" / "bin" / "python"
EPSILON, REGULARIZATION = 1.0, 1e-3
GRID_DATA = (
    "ecoli abalone spectrometer car_eval_34 solar_flare_m0 yeast_me2 satimage pen_digits letter_img mammography".split()
)
GRID_EPSILONS = (0.1, 0.5, 1.0, 5.0)
GRID_SEEDS = 20


@contextmanager
def peer(X, y) -> Iterator[Callable[[float], float]]:
    """A function that lets diffprivlib fit once, to a tolerance, and returns its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        np.savez(file, X=X, y=y)
        command = [PEER, HERE / "peer.py", file, str(EPSILON), str(REGULARIZATION)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | threads
        ) as process:

            def ask(tolerance: float) -> float:
                process.stdin.write(f"{tolerance}\n")
                process.stdin.flush()
                return float(process.stdout.readline())

            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the peer did not start")
            yield ask


def one_fit(name: str, rounds: int) -> None:
    """All rows of a data set in the unit ball, epsilon = 1, lambda = 0.001."""
    records = data.unit_ball(data.load(name))
    X, y, seeds = records.X, records.y, count()

    def ours():
        model = ObjectivePerturbationClassifier(
            epsilon=EPSILON, regularization=REGULARIZATION, random_state=next(seeds)
        )
        return timing.cpu_seconds(lambda: model.fit(X, y))

    def scikit_learn():
        model = LogisticRegression(C=1 / (REGULARIZATION * len(X)))
        return timing.cpu_seconds(lambda: model.fit(X, y))

    contenders = {"helpers.erm": ours, "scikit-learn, not private": scikit_learn}
    print(f"one fit of {name}, {len(X):,} x {X.shape[1]}")
    if not PEER.exists():
        print("without diffprivlib (make -C benchmarks peer)")
        timing.show(timing.alternate(contenders, rounds), "helpers.erm")
        return
    with peer(X, y) as ask:
        contenders["diffprivlib"] = lambda: ask(1e-4)
        contenders["diffprivlib, tol 1e-8"] = lambda: ask(1e-8)
        timing.show(timing.alternate(contenders, rounds), "helpers.erm")


def grid() -> None:
    """Every data set of the grid at every epsilon, on all rows, with several seeds."""
    sets = [data.unit_ball(data.load(name)) for name in GRID_DATA]

    def fits():
        for records in sets:
            for epsilon in GRID_EPSILONS:
                for seed in range(GRID_SEEDS):
                    ObjectivePerturbationClassifier(epsilon, REGULARIZATION, random_state=seed).fit(
                        records.X, records.y
                    )

    number = len(sets) * len(GRID_EPSILONS) * GRID_SEEDS
    print(f"{number} fits, {len(sets)} data sets, {sum(records.n for records in sets):,} rows in all")
    print(f"{timing.cpu_seconds(fits):.1f} CPU s\n")


def many_rows(n: int = 1_000_000, d: int = 100) -> None:
    """A million rows; the peak is that of this process, which has done nothing larger before."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X /= np.sqrt(2 * d)
    y = (X[:, 0] + 0.1 * rng.standard_normal(n) > 0.2).astype(int)
    before = peak_megabytes()
    model = ObjectivePerturbationClassifier(epsilon=EPSILON, regularization=REGULARIZATION, random_state=0)
    seconds = timing.cpu_seconds(lambda: model.fit(X, y))
    print(f"one fit, {n:,} x {d}: {seconds:.1f} CPU s")
    print(
        f"X takes {X.nbytes / 2**20:.0f} MB; peak {before:.0f} MB before the fit, {peak_megabytes():.0f} MB with it\n"
    )


def peak_megabytes() -> float:
    """Largest resident size of this process so far (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    rounds = timing.asked_rounds(__doc__)
    timing.describe_machine()
    with timing.one_core():
        many_rows()
        for name in ("mammography", "letter_img", "spectrometer"):
            one_fit(name, rounds)
        grid()
