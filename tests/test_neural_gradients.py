"""Both routes to clipped sums are exact, bound every record's pull, and the fast one is taken only where it is safe."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from helpers.neural import CrossEntropy, Focal, Schedule, clipped_sum, gradients, train
from helpers.neural.gradients import ClippedSums
from helpers.neural.models import FTTransformer, ResidualCNN

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


ROOM = 3e-5  # of the clipping norm, which rounding in 32 bits may take and here does not

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
    "FT-Transformer": (lambda: FTTransformer(3, 3, levels=(2, 4), dim=8, depth=2, heads=2, dropout=0.0), (5,)),
    "residual CNN": (lambda: ResidualCNN(3, width=4), (12, 12, 3)),
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


def routes(model, loss, X):
    """The route that was chosen, and mapping."""
    chosen, mapping = (ClippedSums(model, loss, X.dtype, X.shape[1:]) for _ in range(2))
    mapping.route = "mapping"
    return chosen, mapping


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
def test_book_keeping_is_the_sum_of_plain_gradients(name, weighting, clip):
    make, shape = MODELS[name]
    model = moved(make()).double().train()
    X, y = batch(shape, integers="table" in name)
    weights, loss = torch.tensor([0.5, 2.0, 1.0]), Focal(1.5)
    expected = one_at_a_time(model, loss, X, y, clip, weights, weighting)
    chosen, mapping = routes(model, loss, X)
    assert chosen.route == "book-keeping"
    for sums in (chosen, mapping):
        total = sums(X, y, clip, class_weight=weights, weighting=weighting, micro_batch=4)
        torch.testing.assert_close(flat(total), expected, rtol=1e-9, atol=1e-11)


def test_the_routes_agree_in_32_bits():
    model = moved(FTTransformer(6, 2, dropout=0.0))
    X, y = torch.randn(20, 6), torch.arange(20) % 2
    chosen, mapping = (flat(sums(X, y, 1.0)) for sums in routes(model, CrossEntropy(), X))
    torch.testing.assert_close(chosen, mapping, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip_norms", [np.full(5, 0.3), 3.0 * 0.4 ** np.arange(5)], ids=["constant", "changing"])
def test_ghost_norms_make_the_update_of_one_record_at_a_time(clip_norms, monkeypatch):
    """Training by norms from inner products, in one pass over the batch; noise of next to nothing."""
    X, y = batch((4,), n=7)
    X, seen, norms = X.double(), [], gradients._Products.norms
    monkeypatch.setattr(gradients._Products, "norms", lambda self: seen.append(self) or norms(self))
    model = moved(tokens(40, 60)).double()
    schedule = Schedule(np.full(5, 1e-9), clip_norms, np.ones(5))
    sgd = functools.partial(torch.optim.SGD, lr=2.0)
    trained = train(model, X, y, schedule, delta=1e-5, optimizer=sgd, micro_batch=3, progress=False).model
    places = {(side.left.shape[1], side.left.shape[2] + side.right.shape[2]) for side in seen}
    assert (4, 100) in places  # kept as inputs and output gradients of 4 places, not as a gradient of 2,400 numbers
    for clip in clip_norms:
        total = one_at_a_time(model, CrossEntropy(), X, y, clip, torch.ones(3), "loss")
        with torch.no_grad():
            for value in model.parameters():
                step, total = total[: value.numel()], total[value.numel() :]
                value -= 2.0 * step.reshape(value.shape) / len(y)
    for one, other in zip(trained.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-7)


def test_dropout_has_the_same_law_on_both_routes():
    """The mean and the spread of the sum over many draws, each within five standard errors."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.4), nn.Tanh(), nn.Linear(6, 2)).double()
    X, y = torch.randn(1, 4).double(), torch.tensor([1])
    draws = 3000
    X, y = X.expand(draws, -1), y.expand(draws)
    each = [
        torch.stack([flat(sums(X[i : i + 1], y[i : i + 1], 0.7)) for i in range(300)])
        for sums in routes(model, CrossEntropy(), X)
    ]
    gap = each[0].mean(0) - each[1].mean(0)
    error = torch.sqrt((each[0].var(0) + each[1].var(0)) / 300) + 1e-12
    assert (gap / error).abs().max() < 5
    whole = flat(routes(model, CrossEntropy(), X)[0](X, y, 0.7)) / draws
    spread = each[0].std(0) / 300**0.5 + each[0].std(0) / draws**0.5 + 1e-12
    assert ((whole - each[0].mean(0)) / spread).abs().max() < 5  # records of a batch draw their own
    assert each[0].std(0).max() > 0.01


# Eight significant bits


HALVED = ["no bias", "places, few", "places, many", "table", "images", "FT-Transformer", "residual CNN"]


@pytest.mark.parametrize("name", HALVED)
def test_a_record_pulls_with_its_bound_in_bfloat16_too(name):
    """Of eight records only one has the label that counts, so the sum is what it adds, in a batch or alone."""
    make, shape = MODELS[name]
    model, clip = moved(make()), 1e-3
    X, _ = batch(shape, n=8, integers=name == "table")
    sums = ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:], "bfloat16")
    options = {"class_weight": torch.tensor([0.0, 1.0, 0.0]), "weighting": "bound"}
    for i in range(8):
        y = (torch.arange(8) == i).long()
        pulls = [sums(X, y, clip, **options), sums(X[i : i + 1], y[i : i + 1], clip, **options)]
        assert {value.dtype for pull in pulls for value in pull.values()} == {torch.float64}
        for pull in pulls:
            assert 1 - ROOM < flat(pull).norm().item() / clip <= 1


@pytest.mark.parametrize("name", HALVED)
def test_bfloat16_is_used_and_its_gradients_are_near(name):
    """Far from cancelling, so that the error of the sum is that of its terms."""
    make, shape = MODELS[name]
    model = moved(make())
    X, _ = batch(shape, n=1, integers=name == "table")
    y = torch.tensor([1])
    exact, found = (
        flat(clipped_sum(model, CrossEntropy(), X, y, 1.0, precision=name)) for name in ("full", "bfloat16")
    )
    assert 1e-5 < (found - exact).norm() / exact.norm() < 0.1


# Sensitivity


class AtPlaces(nn.Module):
    """One matrix at three places of a record: norms from inner products."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(40, 30, bias=False)

    def forward(self, x):
        return self.inner(x).flatten(1)


def test_products_that_cancel_hide_no_gradient():
    """Records whose terms are 10^8 times their gradient are still clipped to the norm that they add."""
    places = torch.randn(40, 1, 40).double().repeat(1, 3, 1)
    places[:, 1] += 1e-8 * torch.randn(40, 40)
    model, pull = AtPlaces().double(), torch.randn(3, 30).double()
    pull[2] = -pull[0] - pull[1]

    def loss(logits, labels):
        return 1e6 * (logits.reshape(len(labels), 3, 30) * pull).sum((1, 2))

    sums = ClippedSums(model, loss, places.dtype, places.shape[1:])
    assert sums.route == "book-keeping"
    alone = [flat(sums(record[None], torch.tensor([0]), 1e-2)).norm().item() for record in places]
    assert 0 < max(alone) <= 1e-2


@pytest.mark.parametrize(("size", "places"), [((40, 60), 3), ((4, 6), 60)], ids=["inner products", "formed"])
def test_rounding_in_32_bits_takes_no_record_over_its_bound(size, places):
    """Terms that cancel to some 10^-7 of their size, in a block with records that add nothing."""
    model = nn.Sequential(nn.Linear(*size, bias=False), nn.Flatten())
    X = torch.randn(20, 1, size[0]).repeat(1, places, 1) + 1e-7 * torch.randn(20, places, size[0])
    pull = torch.randn(places, size[1])
    pull[-1] = -pull[:-1].sum(0)

    def loss(logits, labels):
        return 1e6 * (logits.reshape(len(labels), places, size[1]) * pull).sum((1, 2))

    sums = ClippedSums(model, loss, X.dtype, X.shape[1:])
    assert sums.route == "book-keeping"
    options = {"class_weight": torch.tensor([0.0, 1.0]), "weighting": "bound"}
    used = [flat(sums(X, (torch.arange(20) == i).long(), 1e-3, **options)).norm().item() / 1e-3 for i in range(20)]
    assert 1e-4 < max(used) <= 1


@pytest.mark.parametrize("size", [(40, 60), (4, 6)], ids=["inner products", "formed"])
def test_squares_that_vanish_in_32_bits_hide_no_gradient(size):
    """Gradients of 10^-20, clipped to a tenth of it."""
    X = torch.randn(5, size[0])
    sums = ClippedSums(nn.Linear(*size, bias=False), lambda z, y: 1e-20 * z.sum(1), X.dtype, X.shape[1:])
    assert sums.route == "book-keeping"
    alone = [flat(sums(row[None], torch.tensor([0]), 1e-21)).norm() for row in X]
    assert 0 < max(alone) <= 1e-21


def test_products_are_never_shortened(monkeypatch):
    """What PyTorch was told to do with products of 32 bits is set aside for norms and sums, and put back."""
    seen, norms, weighted = [], gradients._Products.norms, gradients._Products.weighted_sum

    def told(method):
        return lambda *arguments: seen.append([one.fp32_precision for one in backends]) or method(*arguments)

    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    monkeypatch.setattr(gradients._Products, "norms", told(norms))
    monkeypatch.setattr(gradients._Products, "weighted_sum", told(weighted))
    before, told_by = [one.fp32_precision for one in backends], ["tf32", "bf16"]
    try:
        for one, precision in zip(backends, told_by, strict=True):
            one.fp32_precision = precision
        clipped_sum(nn.Linear(4, 3), CrossEntropy(), torch.randn(5, 4), torch.arange(5) % 3, 1.0)
        assert [one.fp32_precision for one in backends] == told_by
    finally:
        for one, precision in zip(backends, before, strict=True):
            one.fp32_precision = precision
    assert seen[-2:] == [["ieee"] * 2] * 2


@pytest.mark.parametrize("size", [(64, 64), (4, 3)], ids=["inner products", "formed"])
def test_an_autocast_around_it_shortens_no_product(size):
    X, y = torch.randn(9, size[0]), torch.arange(9) % 3
    with torch.autocast("cpu", torch.bfloat16):
        sums = ClippedSums(nn.Linear(*size, bias=False), CrossEntropy(), X.dtype, X.shape[1:])
        alone = [flat(sums(X[i : i + 1], y[i : i + 1], 1e-2)).norm() for i in range(9)]
    assert sums.route == "book-keeping"
    assert 1e-2 * (1 - ROOM) < max(alone) <= 1e-2


@pytest.mark.parametrize("clip_norm", [1e-2, 1e-4])
def test_a_factor_that_loses_digits_is_none(clip_norm):
    """Gradients of 10^38 leave factors that 32 bits can only hold with few digits."""
    X = 5e18 * torch.linspace(0.2, 1, 9)[:, None] * torch.ones(8)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), Times(5e18))
    nn.init.zeros_(model[0].weight)
    for row in X:
        alone = flat(clipped_sum(model, lambda z, y: z.sum(1), row[None], torch.tensor([0]), clip_norm)).norm()
        assert alone <= clip_norm


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def test_lengths_that_vanish_in_32_bits_hide_no_rounding():
    """Two thousand places that cancel, of tiny numbers beside huge ones."""
    rng = torch.Generator().manual_seed(0)
    left, right = 1e-24 * torch.randn(1, 1000, 2, generator=rng), 1e18 * torch.randn(1, 1000, 2, generator=rng)
    part = gradients._Products(torch.cat([left, -left], 1), torch.cat([right, right * (1 + 2.0**-23)], 1))
    factors = (1e-12 / part.norms()).clamp(max=1.0)
    assert part.weighted_sum(factors, torch.empty(0, dtype=torch.long)).norm() <= 1e-12


@pytest.mark.parametrize("name", ["places, few", "places, many", "table", "images"])
def test_one_record_adds_its_bound_and_no_more(name):
    make, shape = MODELS[name]
    model = moved(make())
    X, y = batch(shape, integers=name == "table")
    sums = ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:])
    weight = torch.tensor([1.0, 5.0, 2.0])
    pulls = [
        flat(sums(X[i : i + 1], y[i : i + 1], 0.01, class_weight=weight, weighting="bound")).norm() for i in range(6)
    ]
    used = torch.stack(pulls) / (0.01 * weight[y].double())
    assert (1 - ROOM < used).all()
    assert (used <= 1).all()


@pytest.mark.parametrize("name", ["places, few", "table", "images"])
def test_a_record_without_a_finite_gradient_adds_nothing(name):
    make, shape = MODELS[name]
    model = moved(make())
    X, y = batch(shape, integers=name == "table")

    def explode(logits, labels):
        return torch.where(labels == 1, torch.inf, 1.0) * logits.sum(1)

    sums = ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:])
    assert sums.route == "book-keeping"
    sums.loss = explode
    total = flat(sums(X, y, 1.0))
    assert total.isfinite().all()
    torch.testing.assert_close(total, flat(sums(X[y != 1], y[y != 1], 1.0)), rtol=1e-6, atol=1e-7)


def test_activations_without_end_spoil_nobody_else():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    X, y = torch.randn(5, 2), torch.arange(5) % 2
    bad = X.clone()
    bad[3] = 3e38
    keep = torch.arange(5) != 3
    with torch.no_grad():
        model[0].weight.fill_(10.0)
    sums = ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:])
    torch.testing.assert_close(flat(sums(bad, y, 1.0)), flat(sums(X[keep], y[keep], 1.0)), rtol=1e-6, atol=1e-7)
    assert bad[3].isfinite().all()  # the records themselves are left as they were
    assert (bad[3] == 3e38).all()


# Which route


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


UNSAFE = {
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


@pytest.mark.parametrize("name", UNSAFE)
def test_what_book_keeping_would_get_wrong_is_mapped(name):
    X, y = torch.randn(6, 3), torch.arange(6) % 2
    model = moved(UNSAFE[name]()).double()
    sums = ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:])
    assert sums.route == "mapping"
    with pytest.raises(ValueError, match="precision must be 'full'"):
        ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:], "bfloat16")
    expected = one_at_a_time(model, CrossEntropy(), X, y, 0.5, torch.ones(2), "loss")
    torch.testing.assert_close(flat(sums(X, y, 0.5)), expected, rtol=1e-9, atol=1e-11)


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
    """On either route the sum is that of batches of one, and a record more moves it by its bound."""
    model = moved(nn.Linear(3, n_classes)).double()
    X, y = torch.randn(8, 3).double(), torch.tensor([0, 0, 0, 1, 0, 0, 0, 1])
    for sums in routes(model, loss, X):
        total = flat(sums(X, y, 0.5))
        expected = one_at_a_time(model, loss, X, y, 0.5, torch.ones(n_classes), "loss")
        torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-11)
        assert (total - flat(sums(X[1:], y[1:], 0.5))).norm() <= 0.5 * (1 + 1e-9)


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


def test_the_choice_draws_no_number_and_reads_no_parameter():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    state = torch.random.get_rng_state()
    assert ClippedSums(model, CrossEntropy(), torch.float32, torch.Size([3])).route == "book-keeping"
    assert torch.equal(state, torch.random.get_rng_state())
    assert model[0].weight.isnan().all()


def test_hooks_are_gone_and_gradients_untouched():
    model = nn.Linear(3, 2)
    clipped_sum(model, CrossEntropy(), torch.randn(4, 3), torch.arange(4) % 2, 1.0)
    assert not model._forward_hooks
    assert model.weight.grad is None


# Views


@pytest.mark.parametrize("name", ["places, few", "table", "images"])
@pytest.mark.parametrize("mapped", [False, True])
def test_views_are_averaged_before_clipping(name, mapped):
    make, shape = MODELS[name]
    model = moved(make()).double()
    X, y = batch(shape, integers=name == "table")
    sums = routes(model, CrossEntropy(), X)[mapped]
    others = torch.stack([X, X.flip(-1), X.roll(1, -1)], 1)
    by_record = {record.numpy().tobytes(): views for record, views in zip(X, others, strict=True)}
    total = flat(sums(X, y, 0.2, micro_batch=4, augment=lambda record: by_record[record.numpy().tobytes()]))
    expected = torch.zeros_like(total)
    for views, label in zip(others, y, strict=True):
        mean = sum(one_at_a_time(model, CrossEntropy(), view[None], label[None], 1e9, torch.ones(3), "loss")
                   for view in views) / 3  # fmt: skip
        expected += mean * min(1.0, 0.2 / mean.norm().item())
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-11)
