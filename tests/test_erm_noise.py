"""The noise of the private linear classifiers, recovered from what they release, against what their guarantees need."""

import math

import numpy as np
import pytest
from erm_data import determinant_share, neighbours, parameters, recovered_noise, simulated, weights_of
from scipy.stats import beta as beta_law
from scipy.stats import gamma, kstest, norm
from sklearn.base import clone

from helpers import erm
from helpers.erm import calibration
from helpers.privacy import ADD_REMOVE, gaussian_delta

N_FITS = 240
UNLIKELY = 1e-9  # some sixty p-values in this file
# dp-accounting's search for mu passes through infinity where epsilon is huge.
QUIET = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
WEIGHTS = {0: 0.2, 1: 0.5}


def pull_of(model, weighting) -> float:
    """How far one record moves the sum of the gradients at most: mass times steepness times radius."""
    return weighting.mass * (math.sqrt(2) if len(model.classes) > 2 else 1.0) * model.radius


def fits_of(estimator, X, y):
    return [clone(estimator).fit(X, y) for _ in range(N_FITS)]


def assert_k_norm(noise, rate):
    """Length Gamma(d, 1/rate), direction uniform: each coordinate of it squared is Beta(1/2, (d-1)/2)."""
    size = np.linalg.norm(noise, axis=1)
    assert kstest(size, gamma(noise.shape[1], scale=1 / rate).cdf).pvalue > UNLIKELY
    for part in (noise / size[:, None]).T:
        assert kstest(part**2, beta_law(0.5, (noise.shape[1] - 1) / 2).cdf).pvalue > UNLIKELY
        assert 0.3 < np.mean(part > 0) < 0.7


OBJECTIVE = [
    (erm.ObjectivePerturbationClassifier(1.0, 0.1), erm.UNWEIGHTED, None),
    (erm.ObjectivePerturbationClassifier(1.0, 0.1, class_weight=WEIGHTS), erm.fixed_weights(0.5), [0.2, 0.5]),
    (erm.ObjectivePerturbationClassifier(0.5, 0.1, class_weight="balanced", radius=2.0), erm.BALANCED, "balanced"),
    (erm.ObjectivePerturbationClassifier(1.0, 0.1, loss="huber"), erm.UNWEIGHTED, None),
    (
        erm.ObjectivePerturbationClassifier(1.0, 0.1, n_records=90, neighbouring=ADD_REMOVE),
        erm.fixed_weights(1.0, ADD_REMOVE),
        None,
    ),
    (erm.ObjectivePerturbationClassifier(1.0, 0.1, classes=(0, 1, 2)), erm.UNWEIGHTED, None),
]


def row_weights(kind, y):
    if kind is None:
        return None
    return weights_of(y) if kind == "balanced" else np.array(kind)[y]


@pytest.mark.parametrize(("estimator", "weighting", "kind"), OBJECTIVE)
def test_the_objective_has_the_noise_that_its_guarantee_needs(estimator, weighting, kind):
    X, y = simulated(60, 2)
    models = fits_of(estimator, X, y)
    noise = np.array([recovered_noise(model, X, y, row_weights(kind, y)) for model in models])
    rate = models[0].noise_rate_
    assert rate * pull_of(estimator, weighting) <= estimator.epsilon
    left = estimator.epsilon * (1 - estimator.tol) - determinant_share(models[0], estimator.n_records or 60, weighting)
    assert rate == pytest.approx(left / pull_of(estimator, weighting))
    assert_k_norm(noise, rate)


@pytest.mark.parametrize(("classes", "tol"), [((0, 1), 1e-3), ((0, 1, 2), 0.4)])
def test_gaussian_noise_in_the_objective_is_as_large_as_it_says(classes, tol):
    X, y = simulated(60, 2)
    estimator = erm.ObjectivePerturbationClassifier(1.0, 0.1, delta=1e-4, classes=classes, tol=tol)
    models = fits_of(estimator, X, y)
    noise = np.array([recovered_noise(model, X, y) for model in models])
    shift = pull_of(estimator, erm.UNWEIGHTED) / models[0].noise_scale_
    # A Gaussian in a fixed direction is the least that any proof can ask for.
    cost = determinant_share(models[0], 60)
    assert gaussian_delta(1 - tol - cost, shift) <= 1e-4
    exact = (len(classes) - 1) * calibration.gaussian_objective_delta(1 - tol, shift, cost)
    assert exact * math.exp(tol / 2) == pytest.approx(1e-4, rel=1e-6)
    assert kstest(noise.ravel() / models[0].noise_scale_, norm.cdf).pvalue > UNLIKELY


@pytest.mark.parametrize(
    ("estimator", "weighting"),
    [
        (erm.OutputPerturbationClassifier(0.7, 0.2, class_weight="balanced"), erm.BALANCED),
        (erm.OutputPerturbationClassifier(0.7, 0.2, class_weight=WEIGHTS, tol=0.25), erm.fixed_weights(0.5)),
        (erm.OutputPerturbationClassifier(0.7, 0.2, classes=(0, 1, 2), radius=3.0), erm.UNWEIGHTED),
    ],
)
def test_output_perturbation_adds_the_noise_that_its_guarantee_needs(estimator, weighting):
    models, noise, farthest = noise_on_the_minimiser(estimator, weighting)
    assert models[0].noise_rate_ * farthest == pytest.approx(0.7)
    assert_k_norm(noise, models[0].noise_rate_)


@pytest.mark.parametrize(
    ("changes", "weighting"),
    [
        ({"tol": 0.25}, erm.UNWEIGHTED),
        ({"class_weight": "balanced", "radius": 2.0}, erm.BALANCED),
        ({"class_weight": WEIGHTS, "neighbouring": ADD_REMOVE, "n_records": 50}, erm.fixed_weights(0.5, ADD_REMOVE)),
        ({"classes": (0, 1, 2)}, erm.UNWEIGHTED),
    ],
    ids=str,
)
def test_gaussian_noise_on_the_minimiser_is_what_its_guarantee_needs(changes, weighting):
    estimator = erm.OutputPerturbationClassifier(0.7, 0.2, delta=1e-4, **changes)
    models, noise, farthest = noise_on_the_minimiser(estimator, weighting)
    scale = models[0].noise_scale_
    assert gaussian_delta(0.7, farthest / scale) == pytest.approx(1e-4, rel=1e-4)
    assert kstest(noise.ravel() / scale, norm.cdf).pvalue > UNLIKELY
    guarantee = models[0].guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (0.7, 1e-4, estimator.neighbouring)
    assert guarantee.event.noise_multiplier == pytest.approx(scale / farthest)
    assert guarantee.delta_at(0.7) == pytest.approx(1e-4, rel=1e-6)
    assert models[0].epsilon_solver_ == 0
    assert not hasattr(models[0], "noise_rate_")


def noise_on_the_minimiser(estimator, weighting):
    """Fits of one table, their noise, and how far one record moves what the solver finds."""
    X, y = simulated(50, 2)
    same = {name: value for name, value in estimator.get_params().items() if name in erm.ERMClassifier().get_params()}
    exact = parameters(erm.ERMClassifier(**same | {"tol": 1e-10}).fit(X, y))
    models = fits_of(estimator, X, y)
    noise = np.array([(parameters(model) - exact).ravel() for model in models])
    return models, noise, pull_of(estimator, weighting) / (50 * 0.2) / (1 - estimator.tol)  # 2 rho included


@QUIET
@pytest.mark.parametrize(
    ("parameters_", "weighting"),
    [
        ({}, erm.UNWEIGHTED),
        ({"class_weight": WEIGHTS, "radius": 0.3}, erm.fixed_weights(0.5)),
        ({"class_weight": "balanced", "radius": 2.0}, erm.BALANCED),
        ({"n_records": 70, "neighbouring": ADD_REMOVE}, erm.fixed_weights(1.0, ADD_REMOVE)),
    ],
)
def test_a_step_of_gradient_descent_has_the_noise_that_its_guarantee_needs(parameters_, weighting):
    """One step from 0: the noise is what a fit with hardly any noise does not have."""
    X, y = simulated(60, 2)
    estimator = erm.DPGradientDescentClassifier(1.0, 1e-4, n_steps=1, **parameters_)
    clean = parameters(clone(estimator).set_params(epsilon=1e12, delta=0.999).fit(X, y))
    models = fits_of(estimator, X, y)
    step = 1 / (0.25 * estimator.radius**2 + estimator.regularization)  # with the proximal step's shrinking
    divisor = estimator.n_records or 60
    noise = np.array([parameters(model) - clean for model in models]) * divisor / step
    sensitivity = weighting.mass * estimator.radius
    scale = models[0].noise_multiplier_ * sensitivity
    assert gaussian_delta(1.0, sensitivity / scale) == pytest.approx(1e-4, rel=1e-4)
    assert kstest(noise.ravel() / scale, norm.cdf).pvalue > UNLIKELY


@QUIET
def test_the_sum_of_a_step_moves_by_at_most_what_the_noise_is_for():
    """Largest change of a fitted step over neighbours, noise aside: at most mass times clip, and not far below."""
    rng, largest = np.random.default_rng(3), 0.0
    estimator = erm.DPGradientDescentClassifier(
        1e12, 0.999, n_steps=1, radius=0.2, class_weight="balanced", fit_intercept=False, step=0.01, penalty=None
    )
    for _ in range(150):
        n, d = int(rng.integers(1, 12)), int(rng.integers(1, 4))
        sums = [n * parameters(clone(estimator).fit(*side)) for side in neighbours(rng, n, d)]
        largest = max(largest, np.linalg.norm(sums[0] - sums[1]))
    assert 0.5 * 2 * 0.2 < largest <= 2 * 0.2 * (1 + 1e-4)


def test_steps_have_noise_of_their_own():
    """With the same noise in every step, four of them would spread four times as far as one, not twice."""
    X, y = np.zeros((40, 2)), np.zeros(40, dtype=int)
    spreads = []
    for steps in (1, 4):
        estimator = erm.DPGradientDescentClassifier(1.0, 1e-3, n_steps=steps, fit_intercept=False, penalty=None)
        models = fits_of(estimator, X, y)
        spreads.append(np.std([parameters(model) for model in models]) / models[0].noise_multiplier_)
    assert spreads[1] / spreads[0] == pytest.approx(2.0, rel=0.3)  # six standard deviations; the same noise gives 4


def test_private_counts_have_noise_of_their_own():
    """The weights do not tell the noise of the coefficients."""
    X, y = simulated(60, 2)
    estimator = erm.ObjectivePerturbationClassifier(2.0, 0.5, class_weight="private", counts_share=0.5)
    models = fits_of(estimator, X, y)
    weights = np.array([model.class_weight_ for model in models])
    noise = np.array([recovered_noise(model, X, y, model.class_weight_[y]) for model in models])
    lengths = np.linalg.norm(noise, axis=1) * [model.noise_rate_ for model in models]
    assert np.std(weights[:, 1]) > 0
    assert abs(np.corrcoef(weights[:, 1], lengths)[0, 1]) < 0.4
    assert kstest(lengths, gamma(3).cdf).pvalue > UNLIKELY
