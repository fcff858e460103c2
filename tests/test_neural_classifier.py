"""The private network as a classifier: what is paid for, what is released, and what repairs a scorer that says no."""

import math
import pickle

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import nn

from helpers.meta import ThresholdClassifier
from helpers.neural import Schedule, balanced_cut_off, classifier
from helpers.neural.classifier import DPNeuralClassifier
from helpers.neural.decisions import CUT_OFFS
from helpers.privacy import ADD_REMOVE, SEED_SECRET, Ledger, event_epsilon

CHEAP = {"epochs": 1, "sample_rate": 0.5, "random_state": 0}


def imbalanced(n=2000, share=0.05, seed=0):
    """Two normal classes in five dimensions that overlap, the second one rare."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < share * n).astype(int)
    return rng.normal(size=(n, 5)) + 1.2 * y[:, None] * [1, 1, 0, 0, 0], y


X, Y = imbalanced()
BOUNDS = np.tile([-3.0, 3.0], (5, 1))


def fit(data=(X, Y), **parameters):
    return DPNeuralClassifier(**({"random_state": 0, "bounds": BOUNDS} | parameters)).fit(*data)


@pytest.fixture
def handed_over(monkeypatch):
    """What `Descent` runs on, by every fit of a test."""
    calls = []

    class Recorded(classifier.Descent):
        def run(self, ledger, class_weight, n_records):
            calls.append(
                {"schedule": self.schedule, "class_weight": class_weight, "n_records": n_records, "X": ledger._held[0]}
            )
            return super().run(ledger, class_weight, n_records)

    monkeypatch.setattr(classifier, "Descent", Recorded)
    return calls


# What the noisy gradients go to


def test_adam_takes_steps_of_the_learning_rate_and_costs_the_same():
    """Without averaging and momentum the first step of Adam moves every parameter by the rate, whatever the noise."""
    one = {
        "optimizer": "adam",
        "learning_rate": 0.03,
        "momentum": 0.0,
        "average": 0.0,
        "epochs": 1.0,
        "sample_rate": 1.0,
    }
    model = fit(**one)
    moved = torch.cat([value.flatten() for value in model.model_.parameters()])
    assert torch.allclose(moved.abs(), torch.tensor(0.03, dtype=moved.dtype), rtol=1e-3)
    assert model.guarantee_.event == fit(**one | {"optimizer": "sgd"}).guarantee_.event


# What is paid for


@pytest.mark.parametrize(
    ("parameters", "bought"),
    [
        ({}, ("counts",)),
        ({"n_records": 2000}, ()),
        ({"n_records": 2000, "class_weight": {0: 0.1, 1: 1.0}}, ()),
        ({"n_records": 2000, "class_weight": "private"}, ("counts",)),
        ({"n_records": 2000, "prior": "offset"}, ("counts",)),
        ({"n_records": 2000, "loss": "focal"}, ()),
        ({"decision": "prior"}, ("counts",)),
        ({"decision": "cut-off", "epsilon": 0.3}, ("counts", "cut-off")),
        ({"schedule": Schedule.sad(8, 2, 0.8, 1.0, sample_rate=0.25), "epsilon": 8.0}, ("counts",)),
    ],
)
def test_all_releases_together_cost_the_budget_and_no_less(parameters, bought, handed_over):
    """By an accountant that is asked afresh about the schedule that was run and the mechanisms that were."""
    model = fit(**(CHEAP | parameters))
    epsilon, ran = model.epsilon, handed_over[0]["schedule"]
    beside = [DiscreteLaplaceDpEvent(0.1 * epsilon, 1)] if bought else []
    beside += [classifier.ApproximateDpEvent(0.2 * epsilon, 0.0)] if "cut-off" in bought else []
    event = ComposedDpEvent((*beside, ran.event())) if beside else ran.event()
    spent = event_epsilon(event, 1e-5, ADD_REMOVE, interval=1e-4 * epsilon)
    assert 0.99 * epsilon < spent <= epsilon * (1 + 1e-9)
    assert model.guarantee_.event == event
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (epsilon, 1e-5)
    assert (model.counts_ is None) == (not bought)
    assert model.schedule_ is ran


def test_one_accountant_for_all_needs_less_noise_than_adding_epsilons():
    model = fit(decision="cut-off", **CHEAP)
    apart = Schedule.constant(2, sample_rate=0.5).calibrate(0.7, 1e-5, interval=1e-3)
    assert model.schedule_.noise_multipliers[0] < 0.97 * apart.noise_multipliers[0]


def test_counts_are_noisy_as_their_share_says(monkeypatch):
    """Four hundred fits without the training: the variance of discrete Laplace noise is 2 r / (1 - r)^2."""
    monkeypatch.setattr(classifier.Descent, "run", lambda *_: nn.Linear(5, 2))
    monkeypatch.setattr(Schedule, "guarantee", lambda *_, **__: None)
    noise = np.array([fit(random_state=None, counts_share=0.2).counts_ - [1900, 100] for _ in range(400)])
    ratio = math.exp(-0.2)
    assert abs(noise.mean()) < 6 * 7 / math.sqrt(800)
    assert np.var(noise) == pytest.approx(2 * ratio / (1 - ratio) ** 2, rel=0.5)


def test_everything_made_of_counts_is_made_of_the_noisy_ones(handed_over):
    model = fit(class_weight="private", decision="prior", epsilon=0.05, **CHEAP)
    assert set(model.counts_) != {1900, 100}
    counts, told = np.maximum(model.counts_, 1.0), handed_over[0]
    weights = told["class_weight"].numpy()
    np.testing.assert_allclose(weights, counts.min() / counts)
    assert told["n_records"] == round(2 * counts.min())
    np.testing.assert_allclose(model.shifts_, np.log(counts * weights / counts.sum()))
    assert fit(n_records=77, **CHEAP).counts_ is None
    assert handed_over[1]["n_records"] == 77
    unweighted = fit(class_weight="private", weighting="loss", **CHEAP)
    assert handed_over[2]["n_records"] == unweighted.counts_.sum()


def test_what_is_assumed_is_said():
    assumed = set(fit(**(CHEAP | {"random_state": None})).guarantee_.assumes)
    more = fit(n_records=2000, class_weight={0: 0.1, 1: 1.0}, **CHEAP).guarantee_.assumes
    assert {"feature bounds public", "set of labels public", "secret sample"} <= assumed
    said = {"number that divides the sums public", "class weights public", SEED_SECRET}
    assert set(more) - assumed == said


# No failure that depends on the records


@pytest.mark.parametrize(
    "data",
    [
        (np.empty((0, 5)), np.empty(0, int)),
        (X[:1], Y[:1]),
        (X, np.zeros_like(Y)),
        (np.full((10, 5), 1e300), np.arange(10) % 2),
        (np.full((10, 5), -1e300), np.arange(10) % 2),
    ],
    ids=["none", "one", "one class", "huge", "huge negative"],
)
@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["as they are", "bounds"])
def test_no_record_makes_it_fail_or_changes_the_guarantee(data, bounds):
    every = {"class_weight": "private", "prior": "offset", "decision": "cut-off", "model": "mlp", "epsilon": 0.1}
    model = fit(data, bounds=bounds, **every, **CHEAP)
    assert model.guarantee_ == fit(bounds=bounds, **every, **CHEAP).guarantee_
    assert np.isfinite(model.decision_function(X)).all()
    assert np.isfinite(model.predict_proba(np.full((1, 5), 1e300))).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "tree"}, "model must"),
        ({"model": lambda d, k: nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, k))}, "model must.*BatchNorm1d"),
        ({"model": lambda d, k: nn.Linear(d, k + 1)}, "model must give one logit a class, 2, got 3"),
        ({"loss": lambda z, y: nn.functional.nll_loss(z, y.float(), reduction="none")}, "model must have gradients"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"delta": 1.0}, "delta must"),
        ({"epochs": 0}, "epochs must"),
        ({"sample_rate": 0.0}, "sample_rate must"),
        ({"clip_norm": 0.0}, "clip_norm must"),
        ({"schedule": 3}, "schedule must"),
        ({"learning_rate": 0.0}, "learning_rate must"),
        ({"momentum": 1.0}, "momentum must"),
        ({"optimizer": "lion"}, "optimizer must"),
        ({"loss": "hinge"}, "loss must"),
        ({"class_weight": "balanced"}, "class_weight must"),
        ({"class_weight": {0: 1.0}}, "class_weight must"),
        ({"class_weight": {0: 0.0, 1: 1.0}}, "class_weight must"),
        ({"weighting": "none"}, "weighting must"),
        ({"prior": True}, "prior must"),
        ({"decision": "cut-off", "classes": (0, 1, 2)}, "decision must"),
        ({"counts_share": 0.5, "cut_off_share": 0.5}, "counts_share and cut_off_share must"),
        ({"n_records": 0}, "n_records must"),
        ({"bounds": BOUNDS[:2]}, "bounds must"),
        ({"classes": (0,)}, "classes must"),
        ({"device": "tpu"}, "device must"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(**(CHEAP | parameters))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.where(X > 2, np.nan, X), Y), "NaN"),
        ((np.where(X > 2, np.inf, X), Y), "infinity"),
        ((X, Y + 1), "y must"),
    ],
)
def test_records_outside_the_domain_are_refused_before_any_step(data, message, monkeypatch):
    """As by the linear estimators: no guarantee is about them."""
    monkeypatch.setattr(classifier.Descent, "run", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match=message):
        fit(data, **CHEAP)


FAILURES = {
    "parameter": {"epsilon": 0.0},
    "label": {"classes": (1, 2)},
    "model": {"model": lambda d, k: nn.Sequential(nn.Linear(d, 4), nn.BatchNorm1d(4), nn.Linear(4, k))},
    "loss": {"loss": lambda z, y: z[:, 2]},
}


@pytest.mark.parametrize("change", FAILURES.values(), ids=FAILURES)
def test_a_fit_that_fails_pays_for_nothing_and_leaves_nothing(change, monkeypatch):
    model = fit(**CHEAP)
    monkeypatch.setattr(Ledger, "class_counts", lambda *_: pytest.fail("counted before the model was tried"))
    with pytest.raises(ValueError, match="must"):
        model.set_params(**change).fit(X, Y)
    assert [name for name in vars(model) if name.endswith("_")] == []


def test_an_interrupt_leaves_no_counts_without_a_guarantee(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    model = fit(**CHEAP)
    monkeypatch.setattr(classifier.Descent, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert [name for name in vars(model) if name.endswith("_")] == []


def test_a_budget_out_of_reach_is_refused():
    with pytest.raises(ValueError, match="epsilon must be within reach"):
        fit(epsilon=1e-3, delta=1e-300, epochs=1000, sample_rate=1.0)  # noise of 1.2 million


# What is released


def test_the_fitted_model_is_a_plain_network_in_64_bits():
    model = fit(model="mlp", **CHEAP)
    state = model.model_.state_dict()
    assert {(value.dtype, value.device.type) for value in state.values()} == {(torch.float64, "cpu")}
    assert not model.model_.training
    assert [p.grad for p in model.model_.parameters()] == [None] * len(list(model.model_.parameters()))
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.decision_function(X), model.decision_function(X))
    np.testing.assert_allclose(
        np.concatenate([model.predict_proba(row[None]) for row in X[:50]]), model.predict_proba(X[:50]), rtol=1e-12
    )


class Keeping(nn.Module):
    """Remembers what it is shown, in training or when it is asked."""

    def __init__(self, d, k, training):
        super().__init__()
        self.inner, self.kind, self.last = nn.Linear(d, k), training, None

    def forward(self, x):
        if self.training == self.kind:
            self.last = x.detach()
        return self.inner(x)


@pytest.mark.parametrize("training", [True, False])
def test_no_record_stays_on_the_fitted_model(training):
    model = fit(model=lambda d, k: Keeping(d, k, training), decision="cut-off", **CHEAP)
    assert model.model_.last is None
    model.predict(X)
    assert model.model_.last is None


class Mixing(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.inner = nn.Linear(d, k)

    def forward(self, x):
        z = self.inner(x)
        return z + 1e3 * (z.sum(0, keepdim=True) - z)  # alone: z


def encoder(d, k):
    """Attention over the batch, as `batch_first` is left out."""
    layer = nn.TransformerEncoderLayer(d, 1, 8, dropout=0.0)
    return nn.Sequential(nn.Unflatten(1, (1, d)), layer, nn.Flatten(), nn.Linear(d, k))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("make", [Mixing, encoder])
def test_a_score_depends_on_its_record_alone_in_fit_and_after(make, monkeypatch):
    seen, real = [], classifier.balanced_cut_off
    monkeypatch.setattr(
        classifier, "balanced_cut_off", lambda ledger, *rest: seen.append(ledger._held[0]) or real(ledger, *rest)
    )
    model = fit((X[:50], Y[:50]), model=make, decision="cut-off", n_records=50, **CHEAP)
    shift = model.shifts_[1]
    alone = np.concatenate([model.decision_function(row[None]) for row in X[:50]]) + shift
    np.testing.assert_allclose(seen[0], alone, rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(X[:50]) + shift, alone, rtol=1e-9)
    with torch.no_grad():
        together = model.model_(torch.from_numpy(model._as_input(X[:50]))).diff(dim=1)[:, 0]
    assert np.abs(together.numpy() - alone).max() > 1e-4  # the network itself does mix


def test_bounds_map_to_the_cube_and_values_outside_to_its_sides(handed_over):
    fit((np.array([[-3.0, 0, 3, 9, -9]]), [1]), **CHEAP)
    np.testing.assert_allclose(handed_over[0]["X"], [[-1, 0, 1, 1, -1]])


def test_three_classes_and_their_decisions():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [1500, 300, 60])
    X3 = rng.normal(size=(1860, 2)) + 2.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    names = np.array(["a", "b", "c"])
    common = {"classes": ("a", "b", "c"), "bounds": np.tile([-4.0, 6.0], (2, 1)), "epsilon": 8.0, "prior": "offset"}
    plain, balanced = (fit((X3, names[y]), decision=decision, **common) for decision in ("likely", "prior"))
    assert plain.decision_function(X3).shape == (1860, 3)
    np.testing.assert_allclose(plain.predict_proba(X3).sum(1), 1)
    assert np.array_equal(names[plain.predict_proba(X3).argmax(1)], plain.predict(X3))
    scores = [balanced_accuracy_score(names[y], model.predict(X3)) for model in (plain, balanced)]
    assert scores[1] > scores[0] + 0.1


# What repairs a scorer that ranks well and says no to everything


def quality(model):
    X_new, y_new = imbalanced(seed=1)
    return roc_auc_score(y_new, model.decision_function(X_new)), balanced_accuracy_score(y_new, model.predict(X_new))


def wrapped(objective):
    return ThresholdClassifier(
        DPNeuralClassifier(bounds=BOUNDS, prior="offset"),
        epsilon=2.0,
        objective=objective,
        target_recall=0.8,
        threshold_share=0.2,
        random_state=0,
    ).fit(X, Y)


def test_the_failure_and_its_repairs():
    auc, accuracy = quality(fit(epsilon=2.0))
    assert auc > 0.8
    assert accuracy < 0.55
    repaired = {
        "cut-off": fit(epsilon=2.0, decision="cut-off", prior="offset"),
        "weights": fit(epsilon=2.0, class_weight="private", prior="offset", decision="prior"),
        "wrapped": wrapped("recall"),
    }
    assert {name: round(quality(model)[1], 2) for name, model in repaired.items() if quality(model)[1] < 0.7} == {}


def test_a_wrapped_threshold_has_the_relation_and_the_whole_budget():
    model = wrapped("balanced_accuracy")
    assert str(model.guarantee_) == "(2, 1e-05)-DP, add/remove-one"
    assert model.estimator_.guarantee_.epsilon == pytest.approx(1.6)
    assert "number of records public" not in model.guarantee_.assumes


def test_clipping_takes_weights_off_the_loss_and_not_off_the_bound():
    """Long gradients: a record of weight .05 still pulls with C, unless the weight is outside the clip."""
    parameters = {
        "epochs": 10,
        "class_weight": {0: 0.05, 1: 1.0},
        "epsilon": 50.0,
        "clip_norm": 0.02,
        "learning_rate": 10.0,
        "n_records": 190,
    }
    scores = {weighting: quality(fit(weighting=weighting, **parameters))[1] for weighting in ("loss", "bound")}
    assert scores["loss"] < 0.6
    assert scores["bound"] > 0.75


@pytest.mark.parametrize("weighting", ["loss", "bound"])
@pytest.mark.parametrize("rare", [False, True])
def test_no_step_is_longer_than_the_rate_times_the_bound(weighting, rare):
    """Gradients far longer than C, of all records or the rare ones, in one direction; noise of next to nothing."""
    model = fit(
        (np.ones((3000, 1)), np.arange(3000) % 30 // 29), bounds=None, class_weight="private", weighting=weighting,
        loss=lambda z, y: 1e3 * z[:, 0] * (y >= rare), epsilon=500.0, epochs=6, sample_rate=1.0, momentum=0.0,
        average=0.0, learning_rate=0.5, clip_norm=0.1,
    )  # fmt: skip
    moved = np.sqrt(sum(value.square().sum().item() for value in model.model_.parameters()))  # it starts from 0
    whole = 6 * 0.5 * 0.1
    part = (0.5 if weighting == "bound" else 1 / 30) if rare else 1.0
    assert moved == pytest.approx(whole * part, rel=0.05)


# The cut-off


class Spy(np.random.Generator):
    """A source of noise that shows the probabilities it is asked to draw by."""

    def choice(self, size, p):
        self.p = p
        return int(np.argmax(p))


def probabilities(scores, positive):
    spy = Spy(np.random.PCG64(0))
    balanced_cut_off(Ledger((scores, positive), ADD_REMOVE, spy), (40.0, 10.0), 0.5)
    return spy.p


@pytest.mark.parametrize("label", [0, 1])
def test_the_cut_off_is_as_private_as_it_says_and_no_more(label):
    rng = np.random.default_rng(0)
    scores, positive = rng.normal(size=50), np.arange(50) < 10
    here = probabilities(scores, positive)
    assert len(here) == len(CUT_OFFS) == 1001
    worst = max(
        np.abs(np.log(probabilities(np.append(scores, score), np.append(positive, label == 1)) / here)).max()
        for score in (-100.0, -1.0, 0.0, 0.3, 100.0)
    )
    assert worst <= 0.5 + 1e-9
    assert worst > 0.3 * (0.5 if label else 0.125)


def test_the_cut_off_finds_the_balance_where_scores_barely_differ():
    """Scores of a model that has hardly moved: a grid of equal steps would not see them."""
    rng = np.random.default_rng(0)
    positive = np.arange(4000) < 400
    scores = 0.01 * (rng.normal(size=4000) + 2 * positive) - 0.02
    ledger = Ledger((scores, positive), ADD_REMOVE, rng)
    found = [balanced_cut_off(ledger, (3600, 400), 0.5) for _ in range(20)]
    accuracy = [((scores >= cut)[positive].mean() + (scores < cut)[~positive].mean()) / 2 for cut in found]
    assert np.mean(accuracy) > 0.75


@pytest.mark.parametrize(
    ("counts", "epsilon", "message"), [((0.0, 1.0), 1.0, "counts must"), ((1, 1), 0, "epsilon must")]
)
def test_bad_cut_offs_are_named(counts, epsilon, message):
    with pytest.raises(ValueError, match=message):
        balanced_cut_off(Ledger(([0.0], [True]), ADD_REMOVE, np.random.default_rng(0)), counts, epsilon)
