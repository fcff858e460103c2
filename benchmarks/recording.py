"""What benchmarks measure, and the tables that they record in results/ as `dpbook record` does.

Finished trials are kept in `runs/benchmarks/`, so a run that is killed goes on where it was. A trial is run again when
what it depends on has changed, and only then: the functions that it calls with all that they reach, and the other files
of this folder that `recorded.yaml` names beside the script, such as those that run in an environment of their own.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths, sources
from helpers.book import plan
from helpers.book.record import commit, origin
from helpers.study import experiments

FOLDER = Path(__file__).parent


def run(target: str, trials: Any, cells: Sequence[Mapping[str, Any]], **options: Any) -> pd.DataFrame:
    """`experiments.run` with the store of a target of `recorded.yaml`; trials are functions of its script."""
    script, *others = plan.benchmark_files(target)
    beside = {name: sources.digest((FOLDER / name).read_bytes()) for name in others}
    store = paths.RUNS / "benchmarks" / f"{target}.sqlite"
    with experiments.session(1, store, None, [], sources.modules_digest([]), beside=beside):
        return experiments.run(trials, cells, name=f"{script}: {target}", scope="trial", **options)


def record(table: pd.DataFrame, name: str, parameters: Mapping[str, Any], seconds: float, **more: Any) -> None:
    """Write results/NAME.csv, and results/NAME.json with what the table was computed from and at what cost.

    Parameters
    ----------
    table : DataFrame
    name : str
        One that `recorded.yaml` has.
    parameters : mapping
        Of the run, for JSON.
    seconds : float
        CPU seconds of all its fits, on one core.
    more
        Further entries, for JSON.
    """
    [part] = [one for one in plan.benchmarks() if name in one.tables]
    provenance = origin(part.chapter, dict(parameters), part.code) | more | {"seconds": round(seconds), "jobs": 1}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.csv"
        table.to_csv(file, index=False)
        commit(None, [file], provenance, replace=True)
