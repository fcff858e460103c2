"""Bounds on the risk of private empirical risk minimisation: closed forms, equality cases and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, gamma

from checks import sample_sizes as gen
from checks.noise_norm import METHODS, noise_norm_bound
from helpers.erm import LOGISTIC, minimize
from helpers.privacy import furthest, spherical_gamma

rates = st.floats(1e-3, 1e3)
failures = st.floats(1e-6, 0.4)


@given(st.integers(1, 300), rates, failures)
def test_the_derived_norm_bound_is_the_quantile_and_the_printed_one_lies_above(dimension, rate, failure):
    derived = noise_norm_bound(dimension, rate, failure)
    printed = noise_norm_bound(dimension, rate, failure, method="printed")
    assert gamma.sf(derived, dimension, scale=1 / rate) == pytest.approx(failure, rel=1e-6)
    assert printed >= derived * (1 - 1e-12)


def test_the_printed_norm_bound_is_exact_in_one_dimension():
    # The norm of one-dimensional noise is exponential: P(X > log(1/delta)/rate) = delta.
    assert noise_norm_bound(1, 2.0, 0.05, method="printed") == pytest.approx(noise_norm_bound(1, 2.0, 0.05))


def empirical_risk(beta, rows, regularization):
    return np.mean(np.logaddexp(0, -rows @ beta)) + regularization / 2 * beta @ beta


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
    norm = noise_norm_bound(3, 0.7, 0.1)
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
@pytest.mark.parametrize("method", METHODS)
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


def test_the_exact_quantile_needs_fewer_records_than_the_printed_one():
    size = dict(dimension=100, regularization=0.05 / 9, comparator_norm=3.0, failure=0.05)

    def needed(method):
        def bound(n):
            return gen.excess_loss_bound("objective", n_records=int(n), noise_rate=0.005, method=method, **size).total

        return furthest(lambda n: bound(n) <= 0.05, 10**15, 1, relative=1e-3)

    assert needed("derived") < needed("printed") / 3


def shell_bounds(failure, shells=200, ratio=1.25):
    """lambda n times what L may exceed risk + penalty by, shell after shell, at lambda = n = 1, by the definition."""
    slopes = [2 + math.sqrt(2 * math.log((j + 1) * (j + 2) / failure)) for j in range(shells)]
    radii = [ratio**2 * slopes[0] / 2 * ratio**j for j in range(shells)]
    inner = [0.0, *radii[:-1]]
    return [radius * slope - low**2 / 2 for radius, slope, low in zip(radii, slopes, inner, strict=True)]


@pytest.mark.parametrize("failure", [0.25, 0.05, 1e-6])
def test_the_estimation_error_is_that_of_the_worst_shell(failure):
    assert gen.estimation_error(failure) == pytest.approx(max(shell_bounds(failure)))
    assert sum(1 / ((j + 1) * (j + 2)) for j in range(10**5)) <= 1  # the shares of the failure


@pytest.mark.parametrize("mechanism", gen.MECHANISMS)
def test_the_bound_is_the_sum_of_its_parts(mechanism):
    n, lam, failure = 10**6, 1e-2, 0.05
    size = dict(n_records=n, dimension=10, noise_rate=0.5, regularization=lam, failure=failure)
    found = gen.excess_loss_bound(mechanism, **size, comparator_norm=3.0)
    assert found.noise == gen.empirical_gap_bound(mechanism, **size)
    assert found.estimation == pytest.approx(max(shell_bounds(failure / 2)) / (lam * n))
    assert found.sampling == pytest.approx(3.0 * math.sqrt(2 * math.log(2 / failure) / n))
    assert found.regularization == pytest.approx(lam * 9 / 2)


def test_the_sup_over_all_classifiers_is_within_the_estimation_error():
    """Three atoms in the plane, 400 samples of 60: the supremum by a grid of classifiers, in at most delta of them."""
    rng = np.random.default_rng(5)
    atoms, mass = np.array([[0.6, 0.8], [-1.0, 0.0], [0.3, -0.9]]), np.array([0.5, 0.3, 0.2])
    n, lam, failure = 60, 0.05, 0.3
    lengths, angles = np.geomspace(0.01, 100, 60), np.linspace(0, 2 * np.pi, 48, endpoint=False)
    beta = np.array([[a * math.cos(t), a * math.sin(t)] for a in lengths for t in angles])
    losses, penalty = np.logaddexp(0, -beta @ atoms.T), lam / 2 * np.sum(beta**2, axis=1)
    worst = [np.max(losses @ (mass - rng.multinomial(n, mass) / n) - penalty) * lam * n for _ in range(400)]
    assert np.quantile(worst, 1 - failure) <= gen.estimation_error(failure)
    assert max(worst) > 0


@given(
    st.sampled_from(gen.MECHANISMS),
    st.floats(1e-6, 0.4999),
    st.integers(1, 300),
    st.floats(0.01, 1),
    st.floats(1, 10),
    st.floats(0.05, 3),
    st.floats(0.1, 5),
)
def test_the_sufficient_constant_proves_the_theorems(mechanism, failure, d, target, norm, epsilon, c):
    log_term = d * math.log(d / failure)
    first, noise = norm**2 * math.log(1 / failure) / target**2, log_term * norm / (target * epsilon)
    third = (
        log_term * math.sqrt(c) * norm**2 / (target**1.5 * epsilon)
        if mechanism == "output"
        else c * norm**2 / (target * epsilon)
    )
    n = math.ceil(gen.sufficient_constant() * max(first, noise, third))
    lam = target / norm**2
    rate = n * lam * epsilon / 2 if mechanism == "output" else epsilon / 2 - math.log1p(c / (n * lam))
    bound = gen.excess_loss_bound(
        mechanism, n_records=n, dimension=d, noise_rate=rate, regularization=lam, comparator_norm=norm,
        failure=failure, curvature=c, method="printed",
    )  # fmt: skip
    assert bound.total <= target


def test_a_smaller_constant_is_not_proved_at_a_failure_of_one_half():
    c = gen.sufficient_constant()

    def shares(constant, failure):
        each = constant * math.log(1 / failure)
        return gen.estimation_error(failure / 2) / each + math.sqrt(2 * math.log(2 / failure) / each) + 8 / constant**2

    assert shares(c, 0.5) <= 0.5 < shares(c - 1, 0.5)
    assert np.all(np.diff([shares(c, failure) for failure in np.geomspace(1e-12, 0.5, 300)]) > 0)


@pytest.mark.parametrize("change", [{"mechanism": "both"}, {"method": "guess"}])
def test_an_unknown_variant_is_refused(change):
    good = {"mechanism": "output", "n_records": 10, "dimension": 2, "noise_rate": 1.0, "regularization": 0.1}
    with pytest.raises(ValueError, match=f"{next(iter(change))} must be one of"):
        gen.excess_loss_bound(**good | {"comparator_norm": 1.0, "failure": 0.1} | change)
