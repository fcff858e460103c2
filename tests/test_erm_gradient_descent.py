"""Noisy gradient descent: which records a step sees, what one record moves in it, and what the guarantee says."""

import itertools
import math

import dask.array as dask_array
import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from erm_data import simulated
from scipy.stats import binom, chi2, chisquare, kstest, norm
from sklearn.base import clone

from helpers.erm import DPGradientDescentClassifier, gradient_descent, scaling
from helpers.erm.scaling import ScaledLinearClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, audit_estimator, event_epsilon, gaussian_mu, neighbouring_data

UNLIKELY = 1e-6
ROUNDING = 1 + 1e-9
CUBE = [[-1.0, 1.0], [-1.0, 1.0]]
NO_NOISE = {"epsilon": 1e12, "delta": 0.999}
PLAIN = {"penalty": None, "fit_intercept": False}
QUIET = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")


def sampled(rate, **parameters):
    return DPGradientDescentClassifier(sample_rate=rate, neighbouring=ADD_REMOVE, **parameters)


class Silent(np.random.Generator):
    """A source without noise; what it samples, it samples."""

    def normal(self, loc=0.0, scale=1.0, size=None):
        return np.zeros(np.shape(scale) if size is None else size)


class Whole(Silent):
    """A source without noise, from which every step draws all records."""

    def random(self, size=None):
        return np.zeros(size)


@pytest.fixture
def released(monkeypatch):
    """Function of a model and data: the sums (T, D) that the steps of its fit release, in units of their noise."""
    found = []

    def to_grid(value, scale):
        found.append(np.array(value))
        return value

    def of(model, X, y):
        found.clear()
        model.fit(X, y)
        return np.array(found)

    monkeypatch.setattr("helpers.privacy.ledger.to_grid", to_grid)
    return of


def without_noise(monkeypatch, source):
    seeds = itertools.count()
    monkeypatch.setattr(ScaledLinearClassifier, "_noise_generator", lambda *_: source(np.random.PCG64(next(seeds))))
    monkeypatch.setattr("helpers.privacy.ledger.noise_assumptions", lambda rng: ())


@pytest.fixture
def silent(monkeypatch):
    """Fits draw records, each of its own seed, and no noise."""
    without_noise(monkeypatch, Silent)


@pytest.fixture
def whole(monkeypatch):
    """Fits draw no noise, and every sample is of all records."""
    without_noise(monkeypatch, Whole)


# Sampling


def drawn(X, rate, n_fits):
    """How many copies of each record (equal or orthogonal unit vectors) the only step of each fit has seen."""
    model = sampled(rate, n_steps=1, n_records=1, step=0.25, **PLAIN)
    y = np.ones(len(X), dtype=int)
    return np.array([clone(model).fit(X, y).coef_[0] for _ in range(n_fits)]) * 2 * rate


def test_every_record_is_seen_with_the_probability_that_is_paid_for_and_independently(silent):
    seen = drawn(np.eye(3), 0.3, 400)
    assert seen == pytest.approx(np.rint(seen), abs=1e-6)
    patterns = np.bincount(np.rint(seen).astype(int) @ [4, 2, 1], minlength=8)
    expected = [0.3**k * 0.7 ** (3 - k) for k in map(int.bit_count, range(8))]
    assert chisquare(patterns, 400 * np.array(expected)).pvalue > UNLIKELY


def test_copies_of_a_record_are_drawn_one_by_one(silent):
    seen = np.rint(drawn(np.ones((5, 1)), 0.3, 300)[:, 0]).astype(int)
    expected = 300 * binom(5, 0.3).pmf(np.arange(6))
    assert chisquare(np.bincount(seen, minlength=6), expected).pvalue > UNLIKELY


def test_each_step_draws_anew(released, silent):
    """Whether a step sees the only record, and whether the next one does, are two fair coins."""
    model = sampled(0.5, n_steps=2000, n_records=10**9, **PLAIN)
    seen = np.abs(released(model, np.ones((1, 1)), np.ones(1, int))[:, 0] * model.noise_scales_) > 0.1
    assert len(seen) == 2000
    pairs = np.bincount(2 * seen[:-1:2] + seen[1::2], minlength=4)
    assert chisquare(pairs).pvalue > UNLIKELY


def test_the_sum_is_divided_by_how_many_are_expected(silent):
    """Without noise the mean of many sampled steps is the step of all records."""
    X, y = simulated(200, 2)
    common = {"n_steps": 1, "n_records": 200, "neighbouring": ADD_REMOVE}
    whole = DPGradientDescentClassifier(**common).fit(X, y).coef_
    model = DPGradientDescentClassifier(sample_rate=0.5, **common)
    parts = [clone(model).fit(X, y).coef_ for _ in range(400)]
    assert np.mean(parts, axis=0) == pytest.approx(whole, abs=0.02)


# All pass through one calibration, whose accountant takes two seconds a case: half of the grid is tried weekly.
SPENDING = [(0.1, None, 0.1), (0.5, "private", 0.05), (0.1, "private", 0.6)]
SPENDING += [
    pytest.param(*case, marks=pytest.mark.weekly)
    for case in [(0.5, None, 0.1), (0.1, "private", 0.05), (0.5, "private", 0.6)]
]


@pytest.mark.parametrize(("rate", "scale", "share"), SPENDING)
def test_sampled_steps_and_the_scale_spend_the_budget(scale, share, rate, monkeypatch):
    monkeypatch.setattr(scaling, "SCALE_SHARE", share)
    monkeypatch.setattr(gradient_descent, "SCALE_SHARE", share)
    X, y = simulated(60, 2)
    model = sampled(rate, epsilon=1.5, delta=1e-5, n_steps=20, scale=scale, bounds=CUBE, n_records=60).fit(X, y)
    steps = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(model.noise_multiplier_)), 20)
    accountant = RdpAccountant(neighboring_relation=ADD_REMOVE)
    if scale == "private":
        # The square of its parameter is the scale's share of what one Gaussian mechanism could have.
        first = GaussianDpEvent(1 / (math.sqrt(share) * gaussian_mu(1.5, 1e-5)))
        accountant.compose(first)
        assert model.guarantee_.event == ComposedDpEvent((first, steps))
    assert accountant.compose(steps).get_epsilon(1e-5) > 1.5  # its bound is looser
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (1.5, 1e-5, ADD_REMOVE)
    told = event_epsilon(guarantee.event, 1e-5, ADD_REMOVE)
    assert 1.5 * 0.99 < told < 1.5
    assert event_epsilon(steps, 1e-5, ADD_REMOVE) < told * (1 if scale else 1 + 1e-9)
    assert model.noise_scales_ == pytest.approx(model.noise_multiplier_)


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize("share", [0.05, 0.6])
def test_steps_of_all_records_and_the_scale_spend_the_budget(relation, share, monkeypatch):
    for module in (scaling, gradient_descent):
        monkeypatch.setattr(module, "SCALE_SHARE", share)
    X, y = simulated(60, 2)
    model = DPGradientDescentClassifier(
        1.5, 1e-5, 20, scale="private", bounds=CUBE, n_records=60, neighbouring=relation
    ).fit(X, y)
    first, steps = model.guarantee_.event.events
    assert (steps.count, steps.event.noise_multiplier) == (20, model.noise_multiplier_)
    parts = np.array([first.noise_multiplier**-2, 20 * model.noise_multiplier_**-2])
    assert np.sqrt(parts.sum()) == pytest.approx(gaussian_mu(1.5, 1e-5), rel=1e-9)
    assert parts[0] / parts.sum() == pytest.approx(share)
    sensitivity = 1.0 if relation is ADD_REMOVE else 2.0  # rows are at most 1 long
    assert model.noise_scales_ == pytest.approx(sensitivity * model.noise_multiplier_)


def test_sampling_pays():
    X, y = simulated(60, 2)
    common = {"neighbouring": ADD_REMOVE, "n_records": 60}
    whole = DPGradientDescentClassifier(**common).fit(X, y).noise_multiplier_
    few = sampled(0.02, n_records=60).fit(X, y).noise_multiplier_
    assert few / 0.02 > whole > 5 * few


@pytest.mark.parametrize("parameters", [{}, {"class_weight": {0: 0.2, 1: 0.5}, "radius": 0.3}, {"scale": "public"}])
def test_a_sampled_step_has_the_noise_that_its_guarantee_needs(parameters):
    """Records at the centre say nothing, so the coefficients are the noise."""
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    model = sampled(0.4, n_steps=1, n_records=50, bounds=CUBE if "scale" in parameters else None, **PLAIN, **parameters)
    fits = [clone(model).fit(X, y) for _ in range(200)]
    units = 4 / math.sqrt(2) if "scale" in parameters else 4 / model.radius**2
    heaviest = 0.5 if "class_weight" in parameters else 1.0
    spread = fits[0].noise_multiplier_ * heaviest * model.radius * units / (50 * 0.4)
    noise = np.ravel([fit.coef_ for fit in fits]) / spread
    assert kstest(noise, norm.cdf).pvalue > UNLIKELY
    assert UNLIKELY < chi2(len(noise)).cdf(noise @ noise) < 1 - UNLIKELY


# What one record moves


@pytest.mark.parametrize(("relation", "rate"), [(REPLACE_ONE, None), (ADD_REMOVE, None), (ADD_REMOVE, 0.5)])
@pytest.mark.parametrize(
    "parameters",
    [
        {"radius": 0.4},
        {"radius": 9.0, "scale": None, "bounds": [[-0.1, 0.1], [-2.0, 2.0]]},
        {"radius": 0.5, "bounds": [[-0.1, 0.1], [-2.0, 2.0]]},
        {"class_weight": {0: 0.2, 1: 0.5}},
    ],
    ids=str,
)
def test_a_step_moves_by_what_the_noise_is_for(relation, rate, parameters, released, whole):
    """Over the neighbours of some tables, all records being seen: what the Gaussian mechanism of the event may move."""
    model = DPGradientDescentClassifier(
        n_steps=1, sample_rate=rate, neighbouring=relation, n_records=5, penalty=None, **parameters
    )
    candidates = np.array([[3.0, 0.0], [0.0, -3.0], [-2.0, 2.0], [0.1, 2.0], [-0.1, -2.0]])
    largest = 0.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(5, 2)), rng.integers(2, size=5)
        X[0], y[0] = candidates[seed % 5], seed % 2
        others = [(np.vstack([x, X[1:]]), np.append(label, y[1:])) for x in candidates for label in (0, 1)]
        here = released(model, X, y)
        for other in [(X[1:], y[1:])] if relation is ADD_REMOVE else others:
            largest = max(largest, np.linalg.norm(released(model, *other) - here))
    assert 0.3 < largest * model.noise_multiplier_ <= ROUNDING


def test_balanced_weights_and_replaced_records_are_not_sampled():
    for changes, word in (
        ({"neighbouring": REPLACE_ONE}, "neighbouring must be add/remove-one"),
        ({"class_weight": "balanced"}, "class_weight must not be 'balanced'"),
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"sample_rate": 1.0}, "sample_rate"),
    ):
        with pytest.raises(ValueError, match=word):
            sampled(0.5, n_records=30).set_params(**changes).fit(*simulated(30, 2))


# Where the steps lead


@QUIET
@pytest.mark.parametrize("average", [0.0, 0.5, 1.0])
def test_steps_and_averages_by_hand(average):
    """In the public scale, with weights, a prior and a penalty."""
    X, y = simulated(40, 2)
    bounds, weights = np.array([[-1.0, 1.0], [-3.0, 1.0]]), np.array([0.3, 0.9])
    model = DPGradientDescentClassifier(
        n_steps=4,
        step=2.0,
        radius=0.5,
        bounds=bounds,
        average=average,
        penalty="l2",
        regularization=0.01,
        prior="offset",
        class_weight=dict(enumerate(weights)),
        **NO_NOISE,
    ).fit(X, y)
    middle, half = bounds.mean(axis=1), np.ptp(bounds, axis=1) / 2
    rows = np.column_stack([(np.clip(X, *bounds.T) - middle) / half, np.ones(40)]) / math.sqrt(3)
    signs, beta, results = 2 * y - 1, np.zeros(3), []
    offset = math.log(0.9 * y.sum() / (0.3 * (1 - y).sum()))
    assert model.offset_ == pytest.approx(offset)
    for _ in range(4):
        pulls = (signs / (1 + np.exp(signs * (offset + rows @ beta))))[:, None] * rows
        pulls = pulls / np.maximum(1.0, np.linalg.norm(pulls, axis=1) / 0.5)[:, None]
        moved = beta + 8.0 * weights[y] @ pulls / 40
        beta = moved / (1 + 8.0 * 0.01)
        results.append(beta)
    last = np.mean(results[-max(round(4 * average), 1) :], axis=0)
    expected = offset + rows @ last
    assert model.decision_function(X) == pytest.approx(expected, abs=2e-3)
    assert np.linalg.norm(last) > 0.1


def test_bounds_set_the_scale_where_nothing_else_is_said():
    """Features in units of their own lie in the ball then; without bounds, or with None, they stay as they are."""
    X, y = simulated(300, 2)
    units = np.array([1e3, 1e-3])
    common = {"epsilon": 1e4, "delta": 0.5, "n_steps": 50}
    auto = DPGradientDescentClassifier(bounds=CUBE * units[:, None], **common).fit(X * units, y)
    public = DPGradientDescentClassifier(bounds=CUBE, scale="public", **common).fit(X, y)
    assert auto.decision_function(X * units) == pytest.approx(public.decision_function(X), abs=0.1)
    plain, same = (DPGradientDescentClassifier(scale=scale, **common).fit(X, y) for scale in (None, "auto"))
    assert plain.coef_ == pytest.approx(same.coef_, abs=0.1)
    clipped = DPGradientDescentClassifier(scale=None, bounds=CUBE * units[:, None], **common).fit(X * units, y)
    assert clipped.score(X * units, y) < auto.score(X * units, y) - 0.02


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_the_audit_refutes_nothing(relation):
    rate = 0.5 if relation is ADD_REMOVE else None
    model = DPGradientDescentClassifier(
        4.0, 1e-2, 3, sample_rate=rate, scale="private", prior="offset", bounds=CUBE, n_records=40
    )
    pair = neighbouring_data(relation)
    audit = audit_estimator(model.set_params(neighbouring=relation), *pair, n_runs=48, n_seeds=16, confidence=0.99999)
    assert audit.refuted(1e-6) == ()


@pytest.mark.parametrize("n_steps", [10**12, 10**400])
def test_more_steps_than_anybody_waits_for_are_refused(n_steps):
    with pytest.raises(ValueError, match=r"^n_steps must be an integer in \[1, 1000000\], got 10"):
        DPGradientDescentClassifier(n_steps=n_steps).fit(np.full((4, 2), 0.1), [0, 1, 0, 1])


def test_samples_are_refused_of_records_that_dask_holds_and_sums_are_not():
    X, y = simulated(60, 2)
    options = {"delta": 1e-5, "n_steps": 2, "neighbouring": ADD_REMOVE, "n_records": 60, "random_state": 0}
    here = DPGradientDescentClassifier(**options).fit(X, y)
    there = DPGradientDescentClassifier(**options).fit(
        dask_array.from_array(X, chunks=(30, 2)), dask_array.from_array(y, chunks=30)
    )
    assert there.coef_.shape == here.coef_.shape
    with pytest.raises(ValueError, match=r"^sample_rate must be None with Dask's records"):
        DPGradientDescentClassifier(**options, sample_rate=0.5).fit(dask_array.from_array(X, chunks=(30, 2)), y)
