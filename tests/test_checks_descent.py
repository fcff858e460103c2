"""The trials that compare private learners by what they know of the scale: same problem, same budget, same effort."""

import pickle

import numpy as np
import pandas as pd
import pytest

from checks import descent
from helpers.privacy import ADD_REMOVE

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (3000, 3)) * [1.0, 0.5, 1.0]
Y = (rng.random(3000) < 1 / (1 + np.exp(-X @ [2.0, 3.0, 0.0]))).astype(int)
BOUNDS = np.array([[-1.0, 1.0], [-1.0, 1.0], [-1.0, 1.0]])
SETTING = descent.Setting(step=1.0, clip=1.0, passes=40)
RAW, GIVEN = descent.Problem(X, Y, BOUNDS), descent.Problem(X / X.std(axis=0), Y, penalty=0.1)
ALGORITHMS = ("DP-GD", "DP-SGD", "DP-CD", "DP-CD, drawn", "DP-GCD", "DP-GCD, Laplace", "objective",
              "objective, Gaussian", "output")  # fmt: skip
PAIRS = [(a, s) for a in ALGORITHMS for s in ("one clip", "box", "private")]


def test_the_optimum_is_least_and_has_no_slope():
    for problem in (RAW, GIVEN):
        w = problem.optimum
        pull = 1 / (1 + np.exp((2.0 * problem.y - 1) * (problem.X @ w)))
        slope = -((2.0 * problem.y - 1) * pull) @ problem.X / 3000 + problem.penalty * w
        assert np.abs(slope).max() < 1e-6
        assert problem.gap(w) == 0.0 < problem.gap(w + 0.01)


@pytest.mark.parametrize(("algorithm", "scale"), PAIRS)
def test_every_method_comes_near_the_optimum_at_a_large_budget(algorithm, scale):
    """At epsilon 500 noise is little, and steps or weak penalties suffice: the frames are undone rightly."""
    step = {"objective": 10.0, "objective, Gaussian": 10.0, "output": 0.1}.get(algorithm, 2.0)
    w = descent.coefficients(RAW, algorithm, scale, descent.Setting(step, 2.0, 600), 500.0, 0)
    assert RAW.gap(w) < 0.05 * RAW.gap(np.zeros(3))


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name.startswith("DP-")])
def test_a_given_scale_keeps_the_objective(algorithm):
    """With a penalty the frame's coefficients are sqrt(p) times as large, and the penalty as much weaker."""
    w = descent.coefficients(GIVEN, algorithm, "given", descent.Setting(1.0, 8.0, 400), 500.0, 0)
    assert GIVEN.gap(w) < 0.01 * GIVEN.gap(np.zeros(3))


@pytest.mark.parametrize("algorithm", ["DP-GD", "DP-CD", "DP-GCD"])
def test_the_step_of_one_clip_does_not_depend_on_the_clip(algorithm):
    """Few passes, nothing clipped, hardly any noise: the clip, in units of the longest possible row, says nothing."""
    one, two = (
        descent.coefficients(RAW, algorithm, "one clip", descent.Setting(0.5, clip, 4), 500.0, 0) for clip in (1.0, 2.0)
    )
    assert one == pytest.approx(two, rel=0.1, abs=0.02)


@pytest.mark.parametrize("scale", ["box", "private"])
@pytest.mark.parametrize("algorithm", ["DP-GD", "DP-CD", "objective", "output"])
def test_units_do_not_matter_where_the_scale_is_known(algorithm, scale):
    """Another unit is another draw of the noise, but the same distribution: the mean gap over runs stays."""
    unit = np.array([1000.0, 1.0, 1.0])
    other = descent.Problem(X * unit, Y, BOUNDS * unit[:, None])
    gaps = [
        np.mean([p.gap(descent.coefficients(p, algorithm, scale, SETTING, 500.0, seed)) for seed in range(2)])
        for p in (RAW, other)
    ]
    assert gaps[1] == pytest.approx(gaps[0], rel=0.05, abs=1e-3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("scale", ["one clip", "private"])
def test_the_budget_is_the_one_that_is_asked_for(algorithm, scale, monkeypatch):
    """Whatever is fitted, with what a private scale cost outside of it, is (epsilon, 1/n^2) under add/remove-one."""
    fitted, spent = [], []
    for name in (name for name in vars(descent) if name.endswith("Classifier")):
        make = getattr(descent, name)
        monkeypatch.setattr(descent, name, lambda make=make, **kw: fitted.append(make(**kw)) or fitted[-1])

    release = descent.private_second_moments

    def moments(*args, **kwargs):
        released = release(*args, **kwargs)
        spent.append(released.guarantee)
        return released

    monkeypatch.setattr(descent, "private_second_moments", moments)
    descent.coefficients(RAW, algorithm, scale, SETTING, 1.0, 0)
    assert len(fitted) == 1
    guarantees = [fitted[0].guarantee_, *spent]
    assert all(g.neighbouring is ADD_REMOVE for g in guarantees)
    assert sum(g.epsilon for g in guarantees) == pytest.approx(1.0, rel=1e-9)
    assert sum(g.delta for g in guarantees) in (0.0, pytest.approx(1 / 3000**2))
    assert len(spent) == (scale == "private" and algorithm.startswith(("objective", "output")))


def test_settings_are_all_combinations():
    assert len(descent.settings([1, 2, 3], [1, 2], [8])) == 6 == len(set(descent.settings([1, 2, 3], [1, 2], [8])))


def test_tuning_takes_the_least_mean_and_says_where_it_ends():
    trials = pd.DataFrame(
        [
            {"method": m, "step": s, "clip": 1.0, "passes": 8, "seed": seed, "gap": gap + seed}
            for m, gaps in {"a": (3, 1, 2), "b": (1, 2, 3)}.items()
            for s, gap in zip((0.1, 1.0, 10.0), gaps, strict=True)
            for seed in (0, 1)
        ]
    )
    best = descent.tuned(trials, ["method"])
    assert best.step.tolist() == [1.0, 0.1]
    assert best.gap.tolist() == [1.5, 1.5]
    assert best.at_end.tolist() == [False, True]


def test_a_problem_is_the_same_value_before_and_after_its_optimum():
    """Stored trials are found by what they close over."""
    problem = descent.Problem(X, Y, BOUNDS)
    before = pickle.dumps(problem)
    assert problem.least > 0
    assert pickle.dumps(problem) == before


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((RAW, "DP-CD", "both"), "scale"),
        ((RAW, "DP-CD", "given"), "scale"),
        ((GIVEN, "DP-CD", "box"), "scale"),
        ((descent.Problem(X, Y, BOUNDS, penalty=1.0), "DP-CD", "box"), "scale"),
    ],
)
def test_bad_arguments(args, word):
    with pytest.raises(ValueError, match=word):
        descent.coefficients(*args, SETTING, 1.0, 0)
