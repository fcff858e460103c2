"""Noise calibration by hand: each constant against its formula, at numbers that no two formulas share."""

import math

import pytest
from erm_data import HUBER
from scipy.stats import norm

from helpers import erm
from helpers.erm.calibration import (
    determinant_cost,
    gaussian_objective_delta,
    joint_cost,
)
from helpers.privacy import ADD_REMOVE

PROBLEM = {"n_records": 70, "radius": 3.0}
HALF = erm.fixed_weights(0.5)
ADDED = erm.fixed_weights(0.8, ADD_REMOVE)
BALANCED_3 = erm.balanced_weights(3)
WEIGHTINGS = [(erm.UNWEIGHTED, 2.0), (HALF, 1.0), (ADDED, 0.8), (erm.BALANCED, 2.0), (BALANCED_3, 3.0)]


@pytest.mark.parametrize(("weighting", "mass"), WEIGHTINGS)
def test_logistic_constants(weighting, mass):
    """The noise gets all of epsilon once L is at least mass R^2 / (n epsilon)."""
    least = mass * 9 / (70 * 0.4)
    for regularization in (least / 7, least * 7):
        found = erm.calibrate(epsilon=0.4, regularization=regularization, weighting=weighting, **PROBLEM)
        assert found.noise_rate == pytest.approx(0.4 / (3 * mass))
        assert found.total_regularization == pytest.approx(max(least, regularization))


@pytest.mark.parametrize(("weighting", "mass"), WEIGHTINGS)
def test_gaussian_logistic_constants(weighting, mass):
    least = mass * 9 / (70 * 0.4)
    for regularization in (least / 7, least * 7):
        scale, total = erm.calibrate_gaussian(
            epsilon=0.4, delta=1e-4, regularization=regularization, weighting=weighting, **PROBLEM
        )
        assert total == pytest.approx(max(least, regularization))
        assert gaussian_objective_delta(0.4, 3 * mass / scale) == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize(("weighting", "share"), [(erm.UNWEIGHTED, 0.25), (HALF, 0.25), (ADDED, 0.5)])
def test_huber_constants(weighting, share):
    """L is raised until the determinant costs own/(2 mass) of epsilon; with others' weights, half of it."""
    T = math.expm1(share * 0.4) / (HUBER.curvature * weighting.own)
    found = erm.calibrate(epsilon=0.4, regularization=1e-9, loss=HUBER, weighting=weighting, **PROBLEM)
    assert found.total_regularization == pytest.approx(9 / (70 * T))
    assert found.noise_rate == pytest.approx((1 - share) * 0.4 / (3 * weighting.mass))


@pytest.mark.parametrize("weighting", [erm.UNWEIGHTED, erm.BALANCED, BALANCED_3])
def test_gaussian_huber_constants(weighting):
    """The determinant costs half of epsilon, whatever the weights are."""
    scale, total = erm.calibrate_gaussian(
        epsilon=0.4, delta=1e-4, regularization=1e-9, loss=HUBER, weighting=weighting, **PROBLEM
    )
    assert determinant_cost(9 / (70 * total), HUBER, weighting) == pytest.approx(0.2)
    assert gaussian_objective_delta(0.4, 3 * weighting.mass / scale, 0.2) == pytest.approx(1e-4)
    _, total = erm.calibrate_gaussian(
        epsilon=0.4, delta=1e-4, regularization=1e6, loss=HUBER, weighting=weighting, **PROBLEM
    )
    assert total == 1e6


def test_costs_by_hand():
    T, c = 0.3, HUBER.curvature
    assert determinant_cost(T, HUBER, HALF) == pytest.approx(math.log1p(0.5 * c * T))
    assert determinant_cost(T, HUBER, BALANCED_3) == pytest.approx(math.log1p(c * T) + 2 * c * T)
    assert joint_cost(0.2, T, HUBER, ADDED) == pytest.approx(HUBER.own_cost(0.16, 0.24))
    assert joint_cost(0.2, T, HUBER, HALF) == pytest.approx(HUBER.own_cost(0.1, 0.15) + 0.5 * 0.2)
    assert joint_cost(0.2, T, HUBER, BALANCED_3) == pytest.approx(HUBER.own_cost(0.2, T) + 2 * HUBER.cost(0.2, T))


def costs(cost, ratio, loss, weighting):
    """Whether Gaussian noise pays that much for the determinant at T = `ratio`."""
    problem = {
        "epsilon": 0.4,
        "delta": 1e-4,
        "n_records": 1,
        "regularization": 1 / ratio,
        "raise_regularization": False,
    }
    scale, _ = erm.calibrate_gaussian(**problem, loss=loss, weighting=weighting)
    shift = weighting.mass * loss.steepness / scale
    return gaussian_objective_delta(0.4, shift, cost) == pytest.approx(1e-4, rel=1e-6)


def test_the_determinant_is_free_up_to_epsilon_over_the_mass():
    for weighting, mass in WEIGHTINGS:
        assert costs(0.0, 0.4 / mass, erm.LOGISTIC, weighting)
        above = 0.4 / mass * (1 + 1e-9)
        assert costs(determinant_cost(above, erm.LOGISTIC, weighting), above, erm.LOGISTIC, weighting)
    assert costs(math.log1p(1e-3 * HUBER.curvature), 1e-3, HUBER, erm.UNWEIGHTED)
    softmax = erm.Softmax(3)
    assert costs(determinant_cost(1e-3, softmax, erm.UNWEIGHTED), 1e-3, softmax, erm.UNWEIGHTED)


@pytest.mark.parametrize("loss", [erm.LOGISTIC, HUBER, erm.Softmax(3)])
def test_regularization_that_may_not_be_raised_stays(loss):
    kept = {"regularization": 0.5, "raise_regularization": False, "loss": loss, "epsilon": 3.0, **PROBLEM}
    assert erm.calibrate(**kept).total_regularization == 0.5
    assert erm.calibrate_gaussian(delta=1e-4, **kept)[1] == 0.5


@pytest.mark.parametrize("raised", [True, False])
def test_little_delta_means_much_noise(raised):
    """Up to the smallest doubles, where the search starts far below any shift."""
    problem = {"epsilon": 1.0, "n_records": 1000, "regularization": 0.1, "raise_regularization": raised}
    scales = [erm.calibrate_gaussian(delta=delta, **problem)[0] for delta in (0.9, 1e-3, 1e-100, 1e-300)]
    assert scales == sorted(scales)
    for delta, scale in zip((0.9, 1e-3, 1e-100), scales, strict=False):
        assert gaussian_objective_delta(1.0, 2 / scale) == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "shift", "jacobian"), [(0.7, 0.4, 0.0), (0.7, 0.6, 0.3), (50.0, 3.0, 0.0)])
def test_gaussian_delta_by_its_formula(epsilon, shift, jacobian):
    cut = (epsilon - jacobian) / shift
    exact = math.exp(jacobian + shift**2 / 2) * norm.cdf(shift - cut) - math.exp(epsilon) * norm.cdf(-cut)
    assert gaussian_objective_delta(epsilon, shift, jacobian) == pytest.approx(min(exact, 1.0), rel=1e-9)


def test_gaussian_delta_at_its_ends():
    assert gaussian_objective_delta(0.5, 1.0, 0.5) == 1.0
    assert gaussian_objective_delta(0.5, 60.0) == 1.0  # no overflow
    assert gaussian_objective_delta(700.0, 1e-3) == 0.0


@pytest.mark.parametrize(("weighting", "mass"), WEIGHTINGS)
def test_the_largest_move(weighting, mass):
    assert erm.largest_move(n_records=70, regularization=0.2, radius=3.0, weighting=weighting) == pytest.approx(
        mass * 3 / (70 * 0.2)
    )
    softmax = erm.largest_move(n_records=70, regularization=0.2, loss=erm.Softmax(3), weighting=weighting)
    assert softmax == pytest.approx(mass * math.sqrt(2) / (70 * 0.2))


def test_the_default_penalty():
    assert erm.default_regularization(70, 4, 0.4, radius=3.0, largest_norm=5.0) == pytest.approx(
        2 * 4 * 9 / (5 * 70 * 0.4)
    )
    assert erm.default_regularization(70, 4, 0.4) == pytest.approx(2 * 4 / (10 * 70 * 0.4))


BOUNDS = [
    ("epsilon", [1e-6, 700.0], [0.0, 700.001]),
    ("n_records", [1], [0, -1, 1.5]),
    ("regularization", [1e-6], [0.0, -0.5]),
    ("radius", [1e-3], [0.0, -0.5]),
    ("raise_regularization", [True, False], ["no", 1]),
    ("delta", [1e-6, 0.9], [0.0, 1.0]),
]


@pytest.mark.parametrize(("name", "good", "bad"), BOUNDS)
def test_ranges_of_the_calibrations(name, good, bad):
    usual = {"epsilon": 1.0, "n_records": 100, "regularization": 10.0}
    for call, own in ((erm.calibrate, usual), (erm.calibrate_gaussian, usual | {"delta": 1e-3})):
        if name != "delta" or "delta" in own:
            for value in good:
                call(**own | {name: value})
            for value in bad:
                with pytest.raises(ValueError, match=f"{name} must be"):
                    call(**own | {name: value})


@pytest.mark.parametrize("name", ["n_records", "dimension", "epsilon", "radius", "largest_norm"])
def test_ranges_of_the_default_penalty(name):
    for smallest in (1,) if name in ("n_records", "dimension") else (0.5, 1e-3):
        erm.default_regularization(**{"n_records": 10, "dimension": 2, "epsilon": 1.0} | {name: smallest})
    for bad in (0, -1):
        with pytest.raises(ValueError, match=f"{name} must be"):
            erm.default_regularization(**{"n_records": 10, "dimension": 2, "epsilon": 1.0} | {name: bad})


def test_the_message_names_the_budget():
    for call in (erm.calibrate, lambda **problem: erm.calibrate_gaussian(delta=1e-3, **problem)):
        with pytest.raises(ValueError, match=r"epsilon must exceed what the Jacobian costs .* got 0\.5"):
            call(epsilon=0.5, n_records=10, regularization=1e-6, loss=HUBER, raise_regularization=False)


def test_weightings_by_hand_and_their_ranges():
    assert erm.fixed_weights(0.8, ADD_REMOVE) == (0.8, 0.8, 0.8)
    assert erm.fixed_weights(0.8) == (1.6, 0.8, 0.8)
    assert erm.balanced_weights(4) == (4.0, 4.0, 1.0)
    for bad in (0.0, -0.5, math.inf):
        with pytest.raises(ValueError, match="largest must be"):
            erm.fixed_weights(bad)
    with pytest.raises(ValueError, match="neighbouring must be"):
        erm.fixed_weights(1.0, "add")
    for bad in (1, 0, 2.5):
        with pytest.raises(ValueError, match="n_classes must be"):
            erm.balanced_weights(bad)


def test_one_record_has_class_weights():
    assert erm.class_weights([1, 0]).tolist() == [0.0, 1.0]
    assert erm.class_weights([1, 0, 0]) == pytest.approx([1 / 3] * 3)
    assert erm.class_weights([0.5, 0, 2]) == pytest.approx([0.4, 0.4, 0.2])


@pytest.mark.parametrize("weighting", [erm.UNWEIGHTED, erm.balanced_weights(3), erm.fixed_weights(2.0)])
def test_the_default_penalty_is_the_length_of_the_noise_over_that_of_the_coefficients(weighting):
    """Numbers that all differ, and a loss that is steeper than the logistic one."""
    common = {"n_records": 700, "dimension": 5, "epsilon": 0.4, "radius": 3.0, "largest_norm": 7.0}
    common |= {"loss": erm.LOGISTIC, "weighting": weighting}
    pure = erm.default_regularization(**common)
    assert pure == pytest.approx(weighting.mass * erm.LOGISTIC.steepness * 5 * 9 / (7 * 700 * 0.4))
    softmax = common | {"loss": erm.Softmax(3)}  # whose slope is at most the root of 2
    assert erm.default_regularization(**softmax) == pytest.approx(math.sqrt(2) * pure)
    problem = {"epsilon": 0.4, "delta": 1e-5, "n_records": 700, "radius": 3.0} | {"weighting": weighting}
    # Of a penalty below what the calibration asks for, as is the one that it then raises.
    _, raised = erm.calibrate_gaussian(**problem, regularization=1e-9)
    assert 1e-9 < raised < 1.0
    for loss in (erm.LOGISTIC, erm.Softmax(3)):  # a large penalty would need less noise for the second
        scale, _ = erm.calibrate_gaussian(**problem, regularization=1e-9, loss=loss)
        found = erm.default_regularization(**common | {"loss": loss}, delta=1e-5)
        assert found == pytest.approx(math.sqrt(5) * scale * 3 / (7 * 700))


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 1.5])
def test_the_default_penalty_is_for_a_delta_from_0_to_below_1(delta):
    with pytest.raises(ValueError, match=r"^delta must be a finite number in \[0, 1\), got"):
        erm.default_regularization(100, 3, 1.0, delta=delta)
