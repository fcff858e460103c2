"""Private centre and scale: how far a record moves the sums, the noise of fitted models, and what they are good for."""

import math

import numpy as np
import pytest
from scipy.stats import kstest, laplace, norm
from sklearn.metrics import roc_auc_score

from helpers import erm
from helpers.erm import frames
from helpers.meta import PrivateLogisticRegression
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, gaussian_multiplier

BOUNDS = np.array([[0.0, 10.0], [-4.0, 0.0], [2.0, 2.0]])
UNLIKELY = 1e-9


@pytest.fixture
def released(monkeypatch):
    """What the mechanisms were asked to release: sums and their sensitivity; nothing gets noise."""
    asked = []
    for name in ("gaussian", "laplace"):
        real = getattr(frames, name)

        def without_noise(sums, change, *budget, real=real):
            asked.append((sums, change))
            return real(sums, change, *budget)._replace(value=sums)

        monkeypatch.setattr(frames, name, without_noise)
    return asked


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("relation", [REPLACE_ONE, ADD_REMOVE], ids=["replace", "add"])
def test_no_record_moves_the_sums_farther_than_stated_and_some_as_far(released, delta, relation):
    """Pairs of records in the box and outside it, on a grid and at random, in the fitted sums themselves."""
    rng = np.random.default_rng(0)
    ends = np.array([[-1.0, 0.5], [1.0, -0.5], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-0.5, 1.0]])
    units = np.vstack([ends.repeat(2, axis=0), rng.uniform(-1.3, 1.3, (60, 2))])
    records = np.column_stack([5 + 5 * units[:, 0], -2 + 2 * units[:, 1], rng.normal(size=len(units))])
    order, farthest = (2 if delta else 1), 0.0
    options = {"bounds": BOUNDS, "epsilon": 1.0, "delta": delta, "neighbouring": relation, "n_records": 5}
    common = np.tile([[1.0, -3.0, 0.0]], (4, 1))
    for _ in range(400):
        one, other = records[rng.integers(len(records), size=2)]
        sides = [np.vstack([common, one]), np.vstack([common, other]) if relation is REPLACE_ONE else common]
        sums = []
        for X in sides:
            frames.private_standard(X, **options)
            total, change = released[-1]
            sums.append(total)
        moved = np.linalg.norm(sums[0] - sums[1], ord=order)
        assert moved <= change.value * (1 + 1e-12)
        farthest = max(farthest, moved)
    # The third feature has no width, and moves nothing.
    assert farthest == pytest.approx(change.value * (2 / 3) ** (1 / order))
    assert change.norm == ("l2" if delta else "l1")


def test_without_noise_it_is_mean_and_standard_deviation(released):
    X = np.random.default_rng(1).normal([6.0, -2.5, 2.0], [1.0, 0.4, 0.0], (20_000, 3))
    found = frames.private_standard(X, BOUNDS, 50.0).value
    assert found.center == pytest.approx(X.mean(axis=0), abs=2e-3)
    assert found.scale[:2] == pytest.approx(X.std(axis=0)[:2], rel=0.02)
    assert found.applied(X)[:, :2].std(axis=0) == pytest.approx(1 / math.sqrt(3), rel=0.02)


def test_where_noise_drowns_everything_the_bounds_stay():
    X = np.full((10, 3), 1.0)
    found = [frames.private_standard(X, BOUNDS, 1e-3).value for _ in range(20)]
    assert np.median([np.abs(one.center - [5, -2, 2]).max() for one in found]) <= 5.0
    assert all(np.array_equal(one.scale, [5, 2, 1]) for one in found)


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_a_fitted_model_has_the_noise_of_its_share(delta):
    """Centres of one feature far from the middle: shrinking is negligible there, and what is left is the noise."""
    n, share, epsilon = 400, 0.25, 2.0
    X, y = np.full((n, 1), 0.8), (np.arange(n) < 40).astype(int)
    found = []
    for _ in range(200):
        model = PrivateLogisticRegression(epsilon, delta, [[-1.0, 1.0]], frame_share=share).fit(X, y)
        found.append(n * (model.standard_.center[0] - 0.8))
    if delta:
        law = norm(scale=2 * gaussian_multiplier(share * epsilon, share * delta))
    else:
        law = laplace(scale=2.25 / (share * epsilon))
    assert kstest(found, law.cdf).pvalue > UNLIKELY
    guarantee, inner = model.guarantee_, model.estimator_.guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (pytest.approx(epsilon), pytest.approx(delta))
    # Its coefficients are those of records in a frame that was made from the records.
    assert (inner.epsilon, inner.delta) == (guarantee.epsilon, guarantee.delta)
    assert {"feature bounds public", "number of records public"} <= set(guarantee.assumes) & set(inner.assumes)


def test_it_is_worth_its_price_where_many_features_are_far_from_the_middle():
    """They share a mean and most of their variance; the classes differ in five of them."""
    rng, n, d = np.random.default_rng(2), 10_000, 30
    y = (np.arange(n) < n / 10).astype(int)
    X = 0.6 + 0.15 * rng.normal(size=(n, 1)) + 0.05 * rng.normal(size=(n, d))
    X[:, :5] += 0.1 * y[:, None] * [1, -1, 1, -1, 1]
    area = {}
    for share in (0.0, 0.2):
        models = [PrivateLogisticRegression(1.0, 1e-9, [[-1.0, 1.0]] * d, frame_share=share) for _ in range(3)]
        fits = [model.fit(X[::2], y[::2]) for model in models]
        area[share] = np.mean([roc_auc_score(y[1::2], model.decision_function(X[1::2])) for model in fits])
    assert area[0.2] > max(0.93, area[0.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": None}, "bounds must be given with frame_share"),
        ({"center": 0.0}, "frame_share must be 0"),
        ({"noise": "cube"}, "frame_share must be 0"),
        ({"frame_share": 1.0}, "frame_share must be"),
        ({"frame_share": 0.9, "objective": "recall"}, "frame_share and threshold_share must add up"),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_data_are_read(options, message):
    with pytest.raises(ValueError, match=message):
        PrivateLogisticRegression(**{"bounds": BOUNDS, "frame_share": 0.1} | options).fit(None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"neighbouring": ADD_REMOVE}, "n_records must be a public integer"),
        ({"n_records": 0}, "n_records must be"),
        ({"bounds": [[1.0, 0.0]]}, "bounds must be finite"),
        ({"X": np.zeros((2, 2))}, "X must hold finite numbers in 3 columns"),
        ({"X": np.full((2, 3), np.nan)}, "X must hold finite numbers"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        erm.private_standard(**{"X": np.zeros((2, 3)), "bounds": BOUNDS, "epsilon": 1.0} | arguments)
