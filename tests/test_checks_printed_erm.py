"""Noise constants as printed: by hand, what theorems prove for them, and where they fail."""

import math

import numpy as np
import pytest
from erm_data import HUBER, simulated
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from checks import exact_loss, printed_erm
from helpers import erm
from helpers.privacy import ADD_REMOVE, REPLACE_ONE
from helpers.privacy.ledger import spherical_gamma


def test_constants_by_hand_in_both_branches():
    rate, total = printed_erm.algorithm_2(epsilon=1.0, n_records=1000, regularization=0.01)
    t = 0.25 / (1000 * 0.01)
    assert rate == pytest.approx((1.0 - math.log(1 + 2 * t + t**2)) / 2)
    assert total == 0.01
    rate, total = printed_erm.algorithm_2(epsilon=1.0, n_records=10, regularization=1e-4)
    assert rate == pytest.approx(0.25)
    assert total == pytest.approx(0.25 / (10 * (math.exp(0.25) - 1)))


@given(st.floats(1e-3, 20), st.integers(1, 10**6), st.floats(1e-9, 10), st.floats(0.01, 100))
def test_constants_spend_the_budget_exactly(epsilon, n, regularization, radius):
    """Shift 2R at the noise rate plus the printed Jacobian term add up to epsilon, and Delta is never negative."""
    rate, total = printed_erm.algorithm_2(epsilon=epsilon, n_records=n, regularization=regularization, radius=radius)
    jacobian = 2 * math.log1p(0.25 * radius**2 / (n * total))
    assert 2 * radius * rate + jacobian == pytest.approx(epsilon)
    assert total >= regularization
    assert rate > 0


def test_printed_kink_of_the_two_branches():
    """Just above the threshold almost nothing is left for the noise; just below, half the budget is."""
    threshold = 0.25 / (100 * math.expm1(0.5))
    above = printed_erm.algorithm_2(epsilon=1.0, n_records=100, regularization=threshold * 1.001)
    below = printed_erm.algorithm_2(epsilon=1.0, n_records=100, regularization=threshold * 0.999)
    assert above.noise_rate < 0.001
    assert below.noise_rate == pytest.approx(0.25)
    assert below.total_regularization > 2 * above.total_regularization


@given(st.floats(0.01, 10), st.floats(-6, 1), st.sampled_from([ADD_REMOVE, REPLACE_ONE]))
def test_tight_huber_moves_the_minimiser_less_than_the_printed_constants(epsilon, exponent, relation):
    problem = {"epsilon": epsilon, "n_records": 1000, "regularization": 10.0**exponent}
    tight = erm.calibrate(**problem, loss=HUBER, weighting=erm.fixed_weights(1.0, relation))
    printed = printed_erm.algorithm_2(**problem, curvature=HUBER.curvature, neighbouring=relation)
    assert tight.noise_rate >= printed.noise_rate * (1 - 1e-12)
    displacement = [1 / (c.noise_rate * c.total_regularization) for c in (tight, printed)]
    assert displacement[0] <= displacement[1] * (1 + 1e-9)
    proven = exact_loss.proven_epsilon(tight, n_records=1000, loss=HUBER, weighting=erm.fixed_weights(1.0, relation))
    assert proven <= epsilon * (1 + 1e-9)


def test_printed_weighted_constants_by_hand():
    rate, total = printed_erm.printed_constants("icml", epsilon=1.0, n_records=1000, regularization=0.1, dimension=7)
    assert (rate, total) == pytest.approx(((1 - 4 * 0.25 * 7 / 100) / 3, 0.1))
    rate, total = printed_erm.printed_constants("icml", epsilon=1.0, n_records=1000, regularization=0.005, dimension=7)
    assert (rate, total) == pytest.approx((1 / 9, 0.25 / (1000 * math.expm1(0.25))))
    assert total < 0.005  # the printed Delta is negative here
    printed = printed_erm.printed_constants("arxiv", epsilon=1.0, n_records=50, regularization=1e-4)
    assert printed == printed_erm.algorithm_2(epsilon=1.0, n_records=50, regularization=1e-4)


@pytest.mark.parametrize(("version", "at_least"), [("icml", 11.4), ("arxiv", 11.1)])
def test_printed_weighted_constants_are_violated_at_large_epsilon(version, at_least):
    """n1 = 1 -> 0, the odd record along the output, the majority along the other axes."""
    d, n = 30, 100_001
    constants = printed_erm.printed_constants(version, epsilon=10.0, n_records=n, regularization=1e-12, dimension=d)
    axes = np.vstack([np.eye(d)[1:], -np.eye(d)[1:]])
    size = (n - 1) / len(axes)
    data_ = np.vstack([-axes, np.eye(d)[:1]])
    neighbour = np.vstack([-axes, -np.eye(d)[:1]])
    w = np.append(np.full(len(axes), size / n), (n - 1) / n)
    w2 = np.zeros(len(axes) + 1)
    worst = max(
        abs(
            exact_loss.privacy_loss(
                s * np.eye(d)[0],
                data_,
                neighbour,
                **constants._asdict(),
                n_records=n,
                weights=w,
                neighbour_weights=w2,
            )
        )
        for s in np.linspace(-3, 3, 61)
    )
    assert worst > at_least
    tight = erm.calibrate(epsilon=10.0, n_records=n, regularization=1e-12, weighting=erm.BALANCED)
    assert exact_loss.proven_epsilon(tight, n_records=n, weighting=erm.BALANCED) == pytest.approx(10)


@pytest.mark.parametrize(
    ("version", "epsilon", "proven"),
    [("icml", 1.0, True), ("icml", 10.0, False), ("arxiv", 4.5, True), ("arxiv", 4.7, False)],
)
def test_printed_versions_say_what_is_proved(version, epsilon, proven):
    X, y = simulated(80, 3)
    model = printed_erm.PrintedObjectivePerturbation(version, epsilon, 1e-6, class_weight="balanced", random_state=0)
    model.fit(X, y)
    assert (model.guarantee_.epsilon == epsilon) == proven
    assert ("not the printed one" in model.guarantee_.source) != proven
    assert model.guarantee_.epsilon >= epsilon


@pytest.mark.parametrize("version", printed_erm.VERSIONS)
def test_printed_versions_are_for_two_classes(version):
    with pytest.raises(ValueError, match="classes must be two labels"):
        printed_erm.PrintedObjectivePerturbation(version, classes=(0, 1, 2)).fit(None, None)


def test_under_a_weak_penalty_the_noise_is_the_printed_one_and_not_the_solvers():
    """What hides where the solver stopped must stay invisible, or the printed method looks worse than it is."""
    X, y = simulated(20_000, 3)
    rng, rows = np.random.default_rng(0), erm.signed_rows(X, y == 1, radius=1.0)
    fitted, exact = [], []
    for seed in range(40):
        model = printed_erm.PrintedObjectivePerturbation(epsilon=0.1, regularization=1e-5, random_state=seed).fit(X, y)
        fitted.append(np.append(model.coef_, model.intercept_))
        drawn = spherical_gamma(4, model.noise_rate_, rng) / len(rows)
        exact.append(erm.minimize(rows, erm.LOGISTIC, model.total_regularization_, drawn, distance=1e-9).beta)
    spreads = [np.linalg.norm(found - np.median(found, axis=0), axis=1) for found in map(np.array, (fitted, exact))]
    assert ks_2samp(*spreads).pvalue > 1e-3


def test_printed_constants_are_the_classifiers():
    X, y = simulated(80, 3)
    for version in printed_erm.VERSIONS:
        model = printed_erm.PrintedObjectivePerturbation(version, 1.0, 0.05, random_state=0).fit(X, y)
        spent = 1.0 - model.tol  # the rest pays for the solver
        constants = printed_erm.printed_constants(
            version, epsilon=spent, n_records=80, regularization=0.05, dimension=4
        )
        assert (model.noise_rate_, model.total_regularization_) == pytest.approx(constants, rel=1e-9)
    with pytest.raises(ValueError, match="version must be"):
        printed_erm.PrintedObjectivePerturbation("tight").fit(None, None)
    with pytest.raises(ValueError, match="neighbouring must be"):
        printed_erm.PrintedObjectivePerturbation("icml", neighbouring=ADD_REMOVE, n_records=5).fit(None, None)


@pytest.mark.parametrize("version", printed_erm.VERSIONS)
def test_an_epsilon_that_overflows_is_refused(version):
    problem = {"epsilon": 3000.0, "n_records": 10, "regularization": 0.1}
    with pytest.raises(ValueError, match="epsilon must be"):
        erm.calibrate(**problem)
    with pytest.raises(ValueError, match="epsilon must be"):
        printed_erm.PrintedObjectivePerturbation(version, 3000.0).fit(None, None)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("d", [3, 7])
def test_the_arxiv_main_branch_is_not_private_just_above_its_boundary(epsilon, d):
    n = 100_001
    edge = erm.LOGISTIC.curvature / math.expm1(epsilon / 2)
    problem = {"epsilon": epsilon, "n_records": n, "regularization": 1.0001 * edge / n}
    axes = np.eye(d)
    majority = np.vstack([-axes[1:], axes[1:]])
    weights = np.append(np.full(len(majority), (n - 1) / len(majority) / n), (n - 1) / n)

    def loss(constants):
        return exact_loss.privacy_loss(
            np.zeros(d),
            np.vstack([majority, axes[:1]]),
            np.vstack([majority, -axes[:1]]),
            **constants._asdict(),
            n_records=n,
            weights=weights,
            neighbour_weights=np.zeros(len(weights)),
        )

    assert loss(printed_erm.printed_constants("arxiv", **problem)) > epsilon
    assert loss(erm.calibrate(**problem, weighting=erm.BALANCED)) <= epsilon
