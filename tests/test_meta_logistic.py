"""The ready-made private logistic regression: one budget, thresholds that follow from its objective, no other leak."""

import math
import types

import dask
import dask.array as da
import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score

from helpers import erm
from helpers.erm import partitions, risk
from helpers.meta import PrivateLogisticRegression, ThresholdClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, SEED_SECRET, Guarantee, randomness

BOUNDS = [[-3.0, 3.0]] * 2


def population(n, seed, *, share=0.05, distance=2.0):
    """Two normal classes along a line that does not pass through the middle of the bounds."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < share * n).astype(int)
    X = rng.standard_normal((n, 2)) * 0.5 + distance / 2 * y[:, None] * [1.0, -0.4] + [0.0, 0.8]
    return X, y


def made(**parameters):
    return PrivateLogisticRegression(**{"epsilon": 50.0, "bounds": BOUNDS} | parameters)


# Decisions


def test_decisions_are_near_the_best_of_the_ranking():
    model = made().fit(*population(20_000, 1))
    X, y = population(40_000, 2)
    scores = model.decision_function(X)
    cuts = np.quantile(scores, np.linspace(0, 1, 201))
    best = max(balanced_accuracy_score(y, (scores >= cut).astype(int)) for cut in cuts)
    assert balanced_accuracy_score(y, model.predict(X)) >= best - 0.01
    assert roc_auc_score(y, scores) > 0.9


def test_the_threshold_by_hand():
    X, y = population(2000, 3)
    model = made().fit(X, y)
    assert model.threshold_ == model.offset_ == pytest.approx(logit(0.05), abs=0.1)
    assert np.array_equal(model.predict(X), (model.decision_function(X) >= model.threshold_).astype(int))
    assert model.predict_proba(X)[:, 1] == pytest.approx(expit(model.decision_function(X)))
    assert model.coef_.shape == (1, 2)


@pytest.mark.parametrize("relation", [{}, {"neighbouring": ADD_REMOVE, "n_records": 20_000}], ids=["replace", "add"])
def test_a_threshold_for_a_target_recall_fits_around(relation):
    X, y = population(20_000, 4)
    inner = PrivateLogisticRegression(bounds=BOUNDS, **relation)
    model = ThresholdClassifier(inner, 50.0, "recall", threshold_share=0.2, target_recall=0.75).fit(X, y)
    assert recall_score(y, model.predict(X)) == pytest.approx(0.75, abs=0.02)
    assert model.estimator_.guarantee_.epsilon == pytest.approx(40.0)
    assert model.guarantee_.epsilon == pytest.approx(50.0)
    assert model.guarantee_.neighbouring is relation.get("neighbouring", REPLACE_ONE)


def test_several_classes_are_told_apart_by_their_excess_over_their_shares():
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=6000, p=[0.9, 0.06, 0.04])
    X = 0.4 * rng.standard_normal((6000, 2)) + np.array([[0, 0], [1, 0], [0, 1]])[y]
    model = made(classes=(0, 1, 2)).fit(X, y)
    assert balanced_accuracy_score(y, model.predict(X)) > 0.75
    assert np.array_equal(model.predict(X), (model.decision_function(X) - model.offset_).argmax(axis=1))


# The budget


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("relation", [{}, {"neighbouring": ADD_REMOVE, "n_records": 300}], ids=["replace", "add"])
def test_one_guarantee_for_count_coefficients_and_threshold(delta, relation):
    X, y = population(300, 6)
    model = made(epsilon=0.8, delta=delta, counts_share=0.25, **relation).fit(X, y)
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (pytest.approx(0.8), delta)
    assert isinstance(guarantee, Guarantee)
    inner = model.estimator_
    same = {name: getattr(inner, name) for name in ("intercept_scaling", "rows", "bounds", "delta")}
    plain = erm.ObjectivePerturbationClassifier(0.6, inner.regularization, **same, **relation).fit(X, y)
    for name in ("noise_rate_", "noise_scale_", "total_regularization_", "epsilon_solver_"):
        assert getattr(inner, name, 0.0) == pytest.approx(getattr(plain, name, 0.0)), name
    assert {"feature bounds public", "set of labels public"} <= set(guarantee.assumes)
    seeded = clone(model).set_params(random_state=1).fit(X, y)
    assert SEED_SECRET in seeded.guarantee_.assumes
    assert SEED_SECRET not in guarantee.assumes
    assert seeded.estimator_.random_state is None


@pytest.mark.parametrize(
    ("options", "dimension", "budget"),
    [({}, 3, {}), ({"delta": 1e-5}, 3, {"delta": 1e-5}), ({"classes": (0, 1, 2)}, 6, {"loss": erm.Softmax(3)})],
)
def test_the_penalty_comes_from_public_numbers(options, dimension, budget):
    X, y = population(300, 7)
    model = made(epsilon=0.5, **options).fit(X, y)
    expected = erm.default_regularization(300, dimension, 0.9 * 0.5, **budget)
    assert model.estimator_.regularization == pytest.approx(expected)
    other = made(epsilon=0.5, **options).fit(X[:, ::-1] ** 2, np.zeros_like(y))
    assert other.estimator_.regularization == model.estimator_.regularization
    given = made(epsilon=0.5, regularization=0.7, **options).fit(X, y)
    assert given.estimator_.regularization == 0.7


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_pure_noise_moves_the_coefficients_by_the_length_that_the_rule_says(delta):
    """Rows of length 0 carry no signal: what is left is the noise over n lambda, of mean length 10."""
    X, y = np.zeros((500, 20)), np.zeros(500, dtype=int)
    found = []
    for _ in range(60):
        model = made(epsilon=0.5, delta=delta, bounds=None, intercept_scaling=1e-3)
        found.append(np.linalg.norm(model.fit(X, y).coef_))
    assert np.mean(found) == pytest.approx(10.0 * math.sqrt(20 / 21), rel=0.2)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, ("cube", "unit")),
        ({"bounds": None}, ("auto", "unit")),
        ({"delta": 1e-5}, ("auto", "unit")),
        ({"rows": "clip"}, ("cube", "clip")),
        ({"noise": "ball"}, ("ball", "unit")),
        ({"noise": "gaussian", "delta": 1e-5, "rows": "clip"}, ("gaussian", "clip")),
    ],
)
def test_rows_and_the_shape_of_the_noise_fit_each_other(options, shape):
    inner = made(**options).fit(*population(200, 9)).estimator_
    assert (inner.noise, inner.rows) == shape


# Values never fail


@pytest.mark.parametrize("relation", [{}, {"neighbouring": ADD_REMOVE, "n_records": 50}], ids=["replace", "add"])
@pytest.mark.parametrize("label", [0, 1])
def test_an_absent_class_or_equal_records_are_no_error(relation, label):
    for rows in (np.zeros((40, 2)), np.full((1, 2), 1e300)):
        model = made(epsilon=0.1, **relation)
        model.fit(rows, np.full(len(rows), label))
        assert np.isfinite(model.decision_function(rows)).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("relation", [{}, {"neighbouring": ADD_REMOVE, "n_records": 50}], ids=["replace", "add"])
def test_no_value_of_a_record_warns(relation):
    rows = np.tile([[1e308, -1e308], [-1e308, 1e308], [5e-324, -0.0]], (5, 1))
    for options in ({}, {"bounds": None}, {"delta": 1e-6}):
        made(**options, **relation).fit(rows, np.arange(15) % 2)


def test_no_record_at_all_is_a_table_under_add_remove_only():
    none = np.empty((0, 2)), np.empty(0, dtype=int)
    model = made(neighbouring=ADD_REMOVE, n_records=50).fit(*none)
    assert np.isfinite(model.threshold_)
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        made().fit(*none)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"regularization": "best"}, "regularization must be one of"),
        ({"regularization": 0.0}, "regularization must be"),
        ({"counts_share": 0.0}, "counts_share must be"),
        ({"noise": "cube", "bounds": None}, "bounds must be given"),
        ({"noise": "cube", "delta": 1e-5}, "delta must be 0"),
        ({"rows": "long"}, "rows must be one of"),
        ({"delta": 1.0}, "delta must be"),
        ({"neighbouring": ADD_REMOVE}, "n_records must be"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_refusals_come_before_the_data(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options).fit(None, None)


def test_labels_outside_the_public_set_are_refused_and_names_kept():
    X, y = population(4000, 8)
    with pytest.raises(ValueError, match="labels among classes"):
        made().fit(X, 2 * y)
    words = made(classes=("common", "rare")).fit(X, np.where(y == 1, "rare", "common"))
    assert set(words.predict(X)) <= {"common", "rare"}
    assert roc_auc_score(y, words.decision_function(X)) > 0.9


def test_bad_tables_are_refused_and_constant_columns_are_not():
    X, y = population(60, 9)
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[3, 1] = bad
        with pytest.raises(ValueError, match="Input X contains"):
            made().fit(broken, y)
    with pytest.raises(ValueError, match="0 feature"):
        made(bounds=None).fit(X[:, :0], y)
    with pytest.raises(ValueError, match=r"bounds must be finite, of shape \(2, 2\)"):
        made(bounds=[[0.0, 1.0]]).fit(X, y)
    for options in ({}, {"bounds": [[2.0, 2.0], [0.0, 1.0]]}, {"bounds": None}):
        model = made(epsilon=1.0, **options).fit(np.full_like(X, 2.0), y)
        assert np.isfinite(model.predict_proba(X)).all()


# Records that memory does not hold


def in_parts(X, y, source, folder):
    """The same records from elsewhere."""
    if source == "chunks":
        return erm.Chunks(lambda: iter(np.split(X, [1, 1, 300])), *X.shape), y
    if source == "memory map":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r"), y
    X = da.from_array(X, chunks=(250, 1))
    return (X[X[:, 0] > -math.inf] if source == "dask, of unknown length" else X), da.from_array(y, chunks=250)


def the_same_keys(monkeypatch):
    keys = iter(range(1, 100))
    monkeypatch.setattr(randomness, "secrets", types.SimpleNamespace(randbits=lambda bits: next(keys)))


@pytest.mark.parametrize("source", ["memory map", "chunks", "dask", "dask, of unknown length"])
@pytest.mark.parametrize("options", [{}, {"delta": 1e-5, "neighbouring": ADD_REMOVE, "n_records": 600}])
def test_parts_release_what_one_array_does(options, source, tmp_path, monkeypatch):
    """Nothing is small enough here to be written out."""
    # The size of a block is part of what rounding may do, hence of the small vector that hides it: one size for both.
    monkeypatch.setattr(risk, "_ENTRIES", 64)
    X, y = population(700, 10)
    the_same_keys(monkeypatch)
    whole = made(epsilon=1.0, **options).fit(X, y)
    monkeypatch.setattr(partitions, "FEW", 0)
    the_same_keys(monkeypatch)
    with dask.config.set(scheduler="synchronous"):
        parts = made(epsilon=1.0, **options).fit(*in_parts(X, y, source, tmp_path))
    assert parts.coef_ == pytest.approx(whole.coef_, abs=1e-9)
    assert (parts.offset_, parts.threshold_, parts.n_features_in_) == (whole.offset_, whole.threshold_, 2)
    assert (parts.predict(X) == whole.predict(X)).all()
    more = (partitions.CURATOR,) if source.startswith("dask") else ()
    assert set(parts.guarantee_.assumes) == {*whole.guarantee_.assumes, *more}
    assert str(parts.guarantee_) == str(whole.guarantee_)


def test_an_integer_keys_noise_by_the_records_of_the_parts(monkeypatch):
    monkeypatch.setattr(partitions, "FEW", 0)
    X, y = population(700, 11)
    first, again = (made(epsilon=0.01, random_state=3).fit(*in_parts(X, y, "chunks", None)).coef_ for _ in range(2))
    assert np.array_equal(first, again)
    X[-1] += 1e-6
    assert abs(first - made(epsilon=0.01, random_state=3).fit(*in_parts(X, y, "chunks", None)).coef_).max() > 1e-3
