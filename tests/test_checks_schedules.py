"""Schedules as printed and as published code runs them: by hand, against the package's own, and where they fail."""

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from hypothesis import given
from hypothesis import strategies as st

from checks import schedules as printed
from helpers.neural import Schedule
from helpers.privacy import REPLACE_ONE, event_epsilon, gaussian_epsilon

DELTA = 1e-3


def levels(schedule):
    """Multipliers in order of appearance and the number of steps of each."""
    sigma = schedule.noise_multipliers
    starts = np.flatnonzero(np.r_[True, np.diff(sigma) != 0])
    return sigma[starts].round(6).tolist(), np.diff(np.r_[starts, len(sigma)]).tolist()


def test_first_stages_of_the_papers_example():
    assert printed.stage_lengths(1, 3, 0.2)[0] == pytest.approx(1 / 31)
    assert printed.stage_lengths(1, 4, 0.2)[0] == pytest.approx(1 / 156)
    assert np.floor(printed.stage_lengths(50, 3, 0.2)[0]) == 1  # 1/50 of the run
    assert printed.stage_lengths(6, 3, 1.0).tolist() == [2, 2, 2]


@given(st.floats(1, 1e4), st.integers(1, 8), st.floats(0.05, 1))
def test_lengths_follow_the_printed_recurrence(total, n, gamma):
    lengths = printed.stage_lengths(total, n, gamma)
    np.testing.assert_allclose(lengths[:-1], gamma * lengths[1:])
    assert lengths.sum() == pytest.approx(total)


@given(st.integers(50, 400), st.integers(1, 5), st.floats(0.5, 0.95), st.floats(0.5, 1))
def test_the_corrected_mean_and_variance_are_those_of_the_schedule(total, n, beta, gamma):
    schedule = Schedule.sad(total, n, beta, gamma, sample_rate=0.1)
    sigmas, lengths = levels(schedule)
    mean, variance = printed.weighted_mean_and_variance(lengths, sigmas)
    assert mean == pytest.approx(schedule.noise_multipliers.mean(), rel=1e-5)
    assert variance == pytest.approx(schedule.noise_multipliers.var(), rel=1e-4, abs=1e-9)
    assert printed.mean_and_variance(lengths, sigmas)[0] == pytest.approx(mean * total / n)


def test_printed_mean_and_variance_by_hand():
    assert printed.mean_and_variance([1.0, 3.0], [1.0, 5.0]) == (8.0, 7.0**2 + 3 * 3.0**2)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_lemma_1_is_above_the_exact_epsilon_and_not_far(mu):
    bound, exact = printed.epsilon_of_sum([1 / mu], 1e-5), gaussian_epsilon(1e-5, mu)
    assert exact < bound < 1.11 * exact


def test_the_sum_over_iterations_agrees_with_an_accountant_and_the_sum_over_stages_does_not():
    schedule = Schedule.sad(90, 3, 0.8, 0.9, sample_rate=1.0, sigma_final=30.0)
    exact = schedule.epsilon(DELTA)
    assert exact < printed.epsilon_of_sum(schedule.noise_multipliers, DELTA) < 1.3 * exact
    stages = np.unique(schedule.noise_multipliers)
    assert printed.epsilon_of_sum(stages, DELTA) < 0.3 * exact


@pytest.mark.parametrize("epsilon", [0.3, 3.0, 16.0])
def test_the_factor_meets_the_printed_total_and_not_much_better(epsilon):
    sigmas = np.array([0.64, 0.8, 1.0])
    factor = printed.factor_for_sum(sigmas, epsilon, DELTA)
    assert printed.epsilon_of_sum(factor * sigmas, DELTA) <= epsilon
    assert printed.epsilon_of_sum(0.999 * factor * sigmas, DELTA) > epsilon


def test_noise_calibrated_by_stages_breaks_the_promise_where_every_record_is_used():
    """The released model of a run of 3,000 full batches, with the noise that the printed total asks for."""
    sigma = printed.factor_for_sum([1.0, 1.0, 1.0], 3.0, DELTA)
    run = SelfComposedDpEvent(GaussianDpEvent(sigma), 3000)
    assert event_epsilon(run, DELTA, REPLACE_ONE) > 300


@pytest.mark.parametrize("epsilon_of", [printed.fixed_batches_epsilon, printed.replaced_epsilon])
def test_full_batches_are_two_gaussians_two_apart(epsilon_of):
    plan = Schedule.step([1, 3], [4.0, 6.0], [1.0, 1.0], sample_rate=1.0)
    exact = gaussian_epsilon(1e-5, 2 * np.sqrt(1 / 4**2 + 3 / 6**2))
    assert epsilon_of(plan, 1e-5, interval=1e-3) == pytest.approx(exact, rel=0.02)


def test_the_bound_for_fixed_batches_is_a_lower_bound_and_close():
    plan = Schedule.step([50, 100], [1.0, 1.5], [1.0, 1.0], sample_rate=0.02)
    exact = plan.scaled(0.5).epsilon(1e-5, interval=1e-4)  # the pair's own, rounded up
    assert 0.97 * exact < printed.fixed_batches_epsilon(plan, 1e-5, interval=1e-4) <= exact


def test_fixed_batches_of_explicit_records_have_the_law_of_the_pair():
    """All records pull down but one, which is added or takes the place of another; a batch is two of four records."""
    pulls, rng = np.array([-1, -1, -1, 1]), np.random.default_rng(0)
    sums = np.array([pulls[rng.permutation(4)[:2]].sum() for _ in range(4000)])
    assert set(sums.tolist()) == {-2, 0}  # without that record always -2
    assert np.mean(sums == 0) == pytest.approx(2 / 4, abs=0.03)


def test_replaced_records_cost_more_and_noise_for_two_norms_is_enough():
    plan = Schedule.constant(200, sample_rate=0.02)
    added, replaced = plan.epsilon(1e-5), printed.replaced_epsilon(plan, 1e-5)
    assert 1.3 * added < replaced < printed.fixed_batches_epsilon(plan, 1e-5)
    # A distance of one Gaussian mechanism between the central limits with and without the mirror image.
    assert replaced < gaussian_epsilon(1e-5, 2 * 0.02 * np.sqrt(200 * np.expm1(1.0)))
    assert printed.replaced_epsilon(plan.scaled(2.0), 1e-5) < added


def test_published_code_divides_where_its_accountant_multiplies():
    run = printed.implemented("sad", steps_per_epoch=2, sample_rate=0.016)
    assert levels(run.accounted) == ([1.0], [100])
    assert levels(run.executed) == ([1.0, 1.25, 1.5625], [28, 34, 38])
    run = printed.implemented("auto-s", steps_per_epoch=1, sample_rate=0.016, gamma=0.8)
    assert levels(run.accounted) == ([0.64, 0.8, 1.0], [13, 17, 20])
    assert levels(run.executed) == ([1.0, 1.25, 1.5625], [16, 17, 17])


def test_auto_schedules_fall_by_epochs_and_by_equal_stages():
    by_epoch = printed.auto_l(7, 0.5, 3, sample_rate=0.1)
    assert by_epoch.noise_multipliers.tolist() == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    by_stage = printed.auto_s(7, 0.5, 3, sample_rate=0.1)
    assert by_stage.noise_multipliers.tolist() == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert by_epoch.clip_norms.tolist() == by_stage.clip_norms.tolist() == [1.0] * 7
    with pytest.raises(ValueError, match="lengths must"):
        printed.auto_s(2, 0.8, 3, sample_rate=0.1)  # a stage of no steps
