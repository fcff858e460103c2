"""The command `dpbook`: runs with other parameters, and refusals before anything runs."""

import hashlib
import json
import sqlite3
from contextlib import closing

import nbformat
import pandas as pd
import papermill
import pytest

from helpers import data, paths, sources
from helpers.book import chapters
from helpers.cli import main

RUNS = {
    "which-method": [
        {"epsilon": "0.1", "n_rare": "30", "n_records": "50000", "small": "5", "large": "100"},
        {"epsilon": "20.0", "n_rare": "5000", "n_records": "6000"},
        {"small": "30", "n_rare": "10"},
    ],
    "app-which-method": [
        {"dataset": "abalone", "epsilon": "0.5", "n_splits": "3", "small": "5", "large": "100", "tolerance": "0.0"},
        {"n_splits": "3", "small": "30"},
        {"dataset": "satimage", "n_splits": "3", "epsilon": "5.0"},
    ],
    "preliminaries": [
        {"dataset": "abalone_19", "epsilon": "0.3", "delta": "1e-6", "n_draws": "2000", "seed": "3"},
        {"epsilon": "10.0", "n_draws": "2000"},
        {"dataset": "yeast_me2", "epsilon": "0.01", "n_draws": "2000"},
    ],
    "mechanisms": [
        {"epsilon": "0.3", "delta": "1e-8", "n_draws": "5000", "seed": "3"},
        {"epsilon": "5.0", "delta": "0.01", "n_draws": "5000"},
        {"epsilon": "10.0", "n_draws": "5000"},
    ],
    "accounting": [
        {"epsilon": "1.0", "releases": "2", "delta": "1e-12", "total": "10.0", "seed": "3"},
        {"epsilon": "0.01", "releases": "2000", "delta": "0.001"},
        {"releases": "100", "total": "0.1"},
    ],
    "app-accounting": [
        {"epsilon": "0.3", "delta": "1e-8", "n_draws": "5000", "seed": "3"},
        {"epsilon": "3.0", "delta": "1e-3", "n_draws": "5000"},
        {"epsilon": "0.05", "n_draws": "5000"},
    ],
    "imbalance": [
        {"ratio": "1000.0", "separation": "1.0", "n_splits": "2", "missed_cost": "0.1"},
        {"ratio": "2.0", "separation": "6.0", "n_splits": "2"},
        {"missed_cost": "10000.0", "n_splits": "2"},
    ],
    "app-imbalance": [
        {"datasets": '["abalone_19", "car_eval_4"]', "n_seeds": "2", "seed": "3"},
        {"datasets": '["ecoli"]', "n_seeds": "3"},
        {"datasets": '["solar_flare_m0"]', "n_seeds": "2"},
    ],
    "definitions": [
        {"parts": "3", "ridge": "0.01", "n_pairs": "500", "seed": "1"},
        {"ridge": "1.0", "n_pairs": "500"},
        {"parts": "8", "n_pairs": "500"},
    ],
    "oversampling": [
        {"multiplicity": "3", "max_minority": "3", "n_audit": "400"},
        {"max_minority": "4", "n_audit": "200"},
        {"multiplicity": "500", "max_minority": "4", "n_audit": "400"},
    ],
    "random-copies": [
        {"n_new": "7", "n_minority": "1", "inner_epsilon": "2.0"},
        {"n_new": "9000", "n_minority": "1000"},
        {"inner_epsilon": "0.01"},
    ],
    "paid-copies": [
        {
            "datasets": '["ecoli", "yeast_me2"]',
            "epsilons": "[2.0]",
            "penalties": "[0.01]",
            "splits": '["kept together", "at random"]',
            "n_seeds": "2",
        },
        {"datasets": '["abalone"]', "n_seeds": "2"},
        {"epsilons": "[0.1]", "penalties": "[0.1, 0.0001]", "n_seeds": "2"},
    ],
    "kissing-numbers": [
        {"dimensions": "[2, 5]", "largest": "10", "n_points": "200", "n_seeds": "2", "datasets": '["ecoli", "scene"]'},
        {"degree": "1", "largest": "10", "n_points": "200", "n_seeds": "2"},
        {"dimensions": "[64]", "largest": "8", "n_points": "150"},
    ],
    "smote": [
        {"dimension": "3", "neighbours": "1", "n_minority": "2", "n_new": "9", "epsilon": "5.0"},
        {"epsilon": "0.5", "n_new": "1000000"},
        {"dimension": "64", "neighbours": "399"},
    ],
    "app-smote": [
        {"dimension": "3", "neighbours": "1", "n_runs": "3", "n_seeds": "2"},
        {"n_minority": "300", "n_runs": "3", "n_seeds": "2"},
        {"dimension": "8", "neighbours": "50", "n_total": "20000", "n_runs": "5", "n_seeds": "2"},
    ],
    "smote-price": [
        {"datasets": '["abalone"]', "epsilons": "[2.0]", "n_seeds": "2", "sizes": "[500]", "n_audit": "200"},
        {"neighbours": "[1, 50]", "shares": "[0.3]", "n_seeds": "2", "n_draws": "2", "n_audit": "200"},
        {"penalties": "[0.001]", "attack_epsilon": "1.0", "n_seeds": "2", "ratios": "[4, 32]", "n_audit": "300"},
    ],
    "known-population": [
        {"separation": "1.0", "ratio": "50.0", "n_population": "200000"},
        {"ratio": "2.0", "n_population": "200000"},
        {"minority_sd": "0.4", "separation": "3.0", "n_population": "500000"},
    ],
    "private-threshold": [
        {"ratio": "130.0", "separation": "1.0", "epsilons": "[2.0]", "delta": "1e-3", "n_draws": "20000"},
        {"n_majority": "520", "n_draws": "20000"},
        {"epsilons": "[0.05, 10.0]", "ratio": "4.0", "n_draws": "20000"},
    ],
    "threshold-bounds": [
        {"n_draws": "2000", "ratios": "[1, 16]", "sizes": "[520]", "separation": "1.0"},
        {"sizes": "[520]", "epsilons": "[0.5, 5.0]", "beta": "0.5", "delta": "1e-4", "n_draws": "2000"},
        {"ratios": "[130]", "epsilons": "[1.0]", "n_draws": "2000"},
    ],
    "bagging": [
        {"epsilon": "5.0", "size": "500", "ratio": "32.0", "parts": "2"},
        {"epsilon": "0.05", "size": "1000", "ratio": "16.0"},
        {"parts": "500"},
    ],
    "app-bagging": [
        {
            "dataset": "abalone",
            "others": '["abalone"]',
            "epsilon": "2.0",
            "ratios": "[9.0]",
            "learners": "[2]",
            "weights": "none",
        },
        {"others": '["abalone"]', "ratios": "[8.0, 32.0]", "learners": "[3]", "parts": "[5, 40]"},
        {"sizes": "[300]", "learners": "[1]", "regularization": "0.01", "test_share": "0.5"},
    ],
    "bagging-privacy": [
        {"n_audit": "2000", "claimed": "[1.0, 3.0]", "largest": "2"},
        {"claimed": "[0.2]", "largest": "3"},
        {"n_audit": "50000", "largest": "5"},
    ],
    "bagging-tables": [
        {"dataset": "abalone", "epsilon": "2.0", "size": "1000", "ratio": "9.0", "learners": "2", "weights": "none"},
        {"size": "300", "learners": "1", "test_share": "0.5"},
        {"regularization": "0.01", "n_seeds": "3"},
    ],
    "synthetic-data": [
        {"epsilon": "0.2", "dataset": "ecoli", "n_synthetic": "500"},
        {"epsilon": "20.0", "dataset": "car_eval_34", "n_synthetic": "200"},
        {"epsilon": "0.05", "dataset": "abalone_19", "n_synthetic": "1000"},
    ],
    "app-synthetic-data": [
        {
            "datasets": '["car_eval_34"]',
            "ranked": '["car_eval_34"]',
            "epsilon": "3.0",
            "epsilons": "[0.5]",
            "rounds": "[2]",
            "n_synthetic": "500",
        },
        {"epsilon": "0.2", "epsilons": "[0.1]", "rounds": "[3]", "n_synthetic": "200"},
        {"datasets": '["abalone"]', "ranked": '["yeast_me2", "abalone_19"]', "rounds": "[1]", "n_synthetic": "1000"},
    ],
    "synthetic-samples": [
        {
            "datasets": '["abalone"]',
            "ranked": '["car_eval_4"]',
            "epsilon": "3.0",
            "epsilons": "[0.5]",
            "sizes": "[4, 2]",
            "n_synthetic": "500",
            "canaries": '["label", "first of its class"]',
            "attacked": "[1.0]",
            "n_judged": "8",
        },
        {"sizes": "[4]", "most_cells": "100", "n_synthetic": "200", "n_judged": "10"},
        {"datasets": '["mammography"]', "ranked": '["yeast_me2"]', "n_synthetic": "300", "n_judged": "8"},
    ],
    "private-erm": [
        {"epsilon": "0.2", "n_records": "50", "n_columns": "3", "n_splits": "2"},
        {"epsilon": "5.0", "n_splits": "2"},
        {"n_records": "1000000", "n_columns": "1000", "n_splits": "3"},
    ],
    "app-private-erm": [
        {"epsilon": "0.3", "n_pairs": "50", "n_draws": "1000"},
        {"epsilon": "5.0", "n_pairs": "60"},
        {"n_pairs": "200", "n_draws": "3000"},
    ],
    "erm-audit": [
        {"claimed": "5.0", "asked": "1000.0", "radius": "1"},
        {"claimed": "0.1", "asked": "0.01", "radius": "1000"},
        {"asked": "30.0", "radius": "3"},
    ],
    "app-erm-audit": [
        {"epsilon": "0.3", "n_audit": "200"},
        {"n_audit": "1000", "n_restarts": "3"},
        {"epsilon": "3.0", "n_audit": "250"},
    ],
    "sample-sizes": [
        {"epsilon": "0.5", "n_adult": "1000", "sizes": "[2000]", "n_problems": "20"},
        {"n_adult": "1500", "sizes": "[500, 50000]", "n_draws": "3", "n_problems": "30"},
        {"epsilon": "3.0", "sizes": "[300]", "n_problems": "40"},
    ],
    "adult-kdd": [
        {"n_adult": "1200", "n_folds": "4", "n_permutations": "3"},
        {"n_noise": "2", "part_sizes": "[500, 800]"},
        {"n_kdd": "3000", "part_sizes": "[1000]"},
    ],
    "weighted-erm": [
        {"epsilon": "0.2", "penalty": "0.1", "n_records": "50", "n_splits": "2"},
        {"penalty": "0.00001", "n_splits": "3"},
        {"epsilon": "5.0", "penalty": "1.0", "n_records": "1000000", "n_splits": "2"},
    ],
    "app-weighted-erm": [
        {"n_fuzz": "60", "n_fits": "40", "largest_n": "12"},
        {"n_fuzz": "20", "n_fits": "30", "largest_n": "3"},
        {"n_fuzz": "500", "largest_n": "20"},
    ],
    "weight-audit": [
        {"dimensions": "[5, 30]", "panels": '["lambda"]', "n_restarts": "1"},
        {"panels": '["n", "r"]', "n_restarts": "2"},
        {"dimensions": "[2, 30, 60]", "n_restarts": "3"},
    ],
    "weights-worth": [
        {"epsilon": "0.2", "strong": "0.01", "datasets": '["ecoli", "abalone"]', "n_splits": "2"},
        {"datasets": '["yeast_me2"]', "n_splits": "3"},
        {"epsilon": "5.0", "strong": "1.0", "n_splits": "2"},
    ],
    "app-weights-worth": [
        {"datasets": '["yeast_me2", "abalone_19"]', "epsilons": "[5.0]", "n_seeds": "2"},
        {"datasets": '["ecoli"]', "epsilons": "[0.5]", "regularizations": "[0.01, 0.1]", "n_seeds": "2"},
        {"epsilons": "[0.1, 1.0]", "n_seeds": "3"},
    ],
    "weight-rules": [
        {"sizes": "[5, 20]", "n_fuzz": "40", "n_restarts": "2", "n_runs": "2"},
        {"n_fuzz": "20", "n_restarts": "1"},
        {"sizes": "[2]", "n_fuzz": "60", "n_runs": "3"},
    ],
    "prior-and-noise": [
        {
            "datasets": '["ecoli"]',
            "levels": '["abalone"]',
            "epsilons": "[5.0]",
            "penalties": "[0.01]",
            "constants": "[0.3]",
            "n_splits": "3",
            "n_pairs": "60",
            "n_draws": "120",
        },
        {"datasets": '["mammography"]', "epsilons": "[0.1]", "n_pairs": "60"},
        {"datasets": '["solar_flare_m0"]', "penalties": "[0.1]", "constants": "[0.1, 3.0]"},
    ],
    "kernels": [
        {"datasets": '["satimage"]', "epsilons": "[2.0]", "frequencies": "[5]", "gammas": "[1, 16]", "n_splits": "2"},
        {"n_splits": "2", "n_draws": "4", "repeated": '["coil_2000"]'},
        {"datasets": '["mammography"]', "epsilons": "[0.2]", "frequencies": "[1]", "n_splits": "2", "n_draws": "2"},
    ],
    "kernel-sample-sizes": [
        {"epsilon": "5.0", "norm": "1.0", "sizes": "[300]", "frequencies": "[2, 8]", "n_seeds": "2", "n_draws": "10"},
        {"n_seeds": "2", "n_draws": "10"},
        {"norm": "10.0", "sizes": "[2000]", "frequencies": "[50]", "n_seeds": "3", "n_draws": "10"},
    ],
    "tuning": [
        {"datasets": '["satimage"]', "epsilons": "[0.5]", "candidates": "[2, 4]", "n_splits": "2"},
        {"n_splits": "2", "repeated": '["coil_2000"]'},
        {"datasets": '["abalone", "mammography"]', "epsilons": "[5.0]", "candidates": "[2]", "n_splits": "2"},
    ],
    "coordinate-descent": [
        {"epsilon": "0.2", "passes": "16", "n_records": "1000000", "n_columns": "100"},
        {"epsilon": "10.0", "passes": "512"},
        {"n_records": "200", "n_columns": "2"},
    ],
    "app-coordinate-descent": [
        {
            "epsilons": "[0.3]",
            "passes": "16",
            "steps": "[1.0, 3.0]",
            "clips": "[2.0]",
            "n_seeds": "2",
            "datasets": '["ecoli"]',
            "rare_passes": "16",
        },
        {"passes": "16", "steps": "[1.0]", "n_seeds": "2"},
        {"passes": "32", "steps": "[0.3]", "n_tune": "2", "n_seeds": "2", "datasets": '["abalone"]'},
    ],
    "greedy-descent": [
        {
            "epsilon": "3.0",
            "dimensions": "[6]",
            "n_records": "1000",
            "sizes": "[500]",
            "penalty": "1.0",
            "passes": "[8]",
            "steps": "[1.0]",
            "n_seeds": "2",
            "n_draws": "200",
        },
        {"epsilon": "0.3", "dimensions": "[20]", "sizes": "[500]", "passes": "[4]", "n_seeds": "2"},
        {"dimensions": "[40]", "sizes": "[2000]", "penalty": "0.01", "steps": "[1.0]", "clips": "[1.0]"},
    ],
    "fairness": [
        {"epsilon": "0.2", "penalty": "0.001", "n_records": "300"},
        {"epsilon": "8.0", "penalty": "0.08"},
        {"penalty": "0.003", "n_records": "2000000"},
    ],
    "app-fairness": [
        {"epsilon": "3.0", "regularizations": "[0.02]", "penalties": "[0.1]", "n_models": "60", "n_seeds": "2"},
        {"budgets": "[1.0]", "sizes": "[2000]", "n_models": "60", "n_seeds": "2"},
        {"epsilon": "0.5", "regularizations": "[0.003]", "n_models": "60", "n_seeds": "2"},
    ],
    "dpsgd": [
        {"suspicious": "2", "sample_rate": "0.02", "steps": "500", "epsilon": "5.0"},
        {"suspicious": "1000", "steps": "5000"},
        {"sample_rate": "0.005", "epsilon": "0.1"},
    ],
    "app-dpsgd": [
        {
            "n_records": "2000",
            "n_minority": "200",
            "sample_rate": "0.05",
            "noise_multiplier": "4.0",
            "steps": "100",
            "n_draws": "20000",
            "n_audit": "16",
            "datasets": '["abalone"]',
            "epsilons": "[2.0]",
            "clips": "[2.0]",
            "n_seeds": "2",
        },
        {
            "sample_rate": "1.0",
            "noise_multiplier": "40.0",
            "steps": "50",
            "n_draws": "20000",
            "n_audit": "16",
            "n_seeds": "2",
        },
        {"n_minority": "3000", "n_draws": "20000", "n_audit": "16", "clips": "[0.5, 50.0]", "n_seeds": "2"},
    ],
    "ft-transformer": [
        {
            "datasets": '["ecoli"]',
            "epsilons": "[0.5, 5.0]",
            "n_most": "300",
            "epochs": "2",
            "sample_rate": "0.25",
            "public_epochs": "2",
            "n_draws": "20",
            "n_simulated": "150",
            "factors": "[0.5, 2.0]",
            "parts": '["tuning", "forms"]',
        },
        {"datasets": '["yeast_me2"]', "n_most": "400", "epochs": "1", "public_epochs": "1", "parts": '["study"]'},
        {
            "epsilons": "[20.0]",
            "n_most": "400",
            "epochs": "1",
            "n_planes": "3",
            "public_epochs": "1",
            "n_simulated": "100",
        },
    ],
    "schedules": [
        {
            "epsilon": "8.0",
            "delta": "1e-5",
            "n_records": "2000",
            "batch": "50",
            "n_epochs": "20",
            "betas": "[0.6]",
            "gammas": "[1.0]",
            "stages": "[1, 4]",
            "n_runs": "500",
            "n_seeds": "2",
        },
        {"betas": "[0.8]", "gammas": "[0.5]", "stages": "[3]", "n_runs": "1000", "n_seeds": "2"},
        {"dataset": "satimage", "epsilon": "1.0", "betas": "[0.7, 0.9]", "n_runs": "1000", "n_seeds": "3"},
    ],
    "private-classifiers": [
        {"dataset": "abalone", "epsilon": "0.3", "recall": "0.5", "n_splits": "2"},
        {"dataset": "satimage", "n_splits": "2"},
        {"epsilon": "10.0", "recall": "0.95", "n_splits": "3"},
    ],
    "app-private-classifiers": [
        {"dataset": "abalone", "epsilon": "0.3", "n_splits": "2", "n_cells": "8", "n_pairs": "1000"},
        {"dataset": "satimage", "n_splits": "2", "n_pairs": "1000"},
        {"epsilon": "10.0", "n_splits": "3", "n_cells": "64"},
    ],
    "audit": [
        {"n_fits": "60", "confidence": "0.99", "epsilon": "0.5"},
        {"n_fits": "100", "epsilon": "2.0"},
        {"confidence": "0.9999"},
    ],
    "benchmark": [
        {"epsilon": "0.05", "dataset": "ecoli", "n_splits": "2", "n_pipelines": "60", "n_sets": "2"},
        {"epsilon": "20.0", "dataset": "car_eval_34", "n_splits": "3"},
        {"n_pipelines": "2", "n_sets": "100"},
    ],
    "app-benchmark": [
        {"datasets": '["abalone", "yeast_me2"]', "epsilons": "[5.0]", "pipelines": "fast"},
        {"epsilons": "[0.5]"},
        {"datasets": '["ecoli", "car_eval_4", "solar_flare_m0"]', "epsilons": "[2.0]", "n_seeds": "3"},
    ],
    "sad-dpsgd": [
        {"beta": "0.5", "gamma": "1.0", "stages": "6", "epsilon": "0.5", "delta": "0.001"},
        {"beta": "1.0", "stages": "1", "epsilon": "20.0"},
        {"gamma": "0.5", "delta": "1e-8"},
    ],
    "app-sad-dpsgd": [
        {
            "n_train": "1000",
            "n_epochs": "4",
            "budgets": "[3.0]",
            "deltas": "[1e-4]",
            "rates": "[10.0]",
            "clips": "[0.5]",
            "decays": "[1.5]",
            "betas": "[0.7]",
            "gammas": "[1.0]",
            "stages": "[2]",
            "n_seeds": "2",
        },
        {
            "n_train": "1000",
            "n_epochs": "4",
            "rates": "[5.0]",
            "decays": "[1.0, 1.2]",
            "n_grow": "1",
            "betas": "[0.8]",
            "n_seeds": "2",
        },
        {
            "n_epochs": "6",
            "sample_rate": "0.1",
            "budgets": "[16.0]",
            "rates": "[10.0]",
            "decays": "[1.0]",
            "n_seeds": "2",
        },
    ],
    "skin-lesions": [
        {"n_images": "300", "epsilon": "5.0", "n_records": "1000", "dataset": "ecoli", "learner": "ft-transformer"},
        {"n_images": "4000", "epsilon": "2.0", "dataset": "abalone", "learner": "mlp"},
        {"epsilon": "20.0", "n_records": "100000"},
    ],
    "app-skin-lesions": [
        {
            "n_train": "1000",
            "epsilon": "3.0",
            "delta": "1e-4",
            "curve": "[10.0]",
            "n_epochs": "4",
            "rates": "[5.0]",
            "clips": "[0.5]",
            "sampling": "[0.5]",
            "n_seeds": "2",
            "n_folds": "3",
        },
        {"n_train": "1000", "n_epochs": "4", "curve": "[2.0]", "rates": "[5.0]", "n_seeds": "2"},
        {"epsilon": "16.0", "n_epochs": "4", "sampling": "[1.0]", "rates": "[5.0]", "n_seeds": "2"},
    ],
    "skin-tuning": [
        {
            "n_train": "1000",
            "epsilon": "3.0",
            "delta": "1e-4",
            "promises": "[3.0]",
            "rates": "[6.0]",
            "clips": "[0.7]",
            "penalties": "[5.0]",
            "n_growths": "1",
            "n_seeds": "3",
        },
        {"n_train": "1000", "promises": "[2.0]", "rates": "[5.0]", "penalties": "[3.0]"},
        {"epsilon": "16.0", "promises": "[16.0]", "rates": "[5.0]", "penalties": "[10.0]"},
    ],
}


# These are re-run in every `make test`, each with its first set, which differs most from the defaults; the rest is
# re-run weekly. With their defaults all chapters run in every `make test`, under nbval.
DAILY = ("smote", "random-copies", "private-threshold", "bagging-tables", "dpsgd", "which-method")
METHODS = ("helpers.resampling", "helpers.erm", "helpers.meta", "helpers.neural", "helpers.synthesis")


def arguments(values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("-p", name, value)]


def skip_without(*names: str) -> None:
    if missing := [name for name in names if not data.is_available(name)]:
        pytest.skip(f"not on this machine: {', '.join(missing)}")


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


def test_every_chapter_is_run_here():
    assert set(RUNS) == {chapter.name for chapter in chapters.chapters()}
    assert all(len(sets) == 3 for sets in RUNS.values())


def test_half_of_what_a_chapter_fits_is_re_run_daily():
    """Of the methods' definitions that a chapter reaches, half or more are reached by those that are re-run here."""
    daily = set().union(*map(methods, DAILY))
    for name in RUNS:
        here = methods(name)
        assert len(here & daily) >= 0.5 * len(here), name


def methods(name: str) -> set[tuple[str, str]]:
    found = sources.definitions(chapters.chapter(name).code)
    return {(module, one) for module, reached in found.items() if module.startswith(METHODS) for one in reached}


def each_run():
    for name, sets in RUNS.items():
        for place, values in enumerate(sets):
            yield pytest.param(name, values, marks=[] if name in DAILY and place == 0 else pytest.mark.weekly)


@pytest.mark.parametrize(("name", "values"), list(each_run()))
def test_a_chapter_runs_with_other_parameters(name, values, runs, capsys):
    chapter = chapters.chapter(name)
    skip_without(*chapter.requires, *filter(None, [values.get("dataset")]))
    before = hashlib.sha256(chapter.path.read_bytes()).digest()
    assert main(["run", name, *arguments(values)]) == 0
    [folder] = (runs / name).iterdir()
    expected = chapter.parse(list(values.items()))
    assert json.loads((folder / "parameters.json").read_text()) == expected
    executed = nbformat.read(folder / f"{name}.ipynb", 4)
    assert executed.metadata.papermill.parameters == expected
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    assert hashlib.sha256(chapter.path.read_bytes()).digest() == before
    assert str(folder / f"{name}.ipynb") in capsys.readouterr().out


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("wrong", ["unknown name", "wrong type", "out of range", "unknown set", "empty list or text"])
def test_wrong_input_is_refused_with_exit_code_2(name, wrong, runs, capsys):
    parameters = chapters.chapter(name).parameters
    number = next(item for item in parameters.values() if item.type == "int")
    last = next((item for item in parameters.values() if item.type.startswith("list")), number)
    given, needle = {
        "unknown name": (["-p", "no_such_parameter", "1"], "no_such_parameter"),
        "wrong type": (["-p", number.name, "many"], number.name),
        "out of range": (["-p", number.name, "-1"], number.name),
        "unknown set": (["--set", "huge"], "huge"),
        "empty list or text": (["-p", last.name, "[]"], last.name),
    }[wrong]
    assert main(["run", name, *given]) == 2
    shown = capsys.readouterr().err
    assert needle in shown
    assert "must be" in shown
    assert not runs.exists()


def test_unknown_chapter(capsys):
    assert main(["run", "smoke"]) == 2
    assert "chapter must be one of" in capsys.readouterr().err


def test_unknown_command():
    with pytest.raises(SystemExit) as stopped:
        main(["frobnicate"])
    assert stopped.value.code == 2


def test_lists(monkeypatch, capsys):
    assert main(["chapters"]) == 0
    assert "oversampling" in capsys.readouterr().out
    assert main(["params", "oversampling"]) == 0
    assert "n_audit: int" in capsys.readouterr().out
    assert main(["data"]) == 0
    assert "mammography" in capsys.readouterr().out
    one = chapters.chapter("oversampling")  # what all depend on takes seconds to find
    monkeypatch.setattr(chapters, "chapters", lambda: [one])
    assert main(["status"]) == 0
    assert "oversampling" in capsys.readouterr().out


def test_a_failing_cell_is_reported_and_what_ran_is_kept(tmp_path, runs, monkeypatch, capsys):
    broken = chapters.chapter("oversampling").notebook
    broken.cells = [
        *broken.cells[:1],
        *[cell for cell in broken.cells if "parameters" in cell.metadata.get("tags", [])],
    ]
    broken.cells.append(nbformat.v4.new_code_cell("raise ValueError('n_seeds is unlucky')"))
    file = tmp_path / "oversampling.ipynb"
    nbformat.write(broken, file)
    monkeypatch.setattr(chapters, "chapters", lambda: [chapters.Chapter(file)])
    assert main(["run", "oversampling"]) == 1
    assert "n_seeds is unlucky" in capsys.readouterr().err
    assert len(list(runs.glob("oversampling/*/oversampling.ipynb"))) == 1


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A chapter of its own; returns a function that writes its last cell."""
    file = tmp_path / "tiny.ipynb"
    monkeypatch.setattr(chapters, "chapters", lambda: [chapters.Chapter(file)])
    for name in ("RESULTS", "PARAMS"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())
    cell = "import pandas as pd\nfrom helpers import book\nbook.keep(pd.DataFrame({'n': [n]}), f'tiny-{kind}')"

    def made(code=cell):
        parameters = (
            "n: int = 1  # in [1, 9]: size\nkind: str = 'a'  # in {a, b}: name\n# requires: n < 9 or kind == 'a'"
        )
        notebook = nbformat.v4.new_notebook(
            cells=[
                nbformat.v4.new_markdown_cell("# Tiny"),
                nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
                nbformat.v4.new_code_cell(code),
            ]
        )
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, file)
        return chapters.Chapter(file)

    made()
    return made


@pytest.fixture
def without_kernel(monkeypatch):
    """Cells run in this process, where the subject is what the command does before and after them: a kernel is slow."""

    def executed(path, output, parameters, cwd, kernel_name):
        notebook, names = path if isinstance(path, dict) else nbformat.read(path, 4), {}
        for cell in notebook.cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, output, "exec"), names)
            if "parameters" in cell.metadata.get("tags", []):
                names |= parameters
        nbformat.write(notebook, output)

    monkeypatch.setattr(papermill, "execute_notebook", executed)


def refused(capsys, arguments, words, code=2):
    """The command ends with `code` and one line that holds `words`."""
    capsys.readouterr()
    assert main(arguments) == code
    shown = capsys.readouterr().err.splitlines()
    [line] = shown if code == 2 else [line for line in shown if line.startswith("dpbook: ")]  # kernels warn, too
    assert words in line


def test_record_keeps_tables_with_their_provenance(tiny, tmp_path, monkeypatch, capsys):
    results, params = tmp_path / "results", tmp_path / "params"
    params.mkdir()
    (params / "tiny.yaml").write_text("more: {n: 7}\n")
    monkeypatch.setattr("helpers.book.record.uncommitted", list)
    assert main(["record", "tiny", "--set", "more"]) == 0
    assert pd.read_csv(results / "tiny-a.csv")["n"].tolist() == [7]
    record = json.loads((results / "tiny-a.json").read_text())
    assert record["parameters"] == {"n": 7}
    assert record["sha256"] == hashlib.sha256((results / "tiny-a.csv").read_bytes()).hexdigest()
    assert {"commit", "dirty", "machine", "cores", "date", "seconds", "jobs", "python", "arithmetic"} <= set(record)
    assert "helpers.book.results" in record["parts"]
    assert main(["status"]) == 0
    assert "stale: " not in capsys.readouterr().out
    code = "import pandas as pd\nfrom helpers import book\nbook.keep(pd.DataFrame({'n': [n]}), f'tiny-{kind}')"
    tiny(f"{code}\nbook.Table(pd.DataFrame({{'n': [n]}}), 'Shown.', 'tiny')")  # what is only shown makes no table old
    assert main(["status"]) == 0
    assert "stale: " not in capsys.readouterr().out
    tiny(code.replace("[n]", "[n + 1]"))
    assert main(["status"]) == 0
    assert "stale: code cells\n" in capsys.readouterr().out
    (params / "tiny.yaml").write_text("more: {n: 8}\n")
    assert main(["status"]) == 0
    assert "stale: parameters, code cells\n" in capsys.readouterr().out


def test_record_refuses_other_parameters_before_it_runs(tiny, without_kernel, runs, tmp_path, capsys):
    assert main(["record", "tiny", "-p", "n", "7"]) == 0
    before = sorted(runs.rglob("*"))
    refused(capsys, ["record", "tiny", "-p", "n", "8"], "results/tiny-a must be recorded again")
    assert sorted(runs.rglob("*")) == before
    assert main(["record", "tiny", "-p", "n", "8", "-p", "kind", "b"]) == 0
    assert main(["record", "tiny", "-p", "n", "8", "--replace"]) == 0
    assert pd.read_csv(tmp_path / "results" / "tiny-a.csv")["n"].tolist() == [8]


def test_record_refuses_what_only_the_run_could_tell(tiny, without_kernel, tmp_path, capsys):
    assert main(["record", "tiny", "-p", "n", "7"]) == 0
    tiny("import pandas as pd\nfrom helpers import book\nname = 'tiny-a'\nbook.keep(pd.DataFrame({'n': [n]}), name)")
    refused(capsys, ["record", "tiny"], "results/ is as it was, the tables are in", code=1)
    assert pd.read_csv(tmp_path / "results" / "tiny-a.csv")["n"].tolist() == [7]


def test_a_chapter_without_tables_is_not_recorded(tiny, runs, capsys):
    tiny("1")
    refused(capsys, ["record", "tiny"], "must keep a table")
    assert not runs.exists()


def test_a_full_disk_leaves_the_results_as_they_were(tiny, without_kernel, tmp_path, monkeypatch, capsys):
    assert main(["record", "tiny"]) == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "results").iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helpers.book.record.os.fsync", full)
    refused(capsys, ["record", "tiny", "--replace"], "No space left on device; results/ is as it was", code=1)
    assert {file.name: file.read_bytes() for file in (tmp_path / "results").iterdir()} == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["-p", "n", "1", "-p", "n", "2"], "n must be given once"),
        (["-p", "n", "1e400"], "n must be an integer"),
        (["-p", "n", "9" * 5000], "n must have at most"),
        (["-p", "n", "[" * 900], "n must be an integer"),
        (["-p", "n", "9", "-p", "kind", "b"], "must fit together"),
        (["--set", "both"], "must fit together"),
        (["--jobs", "100000"], "--jobs must be an integer in"),
    ],
)
@pytest.mark.parametrize("command", ["run", "record"])
def test_refused_in_one_line_and_nothing_is_run(tiny, tmp_path, runs, capsys, command, given, words):
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "tiny.yaml").write_text(
        "quick: {}\n" + ("both: {n: 9, kind: b}\n" if "both" in given else "")
    )
    refused(capsys, [command, "tiny", *given], words)
    assert not runs.exists()


@pytest.mark.parametrize("command", [["run", "tiny"], ["record", "tiny"], ["refresh", "tiny"], ["data"]])
def test_a_data_folder_that_does_not_exist_is_refused(tiny, runs, tmp_path, monkeypatch, capsys, command):
    monkeypatch.setenv("DPBOOK_DATA", str(tmp_path / "nowhere"))
    refused(capsys, command, "DPBOOK_DATA must be a folder that exists")
    assert not runs.exists()


def test_a_relative_data_folder_is_found_by_the_kernel(tiny, tmp_path, monkeypatch):
    tiny("from helpers import paths\nassert paths.data_folders()[0].is_absolute(), paths.data_folders()")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("DPBOOK_DATA", "mine")
    assert main(["run", "tiny"]) == 0


@pytest.mark.parametrize("command", [["run", "tiny"], ["run", "tiny", "--jobs", "1"], ["record", "tiny"]])
def test_folders_that_cannot_be_written_are_refused(tiny, tmp_path, monkeypatch, capsys, command):
    (tmp_path / "file").touch()
    monkeypatch.setattr(paths, "RUNS", tmp_path / "file" / "runs")
    refused(capsys, command, "must be a folder that can be written")


def test_results_that_cannot_be_written_are_refused_before_the_run(tiny, runs, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "file" / "results")
    refused(capsys, ["record", "tiny"], "must be a folder that can be written")
    assert not runs.exists()


def test_a_locked_store_is_refused(tiny, without_kernel, runs, monkeypatch, capsys):
    store = runs / "tiny" / "experiments.sqlite"
    store.parent.mkdir(parents=True)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **(options | {"timeout": 0})))
    with closing(connect(store, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        refused(
            capsys,
            ["run", "tiny", "--jobs", "1"],
            "experiments.sqlite must be a sound store that no other program holds",
        )
    assert main(["run", "tiny", "--jobs", "1"]) == 0


def test_a_run_inside_a_run_is_refused(tiny, monkeypatch, capsys):
    monkeypatch.setenv("DPBOOK_EXPERIMENTS", json.dumps({"store": "runs/outer/experiments.sqlite"}))
    refused(capsys, ["run", "tiny", "--jobs", "1"], "trials already go to runs/outer/experiments.sqlite")


def test_a_dead_kernel_is_reported(tiny, capsys):
    tiny("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    refused(capsys, ["run", "tiny"], "lost its kernel", code=1)


def test_refresh_reports_a_failing_cell(tiny, capsys):
    tiny("1 / 0")
    refused(capsys, ["refresh", "tiny"], "ZeroDivisionError: division by zero", code=1)


def test_status_says_what_is_old(tiny, capsys):
    tiny("print(n)")
    assert main(["refresh"]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    assert "fresh" in capsys.readouterr().out
    chapter = tiny("print(n + 1)")
    notebook = chapter.notebook
    notebook.metadata["dpbook"] = {"executed": {"parts": {}, "date": "2026-01-01", "seconds": 12}}
    nbformat.write(notebook, chapter.path)
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "stale" in shown
    assert "12 s code cells, constraints.txt" in shown
