"""Derivatives of the risk, and a solver that keeps its distance to the exact minimiser and never fails."""

import math

import numpy as np
import pytest
from erm_data import in_ball, minimize_softmax, simulated
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from checks import exact_loss
from helpers import erm
from helpers.erm import risk

# --- derivatives ---


def test_derivatives_against_finite_differences():
    rng = np.random.default_rng(1)
    rows, beta, linear = rng.standard_normal((20, 3)), rng.standard_normal(3), rng.standard_normal(3)

    def value(b):
        return np.mean(np.logaddexp(0, -rows @ b)) + 0.35 * b @ b + linear @ b

    def slope(b):
        return exact_loss.gradient(b, rows, erm.LOGISTIC, 0.7, linear)

    assert np.allclose(slope(beta), approx_fprime(beta, value, 1e-7), atol=1e-5)
    hessian = exact_loss.curvature_sum(beta, rows, erm.LOGISTIC) / 20 + 0.7 * np.eye(3)
    assert np.allclose(hessian, approx_fprime(beta, slope, 1e-7), atol=1e-5)


def test_blocks_of_rows_add_up():
    rng = np.random.default_rng(2)
    rows, beta = rng.standard_normal((1000, 3)), rng.standard_normal(3)
    whole = (rows * erm.LOGISTIC.bend(rows @ beta)[:, None]).T @ rows
    assert np.allclose(exact_loss.curvature_sum(beta, rows, erm.LOGISTIC), whole)


# --- distance ---


def reference(rows, loss, regularization, linear, beta, weights=None):
    """The minimiser in extended precision: Newton steps with gradients in long double until they stop."""
    wide = [np.asarray(a, dtype=np.longdouble) for a in (rows, linear, beta)]
    w = np.ones(len(rows), dtype=np.longdouble) if weights is None else np.asarray(weights, dtype=np.longdouble)
    bend = exact_loss.curvature_sum(beta, rows, loss, weights) / len(rows) + regularization * np.eye(rows.shape[1])
    for _ in range(60):
        margins = wide[0] @ wide[2]
        slope = -1 / (1 + np.exp(margins)) if loss is erm.LOGISTIC else loss.slope(margins)
        slope = (w * slope) @ wide[0] / len(rows) + regularization * wide[2] + wide[1]
        step = np.linalg.solve(bend, slope.astype(float))
        wide[2] = wide[2] - step
        if np.linalg.norm(step) < 1e-19 * np.linalg.norm(beta):
            break
    return wide[2]


@given(
    st.integers(1, 6),
    st.integers(1, 200),
    st.floats(-4, 0),
    st.floats(-9, -1),
    st.sampled_from([1e-3, 1.0, 30.0]),
    st.integers(0, 10**6),
)
def test_results_are_within_the_distance_that_was_asked_for(d, n, log_penalty, log_distance, radius, seed):
    rng = np.random.default_rng(seed)
    rows, weights = np.asfortranarray(in_ball(rng, n, d, radius)), rng.random(n) * (rng.random(n) < 0.8)
    penalty, linear = 10**log_penalty * radius**2, radius * rng.standard_normal(d) / n
    distance = 10**log_distance / radius
    found = erm.minimize(rows, erm.LOGISTIC, penalty, linear, distance=distance, weights=weights)
    exact = reference(rows, erm.LOGISTIC, penalty, linear, found.beta, weights)
    assert found.distance <= distance
    assert np.linalg.norm(
        (found.beta - exact).astype(float)
    ) <= found.distance + 1e-13 / radius + 1e-14 * np.linalg.norm(exact)


def test_a_generous_distance_is_used():
    """Otherwise the test above would only say that everything is solved to rounding."""
    rng = np.random.default_rng(0)
    rows = in_ball(rng, 100, 3)
    found = erm.minimize(rows, erm.LOGISTIC, 0.01, np.zeros(3), distance=1.0)
    exact = reference(
        rows, erm.LOGISTIC, 0.01, np.zeros(3), erm.minimize(rows, erm.LOGISTIC, 0.01, np.zeros(3), distance=1e-13).beta
    )
    assert 1e-6 < np.linalg.norm((found.beta - exact).astype(float)) <= found.distance <= 1.0


def wide_problem(seed, n=900, d=130, loss=erm.LOGISTIC):
    """So wide that systems are solved by products; columns of decreasing length, as in real tables."""
    rng = np.random.default_rng(seed)
    rows = np.asfortranarray(in_ball(rng, n, d) / np.sqrt(np.arange(1, d + 1)))
    return rows, rng.random(n), rng.standard_normal(d) / n, loss


def counted(monkeypatch):
    """Numbers of Hessians of blocks of more than 800 rows, and of products with them."""
    numbers = {"hessian": 0, "product": 0}

    def watched(name):
        real = getattr(risk.MarginSums, name)

        def method(self, *arguments):
            numbers[name] += any(isinstance(a, risk.Block) and len(a.rows.base) > 800 for a in arguments)
            return real(self, *arguments)

        monkeypatch.setattr(risk.MarginSums, name, method)

    for name in numbers:
        watched(name)
    return numbers


@pytest.mark.parametrize("penalty", [1e-2, 1e-4])
@pytest.mark.parametrize("distance", [1e-2, 1e-5, 1e-9, 1e-12])
def test_wide_problems_are_solved_by_products_to_the_same_distance(penalty, distance, monkeypatch):
    numbers = counted(monkeypatch)
    for seed in range(3):
        rows, weights, linear, loss = wide_problem(seed)
        found = erm.minimize(rows, loss, penalty, linear, distance=distance, weights=weights)
        assert numbers["hessian"] == 0 < numbers["product"]
        exact = reference(rows, loss, penalty, linear, found.beta, weights)
        assert found.distance <= distance
        assert np.linalg.norm((found.beta - exact).astype(float)) <= found.distance + 1e-14
        numbers["hessian"] = 0


def test_a_sample_helps_where_a_hessian_of_all_is_too_dear(monkeypatch):
    """Its inverse preconditions the products of a step, once they have turned out to be dear."""
    monkeypatch.setattr(risk, "_FEWEST_PRODUCTS", 1000)
    rows, weights, _, loss = wide_problem(0, 6000)
    table, sums = risk.Table(list(risk.blocks_of([rows], None, weights)), rows.shape), risk.MarginSums(loss)
    beta, products = np.zeros(rows.shape[1]), {}
    gradient = exact_loss.gradient(beta, rows, loss, 1e-5, beta, weights)
    hessian = exact_loss.curvature_sum(beta, rows, loss, weights) / len(rows) + 1e-5 * np.eye(len(beta))
    for sampled in (False, True):
        whole = risk.Risk(table, sums, 1e-5, beta, len(rows), 1.0, 1.0)
        whole._products, whole._farthest = 50, 20.0
        if sampled:
            whole._sample = risk.Risk(table.sample(8), sums, 1e-5, beta, len(rows) / 8, 1.0, 1.0)
        step = whole._newton_step(beta, [], gradient, 1e-12 * np.linalg.norm(gradient), 13.0)
        assert np.linalg.norm(hessian @ step - gradient) <= 2e-12 * np.linalg.norm(gradient)
        products[sampled] = whole._products - 50
        assert (whole._inverse is not None) == sampled
    assert 2 * products[True] <= products[False]


def test_a_hessian_is_computed_where_products_do_not_arrive(monkeypatch):
    rows, weights, linear, loss = wide_problem(0)
    monkeypatch.setattr(risk, "_FEWEST_PRODUCTS", 1)
    numbers = counted(monkeypatch)
    found = erm.minimize(rows, loss, 1e-9, linear, distance=1e-4, weights=weights)
    assert found.distance <= 1e-4
    assert 0 < numbers["hessian"]
    assert numbers["product"] < 100


def test_a_wide_huber_minimiser_takes_few_steps():
    rows, weights, linear, _ = wide_problem(0)
    found = erm.minimize(rows, erm.huber(5.0), 1e-3, linear, distance=1e-10, weights=weights)
    slope = exact_loss.gradient(found.beta, rows, erm.huber(5.0), 1e-3, linear, weights)
    assert found.n_iter < 10
    assert np.linalg.norm(slope) / 1e-3 == pytest.approx(found.distance, abs=1e-12)
    assert found.distance <= 1e-10


def test_rounding_leaves_less_than_the_blur_covers():
    """Tables of usual size, the noise of a private fit: the distance in extended precision is far below 1e-13."""
    largest = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, d = int(10 ** rng.uniform(2, 4)), int(rng.integers(2, 20))
        rows, penalty = np.asfortranarray(in_ball(rng, n, d)), max(1e-3, 2 / n)
        linear = rng.standard_normal(d) * 2 / n
        found = erm.minimize(rows, erm.LOGISTIC, penalty, linear, distance=1e-13)
        exact = reference(rows, erm.LOGISTIC, penalty, linear, found.beta)
        largest = max(largest, np.linalg.norm((found.beta - exact).astype(float)))
        assert found.distance <= 1e-13
    assert largest <= 3e-15


@given(st.integers(1, 60), st.integers(1, 4), st.floats(-4, 0), st.floats(-2, 0), st.integers(0, 10**6))
def test_a_certified_huber_minimiser_is_one(n, d, log_penalty, log_h, seed):
    """Also where a step jumps over the whole bend, from one flat piece to the other."""
    rng, penalty, loss = np.random.default_rng(seed), 10**log_penalty, erm.huber(10**log_h)
    rows = np.asfortranarray(in_ball(rng, n, d))
    rows[:, 0] = np.abs(rows[:, 0])
    found = erm.minimize(rows, loss, penalty, np.zeros(d), distance=1e-9)
    slope = exact_loss.gradient(found.beta, rows, loss, penalty, np.zeros(d))
    assert found.distance <= 1e-9
    assert np.linalg.norm(slope) <= penalty * 1e-9 * (1 + 1e-6)


def test_noisy_minimum_agrees_with_a_generic_optimiser():
    rng = np.random.default_rng(3)
    rows, linear = rng.standard_normal((50, 3)), rng.standard_normal(3)
    found = minimize(lambda b: np.mean(np.logaddexp(0, -rows @ b)) + 0.05 * b @ b + linear @ b, np.zeros(3), tol=1e-10)
    assert np.allclose(erm.minimize(rows, erm.LOGISTIC, 0.1, linear, distance=1e-10).beta, found.x, atol=1e-4)


# --- no failure ---


@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.floats(-3, 3),
    st.floats(-15.9, 4),
    st.one_of(st.none(), st.floats(-6, 2)),
    st.floats(-7, -1),
    st.sampled_from(["", "one class", "repeated", "zeros", "axes"]),
    st.integers(0, 10**6),
)
def test_output_perturbation_problems_are_solved_whatever_they_are(d, n, log_r, log_l, log_h, log_tol, kind, seed):
    rng, radius = np.random.default_rng(seed), 10**log_r
    rows = (
        rng.standard_normal((n, d))
        if kind != "axes"
        else np.sign(rng.standard_normal((n, d))) * 10 ** rng.uniform(-8, 8, (n, d))
    )
    rows *= radius / np.linalg.norm(rows, axis=1)[:, None]
    if kind == "one class":
        rows *= np.sign(rows[:, :1])
    elif kind == "repeated":
        rows = rows[rng.integers(0, n, n)]
    elif kind == "zeros":
        rows[rng.random(n) < 0.5] = 0
    loss = erm.LOGISTIC if log_h is None else erm.huber(10**log_h)
    penalty = loss.curvature * radius**2 * 10**log_l
    weights = None if rng.random() < 0.5 else rng.random(n) ** 3 * (rng.random(n) < 0.7)
    distance = 10**log_tol * 2 * radius / (n * penalty)
    found = erm.minimize(np.asfortranarray(rows), loss, penalty, np.zeros(d), distance=distance, weights=weights)
    assert np.isfinite(found.beta).all()
    assert found.distance <= distance
    assert found.n_iter < 100


@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.floats(-3, 2),
    st.floats(0, 4),
    st.one_of(st.none(), st.floats(-6, 2)),
    st.integers(0, 10**6),
)
def test_objective_perturbation_problems_are_solved_whatever_they_are(d, n, log_epsilon, log_more, log_h, seed):
    rng, epsilon = np.random.default_rng(seed), 10**log_epsilon
    loss = erm.LOGISTIC if log_h is None else erm.huber(10**log_h)
    rate, penalty = erm.calibrate(epsilon=epsilon, n_records=n, regularization=1e-12 * 10**log_more, loss=loss)
    noise = rng.standard_normal(d)
    noise *= rng.gamma(d, 1 / rate) / np.linalg.norm(noise)
    center = float(np.linalg.norm(noise)) / (n * penalty)
    sizes = {"width": d, "n_rows": n, "mean_weight": 1.0, "longest": 1.0, "center": center}
    asked = max(1e-13, risk.precision(loss, penalty, **sizes).distance / 4)
    found = erm.minimize(np.asfortranarray(in_ball(rng, n, d)), loss, penalty, noise / n, distance=asked)
    assert found.distance <= asked
    assert found.n_iter < 100


@pytest.mark.parametrize("kind", [erm.OutputPerturbationClassifier, erm.ObjectivePerturbationClassifier])
@pytest.mark.parametrize("labels", [[1, 1, 0], [1, 0, 0], [0, 0, 0]])
def test_neighbours_of_the_attack_on_failures_are_both_answered(kind, labels):
    """Huber, n = 3, radius 871, lambda 1.2e-10: no data set may be told by an error."""
    X = np.array([[871.0], [-871.0], [870.0]])
    for seed in range(5):
        model = kind(1.0, 1.2e-10, radius=871.0, fit_intercept=False, loss="huber", random_state=seed).fit(
            X, np.array(labels)
        )
        assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("labels", [[1, 1], [0, 1], [1, 0]])
def test_a_jump_of_the_hessian_does_not_stop_the_solver(labels):
    """Whether a fit fails must not tell neighbouring data sets apart."""
    model = erm.OutputPerturbationClassifier(1.0, 1e-3, loss="huber", h=0.1, random_state=0)
    assert np.isfinite(model.fit(np.array([[1.0], [0.0]]), np.array(labels)).coef_).all()


def test_a_hessian_that_rounding_made_singular_is_no_failure():
    rows = np.asfortranarray(np.tile([[1.0, 1.0, 1.0]], (5, 1)) / math.sqrt(3))
    found = erm.minimize(rows, erm.LOGISTIC, 4e-17, np.zeros(3), distance=1e6)
    assert np.isfinite(found.beta).all()
    assert np.ptp(found.beta) < 1e-6 * abs(found.beta[0])


def test_the_line_search_gives_up_where_nothing_can_be_gained():
    """The gradient of this table jumps from -3 to 1 at 0, where the search begins."""

    class Kink(risk.Table):
        def total(self, function, *arguments, beside=None, kept=None):
            return np.zeros((1, 1)) if "hessian" in function.__name__ else np.where(arguments[0] < 0, -3.0, 1.0)

    found = risk.Risk(Kink([], (1, 1)), risk.MarginSums(erm.LOGISTIC), 1.0, np.zeros(1), 1, 1.0, 1.0).minimiser(1e-3)
    assert (found.beta[0], found.gradient_norm, found.n_iter) == (0.0, 1.0, 0)


@pytest.mark.parametrize("classes", [2, 4])
def test_softmax_minimisers_are_stationary(classes):
    X, codes = simulated(300, 3, classes, scale=0.3)
    found = minimize_softmax(X, codes, classes, 1e-4, np.ones((classes - 1, 3)) / 300, distance=1e-12)
    slope = exact_loss.softmax_gradient(found.beta, X, codes, 1e-4, np.ones((classes - 1, 3)) / 300)
    assert found.distance <= 1e-12
    assert np.linalg.norm(slope) < 1e-14
