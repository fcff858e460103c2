"""One schedule for noise, accounting and calibration: lengths, events, budgets."""

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.neural import Schedule, schedule
from helpers.privacy import ADD_REMOVE, ApproximateDpEvent, event_epsilon, gaussian_epsilon, gaussian_mu

DELTA = 1e-5


def stages(values) -> tuple[np.ndarray, np.ndarray]:
    """Values in order of appearance and how often each stands there, for stages that all differ."""
    starts = np.flatnonzero(np.r_[True, np.diff(values) != 0])
    return values[starts], np.diff(np.r_[starts, len(values)])


@given(st.integers(1, 500), st.integers(1, 6), st.floats(0.3, 0.95), st.floats(0.3, 1.0), st.floats(1.01, 3.0))
def test_sad_follows_its_recurrences_and_its_lengths_sum_to_the_total(total, n, beta, gamma, decay):
    assume(total * gamma ** (n - 1) / n >= 1)
    schedule = Schedule.sad(total, n, beta, gamma, decay, sample_rate=0.1, sigma_final=2.0)
    sigma, lengths = stages(schedule.noise_multipliers)
    clip, same = stages(schedule.clip_norms)
    assert len(schedule) == total
    assert lengths.tolist() == same.tolist()
    assert len(sigma) == n
    np.testing.assert_allclose(sigma[:-1], beta * sigma[1:])
    np.testing.assert_allclose(clip[:-1], decay * clip[1:])
    assert (sigma[-1], clip[-1]) == (2.0, 1.0)
    exact = gamma ** np.arange(n - 1, -1, -1.0)
    ends = total * np.cumsum(exact) / exact.sum()
    assert np.abs(np.cumsum(lengths) - ends).max() <= 0.5 + 1e-9


def test_the_event_is_the_composition_of_every_step():
    """Renyi divergences of single steps, summed one by one, against those of the counted event."""
    schedule = Schedule([1.0, 2.0, 1.0, 1.0], [9.0, 1.0, 5.0, 2.0], [0.5, 0.1, 0.5, 1.0])
    steps = zip(schedule.noise_multipliers, schedule.sample_rates, strict=True)
    one_by_one = ComposedDpEvent([PoissonSampledDpEvent(q, GaussianDpEvent(sigma)) for sigma, q in steps])
    expected = RdpAccountant(neighboring_relation=ADD_REMOVE).compose(one_by_one).get_epsilon(DELTA)
    assert schedule.epsilon(DELTA, accountant="rdp") == pytest.approx(expected, rel=1e-9)
    assert len(schedule.event().events) == 3  # two equal steps are counted although they stand apart
    assert schedule.reversed().event() == schedule.event()
    assert schedule.reversed().noise_multipliers.tolist() == [1.0, 1.0, 2.0, 1.0]
    assert schedule.reversed().clip_norms.tolist() == [2.0, 5.0, 1.0, 9.0]


def test_the_guarantee_names_relation_delta_and_what_is_public():
    guarantee = Schedule.constant(20, sample_rate=0.05).guarantee(DELTA, assumes=["labels public"])
    assert guarantee.neighbouring is ADD_REMOVE
    assert guarantee.delta == DELTA
    assert {"schedule public", "secret sample", "labels public"} <= set(guarantee.assumes)
    assert guarantee.epsilon == pytest.approx(1.985, abs=2e-3)  # dp-accounting's PLD; PRV gives 1.995, RDP 2.481
    whole = Schedule.constant(20, sample_rate=1.0).guarantee(DELTA)
    assert "secret sample" not in whole.assumes


def test_long_schedules_have_a_smaller_bound_by_renyi_accounting_on_a_coarse_grid():
    long, way = Schedule.constant(200_000, sample_rate=1e-4, noise_multiplier=1.0), {"interval": 1e-2}
    assert long.epsilon(DELTA, accountant="rdp", **way) < 0.7 * long.epsilon(DELTA, **way)
    assert "Renyi" in long.guarantee(DELTA, accountant="rdp", **way).source


@pytest.mark.parametrize(
    ("schedule", "epsilon", "accountant"),
    [
        (Schedule.constant(300, sample_rate=0.02), 1.0, "pld"),
        (Schedule.constant(300, sample_rate=0.02, noise_multiplier=50.0), 8.0, "rdp"),
        (Schedule.sad(60, 3, 0.8, 0.9, 1.5, sample_rate=0.1), 3.0, "pld"),
        (Schedule.constant(5, sample_rate=1.0, noise_multiplier=1e-3), 0.1, "pld"),
    ],
    ids=["constant-pld", "constant-rdp", "sad", "full-batch"],
)
def test_calibration_meets_the_budget_and_not_much_better(schedule, epsilon, accountant):
    way = {"accountant": accountant, "interval": 5e-3}
    calibrated = schedule.calibrate(epsilon, DELTA, **way)
    assert calibrated.guarantee(DELTA, **way).epsilon <= epsilon
    assert calibrated.scaled(0.999).epsilon(DELTA, **way) > epsilon
    ratio = calibrated.noise_multipliers / schedule.noise_multipliers
    np.testing.assert_allclose(ratio, ratio[0])
    assert np.array_equal(calibrated.clip_norms, schedule.clip_norms)
    assert np.array_equal(calibrated.sample_rates, schedule.sample_rates)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 3.0, 8.0, 20.0])
@pytest.mark.parametrize(
    "schedule", [Schedule.sad(9, 3, 0.8, 1.0, sample_rate=1.0), Schedule.constant(7, sample_rate=1.0)]
)
def test_calibration_of_full_batches_is_exact(schedule, epsilon):
    """One Gaussian mechanism in disguise, whose multiplier is known."""
    calibrated = schedule.calibrate(epsilon, DELTA)
    mu = np.sqrt(np.sum(calibrated.noise_multipliers**-2.0))
    assert mu == pytest.approx(gaussian_mu(epsilon, DELTA), rel=1e-4)
    assert mu <= gaussian_mu(epsilon, DELTA) * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "epsilon"), [(0.016, 3.0), (0.016, 0.3), (0.3, 8.0)])
def test_calibration_asks_the_accountant_few_times(monkeypatch, rate, epsilon):
    """An accountant takes seconds for a long schedule; bisection alone would ask it some twenty times."""
    asked, epsilon_of = [], Schedule.epsilon
    monkeypatch.setattr(Schedule, "epsilon", lambda self, *a, **k: asked.append(1) or epsilon_of(self, *a, **k))
    Schedule.sad(50, 3, 0.8, 0.9, sample_rate=rate).calibrate(epsilon, DELTA, accountant="rdp")
    assert len(asked) <= 14


def test_full_batches_of_many_levels_are_one_gaussian_mechanism():
    schedule = Schedule(np.geomspace(20.0, 60.0, 300), np.ones(300), np.ones(300))
    mu = np.sqrt(np.sum(schedule.noise_multipliers**-2.0))
    assert schedule.epsilon(DELTA) == pytest.approx(gaussian_epsilon(DELTA, mu), rel=1e-12)
    assert len(schedule.guarantee(DELTA).event.events) == 300


@pytest.mark.parametrize(("accountant", "of_library"), [("pld", PLDAccountant), ("rdp", RdpAccountant)])
def test_many_levels_are_composed_as_they_are(accountant, of_library):
    """90 different steps, by the library's own accountant, which is asked about one step after the other."""
    schedule = Schedule(np.geomspace(0.9, 3.0, 90), np.ones(90), np.full(90, 0.02))
    way = {"value_discretization_interval": 1e-3} if accountant == "pld" else {}
    one_by_one = of_library(ADD_REMOVE, **way) if way else of_library(neighboring_relation=ADD_REMOVE)
    for sigma in schedule.noise_multipliers.tolist():
        one_by_one.compose(PoissonSampledDpEvent(0.02, GaussianDpEvent(sigma)))
    epsilon = schedule.epsilon(DELTA, accountant=accountant)
    assert epsilon == pytest.approx(one_by_one.get_epsilon(DELTA), rel=1e-6)
    if accountant == "pld":  # the grid of losses is rounded up, which costs far less than a thousandth
        assert schedule.epsilon(DELTA, interval=2.5e-4) <= epsilon <= 1.001 * schedule.epsilon(DELTA, interval=2.5e-4)


# One budget for more than the steps


COUNTS = DiscreteLaplaceDpEvent(0.3, 1)
BESIDE = (COUNTS, GaussianDpEvent(7.0))


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_is_beside_is_composed_by_the_same_accountant(accountant):
    steps = Schedule.sad(6, 2, 0.5, 1.0, sample_rate=0.3, sigma_final=4.0)
    way = {"accountant": accountant, "interval": 1e-3}
    event = ComposedDpEvent((*BESIDE, steps.event()))
    expected = event_epsilon(event, DELTA, ADD_REMOVE, method=accountant, interval=1e-3)
    assert steps.epsilon(DELTA, beside=iter(BESIDE), **way) == expected
    told = steps.guarantee(DELTA, beside=iter(BESIDE), **way)
    assert (told.epsilon, told.event) == (expected, event)
    assert told.source.endswith(f"{len(BESIDE)} releases beside them")
    assert steps.epsilon(DELTA, **way) < expected - 0.05


def test_renyi_accounting_has_nothing_for_approximate_privacy():
    steps, beside = Schedule.constant(20, sample_rate=0.1, noise_multiplier=3.0), [ApproximateDpEvent(0.1, 1e-7)]
    assert steps.epsilon(DELTA, beside=beside) > 0.1
    with pytest.raises(ValueError, match="approximate DP"):
        steps.epsilon(DELTA, accountant="rdp", beside=beside)


def test_calibration_leaves_room_for_what_is_beside():
    steps, way = Schedule.constant(40, sample_rate=0.1), {"accountant": "pld", "interval": 2e-3}
    alone, together = steps.calibrate(1.0, DELTA, **way), steps.calibrate(1.0, DELTA, beside=BESIDE, **way)
    event = ComposedDpEvent((*BESIDE, together.event()))
    assert 0.999 < event_epsilon(event, DELTA, ADD_REMOVE, interval=2e-3) <= 1.0
    assert together.noise_multipliers[0] > 1.05 * alone.noise_multipliers[0]
    with pytest.raises(ValueError, match="epsilon must be within reach"):
        steps.calibrate(0.2, DELTA, beside=BESIDE, **way)


def test_an_accountant_is_asked_once_in_a_process(monkeypatch):
    """By the numbers that it reads, not by the object: audits train hundreds of times by one schedule."""
    steps = Schedule.constant(3, sample_rate=0.5, noise_multiplier=2.125)
    first = steps.epsilon(1e-3, beside=BESIDE)
    monkeypatch.setattr(schedule, "event_epsilon", None)
    again = Schedule.constant(3, sample_rate=0.5, noise_multiplier=2.125, clip_norm=9.0)
    assert again.guarantee(1e-3, beside=list(BESIDE)).epsilon == first
    for other, way in (
        (steps, {"delta": 1e-4, "beside": BESIDE}),
        (steps, {"delta": 1e-3, "beside": BESIDE[:1]}),
        (steps, {"delta": 1e-3, "beside": BESIDE, "interval": 1e-2}),
        (steps.scaled(1.01), {"delta": 1e-3, "beside": BESIDE}),
    ):
        with pytest.raises(TypeError):
            other.epsilon(**way)


def test_the_unreachable_is_refused():
    schedule = Schedule.constant(1000, sample_rate=0.5)
    with pytest.raises(ValueError, match="epsilon must be within reach"):
        schedule.calibrate(1e-6, DELTA, accountant="pld", interval=0.1)


def test_a_schedule_cannot_be_changed_afterwards():
    noise = np.ones(3)
    schedule = Schedule(noise, noise, noise / 2)
    noise[:] = 7
    assert schedule.noise_multipliers.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        schedule.noise_multipliers[0] = 2
    with pytest.raises(AttributeError):
        schedule.clip_norms = noise


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule([], [], []), "noise_multipliers must be a vector"),
        (lambda: Schedule([0.0], [1.0], [0.5]), "noise_multipliers must"),
        (lambda: Schedule([1.0], [np.nan], [0.5]), "clip_norms must"),
        (lambda: Schedule([1.0], [1.0], [1.5]), "sample_rates must"),
        (lambda: Schedule([1.0, 1.0], [1.0], [0.5]), "one length"),
        (lambda: Schedule.constant(0, sample_rate=0.5), "lengths must"),
        (lambda: Schedule.constant(5, sample_rate=0.0), "sample_rate must"),
        (lambda: Schedule.step([2, 3], [1.0], [1.0, 1.0], sample_rate=0.5), "noise_multipliers must have one number"),
        (lambda: Schedule.sad(2, 3, 0.8, 0.9, sample_rate=0.1), "n_stages must"),
        (lambda: Schedule.sad(10, 3, 1.2, 0.9, sample_rate=0.1), "beta must"),
        (lambda: Schedule.sad(10, 3, 0.0, 0.9, sample_rate=0.1), "beta must"),
        (lambda: Schedule.sad(10, 3, np.nan, 0.9, sample_rate=0.1), "beta must"),
        (lambda: Schedule.sad(10, 3, 0.8, 0.0, sample_rate=0.1), "gamma must"),
        (lambda: Schedule.sad(10, 3, 0.8, 1.1, sample_rate=0.1), "gamma must"),
        (lambda: Schedule.sad(10, 3, 0.8, 0.1, sample_rate=0.1), "no stage is empty"),
        (lambda: Schedule.sad(10, 3, 0.8, 0.9, 0.5, sample_rate=0.1), "clip_decay must"),
        (lambda: Schedule.constant(5, sample_rate=0.5).calibrate(1.0, 0.0), "delta must"),
        (lambda: Schedule.constant(5, sample_rate=0.5).calibrate(1.0, 1e-5, accountant="gdp"), "accountant must"),
        (lambda: Schedule.constant(5, sample_rate=0.5).epsilon(1e-5, beside=[0.1]), "beside must"),
        (lambda: Schedule.constant(5, sample_rate=0.5).epsilon(1e-5, interval=[0.1]), "interval must"),
        (lambda: Schedule.constant(5, sample_rate=0.5).scaled(0.0), "factor must"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
