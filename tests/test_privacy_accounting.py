"""Curves against integrals, composition theorems against enumeration, accountants against closed forms."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, ZCDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erfcx
from scipy.stats import laplace as laplace_distribution
from scipy.stats import norm

from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    ApproximateDpEvent,
    advanced_composition,
    event_delta,
    event_epsilon,
    event_supported,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    group_delta,
    laplace_delta,
    optimal_composition,
    optimal_delta,
)
from helpers.privacy.accounting import laplace_epsilon

epsilons = st.floats(0.01, 3.0)
deltas = st.floats(1e-9, 0.3)


def hockey_stick(density, other, epsilon, low, high):
    """Integral of (p - e^epsilon q)_+ over [low, high] by quadrature."""
    return quad(lambda x: max(density(x) - math.exp(epsilon) * other(x), 0.0), low, high, limit=400, epsabs=1e-13)[0]


# Curves


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_gaussian_delta_is_the_integral_of_the_hockey_stick(epsilon, mu):
    crossing = epsilon / mu + mu / 2
    expected = hockey_stick(norm(mu).pdf, norm(0).pdf, epsilon, crossing, mu + 12)
    assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize(("epsilon", "mu"), [(1000.0, 40.0), (50.0, 2.0), (30.0, 1.0), (0.03, 0.001)])
def test_gaussian_delta_keeps_its_digits_in_the_tails(epsilon, mu):
    """The naive difference underflows or cancels here; Mills ratios give a second stable formula."""
    x = epsilon / mu
    mills = [math.sqrt(math.pi / 2) * erfcx((x + shift) / math.sqrt(2)) for shift in (-mu / 2, mu / 2)]
    expected = norm.pdf(x - mu / 2) * (mills[0] - mills[1])
    assert 0 < expected < 1e-3
    assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-7)


@given(epsilon=epsilons, delta=deltas)
def test_gaussian_calibration_hits_its_target(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-7)
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, abs=1e-7)


def test_gaussian_curves_at_the_ends():
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_epsilon(0.5, 0.0) == 0.0
    assert gaussian_epsilon(0.0, 1.0) == math.inf
    assert gaussian_epsilon(1.0, 1.0) == 0.0
    assert gaussian_delta(0.0, 200.0) == 1.0


@pytest.mark.parametrize("epsilon", [1e4, 1e8, 1e12])
@pytest.mark.parametrize("delta", [1e-6, 0.999])
def test_calibration_at_a_huge_epsilon_is_as_exact(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-7)
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-10)


@pytest.mark.parametrize("pure_epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_laplace_delta_is_the_integral_of_the_hockey_stick(pure_epsilon, share):
    epsilon = share * pure_epsilon
    shifted, centred = laplace_distribution(pure_epsilon).pdf, laplace_distribution(0).pdf
    pieces = [-60.0, 0.0, (pure_epsilon + epsilon) / 2, pure_epsilon, pure_epsilon + 60.0]
    expected = sum(hockey_stick(shifted, centred, epsilon, low, high) for low, high in itertools.pairwise(pieces))
    assert laplace_delta(epsilon, pure_epsilon) == pytest.approx(expected, rel=1e-8)
    assert laplace_epsilon(expected, pure_epsilon) == pytest.approx(epsilon, abs=1e-7)


def test_laplace_is_pure_from_its_epsilon_on():
    assert laplace_delta(1.0, 1.0) == 0.0
    assert laplace_delta(2.0, 1.0) == 0.0
    assert math.copysign(1.0, laplace_delta(2.0, 1.0)) == 1.0
    assert laplace_delta(0.999, 1.0) > 0.0
    assert laplace_epsilon(0.0, 1.0) == 1.0
    assert laplace_epsilon(1.0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gaussian_delta(-0.1, 1.0), "epsilon"),
        (lambda: gaussian_delta(1.0, math.nan), "mu"),
        (lambda: gaussian_epsilon(1.5, 1.0), "delta"),
        (lambda: gaussian_mu(1.0, 0.0), "delta"),
        (lambda: laplace_delta(1.0, -1.0), "pure_epsilon"),
        (lambda: group_delta(1.0, 1e-5, 0), "size"),
        (lambda: advanced_composition(1.0, 0.0, 10, 0.0), "delta_slack"),
        (lambda: optimal_composition(1.0, 2.5, 1e-5), "count"),
        (lambda: optimal_delta(math.inf, 1.0, 2), "total_epsilon"),
        (lambda: event_epsilon(GaussianDpEvent(1.0), 1e-5, ADD_REMOVE, method="gdp"), "method"),
        (lambda: event_epsilon(GaussianDpEvent(1.0), 1e-5, NeighboringRelation.REPLACE_SPECIAL), "neighbouring"),
        (lambda: event_epsilon(GaussianDpEvent(1.0), 1e-5, ADD_REMOVE, interval=0.0), "interval"),
    ],
)
def test_bad_parameters_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        call()


# Group privacy


@given(epsilon=epsilons, delta=deltas, size=st.integers(1, 12))
def test_group_delta_is_the_geometric_sum(epsilon, delta, size):
    total = math.fsum(delta * math.exp(step * epsilon) for step in range(size))
    assert group_delta(epsilon, delta, size) == pytest.approx(min(total, 1.0), rel=1e-9)


def test_group_delta_at_the_ends():
    assert group_delta(0.0, 1e-3, 7) == pytest.approx(7e-3)
    assert group_delta(1e-9, 1e-3, 7) == pytest.approx(7e-3)
    assert group_delta(500.0, 0.0, 1000) == 0.0
    assert group_delta(500.0, 1e-300, 1000) == 1.0


@st.composite
def chains(draw):
    """Output distributions of one mechanism on data sets D_0, ..., D_g, each the neighbour of the next."""
    outputs, size = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    weights = [[draw(st.integers(1, 40)) for _ in range(outputs)] for _ in range(size + 1)]
    return np.array(weights, dtype=float) / np.sum(weights, axis=1, keepdims=True)


def divergence(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@given(chain=chains(), epsilon=st.floats(0.0, 1.0))
def test_group_delta_covers_every_finite_mechanism(chain, epsilon):
    delta = max(divergence(p, q, epsilon) for p, q in itertools.pairwise(chain))
    size = len(chain) - 1
    assert divergence(chain[0], chain[-1], size * epsilon) <= group_delta(epsilon, delta, size) + 1e-12


# Composition theorems


def responses(epsilon, delta_each):
    """The worst pair of output distributions: randomised response with two open failures."""
    truth, lie = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    p = np.array([delta_each, (1 - delta_each) * truth, (1 - delta_each) * lie, 0.0])
    return p, p[::-1]


def enumerated_delta(total_epsilon, epsilon, count, delta_each):
    """Hockey-stick divergence over all 4^count outputs."""
    p, q = responses(epsilon, delta_each)
    outputs = np.array(list(itertools.product(range(4), repeat=count)))
    return divergence(p[outputs].prod(axis=1), q[outputs].prod(axis=1), total_epsilon)


@pytest.mark.parametrize("delta_each", [0.0, 0.02])
@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 1), (0.3, 5), (1.2, 4), (0.05, 6)])
def test_optimal_composition_is_that_of_randomised_responses(epsilon, count, delta_each):
    for share in (0.0, 0.21, 0.5, 0.83, 1.0):
        total = share * count * epsilon
        expected = enumerated_delta(total, epsilon, count, delta_each)
        assert optimal_delta(total, epsilon, count, delta_each=delta_each) == pytest.approx(expected, abs=1e-13)
        if expected > 1e-3 and 0 < share < 1:
            found, _ = optimal_composition(epsilon, count, expected, delta_each=delta_each)
            assert found <= total + 1e-9
            assert enumerated_delta(found, epsilon, count, delta_each) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("steps", [0, 1, 7, 20])
def test_optimal_delta_at_the_theorems_breakpoints(steps):
    epsilon, count = 0.2, 40
    terms = (
        math.comb(count, i) * (math.exp((count - i) * epsilon) - math.exp((count - 2 * steps + i) * epsilon))
        for i in range(steps)
    )
    expected = math.fsum(terms) / (1 + math.exp(epsilon)) ** count
    assert optimal_delta((count - 2 * steps) * epsilon, epsilon, count) == pytest.approx(expected, rel=1e-9)


@given(epsilon=st.floats(0.01, 1.5), count=st.integers(1, 200), slack=st.floats(1e-9, 0.1))
def test_optimal_composition_is_never_worse_than_basic_or_advanced(epsilon, count, slack):
    optimal, _ = optimal_composition(epsilon, count, slack)
    assert optimal <= count * epsilon * (1 + 1e-12)
    assert optimal <= advanced_composition(epsilon, 0.0, count, slack)[0]


@given(epsilon=st.floats(0.01, 1.0), count=st.integers(1, 60), each=st.floats(0, 1e-4), slack=st.floats(1e-7, 0.05))
def test_optimal_composition_is_never_worse_than_advanced_for_approximate_mechanisms(epsilon, count, each, slack):
    advanced, total = advanced_composition(epsilon, each, count, slack)
    assert optimal_composition(epsilon, count, total, delta_each=each)[0] <= advanced


def test_optimal_composition_at_the_ends():
    assert optimal_composition(0.5, 4, 0.0) == (pytest.approx(2.0), 0.0)
    assert optimal_composition(0.5, 4, 1.0)[0] == 0.0
    assert optimal_composition(0.5, 4, 0.01, delta_each=0.01)[0] == math.inf
    assert optimal_composition(0.0, 4, 0.0)[0] == 0.0


@pytest.mark.parametrize("count", [5, 10, 20])
def test_advanced_composition_loses_to_basic_for_few_mechanisms(count):
    assert advanced_composition(0.5 / count, 0.0, count, 1e-5)[0] > 0.5


def test_advanced_composition_wins_for_many():
    epsilon, delta = advanced_composition(0.01, 1e-9, 10_000, 1e-6)
    drift = 10_000 * 0.01 * (math.exp(0.01) - 1)
    assert epsilon == pytest.approx(math.sqrt(2 * 10_000 * math.log(1e6)) * 0.01 + drift)
    assert epsilon < 100
    assert delta == pytest.approx(1.1e-5)


# Events


def test_gaussian_events_compose_in_closed_form_like_the_pld():
    event = ComposedDpEvent((SelfComposedDpEvent(GaussianDpEvent(5.0), 9), GaussianDpEvent(1.25), NoOpDpEvent()))
    closed = event_epsilon(event, 1e-5, ADD_REMOVE)
    assert closed == pytest.approx(gaussian_epsilon(1e-5, 1.0))
    assert PLDAccountant().compose(event).get_epsilon(1e-5) == pytest.approx(closed, abs=1e-3)
    assert event_delta(event, 1.0, ADD_REMOVE) == pytest.approx(gaussian_delta(1.0, 1.0))


@pytest.mark.parametrize(
    "event", [GaussianDpEvent(2.0), LaplaceDpEvent(0.7), SelfComposedDpEvent(LaplaceDpEvent(4.0), 5)]
)
@pytest.mark.parametrize("method", ["pld", "rdp"])
def test_multipliers_are_relative_to_the_sensitivity_of_either_relation(event, method):
    costs = {event_epsilon(event, 1e-5, relation, method=method) for relation in (ADD_REMOVE, REPLACE_ONE)}
    assert len(costs) == 1


def test_mixed_events_account_alike_under_both_relations():
    """dp-accounting's own PLD accountant would double the Gaussian's sensitivity and refuse the Laplace event."""
    event = ComposedDpEvent((GaussianDpEvent(2.0), LaplaceDpEvent(1.0), DiscreteLaplaceDpEvent(0.5, 1)))
    expected = PLDAccountant().compose(event).get_epsilon(1e-5)
    assert event_epsilon(event, 1e-5, REPLACE_ONE) == pytest.approx(expected, rel=1e-12)
    doubled = PLDAccountant(REPLACE_ONE).compose(GaussianDpEvent(2.0)).get_epsilon(1e-5)
    assert doubled == pytest.approx(gaussian_epsilon(1e-5, 1.0), abs=1e-3)


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize(("epsilon", "delta_each", "count"), [(0.1, 0.0, 50), (1.0, 0.0, 3), (0.2, 1e-4, 20)])
def test_unknown_mechanisms_account_like_optimal_composition(relation, epsilon, delta_each, count):
    event = SelfComposedDpEvent(ApproximateDpEvent(epsilon, delta_each), count)
    target = 1e-5 + count * delta_each
    exact, _ = optimal_composition(epsilon, count, target, delta_each=delta_each)
    found = event_epsilon(event, target, relation)
    assert exact - 1e-6 <= found <= exact + 2e-4 * count
    assert event_delta(event, exact, relation) >= target * (1 - 1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_renyi_divergence_of_a_pure_mechanism_is_that_of_randomised_response(epsilon):
    response = RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2)
    expected = RdpAccountant(neighboring_relation=REPLACE_ONE).compose(response, 12).get_epsilon(1e-5)
    event = SelfComposedDpEvent(ApproximateDpEvent(epsilon, 0.0), 12)
    for relation in (ADD_REMOVE, REPLACE_ONE):
        assert event_epsilon(event, 1e-5, relation, method="rdp") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("event", "relation", "method"),
    [
        (ApproximateDpEvent(1.0, 1e-6), ADD_REMOVE, "rdp"),
        (PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)), REPLACE_ONE, "pld"),
        (PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)), REPLACE_ONE, "rdp"),
        (PoissonSampledDpEvent(0.1, ApproximateDpEvent(1.0, 0.0)), ADD_REMOVE, "pld"),
        (RandomizedResponseDpEvent(0.5, 2), ADD_REMOVE, "pld"),
        (RandomizedResponseDpEvent(0.5, 2), REPLACE_ONE, "pld"),  # whose count dp-accounting 0.6 ignores
    ],
)
def test_unsupported_events_are_refused(event, relation, method):
    assert not event_supported(event, relation, method=method)
    with pytest.raises(ValueError, match=r"^event must be one that"):
        event_epsilon(SelfComposedDpEvent(event, 3), 1e-5, relation, method=method)
    if method == "pld":
        with pytest.raises(ValueError, match=r"^event must be one that"):
            event_delta(event, 1.0, relation)


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_renyi_accounting_reads_integer_noise_as_a_pure_release(relation):
    """It is one; so counts and zero-concentrated steps have one accountant."""
    steps, counts = SelfComposedDpEvent(ZCDpEvent(0.01), 3), DiscreteLaplaceDpEvent(0.15, 2)
    found = [
        event_epsilon(ComposedDpEvent([steps, one]), 1e-6, relation, method="rdp")
        for one in (counts, ApproximateDpEvent(0.3, 0.0), NoOpDpEvent())
    ]
    assert found[0] == found[1]
    assert found[2] < found[0] < found[2] + 0.3


def test_non_private_events_cost_everything():
    for event in (NonPrivateDpEvent(), GaussianDpEvent(0.0), LaplaceDpEvent(0.0)):
        assert event_epsilon(event, 1e-5, REPLACE_ONE) == math.inf
        assert event_delta(event, 10.0, ADD_REMOVE) == 1.0


@pytest.mark.parametrize(("rate", "epsilon"), [(0.05, 0.1), (0.3, 0.6)])
def test_a_poisson_sampled_gaussian_step_matches_its_mixture(rate, epsilon):
    """Removing a record turns the mixture into the plain Gaussian, whose hockey stick is a rescaled one."""
    shifted = math.log1p(math.expm1(epsilon) / rate)
    expected = rate * gaussian_delta(shifted, 1.0)
    found = event_delta(PoissonSampledDpEvent(rate, GaussianDpEvent(1.0)), epsilon, ADD_REMOVE)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("noise", "rate", "count", "interval"),
    [(0.8, 0.01, 1, 1e-3), (3.0, 0.2, 40, 1e-3), (0.3, 0.5, 2, 1e-2), (0.04, 0.9, 1, 0.1), (0.02, 1e-3, 1, 0.1),
     (1.0, 1e-6, 5, 1e-4), (1.0, 0.9999999, 3, 1e-3), (500.0, 0.3, 9, 1e-4)],
)  # fmt: skip
def test_sampled_gaussian_steps_are_those_of_the_library(noise, rate, count, interval):
    """In both directions, from almost no noise to almost no loss, at every delta."""
    event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)
    library = PLDAccountant(ADD_REMOVE, value_discretization_interval=interval).compose(event)
    for delta in (1e-2, 1e-5, 1e-9):
        assert event_epsilon(event, delta, ADD_REMOVE, interval=interval) == pytest.approx(
            library.get_epsilon(delta), rel=1e-6, abs=1e-9
        )


@settings(max_examples=12)  # each composes up to 34 distributions of the privacy loss
@given(noise=st.floats(1.0, 8.0), scale=st.floats(1.0, 10.0), count=st.integers(1, 30), pure=st.floats(0.01, 0.4))
def test_pld_is_never_worse_than_rdp(noise, scale, count, pure):
    event = ComposedDpEvent(
        (
            SelfComposedDpEvent(GaussianDpEvent(noise), count),
            LaplaceDpEvent(scale),
            SelfComposedDpEvent(ApproximateDpEvent(pure, 0.0), 3),
        )
    )
    costs = [event_epsilon(event, 1e-6, ADD_REMOVE, method=method, interval=1e-3) for method in ("pld", "rdp")]
    assert costs[0] <= costs[1] + 1e-2


def test_a_vector_laplace_release_is_covered_by_one_laplace_event():
    """Splitting an l1 shift over coordinates never costs more than the whole shift on one."""
    for total, share in itertools.product((0.5, 2.0, 4.0), (0.1, 0.5)):
        split = ComposedDpEvent((LaplaceDpEvent(1 / (share * total)), LaplaceDpEvent(1 / ((1 - share) * total))))
        for epsilon in np.linspace(0, 0.95 * total, 7):
            assert event_delta(split, float(epsilon), ADD_REMOVE) <= laplace_delta(float(epsilon), total) + 1e-7


def test_curves_of_many_distances_at_once():
    """An array of distances gives the numbers that its entries give, equal data sets and far ones included."""
    distances = np.array([0.0, 1e-9, 0.3, 1.0, 40.0])
    for curve in (gaussian_delta, laplace_delta):
        for epsilon in (0.0, 0.5, 30.0):
            assert curve(epsilon, distances).tolist() == [curve(epsilon, d) for d in distances.tolist()]
            assert isinstance(curve(epsilon, 1.0), float)
        for bad in ([1.0, -1.0], [math.nan], [math.inf, 1.0]):
            with pytest.raises(ValueError, match=r"must hold finite numbers in \[0, inf\)"):
                curve(1.0, np.array(bad))
