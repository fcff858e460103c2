"""The midpoint of two private means: its noise, recovered from fitted objects, against what one record can move."""

import itertools
import math
import pickle

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from releases import watched
from scipy.stats import kstest
from sklearn.exceptions import NotFittedError

from helpers.erm.midpoint import MidpointClassifier
from helpers.privacy import (
    EXACT_REALS,
    REPLACE_ONE,
    SEED_SECRET,
    gaussian_mu,
    gaussian_multiplier,
)

RADIUS, EPSILON, DELTA, FITS = 3.0, 1.0, 1e-5, 500  # so many that what is right fails once in 1e6 runs or less
SETTINGS = [
    {},
    {"counts": "public"},
]
FILLER = [(0.0, 0)] * 300 + [(0.0, 1)] * 200  # keeps means and counts inside, where nothing is clipped


def data(records):
    values, labels = zip(*records, strict=True)
    return np.array(values)[:, None], np.array(labels)


def released(records, setting, **options):
    """Everything that a fitted object tells, as the vector that got noise: sums and counts, or means."""
    model = MidpointClassifier(RADIUS, **{"epsilon": EPSILON, "delta": DELTA, **setting, **options})
    model.fit(*data(records))
    if setting.get("counts") == "public":
        return model.means_
    return np.append(model.means_ * model.counts_, model.counts_[1:])


def noiseless(records, setting):
    return released(records, setting, epsilon=1e6, delta=0.5)


def noise(setting):
    """Noise (n_fits, n_coordinates) of as many fits to the same records."""
    return np.array([released(FILLER, setting) for _ in range(FITS)]) - noiseless(FILLER, setting)


def neighbours(setting):
    """Pairs of neighbouring data sets, with values at the ends, and beyond the radius."""
    values, labels = (-RADIUS, 0.0, RADIUS, 9 * RADIUS), (0, 1)
    if setting.get("counts") == "public":
        for label in labels:
            for old, new in itertools.permutations(values, 2):
                yield [*FILLER, (old, label)], [*FILLER, (new, label)]
    else:
        for old, new in itertools.permutations(itertools.product(values, labels), 2):
            yield [*FILLER, old], [*FILLER, new]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_noise_is_what_the_guarantee_needs(setting):
    """No neighbour is farther away than mu, in units of the noise that was found; and one is that far."""
    found = noise(setting)
    sd = np.sqrt(np.mean(found**2, axis=0))
    moves = [noiseless(there, setting) - noiseless(here, setting) for here, there in neighbours(setting)]
    farthest = max(np.linalg.norm(move / sd) for move in moves)
    assert farthest == pytest.approx(gaussian_mu(EPSILON, DELTA), rel=0.25)
    assert all(kstest(column / scale, "norm").pvalue > 1e-9 for column, scale in zip(found.T, sd, strict=True))
    related = np.corrcoef(found.T) - np.eye(found.shape[1])
    assert np.abs(related).max() < 6.5 / math.sqrt(FITS)


def test_the_count_has_the_noise_of_the_sums_in_units_of_root_two_radii():
    """A count in other units would be off by a factor of root 2: less noise than a flipped label needs, or more."""
    sums, counts = np.split(noise({}), [2], axis=1)
    assert sums.std() / counts.std() == pytest.approx(math.sqrt(2) * RADIUS, rel=0.22)


RECORDS = [(-1.0, 0), (2.0, 0), (9.0, 0), (-0.5, 1), (2.5, 1)]


@pytest.mark.parametrize(
    ("setting", "length", "asked"),
    [
        ({}, 2 * RADIUS, [4.0, 2.0, math.sqrt(2) * RADIUS * 2]),
        ({"counts": "public"}, 1.0, [4.0 / (2 * RADIUS), 2.0 / (2 * RADIUS)]),
    ],
)
def test_what_gets_noise_is_in_the_units_of_what_one_record_moves(monkeypatch, setting, length, asked):
    """The mechanism is asked for the stated sensitivity, and without noise everything is exact."""
    seen = watched(monkeypatch, answer=np.asarray)
    model = MidpointClassifier(RADIUS, 0.7, 1e-3, **setting).fit(*data(RECORDS))
    ((terms, value),) = seen
    assert value == pytest.approx(asked)
    assert (terms.kind, terms.sensitivity, terms.units) == ("gaussian", pytest.approx(length), 1.0)
    assert terms.event == GaussianDpEvent(gaussian_multiplier(0.7, 1e-3))
    assert model.means_ == pytest.approx([4 / 3, 1.0])
    assert model.counts_ == pytest.approx([3.0, 2.0])
    assert model.threshold_ == pytest.approx(7 / 6)
    assert model.decision_function([[2.0]]) == pytest.approx([2.0 - model.threshold_])
    assert model.predict([[model.threshold_]]).tolist() == [1]


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_fitted_object_holds(setting):
    model = MidpointClassifier(RADIUS, EPSILON, DELTA, **setting, random_state=3).fit(*data(FILLER))
    fitted = {"means_", "counts_", "threshold_", "guarantee_", "classes_", "n_features_in_"}
    assert set(vars(model)) == {*model.get_params(), *fitted}
    assert pickle.loads(pickle.dumps(model)).random_state is None
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbouring) == (EPSILON, DELTA, REPLACE_ONE)
    assert {"radius public", "which class lies above public", EXACT_REALS, SEED_SECRET} <= set(guarantee.assumes)
    assert ("class counts public" in guarantee.assumes) == (setting.get("counts") == "public")
    assert guarantee.epsilon_at(1e-7) > EPSILON  # from the event, exactly
    assert SEED_SECRET not in model.set_params(random_state=None).fit(*data(FILLER)).guarantee_.assumes


@pytest.mark.parametrize("only", [0, 1])
def test_private_counts_never_fail_on_an_empty_class(only):
    X, y = np.linspace(-9, 9, 30)[:, None], np.full(30, only)
    model = MidpointClassifier(2.0, 0.5).fit(X, y)
    assert np.isfinite(model.threshold_)
    assert abs(model.threshold_) <= 2
    assert (model.counts_ >= 1).all()
    assert set(model.predict(X)) <= {0, 1}


def test_no_record_is_refused_as_their_number_is_public():
    with pytest.raises(ValueError, match="0 sample"):
        MidpointClassifier(2.0).fit(np.zeros((0, 1)), [])


def test_one_record_will_do():
    model = MidpointClassifier(2.0, 1e6, 0.5).fit([[1.5]], [1])
    assert model.means_[1] == pytest.approx(1.5, abs=0.01)
    assert model.counts_ == pytest.approx([1.0, 1.0], abs=0.01)


def test_public_counts_say_that_a_class_is_missing():
    with pytest.raises(ValueError, match="record of each class"):
        MidpointClassifier(2.0, counts="public").fit(np.zeros((3, 1)), [0, 0, 0])


def test_the_threshold_is_half_way_and_the_sides_are_public():
    X, y = np.repeat([-1.0, 2.0], 500)[:, None], np.repeat([0, 1], 500)
    model = MidpointClassifier(2.0, 1e6, 0.5).fit(X, y)
    assert model.threshold_ == pytest.approx(0.5, abs=0.01)
    assert model.predict([[0.4], [0.6]]).tolist() == [0, 1]
    moved = MidpointClassifier(6.0, 1e6, 0.5).fit(X + 4.0, y)
    assert moved.threshold_ == pytest.approx(4.5, abs=0.05)
    with pytest.raises(NotFittedError):
        MidpointClassifier().predict([[0.0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"radius": 0}, "radius must be"),
        ({"radius": -1.0}, "radius must be"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": -0.5}, "delta must be"),
        ({"epsilon": -0.5}, "epsilon must be"),
        ({"radius": -0.5}, "radius must be"),
        ({"counts": "secret"}, "counts must be"),
        ({"counts": "printed"}, "counts must be"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be None or an integer"),
    ],
)
def test_bad_parameters_are_refused_before_the_data_are_read(changes, message):
    with pytest.raises(ValueError, match=message):
        MidpointClassifier(**changes).fit("not data", None)


def test_one_feature_and_two_classes_for_good():
    model = MidpointClassifier().fit([[0.0], [1.0]], [0, 1])
    for _ in range(2):
        with pytest.raises(ValueError, match="2 features"):
            model.predict(np.zeros((3, 2)))
    assert not model.__sklearn_tags__().classifier_tags.multi_class


def test_bad_data():
    with pytest.raises(ValueError, match="X must have one feature, got 2"):
        MidpointClassifier().fit(np.zeros((3, 2)), [0, 1, 1])
    with pytest.raises(ValueError, match="y must hold labels among"):
        MidpointClassifier().fit(np.zeros((2, 1)), [1, 2])
