"""Printed noise, choice and bounds of private coordinate descent, against exact integration, limits and units."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

from checks import coordinate_descent
from checks import greedy_descent as printed
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Sensitivity,
    event_epsilon,
    exponential_probabilities,
)

OTHERS = [1, 5, 20, 100, 500]


def scales(smallest, epsilon=1.0):
    return printed.printed_scales([smallest, 1.0], 1000, epsilon, ADD_REMOVE)


def worst(n_others, b):
    """Loss where one record moves the slopes of all others by 1/1000, from where they stand far above the first."""
    return printed.selection_loss([0.0, 0.1], [0.0, 0.099], b, [1, n_others])


@pytest.mark.parametrize(
    ("slopes", "b", "counts"),
    [
        ([0.3, 0.1, -0.2], [0.1, 0.2, 0.4], [1, 3, 1]),
        ([0.0, 0.05], [1e-3, 1.0], [1, 50]),
        ([5.0, 0.0], [0.1, 1e-4], [1, 1]),
        ([0.2, 0.2], [1.0, 1.0], [4, 4]),
    ],
)
def test_probabilities_add_up_and_are_those_of_the_choice(slopes, b, counts):
    logs = printed.log_choices(slopes, b, counts)
    assert counts @ np.exp(logs) == pytest.approx(1.0, abs=1e-9)
    rng = np.random.default_rng(0)
    drawn = np.abs(np.repeat(slopes, counts) + rng.laplace(size=(40_000, sum(counts))) * np.repeat(b, counts))
    kinds = np.repeat(np.arange(len(counts)), counts)[np.argmax(drawn, axis=1)]
    found = np.bincount(kinds, minlength=len(counts)) / 40_000
    assert found == pytest.approx(np.array(counts) * np.exp(logs), abs=0.01)


def test_the_first_of_two_has_its_probability_in_closed_form():
    """b_1 -> 0: |g_1| wins where the other's noisy size is below it."""
    below = 1 - math.exp(-0.3 / 0.2) * math.cosh(0.1 / 0.2)
    assert np.exp(printed.log_choices([0.3, 0.1], [1e-7, 0.2])[0]) == pytest.approx(below, rel=1e-6)


def test_unequal_noise_loses_half_an_epsilon_for_every_other_coordinate():
    losses = [worst(n, scales(1e-3)) for n in OTHERS]
    assert losses == pytest.approx([n / 2 for n in OTHERS], rel=1e-3)
    assert worst(20, scales(1e-3, epsilon=0.1)) == pytest.approx(1.0, rel=1e-3)


def test_the_ratio_of_the_sensitivities_is_the_other_limit():
    """Where L_1 is a hundredth of the others, the winner's own noise carries it up, and the loss ends at 50."""
    assert [worst(n, scales(1e-2)) for n in (100, 200, 500)] == pytest.approx([50.0] * 3, rel=1e-3)


def test_equal_noise_never_loses_more_than_it_says():
    rng, largest = np.random.default_rng(0), 0.0
    b = np.full(3, 2 * 1e-3)  # sensitivity 1e-3, epsilon 1
    for _ in range(60):
        slopes = rng.uniform(0, 0.02, 3)
        neighbour = slopes + rng.choice([-1e-3, 1e-3], 3)
        largest = max(largest, printed.selection_loss(slopes, neighbour, b, [1, 5, 30]))
    assert 0.9 < largest <= 1.0 + 1e-6
    assert worst(500, np.full(2, 2e-3)) <= 1.0


def test_scores_over_their_own_sensitivity_are_the_repair():
    """The same slopes and limits: the exponential mechanism on |g_j| / (L_j / n) stays at epsilon."""
    limits = np.append(1e-3, np.ones(500))
    probabilities = [
        exponential_probabilities(
            np.append(0.0, g * np.ones(500)) / (limits / 1000), Sensitivity(1.0, ADD_REMOVE, "linf"), 1.0
        )
        for g in (0.1, 0.099)
    ]
    assert np.abs(np.log(probabilities[0] / probabilities[1])).max() <= 1.0


def test_delta_at_the_printed_epsilon():
    b = scales(1e-2)
    assert printed.selection_delta([0.0, 0.1], [0.0, 0.099], b, 1.0, [1, 1]) == 0.0
    found = [
        max(printed.selection_delta([q, 0.1], [q, 0.099], b, 1.0, [1, n]) for q in np.linspace(0.095, 0.11, 40))
        for n in (5, 500)
    ]
    assert found[0] > 0.07
    assert found[1] > 0.03


def test_the_printed_variance_is_linear_in_the_limit():
    assert coordinate_descent.printed_variance(2.0, 10, 100, 1.0) == pytest.approx(
        2 * coordinate_descent.printed_variance(1.0, 10, 100, 1.0)
    )


def test_the_slide_s_variance_is_another_privacy_in_other_units():
    """The same records and the loss in other units: epsilon of 100 updates at claimed 1, delta 1e-6, any constant."""

    def spent(limit):
        spread = math.sqrt(coordinate_descent.printed_variance(limit, 100, 1000, 1.0))
        event = SelfComposedDpEvent(GaussianDpEvent(spread * 1000 / (2 * limit)), 100)
        return event_epsilon(event, 1e-6, REPLACE_ONE)

    assert spent(0.01) < 1 < 10 < spent(10.0)


LIMITS, SMOOTH, OPTIMUM = np.array([1.0, 0.5, 1.0]), np.array([0.25, 0.1, 0.01]), np.array([1.0, -2.0, 3.0])


def test_the_coordinate_bound_is_the_limit_of_the_theorem_for_small_steps():
    """Noise for T updates, the best step times T, and ever smaller steps: both splits of the same privacy."""
    n, mu = 1000, 0.2
    for split, sizes in {"printed": LIMITS, "best": np.sqrt(LIMITS * np.sqrt(SMOOTH))}.items():
        per_update = sizes * math.sqrt(np.mean((LIMITS / sizes) ** 2)) / (n * mu)
        bound = coordinate_descent.coordinate_bound(LIMITS, SMOOTH, OPTIMUM, n, mu, split=split)
        steps = 3 * (SMOOTH @ OPTIMUM**2) / bound
        found = [
            coordinate_descent.descent_bound(
                SMOOTH, per_update**2 * steps / step, OPTIMUM, 0.3, round(steps / step), step
            )
            for step in (1.0, 0.1, 1e-4)
        ]
        assert found[0] > found[1] > found[2] == pytest.approx(bound, rel=1e-3)
        for other in (0.5, 2.0):
            updates = round(other * steps / 1e-4)
            assert (
                coordinate_descent.descent_bound(SMOOTH, per_update**2 * updates, OPTIMUM, 0.3, updates, 1e-4) > bound
            )


def test_the_best_split_is_least_and_equal_limits_leave_nothing_to_gain():
    one, two = (
        coordinate_descent.coordinate_bound(LIMITS, SMOOTH, OPTIMUM, 1000, 0.2, split=s) for s in ("best", "printed")
    )
    assert one < two <= math.sqrt(3) * one
    even = [
        coordinate_descent.coordinate_bound(np.sqrt(SMOOTH), SMOOTH, OPTIMUM, 9, 0.2, split=s)
        for s in ("best", "printed")
    ]
    assert even[0] == pytest.approx(even[1])


def test_the_gradient_bound_does_not_lose_where_the_curvature_is_even():
    """Lambda <= ||L||: the printed bounds put coordinate descent behind on standardised data."""
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 3))
    longest, limits = np.linalg.norm(rows, axis=1).max(), np.abs(rows).max(axis=0)
    gradient = coordinate_descent.gradient_bound(longest, np.linalg.norm(OPTIMUM), 3, 100, 0.1)
    assert gradient <= coordinate_descent.coordinate_bound(limits, np.full(3, 0.25), OPTIMUM, 100, 0.1)


def test_bounds_grow_with_the_units_of_the_loss_but_the_greedy_one():
    """A loss s f has s L and s M and s times the gap."""
    args = OPTIMUM, 1000, 1.0, 1e-6
    for repaired, power in ((True, 1), (False, 4 / 3)):
        one, eight = (printed.greedy_order(s * LIMITS, s * SMOOTH, *args, repaired=repaired) for s in (1.0, 8.0))
        assert eight == pytest.approx(8**power * one)
    one, eight = (coordinate_descent.coordinate_bound(s * LIMITS, s * SMOOTH, OPTIMUM, 1000, 0.2) for s in (1.0, 8.0))
    assert eight == pytest.approx(8 * one)


def test_the_repaired_greedy_order_does_not_know_units_of_features():
    c, args = np.array([10.0, 1.0, 0.1]), (1000, 1.0, 1e-6)
    one = printed.greedy_order(LIMITS, SMOOTH, OPTIMUM, *args, repaired=True)
    assert printed.greedy_order(LIMITS * c, SMOOTH * c**2, OPTIMUM / c, *args, repaired=True) == pytest.approx(one)
    assert printed.greedy_order(LIMITS * c, SMOOTH * c**2, OPTIMUM / c, *args) > 2 * printed.greedy_order(
        LIMITS, SMOOTH, OPTIMUM, *args
    )


def test_an_unknown_variant_is_refused():
    with pytest.raises(KeyError, match="even"):
        coordinate_descent.coordinate_bound([1.0], [1.0], [1.0], 1, 1.0, split="even")
