"""Private coordinate descent: what one record moves along the path that a fit takes, what is drawn, where it leads."""

import math
import pickle

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from erm_data import simulated, weights_of
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2, chisquare, kstest, laplace, norm
from sklearn.base import clone

from checks.descent import private_second_moments
from helpers.erm import (
    DPCoordinateDescentClassifier,
    DPGradientDescentClassifier,
    DPGreedyCoordinateClassifier,
    coordinate_descent,
    greedy,
)
from helpers.erm.scaling import ScaledLinearClassifier
from helpers.privacy import (
    ADD_REMOVE,
    REPLACE_ONE,
    Ledger,
    Sensitivity,
    audit_estimator,
    event_epsilon,
    exponential_probabilities,
    gaussian_mu,
    ledger,
    neighbouring_data,
    report_noisy_max,
)

UNLIKELY = 1e-8  # some thirty p-values in this file
ROUNDING = 1 + 1e-9
QUIET = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
NO_NOISE = {"epsilon": 1e12, "delta": 0.999}
LAWS = {"gumbel": "exponential_choice", "permute_and_flip": "noisy_max"}
CUBE = [[-1.0, 1.0], [-1.0, 1.0]]
METHODS = [DPCoordinateDescentClassifier, DPGreedyCoordinateClassifier, DPGradientDescentClassifier]
each = pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.__name__)


class Source(np.random.Generator):
    """A source of noise that notes every draw; the order of coordinates depends on the seed alone."""

    def __init__(self, seed=0):
        super().__init__(np.random.PCG64(seed))
        self.seed, self.order, self.drawn = seed, np.random.default_rng(seed), []

    def normal(self, loc=0.0, scale=1.0, size=None):
        self.drawn.append(("normal", scale, int(np.prod(() if size is None else size))))
        return super().normal(loc, scale, size)

    def laplace(self, loc=0.0, scale=1.0, size=None):
        self.drawn.append(("laplace", scale, int(np.prod(() if size is None else size))))
        return super().laplace(loc, scale, size)

    def permutation(self, size):
        return self.order.permutation(size)

    def integers(self, *arguments, **options):
        return self.order.integers(*arguments, **options)


@pytest.fixture
def source(monkeypatch):
    """All fits draw from a source made for each, by one seed; the last one is `source.last`."""

    class Maker:
        seed, last = 0, None

    def make(self, *data):
        Maker.last = Source(Maker.seed)
        return Maker.last

    monkeypatch.setattr(ScaledLinearClassifier, "_noise_generator", make)
    monkeypatch.setattr("helpers.privacy.ledger.noise_assumptions", lambda rng: ())
    return Maker


@pytest.fixture
def path(monkeypatch):
    """Noisy sums that a fit releases, with their noise scales; `answers`, where given, are released in their place."""

    class Path:
        sums, scales, answers = [], [], None

        @classmethod
        def of(cls, model, X, y, answers=None):
            cls.sums, cls.scales, cls.answers = [], [], answers
            model.fit(X, y)
            return np.array(cls.sums), np.array(cls.scales)

    def to_grid(value, scale):
        Path.sums.append(float(value))
        Path.scales.append(float(scale))
        return value if Path.answers is None else Path.answers[len(Path.sums) - 1]

    monkeypatch.setattr(ledger, "to_grid", to_grid)
    return Path


def changed(X, y, relation, candidates):
    """All neighbours that differ in the first record."""
    if relation is ADD_REMOVE:
        return [(X[1:], y[1:])]
    return [(np.vstack([x, X[1:]]), np.append(label, y[1:])) for x in candidates for label in (0, 1)]


def assert_spread(noise, spread):
    """Normal noise has this standard deviation: sharper than its whole law where the shape is not in question."""
    tail = chi2(len(noise)).cdf(np.sum((noise / spread) ** 2))
    assert UNLIKELY < tail < 1 - UNLIKELY


# The sweep lemma


PROBLEMS = [
    {},
    {"clip": "coordinate"},
    {"order": "iid"},
    {"order": "iid", "clip": "coordinate", "radius": 9.0, "scale": None, "bounds": [[-0.1, 0.1], [-2.0, 2.0]]},
    {"scale": "public", "bounds": [[-0.1, 0.1], [-2.0, 2.0]], "clip": "coordinate", "radius": 0.5},
    {"class_weight": {0: 0.2, 1: 0.5}, "radius": 0.3},
    {"class_weight": "balanced"},
    {"neighbouring": ADD_REMOVE, "n_records": 7},
]


@pytest.mark.parametrize("parameters", PROBLEMS, ids=str)
def test_all_updates_together_move_by_what_the_guarantee_pays_for(parameters, source, path):
    """The shifts of all releases of a fit, at the path of the fit, in units of the noise that each really got."""
    model = DPCoordinateDescentClassifier(epsilon=2.0, delta=1e-2, sweeps=3, penalty=None, step=9.0, **parameters)
    candidates = np.array([[3.0, 0.0], [0.0, -3.0], [-2.0, 2.0], [0.1, 2.0]])
    largest = 0.0
    for seed in range(12):
        rng, source.seed = np.random.default_rng(seed), seed
        X, y = rng.normal(size=(5, 2)), rng.integers(2, size=5)
        X[0], y[0] = candidates[seed % 4], seed % 2
        sums, scales = path.of(model, X, y)
        for other in changed(X, y, model.neighbouring, -candidates):
            moved, same = path.of(model, *other, answers=sums)
            assert np.array_equal(same, scales)
            largest = max(largest, np.linalg.norm((moved - sums) / scales))
    mu = gaussian_mu(2.0, 1e-2)
    assert 0.3 * mu < largest <= mu * ROUNDING


def test_the_sweep_lemma_is_attained(source, path):
    """A record on the wrong side pulls with all its length at every visit; its replacement pulls the other way."""
    model = DPCoordinateDescentClassifier(sweeps=50, penalty=None, fit_intercept=False)
    tilt = 1e-3
    X, y = np.array([[math.cos(tilt), math.sin(tilt)], [0.0, 0.1]]), np.array([1, 1])
    other = X.copy()
    other[0, 0] *= -1
    # The second coordinate is driven to -10^9, where both records are wrong; the first one stays at 0.
    order = Source(source.seed).order
    coordinates = np.concatenate([order.permutation(2) for _ in range(50)])
    answers = np.where(coordinates == 1, 1e9, 0.0)
    (sums, scales), (moved, _) = path.of(model, X, y, answers), path.of(model, other, y, answers)
    shift = np.linalg.norm((moved - sums) / scales)
    assert shift <= gaussian_mu(1.0, 1e-6) * ROUNDING
    assert shift == pytest.approx(gaussian_mu(1.0, 1e-6), rel=0.03)


def test_sweeps_are_cheaper_than_their_updates_one_by_one(source):
    """Adding up the sensitivities of D updates as if each had a record of its own would ask for sqrt(D) the noise."""
    X, y = simulated(50, 9)
    model = DPCoordinateDescentClassifier(sweeps=4, fit_intercept=False).fit(X, y)
    separately = 2 * model.radius * math.sqrt(9 * 4) / gaussian_mu(1.0, 1e-6)
    assert separately / model.noise_scales_ == pytest.approx(3.0)


def test_noise_by_coordinate_is_the_best_split_and_less_than_the_printed_one(source):
    wide = [[-9.0, 9.0], [-0.5, 0.5], [-0.1, 0.1]]
    X, y = simulated(50, 3)
    model = DPCoordinateDescentClassifier(
        sweeps=1, clip="coordinate", scale=[1.0, 1.0, 1.0], radius=1e6, bounds=wide, fit_intercept=False
    ).fit(X, y)
    limits, spread = np.array([9.0, 0.5, 0.1]) / math.sqrt(3), model.noise_scales_ / 2
    spent = gaussian_mu(1.0, 1e-6) ** 2
    assert np.sum(limits**2 / spread**2) == pytest.approx(spent)
    assert np.sum(spread**2) == pytest.approx(limits.sum() ** 2 / spent)
    assert np.sum(spread**2) < 0.5 * 3 * np.sum(limits**2) / spent
    found = minimize(lambda t: np.exp(t).sum() / spent * (limits**2 / np.exp(t)).sum(), np.zeros(3)).fun
    assert np.sum(spread**2) == pytest.approx(found, rel=1e-6)


# What is drawn, and what is said about it


@pytest.mark.parametrize("order", ["shuffled", "iid"])
@pytest.mark.parametrize("scale", [None, "private"])
@pytest.mark.parametrize("prior", [None, "offset"])
def test_the_guarantee_is_about_what_was_drawn(order, scale, prior, source, monkeypatch):
    counts = []
    real = ledger.discrete_laplace

    def counted(exact, rate, rng):
        counts.append(float(rate))  # of one class, which a record moves by 1
        return real(exact, rate, np.random.default_rng(0))

    monkeypatch.setattr(ledger, "discrete_laplace", counted)
    X, y = simulated(60, 2)
    model = DPCoordinateDescentClassifier(
        epsilon=2.0, delta=1e-4, sweeps=5, order=order, scale=scale, prior=prior, bounds=CUBE
    ).fit(X, y)
    assert counts == ([0.2] if prior else [])
    epsilon = 1.8 if prior else 2.0
    drawn, shares = list(source.last.drawn), []
    if scale == "private":
        law, spread, size = drawn.pop(0)
        assert (law, size) == ("normal", 2)
        shares.append(2 / spread**2)  # sqrt(2) is how far a record moves two sums of squares
    assert len(drawn) == 5 * 3
    assert {law for law, _, _ in drawn} == {"normal"}
    seeds = Source(source.seed)
    sequence = seeds.integers(3, size=(5, 3)) if order == "iid" else np.array([seeds.permutation(3) for _ in range(5)])
    most = np.bincount(sequence.ravel(), minlength=3).max()
    assert len({noise for _, noise, _ in drawn}) == 1
    shares.append(most * (2 * model.radius / drawn[0][1]) ** 2)
    assert math.sqrt(sum(shares)) == pytest.approx(gaussian_mu(epsilon, 1e-4), rel=1e-9)
    if scale == "private":
        assert shares[0] / sum(shares) == pytest.approx(0.1)
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (pytest.approx(2.0), 1e-4)
    executed = guarantee.event.events if prior or scale else (guarantee.event,)
    if prior:
        counting, *executed = executed
        assert event_epsilon(counting, 0.0, REPLACE_ONE) == pytest.approx(0.2, rel=1e-3)
    assert event_epsilon(ComposedDpEvent(tuple(executed)), 1e-4, REPLACE_ONE) == pytest.approx(epsilon, rel=1e-6)
    *first, steps = executed
    assert len(first) == (scale == "private")
    assert (steps.count, steps.event.noise_multiplier) == (5, model.noise_multiplier_)


def test_independent_draws_pay_for_the_visits_that_they_make(source):
    """With clipping by coordinate and unequal limits: 2 c_j at each visit, for the best noise by coordinate."""
    X, y = simulated(30, 2)
    model = DPCoordinateDescentClassifier(
        sweeps=2,
        order="iid",
        clip="coordinate",
        radius=9.0,
        scale=None,
        bounds=[[-0.1, 0.1], [-2.0, 2.0]],
        fit_intercept=False,
    )
    for seed in range(4):
        source.seed = seed
        model.fit(X, y)
        numbers = np.bincount(Source(seed).integers(2, size=(2, 2)).ravel(), minlength=2)
        moved = numbers * (2 * np.array([0.1, 2.0]) / model.noise_scales_) ** 2
        assert math.sqrt(moved.sum()) == pytest.approx(gaussian_mu(1.0, 1e-6))


@pytest.mark.parametrize(
    ("parameters", "sensitivity"),
    [
        ({}, 2.0),
        ({"clip": "coordinate", "radius": 0.3}, 0.6),
        ({"class_weight": {0: 0.2, 1: 0.5}}, 1.0),
        ({"class_weight": "balanced", "radius": 2.0}, 4.0),
        ({"neighbouring": ADD_REMOVE, "n_records": 70}, 1.0),
        ({"scale": "public", "bounds": [[-0.5, 0.5]], "radius": 3.0}, 2.0),
    ],
)
@QUIET
def test_an_update_has_the_noise_that_its_guarantee_needs(parameters, sensitivity):
    """One update of one coefficient from 0: the noise is what a fit with hardly any noise does not have."""
    X, y = simulated(60, 1)
    common = {"delta": 1e-4, "sweeps": 1, "penalty": None, "fit_intercept": False} | parameters
    clean = DPCoordinateDescentClassifier(**common | NO_NOISE).fit(X, y).coef_[0, 0]
    fits = [DPCoordinateDescentClassifier(epsilon=1.0, **common).fit(X, y) for _ in range(200)]
    # Coefficient of one unit of mean slope; in the public scale the row is twice the feature.
    units = 4 * 2 if "scale" in parameters else 4 / fits[0].radius ** 2
    n = parameters.get("n_records", 60)
    noise = (np.array([model.coef_[0, 0] for model in fits]) - clean) * n / units
    spread = sensitivity / gaussian_mu(1.0, 1e-4)
    assert kstest(noise / spread, norm.cdf).pvalue > UNLIKELY
    assert_spread(noise, spread)


def test_updates_have_noise_of_their_own(monkeypatch):
    monkeypatch.setattr(coordinate_descent, "_AVERAGED", 0.0)
    X, y = np.zeros((40, 1)), np.zeros(40, dtype=int)
    common = {"delta": 1e-3, "penalty": None, "fit_intercept": False}
    spreads = []
    for sweeps in (1, 4):
        fits = [DPCoordinateDescentClassifier(sweeps=sweeps, **common).fit(X, y) for _ in range(400)]
        spreads.append(np.std([model.coef_ for model in fits]) / fits[0].noise_multiplier_)
    assert spreads[1] / spreads[0] == pytest.approx(2.0, rel=0.4)  # six standard deviations; the same noise gives 4


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize(
    "model",
    [
        DPCoordinateDescentClassifier(4.0, 1e-2, 3, scale="private", prior="offset", bounds=CUBE, n_records=40),
        DPGreedyCoordinateClassifier(4.0, 1e-2, 3, scale="private", bounds=CUBE, n_records=40),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_audit_refutes_nothing(model, relation):
    pair = neighbouring_data(relation)
    audit = audit_estimator(model.set_params(neighbouring=relation), *pair, n_runs=48, n_seeds=16, confidence=0.99999)
    assert audit.refuted(1e-6) == ()


# Scale


@each
@pytest.mark.parametrize("scale", ["public", "private", "given", None])
def test_units_of_a_feature_do_not_matter_where_its_scale_is_known(cls, scale, source):
    X, y = simulated(80, 3, scale=0.3)
    units = np.array([3.0, 1e-4, 7e5])
    bounds, given = np.tile([-1.0, 1.5], (3, 1)), np.array([0.2, 0.5, 0.1])
    value = (lambda u: given * u) if scale == "given" else (lambda u: scale)
    model = cls(bounds=bounds, scale=value(1.0), center=0.1 * np.ones(3), epsilon=20.0)
    other = clone(model).set_params(bounds=bounds * units[:, None], scale=value(units), center=0.1 * units)
    scores, others = model.fit(X, y).decision_function(X), other.fit(X * units, y).decision_function(X * units)
    same = np.allclose(scores, others, rtol=1e-9, atol=1e-9)
    assert same == (scale is not None)


@QUIET
def test_second_moments_are_the_mean_squares():
    rng = np.random.default_rng(0)
    X = rng.normal([0.0, 3.0, 5.0], [0.5, 0.1, 0.0], (400, 3))
    bounds = np.array([[-2.0, 2.0], [0.0, 4.0], [5.0, 5.0]])
    for center, exact in ((None, [0.25 / 4, 1.01 / 4, 0.0]), ([0.0, 3.0, 5.0], [0.25 / 4, 0.01 / 9, 0.0])):
        released = private_second_moments(X, bounds, 1e9, n_records=400, center=center, rng=np.random.default_rng(1))
        assert released.value == pytest.approx(exact, rel=0.15, abs=1e-6)
        assert (released.value > 0).all()
    model = DPCoordinateDescentClassifier(scale="private", bounds=bounds, **NO_NOISE).fit(X, np.arange(400) % 2)
    assert model.moments_ == pytest.approx([0.25 / 4, 1.01 / 4, 0.0], rel=0.15, abs=1e-6)
    # Rows are then longer than the public bounds say, and are clipped where `radius` wants it.
    model.set_params(radius=2.0).fit(X, np.arange(400) % 2)
    assert model.noise_scales_ / model.noise_multiplier_ == pytest.approx(2 * 2.0)


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_second_moments_have_the_noise_that_their_sensitivity_needs(relation):
    """All records at a corner against one in the middle: the sums move by all that the bounds allow."""
    X = np.vstack([np.ones((9, 2)), np.zeros((1, 2))])
    common = {"bounds": CUBE, "epsilon": 0.5, "neighbouring": relation, "n_records": 10_000}
    common["rng"] = np.random.default_rng(0)
    big = np.vstack([X] * 500)  # far above the floor and below the ceiling
    draws = [private_second_moments(big, **common, delta=1e-3) for _ in range(150)]
    noise = np.array([release.value for release in draws]) * 10_000 - 4500
    spread = math.sqrt(2) / gaussian_mu(0.5, 1e-3)
    assert kstest(noise.ravel() / spread, norm.cdf).pvalue > UNLIKELY
    assert_spread(noise.ravel(), spread)
    draws = [private_second_moments(big, **common) for _ in range(150)]
    noise = np.array([release.value for release in draws]) * 10_000 - 4500
    assert kstest(noise.ravel() / (2 / 0.5), laplace.cdf).pvalue > UNLIKELY
    assert str(draws[0].guarantee).startswith("(0.5, 0)-DP")
    floor = 2 * math.sqrt(2) * 2 / 0.5 / 100
    empty = private_second_moments(np.zeros((100, 2)), CUBE, 0.5, n_records=100, rng=np.random.default_rng(0))
    assert (empty.value >= floor * (1 - 1e-9)).all()


@each
def test_the_scale_of_a_fit_has_the_noise_of_its_share(cls):
    X, y = np.repeat([[1.0, 1.0], [0.0, 0.0]], 5000, axis=0), np.arange(10_000) % 2
    model = cls(0.5, 1e-3, 1, scale="private", bounds=CUBE)
    fits = [clone(model).fit(X, y) for _ in range(60)]
    noise = np.ravel([fit.moments_ for fit in fits]) * 10_000 - 5000
    mu = math.sqrt(2 * fits[0].rho_) if cls is DPGreedyCoordinateClassifier else gaussian_mu(0.5, 1e-3)
    assert_spread(noise, math.sqrt(2 / 0.1) / mu)


def test_bad_second_moments():
    X, usual = np.zeros((4, 2)), {"bounds": CUBE, "epsilon": 1.0, "n_records": 4, "rng": np.random.default_rng(0)}
    for changes, word in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"bounds": [[1, 0], [0, 1]]}, "bounds"),
        ({"bounds": [[0, np.inf], [0, 1]]}, "bounds"),
        ({"neighbouring": "add"}, "neighbouring"),
        ({"center": [1.0]}, "center"),
        ({"center": np.inf}, "center"),
    ):
        with pytest.raises(ValueError, match=word):
            private_second_moments(X, **usual | changes)


# Where the steps lead


def objective(beta, Z, signs, weights, regularization, offset):
    loss = weights @ np.logaddexp(0, -signs * (offset + Z @ beta)) / len(Z)
    return loss + regularization * (beta @ beta) / 2


@QUIET
@pytest.mark.parametrize("clip", ["row", "coordinate"])
@pytest.mark.parametrize("penalty", ["l2", None])
def test_without_noise_the_steps_end_at_the_minimiser(penalty, clip, monkeypatch):
    """Of the documented objective, in the frame of the public scale; nothing is clipped at this radius."""
    monkeypatch.setattr(coordinate_descent, "_AVERAGED", 0.0)
    X, y = simulated(120, 2, scale=0.3)
    model = DPCoordinateDescentClassifier(
        **NO_NOISE,
        sweeps=400 if penalty else 6000,
        penalty=penalty,
        regularization=0.02,
        scale="public",
        bounds=[[-1.0, 1.0], [-2.0, 3.0]],
        clip=clip,
        radius=2.0,
        class_weight={0: 0.3, 1: 1.0},
        prior="offset",
    ).fit(X, y)
    inside = np.clip(X, [-1.0, -2.0], [1.0, 3.0]) - [0.0, 0.5]
    Z = np.column_stack([inside / [1.0, 2.5], np.ones(120)]) / math.sqrt(3)
    weights = np.where(y == 1, 1.0, 0.3)
    offset = math.log(np.sum(weights[y == 1]) / np.sum(weights[y == 0]))
    assert model.offset_ == pytest.approx(offset)
    problem = (Z, 2 * y - 1, weights, 0.02 if penalty else 0.0, offset)
    exact = minimize(objective, np.zeros(3), problem, tol=1e-14).x
    assert model.decision_function(X) == pytest.approx(offset + Z @ exact, abs=2e-3)


@QUIET
@each
def test_a_clipped_record_pulls_by_its_limit(cls):
    """One step from 0, where every slope is 1/2, along one coordinate."""
    X, y = np.array([[4.0], [0.1]]), np.array([1, 1])
    name = "sweeps" if cls is DPCoordinateDescentClassifier else "n_steps"
    model = cls(**NO_NOISE, penalty=None, fit_intercept=False, radius=0.5, **{name: 1}).fit(X, y)
    assert model.coef_[0, 0] == pytest.approx((0.5 + 0.05) / 2 * 4 / 0.25, rel=1e-3)


@QUIET
def test_the_result_is_the_average_over_the_last_half_of_the_sweeps(source, monkeypatch):
    X, y = simulated(60, 1)
    common = {**NO_NOISE, "penalty": None, "fit_intercept": False}
    model = DPCoordinateDescentClassifier(sweeps=8, **common).fit(X, y)
    monkeypatch.setattr(coordinate_descent, "_AVERAGED", 0.0)
    ends = [DPCoordinateDescentClassifier(sweeps=t, **common).fit(X, y).coef_ for t in range(5, 9)]
    assert model.coef_ == pytest.approx(np.mean(ends, axis=0), rel=1e-4)


def test_offset_alone_is_the_score_where_features_say_nothing():
    y = (np.arange(1000) % 10 == 0).astype(int)
    model = DPCoordinateDescentClassifier(100.0, prior="offset", fit_intercept=False).fit(np.zeros((1000, 1)), y)
    assert model.intercept_ == pytest.approx(model.offset_)
    assert model.offset_ == pytest.approx(math.log(1 / 9), abs=0.1)
    assert DPCoordinateDescentClassifier().fit(np.zeros((1000, 1)), y).offset_ == 0.0


@each
def test_equal_records_are_written_out(cls):
    X, y = simulated(30, 2)
    with pytest.raises(ValueError, match="multiplicity must be None"):
        cls().fit(X, y, np.full(30, 2))


@each
def test_values_of_records_never_make_a_fit_fail(cls):
    wild = np.array([[1e300, -1e300], [5e-324, 0.0], [1e200, 1.0], [-1e308, 1e308]])
    for parameters in ({}, {"scale": [1e-50, 1e50]}, {"scale": "private", "bounds": [[-1e150, 1e150], [3.0, 3.0]]}):
        for label in (0, 1):
            with np.errstate(over="ignore"):
                model = cls(**parameters).fit(wild, np.full(4, label))
                assert np.isfinite(model.decision_function(wild)).all()
            assert np.isfinite(model.coef_).all()
            assert model.classes_.tolist() == [0, 1]
    empty = cls(neighbouring=ADD_REMOVE, n_records=10, prior="offset").fit(np.zeros((0, 2)), np.zeros(0, dtype=int))
    assert np.isfinite(empty.coef_).all()


@each
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"delta": 1.0}, "delta"),
        ({"step": 0.0}, "step"),
        ({"penalty": "l3"}, "penalty"),
        ({"scale": "public"}, "bounds"),
        ({"scale": "private"}, "bounds"),
        ({"scale": [1.0, 0.0]}, "scale"),
        ({"scale": [1.0]}, "scale"),
        ({"prior": "offset", "class_weight": "balanced"}, "prior"),
        ({"prior": "offset", "class_weight": {0: 0.0, 1: 1.0}}, "class_weight"),
        ({"prior": "odds"}, "prior"),
        ({"classes": (0, 1, 2)}, "classes"),
        ({"center": [0.0]}, "center"),
        ({"center": "mean"}, "center"),
        ({"neighbouring": ADD_REMOVE}, "n_records"),
    ],
)
def test_bad_parameters(cls, changes, word):
    with pytest.raises(ValueError, match=word):
        cls(**changes).fit(*simulated(30, 2))


class Untouchable:
    """Records that fail the test when they are looked at."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} of the records was asked for")

    def __array__(self, *args, **kwargs):
        raise AssertionError("the records were read")


@each
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"steps": 0}, "sweeps|n_steps"),
        ({"steps": 1.5}, "sweeps|n_steps"),
        ({"bounds": [[0.0, np.inf], [0.0, 1.0]]}, "bounds must be finite"),
        ({"bounds": [[0.0, np.nan], [0.0, 1.0]], "scale": "private"}, "bounds must be finite"),
        ({"bounds": [[1.0, 0.0]]}, "bounds must be finite"),
        ({"bounds": "box"}, "bounds must be finite"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"center": np.inf}, "center"),
        ({"scale": [1.0, np.inf]}, "scale"),
    ],
    ids=str,
)
def test_public_parameters_are_checked_before_any_record(cls, changes, word):
    steps = "sweeps" if cls is DPCoordinateDescentClassifier else "n_steps"
    changes = {steps if name == "steps" else name: value for name, value in changes.items()}
    with pytest.raises(ValueError, match=word):
        cls(**changes).fit(Untouchable(), Untouchable())


@each
def test_no_feature_is_an_error_and_one_class_is_none(cls):
    """The number of features is public; which classes there are is not."""
    with pytest.raises(ValueError, match="0 feature"):
        cls().fit(np.zeros((20, 0)), np.arange(20) % 2)
    assert cls().fit(np.zeros((20, 1)), np.zeros(20, dtype=int)).classes_.tolist() == [0, 1]


def test_a_choice_has_one_sensitivity_for_all_scores():
    for unequal in (np.array([0.01, 1.0]), [0.01, 1.0]):
        with pytest.raises(ValueError, match="value must be a finite number"):
            Sensitivity(unequal, REPLACE_ONE, "linf")
        for choose in (exponential_probabilities, report_noisy_max):
            with pytest.raises(ValueError, match="sensitivity must be a Sensitivity"):
                choose(Untouchable(), unequal, 1.0)


def test_bad_parameters_of_one_method():
    for model, word in (
        (DPCoordinateDescentClassifier(sweeps=0), "sweeps"),
        (DPCoordinateDescentClassifier(delta=0.0), "delta"),
        (DPCoordinateDescentClassifier(clip="norm"), "clip"),
        (DPCoordinateDescentClassifier(order="greedy"), "order"),
        (DPGreedyCoordinateClassifier(delta=0.0), "delta"),
        (DPGreedyCoordinateClassifier(n_steps=0), "n_steps"),
        (DPGreedyCoordinateClassifier(selection="max"), "selection"),
    ):
        with pytest.raises(ValueError, match=word):
            model.fit(*simulated(30, 2))


@each
def test_a_second_fit_leaves_nothing_of_the_first(cls):
    X, y = simulated(40, 2)
    model = cls(scale="private", bounds=CUBE, class_weight="private").fit(X, y)
    assert hasattr(model, "moments_")
    model.set_params(scale=None, class_weight=None).fit(X, y)
    assert not hasattr(model, "moments_")
    assert not hasattr(model, "class_weight_")
    assert not any("order" in name for name in vars(pickle.loads(pickle.dumps(model))) if name.endswith("_"))


# Greedy


GREEDY = [
    {},
    {"penalty": None, "step": 3.0},
    {"scale": "public", "bounds": [[-0.1, 0.1], [-2.0, 2.0]], "radius": 5.0},
    {"scale": None, "bounds": [[-0.01, 0.01], [-2.0, 2.0]], "radius": 5.0, "class_weight": {0: 0.2, 1: 0.5}},
    {"class_weight": "balanced"},
    {"neighbouring": ADD_REMOVE, "n_records": 7},
]


@pytest.mark.parametrize("parameters", GREEDY, ids=str)
def test_scores_and_sums_move_by_what_the_noise_is_for(parameters, source, path, monkeypatch):
    """Every score by at most 1, whatever its coordinate, and the measured sum by one unit of its noise."""
    model = DPGreedyCoordinateClassifier(epsilon=3.0, delta=1e-2, n_steps=4, **parameters)
    scores, chosen = [], []

    def choose(values, change, epsilon, rng, monotonic):
        assert (change.value, monotonic) == (1.0, False)
        scores.append(values)
        return chosen[len(scores) - 1]

    monkeypatch.setattr(ledger, "exponential_choice", choose)
    candidates, largest, distance = np.array([[3.0, 0.0], [0.0, -3.0], [-2.0, 2.0], [0.01, 2.0]]), 0.0, 0.0
    for seed in range(6):
        rng, source.seed = np.random.default_rng(seed), seed
        X, y = rng.normal(size=(5, 2)), rng.integers(2, size=5)
        X[0], y[0] = candidates[seed % 4], seed % 2
        chosen[:] = rng.integers(3, size=4)
        scores.clear()
        sums, scales = path.of(model, X, y)
        here = np.array(scores)
        for other in changed(X, y, model.neighbouring, -candidates):
            scores.clear()
            moved, _ = path.of(model, *other, answers=sums)
            largest = max(largest, np.abs(np.array(scores) - here).max())
            distance = max(distance, np.max(np.abs(moved - sums) / scales) * model.noise_multiplier_)
    assert 0.2 < largest <= ROUNDING
    assert 0.2 < distance <= ROUNDING


@pytest.mark.parametrize("selection", LAWS)
def test_the_greedy_guarantee_is_about_what_was_drawn(selection, source, monkeypatch):
    X, y = simulated(60, 2)
    epsilons = []

    def choose(values, change, epsilon, rng, **options):
        epsilons.append(epsilon)
        return 0

    monkeypatch.setattr(ledger, LAWS[selection], choose)
    model = DPGreedyCoordinateClassifier(
        epsilon=1.5, delta=1e-4, n_steps=6, selection=selection, scale="private", bounds=CUBE
    ).fit(X, y)
    (law, spread, size), *drawn = source.last.drawn
    assert (len(epsilons), len(drawn), size) == (6, 6, 2)
    assert set(epsilons) == {model.selection_epsilon_}
    limit = 2 / math.sqrt(3)  # mass 2, radius 1 over three coordinates
    assert [scale / limit for _, scale, _ in drawn] == pytest.approx([model.noise_multiplier_] * 6)
    assert {law, *(one for one, _, _ in drawn)} == {"normal"}
    cost = 1 / 8 if selection == "gumbel" else 1 / 2
    rho = 2 / spread**2 / 2 + sum(cost * e**2 for e in epsilons) + sum((limit / s) ** 2 / 2 for _, s, _ in drawn)
    assert rho == pytest.approx(model.rho_)
    assert event_epsilon(model.guarantee_.event, 1e-4, REPLACE_ONE, method="rdp") == pytest.approx(1.5, rel=1e-6)


@pytest.mark.parametrize("counted", [{"prior": "offset"}, {"class_weight": "private"}], ids=["prior", "weights"])
def test_one_accountant_reads_greedy_steps_and_counts(counted):
    """Of dp-accounting itself, and within the budget."""
    X, y = simulated(60, 2)
    model = DPGreedyCoordinateClassifier(epsilon=1.5, delta=1e-4, n_steps=6, **counted).fit(X, y)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (pytest.approx(1.5), 1e-4)
    read = event_epsilon(model.guarantee_.event, 1e-4, REPLACE_ONE, method="rdp")
    assert 0.8 * 1.5 < read <= 1.5
    counting, *choices_and_sums = model.guarantee_.event.events
    # dp-accounting reads no integer noise beside a ZCDpEvent: epsilon-DP has epsilon^2/2 (Bun and Steinke 2016).
    pure = event_epsilon(counting, 0.0, REPLACE_ONE)
    assert pure == pytest.approx(0.15, rel=1e-3)
    accountant = RdpAccountant(neighboring_relation=REPLACE_ONE).compose(ZCDpEvent(pure**2 / 2))
    spent = accountant.compose(ComposedDpEvent(choices_and_sums)).get_epsilon(1e-4)
    assert 0.9 * 1.35 < spent < 1.5
    steps = event_epsilon(ZCDpEvent(model.rho_), 1e-4, REPLACE_ONE, method="rdp")
    assert spent > steps * 1.001  # the counts are in it


def test_gumbel_choices_have_the_bounded_range_that_they_are_charged_for():
    """Renyi divergences of two choices whose scores differ by 1 each way: at most alpha e^2/8, nearly attained."""
    orders, largest = np.array([1.01, 1.5, 2.0, 8.0, 64.0]), 0.0
    for e in (0.05, 0.3, 1.0):
        for gap in np.linspace(-6, 6, 61):
            p, q = (exponential_of([gap / e + 1, 0.0], e), exponential_of([gap / e, 1.0], e))
            divergence = np.log(np.sum(p[:, None] ** orders * q[:, None] ** (1 - orders), axis=0)) / (orders - 1)
            largest = max(largest, np.max(divergence / orders / (ledger.SELECTION_COSTS["exponential"] * e**2)))
    assert 0.999 < largest <= 1 + 1e-9


def exponential_of(scores, e):
    return exponential_probabilities(scores, Sensitivity(1.0, REPLACE_ONE, "linf"), e)


@pytest.mark.parametrize("selection", LAWS)
def test_choices_follow_their_law(selection):
    scores = np.array([3.0, 1.0, 0.0])
    records = Ledger(scores, REPLACE_ONE, np.random.default_rng(0))
    choices = [records.choose(np.copy, 1.0, epsilon=1.0, law=greedy._LAWS[selection]) for _ in range(4000)]
    if selection == "gumbel":
        expected = exponential_of(scores, 1.0)
    else:
        draws = np.random.default_rng(1).exponential(scale=2.0, size=(10**6, 3))
        expected = np.bincount(np.argmax(scores + draws, axis=1), minlength=3) / 10**6
    assert chisquare(np.bincount(choices, minlength=3), 4000 * expected).pvalue > UNLIKELY


@QUIET
@pytest.mark.parametrize("penalty", ["l2", None])
def test_without_noise_a_greedy_step_moves_the_coordinate_that_would_move_furthest(penalty):
    """The documented rule, step by step, along coordinates of different limits."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (80, 3)) * [1.0, 0.9, 0.8]
    y = (X @ [2.0, -2.0, 2.0] + 0.3 * rng.logistic(size=80) > 0).astype(int)
    options = {"penalty": penalty, "regularization": 0.05, "fit_intercept": False, "radius": 2.0, "step": 1.0}
    paths = [
        DPGreedyCoordinateClassifier(**NO_NOISE, n_steps=n_steps, **options).fit(X, y).coef_[0]
        for n_steps in range(1, 31)
    ]
    beta, signs = np.zeros(3), 2 * y - 1
    rate = 1 / (2.0**2 / 4)  # one over the smoothness of the logistic loss on rows of length 2
    for step, found in enumerate(paths):
        slopes = -(signs * expit(-signs * (X @ beta))) @ X / 80
        moved = beta - rate * slopes
        if penalty:
            moved /= 1 + 0.05 * rate
        j = np.argmax(np.abs(moved - beta))
        beta = np.where(np.arange(3) == j, moved, beta)
        assert found == pytest.approx(beta, rel=1e-4, abs=1e-6), step
    assert np.count_nonzero(beta) == 3


def test_greedy_scales_are_two_standard_deviations_of_their_noise_at_least():
    fits = [
        DPGreedyCoordinateClassifier(0.5, 1e-3, 1, scale="private", bounds=CUBE, random_state=seed).fit(
            np.zeros((1000, 2)), np.arange(1000) % 2
        )
        for seed in range(8)
    ]
    spread = math.sqrt(2 / (2 * 0.1 * fits[0].rho_))
    moments = np.ravel([fit.moments_ for fit in fits])
    assert moments.min() == pytest.approx(2 * spread / 1000)


def test_greedy_steps_find_the_features_that_matter():
    """Five of a hundred features; sweeps spread the same budget over all."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (6000, 100))
    y = (X[:, :5].sum(axis=1) + rng.logistic(size=6000) > 0).astype(int)
    common = {"epsilon": 1.0, "delta": 1e-8, "scale": "public", "bounds": [[-1, 1]] * 100, "fit_intercept": False}
    model = DPGreedyCoordinateClassifier(n_steps=10, random_state=0, **common).fit(X, y)
    assert set(np.argsort(-np.abs(model.coef_[0]))[:5].tolist()) == set(range(5))
    swept = DPCoordinateDescentClassifier(sweeps=10, random_state=0, **common).fit(X, y)
    assert model.score(X, y) > swept.score(X, y)


@QUIET
def test_blocks_of_columns_do_not_matter(monkeypatch, source):
    X, y = simulated(50, 7)
    model = DPGreedyCoordinateClassifier(epsilon=50.0, n_steps=8, class_weight={0: 0.3, 1: 1.0})
    scores = model.fit(X, y).decision_function(X)
    monkeypatch.setattr("helpers.erm.greedy._BLOCK", 100)
    assert clone(model).fit(X, y).decision_function(X) == pytest.approx(scores, rel=1e-9)


def test_balanced_weights_are_the_data_s_own(source):
    """A tiny table whose weights are known, one step without noise in it."""
    X, y = np.array([[0.5], [0.5], [-0.25]]), np.array([0, 0, 1])
    weights = weights_of(y)
    source_free = {"epsilon": 1e12, "delta": 0.999, "penalty": None, "fit_intercept": False, "sweeps": 1}
    model = DPCoordinateDescentClassifier(class_weight="balanced", **source_free).fit(X, y)
    total = np.sum(weights * (2 * y - 1) * X[:, 0]) / 2
    assert model.coef_[0, 0] == pytest.approx(4 * total / 3, rel=1e-3)
