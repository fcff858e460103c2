"""Private classifiers of this project beside those of other libraries, on the reserve sets.

`python -m benchmarks.classifiers tune` chooses the peers' settings on development sets, `run` makes the comparison,
`synthesis` adds private synthetic records where they are affordable, and all three go on where they were interrupted:
every fit is a row of a CSV. `tables` makes what the book shows of them. Every method gets the same splits (70 % to
train), the same public schema and delta = n^-2, but for those that are pure. Ours run under both neighbouring
relations; a peer under its own.

Every trial is two fits. The first has the whole of epsilon: its ranking, its probabilities and its own decisions are
measured. The second has what `benchmarks.cutoff` leaves, and decides at the private cut-off that is learned in the same
way for every method: balanced accuracies of these decisions compare models, not rules.
"""

import argparse
import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.metrics import average_precision_score, balanced_accuracy_score, brier_score_loss, roc_auc_score

from benchmarks import cutoff, recording, reserve
from benchmarks.contenders import (
    CEILINGS,
    OURS,
    PEERS,
    SETTINGS,
    SYNTHESISERS,
    TEST,
    Fitted,
    Split,
    peers,
    splits,
    synthetic,
)
from benchmarks.tuning import climb
from helpers import data, paths
from helpers.book.card import QUALITY
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Ledger, noise_generator
from helpers.study import comparison

RESULTS = paths.RESULTS
TUNED, CHOSEN, TRIALS = (RESULTS / f"classifiers-{name}.csv" for name in ("tuned", "settings", "trials"))
EPSILONS = (1.0, 5.0, 0.1, 0.5)
TUNED_AT = (1.0, 5.0, 0.1)  # for time: settings of 1 serve at 0.5
NO_NOISE = 1e6  # epsilon of what has no noise
SPLITS, SEEDS = 10, 5  # of the comparison, and of tuning
SETS = (*reserve.RESERVE, *reserve.SECOND)
MOST_COLUMNS, MOST_RECORDS = 100, 12_000  # of a development set for tuning, for time
MOST_ATTRIBUTES = 5  # of a set for synthesisers, for time
ALARMS = 50  # in 1,000 records
SCORES = ["auc", "ap", "balanced_accuracy", "own_balanced_accuracy", "recall_at_alarms", "brier", "calibration_error"]
_BINS = 10  # of probabilities, equally full, for the calibration error


def trial(call, relation, split: Split, epsilon: float, parameters=None, name: str = "") -> dict[str, float]:
    """Scores of both fits."""
    fitted = call(split, epsilon, relation, **parameters or {})
    return measured(fitted, split.y_test) | decided(call, relation, split, epsilon, parameters, name)


def decided(call, relation, split: Split, epsilon: float, parameters=None, name: str = "") -> dict[str, float]:
    """Balanced accuracy at the common cut-off, of a fit that leaves its share of the budget."""
    fitted = call(split, (1 - cutoff.SHARE) * epsilon, relation, **parameters or {})
    rng = noise_generator(split.seed, "cut-off", name, epsilon, fitted.train)
    cut = cutoff.cut_off(Ledger((fitted.train, split.y), relation, rng), cutoff.SHARE * epsilon)
    return {
        "balanced_accuracy": balanced_accuracy_score(split.y_test, fitted.test >= cut),
        "auc_beside": roc_auc_score(split.y_test, fitted.test),
        "seconds": fitted.seconds,
    }


def measured(fitted: Fitted, y: np.ndarray) -> dict[str, float]:
    """Scores of a fit with the whole budget."""
    probabilities = expit(fitted.test)
    return {
        "auc": roc_auc_score(y, fitted.test),
        "ap": average_precision_score(y, fitted.test),
        "own_balanced_accuracy": balanced_accuracy_score(y, fitted.test >= fitted.cut),
        "recall_at_alarms": recall_at_alarms(y, fitted.test),
        "brier": brier_score_loss(y, probabilities),
        "calibration_error": calibration_error(y, probabilities),
    }


def recall_at_alarms(y: np.ndarray, scores: np.ndarray) -> float:
    """Share of the rare records among the `ALARMS` largest scores of 1,000; of equal scores a random part counts.

    >>> recall_at_alarms(np.repeat([0, 1], [38, 2]), np.arange(40.0))
    1.0
    >>> recall_at_alarms(np.repeat([0, 1], [38, 2]), np.zeros(40))
    0.05
    """
    alarms = ALARMS * len(y) / 1000
    least = np.sort(scores)[::-1][max(math.ceil(alarms) - 1, 0)]
    above, at = scores > least, scores == least
    return float((y[above].sum() + (alarms - above.sum()) * y[at].mean()) / y.sum())


def calibration_error(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean distance of probabilities and frequencies, in tenths of the records from the least to the most likely.

    >>> calibration_error(np.repeat([0, 1], 50), np.repeat([0.25, 0.75], 50))
    0.25
    """
    order = np.argsort(probabilities, kind="stable")
    tenths = np.array_split(order, _BINS)
    return float(sum(abs((probabilities[part] - y[part]).sum()) for part in tenths) / len(y))


class Rows:
    """A CSV with one row a key, which grows by a row at a time."""

    def __init__(self, path: Path, key: tuple[str, ...]):
        self.path, self.key = path, key
        done = pd.read_csv(path, dtype=dict.fromkeys(key, str)) if path.exists() else pd.DataFrame(columns=list(key))
        numbers = done.drop(columns=list(key)).to_dict("records")
        self._done = dict(zip(done[list(key)].itertuples(index=False, name=None), numbers, strict=True))

    def get(self, key: tuple, work: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The row of this key, which is computed if there is none."""
        name = tuple(map(str, key))
        if name not in self._done:
            self._done[name] = {name: round(value, 6) for name, value in work().items()}
            row = pd.DataFrame([dict(zip(self.key, key, strict=True)) | self._done[name]])
            row.to_csv(self.path, mode="a", header=not self.path.exists(), index=False)
        return self._done[name]


# Settings


def tuning_splits(names: Sequence[str]) -> list[Split]:
    """`SEEDS` splits of every development set among these that is not too large."""
    loaded = (data.load(name) for name in names)
    small = [one for one in loaded if one.X.shape[1] <= MOST_COLUMNS and len(one.y) <= MOST_RECORDS]
    return [split for one in small for split in splits(one, SEEDS)]


def tune(arguments: argparse.Namespace) -> None:
    """The settings of every peer at every budget: the best mean of AUC and balanced accuracy at the common cut-off.

    Both are of the fit that leaves the cut-off its share. The mean is over development sets and `SEEDS` splits of each.
    """
    rows, methods = Rows(TUNED, ("epsilon", "method", "parameters", "dataset", "split")), peers(arguments.peers)
    halves = tuning_splits(arguments.sets)
    for epsilon, (method, (axes, start)) in itertools.product(arguments.epsilons, SETTINGS.items()):
        if method not in arguments.methods:
            continue
        tried = []

        def value(setting, epsilon=epsilon, method=method, tried=tried):
            found = []
            for split in halves:
                key = (epsilon, method, json.dumps(setting), split.dataset.name, split.seed)
                found.append(rows.get(key, partial(decided, *methods[method], split, epsilon, setting, method)))
            tried.append(np.mean([(one["auc_beside"] + one["balanced_accuracy"]) / 2 for one in found]))
            return tried[-1]

        setting, ends = climb(axes, start, value)
        row = {"epsilon": epsilon, "method": method, "setting": json.dumps(setting)}
        row |= {"at an end": ", ".join(f"{name} {setting[name]:g}" for name in ends)}
        row |= {"value": round(max(tried), 4), "at the start": round(tried[0], 4), "tried": len(tried)}
        row |= {"sets": len({split.dataset.name for split in halves}), "seeds": SEEDS}
        known = pd.read_csv(CHOSEN) if CHOSEN.exists() else pd.DataFrame(columns=list(row))
        others = known[(known.epsilon != epsilon) | (known.method != method)]
        pd.DataFrame([*others.to_dict("records"), row]).sort_values(["epsilon", "method"]).to_csv(CHOSEN, index=False)
        print(row, flush=True)


def chosen(epsilon: float) -> dict[str, dict]:
    """Each peer's setting, of this budget or of the nearest at which it was tuned."""
    table = pd.read_csv(CHOSEN)
    table["off"] = abs(np.log(table.epsilon / epsilon))
    nearest = table.loc[table.groupby("method").off.idxmin()]
    return {row.method: json.loads(row.setting) for row in nearest.itertuples()}


# The comparison


def run(arguments: argparse.Namespace) -> None:
    """All methods, one budget after the other, and all sets of a split before the next split."""
    rows, methods = Rows(TRIALS, ("dataset", "method", "epsilon", "split")), OURS | peers(arguments.peers)
    for epsilon, seed, split in _in_turn(arguments):
        settings = chosen(epsilon)
        for method, (call, relation) in methods.items():
            if method in arguments.methods:
                work = partial(trial, call, relation, split, epsilon, settings.get(method), method)
                rows.get((split.dataset.name, method, epsilon, seed), work)
        if epsilon == EPSILONS[0]:
            for method, (call, relation) in CEILINGS.items():
                if method in arguments.methods:
                    work = partial(trial, call, relation, split, NO_NOISE, None, method)
                    rows.get((split.dataset.name, method, NO_NOISE, seed), work)


def synthesis(arguments: argparse.Namespace) -> None:
    """Private synthetic records of dpmm on the sets of few attributes, at the first budget."""
    rows, epsilon = Rows(TRIALS, ("dataset", "method", "epsilon", "split")), EPSILONS[0]
    arguments.epsilons = [epsilon]
    for _, seed, split in _in_turn(arguments):
        if split.attributes.X.shape[1] > MOST_ATTRIBUTES:
            continue
        for method, label in SYNTHESISERS.items():
            if method in arguments.methods:
                call = partial(synthetic, arguments.synthesis, label)
                work = partial(trial, call, ADD_REMOVE, split, epsilon, None, method)
                rows.get((split.dataset.name, method, epsilon, seed), work)


def _in_turn(arguments: argparse.Namespace) -> Iterator[tuple[float, int, Split]]:
    halves = {name: list(splits(reserve.load(name), arguments.splits)) for name in SETS}
    for epsilon, seed, name in itertools.product(arguments.epsilons, range(arguments.splits), SETS):
        yield epsilon, seed, halves[name][seed]


# Tables


def tables(arguments: argparse.Namespace) -> None:
    """From the trials that there are: what the book shows, and what the card of a fitted classifier shows."""
    trials = pd.read_csv(TRIALS)
    few = trials[trials.method.isin(SYNTHESISERS)]
    # All methods on the same splits: what an interrupted run has of others does not count.
    trials = trials[~trials.method.isin(SYNTHESISERS)]
    done = trials.groupby(["epsilon", "split"]).size()
    wanted = trials.groupby("epsilon").method.nunique().reindex(done.index, level="epsilon") * len(SETS)
    trials = trials.set_index(["epsilon", "split"]).loc[done.index[done == wanted]].reset_index()
    private, ceilings = trials[trials.epsilon < NO_NOISE], trials[trials.epsilon == NO_NOISE]
    record(_means(private), "private-classifiers-comparison", private)
    record(_means(ceilings), "private-classifiers-ceilings", ceilings)
    record(pd.read_csv(CHOSEN), "private-classifiers-settings", private)
    if set(private.epsilon) == set(EPSILONS):  # a card looks for the nearest budget, so all have to be there
        record(_quality(private), QUALITY, private)
    record(_gains(private), "private-classifiers-gains", private)
    if len(few):
        # All others on the same splits of the same sets.
        same = pd.concat([few, private]).merge(few[["dataset", "epsilon", "split"]].drop_duplicates())
        record(_means(same[same.method.isin(few.method) | same.method.str.contains("add/remove|DP-")]),
               "private-classifiers-synthesis", same)  # fmt: skip


def _means(trials: pd.DataFrame) -> pd.DataFrame:
    by = trials.groupby(["method", "epsilon", "dataset"], sort=False)
    means = by[[*SCORES, "seconds"]].mean().round(4)
    means = means.assign(splits=by.split.nunique()).reset_index()
    means.insert(3, "reserve", np.where(means.dataset.isin(list(reserve.SECOND)), "second", "first"))
    return means


def _quality(trials: pd.DataFrame) -> pd.DataFrame:
    """What each method reaches on a set of such a size: the mean, least and most of single fits.

    Balanced accuracy is what a user gets: of our `predict`, and of a library with the common cut-off, as it has none
    for rare classes.
    """
    is_ours = trials.method.isin(OURS)
    trials = trials.assign(balanced_accuracy=trials.own_balanced_accuracy.where(is_ours, trials.balanced_accuracy))
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
        for metric in ("auc", "balanced_accuracy", "own_balanced_accuracy", "ap", "recall_at_alarms"):
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
    counts = trials.groupby(["epsilon", "method"]).split.nunique()
    made = {f"{epsilon:g}": sorted(set(part)) for epsilon, part in counts.groupby("epsilon")}
    parameters = {"splits by epsilon, of some methods and of others": made, "share for the cut-off": cutoff.SHARE}
    recording.record(table, name, parameters, trials.seconds.sum())


def main() -> None:
    """Tune, run, or make the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tune", "run", "synthesis", "tables"))
    parser.add_argument("--epsilons", type=float, nargs="*", default=None, help="budgets, in this order")
    parser.add_argument("--splits", type=int, default=SPLITS, help="of every reserve set")
    sets = reserve.DEVELOPMENT
    parser.add_argument("--sets", nargs="*", default=sets, choices=sets, help="development sets, for tuning")
    known = [*OURS, *PEERS, *SYNTHESISERS, *CEILINGS]
    parser.add_argument("--methods", nargs="*", default=known, choices=known, help="one process for each is safe")
    for name in ("peers", "synthesis"):
        python = paths.ROOT / "benchmarks" / f".venv-{name}" / "bin" / "python"
        parser.add_argument(f"--{name}", default=str(python), help="Python of that environment")
    arguments = parser.parse_args()
    if arguments.epsilons is None:
        arguments.epsilons = TUNED_AT if arguments.what == "tune" else EPSILONS
    warnings.simplefilter("ignore")
    {"tune": tune, "run": run, "synthesis": synthesis, "tables": tables}[arguments.what](arguments)


if __name__ == "__main__":
    main()
