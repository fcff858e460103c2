"""What a private linear classifier is told and what it promises, to the last share of its budget."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from erm_data import determinant_share, parameters, recovered_noise, simulated, weights_of
from sklearn.base import clone

from helpers import erm
from helpers.erm import perturbation
from helpers.erm.calibration import determinant_cost, gaussian_objective_delta
from helpers.privacy import ADD_REMOVE, EXACT_REALS, REPLACE_ONE, RUNNING_TIME, SEED_SECRET

X, Y = simulated(60, 2)
KINDS = [erm.ObjectivePerturbationClassifier, erm.OutputPerturbationClassifier, erm.DPGradientDescentClassifier]
# dp-accounting's search for mu passes through infinity where epsilon is huge.
QUIET = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_counts_and_coefficients_share_the_budget(kind):
    """Both parts are what the two releases get, and together they are epsilon."""
    model = kind(2.0, regularization=0.1, class_weight="private", counts_share=0.25).fit(X, Y)
    assert model.guarantee_.epsilon == pytest.approx(2.0, rel=1e-12)
    assert model.guarantee_.delta == getattr(model, "delta", 0.0)
    alone = kind(1.5, regularization=0.1, class_weight=dict(enumerate(model.class_weight_))).fit(X, Y)
    for name in ("noise_rate_", "noise_multiplier_", "noise_scale_", "epsilon_solver_"):
        assert getattr(model, name, 0.0) == pytest.approx(getattr(alone, name, 0.0)), name
    assert alone.guarantee_.epsilon == 1.5
    assert "class list" in model.guarantee_.assumes


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_the_counts_pays_for_their_noise(kind):
    """At a large budget for the counts the weights are exact, at a small one they are not."""
    counts = np.bincount(Y)
    for epsilon, exact in ((600.0, True), (0.02, False)):
        model = kind(epsilon, regularization=0.1, class_weight="private", counts_share=0.5).fit(X, Y)
        assert (model.class_weight_ == pytest.approx(erm.class_weights(counts))) is exact


def test_noisy_counts_are_at_least_one_record():
    few = np.array([0, 0, 0, 1])
    for epsilon in (1e-3, 600.0):
        estimator = erm.OutputPerturbationClassifier(epsilon, 0.1, class_weight="private")
        weights = np.array([clone(estimator).fit(X[:4], few).class_weight_ for _ in range(20)])
        assert np.all(weights > 0)
        assert weights.sum(axis=1) == pytest.approx(1.0)
    assert weights == pytest.approx(np.tile([0.25, 0.75], (20, 1)))


@pytest.mark.parametrize("radius", [0.5, 3.0])
def test_the_jacobian_is_paid_for_at_the_radius_and_the_share_of_the_noise(radius):
    model = erm.ObjectivePerturbationClassifier(0.8, 1e-4, radius=radius, tol=0.25, loss="huber", delta=1e-4).fit(X, Y)
    ratio = radius**2 / (60 * model.total_regularization_)
    cost = determinant_cost(ratio, erm.huber(0.5), erm.UNWEIGHTED)
    exact = gaussian_objective_delta(0.6, 2 * radius / model.noise_scale_, cost)
    assert exact * math.exp(0.1) == pytest.approx(1e-4, rel=1e-6)  # the solver's 0.2 multiplies delta


def test_gaussian_noise_in_the_objective_has_mean_zero():
    """Where its scale is far below the unit of the gradients."""
    noise = []
    for _ in range(20):
        model = erm.ObjectivePerturbationClassifier(600.0, 0.1, delta=0.9).fit(X, Y)
        noise.append(recovered_noise(model, X, Y))
    assert np.abs(noise).max() < 6 * model.noise_scale_ < 0.8
    assert np.std(noise) == pytest.approx(model.noise_scale_, rel=0.4)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_parts_of_epsilon_add_up(loss, delta):
    model = erm.ObjectivePerturbationClassifier(0.8, 1e-4, tol=0.25, loss=loss, delta=delta).fit(X, Y)
    cost = determinant_share(model, 60)
    assert (cost > 0) == (loss == "huber")
    assert model.epsilon_solver_ == pytest.approx(0.2)
    if delta:
        exact = gaussian_objective_delta(0.6, 2 / model.noise_scale_, cost)
        assert exact * math.exp(0.1) == pytest.approx(delta, rel=1e-6)
    else:
        assert 2 * model.noise_rate_ + cost + model.epsilon_solver_ == pytest.approx(0.8)
    assert model.guarantee_.source.endswith("Gaussian noise") == (delta > 0)


def with_constants(epsilon):
    """Objective perturbation whose analysis proves another epsilon than it was asked for."""

    class Other(erm.ObjectivePerturbationClassifier):
        def _constants(self, share, delta, public):
            assert (share, delta, public.divisor, public.width) == (0.75, 0.0, 60, 3)  # two features and the intercept
            rate, total, _, source = super()._constants(share, delta, public)
            return rate, total, epsilon, source

    return Other(1.0, 0.1, tol=0.25)


def test_constants_that_prove_less_than_was_asked_for_say_so():
    """The solver's share comes on top; constants that prove more leave what was asked for, rounding included."""
    assert with_constants(0.9).fit(X, Y).guarantee_.epsilon == pytest.approx(0.9 + 0.25)
    for proved in (0.75, 0.75 * (1 + 1e-12), 0.5):
        assert with_constants(proved).fit(X, Y).guarantee_.epsilon == 1.0


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        (erm.ObjectivePerturbationClassifier(0.3, 0.1, radius=5.0, fit_intercept=False), 1e-5 / (0.3 * 5.0)),
        (erm.ObjectivePerturbationClassifier(0.3, 0.1, tol=0.4, fit_intercept=False), 1e-5 / 0.3),
        (erm.OutputPerturbationClassifier(0.05, 0.1, fit_intercept=False), 2 / (60 * 0.1) / 0.05),
    ],
)
def test_releases_lie_on_the_grid_of_their_noise(model, scale):
    step = 2.0 ** (math.floor(math.log2(scale)) - 20)
    released = np.concatenate([clone(model).fit(X, Y).coef_.ravel() for _ in range(10)]) / step
    assert np.array_equal(released, np.rint(released))
    assert np.any(released % 2)  # and on no coarser one


BOUNDARIES = [
    ("epsilon", 1e-10, 0.99e-10),
    ("n_records", 10**15, 10**15 + 1),
    ("n_records", 1, 0),
    ("tol", 1e-12, 0.99e-12),
    ("tol", 0.4999, 0.5),
    ("counts_share", 1e-6, 0.0),
    ("counts_share", 0.999, 1.0),
    ("counts_share", 0.1, -0.5),
]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(("name", "last", "beyond"), BOUNDARIES)
def test_ranges_end_where_they_are_said_to(kind, name, last, beyond):
    kind(**{name: last})._check_parameters()
    with pytest.raises(ValueError, match=f"{name} must be"):
        kind(**{name: beyond})._check_parameters()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_range_of_delta(kind):
    for delta in (0.0, 0.999):
        kind(delta=delta)._check_parameters()
    for delta in (-1e-9, 1.0):
        with pytest.raises(ValueError, match="delta must be"):
            kind(delta=delta)._check_parameters()


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_other_noise_to_other_data_and_weights(kind):
    """Two fits of one seed whose records, labels or multiplicities differ: nothing in common but the classifier."""
    zero, ones, labels = np.zeros((40, 2)), np.ones(40, dtype=int), np.zeros(40, dtype=int)
    other, flipped = zero.copy(), labels.copy()
    other[0], flipped[0] = 1e-4, 1

    def noise(rows, codes, multiplicity=None):
        model = kind(regularization=1.0, fit_intercept=False, random_state=3)
        return model.fit(rows, codes, multiplicity).coef_.ravel()

    same = noise(zero, labels)
    assert np.array_equal(same, noise(zero, labels))
    counted = ((zero, labels, ones), (zero, labels, ones + 1)) if kind in KINDS[:2] else ()
    for others in ((other, labels), (zero, flipped), *counted):
        assert np.linalg.norm(noise(*others) - same) > 0.01 * np.linalg.norm(same)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_assumed_is_named(kind):
    def assumed(**changes):
        return set(kind(regularization=0.1, **changes).fit(X, Y).guarantee_.assumes)

    usual = {"norm bound (radius) public", "set of labels public", EXACT_REALS, RUNNING_TIME}
    assert assumed() == usual | {"number of records public"}
    assert assumed(random_state=0) == assumed() | {SEED_SECRET}
    divided = usual | {"number that divides the loss public"}
    rounds = issubclass(kind, perturbation.PerturbationClassifier)
    few = {"at most 10 times as many records as n_records says"} if rounds else set()
    assert assumed(n_records=60) == divided | ({"number of records public"} if rounds else set())
    assert assumed(n_records=60, neighbouring=ADD_REMOVE) == divided | few
    assert assumed(class_weight={0: 0.5, 1: 1.0}) == assumed() | {"class weights public"}
    assert assumed(class_weight="balanced") == assumed()
    assert assumed(bounds=[[-2.0, 2.0]] * 2) == assumed() | {"feature bounds public"}


@pytest.mark.parametrize("kind", KINDS)
def test_released_weights_are_shown_and_those_of_the_data_are_not(kind):
    shown = kind(regularization=0.1, class_weight={0: 0.5, 1: 1.0}).fit(X, Y)
    assert shown.class_weight_.tolist() == [0.5, 1.0]
    for kept in (None, "balanced"):
        assert not hasattr(kind(regularization=0.1, class_weight=kept).fit(X, Y), "class_weight_")


# --- gradient descent ---


def by_hand(rows, signs, weights, *, slope, steps, rate, clip, penalty, divisor):
    """Clipped, weighted, regularised gradient descent, one record at a time."""
    beta = np.zeros(rows.shape[1])
    for _ in range(steps):
        total = np.zeros_like(beta)
        for row, sign, weight in zip(rows, signs, weights, strict=True):
            gradient = slope(sign * (row @ beta)) * sign * row
            total += weight * gradient / max(1.0, np.linalg.norm(gradient) / clip)
        beta = (beta - rate * total / divisor) / (1 + rate * penalty)
    return beta


@QUIET
@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, 4.0),
        ({"radius": 2.0}, 1.0),
        ({"radius": 0.2, "step": 0.03}, 0.03 * 4 / 0.2**2),
        ({"class_weight": {0: 0.3, 1: 0.9}, "radius": 0.5}, 16.0),
        ({"class_weight": "balanced", "n_records": 90, "neighbouring": ADD_REMOVE}, 4.0),
    ],
)
def test_gradient_descent_does_the_steps_that_it_says(options, rate):
    model = erm.DPGradientDescentClassifier(1e12, 0.999, regularization=0.2, n_steps=4, **options).fit(X, Y)
    rows = np.column_stack([X, np.full(60, model.radius)]) / math.sqrt(2)
    weights = {"balanced": weights_of(Y), None: np.ones(60)}
    chosen = options.get("class_weight")
    expected = by_hand(
        rows,
        2 * Y - 1,
        np.array([0.3, 0.9])[Y] if isinstance(chosen, dict) else weights[chosen],
        slope=erm.LOGISTIC.slope,
        steps=4,
        rate=rate,
        clip=model.radius,
        penalty=0.2,
        divisor=model.n_records or 60,
    )
    assert parameters(model) == pytest.approx(expected, abs=2e-4)
    assert np.linalg.norm(expected) > 0.05


def test_the_event_of_gradient_descent_is_its_guarantee():
    model = erm.DPGradientDescentClassifier(0.7, 1e-4, n_steps=9).fit(X, Y)
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (0.7, 1e-4, REPLACE_ONE)
    assert guarantee.event == SelfComposedDpEvent(GaussianDpEvent(model.noise_multiplier_), 9)
    assert guarantee.delta_at(0.7) == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "last", "beyond"),
    [
        ("delta", 1e-300, 0.0),
        ("delta", 0.999, 1.0),
        ("n_steps", 1, 0),
        ("step", 1e6, 1.01e6),
        ("step", 1e-3, 0.0),
        ("average", 1.0, 1.01),
        ("average", 0.0, -0.01),
        ("scale", None, "data"),
        ("classes", ("a", "b"), ("a", "b", "c")),
    ],
)
def test_ranges_of_gradient_descent(name, last, beyond):
    estimator = erm.DPGradientDescentClassifier(regularization=0.1)
    clone(estimator).set_params(**{name: last})._check_parameters()
    with pytest.raises(ValueError, match=f"{name} must be"):
        clone(estimator).set_params(**{name: beyond}).fit(None, None)
