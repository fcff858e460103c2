"""Class weights, losses, calibration: lemmas by brute force, constants by hand, weighted and multi-class estimators."""

import math
from itertools import product

import numpy as np
import pytest
from erm_data import HUBER, ROUNDING, determinant_share, minimize_softmax, neighbours, simulated, weights_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import check_grad
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from checks import exact_loss
from checks.exact_loss import softmax_curvature_sum, softmax_gradient
from helpers import data, erm
from helpers.erm import calibration, risk
from helpers.privacy import ADD_REMOVE, REPLACE_ONE


def test_weights_are_the_printed_ones_and_empty_classes_have_a_formula():
    assert erm.class_weights([30, 10]).tolist() == [0.25, 0.75]
    assert erm.class_weights([10, 0]).tolist() == [0.0, 1.0]
    assert erm.class_weights([4, 2, 1]) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert erm.class_weights([4, 2, 0]) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    for bad in ([1], [0, 0], [-1, 2], [1, math.nan]):
        with pytest.raises(ValueError, match="counts must be"):
            erm.class_weights(bad)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_binary_weights_move_by_exactly_one_minus_one_over_n_when_a_label_flips(n):
    """Lemma 14 with equality, for every count of the minority, empty classes included; own weights add the same."""
    for minority in range(n):
        before, after = erm.class_weights([n - minority, minority]), erm.class_weights([n - minority - 1, minority + 1])
        others = (n - minority - 1) * abs(before[0] - after[0]) + minority * abs(before[1] - after[1])
        assert others == pytest.approx(1 - 1 / n)
        assert before[0] + after[1] == pytest.approx(1 - 1 / n)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_no_change_moves_more_weight_than_the_number_of_classes(n_classes):
    """Every vector of counts up to 7: replacements, additions and removals, empty classes included."""
    worst = {"replace": 0.0, "add": 0.0}
    for counts in product(range(8), repeat=n_classes):
        counts = np.array(counts)
        if counts.sum() == 0:
            continue
        before = erm.class_weights(counts)
        for b in range(n_classes):
            more = counts + np.eye(n_classes, dtype=int)[b]
            after = erm.class_weights(more)
            worst["add"] = max(worst["add"], counts @ np.abs(before - after) + after[b])
            for a in np.flatnonzero(counts):
                stay = counts - np.eye(n_classes, dtype=int)[a]
                if a != b:
                    flipped = erm.class_weights(stay + np.eye(n_classes, dtype=int)[b])
                    worst["replace"] = max(worst["replace"], stay @ np.abs(before - flipped) + before[a] + flipped[b])
    bound = erm.balanced_weights(n_classes).mass
    assert 0.4 * bound < worst["replace"] < bound
    assert worst["add"] < bound
    rare = np.full(n_classes, 10**7)
    rare[0] = 2
    before, after = erm.class_weights(rare), erm.class_weights(rare + np.r_[-1, 1, np.zeros(n_classes - 2, dtype=int)])
    stay = rare - np.r_[1, np.zeros(n_classes - 1, dtype=int)]
    assert stay @ np.abs(before - after) + before[0] + after[1] == pytest.approx(bound, rel=1e-4)
    assert stay @ np.abs(before - after) == pytest.approx(bound - 1, rel=1e-4)


@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 10**6))
def test_radius_two_and_trace_norm_two_c(d, n, seed):
    """The two lemmas of the weighted theorem, at random outputs."""
    rng = np.random.default_rng(seed)
    (rows, codes), (rows2, codes2) = neighbours(rng, n, d)
    w, w2 = weights_of(codes), weights_of(codes2)
    beta = 10 ** rng.uniform(-2, 2) * rng.standard_normal(d)
    signed, signed2 = rows * (2 * codes - 1)[:, None], rows2 * (2 * codes2 - 1)[:, None]
    for loss in (erm.LOGISTIC, HUBER):
        shift = (w * loss.slope(signed @ beta)) @ signed - (w2 * loss.slope(signed2 @ beta)) @ signed2
        assert np.linalg.norm(shift) <= 2 * ROUNDING
        change = exact_loss.curvature_sum(beta, signed, loss, w) - exact_loss.curvature_sum(beta, signed2, loss, w2)
        assert np.abs(np.linalg.eigvalsh(change)).sum() <= 2 * loss.curvature * ROUNDING


@pytest.mark.parametrize("loss", [erm.LOGISTIC, HUBER], ids=["logistic", "huber"])
@pytest.mark.parametrize(("g", "t"), [(1.0, 0.5), (1.0, 1.0), (1.0, 4.0), (0.1, 3.0), (0.0, 1.0)])
def test_cost_of_a_margin_loss_is_the_supremum(loss, g, t):
    margins = np.linspace(-60, 60, 240_001)
    found = (g * np.abs(loss.slope(margins)) + t * loss.bend(margins)).max()
    assert loss.cost(g, t) == pytest.approx(found, rel=1e-3)
    assert loss.cost(g, t) >= found * (1 - 1e-12)
    alone = (g * np.abs(loss.slope(margins)) + np.log1p(t * loss.bend(margins))).max()
    assert loss.own_cost(g, t) == pytest.approx(alone, rel=1e-3)
    assert loss.own_cost(g, t) >= alone * (1 - 1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize(("g", "t"), [(1.0, 0.2), (1.0, 0.36), (1.0, 1.0), (0.1, 3.0), (1.0, 0.0)])
def test_cost_of_the_softmax_is_a_bound_and_nearly_reached(n_classes, g, t):
    rng = np.random.default_rng(0)
    p = np.vstack([rng.dirichlet(np.full(n_classes, a), 20_000) for a in (0.05, 0.3, 1, 5)])
    pull = np.sqrt((1 - p[:, 0]) ** 2 + (p[:, 1:] ** 2).sum(axis=1))
    found = (g * pull + t * (1 - (p**2).sum(axis=1))).max()
    bound = erm.Softmax(n_classes).cost(g, t)
    assert found <= bound * ROUNDING
    assert bound <= 1.02 * found
    if t / g <= erm.Softmax(n_classes).free_ratio:
        assert bound == pytest.approx(g * math.sqrt(2))


def test_huber_derivatives_and_constants():
    margins = np.linspace(-1, 3, 4001)
    value = np.where(margins > 1.3, 0, np.where(margins < 0.7, 1 - margins, (1.3 - margins) ** 2 / 1.2))
    assert np.gradient(value, margins)[1:-1] == pytest.approx(HUBER.slope(margins)[1:-1], abs=1e-3)
    assert HUBER.curvature == pytest.approx(1 / 0.6)
    assert HUBER.bend(margins).max() == HUBER.curvature
    with pytest.raises(ValueError, match="h must be"):
        erm.huber(0)


def test_softmax_derivatives_and_two_classes_are_logistic():
    rng = np.random.default_rng(1)
    Z, codes, weights = rng.standard_normal((9, 2)), rng.integers(0, 3, 9), rng.random(9)
    basis, zero = erm.zero_sum_basis(3), np.zeros((2, 2))
    assert basis @ basis.T == pytest.approx(np.eye(2))
    assert basis.sum(axis=1) == pytest.approx([0, 0])

    def value(flat):
        scores = Z @ flat.reshape(2, 2).T @ basis
        lost = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(9), codes]
        return weights @ lost / 9 + 0.2 * flat @ flat

    def slope(flat):
        return softmax_gradient(flat.reshape(2, 2), Z, codes, 0.4, zero, weights).ravel()

    flat = rng.standard_normal(4)
    assert check_grad(value, slope, flat) < 1e-6
    hessian = softmax_curvature_sum(flat.reshape(2, 2), Z, weights) / 9 + 0.4 * np.eye(4)
    numeric = np.array([(slope(flat + h) - slope(flat - h)) / 2e-5 for h in 1e-5 * np.eye(4)])
    assert hessian == pytest.approx(numeric, abs=1e-7)
    # Scores -+c z / sqrt(2): the margin is sqrt(2) c z, so the penalty on c is twice that of a margin loss.
    C = minimize_softmax(Z, codes % 2, 2, 0.4, np.zeros((1, 2)), distance=1e-11).beta
    signed = Z * (2 * (codes % 2) - 1)[:, None]
    beta = erm.minimize(signed, erm.LOGISTIC, 0.2, np.zeros(2), distance=1e-11).beta
    assert -math.sqrt(2) * C[0] == pytest.approx(beta, abs=1e-8)


def test_tight_constants_by_hand():
    rate, total = erm.calibrate(epsilon=0.5, n_records=200, regularization=1e-9, radius=3.0)
    assert (rate, total) == pytest.approx((0.5 / 6, 2 * 9 / (200 * 0.5)))
    rate, total = erm.calibrate(epsilon=0.5, n_records=200, regularization=0.7, weighting=erm.BALANCED)
    assert (rate, total) == pytest.approx((0.25, 0.7))
    rate, total = erm.calibrate(
        epsilon=1.0, n_records=100, regularization=1e-9, loss=HUBER, weighting=erm.BALANCED, radius=2.0
    )
    tau = HUBER.curvature * 4 / (100 * total)
    assert rate == pytest.approx(0.5 / 4)
    assert math.log1p(tau) + tau == pytest.approx(0.5)
    rate, total = erm.calibrate(epsilon=1.0, n_records=100, regularization=1e-9, loss=HUBER)
    assert (rate, total) == pytest.approx((0.375, HUBER.curvature / (100 * math.expm1(0.25))))
    softmax = {"loss": erm.Softmax(4), "weighting": erm.balanced_weights(4)}
    rate, total = erm.calibrate(epsilon=2.0, n_records=100, regularization=1e-9, **softmax)
    assert (rate, total) == pytest.approx((2 / (math.sqrt(2) * 4), 4 * 4 / (100 * 2)))


def test_square_root_regime_by_hand_and_its_end():
    """lambda may not be raised: at least 2 (sqrt(2 T eps) - T) of eps is left, and nothing once T is too large."""
    problem = {"epsilon": 1.0, "n_records": 100, "weighting": erm.BALANCED, "raise_regularization": False}
    for T in (0.51, 1.0, 1.9):
        rate, total = erm.calibrate(regularization=1 / (100 * T), **problem)
        assert 2 * (math.sqrt(2 * T) - T) < 2 * rate < 1.0
        assert total == pytest.approx(1 / (100 * T))
        assert exact_loss.proven_epsilon(
            erm.Calibration(rate, total), n_records=100, weighting=erm.BALANCED
        ) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="epsilon must exceed what the Jacobian costs"):
        erm.calibrate(regularization=1 / (100 * 2.5), **problem)
    with pytest.raises(ValueError, match="epsilon must exceed what the Jacobian costs"):
        erm.calibrate(regularization=1e-6, loss=HUBER, **problem)


@given(
    st.floats(0.01, 15),
    st.integers(1, 10**5),
    st.floats(-8, 1),
    st.floats(0.1, 30),
    st.sampled_from([erm.LOGISTIC, HUBER, erm.Softmax(3)]),
    st.sampled_from([erm.UNWEIGHTED, erm.BALANCED, erm.fixed_weights(0.4), erm.fixed_weights(1.0, ADD_REMOVE)]),
)
def test_tight_constants_spend_the_whole_budget_and_no_more(epsilon, n, log_reg, radius, loss, weighting):
    problem = {"n_records": n, "radius": radius, "loss": loss, "weighting": weighting}
    constants = erm.calibrate(epsilon=epsilon, regularization=10**log_reg, **problem)
    assert constants.total_regularization >= 10**log_reg
    assert exact_loss.proven_epsilon(constants, **problem) == pytest.approx(epsilon)


@pytest.mark.parametrize(("epsilon", "shift", "jacobian"), [(1.0, 0.3, 0.0), (0.5, 1.0, 0.2), (3.0, 0.7, 1.0)])
def test_gaussian_delta_is_the_mean_it_says(epsilon, shift, jacobian):
    def excess(z):
        return max(0.0, math.exp(jacobian + shift * z) - math.exp(epsilon)) * norm.pdf(z)

    cut = (epsilon - jacobian) / shift
    mean = quad(excess, cut, cut + 12)[0]
    assert calibration.gaussian_objective_delta(epsilon, shift, jacobian) == pytest.approx(mean, rel=1e-6)
    assert calibration.gaussian_objective_delta(0.1, 1.0, 0.2) == 1.0


@given(st.integers(1, 12), st.floats(0.1, 3), st.floats(-5, 0), st.booleans(), st.booleans(), st.integers(0, 10**6))
def test_exact_gaussian_delta_in_one_dimension_is_at_most_the_claim(n, epsilon, log_reg, huber, balanced, seed):
    """The density of the output is known, so delta = integral of (P - e^eps Q)_+ can be computed."""
    rng = np.random.default_rng(seed)
    loss, weighting = (HUBER if huber else erm.LOGISTIC), (erm.BALANCED if balanced else erm.UNWEIGHTED)
    delta = 10 ** rng.uniform(-6, -1)
    scale, total = erm.calibrate_gaussian(
        epsilon=epsilon, delta=delta, n_records=n, regularization=10**log_reg, loss=loss, weighting=weighting
    )
    pair = neighbours(rng, n, 1)

    def density(rows, codes, grid):
        signed = rows[:, 0] * (2 * codes - 1)
        w = weights_of(codes) if balanced else np.ones(n)
        margins = np.outer(grid, signed)
        noise = (loss.slope(margins) * signed) @ w + n * total * grid
        return norm.pdf(noise, scale=scale) * ((loss.bend(margins) * signed**2) @ w + n * total)

    reach = (8 * scale + 2 * n) / (n * total)
    # Where the loss has a corner the density jumps, which a grid of steps of 1/40,000 sees to some thousandths.
    grid = np.linspace(-reach, reach, 40_001)
    here, there = (density(*side, grid) for side in pair)
    assert np.trapezoid(here, grid) == pytest.approx(1.0, abs=5e-3)
    for p, q in ((here, there), (there, here)):
        assert np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), grid) <= delta * 1.01


def test_gaussian_constants_pay_for_the_jacobian_only_where_they_must():
    problem = {"epsilon": 1.0, "delta": 1e-6, "n_records": 100}
    free, total = erm.calibrate_gaussian(regularization=1e-6, **problem)
    assert total == pytest.approx(2 / 100)
    paid, _ = erm.calibrate_gaussian(regularization=0.01, raise_regularization=False, **problem)
    assert paid > free
    with pytest.raises(ValueError, match="epsilon must exceed"):
        erm.calibrate_gaussian(
            regularization=1e-6, raise_regularization=False, loss=HUBER, weighting=erm.BALANCED, **problem
        )


def test_multinomial_twin_agrees_with_scikit_learn():
    X, y = simulated(300, 3, 4, scale=0.2)
    mine = erm.ERMClassifier(regularization=0.01, fit_intercept=False, classes=(0, 1, 2, 3), tol=1e-11).fit(X, y)
    theirs = LogisticRegression(C=1 / (300 * 0.01), fit_intercept=False, tol=1e-10, max_iter=5000).fit(X, y)
    assert mine.coef_ == pytest.approx(theirs.coef_, abs=1e-4)
    assert mine.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=1e-4)
    assert np.array_equal(mine.predict(X), theirs.predict(X))


@pytest.mark.parametrize("class_weight", [None, "balanced", "private", {0: 0.2, 1: 1.0, 2: 0.5}])
@pytest.mark.parametrize("present", [(0, 1, 2), (0, 1), (2,)])
@pytest.mark.parametrize("kind", [erm.ObjectivePerturbationClassifier, erm.OutputPerturbationClassifier])
def test_private_softmax_does_not_mind_empty_classes(class_weight, present, kind):
    X = simulated(60, 2)[0]
    y = np.resize(present, 60)
    model = kind(classes=(0, 1, 2), class_weight=class_weight, random_state=0, regularization=0.1).fit(X, y)
    assert model.coef_.shape == (3, 2)
    assert model.coef_.sum(axis=0) == pytest.approx([0, 0], abs=1e-9)
    assert model.guarantee_.epsilon == pytest.approx(1.0)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)
    assert hasattr(model, "class_weight_") == (class_weight == "private" or isinstance(class_weight, dict))


def test_private_weights_cost_their_share():
    X, y = simulated(100, 2)
    model = erm.ObjectivePerturbationClassifier(
        2.0, class_weight="private", counts_share=0.25, random_state=0, neighbouring=REPLACE_ONE
    ).fit(X, y)
    assert model.epsilon_solver_ == pytest.approx(1.5 * model.tol)
    assert model.guarantee_.epsilon == pytest.approx(2.0)
    assert "class list" in model.guarantee_.assumes
    assert model.class_weight_.sum() == pytest.approx(1.0)
    assert model.noise_rate_ == pytest.approx(1.5 * (1 - model.tol) / (2 * model.class_weight_.max()))


def test_gaussian_noise_gives_an_approximate_guarantee():
    X, y = simulated(500, 3)
    model = erm.ObjectivePerturbationClassifier(1.0, 0.01, delta=1e-5, class_weight="balanced", random_state=0).fit(
        X, y
    )
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 1e-5)
    tol = model.epsilon_solver_
    assert tol == pytest.approx(1e-3, rel=1e-6)
    exact = calibration.gaussian_objective_delta(1.0 - tol, 2 / model.noise_scale_)
    assert exact * math.exp(tol / 2) == pytest.approx(1e-5, rel=1e-4)
    assert not hasattr(model, "noise_rate_")


@given(st.integers(1, 4), st.integers(1, 15), st.floats(-3, 0), st.booleans(), st.integers(0, 10**6))
def test_the_minimiser_moves_no_further_than_output_perturbation_assumes(d, n, log_reg, balanced, seed):
    rng = np.random.default_rng(seed)
    weighting = erm.BALANCED if balanced else erm.UNWEIGHTED
    betas = []
    for rows, codes in neighbours(rng, n, d):
        signed = rows * (2 * codes - 1)[:, None]
        w = weights_of(codes) if balanced else None
        betas.append(erm.minimize(signed, erm.LOGISTIC, 10**log_reg, np.zeros(d), distance=1e-11, weights=w).beta)
    assert np.linalg.norm(betas[0] - betas[1]) <= weighting.mass / (n * 10**log_reg) * ROUNDING


def test_bounds_are_the_unit_ball_of_the_data_module():
    wine = data.load("gaussian_mixture", n=200)
    raw = 3 * wine.X + 1
    box = np.column_stack([raw.min(axis=0) - 1, raw.max(axis=0) + 1])
    mapped = data.into_ball(raw, box)
    one = erm.ObjectivePerturbationClassifier(random_state=0, bounds=box).fit(raw, wine.y)
    twin, mapped_twin = erm.ERMClassifier(bounds=box).fit(raw, wine.y), erm.ERMClassifier().fit(mapped, wine.y)
    assert np.array_equal(twin.coef_, mapped_twin.coef_)
    assert one.decision_function(raw) == pytest.approx(
        risk.design_matrix(mapped, radius=1.0, fit_intercept=False) @ one.coef_[0] + one.intercept_[0]
    )
    assert "feature bounds public" in one.guarantee_.assumes
    with pytest.raises(ValueError, match="bounds must be finite"):
        erm.ERMClassifier(bounds=box[:1]).fit(raw, wine.y)


def test_huber_has_no_probabilities_and_two_classes():
    X, y = simulated(100, 2)
    model = erm.ObjectivePerturbationClassifier(loss="huber", class_weight="balanced", random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert set(model.predict(X)) <= {0, 1}
    with pytest.raises(ValueError, match="classes must be two labels"):
        erm.ERMClassifier(loss="huber", classes=(0, 1, 2)).fit(X, y)


def test_gaussian_noise_with_several_classes_pays_for_each_direction():
    X, y = simulated(200, 3, 4)
    model = erm.ObjectivePerturbationClassifier(0.5, 0.1, delta=3e-3, classes=(0, 1, 2, 3), random_state=0).fit(X, y)
    shift = np.sqrt(2) * 2 * 1.0 / model.noise_scale_  # mass 2, a softmax gradient of length sqrt 2, radius 1
    solver = model.epsilon_solver_
    exact = calibration.gaussian_objective_delta(0.5 - solver, shift, determinant_share(model, 200))
    assert solver == pytest.approx(0.5e-3)
    assert exact * math.exp(solver / 2) == pytest.approx(1e-3, rel=1e-4)


def test_a_second_fit_leaves_nothing_of_the_first():
    X, y = simulated(60, 2)
    model = erm.ObjectivePerturbationClassifier(1.0, 0.1, class_weight="private", delta=1e-3, random_state=0).fit(X, y)
    assert hasattr(model, "class_weight_")
    assert hasattr(model, "noise_scale_")
    model.set_params(class_weight="balanced", delta=0.0).fit(X, y)
    assert not hasattr(model, "class_weight_")
    assert not hasattr(model, "noise_scale_")


@pytest.mark.parametrize("bounds", [[[0.0, 1e-310]], [[-1e308, 1e308]], [[-1e308, -1e308]]])
def test_bounds_that_arithmetic_cannot_use_are_refused(bounds):
    with pytest.raises(ValueError, match="bounds must be at most 1e150"):
        erm.ERMClassifier(bounds=bounds).fit(np.array([[0.0], [1.0]]), np.array([0, 1]))
