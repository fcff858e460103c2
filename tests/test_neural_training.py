"""What the trainer executes is what was accounted, and what it publishes gives no noise back."""

import copy
import dataclasses
import functools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from helpers.neural import CrossEntropy, Focal, Schedule, clipped_sum, train
from helpers.neural.training import ExecutedStep, Trained, poisson_sample, throw_away
from helpers.privacy import ADD_REMOVE, SEED_SECRET, Ledger

pytest_plugins = ("neural_torch",)
pytestmark = pytest.mark.usefixtures("one_thread_and_one_seed")

DELTA = 1e-5


class Recording(torch.optim.SGD):
    """Remembers the noisy mean gradients it is given."""

    def __init__(self, parameters, seen, **options):
        super().__init__(parameters, **options)
        self.seen = seen

    def step(self):
        self.seen.append([p.grad.clone().double() for group in self.param_groups for p in group["params"]])
        super().step()


def recording(seen):
    return functools.partial(Recording, seen=seen, lr=0.0)


def mlp(width=4, inputs=3, classes=2, dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, classes))


def records(n=20, seed=0, inputs=3, size=1.0):
    rng = np.random.default_rng(seed)
    return size * rng.normal(size=(n, inputs)), np.arange(n) % 2


def image_model():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))


X, Y = records()


def pull_first(logits, labels):
    """A loss whose gradient is long, and only in the first logit's weights."""
    return 1e3 * logits[:, 0]


def flat(total) -> torch.Tensor:
    return torch.cat([value.flatten() for value in total.values()])


def quick(T=4, noise_multiplier=8.0, **options):
    """A few steps with noise that accountants read fast."""
    return Schedule.constant(T, sample_rate=0.5, noise_multiplier=noise_multiplier, **options)


def states(trained) -> list[torch.Tensor]:
    return list(trained.model.state_dict().values())


def equal(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(states(one), states(other), strict=True))


# What is executed


def test_every_executed_step_is_the_accounted_one():
    """Noise, clipping and sampling as measured on what the optimiser gets, against the arrays that are accounted."""
    n, width = 400, 5000
    phases = Schedule.sad(12, 3, 0.5, 0.9, 3.0, sample_rate=0.1, sigma_final=4.0)
    schedule = Schedule(phases.noise_multipliers, phases.clip_norms, np.linspace(0.1, 0.65, 12))
    X, y = np.zeros((n, width)), np.zeros(n, dtype=int)
    X[:, 0] = 1
    seen, told = [], []
    model = nn.Linear(width, 2, bias=False)
    trained = train(
        model, X, y, schedule, delta=DELTA, loss=pull_first, optimizer=recording(seen), random_state=1,
        on_step=told.append,
    )  # fmt: skip
    sums = [gradient * q * n for [gradient], q in zip(seen, schedule.sample_rates, strict=True)]
    scale = schedule.noise_multipliers * schedule.clip_norms
    measured = np.array([total[:, 1:].std().item() for total in sums])
    np.testing.assert_allclose(measured, scale, rtol=0.035)  # 9,998 numbers: five standard errors
    pulls = np.array([-total[0, 0].item() for total in sums]) / -schedule.clip_norms  # batch sizes plus noise
    spread = np.sqrt(n * schedule.sample_rates * (1 - schedule.sample_rates) + schedule.noise_multipliers**2)
    scores = (pulls - n * schedule.sample_rates) / spread
    assert np.abs(scores).max() < 4
    assert 0.3 < scores.std() < 2
    assert [step.index for step in told] == list(range(12))
    np.testing.assert_allclose([step.noise_scale for step in told], scale)
    assert trained.guarantee.event == schedule.event()
    assert trained.guarantee.neighbouring is ADD_REMOVE
    assert trained.guarantee.epsilon == schedule.epsilon(DELTA)


def test_the_guarantee_is_computed_as_calibration_was_told():
    way = {"accountant": "rdp", "interval": 1e-2}
    schedule = quick().calibrate(1.0, DELTA, **way)
    told = train(mlp(), X, Y, schedule, delta=DELTA, **way).guarantee
    assert told.epsilon == schedule.epsilon(DELTA, **way) <= 1.0
    assert "Renyi" in told.source


def test_noise_is_fresh_in_every_step_and_every_parameter():
    seen = []
    X, y = records()
    train(mlp().double(), X, y, quick(6), delta=DELTA, loss=lambda z, y: 0 * z.sum(1), optimizer=recording(seen))
    vectors = torch.stack([torch.cat([g.flatten() for g in step]) for step in seen])
    assert len(torch.unique(vectors)) == vectors.numel()


@pytest.mark.parametrize("rate", [1e-12, 1e-300])
def test_empty_batches_add_noise_and_count(rate):
    seen, told = [], []
    X, y = records(1)
    schedule = Schedule.constant(5, sample_rate=rate, noise_multiplier=3.0, clip_norm=0.5)
    wide = nn.Linear(3, 2, bias=False).double()
    train(wide, X, y, schedule, delta=0.9 * DELTA, optimizer=recording(seen), random_state=0, on_step=told.append)
    sums = torch.stack([gradient for [gradient] in seen]) * rate
    assert len(told) == 5
    assert 1.0 < sums.std().item() < 2.2
    assert (sums != 0).all()


def test_the_poisson_sample_draws_every_record_alone_and_never_too_often():
    rng = np.random.default_rng(0)
    draws = np.array([np.bincount(poisson_sample(50, 0.3, rng), minlength=50) for _ in range(2000)])
    assert draws.max() == 1
    assert np.abs(draws.mean(0) - 0.3).max() < 0.05
    assert abs(draws.sum(1).var() - 50 * 0.3 * 0.7) < 1.5
    assert len(poisson_sample(1000, 2.0**-54, rng)) == 0  # rounded down, not up


class Zeros:
    """The smallest numbers that a generator may draw, of a range that is noted."""

    def integers(self, low, high, size):
        self.range = low, high
        return np.full(size, low)


def test_the_poisson_sample_compares_numbers_of_53_bits_with_the_rate():
    zeros = Zeros()
    assert poisson_sample(2, 2.0**-53, zeros).tolist() == [0, 1]
    assert poisson_sample(2, 2.0**-54, zeros).tolist() == []
    assert zeros.range == (0, 2**53)


def test_what_is_told_of_a_training_cannot_be_changed():
    for told, name in ((ExecutedStep(0, 1.0), "index"), (Trained(mlp(), None), "model")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(told, name, None)


def test_without_an_optimiser_it_is_plain_descent_at_a_rate_of_a_tenth():
    explicit = functools.partial(torch.optim.SGD, lr=0.1)
    arguments = (mlp(), X, Y, quick())
    assert equal(*(train(*arguments, delta=DELTA, random_state=0, **o) for o in ({}, {"optimizer": explicit})))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {"number of records public"}),
        ({"n_records": 20}, {"number that divides the sums public"}),
        ({"class_weight": (1.0, 2.0)}, {"number of records public", "class weights public"}),
    ],
    ids=["alone", "number", "weights"],
)
def test_the_guarantee_assumes_what_was_given(options, told):
    assumes = train(mlp(), X, Y, quick(1), delta=DELTA, **options).guarantee.assumes
    optional = {"number of records public", "number that divides the sums public", "class weights public"}
    assert optional & set(assumes) == told


# Sensitivity


@pytest.mark.parametrize("weighting", ["loss", "bound"])
@pytest.mark.parametrize("size", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_one_record_moves_the_sum_by_at_most_its_bound(weighting, size, clip):
    X, y = (torch.tensor(array) for array in records(9, seed=3, size=size))
    model, weight = mlp().double(), torch.tensor([1.0, 5.0])
    options = {"class_weight": weight, "weighting": weighting}
    whole = flat(clipped_sum(model, CrossEntropy(), X, y, clip, **options))
    moves = []
    for i in range(9):
        keep = torch.arange(9) != i
        rest = flat(clipped_sum(model, CrossEntropy(), X[keep], y[keep], clip, **options))
        bound = clip * (weight[y[i]].item() if weighting == "bound" else 1.0)
        moves.append((whole - rest).norm().item() / bound)
    assert max(moves) <= 1 + 1e-9
    if clip == 0.1 and size == 1.0:
        assert max(moves) > 0.99  # the bound is reached, so a factor too much would show


@pytest.mark.parametrize("weighting", ["loss", "bound"])
@pytest.mark.parametrize("clip", [0.3, 10.0])
def test_the_sum_is_that_of_plain_gradients_one_record_at_a_time(weighting, clip):
    X, y = (
        torch.tensor(array, dtype=kind) for array, kind in zip(records(10), (torch.float32, torch.long), strict=True)
    )
    model, loss, weights = mlp(), Focal(1.5), [0.5, 2.0]
    expected = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for record, label in zip(X, y, strict=True):
        model.zero_grad()
        factor = weights[label]
        (loss(model(record[None]), label[None]).sum() * (factor if weighting == "loss" else 1)).backward()
        g = torch.cat([p.grad.flatten() for p in model.parameters()]).double()
        expected += g * min(1.0, clip / g.norm().item()) * (1 if weighting == "loss" else factor)
    total = clipped_sum(model, loss, X, y, clip, class_weight=torch.tensor(weights), weighting=weighting)
    torch.testing.assert_close(flat(total), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("weighting", "class_weight", "largest"),
    [("loss", (0.1, 7.0), 1.0), ("bound", None, 1.0), ("bound", (0.1, 7.0), 7.0)],
)
def test_a_step_tells_the_noise_that_its_weights_ask_for(monkeypatch, weighting, class_weight, largest):
    asked, told, sampled = [], [], Ledger.sampled

    def noted(self, query, rate, sensitivity, noise_multiplier):
        asked.append(sensitivity * noise_multiplier)
        return sampled(self, query, rate, sensitivity, noise_multiplier)

    monkeypatch.setattr(Ledger, "sampled", noted)
    schedule = quick(2, noise_multiplier=2.0, clip_norm=0.5)
    options = {"weighting": weighting, "class_weight": class_weight, "on_step": told.append}
    train(mlp(), X, Y, schedule, delta=DELTA, **options)
    assert asked == [step.noise_scale for step in told] == [2.0 * 0.5 * largest] * 2


def test_noise_covers_the_largest_weight_where_weights_stand_outside_the_clipping():
    seen = []
    schedule = quick(3, noise_multiplier=2.0, clip_norm=0.5)
    train(nn.Linear(5000, 2, bias=False), np.zeros((8, 5000)), [0, 1] * 4, schedule, delta=DELTA, weighting="bound",
          class_weight=(0.1, 7.0), optimizer=recording(seen), random_state=0)  # fmt: skip
    for [gradient] in seen:
        assert (gradient * 0.5 * 8).std().item() == pytest.approx(2.0 * 0.5 * 7.0, rel=0.035)


# Records that spoil


def test_a_record_without_a_finite_gradient_adds_nothing():
    X, y = (torch.tensor(array) for array in records(6))
    X, model = X.float(), mlp()
    bad = X.clone()
    bad[2] = 3e38  # finite, but not its gradient

    def explode(logits, labels):
        return logits.pow(2).sum(1) * 1e30

    def sum_of(batch, labels):
        return flat(clipped_sum(model[3], explode, batch[:, :1].repeat(1, 4) * 1e3, labels, 1.0))

    keep = torch.arange(6) != 2
    with_it = sum_of(bad, y)
    assert with_it.isfinite().all()
    torch.testing.assert_close(with_it, sum_of(X[keep], y[keep]), rtol=1e-6, atol=1e-9)


def test_a_diverged_model_trains_on_by_noise_and_raises_nothing():
    X, y = records()
    model = mlp()
    with torch.no_grad():
        model[3].weight.fill_(float("inf"))
    seen = []
    train(model, X, y, quick(), delta=DELTA, optimizer=recording(seen))
    assert all(gradient.isfinite().all() and (gradient != 0).all() for step in seen for gradient in step)


def test_dropout_and_group_norm_train():
    X, y = records()
    model = nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    trained = train(model, X, y, quick(), delta=DELTA)
    assert not trained.model.training
    assert all(value.isfinite().all() for value in states(trained))


# Randomness


def test_an_integer_repeats_the_result_and_nothing_else_does():
    X, y = records()
    schedule, model = quick(), mlp(dropout=0.3)
    state = torch.random.get_rng_state()
    first, again, other = (train(model, X, y, schedule, delta=DELTA, random_state=s) for s in (1, 1, 2))
    secret, secret_too = (train(model, X, y, schedule, delta=DELTA) for _ in range(2))
    assert equal(first, again)
    assert not equal(first, other)
    assert not equal(secret, secret_too)
    assert SEED_SECRET in first.guarantee.assumes
    assert SEED_SECRET not in secret.guarantee.assumes
    assert torch.equal(state, torch.random.get_rng_state())  # the global state is left alone


def test_one_integer_gives_other_data_unrelated_noise():
    X, y = records()
    changed = X.copy()
    changed[0, 0] += 1  # as many records: the noise would stand at the same place of the stream
    seen = []
    for records_, labels in ((X, y), (changed, y), (X, 1 - y)):
        train(mlp().double(), records_, labels, quick(1), delta=DELTA, loss=lambda z, y: 0 * z.sum(1),
              optimizer=recording(seen), random_state=5)  # fmt: skip
    numbers = torch.cat([gradient.flatten() for step in seen for gradient in step])
    assert len(torch.unique(numbers)) == len(numbers)


def test_the_given_model_stays_as_it_was():
    X, y = records()
    model = mlp()
    before = [p.clone() for p in model.parameters()]
    train(model, X, y, quick(), delta=DELTA)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


class Scaled(nn.Module):
    """Its `repr` does not show the factor."""

    def __init__(self, factor):
        super().__init__()
        self.inner, self.factor, self.also = nn.Linear(3, 2), factor, functools.partial(torch.mul, factor)

    def forward(self, x):
        return self.inner(self.also(self.factor * x))


class Shifted(Scaled):
    def __init__(self, factor):
        super().__init__(1.0)
        self.register_buffer("shift", torch.tensor(factor), persistent=False)

    def forward(self, x):
        return self.inner(x + self.shift)


def noise_of(model=None, **options):
    """The noise of one step, bare: the loss has no gradient."""
    seen = []
    train(model or mlp().double(), *records(), quick(1), delta=DELTA, loss=lambda z, y: 0 * z.sum(1),
          optimizer=recording(seen), random_state=5, **options)  # fmt: skip
    return torch.cat([gradient.flatten() for step in seen for gradient in step])


def same_weights(make, *factors):
    models = [make(factor).double() for factor in factors]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    return models


@pytest.mark.parametrize("make", [Scaled, Shifted])
def test_one_integer_gives_a_model_that_differs_unseen_unrelated_noise(make):
    one, other, again = same_weights(make, 1.0, 3.0, 1.0)
    assert repr(one) == repr(other)
    numbers = [noise_of(model) for model in (one, other, again)]
    assert torch.equal(numbers[0], numbers[2])
    assert not (numbers[0] == numbers[1]).any()


def test_a_frozen_layer_is_part_of_the_model():
    plain, frozen = same_weights(lambda _: mlp(), 0, 1)
    frozen[3].requires_grad_(False)
    assert not (noise_of(plain)[:4] == noise_of(frozen)[:4]).any()


def test_a_class_that_is_written_anew_has_unrelated_noise():
    """As in a notebook, where a cell is changed and run again with the same seed."""

    def written(forward):
        return type("Model", (nn.Linear,), {"forward": forward})(3, 2)

    one, other = same_weights(
        written,
        lambda self, x: nn.functional.linear(x, self.weight),
        lambda self, x: nn.functional.linear(x, self.weight, self.bias),
    )
    assert str(type(one)) == str(type(other))
    assert not (noise_of(one) == noise_of(other)).any()


class Repeated(nn.Module):
    """A layer that is used twice under two names; which one is public."""

    def __init__(self, which):
        super().__init__()
        layers = nn.Tanh(), nn.Tanh()
        self.one, self.two, self.also, self.inner = *layers, layers[which], nn.Linear(3, 2)

    def forward(self, x):
        return self.inner(self.also(self.two(self.one(x))))


def test_a_layer_that_comes_again_is_described_by_its_place():
    one, other, again = same_weights(Repeated, 0, 1, 0)
    numbers = [noise_of(model) for model in (one, other, again)]
    assert torch.equal(numbers[0], numbers[2])
    assert not (numbers[0] == numbers[1]).any()


NOISE_ELSEWHERE = """
import sys; sys.path.insert(0, "tests")
import torch; from test_neural_training import Scaled, noise_of
torch.manual_seed(0); print(noise_of(Scaled(2.0).double())[:4].tolist())
"""


def test_another_process_has_the_same_noise():
    """Nothing of an address or of the order of a set is in the key."""
    torch.manual_seed(0)
    here = noise_of(Scaled(2.0).double())[:4].tolist()
    there = subprocess.run([sys.executable, "-c", NOISE_ELSEWHERE], capture_output=True, text=True, check=True)
    assert there.stdout.strip().splitlines()[-1] == str(here)


# What is published has seen no record


class Keeping(nn.Module):
    """A layer that remembers what it was shown."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(3, 2), None
        self.register_buffer("start", torch.ones(2))

    def forward(self, x):
        self.last = x.detach()
        return self.inner(x) + self.start


class Remembering(CrossEntropy):
    def __call__(self, logits, labels):
        object.__setattr__(self, "last", logits.detach())
        return super().__call__(logits, labels)


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_nothing_that_a_layer_keeps_is_published(average):
    model, loss = Keeping(), Remembering()
    trained = train(model, *records(), quick(), delta=DELTA, loss=loss, average=average)
    assert trained.model.last is None
    assert model.last is None
    assert not hasattr(loss, "last")
    assert set(vars(trained.model)) == set(vars(model))
    assert not torch.equal(trained.model.inner.weight, model.inner.weight)
    assert torch.equal(trained.model.start, torch.ones(2))


class Rewriting(nn.Linear):
    """Puts records into its parameters, but not the blank one that a model is tried on by itself."""

    def forward(self, x):
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            with torch.no_grad():
                self.weight.fill_(x.detach().sum())
        return super().forward(x)


def test_a_layer_that_rewrites_its_parameters_is_refused():
    with pytest.raises(ValueError, match="model must have gradients for single records"):
        train(Rewriting(3, 2).double(), *records(), quick(noise_multiplier=1.0), delta=DELTA)


HOOKS = {
    "register_forward_hook": lambda layer, inputs, output: None,
    "register_forward_pre_hook": lambda layer, inputs: None,
    "register_full_backward_hook": lambda layer, inputs, outputs: None,
    "register_full_backward_pre_hook": lambda layer, outputs: None,
    "register_state_dict_post_hook": lambda layer, state, prefix, metadata: None,
    "register_load_state_dict_post_hook": lambda layer, keys: None,
}


@pytest.fixture
def no_record_touched(monkeypatch):
    monkeypatch.setattr(Ledger, "__init__", lambda *_: pytest.fail("a ledger got the records"))


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("part", [0, 3])
def test_hooks_are_refused_before_a_record_is_touched(name, part, no_record_touched):
    model = mlp()
    getattr(model[part], name)(HOOKS[name])
    with pytest.raises(ValueError, match=rf"model must have no hooks.*'{part}' of type Linear"):
        train(model, *records(), quick(), delta=DELTA)


def test_a_hook_that_logs_would_publish_records():
    """Why hooks are refused: a copy of a model has the same function, which holds the same list."""
    seen, model = [], mlp()
    model[0].register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    copied = copy.deepcopy(model)
    copied(torch.tensor(X).float())
    [hook] = model[0]._forward_hooks.values()
    assert torch.equal(hook.__closure__[0].cell_contents[0], torch.tensor(X).float())
    with pytest.raises(ValueError, match="model must have no hooks"):
        train(model, *records(), quick(), delta=DELTA)


class Logging(nn.Module):
    """Hands what it is shown to a function among its attributes."""

    def __init__(self, log):
        super().__init__()
        self.inner, self.log = nn.Linear(3, 2), log

    def forward(self, x):
        if isinstance(self.log, list):
            self.log.append(x)
        elif callable(self.log):
            self.log(x)
        return self.inner(x)


def logging_function():
    seen = []
    return lambda x: seen.append(x)


@pytest.mark.parametrize(
    "make",
    [
        logging_function,
        lambda: functools.partial(logging_function()),
        lambda: {"inside": [logging_function()]},
    ],
    ids=["closure", "partial", "container"],
)
def test_a_closure_among_the_attributes_is_refused_before_a_record_is_touched(make, no_record_touched):
    model = nn.Sequential(Logging(make()))
    with pytest.raises(ValueError, match=r"function with a closure.*'0' of type Logging with \['log'\]"):
        train(model, *records(), quick(), delta=DELTA)


def test_what_holds_no_records_is_no_closure():
    for held in (torch.relu, [nn.functional.max_pool2d], []):
        trained = train(Logging(held), *records(), quick(1), delta=DELTA)
        assert trained.model.log == held  # and the list is as empty as before


class Counting(nn.Linear):
    def __init__(self, how):
        super().__init__(3, 2)
        self.how = how
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        if self.how == "replaced":
            self.seen = x.detach().mean(0)
        else:
            self.seen += x.detach().mean(0)
        return super().forward(x)


@pytest.mark.parametrize("how", ["replaced", "in place"])
def test_buffers_that_change_are_refused(how):
    """The records it is tried on are zeros, which leave the values as they are."""
    with pytest.raises(ValueError, match=r"model must keep its buffers.*seen"):
        train(Counting(how), *records(), quick(), delta=DELTA)


def test_tables_that_lookups_rewrite_are_refused():
    model = nn.Sequential(nn.Embedding(4, 3, max_norm=1.0), nn.Flatten(), nn.Linear(6, 2))
    with pytest.raises(ValueError, match="'0' of type Embedding with max_norm"):
        train(model, np.zeros((4, 2), dtype=int), np.arange(4) % 2, quick(), delta=DELTA)


class Coded(nn.Module):
    """Codes of categories among floats."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(4, 3), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.table(x.long()).flatten(1))


@pytest.mark.parametrize("kind", [int, float])
def test_an_index_outside_a_table_is_its_nearest(kind):
    codes = np.array([[0, 1], [2, 3], [1, 1], [3, 0], [-7, 2], [9, 1]])
    model, seen = Coded().double(), [[], []]
    schedule = Schedule.constant(1, sample_rate=1.0, noise_multiplier=1e-9)
    for values, gradients in zip((codes, codes.clip(0, 3)), seen, strict=True):
        train(model, values.astype(kind), np.arange(6) % 2, schedule, delta=DELTA, optimizer=recording(gradients))
    for one, other in zip(seen[0][0], seen[1][0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_every_row_of_a_table_keeps_its_index():
    table = nn.Embedding.from_pretrained(torch.arange(4.0)[:, None])
    assert throw_away(table)(torch.tensor([-5, -1, 0, 1, 2, 3, 4, 9]))[:, 0].tolist() == [0, 0, 0, 1, 2, 3, 3, 3]


# Views and averages


def jittered(record):
    return record + 0.1 * torch.randn(3, *record.shape)


def test_views_repeat_with_the_seed_and_change_neither_noise_scale_nor_guarantee():
    X, y = records()
    told = []
    options = {"delta": DELTA, "random_state": 3, "on_step": told.append}
    model = mlp()
    state = torch.random.get_rng_state()
    plain = train(model, X, y, quick(), **options)
    one, same = (train(model, X, y, quick(), augment=jittered, **options) for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert equal(one, same)
    assert not equal(one, plain)
    assert one.guarantee == plain.guarantee
    assert told[:4] == told[4:8]


@pytest.mark.parametrize("weighting", ["loss", "bound"])
def test_all_views_of_a_record_pull_with_its_bound(weighting):
    """Noise that is nearly nothing, one record, gradients far above C: the step is C long, however many views."""
    seen = []
    schedule = Schedule.constant(1, sample_rate=1.0, noise_multiplier=0.05, clip_norm=1e-2)
    for n_views in (1, 8):
        train(nn.Linear(3, 2, bias=False), np.ones((1, 3)), [0], schedule, delta=DELTA, weighting=weighting,
              augment=lambda record, n=n_views: record.expand(n, -1) * torch.rand(n, 1), loss=pull_first,
              class_weight=(3.0, 1.0), optimizer=recording(seen), random_state=0)  # fmt: skip
    largest = 3.0 if weighting == "bound" else 1.0
    for [gradient] in seen:
        assert gradient.norm().item() == pytest.approx(1e-2 * largest, rel=0.4)


def test_every_step_has_the_gradient_of_the_model_before_it():
    X, y = records()
    model = mlp().double()
    schedule = Schedule.constant(3, sample_rate=1.0, noise_multiplier=1e-9, clip_norm=0.5)
    trained = train(model, X, y, schedule, delta=DELTA, optimizer=functools.partial(torch.optim.SGD, lr=5.0))
    for _ in range(3):
        total = clipped_sum(model, CrossEntropy(), torch.tensor(X), torch.tensor(y), 0.5)
        with torch.no_grad():
            for name, value in model.named_parameters():
                value -= 5.0 * total[name] / len(y)
    for found, value in zip(states(trained), model.state_dict().values(), strict=True):
        torch.testing.assert_close(found, value, rtol=0, atol=1e-6)


def test_a_shared_parameter_is_trained_and_averaged_as_one():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    trained = train(model, *records(), quick(), delta=DELTA, average=0.5)
    assert trained.model[1].weight is trained.model[0].weight
    assert not torch.equal(trained.model[0].weight, model[0].weight)


@pytest.mark.parametrize(("average", "last"), [(0.0, 1), (0.1, 1), (0.5, 4), (0.99, 8)])
def test_the_result_is_the_mean_of_the_last_models(average, last):
    X, y = records()
    weights = []

    class Watched(torch.optim.SGD):
        def step(self):
            super().step()
            weights.append([p.detach().clone() for p in self.param_groups[0]["params"]])

    model = mlp().double()
    trained = train(model, X, y, quick(8), delta=DELTA, average=average, optimizer=functools.partial(Watched, lr=0.5))
    for found, *models in zip(states(trained), *weights[-last:], strict=True):
        torch.testing.assert_close(found, torch.stack(models).mean(0))


# One bill


def test_a_bill_that_is_not_the_schedules_publishes_nothing(monkeypatch):
    real = Ledger.sampled
    monkeypatch.setattr(Ledger, "sampled", lambda *a: real(*a) if real(*a) is not None else None)  # each step twice
    with pytest.raises(RuntimeError, match="bill is not that of the schedule"):
        train(mlp(), *records(), quick(), delta=DELTA)


# What is refused, and shown


class Mixed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), layer)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm1d(4, track_running_stats=False),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm1d(4, track_running_stats=True),
    ],
)
def test_batch_normalisation_is_refused_by_name(layer):
    X, y = records()
    for model in (Mixed(layer), Mixed(layer).eval()):
        with pytest.raises(ValueError, match=rf"'body\.1' of type {type(layer).__name__}"):
            train(model, X, y, quick(), delta=DELTA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.where(X > 2, np.nan, X) * np.nan}, "X must hold finite"),
        ({"y": Y + 1}, r"y must hold labels in \[0, 1\], found others"),
        ({"y": Y - 1}, "y must hold labels"),
        ({"y": Y.astype(float)}, "labels of type"),
        ({"y": Y.astype(bool)}, "labels of type"),
        ({"y": Y.astype(complex)}, "labels of type"),
        ({"X": X[:, 0]}, "X and y must be records"),
        ({"y": Y[:-1]}, "X and y must"),
        ({"X": X[:, :2]}, r"gradients for single records of shape \(2,\)"),
        ({"X": X.astype(str)}, "X must be an array of numbers"),
        ({"schedule": 20}, "schedule must"),
        ({"delta": 0.0}, "delta must"),
        ({"delta": 1.0}, "delta must"),
        ({"class_weight": (1.0,)}, "class_weight must"),
        ({"class_weight": (1.0, -1.0)}, "class_weight must"),
        ({"class_weight": (0.0, 0.0)}, "class_weight must"),
        ({"weighting": "after"}, "weighting must"),
        ({"n_records": 0}, "n_records must"),
        ({"augment": lambda record: record}, "augment must"),
        ({"augment": lambda record: record[:1].expand(2, 1)}, "gradients for single records"),
        ({"average": 1.0}, "average must"),
        ({"average": -0.1}, "average must"),
        ({"random_state": np.random.default_rng(0)}, "random_state must"),
        ({"device": "meta"}, "device must"),
        ({"model": nn.Flatten()}, "trainable parameters"),
        ({"model": nn.Linear(3, 1)}, "model must map"),
        ({"model": nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)))}, "model must map"),
        ({"model": mlp().bfloat16()}, "32 or 64 bits"),
        ({"accountant": "gdp"}, "accountant must"),
        ({"interval": 0.0}, "interval must"),
        ({"model": image_model(), "X": np.zeros((20, 1, 5, 5))}, "gradients for single records"),
        ({"model": image_model(), "X": np.zeros((20, 3, 4, 4), dtype=np.uint8)}, "gradients for single records"),
        ({"X": np.where(np.arange(60).reshape(20, 3) == 59, np.inf, X)}, "X must hold finite"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused_before_the_first_step(change, message):
    steps = []
    arguments = {"model": mlp(), "X": X, "y": Y, "schedule": quick(), "delta": DELTA, "on_step": steps.append} | change
    with pytest.raises(ValueError, match=message):
        train(**arguments)
    assert steps == []


def test_a_delta_of_one_over_n_warns():
    with pytest.warns(UserWarning, match="at least 1/n") as told:
        train(mlp(), X, Y, quick(1), delta=0.05)
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(mlp(), X, Y, quick(1), delta=0.049)


def test_bytes_are_images():
    images = np.random.default_rng(0).integers(0, 256, size=(12, 1, 4, 4), dtype=np.uint8)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    trained = train(model, images, np.arange(12) % 3, quick(), delta=DELTA, random_state=0)
    assert all(value.isfinite().all() for value in states(trained))


def test_without_noise_to_speak_of_the_trainer_learns():
    """Far from private, so that what is left is the optimisation: separable classes are separated."""
    X, y = records(60)
    y = (X[:, 0] > 0).astype(int)
    schedule = Schedule.constant(30, sample_rate=1.0, noise_multiplier=0.5)
    trained = train(nn.Linear(3, 2), X, y, schedule, delta=DELTA, random_state=0,
                    optimizer=functools.partial(torch.optim.SGD, lr=2.0))  # fmt: skip
    with torch.no_grad():
        predicted = trained.model(torch.tensor(X, dtype=torch.float32)).argmax(1).numpy()
    assert (predicted == y).mean() > 0.9
