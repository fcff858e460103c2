"""Speed of helpers.erm: one fit against diffprivlib and scikit-learn, sizes, a benchmark grid, a million rows.

diffprivlib needs an older scikit-learn, so it runs in an environment of its own, `make -C benchmarks peer`, in a
process that fits when told to; its seconds are its own. In `one_fit` each library solves to its default
accuracy, and diffprivlib also to a hard tolerance; in `sizes` both solve to the gradient norm that L-BFGS reached.
`python -m benchmarks.erm sizes` measures the grid of sizes alone, `--cells 10000000x20 100000x2000` some of it, for a
machine that does nothing else, and keeps each size in `results/erm-sizes.csv`: what is there is not measured again.
"""

import argparse
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from benchmarks import timing
from helpers import data
from helpers.erm import LOGISTIC, ERMClassifier, ObjectivePerturbationClassifier, design_matrix
from helpers.erm.risk import Block, MarginSums, Rows

HERE = Path(__file__).resolve().parent
PEER = HERE / ".venv" / "bin" / "python"
KEPT = HERE.parent / "results" / "erm-sizes.csv"
EPSILON, REGULARIZATION = 1.0, 1e-3
GRID_DATA = (
    "ecoli abalone spectrometer car_eval_34 solar_flare_m0 yeast_me2 satimage pen_digits letter_img mammography".split()
)
GRID_EPSILONS = (0.1, 0.5, 1.0, 5.0)
GRID_SEEDS = 20
FALLING, ALIKE = "falling", "alike"  # what features do for the class: less and less, as in real tables, or all as much
NOISE = "noise"  # isotropic rows scaled into the unit ball, and a class that hardly depends on them
SIZES = [(n, d, FALLING) for n in (10**3, 10**4, 10**5, 10**6, 10**7) for d in (6, 20, 100, 500, 2000)]
SIZES += [(n, d, f) for n, d in ((5_000, 1_000), (20_000, 500)) for f in (ALIKE, NOISE)]  # no sample tells much here
PENALTIES = (1e-2, 1e-4)
TOLERANCES = (1e-4, 1e-9)  # of L-BFGS: its default, and as low as it comes
COPIES = 3  # of X that have to fit into memory: L-BFGS gets rows of its own
TELLING = 5 * 10**7  # bytes of X from which on its size is not lost in what a process needs anyway


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
    X, y = records.X, records.y

    def ours():
        # As for a release: with an integer as random_state, hashing the records would take longer than the fit.
        model = ObjectivePerturbationClassifier(epsilon=EPSILON, regularization=REGULARIZATION)
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


def sizes(rounds: int, cells: Sequence[tuple[int, int, str]] = SIZES) -> None:
    """Fits without noise of n x d records to equal gradient norms, against L-BFGS; the penalty is on the mean loss.

    Each size has a process of its own, whose peak of memory says what a fit takes beside X. A size that is kept
    already is shown from there.
    """
    print("ERMClassifier against scikit-learn's L-BFGS at the gradient norm that the latter reached: CPU ms, ratio,")
    print("and the most memory of a fit in units of X")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for n, d, features in cells:
        if 8 * n * d * COPIES > memory:
            print(f"{n:,} x {d} is skipped: {COPIES} times X is more than the {memory / 2**30:.0f} GiB of this machine")
            continue
        kept = _kept()
        shown = kept[(kept.n == n) & (kept.d == d) & (kept.features == features)]
        if shown.empty:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                shown = alone.submit(_of_one_size, n, d, features, max(3, min(rounds, 10**7 // (n * d)))).result()
            pd.concat([kept, shown]).to_csv(KEPT, index=False)
        print(shown.to_string(index=False, header=(n, d, features) == tuple(cells[0])), flush=True)


def _kept() -> pd.DataFrame:
    """What earlier runs measured; the first ones knew one kind of features."""
    if not KEPT.exists():
        return pd.DataFrame(columns=["n", "d", "features"])
    kept = pd.read_csv(KEPT)
    return kept if "features" in kept else kept.assign(features=FALLING)


def _of_one_size(n: int, d: int, features: str, rounds: int) -> pd.DataFrame:
    with timing.one_core():
        X, y = simulated(n, d, features)
        before = peak_megabytes()
        ERMClassifier(regularization=PENALTIES[-1]).fit(X, y)
        more = (peak_megabytes() - before) * 2**20 / X.nbytes
        memory = round(1 + more, 2) if X.nbytes >= TELLING else np.nan
        rows = [one_size(X, y, penalty, tol, rounds) for penalty in PENALTIES for tol in TOLERANCES]
        return pd.DataFrame(rows).assign(memory=memory, features=features)


def simulated(n: int, d: int, features: str) -> tuple[np.ndarray, np.ndarray]:
    """Records of at most unit length; a class of about one in eight where features are falling, else of one half."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    if features == FALLING:
        X /= np.sqrt(np.arange(1, d + 1))
        y = (X[:, 0] + X[:, 1] + 0.5 * rng.standard_normal(n) > 1.5).astype(int)
    else:
        blur = 3 * np.sqrt(d) if features == NOISE else 0.0
        y = (X @ rng.standard_normal(d) + blur * rng.standard_normal(n) > 0).astype(int)
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    X /= lengths.max() if features == NOISE else lengths[:, None]
    return X, y


def one_size(X: np.ndarray, y: np.ndarray, penalty: float, tol: float, rounds: int) -> dict:
    """Both on the same rows, the constant feature included; L-BFGS gets them ready made."""
    rows = np.ascontiguousarray(design_matrix(X, radius=1.0))
    peer = LogisticRegression(C=1 / (penalty * len(X)), tol=tol, fit_intercept=False, max_iter=10**4)

    peer.fit(rows, y)
    reached = slope(peer.coef_[0], rows, y, penalty)
    ours = ERMClassifier(regularization=penalty, tol=min(reached / penalty, 0.99)).fit(X, y)
    beta = np.sqrt(2) * np.append(ours.coef_[0], ours.intercept_)
    contenders = {
        "ours": lambda: timing.cpu_seconds(lambda: ours.fit(X, y)),
        "L-BFGS": lambda: timing.cpu_seconds(lambda: peer.fit(rows, y)),
    }
    seconds = timing.alternate(contenders, rounds)
    median, low, high = timing.median_interval(seconds["ours"] / seconds["L-BFGS"])
    return {
        "n": len(X),
        "d": X.shape[1],
        "penalty": penalty,
        "gradient": f"{reached:.0e}",
        "ours at": f"{slope(beta, rows, y, penalty):.0e}",
        "ours": f"{1e3 * seconds['ours'].median():.3g}",
        "L-BFGS": f"{1e3 * seconds['L-BFGS'].median():.3g}",
        "ratio": round(median, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "rounds": rounds,
    }


def slope(beta: np.ndarray, rows: np.ndarray, y: np.ndarray, penalty: float) -> float:
    """Norm of the gradient of the regularised mean loss."""
    block = Block(Rows(rows), y)
    total = MarginSums(LOGISTIC).pull(beta, block)[0]
    return float(np.linalg.norm(total / len(rows) + penalty * beta))


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
    """A million rows, in memory and from a file; the peak is that of this process, which has done nothing larger."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X /= np.sqrt(2 * d)
    y = (X[:, 0] + 0.1 * rng.standard_normal(n) > 0.2).astype(int)
    before, model = peak_megabytes(), ObjectivePerturbationClassifier(epsilon=EPSILON, regularization=REGULARIZATION)
    seconds, size = timing.cpu_seconds(lambda: model.fit(X, y)), X.nbytes / 2**20
    more = peak_megabytes() - before
    print(f"one fit, {n:,} x {d}: {seconds:.1f} CPU s; memory at most {1 + more / size:.2f} times X ({size:.0f} MB)")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "X.npy"
        np.save(file, X)
        seconds = timing.cpu_seconds(lambda: model.fit(np.load(file, mmap_mode="r"), y))
    print(f"the same from a memory map: {seconds:.1f} CPU s\n")


def peak_megabytes() -> float:
    """Largest resident size of this process so far (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure everything, or the grid of sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=("all", "sizes"), default="all")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--cells", nargs="+", default=None, metavar="NxD", help="sizes; the whole grid if left out")
    asked = parser.parse_args()
    cells = SIZES if asked.cells is None else [cell for cell in SIZES if f"{cell[0]}x{cell[1]}" in asked.cells]
    timing.describe_machine()
    with timing.one_core():
        if asked.part == "all":
            many_rows()
        sizes(asked.rounds, cells)
        if asked.part == "all":
            for name in ("mammography", "letter_img", "spectrometer"):
                one_fit(name, asked.rounds)
            grid()


if __name__ == "__main__":
    main()
