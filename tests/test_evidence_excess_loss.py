"""Bounds on the risk of private empirical risk minimisation: closed forms, equality cases and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, gamma

from helpers.erm import LOGISTIC, minimize
from helpers.evidence import excess_loss as gen
from helpers.privacy import spherical_gamma

few = settings(max_examples=25, deadline=None, derandomize=True)
rates = st.floats(1e-3, 1e3)
failures = st.floats(1e-6, 0.4)


@few
@given(st.integers(1, 300), rates, failures)
def test_the_derived_norm_bound_is_the_quantile_and_the_printed_one_lies_above(dimension, rate, failure):
    derived = gen.noise_norm_bound(dimension, rate, failure)
    printed = gen.noise_norm_bound(dimension, rate, failure, method="printed")
    assert gamma.sf(derived, dimension, scale=1 / rate) == pytest.approx(failure, rel=1e-6)
    assert printed >= derived * (1 - 1e-12)


def test_the_printed_norm_bound_is_exact_in_one_dimension():
    # The norm of one-dimensional noise is exponential: P(X > log(1/delta)/rate) = delta.
    assert gen.noise_norm_bound(1, 2.0, 0.05, method="printed") == pytest.approx(gen.noise_norm_bound(1, 2.0, 0.05))


def empirical_risk(beta, rows, regularization):
    return np.mean(np.logaddexp(0, -rows @ beta)) + regularization / 2 * beta @ beta


@few
@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(0.01, 1), st.floats(0.05, 3), st.booleans())
def test_the_gap_is_within_its_bound_whenever_the_noise_is(seed, dimension, regularization, rate, on_output):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, dimension))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    noise = spherical_gamma(dimension, rate, rng)
    best = minimize(rows, LOGISTIC, regularization, np.zeros(dimension), distance=1e-10).beta
    if on_output:
        released = best + noise
    else:
        released = minimize(rows, LOGISTIC, regularization, noise / 30, distance=1e-10).beta
    # The failure probability at which this very noise is on the edge.
    failure = float(gamma.sf(np.linalg.norm(noise), dimension, scale=1 / rate))
    bound = gen.empirical_gap_bound(
        "output" if on_output else "objective",
        n_records=30,
        dimension=dimension,
        noise_rate=rate,
        regularization=regularization,
        failure=min(max(failure, 1e-12), 1 - 1e-12),
    )
    gap = empirical_risk(released, rows, regularization) - empirical_risk(best, rows, regularization)
    assert gap <= bound * (1 + 1e-6) + 1e-9


def test_the_gap_of_objective_perturbation_is_attained_by_empty_records():
    # With all features zero the objective is lambda/2 ||f||^2 + b'f/n, and its minimiser -b/(n lambda).
    size = dict(n_records=50, dimension=3, noise_rate=0.7, regularization=0.2, failure=0.1)
    norm = gen.noise_norm_bound(3, 0.7, 0.1)
    assert gen.empirical_gap_bound("objective", **size) == pytest.approx(0.2 / 2 * (norm / (50 * 0.2)) ** 2)


def test_printed_gaps_are_lemmas_3_and_5():
    n, d, lam, eps, failure, c = 500, 7, 0.03, 0.8, 0.05, 0.25
    log_term = d * math.log(d / failure)
    size = dict(n_records=n, dimension=d, regularization=lam, failure=failure, method="printed")
    output = gen.empirical_gap_bound("output", noise_rate=n * lam * eps / 2, **size)
    assert output == pytest.approx(2 * log_term**2 * (c + lam) / (lam * n * eps) ** 2)
    objective = gen.empirical_gap_bound("objective", noise_rate=eps / 2, **size)
    assert objective == pytest.approx(4 * log_term**2 / (lam * (n * eps) ** 2))


@pytest.mark.parametrize("mechanism", gen.MECHANISMS)
@pytest.mark.parametrize("method", gen.METHODS)
def test_more_records_never_make_the_bound_larger(mechanism, method):
    size = dict(dimension=5, regularization=0.01, comparator_norm=2.0, failure=0.05, method=method)

    def total(n):
        rate = n * 0.01 * 0.5 / 2 if mechanism == "output" else 0.25
        return gen.excess_loss_bound(mechanism, n_records=n, noise_rate=rate, **size).total

    totals = [total(int(n)) for n in np.geomspace(10, 1e9, 60)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(totals))
    assert totals[-1] == pytest.approx(0.01 * 4 / 2, rel=0.05)  # what is left is the penalty on the comparator


@pytest.mark.parametrize("mechanism", gen.MECHANISMS)
def test_the_excess_loss_is_within_the_bound(mechanism):
    """An exactly known distribution on four atoms; the bound must fail in at most 2 delta of the runs."""
    rng = np.random.default_rng(3)
    atoms = np.array([[0.6, 0.8], [-0.6, 0.8], [0.9, -0.1], [-0.5, -0.5]])
    mass = np.array([0.4, 0.3, 0.2, 0.1])
    n, lam, eps, failure = 400, 0.05, 1.0, 0.1

    def loss(beta):
        return mass @ np.logaddexp(0, -atoms @ beta)

    comparator = minimize(
        np.repeat(atoms, (mass * 100).astype(int), axis=0), LOGISTIC, 1e-2, np.zeros(2), distance=1e-10
    )
    rate = n * lam * eps / 2 if mechanism == "output" else eps / 2
    bound = gen.excess_loss_bound(
        mechanism,
        n_records=n,
        dimension=2,
        noise_rate=rate,
        regularization=lam,
        comparator_norm=np.linalg.norm(comparator.beta),
        failure=failure,
    )
    broken, runs = 0, 200
    for _ in range(runs):
        rows = atoms[rng.choice(4, size=n, p=mass)]
        noise = spherical_gamma(2, rate, rng)
        if mechanism == "output":
            beta = minimize(rows, LOGISTIC, lam, np.zeros(2), distance=1e-9).beta + noise
        else:
            beta = minimize(rows, LOGISTIC, lam, noise / n, distance=1e-9).beta
        broken += loss(beta) > loss(comparator.beta) + bound.total
    assert binomtest(broken, runs, 2 * failure, alternative="greater").pvalue > 1e-3


def test_the_derived_bound_needs_fewer_records_than_the_printed_one():
    size = dict(dimension=20, regularization=0.05 / 9, comparator_norm=3.0, failure=0.05)

    def needed(method):
        return gen.sample_size(
            lambda n: gen.excess_loss_bound("objective", n_records=n, noise_rate=0.25, method=method, **size).total,
            0.05,
        )

    assert needed("derived") < needed("printed") / 3


@pytest.mark.parametrize("mechanism", gen.MECHANISMS)
def test_the_derived_estimation_term_counts_its_shells(mechanism):
    n, d, lam, rate, failure, ratio = 10**6, 10, 1e-2, 0.5, 0.05, 1.25
    size = dict(n_records=n, dimension=d, noise_rate=rate, regularization=lam, comparator_norm=3.0, failure=failure)
    found = gen.excess_loss_bound(mechanism, **size)
    noise = gamma.isf(failure, d, scale=1 / rate)
    largest = 1 / lam + (noise if mechanism == "output" else noise / (n * lam))
    # Radii r^2/(lam sqrt(n)), r times that, ...: the last one is the first not below the largest norm.
    radius, shells = ratio**2 / (lam * math.sqrt(n)), 1
    while radius < largest:
        radius, shells = radius * ratio, shells + 1
    slope = 2 + math.sqrt(2 * math.log(2 * shells / failure))
    assert found.estimation == pytest.approx(ratio**2 * slope**2 / (2 * lam * n))
    assert found.sampling == pytest.approx(3.0 * math.sqrt(2 * math.log(2 / failure) / n))


@pytest.mark.parametrize(("constant", "suffices"), [(1509, False), (1510, True)])
def test_the_smallest_whole_constant_of_equation_42(constant, suffices):
    """With lambda = target/||f_0||^2, half of the target is the penalty's; the rest must cover the quoted constants."""
    target, norm, failure = 0.1, 2.0, 0.5 - 1e-9
    n = constant * norm**2 * math.log(1 / failure) / target**2
    lam = target / norm**2
    size = dict(dimension=1, noise_rate=1e6, regularization=lam, comparator_norm=norm, failure=failure)
    found = gen.excess_loss_bound("objective", n_records=10**9, method="printed", **size)
    assert found.regularization == pytest.approx(target / 2)
    assert (found.estimation * 10**9 / n <= target / 2) == suffices


def test_sample_size_is_the_first_to_reach_the_target():
    assert gen.sample_size(lambda n: math.inf if n < 777 else 0.1, 0.1) == 777
    with pytest.raises(ValueError, match="must reach target"):
        gen.sample_size(lambda n: 1.0, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "both"}, "mechanism"),
        ({"method": "guess"}, "method"),
        ({"failure": 0.5}, "failure"),
        ({"failure": 0.0}, "failure"),
        ({"noise_rate": 0.0}, "rate"),
        ({"regularization": -1.0}, "regularization"),
        ({"comparator_norm": 0.0}, "comparator_norm"),
        ({"dimension": 0}, "dimension"),
        ({"n_records": 0}, "n_records"),
        ({"curvature": 0.0}, "curvature"),
    ],
)
def test_bad_parameters_are_refused(change, message):
    good = dict(
        mechanism="output",
        n_records=10,
        dimension=2,
        noise_rate=1.0,
        regularization=0.1,
        comparator_norm=1.0,
        failure=0.1,
    )
    with pytest.raises(ValueError, match=message):
        gen.excess_loss_bound(**good | change)
