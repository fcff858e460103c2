"""Linear classifiers: rows, conventions, parameters, multiplicities, and what is left on a fitted object."""

import math
import pickle

import numpy as np
import pytest
from erm_data import simulated, watched
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from helpers import erm
from helpers.erm import perturbation
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, SEED_SECRET, ledger

ESTIMATORS = [
    erm.ERMClassifier(),
    erm.ObjectivePerturbationClassifier(random_state=0),
    erm.OutputPerturbationClassifier(regularization=0.1, random_state=0),
    erm.DPGradientDescentClassifier(epsilon=5.0, random_state=0),
]


@given(st.integers(1, 5), st.integers(1, 8), st.floats(0.01, 100), st.integers(0, 1000), st.booleans())
def test_rows_stay_inside_the_ball(d, n, radius, seed, fit_intercept):
    X = radius * 3 * np.random.default_rng(seed).standard_normal((n, d))
    rows = erm.design_matrix(X, radius=radius, fit_intercept=fit_intercept)
    assert np.all(np.linalg.norm(rows, axis=1) <= radius * (1 + 1e-12))
    assert rows.shape == (n, d + fit_intercept)
    inside = np.linalg.norm(X, axis=1) <= radius
    kept = rows[inside, :d] * (math.sqrt(2) if fit_intercept else 1)
    assert np.allclose(kept, X[inside])


def test_overflowing_rows_are_still_bounded():
    rows = erm.design_matrix(np.array([[1e300, -1e300]]), radius=2.0)
    assert np.linalg.norm(rows) <= 2.0


def test_loss_constants_are_bounds_and_attained():
    margins = np.linspace(-40, 40, 10_001)
    assert np.abs(erm.LOGISTIC.slope(margins)).max() == pytest.approx(1.0)
    assert np.abs(erm.LOGISTIC.slope(margins)).max() <= 1.0
    assert erm.LOGISTIC.bend(margins).max() == erm.LOGISTIC.curvature


def test_twin_agrees_with_scikit_learn():
    X, y = simulated(500, 4)
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    ours = erm.ERMClassifier(regularization=0.01, fit_intercept=False, tol=1e-12).fit(X, y)
    theirs = LogisticRegression(C=1 / (500 * 0.01), fit_intercept=False, tol=1e-12, solver="newton-cholesky").fit(X, y)
    assert np.allclose(ours.coef_, theirs.coef_, atol=1e-8)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-8)


def test_intercept_is_a_regularised_constant_inside_the_ball():
    """The fitted coefficients satisfy the stationarity condition of the documented objective."""
    X, y = simulated(80, 2, scale=2.0)
    radius, regularization = 1.5, 0.02
    model = erm.ERMClassifier(regularization=regularization, radius=radius, tol=1e-12).fit(X, y)
    shrunk = X * np.minimum(1, radius / np.linalg.norm(X, axis=1))[:, None]
    z = np.column_stack([shrunk, np.full(80, radius)]) / math.sqrt(2)
    beta = math.sqrt(2) * np.append(model.coef_[0], model.intercept_[0] / radius)
    p = 1 / (1 + np.exp(-z @ beta))
    assert np.allclose(z.T @ (p - y) / 80 + regularization * beta, 0, atol=1e-10)
    assert np.allclose(model.predict_proba(X)[:, 1], p)
    assert np.allclose(model.decision_function(X), shrunk @ model.coef_[0] + model.intercept_[0])


@pytest.fixture
def one_draw(monkeypatch):
    """All noise of the private linear classifiers is the same draw, in units of its rate."""

    def fixed(size, rate, rng):
        direction = np.random.default_rng(size).standard_normal(size)
        return direction / rate

    monkeypatch.setattr(ledger, "spherical_gamma", fixed)


def test_units_of_the_radius_do_not_matter(one_draw):
    """X and radius in other units, regularization in the squares of theirs: the same scores from the same noise."""
    X, y = simulated(60, 3)
    one = erm.ObjectivePerturbationClassifier(regularization=0.02).fit(X, y)
    other = erm.ObjectivePerturbationClassifier(regularization=0.02 * 49, radius=7.0).fit(7 * X, y)
    assert other.noise_rate_ == pytest.approx(one.noise_rate_ / 7)
    assert one.decision_function(X) == pytest.approx(other.decision_function(7 * X), abs=1e-9)


def test_guarantee_names_what_is_public():
    model = erm.ObjectivePerturbationClassifier(epsilon=0.5, random_state=0)
    model.fit(*simulated(50, 2))
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (0.5, 0.0, REPLACE_ONE)
    assert {a.split()[0] for a in guarantee.assumes} == {"number", "norm", "set", "exact", "running", "seed"}
    assert SEED_SECRET not in clone(model).set_params(random_state=None).fit(*simulated(50, 2)).guarantee_.assumes
    assert "calibrate" in guarantee.source
    assert not hasattr(erm.ERMClassifier().fit(*simulated(50, 2)), "guarantee_")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("label", [0, 1])
def test_an_absent_class_is_no_error(estimator, label):
    model = clone(estimator).fit(simulated(200, 2)[0], np.full(200, label))
    assert model.classes_.tolist() == [0, 1]
    assert model.predict_proba([[0.0, 0.0]]).shape == (1, 2)
    if isinstance(model, perturbation.PrivateLinearClassifier):
        assert model.guarantee_.epsilon == estimator.epsilon
    assert model.predict([[0.0, 0.0]]).tolist() == [label]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_labels_outside_the_public_set_are_refused(estimator):
    X, y = simulated(30, 2)
    with pytest.raises(ValueError, match=r"labels among classes=\(0, 1\)"):
        clone(estimator).fit(X, 2 * y)
    words = clone(estimator).set_params(classes=("rare", "common")).fit(X, np.where(y == 1, "rare", "common"))
    assert words.classes_.tolist() == ["common", "rare"]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("regularization", 0.0),
        ("radius", -1.0),
        ("tol", 0.0),
        ("neighbouring", "add"),
        ("n_records", 0),
        ("classes", (0, 0)),
        ("loss", "hinge"),
        ("h", 0.0),
        ("class_weight", "uniform"),
        ("class_weight", {0: 0.5}),
        ("class_weight", {0: 0.5, 1: 1.5}),
        ("class_weight", {0: 0.0, 1: 0.0}),
        ("tol", 0.5),
        ("epsilon", 1e-11),
        ("radius", 1e101),
        ("regularization", 1e-18),
        ("h", 0.9e-4),
        ("fit_intercept", "no"),
        ("raise_regularization", "no"),
        ("random_state", np.random.default_rng(0)),
        ("random_state", -1),
        ("delta", 1.0),
        ("counts_share", 1.0),
        ("classes", 3),
    ],
)
def test_bad_parameters_are_refused_before_the_data_are_read(parameter, value):
    model = erm.ObjectivePerturbationClassifier(**{parameter: value})
    with pytest.raises(ValueError, match=f"{parameter} must be"):
        model.fit(None, None)


def test_add_remove_needs_a_public_divisor():
    model = erm.ObjectivePerturbationClassifier(neighbouring=ADD_REMOVE)
    with pytest.raises(ValueError, match="n_records must be a public integer"):
        model.fit(None, None)
    model.set_params(n_records=70, random_state=0).fit(*simulated(50, 2))
    assert model.guarantee_.neighbouring == ADD_REMOVE
    assert "number that divides the loss public" in model.guarantee_.assumes


def test_less_privacy_means_closer_to_the_twin():
    X, y = simulated(2000, 3)
    twin = erm.ERMClassifier(regularization=0.01).fit(X, y)
    gaps = []
    for epsilon in (0.1, 10.0, 700.0):
        model = erm.ObjectivePerturbationClassifier(epsilon=epsilon, regularization=0.01)
        distances = [
            np.linalg.norm(clone(model).set_params(random_state=seed).fit(X, y).coef_ - twin.coef_)
            for seed in range(20)
        ]
        gaps.append(np.median(distances))
    assert gaps[0] > 10 * gaps[1]
    assert gaps[1] > 30 * gaps[2]


# --- multiplicities ---

MANY = [
    erm.ERMClassifier(0.01, tol=1e-12),
    erm.ERMClassifier(0.01, tol=1e-12, class_weight="balanced"),
    erm.ERMClassifier(0.01, tol=1e-12, loss="huber"),
    erm.ERMClassifier(0.01, tol=1e-12, classes=(0, 1, 2)),
    erm.ObjectivePerturbationClassifier(1.0, 0.01),
    erm.ObjectivePerturbationClassifier(1.0, 0.01, class_weight="balanced", loss="huber"),
    erm.ObjectivePerturbationClassifier(1.0, 0.01, n_records=50, neighbouring=ADD_REMOVE),
    erm.OutputPerturbationClassifier(1.0, 0.01, tol=1e-9, class_weight={0: 0.3, 1: 0.9}),
    erm.OutputPerturbationClassifier(1.0, 0.01, tol=1e-9, classes=(0, 1, 2), class_weight="balanced"),
]


@pytest.mark.parametrize("estimator", MANY, ids=lambda e: type(e).__name__)
def test_a_row_with_a_multiplicity_is_as_many_rows(estimator, one_draw):
    rng = np.random.default_rng(0)
    X, y = simulated(30, 3)
    number = rng.integers(1, 7, 30)
    few = clone(estimator).fit(X, y, number)
    written_out = clone(estimator).fit(np.repeat(X, number, axis=0), np.repeat(y, number))
    assert few.coef_ == pytest.approx(written_out.coef_, abs=1e-8)
    assert few.intercept_ == pytest.approx(written_out.intercept_, abs=1e-8)
    alone = clone(estimator).fit(X, y)
    assert not np.allclose(few.coef_, alone.coef_, atol=1e-4)


def test_private_counts_see_the_multiplicities():
    X, y = simulated(30, 2)
    number = np.where(y == 1, 1, 400)
    counted = erm.ObjectivePerturbationClassifier(100.0, 0.1, class_weight="private").fit(X, y, number)
    assert counted.class_weight_ == pytest.approx(erm.class_weights(np.bincount(y, number)), abs=1e-3)


def test_a_table_is_never_written_out():
    """Private counts of two rows that stand for 10^12 records each: the weights are those of their sizes."""
    X, y = np.array([[0.5], [-0.5]]), np.array([1, 0])
    numbers = [10**12, 3 * 10**12]
    weighted = erm.ObjectivePerturbationClassifier(class_weight="private", random_state=0).fit(X, y, numbers)
    assert weighted.class_weight_ == pytest.approx([0.25, 0.75], rel=1e-6)  # the row of class 1 comes first
    offset = erm.ObjectivePerturbationClassifier(prior="offset", random_state=0).fit(X, y, numbers)
    assert offset.offset_ == pytest.approx(-math.log(3), rel=1e-6)


@pytest.mark.parametrize("bad", [[1, 2], [1, 0, 1], [1.0, 2.0, 3.0], [1, 10**16, 1], [True, True, True]])
def test_multiplicities_are_positive_integers_for_every_row(bad):
    for estimator in (erm.ERMClassifier(), erm.ObjectivePerturbationClassifier()):
        with pytest.raises(ValueError, match="multiplicity must"):
            estimator.fit(np.zeros((3, 1)), [0, 1, 1], bad)


# --- the solver's share ---


@pytest.mark.parametrize("kind", [erm.OutputPerturbationClassifier, erm.ObjectivePerturbationClassifier])
@pytest.mark.parametrize("tol", [None, 0.49])
@pytest.mark.parametrize("n", [2, 1000, 10**6, 10**9])
def test_what_the_solver_leaves_is_paid_for(kind, tol, n, monkeypatch):
    """The distance kept by the solver, times the rate of the noise that hides it, twice, is the solver's share."""
    seen, rates = watched(monkeypatch), []

    def draw(size, rate, rng):
        rates.append(rate)
        return np.full(size, 1 / rate)

    monkeypatch.setattr(ledger, "spherical_gamma", draw)
    X, y = np.array([[1.0], [-0.6]]), np.array([1, 0])
    parameters = {} if tol is None else {"tol": tol}
    model = kind(1.0, 1e-3, fit_intercept=False, **parameters).fit(X, y, [n - 1, 1])
    (asked,), rate = [one.distance for one in seen], rates[-1]
    share = 2 * asked * rate
    assert share == pytest.approx(model.epsilon_solver_)
    if kind is erm.OutputPerturbationClassifier:
        farthest = 2 / (n * 1e-3) + 2 * asked
        assert farthest * rate == pytest.approx(1.0)
        assert share == pytest.approx(model.tol) or n == 10**9  # with so many records rounding decides
    else:
        assert 2 * rates[0] + share == pytest.approx(1.0)
        assert share == pytest.approx(model.tol)


def test_no_solver_is_trusted_with_more_digits_than_there_are(monkeypatch):
    """Rows along one line, and hardly any penalty: across it the minimiser is known, and rounding stays off it."""
    seen = watched(monkeypatch)
    rng, line = np.random.default_rng(1), np.array([0.6, 0.64, 0.48])
    X = 0.999 * rng.uniform(-1, 1, (300_000, 1)) * line
    y = (rng.uniform(size=len(X)) < 0.1).astype(int)
    erm.ObjectivePerturbationClassifier(100.0, 1e-9, tol=1e-7, fit_intercept=False).fit(X, y)
    off = seen[0].noise / seen[0].records.divisor / seen[0].penalty + seen[0].found.ravel()
    error = np.linalg.norm(off - (off @ line) * line)
    assert perturbation._BLUR * 1e-7 / 2 < error <= seen[0].distance


def test_the_old_attack_on_a_loose_solver_is_answered():
    """Two neighbours, tol .49: the *released* means differ by what the noise covers."""
    n, penalty = 2000, 1e-3
    X = np.ones((n, 1))
    labels = np.ones((2, n), dtype=int)
    labels[1, 0] = 0
    model = erm.OutputPerturbationClassifier(1.0, penalty, fit_intercept=False, tol=0.49)
    released = [np.median([model.fit(X, y).coef_[0, 0] for _ in range(150)]) for y in labels]
    assert abs(released[0] - released[1]) * model.noise_rate_ < 1.0


def test_the_vector_that_hides_the_distance_is_released(monkeypatch):
    X, y = simulated(40, 2)
    released = []
    for blur in (np.zeros(3), np.array([1e-3, -2e-3, 3e-3])):
        draws = iter([np.ones(3), blur])
        monkeypatch.setattr(ledger, "spherical_gamma", lambda size, rate, rng, draws=draws: next(draws))
        model = erm.ObjectivePerturbationClassifier(1.0, 0.1).fit(X, y)
        released.append(np.append(model.coef_[0], model.intercept_) * math.sqrt(2))
    assert released[1] - released[0] == pytest.approx([1e-3, -2e-3, 3e-3], rel=1e-6)


def test_the_blur_is_invisible_beside_the_noise():
    """Its mean length is 1e-5 d / (epsilon radius): the noise alone moves the released coefficients thousands of times
    further at these sizes."""
    n, d, epsilon = 1000, 5, 1.0
    blur = 1e-5 * d / epsilon
    model = erm.ObjectivePerturbationClassifier(epsilon, 1e-3, fit_intercept=False)
    X, y = simulated(n, d)
    spread = np.linalg.norm(np.std([model.fit(X, y).coef_[0] for _ in range(30)], axis=0))
    assert blur < 1e-3 * spread


# --- what is left on a fitted object ---


@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if hasattr(e, "epsilon")], ids=lambda e: type(e).__name__)
def test_nothing_of_the_solver_and_the_noise_is_left(estimator):
    model = clone(estimator).set_params(class_weight="private").fit(*simulated(60, 2))
    public = {"coef_", "intercept_", "classes_", "n_features_in_", "class_weight_", "guarantee_"}
    constants = {
        "noise_rate_",
        "noise_multiplier_",
        "noise_scales_",
        "offset_",
        "total_regularization_",
        "epsilon_solver_",
    }
    assert set(vars(model)) - set(model.get_params()) <= public | constants
    one, other = (clone(estimator).fit(*simulated(60, 2, seed=seed)) for seed in (0, 5))
    for name in constants & set(vars(one)):
        assert np.array_equal(vars(one)[name], vars(other)[name]), name
    assert pickle.loads(pickle.dumps(model)).random_state is None


def test_a_seed_repeats_a_fit_and_nothing_else():
    X, y = simulated(40, 2)
    state = np.random.get_state()[1].copy()  # noqa: NPY002

    def coefficients(seed, X=X, **parameters):
        return erm.ObjectivePerturbationClassifier(random_state=seed, **parameters).fit(X, y).coef_

    assert np.array_equal(coefficients(1), coefficients(1))
    assert not np.array_equal(coefficients(1), coefficients(2))
    assert not np.array_equal(coefficients(None), coefficients(None))
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("class_weight", [None, "balanced", "private"])
@pytest.mark.parametrize(
    "kind",
    [erm.ObjectivePerturbationClassifier, erm.OutputPerturbationClassifier, erm.DPGradientDescentClassifier],
)
def test_no_records_at_all_is_a_table_like_any_other_under_add_remove(kind, class_weight):
    X, y = np.array([[0.5, -0.5]]), np.array([1])
    for rows in (0, 1):
        model = kind(neighbouring=ADD_REMOVE, n_records=10, class_weight=class_weight).fit(X[:rows], y[:rows])
        assert np.isfinite(model.coef_).all()
        assert model.guarantee_.neighbouring is ADD_REMOVE
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        kind(class_weight=class_weight).fit(X[:0], y[:0])
