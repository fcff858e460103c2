"""Clipped sums are those of records taken one at a time, and bound every record's pull, rounding included."""

import copy

import pytest
import torch
from opacus import GradSampleModule
from torch import nn
from torch.nn import functional

from checks.skin import ResidualCNN
from helpers.neural import CrossEntropy, Focal, FTTransformer, clipped_sum, gradients

pytest_plugins = ("neural_torch",)
pytestmark = pytest.mark.usefixtures("one_thread_and_one_seed")


class Cut(nn.Module):
    """Parts of the output, so that sizes fit."""

    def __init__(self, body, classes=2):
        super().__init__()
        self.body, self.classes = body, classes

    def forward(self, x):
        return self.body(x).flatten(1)[:, : self.classes]


class Tokens(nn.Module):
    """Parameters of its own kind, and a matrix at several places of a record."""

    def __init__(self, d, width):
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.randn(d, width)), nn.Parameter(torch.randn(()))

    def forward(self, x):
        return x[..., None] * self.weight + self.shift


def tokens(width=5, out=3, places=4):
    return nn.Sequential(Tokens(places, width), nn.Linear(width, out), nn.LayerNorm(out), nn.Tanh(), nn.Flatten(),
                         nn.Linear(places * out, 3))  # fmt: skip


def embedded(**options):
    return nn.Sequential(nn.Embedding(7, 5, **options), nn.Linear(5, 4), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3))


def images(*, bias=True, **options):
    conv = nn.Conv2d(2, 4, 3, bias=bias, **options)
    return Cut(nn.Sequential(conv, nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                             nn.Linear(16, 3)), 3)  # fmt: skip


def frozen():
    model = tokens()
    model[0].requires_grad_(False)
    model[1].bias.requires_grad_(False)
    return model


MODELS = {
    "one layer": (lambda: nn.Linear(4, 3), (4,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3)), (4,)),
    "places, few": (lambda: tokens(40, 60), (4,)),  # inner products
    "places, many": (lambda: tokens(2, 3, places=9), (9,)),  # the matrix itself
    "two middle dimensions": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Flatten(), nn.Linear(12, 3)), (2, 3, 3)),
    "norm over two dimensions": (lambda: nn.Sequential(nn.LayerNorm((2, 4)), nn.Flatten(), nn.Linear(8, 3)), (2, 4)),
    "groups without a place": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(3, 6), nn.Linear(6, 3)), (4,)),
    "table": (embedded, (3,)),
    "table with padding": (lambda: embedded(padding_idx=0), (3,)),
    "images": (images, (2, 6, 6)),
    "images, strided": (lambda: images(stride=2, padding=1, padding_mode="circular", bias=False), (2, 6, 6)),
    "images, strides of two kinds": (lambda: images(stride=(2, 1), padding=(1, 2), dilation=(1, 2)), (2, 6, 6)),
    "images, in groups": (lambda: images(groups=2), (2, 6, 6)),
    "frozen parts": (frozen, (4,)),
    "FT-Transformer": (lambda: FTTransformer(5, 3, dim=8, depth=2, heads=2, dropout=0.0), (5,)),
    "residual CNN": (lambda: ResidualCNN(3, width=8), (12, 12, 3)),
}  # fmt: skip


def moved(model):
    """Away from starting values of zero, behind which nothing would show."""
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.3 * torch.randn_like(value))
    return model


def batch(shape, n=6, integers=False):
    X = torch.randint(7, (n, *shape)) if integers else 2 * torch.randn(n, *shape)
    X = torch.randint(256, (n, *shape), dtype=torch.uint8) if shape == (12, 12, 3) else X
    return X, torch.arange(n) % 3


def flat(total) -> torch.Tensor:
    return torch.cat([value.flatten() for value in total.values()])


def one_at_a_time(model, loss, X, y, clip, weights, weighting):
    """Plain gradients of batches of one."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = 0.0
    for record, label in zip(X, y, strict=True):
        w = weights[label].item()
        record = record[None] if record.dtype == torch.long else record[None].to(parameters[0].dtype)
        value = loss(model(record), label[None]).sum() * (w if weighting == "loss" else 1.0)
        grads = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        g = torch.cat([one.flatten() for one in grads]).double()
        total = total + g * min(1.0, clip / g.norm().item()) * (1.0 if weighting == "loss" else w)
    return total


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("weighting", "clip"), [("loss", 0.3), ("bound", 0.3), ("bound", 1e6)])
def test_the_sum_is_that_of_plain_gradients(name, weighting, clip, monkeypatch):
    make, shape = MODELS[name]
    model = moved(make()).double().train()
    X, y = batch(shape, integers="table" in name)
    weights, loss = torch.tensor([0.5, 2.0, 1.0]), Focal(1.5)
    expected = one_at_a_time(model, loss, X, y, clip, weights, weighting)
    for few in (1, 4, 256):  # records at a time
        monkeypatch.setattr(gradients, "_FEW", few)
        monkeypatch.setattr(gradients, "_NUMBERS", (0, 2**26))
        total = clipped_sum(model, loss, X, y, clip, class_weight=weights, weighting=weighting)
        torch.testing.assert_close(flat(total), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", ["no bias", "places, few", "images", "FT-Transformer", "residual CNN"])
def test_gradients_are_those_of_opacus(name):
    """Whose hooks have a rule for each kind of layer; batches of one clip each record by itself."""
    make, shape = MODELS[name]
    model = moved(make()).double().train()
    X, y = batch(shape)
    X = X.double()
    hooked = GradSampleModule(model, loss_reduction="sum")
    functional.cross_entropy(hooked(X), y, reduction="sum").backward()
    rows = torch.cat([value.grad_sample.reshape(len(X), -1) for value in hooked.parameters()], 1).detach()
    hooked.remove_hooks()
    factors = (0.3 / rows.norm(dim=1)).clamp(max=1.0)
    total = clipped_sum(model, CrossEntropy(), X, y, 0.3)
    torch.testing.assert_close(flat(total), factors @ rows, rtol=1e-9, atol=1e-11)


def test_an_empty_batch_adds_nothing():
    total = clipped_sum(nn.Linear(3, 2), CrossEntropy(), torch.empty(0, 3), torch.empty(0, dtype=torch.long), 1.0)
    assert {name: (value.shape, value.abs().sum().item()) for name, value in total.items()} == {
        "weight": ((2, 3), 0.0),
        "bias": ((2,), 0.0),
    }


def test_every_record_draws_a_dropout_of_its_own():
    """Of one record three thousand times, the mean gradient is that of as many calls, within five standard errors."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.4), nn.Tanh(), nn.Linear(6, 2)).double()
    X, y = torch.randn(1, 4).double(), torch.tensor([1])
    each = torch.stack([flat(clipped_sum(model, CrossEntropy(), X, y, 0.7)) for _ in range(300)])
    together = flat(clipped_sum(model, CrossEntropy(), X.expand(3000, -1), y.expand(3000), 0.7)) / 3000
    spread = each.std(0) / 300**0.5 + each.std(0) / 3000**0.5 + 1e-12
    assert ((together - each.mean(0)) / spread).abs().max() < 5
    assert each.std(0).max() > 0.01


# Sensitivity


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clip", [1e-2, 1e-12])
def test_one_record_adds_its_bound_and_no_more(name, clip):
    """In 32 bits, alone and among others that add nothing."""
    make, shape = MODELS[name]
    model = moved(make())
    X, _ = batch(shape, integers="table" in name)
    options = {"class_weight": torch.tensor([0.0, 5.0, 0.0]), "weighting": "bound"}
    for i in range(len(X)):
        y = (torch.arange(len(X)) == i).long()
        for rows, labels in ((X, y), (X[i : i + 1], y[i : i + 1])):
            used = flat(clipped_sum(model, CrossEntropy(), rows, labels, clip, **options)).norm().item() / (5 * clip)
            assert 1 - 1e-9 < used <= 1


@pytest.mark.parametrize("size", [1e-20, 1e38])
def test_gradients_of_any_size_are_clipped(size):
    X = torch.randn(5, 40)
    for row in X:
        alone = flat(clipped_sum(nn.Linear(40, 60, bias=False), lambda z, y: size / 40 * z.sum(1), row[None],
                                 torch.tensor([0]), 1e-3 * size)).norm()  # fmt: skip
        assert 0.99e-3 * size < alone <= 1e-3 * size


def test_an_autocast_around_it_takes_no_record_over_its_bound():
    X, y = torch.randn(9, 64), torch.arange(9) % 3
    model = nn.Linear(64, 64, bias=False)
    with torch.autocast("cpu", torch.bfloat16):
        alone = [flat(clipped_sum(model, CrossEntropy(), X[i : i + 1], y[i : i + 1], 1e-2)).norm() for i in range(9)]
    assert 1e-2 * (1 - 1e-9) < max(alone) <= 1e-2


@pytest.mark.parametrize("name", ["places, few", "table", "images"])
def test_a_record_without_a_finite_gradient_adds_nothing(name):
    make, shape = MODELS[name]
    model = moved(make())
    X, y = batch(shape, integers=name == "table")

    def explode(logits, labels):
        return torch.where(labels == 1, torch.inf, 1.0) * logits.sum(1)

    total = flat(clipped_sum(model, explode, X, y, 1.0))
    assert total.isfinite().all()
    kept = flat(clipped_sum(model, explode, X[y != 1], y[y != 1], 1.0))
    torch.testing.assert_close(total, kept, rtol=1e-6, atol=1e-7)


def test_activations_without_end_spoil_nobody_else():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    X, y = torch.randn(5, 2), torch.arange(5) % 2
    bad = X.clone()
    bad[3] = 3e38
    keep = torch.arange(5) != 3
    with torch.no_grad():
        model[0].weight.fill_(10.0)
    whole, kept = (clipped_sum(model, CrossEntropy(), *some, 1.0) for some in ((bad, y), (X[keep], y[keep])))
    torch.testing.assert_close(flat(whole), flat(kept), rtol=1e-6, atol=1e-7)
    assert (bad[3] == 3e38).all()  # the records themselves are left as they were


# Models and losses that mix records


class Centred(nn.Module):
    """Mixes records: subtracts the batch's mean, when it is large only, or in training only."""

    def __init__(self, above=0.0, always=True):
        super().__init__()
        self.inner, self.above, self.always = nn.Linear(3, 2), above, always

    def forward(self, x):
        if not (self.always or self.training):
            return self.inner(x)
        mean = x.mean(0, keepdim=True)
        return self.inner(x - functional.relu(mean.abs() - self.above))


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        x = self.first(x)
        return self.second(x + 1e-9 * x.roll(1, 0))


class Tied(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.first, self.second, self.head, self.how = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2), how
        if how == "parameter":
            self.second.weight = self.first.weight

    def forward(self, x):
        x = torch.tanh(self.first(x))
        if self.how == "layer":
            return self.head(self.first(x))
        if self.how == "elsewhere":
            return self.head(functional.linear(self.second(x), self.first.weight))
        return self.head(self.second(x))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(3)), nn.Linear(3, 2)

    def forward(self, x):
        return self.inner(x * self.scale)


MIXING = {
    "mean of the batch": lambda: Centred(),
    "mean, if large": lambda: Centred(above=50.0),
    "mean, in training": lambda: Centred(always=False),
    "neighbour in the batch": Shifted,
    "parameter twice": lambda: Tied("parameter"),
    "layer twice": lambda: Tied("layer"),
    "used elsewhere": lambda: Tied("elsewhere"),
    "parameter beside layers": Own,
    "overwritten by dropout": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.Dropout(0.0, inplace=True), nn.Tanh(), nn.Linear(4, 2)
    ),
    "overwritten": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)),
}


@pytest.mark.parametrize("name", MIXING)
def test_no_layer_sees_two_records(name):
    X, y = torch.randn(6, 3).double(), torch.arange(6) % 2
    model = moved(MIXING[name]()).double()
    expected = one_at_a_time(model, CrossEntropy(), X, y, 0.5, torch.ones(2), "loss")
    torch.testing.assert_close(flat(clipped_sum(model, CrossEntropy(), X, y, 0.5)), expected, rtol=1e-9, atol=1e-11)


def over_the_class(logits, labels):
    """Divided by the records of the class in the batch: what one label does to the others shows where labels repeat."""
    alike = (labels[:, None] == labels[None, :]).sum(1)
    return functional.cross_entropy(logits, labels, reduction="none") / alike


def jumping(logits, labels):
    """As the one before, but by leaps, so that a record more moves all the others."""
    alike = (labels[:, None] == labels[None, :]).sum(1)
    return functional.cross_entropy(logits, labels, reduction="none") * torch.where(alike > 5, 0.0, 5.0)


@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: functional.cross_entropy(z, y),
        lambda z, y: functional.cross_entropy(z, y, reduction="none") / (1.0 + y.sum()),
        lambda z, y: functional.cross_entropy(z, y, reduction="none") * z.detach().max(),
        over_the_class,
        jumping,
    ],
    ids=["mean", "divided by the labels", "multiplied by the largest logit", "divided by the class", "leaps"],
)
def test_no_loss_sees_two_records(loss, n_classes):
    """The sum is that of batches of one, and a record more moves it by its bound."""
    model = moved(nn.Linear(3, n_classes)).double()
    X, y = torch.randn(8, 3).double(), torch.tensor([0, 0, 0, 1, 0, 0, 0, 1])
    total = flat(clipped_sum(model, loss, X, y, 0.5))
    expected = one_at_a_time(model, loss, X, y, 0.5, torch.ones(n_classes), "loss")
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-11)
    assert (total - flat(clipped_sum(model, loss, X[1:], y[1:], 0.5))).norm() <= 0.5 * (1 + 1e-9)


def test_dropout_that_overwrites_has_the_gradients_of_what_it_left():
    model = nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5, inplace=True), nn.Linear(64, 2)).double()
    record, label = torch.randn(1, 3).double(), torch.tensor([1])
    total = clipped_sum(model, CrossEntropy(), record, label, 1e9)
    kept = total["2.weight"][0] != 0  # the units that were not dropped
    assert 10 < kept.sum() < 54
    assert torch.equal(kept, total["0.weight"].abs().sum(1) != 0)
    with torch.no_grad():
        hidden = 2 * model[0](record) * kept
        residual = functional.softmax(model[2](hidden), 1) - functional.one_hot(label, 2)
        expected = (2 * kept * (residual @ model[2].weight)).T @ record
    torch.testing.assert_close(total["0.weight"], expected, rtol=1e-9, atol=1e-12)


def test_the_model_is_left_as_it_was():
    model = nn.Linear(3, 2)
    before = copy.deepcopy(model.state_dict())
    clipped_sum(model, CrossEntropy(), torch.randn(4, 3), torch.arange(4) % 2, 1.0)
    assert model.weight.grad is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# Views


@pytest.mark.parametrize("clip", [0.2, 1e6])
@pytest.mark.parametrize("name", ["places, few", "table", "images"])
def test_views_are_averaged_before_clipping(name, clip):
    make, shape = MODELS[name]
    model = moved(make()).double()
    X, y = batch(shape, integers=name == "table")
    others = torch.stack([X, X.flip(-1), X.roll(1, -1)], 1)
    by_record = {record.numpy().tobytes(): views for record, views in zip(X, others, strict=True)}
    views_of = lambda record: by_record[record.numpy().tobytes()]  # noqa: E731
    total = flat(clipped_sum(model, CrossEntropy(), X, y, clip, augment=views_of))
    expected = torch.zeros_like(total)
    for views, label in zip(others, y, strict=True):
        mean = sum(one_at_a_time(model, CrossEntropy(), view[None], label[None], 1e9, torch.ones(3), "loss")
                   for view in views) / 3  # fmt: skip
        expected += mean * min(1.0, clip / mean.norm().item())
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9])
def test_rows_are_added_up_in_blocks_of_any_size(monkeypatch, n):
    rows, factors = torch.arange(5.0 * n).reshape(n, 5), torch.arange(1.0, n + 1, dtype=torch.float64)
    expected = (factors[:, None] * rows.double()).sum(dim=0)
    for cached in (1, 10, 1 << 18):
        monkeypatch.setattr(gradients, "_CACHED", cached)
        assert torch.equal(gradients._weighted_sum(factors, rows), expected)
        torch.testing.assert_close(gradients._norms(rows), torch.linalg.vector_norm(rows.double(), dim=1))
        assert len(gradients._blocks(rows)) == -(-n // max(cached // 5, 1))
    # Numbers without dimensions of their own, as biases of one unit are.
    assert torch.equal(gradients._weighted_sum(factors, rows[:, 0]), expected[:1])
