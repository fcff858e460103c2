"""The benchmark: every pipeline keeps to its budget, sees the shared split alone, and costs only its own trials."""

import math
import sqlite3
from functools import partial

import numpy as np
import pandas as pd
import pytest

from checks import benchmark
from checks.printed_tables import reference_table
from helpers import data, sources
from helpers.study import experiments
from helpers.synthesis import PAPER

DATASET = "gaussian_mixture"
QUICK = [name for name, entry in benchmark.PIPELINES.items() if entry.guarantee_holds and name not in benchmark.SLOW]


@pytest.mark.parametrize("name", QUICK)
def test_a_private_pipeline_keeps_to_its_budget(name):
    row = benchmark.trial(benchmark.PIPELINES[name], DATASET, 1.0, 0)
    assert {*benchmark.MEASURES, "pr_auc"} <= set(row)
    assert all(math.isfinite(row[measure]) for measure in benchmark.MEASURES)
    assert 0 < row["spent"] <= 1.0 + 1e-9
    assert row["delta"] == 0 or row["delta"] == pytest.approx(benchmark.DELTA, rel=1e-9)
    assert row["relation"] in ("replace-one", "add-or-remove-one")


@pytest.mark.parametrize(
    "name", ["LogReg", "offset LogReg, cube", "additive moments", "DP-SGD linear", "PrivBayes + XGBoost"]
)
def test_a_trial_is_repeatable_and_its_budget_counts(name):
    pipeline = benchmark.PIPELINES[name]
    rows = [benchmark.trial(pipeline, DATASET, epsilon, 1) for epsilon in (1.0, 1.0, 20.0)]
    assert rows[0] == rows[1]
    assert rows[2]["auc"] != rows[0]["auc"]
    assert rows[2]["auc"] > 0.9  # of 0.977 at best


@pytest.mark.parametrize(
    ("name", "delta"), [("offset LogReg, cube", 0.0), ("offset LogReg, Gaussian", benchmark.DELTA)]
)
def test_regression_with_an_offset_decides_at_its_noisy_count(name, delta):
    """Nearly without noise: log-odds of the share of the minority, which is what `predict` decides by."""
    train = data.load(DATASET)
    learnt = benchmark.PIPELINES[name](train, 600.0, 0)
    assert learnt.guarantee.delta == delta
    share = train.counts[1] / train.n
    assert learnt.threshold == pytest.approx(math.log(share / (1 - share)), abs=0.01)


def test_the_papers_size_is_table_12_but_for_the_parameterisation():
    synthesizer, parameters, learner = benchmark.PIPELINES["GEM, paper's size + XGBoost"].run.args
    own = {"parameterization": "direct", "lr": None, "delta": benchmark.DELTA}
    assert (synthesizer.__name__, learner) == ("GEM", "trees")
    assert parameters == PAPER | own


@pytest.mark.parametrize("name", ["Identity + Weighted LogReg", "SMOTE + XGBoost"])
def test_pipelines_without_privacy_say_so(name):
    row = benchmark.trial(benchmark.PUBLIC[name], DATASET, math.inf, 0)
    assert row["auc"] > 0.95
    assert row["spent"] is row["delta"] is row["relation"] is None
    with pytest.raises(ValueError, match=r"epsilon must be infinite for a pipeline without privacy, got 1\.0"):
        benchmark.trial(benchmark.PUBLIC[name], DATASET, 1.0, 0)


def test_smote_sees_no_fold_that_it_is_judged_on(monkeypatch):
    seen = []

    class Counted(benchmark.SMOTE):
        def fit_resample(self, X, y):
            seen.append(len(y))
            return super().fit_resample(X, y)

    monkeypatch.setattr(benchmark, "SMOTE", Counted)
    train, _ = data.split(data.load(DATASET), benchmark.TEST_SHARE, 0)
    benchmark.PUBLIC["SMOTE + LogReg"](train, math.inf, 0)
    assert max(seen[:-1]) <= math.ceil(train.n * 2 / 3) + 1  # two of three folds
    assert seen[-1] == train.n


def watched(seen, train, epsilon, seed):
    seen.append((train.X.tobytes(), epsilon, seed))
    return benchmark.Scores(lambda rows: rows[:, 0], 0.0, None)


def test_pipelines_share_the_splits_and_never_see_the_test_part():
    seen = []
    for epsilon, seed in ((1.0, 0), (0.1, 0), (1.0, 1)):
        benchmark.trial(partial(watched, seen), DATASET, epsilon, seed)
    trains = [content for content, *_ in seen]
    assert trains[0] == trains[1] != trains[2]
    records = data.load(DATASET)
    train, test = data.split(records, benchmark.TEST_SHARE, 0)
    assert trains[0] == train.X.tobytes()
    assert train.n + test.n == records.n


def test_the_grid_is_complete_seed_by_seed():
    cells = benchmark.cells(["a", "b"], ["c"], datasets=["d", "e"], epsilons=[0.1, 1.0], n_seeds=3)
    assert len(cells) == 3 * 2 * (2 * 2 + 1)
    assert [cell["seed"] for cell in cells] == sorted(cell["seed"] for cell in cells)
    assert {(cell["method"], cell["epsilon"]) for cell in cells if cell["seed"] == 0} == {
        *((method, epsilon) for method in "ab" for epsilon in (0.1, 1.0)),
        ("c", math.inf),
    }


def test_another_pipeline_costs_its_own_trials_and_no_others(tmp_path):
    store, kept = tmp_path / "experiments.sqlite", ["LogReg", "LogReg, output"]

    def after(names, chapter):
        modules = sorted(sources.definitions(["import checks.benchmark"]))
        cells = benchmark.cells(names, datasets=[DATASET], epsilons=[1.0], n_seeds=2)
        trials = benchmark.trials({name: benchmark.PIPELINES[name] for name in names})
        with experiments.session(1, store, chapter, modules, sources.modules_digest(modules)):
            frame = experiments.run(trials, cells, name="benchmark", scope="trial", timed=True)
        with sqlite3.connect(store) as connection:
            return frame, connection.execute("SELECT COUNT(*) FROM finished").fetchone()[0]

    before, stored = after(kept, "one pipeline less")
    assert stored == 4
    frame, stored = after([*kept, "weighted LogReg"], "one more")
    assert stored == 6
    same = frame[frame.method.isin(kept)].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, before, check_exact=True)  # their seconds too: nothing was run again


def test_every_printed_row_has_its_pipeline_but_for_the_network():
    printed = reference_table("dpci_tables13-20_nonprivate")
    ours = pd.DataFrame(
        [
            {"method": method, "dataset": dataset, "metric": metric, "mean": 0.5, "sd": 0.1, "n": 10}
            for method in [*benchmark.PUBLIC, "Identity + Weighted FTTransformer"]
            for dataset in benchmark.DATASETS
            for metric in benchmark.MEASURES
        ]
    )
    table = benchmark.against_printed(ours, printed)
    assert len(table) == len(printed) == 648
    assert not table.drop(columns="z").isna().any().any()
    row = table.iloc[0]
    expected = (0.5 - row.printed) / np.sqrt(row.printed_sd**2 / 10 + 0.1**2 / 10 + 0.01**2 / 12)
    assert row.z == pytest.approx(expected)
