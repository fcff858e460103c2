"""The private linear model of images: what its frame releases, what it costs, and what the two decisions see."""

import math

import numpy as np
import pytest
import torch
from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from releases import watched
from scipy.stats import binom, norm

from checks import skin
from helpers.neural import Focal, Schedule
from helpers.privacy import ADD_REMOVE, event_epsilon, gaussian_epsilon

CLASSES = 3
SHAPE = Schedule.constant(20, sample_rate=0.5)
NO_NOISE = 1e9  # an epsilon at which every release is exact


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def records():
    """Three classes of 900, 90 and 30 in eight features, the second feature much longer than the others."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [900, 90, 30])
    X = rng.normal(0, [0.02, 0.2] + [0.05] * 6, (len(y), 8))
    X[:, 2] += 0.15 * (y == 1)
    X[:, 3] += 0.15 * (y == 2)
    return np.clip(X, -1, 1), y


def frame_of(records, epsilon=8.0, seed=0):
    return skin.release_frame(*records, CLASSES, epsilon, 1e-5, random_state=seed)


def fitted(frame, records, **options):
    plan = frame.calibrated(SHAPE, 8.0, 1e-5)
    options = {"rate": 5.0, "random_state": 0} | options
    return skin.fit(frame, frame.rows(records[0]), records[1], plan, delta=1e-5, **options)


# ------------------------------------------------------------------------------------------------------- the frame


def test_without_noise_the_frame_is_that_of_the_records(records):
    X, _ = records
    frame = frame_of(records, NO_NOISE)
    np.testing.assert_allclose(frame.counts, [900, 90, 30], rtol=1e-4)
    np.testing.assert_allclose(frame.centre, X.mean(0), atol=1e-6)
    np.testing.assert_allclose(frame.scale, np.sqrt(X.var(0) * 8), rtol=1e-4)
    assert np.exp(frame.log_prior).sum() == pytest.approx(1)


def test_rows_are_short_and_of_mean_square_length_about_one(records):
    rows = frame_of(records, NO_NOISE).rows(records[0])
    lengths = np.linalg.norm(rows, axis=1)
    assert rows.dtype == np.float32
    assert lengths.max() <= 1.5 + 8 / 4096
    assert np.mean(lengths**2) == pytest.approx(1, abs=0.15)


def test_directions_come_out_equally_long(records):
    rows = frame_of(records, NO_NOISE).rows(records[0])
    values = np.linalg.eigvalsh(np.cov(rows.T))
    assert values[-1] < 2 * values[0]


def sums_before_noise(patch, X, y, released=None):
    """What is about to be released, with the claimed sensitivities, as if earlier releases had been `released`."""
    earlier = iter(released or ())
    with patch.context() as here:
        seen = watched(here, lambda value: np.asarray(next(earlier, value), dtype=float))
        skin.release_frame(X, y, CLASSES, 8.0, 1e-5, random_state=0)
    return [value for _, value in seen], [terms.sensitivity for terms, _ in seen]


@pytest.mark.parametrize("record", [np.ones(64), -np.ones(64), np.eye(64)[1], np.zeros(64)])
def test_one_record_moves_each_sum_by_no_more_than_is_claimed(monkeypatch, record):
    """Given the same earlier releases; a record of ones has length 8, so that all cuts are at work."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(0, 0.05, (200, 64)), rng.integers(CLASSES, size=200)
    one, bounds = sums_before_noise(monkeypatch, X, y)
    other, _ = sums_before_noise(monkeypatch, np.vstack([X, record]), np.append(y, 1), released=one)
    moved = [np.linalg.norm(b - a) for a, b in zip(one, other, strict=True)]
    assert all(np.array(moved) <= np.array(bounds) * (1 + 1e-9)), (moved, bounds)
    if record[0]:  # the far ones, cut to the bound exactly
        np.testing.assert_allclose(moved, bounds, rtol=1e-9)


def test_the_noise_is_that_of_the_events(records):
    """Over 400 seeds the noise of a class count has the event's deviation; 5 standard errors are 18 %."""
    counts = np.array([frame_of(records, seed=seed).counts[0] - 900 for seed in range(400)])
    told = frame_of(records).events[0].noise_multiplier
    assert counts.std() == pytest.approx(told, rel=0.18)
    assert abs(counts.mean()) < 5 * told / 20


def test_events_cost_what_the_shares_say(records):
    events = frame_of(records).events
    alone = [event_epsilon(event, 1e-6, ADD_REMOVE) for event in events]
    np.testing.assert_allclose(alone, [0.8, 0.8, 0.8, 2.0], rtol=2e-3)
    assert event_epsilon(ComposedDpEvent(list(events)), 1e-5, ADD_REMOVE) < 0.45 * 8


def test_noise_depends_on_the_seed_and_on_the_data(records):
    X, y = records
    assert frame_of(records).counts[0] != frame_of(records, seed=1).counts[0]
    assert frame_of(records).counts[0] - 900 != frame_of((X[1:], y[1:])).counts[0] - 899


@pytest.mark.parametrize(
    ("X", "y", "n_classes", "epsilon", "words"),
    [
        (np.zeros(4), np.zeros(4, int), 3, 1.0, "X and y must be"),
        (np.zeros((4, 2)), np.zeros(3, int), 3, 1.0, "X and y must be"),
        (np.zeros((4, 2)), np.zeros(4), 3, 1.0, "X and y must be"),
        (np.zeros((4, 2)), np.zeros(4, int), 1, 1.0, "n_classes"),
        (np.zeros((4, 2)), np.zeros(4, int), 3, -1.0, "epsilon"),
    ],
)
def test_what_is_refused(X, y, n_classes, epsilon, words):
    with pytest.raises(ValueError, match=words):
        skin.release_frame(X, y, n_classes, epsilon, 1e-5, random_state=0)


def test_data_without_a_class_or_a_record_still_have_a_frame():
    """An error would tell of private values."""
    for n in (0, 5):
        frame = skin.release_frame(np.zeros((n, 2)), np.zeros(n, int), 3, 1.0, 1e-5, random_state=0)
        assert np.isfinite(frame.rows(np.ones((4, 2)))).all()
        assert frame.counts.min() >= 1


# ------------------------------------------------------------------------------------------------------- the model


def test_frame_and_model_together_meet_the_budget(records):
    model = fitted(frame_of(records), records)
    assert 0.97 * 8 < model.guarantee.epsilon <= 8
    assert model.guarantee.delta == 1e-5
    assert "number that divides the sums public" in model.guarantee.assumes  # the noisy count, not that of the records
    together = event_epsilon(model.guarantee.event, 1e-5, ADD_REMOVE, interval=1e-3)
    assert together == pytest.approx(model.guarantee.epsilon, rel=0.02)


def test_the_plan_clips_where_it_is_told(records):
    plan = frame_of(records).calibrated(SHAPE, 8.0, 1e-5, clip=0.7)
    assert set(plan.clip_norms) == {0.7}


def test_the_prior_decision_finds_rare_classes(records):
    frame = frame_of(records)
    model = fitted(frame, records)
    rows = skin.decided(model.logits(frame.rows(records[0])), model.prior, records[1], "abc", ["c"])
    likely, prior = rows
    assert [row["decision"] for row in rows] == ["likely", "prior"]
    assert prior["balanced_accuracy"] > likely["balanced_accuracy"] + 0.05
    assert likely["accuracy"] > prior["accuracy"]
    assert likely["auc"] == prior["auc"] > 0.8
    told = skin.validation_score(model.logits(frame.rows(records[0])), model.prior, records[1])
    assert told == pytest.approx(likely["accuracy"] + likely["auc"] + prior["balanced_accuracy"])


def test_weights_and_offset_are_part_of_the_prior(records):
    frame = frame_of(records)
    plain, weighted = fitted(frame, records), fitted(frame, records, power=1.0)
    np.testing.assert_allclose(plain.prior, frame.log_prior)
    np.testing.assert_allclose(weighted.prior, np.full(3, np.log(frame.counts.min() / frame.counts.sum())))
    np.testing.assert_allclose(plain.offset, frame.log_prior)
    np.testing.assert_array_equal(fitted(frame, records, offset=False).offset, np.zeros(3))


def test_equal_views_are_one_record(records):
    """The mean gradient of equal views is that of one; the noise is keyed by the data, so it is made negligible."""
    frame = frame_of(records, NO_NOISE)
    plan = SHAPE.scaled(1e-7)
    rows, y = frame.rows(records[0]), records[1]
    quiet = {"delta": 1e-5, "rate": 5.0, "random_state": 0}
    full = Schedule(plan.noise_multipliers, plan.clip_norms, np.ones(len(plan)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skin, "ACCOUNTING", {"accountant": "rdp"})
        one = skin.fit(frame, rows, y, full, **quiet)
        three = skin.fit(frame, np.repeat(rows[:, None], 3, axis=1), y, full, **quiet)
    np.testing.assert_allclose(one.weights, three.weights, atol=1e-4)
    assert np.abs(one.weights).max() > 0.1


def test_malignant_is_the_sum_of_its_classes():
    logits = np.log([[0.4, 0.3, 0.3], [0.6, 0.2, 0.2]])
    rows = skin.decided(logits, np.zeros(3), [1, 0], ["a", "b", "c"], ["b", "c"])
    assert rows[0]["malignant_mcc"] == 1.0
    assert rows[0]["accuracy"] == 0.5


# ------------------------------------------------------------------------------------------------------- networks


@pytest.fixture(scope="module")
def pictured(records):
    """Every feature as a map of 3 x 3 cells around it."""
    X, y = records
    cells = np.random.default_rng(1).normal(0, 0.02, (*X.shape, 3, 3))
    return np.clip(X[:, :, None, None] + cells - cells.mean((2, 3), keepdims=True), -1, 1), y


def frame_of_maps(pictured, epsilon=8.0):
    maps, y = pictured
    return skin.release_frame(maps.mean((2, 3)), y, CLASSES, epsilon, 1e-5, random_state=0)


def test_standardised_maps_lie_around_zero_and_are_cut(pictured):
    maps, _ = pictured
    frame = frame_of_maps(pictured, NO_NOISE)
    values = frame.standardised(maps)
    assert values.dtype == np.float32
    assert values.shape == maps.shape
    np.testing.assert_allclose(values.mean((0, 2, 3)), 0, atol=0.01)
    np.testing.assert_allclose(values.mean((2, 3)).std(0), 0.5, atol=0.03)
    assert np.abs(frame.standardised(1e3 * maps)).max() == 4
    alone = frame.standardised(maps[:1])
    np.testing.assert_array_equal(alone, values[:1])


def learnt_network(pictured, epsilon=8.0, shape=SHAPE):
    maps, y = pictured
    frame = frame_of_maps(pictured, epsilon)
    model = skin.MapCNN(maps.shape[1], CLASSES, width=8)
    plan, inputs = frame.calibrated(shape, epsilon, 1e-5), frame.standardised(maps)
    return frame, skin.fit_network(frame, model, inputs, y, plan, delta=1e-5, rate=1.0, random_state=0)


def test_frame_and_network_together_meet_the_budget(pictured):
    frame, network = learnt_network(pictured)
    assert 0.97 * 8 < network.guarantee.epsilon <= 8
    assert "number that divides the sums public" in network.guarantee.assumes
    together = event_epsilon(network.guarantee.event, 1e-5, ADD_REMOVE, interval=1e-3)
    assert together == pytest.approx(network.guarantee.epsilon, rel=0.02)
    np.testing.assert_allclose(network.model.log_prior, frame.log_prior, rtol=1e-6)


def test_a_network_on_maps_learns_the_classes(pictured):
    frame, network = learnt_network(pictured, 100.0, Schedule.constant(80, sample_rate=0.5))
    maps, y = pictured
    logits = network.logits(frame.standardised(maps))
    assert logits.shape == (len(y), CLASSES)
    likely, prior = skin.decided(logits, frame.log_prior, y, "abc", ["c"])
    assert likely["auc"] > 0.8
    assert prior["balanced_accuracy"] > 0.6


def test_starting_values_come_from_the_seed_and_leave_no_trace():
    before = torch.random.get_rng_state()
    one, same, other = (skin.MapCNN(4, 2, width=8, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.mix[0].weight, same.mix[0].weight)
    assert not torch.equal(one.mix[0].weight, other.mix[0].weight)
    assert (one.head.weight == 0).all()


def test_a_network_without_a_file_of_weights_is_a_new_one_and_trains_privately(records):
    """Random starting values try the path that pretrained ones take."""
    _, y = records
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    some = np.linspace(0, len(y) - 1, 12).astype(int)
    frame = frame_of(records)
    plan = frame.calibrated(Schedule.constant(2, sample_rate=0.5), 8.0, 1e-5)
    model = skin.backbone("", CLASSES, seed=1)
    done = skin.fit_network(frame, model, pixels, y[some], plan, delta=1e-5, rate=0.1, random_state=0)
    assert done.guarantee.epsilon <= 8
    assert np.isfinite(done.logits(pixels)).all()
    assert not torch.equal(done.model.model.conv1.weight, model.conv1.weight)


# ------------------------------------------------------------------------------------------------ without privacy


@pytest.mark.parametrize("options", [{}, {"power": 0.5}, {"loss": Focal(1.0)}, {"offset": False}])
def test_without_privacy_the_classes_are_learnt(records, options):
    X, y = records
    frame = frame_of(records, NO_NOISE)
    done = skin.fit_openly(
        frame, skin.linear_head(X.shape[1], CLASSES), frame.rows(X), y, rate=2.0, n_epochs=20, **options
    )
    likely, _ = skin.decided(done.logits(frame.rows(X)), frame.log_prior, y, "abc", ["c"])
    assert likely["auc"] > 0.9
    assert math.isinf(done.guarantee.epsilon)


def test_without_privacy_the_model_that_is_given_stays(records):
    X, y = records
    frame, model = frame_of(records, NO_NOISE), skin.linear_head(8, CLASSES)
    one, same, other = (
        skin.fit_openly(frame, model, frame.rows(X), y, rate=1.0, n_epochs=2, random_state=seed) for seed in (0, 0, 1)
    )
    assert (model.weight == 0).all()
    assert torch.equal(one.model.model.weight, same.model.model.weight)
    assert not torch.equal(one.model.model.weight, other.model.model.weight)


# -------------------------------------------------------------------------------------------------------- lesions


def mixture_delta(epsilon, noise, rate, size):
    """Of one step, by sums over where each density exceeds e^epsilon times the other; no accountant is asked."""
    drawn = np.arange(size + 1)
    x, width = np.linspace(-12 * noise, size + 12 * noise, 100_001, retstep=True)
    ours = binom.pmf(drawn, size, rate) @ norm.pdf(x, drawn[:, None], noise)
    base = norm.pdf(x, 0, noise)
    return max(
        width * np.maximum(one - math.exp(epsilon) * other, 0).sum() for one, other in ((ours, base), (base, ours))
    )


@pytest.mark.parametrize(("noise", "rate", "size"), [(1.0, 0.25, 2), (2.0, 0.25, 6), (1.0, 0.9, 3)])
def test_the_guarantee_of_a_lesion_is_that_of_the_mixture(noise, rate, size):
    event = skin.group_event(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), size)
    for epsilon in (0.5, 2.0):
        exact = mixture_delta(epsilon, noise, rate, size)
        assert event_epsilon(event, exact, ADD_REMOVE, interval=0.01) == pytest.approx(epsilon, abs=0.02)


def test_a_lesion_of_one_image_has_the_promise_of_an_image():
    shape = Schedule.constant(4, sample_rate=0.25)
    events = skin.frame_events(4.0, 1e-5)
    plan = shape.calibrate(4.0, 1e-5, beside=events, **skin.ACCOUNTING)
    whole = ComposedDpEvent((*events, plan.event()))
    one, two = (event_epsilon(skin.group_event(whole, k), 1e-5, ADD_REMOVE, interval=0.01) for k in (1, 2))
    assert one == pytest.approx(4.0, rel=0.02)
    assert two > 2 * one  # at the same delta
    # Without sampling the distance doubles, which has a closed form.
    assert event_epsilon(skin.group_event(GaussianDpEvent(4.0), 2), 1e-5, ADD_REMOVE) == gaussian_epsilon(1e-5, 0.5)


def test_the_budget_of_an_image_gives_the_lesion_its_promise():
    shape = Schedule.constant(8, sample_rate=1.0)  # for which all is in closed form, and fast
    each = skin.image_budget(shape, 6.0, 1e-5, 2)
    events = skin.frame_events(each, 1e-5)
    plan = shape.calibrate(each, 1e-5, beside=events, **skin.ACCOUNTING)
    whole = skin.group_event(ComposedDpEvent((*events, plan.event())), 2)
    assert 0.95 * 6 < event_epsilon(whole, 1e-5, ADD_REMOVE, interval=0.01) <= 6


def test_an_event_that_is_not_of_gaussian_noise_is_refused():
    with pytest.raises(ValueError, match="event must be of Gaussian noise"):
        skin.group_event(ComposedDpEvent([LaplaceDpEvent(1.0)]), 2)


def test_one_image_of_each_lesion_is_kept_whatever_the_others_are():
    groups = np.repeat([3, 1, 2], [4, 1, 2])
    kept = [skin.one_of_each(np.arange(7), groups, seed) for seed in range(400)]
    assert all(sorted(groups[rows]) == [1, 2, 3] for rows in kept)
    share = np.bincount(np.concatenate(kept), minlength=7) / 400
    np.testing.assert_allclose(share[:4], 0.25, atol=0.11)  # five standard deviations
    np.testing.assert_allclose(share[5:], 0.5, atol=0.125)
