"""Tuning: the best of a grid, what happens at its end, what is stored, and what is refused."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import sources
from helpers.study import experiments
from helpers.study.tuning import Protocol, Tuned, tune


def protocol(grid, **options):
    usual = {"data": {"simulated": 4.0}, "kind": "simulated", "measure": "score", "epsilon": 2.0, "delta": 1e-5}
    return Protocol(grid, **usual | options)


def peak(data, epsilon, delta, seed, rate, clip=1.0):
    """Highest at rate = data and clip = 1, with a little noise."""
    return -(math.log(rate / data) ** 2) - math.log(clip) ** 2 + 0.01 * np.random.default_rng(seed).normal()


def scored(means, noise=0.0):
    """Trials of one parameter with these scores, five seeds."""
    return pd.DataFrame(
        [{"data": "d", "epsilon": 2.0, "delta": 1e-5, "seed": seed, "rate": rate, "score": mean + noise * seed}
         for rate, mean in means.items() for seed in range(5)]
    )  # fmt: skip


def test_a_known_optimum_inside_the_grid_is_found_without_growth():
    tuned = tune(peak, protocol({"rate": (1.0, 4.0, 16.0), "clip": (0.5, 1.0, 2.0)}), name="peak")
    assert tuned.winner == {"rate": 4.0, "clip": 1.0}
    assert tuned.edges == {}
    assert len(tuned.table) == 9
    assert tuned.table[["rate", "clip"]].iloc[0].tolist() == [4.0, 1.0]
    assert tuned.table.loc[0, "n_seeds"] == 5
    assert tuned.table.loc[0, "sd"] > 0
    assert "rate 4 of 1 ... 16, clip 1 of 0.5 ... 2; inside the grid" in str(tuned)
    assert "5 seeds, at epsilon 2, delta 1e-05 (add/remove-one)" in str(tuned)


@pytest.mark.parametrize(
    ("grid", "grown"), [((0.25, 0.5, 1.0), [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]), ((16, 32), [2, 4, 8, 16, 32])]
)
def test_a_grid_grows_until_the_optimum_is_inside(grid, grown):
    tuned = tune(peak, protocol({"rate": grid}, growth=5), name="peak")
    assert sorted(tuned.table.rate) == grown
    assert tuned.winner == {"rate": 4}
    assert tuned.edges == {}
    assert isinstance(tuned.winner["rate"], type(grid[0]))


def test_an_axis_that_may_grow_no_further_is_named():
    tuned = tune(peak, protocol({"rate": (0.25, 0.5), "clip": (0.5, 1.0, 2.0)}, growth=1), name="peak")
    assert tuned.winner == {"rate": 1.0, "clip": 1.0}
    assert tuned.edges == {"rate": "upper"}
    assert "; rate at the upper end." in str(tuned)


def test_the_limit_of_a_parameter_is_no_edge():
    grid, limits = {"rate": (1.0, 4.0, 16.0), "clip": (1.3, 1.6)}, {"clip": (1.0, math.inf)}
    tuned = tune(peak, protocol(grid, limits=limits), name="peak")
    assert sorted(tuned.table["clip"].unique()) == [1.0, 1.06, 1.3, 1.6]
    assert tuned.winner == {"rate": 4.0, "clip": 1.0}
    assert tuned.edges == {}


def test_integers_that_cannot_be_halved_are_an_end():
    tuned = tune(lambda data, epsilon, delta, seed, passes: -passes, protocol({"passes": (1, 2)}), name="least")
    assert tuned.winner == {"passes": 1}
    assert tuned.edges == {"passes": "lower"}


def test_of_equal_means_the_middle_one_is_taken():
    flat = tune(lambda data, epsilon, delta, seed, rate: 0.5, protocol({"rate": (1.0, 2.0, 4.0)}), name="flat")
    assert flat.winner == {"rate": 2.0}
    assert flat.edges == {}
    assert len(flat.table) == 3
    assert set(flat.by_seed().rate) == {2.0}


def test_names_have_no_order_and_no_end():
    def better(data, epsilon, delta, seed, optimizer, nesterov):
        return float(optimizer == "adam") + float(nesterov is None)

    grid = {"optimizer": ("adam", "sgd"), "nesterov": (True, None)}
    tuned = tune(better, protocol(grid), name="names")
    assert tuned.winner == {"optimizer": "adam", "nesterov": None}
    assert tuned.edges == {}
    assert "optimizer adam of adam, sgd" in str(tuned)


def test_a_value_that_is_not_varied_is_told_so():
    tuned = tune(peak, protocol({"rate": (1.0, 4.0, 16.0), "clip": (1.0,)}), name="peak")
    assert "clip 1 not varied" in str(tuned)


def test_means_are_over_data_sets_and_functions_of_the_seed_make_them():
    data = {"low": 1.0, "high": lambda seed: 16.0 if seed >= 1000 else math.nan}
    tuned = tune(peak, protocol({"rate": (1.0, 4.0, 16.0)}, data=data), name="two")
    assert tuned.winner == {"rate": 4.0}
    assert tuned.trials["data"].value_counts().to_dict() == {"low": 15, "high": 15}
    assert sorted(tuned.trials.seed.unique()) == [1000, 1001, 1002, 1003, 1004]


def test_the_budget_is_the_protocols_and_further_measures_are_kept():
    def told(data, epsilon, delta, seed, rate):
        return {"score": rate, "epsilon_seen": epsilon, "delta_seen": delta}

    trials = tune(told, protocol({"rate": (1.0, 2.0)}, growth=0), name="told").trials
    assert set(trials.epsilon_seen) == {2.0}
    assert set(trials.delta_seen) == {1e-5}


def test_failed_runs_count_as_the_worst():
    trials = scored({1.0: 0.5, 2.0: 0.9, 4.0: 0.1})
    trials.loc[trials.rate.eq(2.0) & trials.seed.eq(3), "score"] = math.nan
    tuned = Tuned(protocol({"rate": (1.0, 2.0, 4.0)}), trials)
    assert tuned.winner == {"rate": 1.0}
    assert tuned.table["rate"].tolist() == [1.0, 4.0, 2.0]
    with pytest.raises(ValueError, match="failed with no seed"):
        Tuned(tuned.protocol, trials.assign(score=math.nan))


def test_an_incomplete_table_is_refused():
    with pytest.raises(ValueError, match="every setting with every seed"):
        Tuned(protocol({"rate": (1.0, 2.0)}), scored({1.0: 0.5, 2.0: 0.9}).iloc[1:])


def test_a_stored_table_tells_the_same(tmp_path):
    tuned = tune(peak, protocol({"rate": (0.25, 0.5, 1.0), "clip": (1, 2)}), name="peak")
    tuned.trials.to_csv(tmp_path / "trials.csv", index=False)
    # The protocol that reads it may have another grid and number of seeds: what was tried is what the table says.
    again = Tuned(protocol({"rate": (1.0,), "clip": (1,)}, n_seeds=9), pd.read_csv(tmp_path / "trials.csv"))
    assert again.winner == tuned.winner
    assert str(again) == str(tuned)
    pd.testing.assert_frame_equal(again.table, tuned.table)


def test_choices_of_single_seeds_and_of_resampled_seeds_show_the_luck():
    trials = scored({1.0: 0.0, 2.0: 0.9, 4.0: 1.0})
    trials.loc[trials.rate.eq(4.0), "score"] += np.array([-1, 0.2, 0.2, 0.2, 0.2])
    tuned = Tuned(protocol({"rate": (1.0, 2.0, 4.0)}), trials)
    assert tuned.winner == {"rate": 4.0}
    assert tuned.by_seed().rate.tolist() == [2.0, 4.0, 4.0, 4.0, 4.0]
    chosen = [setting["rate"] for setting in tuned.resampled(2000, random_state=0)]
    # The mean of 4.0 is lower as soon as its bad seed is drawn twice: one less the binomial's first two terms.
    twice = 1 - 0.8**5 - 5 * 0.2 * 0.8**4
    assert np.mean(np.array(chosen) == 2.0) == pytest.approx(twice, abs=0.03)
    assert chosen == [setting["rate"] for setting in tuned.resampled(2000, random_state=0)]


def test_an_interrupted_search_goes_on(tmp_path):
    modules, log, obstacle = ["helpers.validation"], tmp_path / "log", tmp_path / "obstacle"
    name, in_the_way = str(log), str(obstacle)

    def trial(data, epsilon, delta, seed, rate):
        if rate == 2.0 and Path(in_the_way).exists():
            raise RuntimeError("interrupted")
        with open(name, "a") as file:
            file.write(f"{rate} {seed}\n")
        return peak(data, epsilon, delta, seed, rate)

    def attempt():
        code = sources.modules_digest(modules)
        with experiments.session(1, tmp_path / "store.sqlite", "chapter", modules, code):
            return tune(trial, protocol({"rate": (0.5, 1.0)}, growth=4), name="peak")

    obstacle.touch()
    with pytest.raises(experiments.TrialError, match="interrupted"):
        attempt()
    assert len(log.read_text().splitlines()) == 10
    obstacle.unlink()
    tuned = attempt()
    assert sorted(tuned.table.rate) == [0.5, 1.0, 2.0, 4.0, 8.0]
    calls = log.read_text().splitlines()
    assert len(calls) == len(set(calls)) == 25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_seeds": 4}, r"n_seeds must be an integer in \[5"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"kind": "test"}, "kind must be one of"),
        ({"growth": -1}, "growth must be"),
        ({"grid": {}}, "grid and data must not be empty"),
        ({"data": {}}, "grid and data must not be empty"),
        ({"grid": {"rate": (2.0, 1.0)}}, "increasing numbers"),
        ({"grid": {"rate": (0.0, 1.0)}}, "increasing numbers"),
        ({"grid": {"rate": ()}}, "increasing numbers"),
        ({"grid": {"optimizer": ("a", "a")}}, "different names"),
        ({"grid": {"seed": (1, 2)}}, "no column of the result"),
        ({"grid": {"score": (1, 2)}}, "no column of the result"),
        ({"limits": {"rate": (2.0, 9.0)}}, "limits must hold the grid's numbers"),
        ({"limits": {"clip": (0.0, 1.0)}}, "limits must hold the grid's numbers"),
        ({"compared_on": ("simulated", "ecoli")}, r"none of those that methods are compared on, got \['simulated'\]"),
    ],
)  # fmt: skip
def test_what_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(protocol({"rate": (1.0, 2.0)}), **change)
