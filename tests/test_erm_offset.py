"""Log-odds of the classes inside the loss, size of the constant feature, rows of one length: fits and their noise."""

import math

import numpy as np
import pytest
from erm_data import ROUNDING, neighbours, parameters, weights_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, softmax
from scipy.stats import gamma, kstest, norm
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from checks import exact_loss
from helpers import erm
from helpers.erm import calibration
from helpers.erm.risk import factored_rows
from helpers.privacy import ADD_REMOVE, EXACT_REALS, REPLACE_ONE, RUNNING_TIME

N_FITS = 160
UNLIKELY = 1e-9
WEIGHTS = {0: 0.2, 1: 0.9}


def skewed(n=90, d=2, n_classes=2, seed=0):
    """Records of which the later classes are rarer, away from the origin."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.choice(n_classes, size=n, p={2: [0.85, 0.15], 3: [0.75, 0.17, 0.08]}[n_classes]))
    return 0.3 + 0.2 * rng.standard_normal((n, d)) + 0.2 * y[:, None], y


def constant(model) -> float:
    """The constant feature, by its definition."""
    return model.intercept_scaling * model.radius / math.sqrt(1 + model.intercept_scaling**2)


def pull(model, X, y, weights=None):
    """Sum (K - 1, D) of the gradients at a fitted model, its offset outside the coefficients, and these.

    Scores are written out, with `offset_` beside the rest: no linear term as in the package.
    """
    rows, beta = model._rows(X).written(), np.atleast_2d(parameters(model)).copy()
    weights = np.ones(len(y)) if weights is None else weights
    codes = np.searchsorted(model.classes_, y)
    if len(model.classes_) == 2:
        beta[:, -1] -= model.offset_ / constant(model)
        residual = (expit(rows @ beta[0] + model.offset_) - codes)[:, None]
        return (weights[:, None] * residual).T @ rows, beta
    basis = erm.zero_sum_basis(len(model.classes_))
    beta[:, -1] -= basis @ model.offset_ / constant(model)
    residual = softmax(rows @ beta.T @ basis + model.offset_, axis=1) - np.eye(len(model.classes_))[codes]
    return basis @ (weights[:, None] * residual).T @ rows, beta


# The fit


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"intercept_scaling": 0.1},
        {"class_weight": WEIGHTS, "radius": 2.0, "intercept_scaling": 3.0},
        {"classes": (0, 1, 2), "intercept_scaling": 0.3},
        {"bounds": [[-1.0, 2.0]] * 2},
    ],
    ids=str,
)
def test_the_offset_stands_inside_the_loss_and_what_is_penalised_is_the_rest(options):
    """The gradient of the documented objective vanishes, and the offset is the log-odds of the weighted counts."""
    X, y = skewed(n_classes=len(options.get("classes", (0, 1))))
    model = erm.ERMClassifier(0.3, tol=1e-12, prior="offset", **options).fit(X, y)
    weights = np.array([0.2, 0.9])[y] if "class_weight" in options else None
    total, beta = pull(model, X, y, weights)
    assert total / len(y) + 0.3 * beta == pytest.approx(0, abs=1e-10)
    sizes = np.bincount(y) * (np.array([0.2, 0.9]) if weights is not None else 1.0)
    shares = np.log(sizes) - np.log(sizes).mean()
    assert model.offset_ == pytest.approx(shares if len(sizes) > 2 else math.log(sizes[1] / sizes[0]))


def test_a_strong_penalty_leaves_the_share_of_the_minority():
    X, y = skewed()
    with_prior, without = (erm.ERMClassifier(1e4, prior=prior).fit(X, y) for prior in ("offset", None))
    assert with_prior.predict_proba(X)[:, 1] == pytest.approx(np.mean(y), abs=1e-4)
    assert without.predict_proba(X)[:, 1] == pytest.approx(0.5, abs=1e-4)
    assert without.offset_ == 0.0


def test_a_strong_penalty_turns_the_ranking_round_without_an_offset_and_not_with_it():
    """No noise: the classes differ along one axis, and all records lie far out on it."""
    rng = np.random.default_rng(1)
    y = (np.arange(2000) < 100).astype(int)
    X = np.column_stack([0.5 + 0.08 * rng.standard_normal(2000) + 0.16 * y, 0.1 * rng.standard_normal(2000)])
    area = {}
    for prior in (None, "offset"):
        model = erm.ERMClassifier(1.0, prior=prior).fit(X, y)
        area[prior] = roc_auc_score(y, model.decision_function(X))
    assert area[None] < 0.1
    assert area["offset"] > 0.9


@pytest.mark.parametrize("label", [0, 1])
def test_an_absent_class_counts_as_one_record(label):
    model = erm.ERMClassifier(0.1, prior="offset").fit(np.zeros((50, 1)), np.full(50, label))
    assert model.offset_ == pytest.approx((2 * label - 1) * math.log(50))


# Rows


def test_rows_of_one_length_and_the_constant_beside_them():
    X = np.array([[3.0, 4.0], [0.03, -0.04], [0.0, 0.0], [1e-160, 1e-161], [1e-120, 0.0]])
    rows = factored_rows(X, radius=2.0, fit_intercept=True, rows="unit", intercept_scaling=0.5).written()
    share = 2.0 / math.sqrt(1.25)
    expected = share * np.array([[0.6, 0.8, 0.5], [0.6, -0.8, 0.5], [0, 0, 0.5], [0, 0, 0.5], [1.0, 0, 0.5]])
    assert rows == pytest.approx(expected, abs=1e-15)
    assert np.linalg.norm(rows, axis=1).max() <= 2.0 * ROUNDING
    one = erm.ObjectivePerturbationClassifier(rows="unit").fit(X[:2], [0, 1])
    assert one.decision_function(7 * X[:2]) == pytest.approx(one.decision_function(X[:2]))


@given(st.integers(1, 4), st.floats(1e-3, 1e3), st.floats(-170, 140), st.integers(0, 10**6))
def test_no_row_is_longer_than_the_radius(d, a, magnitude, seed):
    X = 10.0**magnitude * np.random.default_rng(seed).standard_normal((5, d))
    for rows in ("clip", "unit"):
        found = factored_rows(X, radius=1.5, fit_intercept=True, rows=rows, intercept_scaling=a).written()
        assert np.linalg.norm(found, axis=1).max() <= 1.5 * (1 + 1e-12)


# The noise of fitted objects

OBJECTIVE = [
    ({}, 2.0),
    ({"intercept_scaling": 0.1, "rows": "unit", "radius": 2.0}, 4.0),
    ({"class_weight": {0: 0.2, 1: 0.5}}, 1.0),
    ({"n_records": 120, "neighbouring": ADD_REMOVE}, 1.0),
    ({"classes": (0, 1, 2), "intercept_scaling": 0.3}, 2 * math.sqrt(2)),
]


def objective_noise(model, X, y):
    weights = None if model.class_weight is None else np.array([0.2, 0.5])[y]
    total, beta = pull(model, X, y, weights)
    return -(total + (model.n_records or len(y)) * model.total_regularization_ * beta).ravel()


@pytest.mark.parametrize(("options", "moved"), OBJECTIVE, ids=str)
def test_the_objective_has_the_noise_that_its_share_pays_for(options, moved):
    """Recovered from coefficients and released offset: its length is Gamma, at the rate of nine tenths of epsilon."""
    X, y = skewed(n_classes=len(options.get("classes", (0, 1))))
    estimator = erm.ObjectivePerturbationClassifier(2.0, 0.1, prior="offset", **options)
    models = [clone(estimator).fit(X, y) for _ in range(N_FITS)]
    noise = np.array([objective_noise(model, X, y) for model in models])
    rate = models[0].noise_rate_
    assert rate * moved == pytest.approx(0.9 * 2.0 * (1 - estimator.tol), rel=1e-9)
    lengths = np.linalg.norm(noise, axis=1)
    assert kstest(lengths, gamma(noise.shape[1], scale=1 / rate).cdf).pvalue > UNLIKELY
    assert {model.guarantee_.epsilon for model in models} == {2.0}
    first = np.array([np.ravel(model.offset_)[0] for model in models])
    assert np.std(first) > 0
    assert abs(np.corrcoef(first, lengths)[0, 1]) < 0.4
    assert np.abs(np.corrcoef(first, noise.T)[0, 1:]).max() < 0.4


def test_gaussian_noise_with_an_offset_has_the_share_of_epsilon_and_the_whole_delta():
    X, y = skewed()
    estimator = erm.ObjectivePerturbationClassifier(2.0, 0.1, delta=1e-4, prior="offset", counts_share=0.3)
    models = [clone(estimator).fit(X, y) for _ in range(N_FITS)]
    noise = np.array([objective_noise(model, X, y) for model in models])
    scale = models[0].noise_scale_
    share = 1.4 * (1 - estimator.tol)
    exact = calibration.gaussian_objective_delta(share, 2 / scale)
    assert exact * math.exp(1.4 * estimator.tol / 2) == pytest.approx(1e-4, rel=1e-6)
    assert kstest(noise.ravel() / scale, norm.cdf).pvalue > UNLIKELY
    assert (models[0].guarantee_.epsilon, models[0].guarantee_.delta) == (pytest.approx(2.0), 1e-4)


@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("options", [{}, {"neighbouring": ADD_REMOVE}], ids=str)
def test_output_perturbation_adds_its_noise_to_the_minimiser_for_the_released_offset(options, delta):
    X, y = skewed()
    n = 100 if options else len(y)
    estimator = erm.OutputPerturbationClassifier(
        2.0, 0.2, delta=delta, prior="offset", counts_share=0.25, n_records=n if options else None, **options
    )
    models, noise = [clone(estimator).fit(X, y) for _ in range(N_FITS)], []
    for model in models:
        rows = model._rows(X).written()

        def objective(beta, rows=rows, model=model):
            scores = rows @ beta + model.offset_
            value = np.logaddexp(0, scores).sum() / n - scores[y == 1].sum() / n + 0.1 * beta @ beta
            return value, (expit(scores) - y) @ rows / n + 0.2 * beta

        exact = minimize(objective, np.zeros(3), jac=True, options={"gtol": 1e-9}).x
        released = parameters(model)
        released[-1] -= model.offset_ / constant(model)
        noise.append(released - exact)
    moved = (1.0 if options else 2.0) / (n * 0.2)
    if delta:
        scale = models[0].noise_scale_
        assert kstest(np.ravel(noise) / scale, norm.cdf).pvalue > UNLIKELY
        assert models[0].guarantee_.delta == delta
    else:
        assert models[0].noise_rate_ * moved == pytest.approx(1.5 * (1 - estimator.tol), rel=1e-9)
        assert kstest(np.linalg.norm(noise, axis=1), gamma(3, scale=moved / 1.5).cdf).pvalue > UNLIKELY
    assert models[0].guarantee_.epsilon == pytest.approx(2.0)


@pytest.mark.parametrize("kind", [erm.ObjectivePerturbationClassifier, erm.OutputPerturbationClassifier])
def test_one_noisy_count_at_its_share_makes_the_offset(kind):
    """Under replace-one the offset is that of a whole number of minority records with two-sided geometric noise."""
    X, y = skewed(200)
    model = kind(1.0, 0.1, prior="offset", counts_share=0.4)
    n1 = 200 * expit([clone(model).fit(X, y).offset_ for _ in range(N_FITS)])
    noise = np.rint(n1) - y.sum()
    assert np.abs(n1 - np.rint(n1)).max() < 1e-9
    ratio = math.exp(-0.4)
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(noise.mean()) < 6 * math.sqrt(variance / N_FITS)
    assert noise.var() == pytest.approx(variance, rel=0.65)  # six standard deviations of a variance's estimate


def test_the_guarantee_names_what_the_offset_assumes():
    X, y = skewed()
    guarantee = erm.ObjectivePerturbationClassifier(prior="offset").fit(X, y).guarantee_
    usual = {
        "number of records public",
        "norm bound (radius) public",
        "set of labels public",
        EXACT_REALS,
        RUNNING_TIME,
    }
    assert set(guarantee.assumes) == usual | {"class list"}
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (1.0, 0.0, REPLACE_ONE)


# The exact loss


@given(
    st.integers(1, 4),
    st.integers(1, 20),
    st.floats(-2.5, 1.5),
    st.floats(-2, 2),
    st.floats(-9, 9),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_an_offset_never_raises_the_exact_loss_above_what_is_proved(d, n, log_rate, log_total, offset, balanced, seed):
    rng = np.random.default_rng(seed)
    constants = erm.Calibration(10**log_rate, 10**log_total / n)
    (rows, codes), (rows2, codes2) = neighbours(rng, n, d)
    a = 10 ** rng.uniform(-2, 1)
    rows, rows2 = (np.column_stack([r, np.full(n, a)]) / math.sqrt(1 + a**2) for r in (rows, rows2))
    center = np.append(np.zeros(d), offset / rows[0, -1])
    fixed = rng.random(2)
    w, w2 = (weights_of(c) if balanced else fixed[c] for c in (codes, codes2))
    weighting = erm.BALANCED if balanced else erm.fixed_weights(float(fixed.max()))
    signed, signed2 = rows * (2 * codes - 1)[:, None], rows2 * (2 * codes2 - 1)[:, None]
    proven = exact_loss.proven_epsilon(constants, n_records=n, weighting=weighting)
    spread = 10 ** rng.uniform(-2, 3, (5, 1)) * rng.standard_normal((5, d + 1))
    for beta in center + np.vstack([spread, 10 ** rng.uniform(-2, 3) * signed[:1]]):
        exact = exact_loss.privacy_loss(
            beta, signed, signed2, **constants._asdict(), weights=w, neighbour_weights=w2, center=center
        )
        assert abs(exact) <= proven * ROUNDING + 1e-9


@given(
    st.integers(1, 3), st.integers(3, 4), st.integers(1, 15), st.floats(-2, 1), st.floats(-2, 2), st.integers(0, 10**6)
)
def test_nor_with_several_classes_or_one_record_more(d, n_classes, n, log_rate, log_total, seed):
    rng = np.random.default_rng(seed)
    constants = erm.Calibration(10**log_rate, 10**log_total / n)
    here, there = neighbours(rng, n, d, n_classes)
    center = np.zeros((n_classes - 1, d))
    center[:, -1] = 5 * rng.standard_normal(n_classes - 1)
    proven = exact_loss.proven_epsilon(constants, n_records=n, loss=erm.Softmax(n_classes))
    signed = here[0] * np.where(here[1] > 0, 1, -1)[:, None]
    more = exact_loss.proven_epsilon(constants, n_records=n, weighting=erm.fixed_weights(1.0, ADD_REMOVE))
    for C in center + 10 ** rng.uniform(-2, 2) * rng.standard_normal((4, n_classes - 1, d)):
        exact = exact_loss.softmax_privacy_loss(C, here, there, **constants._asdict(), center=center)
        assert abs(exact) <= proven * ROUNDING + 1e-9
        one = exact_loss.privacy_loss(C[0], signed, signed[1:], **constants._asdict(), n_records=n, center=center[0])
        assert abs(one) <= more * ROUNDING + 1e-9


def test_the_exact_loss_with_an_offset_is_the_ratio_of_densities():
    """Density of the noise times the derivative of noise by output, with the offset written into the loss."""
    rate, total, offset, beta, c = 0.7, 0.3, -1.5, 0.4, 0.6
    densities = []
    for labels in ([0, 0, 1], [0, 0, 0]):
        signs = 2.0 * np.array(labels) - 1

        def noise(u, signs=signs):
            return (signs * c * expit(-signs * (c * u + offset))).sum() - 3 * total * u

        slope = (noise(beta + 1e-5) - noise(beta - 1e-5)) / 2e-5
        densities.append(-rate * abs(noise(beta)) + math.log(abs(slope)))
    data, neighbour = (np.array([[-c], [-c], [s * c]]) for s in (1, -1))
    exact = exact_loss.privacy_loss(
        [beta + offset / c], data, neighbour, noise_rate=rate, total_regularization=total, center=[offset / c]
    )
    assert exact == pytest.approx(densities[0] - densities[1], abs=1e-8)
    assert abs(exact) > 0.1


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "count"}, "prior must be one of"),
        ({"prior": "offset", "fit_intercept": False}, "prior must be None with fit_intercept"),
        ({"prior": "offset", "class_weight": "balanced"}, "prior must be None with class_weight"),
        ({"prior": "offset", "class_weight": {0: 0.0, 1: 1.0}}, "class_weight must be above 0"),
    ],
)
@pytest.mark.parametrize(
    "kind", [erm.ERMClassifier, erm.ObjectivePerturbationClassifier, erm.OutputPerturbationClassifier]
)
def test_what_makes_no_sense_is_refused_before_the_data_are_read(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(None, None)


def test_a_row_that_makes_no_sense_is_refused_too():
    for scaling in (0.99e-3, 1.01e3):
        for kind in (erm.ERMClassifier, erm.ObjectivePerturbationClassifier):
            with pytest.raises(ValueError, match="intercept_scaling must be"):
                kind(intercept_scaling=scaling).fit(None, None)
    with pytest.raises(ValueError, match="rows must be one of"):
        erm.ObjectivePerturbationClassifier(rows="long").fit(None, None)


def test_the_smallest_constant_keeps_the_digits_that_the_solver_is_paid_for():
    """Two ways to the same coefficients, offset inside or as a target of the penalty, at the largest odds there are."""
    X, y = np.full((50, 2), 0.1), np.zeros(50, dtype=int)
    multiplicity = np.full(50, 2 * 10**13)
    model = erm.ERMClassifier(0.1, tol=1e-13, prior="offset", intercept_scaling=1e-3).fit(X, y, multiplicity)
    assert model.offset_ == pytest.approx(-math.log(1e15))
    total, beta = pull(model, X, y)
    blur = 4e-7  # of objective perturbation, at epsilon = 1
    assert np.linalg.norm(total / 50 + 0.1 * beta) / 0.1 < 1e-4 * blur
