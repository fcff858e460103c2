"""The models of the neural room: what they compute, record by record, and what is loaded into them."""

import pickle

import numpy as np
import pytest
import rtdl_revisiting_models as rtdl
import torch
from opacus import GradSampleModule
from torch import nn
from torch.nn import functional

from checks.skin import MapCNN, ResidualCNN, StandardizedConv2d
from helpers.neural import Schedule, clipped_sum, train
from helpers.neural.losses import CrossEntropy
from helpers.neural.models import (
    FTTransformer,
    ResNet18,
    linear,
    load_pretrained,
    mlp,
    with_prior,
)

pytest_plugins = ("neural_torch",)
pytestmark = pytest.mark.usefixtures("one_thread_and_one_seed")

N_CLASSES = 3


def numbers(n=5, d=4):
    return torch.randn(n, d)


def pictures(n=3, side=28):
    return torch.randint(0, 256, (n, side, side, 3), dtype=torch.uint8)


def transformer(**options):
    return FTTransformer(4, N_CLASSES, **{"dim": 8, "depth": 2, "heads": 2, "dropout": 0.0} | options)


# Convolutions of four channels corrupt the heap in PyTorch 2.13 on some processors; those of eight do not.
CASES = {
    "linear": (lambda: linear(4, N_CLASSES), numbers),
    "mlp": (lambda: mlp(4, N_CLASSES, width=5), numbers),
    "transformer": (transformer, numbers),
    "prior": (lambda: with_prior(mlp(4, N_CLASSES, width=5), [0.0, -1.0, -2.0]), numbers),
    "cnn": (lambda: ResidualCNN(N_CLASSES, width=8), pictures),
    "cnn on maps": (lambda: MapCNN(6, N_CLASSES, width=8), lambda: torch.randn(3, 6, 4, 4)),
}


@pytest.fixture(params=CASES)
def case(request):
    make, records = CASES[request.param]
    model, X = make(), records()
    for parameter in model.parameters():  # the last layers start from zero, which would hide the others' gradients
        nn.init.normal_(parameter, std=0.3)
    return model, X, torch.arange(len(X)) % N_CLASSES


def of_single_records(model, X, y):
    """Gradients (n, size) of single records by plain backward passes."""
    rows = []
    for record, label in zip(X.split(1), y.split(1), strict=True):
        model.zero_grad()
        functional.cross_entropy(model(record), label).backward()
        rows.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double())
    model.zero_grad()
    return torch.stack(rows)


def test_clipped_sums_are_those_of_single_records(case):
    model, X, y = case
    rows = of_single_records(model, X, y)
    clip = float(rows.norm(dim=1).median())
    expected = (rows * (clip / rows.norm(dim=1).clamp(min=clip))[:, None]).sum(0)
    got = clipped_sum(model, CrossEntropy(), X, y, clip)
    assert (rows.norm(dim=0) > 0).double().mean() > 0.5
    got = torch.cat([got[name].flatten() for name, _ in model.named_parameters()])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-5 * clip)


def test_gradients_by_opacus_are_those_of_single_records(case):
    model, X, y = case
    expected = of_single_records(model, X, y)
    hooked = GradSampleModule(model, loss_reduction="sum")
    functional.cross_entropy(hooked(X), y, reduction="sum").backward()
    got = torch.cat([parameter.grad_sample.flatten(1) for parameter in model.parameters()], 1)
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_logits_of_a_record_do_not_depend_on_the_others(case):
    model, X, _ = case
    torch.testing.assert_close(model(X)[:1], model(X[:1]), rtol=1e-5, atol=1e-5)
    other = torch.cat([X[:1], X[1:].flip(0) // 2])
    torch.testing.assert_close(model(other)[:1], model(X)[:1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [lambda s: mlp(4, 2, seed=s), lambda s: transformer(seed=s),
                                  lambda s: ResidualCNN(2, width=8, seed=s)])  # fmt: skip
def test_starting_values_come_from_the_seed_alone(make):
    state = torch.random.get_rng_state()
    one = make(3).state_dict()
    assert (torch.random.get_rng_state() == state).all()
    torch.manual_seed(99)
    same, other = make(3).state_dict(), make(4).state_dict()
    assert all((one[name] == same[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


@pytest.mark.parametrize("make", [lambda: linear(4, 2), lambda: mlp(4, 2), lambda: ResidualCNN(2), lambda: ResNet18(2)])
def test_models_start_without_an_opinion(make):
    model = make()
    X = pictures(2) if any(isinstance(layer, nn.Conv2d) for layer in model.modules()) else numbers(2)
    assert (model(X) == 0).all()


# ---------------------------------------------------------------------------------------------- FT-Transformer


def reference(n_features, depth, dropout=0.0):
    return rtdl.FTTransformer(
        n_cont_features=n_features, cat_cardinalities=[], d_out=N_CLASSES, n_blocks=depth, d_block=16,
        attention_n_heads=4, attention_dropout=dropout, ffn_d_hidden_multiplier=4 / 3, ffn_dropout=dropout,
        residual_dropout=0.0,
    )  # fmt: skip


def copied(theirs, ours):
    """Puts the reference implementation's weights into ours."""
    tokens, blocks, head = ours.tokens, ours.blocks, ours.head
    get = theirs.state_dict()
    tokens.weight.data, tokens.bias.data = get["cont_embeddings.weight"], get["cont_embeddings.bias"]
    tokens.summary.data = get["cls_embedding.weight"]
    for i, block in enumerate(blocks):
        part = {name.removeprefix(f"backbone.blocks.{i}."): value for name, value in get.items()}
        for kind in ("weight", "bias"):
            joined = torch.cat([part[f"attention.W_{which}.{kind}"] for which in "qkv"])
            setattr(block.attention.projections, kind, nn.Parameter(joined))
            setattr(block.attention.out, kind, nn.Parameter(part[f"attention.W_out.{kind}"]))
            setattr(block.feed_forward[0], kind, nn.Parameter(part[f"ffn_normalization.{kind}"]))
            setattr(block.feed_forward[1], kind, nn.Parameter(part[f"ffn.linear1.{kind}"]))
            setattr(block.feed_forward[4], kind, nn.Parameter(part[f"ffn.linear2.{kind}"]))
            if i:
                setattr(block.before, kind, nn.Parameter(part[f"attention_normalization.{kind}"]))
    for kind in ("weight", "bias"):
        setattr(head[0], kind, nn.Parameter(get[f"backbone.output.normalization.{kind}"]))
        setattr(head[2], kind, nn.Parameter(get[f"backbone.output.linear.{kind}"]))
    return ours


@pytest.mark.parametrize("depth", [1, 3])
def test_ft_transformer_is_the_published_one(depth):
    theirs = reference(3, depth)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = FTTransformer(3, N_CLASSES, dim=16, depth=depth, heads=4, dropout=0.0)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    x = torch.randn(7, 3)
    torch.testing.assert_close(copied(theirs, ours)(x), theirs(x, None), rtol=1e-4, atol=1e-4)


def test_dropout_of_the_ft_transformer_has_the_law_of_the_published_one():
    """Means and variances of the logits over 4,000 draws, in training mode; in evaluation mode nothing is dropped."""
    theirs = reference(3, 2, dropout=0.3)
    ours = copied(theirs, FTTransformer(3, N_CLASSES, dim=16, depth=2, heads=4, dropout=0.3))
    x = torch.randn(1, 3).expand(4000, 3)
    with torch.no_grad():
        drawn = [ours.train()(x).double(), theirs.train()(x, None).double()]
        torch.testing.assert_close(ours.eval()(x[:1]), theirs.eval()(x[:1], None), rtol=1e-4, atol=1e-5)
    for moment in (lambda z: z, lambda z: (z - z.mean(0)) ** 2):
        one, other = (moment(z) for z in drawn)
        error = torch.sqrt((one.var(0) + other.var(0)) / 4000)
        assert ((one.mean(0) - other.mean(0)).abs() < 5 * error).all()


# -------------------------------------------------------------------------------------------------------- prior


def test_prior_moves_logits_and_is_not_trained():
    log_prior = np.log([0.9, 0.1])
    model = with_prior(linear(1, 2), log_prior)
    schedule = Schedule.constant(5, sample_rate=0.5)
    X, y = np.linspace(-1, 1, 20)[:, None], np.arange(20) % 2
    trained = train(model, X, y, schedule, delta=1e-3, random_state=0).model
    assert trained.log_prior.tolist() == pytest.approx(log_prior.tolist())
    assert set(dict(trained.named_parameters())) == {"model.weight", "model.bias"}
    x = torch.randn(6, 1)
    torch.testing.assert_close(trained(x) - trained.model(x), trained.log_prior.expand(6, 2))
    assert (trained.model.weight != 0).all()


@pytest.mark.parametrize("bad", [[0.0], [[0.0, 1.0]], [0.0, -np.inf], [0.0, np.nan]])
def test_a_prior_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="log_prior must be a vector of two or more finite numbers"):
        with_prior(linear(1, 2), bad)


# ------------------------------------------------------------------------------------------------------- images


def test_bytes_and_the_same_numbers_as_floats_give_the_same_logits():
    X = pictures()
    model = ResidualCNN(N_CLASSES, width=8)
    nn.init.normal_(model.head.weight)
    torch.testing.assert_close(model(X), model(X.float()))
    pixels = model.body[0](torch.full((1, 2, 2, 3), 255, dtype=torch.uint8))
    assert pixels[0, :, 0, 0].tolist() == pytest.approx([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])


def test_standardised_weights_forget_mean_and_scale():
    layer = StandardizedConv2d(3, 4, 3, bias=False)
    x = torch.randn(1, 3, 6, 6)
    before = layer(x).detach()
    layer.weight.data = 5 * layer.weight.data + 2
    torch.testing.assert_close(layer(x), before, rtol=1e-3, atol=1e-3)
    assert float(before.detach().var()) == pytest.approx(float(x.var()), rel=0.5)


@pytest.mark.parametrize("side", [28, 64])
@pytest.mark.parametrize("make", [ResidualCNN, ResNet18])
def test_networks_take_images_of_both_sizes(make, side):
    assert make(7)(pictures(2, side)).shape == (2, 7)


# ------------------------------------------------------------------------------------------- pretrained weights


def random_torchvision_state():
    """Random weights and statistics in torchvision's names and shapes, written from its published architecture."""
    state, rng = {}, torch.Generator().manual_seed(1)

    def conv(name, norm, inputs, outputs, size):
        state[f"{name}.weight"] = torch.randn(outputs, inputs, size, size, generator=rng) / (inputs * size**2) ** 0.5
        state[f"{norm}.weight"] = 0.5 + torch.rand(outputs, generator=rng)
        state[f"{norm}.bias"] = torch.randn(outputs, generator=rng)
        state[f"{norm}.running_mean"] = torch.randn(outputs, generator=rng)
        state[f"{norm}.running_var"] = 0.5 + torch.rand(outputs, generator=rng)
        state[f"{norm}.num_batches_tracked"] = torch.tensor(9)

    conv("conv1", "bn1", 3, 64, 7)
    channels = 64
    for layer, outputs in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            prefix = f"layer{layer}.{block}"
            conv(f"{prefix}.conv1", f"{prefix}.bn1", channels, outputs, 3)
            conv(f"{prefix}.conv2", f"{prefix}.bn2", outputs, outputs, 3)
            if channels != outputs:
                conv(f"{prefix}.downsample.0", f"{prefix}.downsample.1", channels, outputs, 1)
            channels = outputs
    state["fc.weight"], state["fc.bias"] = torch.randn(1000, 512), torch.randn(1000)
    return state


def features_of(state, x):
    """torchvision's ResNet-18 in evaluation mode, before its last layer, written with functions only."""

    def normalised(x, conv, norm, stride, padding):
        x = functional.conv2d(x, state[f"{conv}.weight"], None, stride, padding)
        keys = ("running_mean", "running_var", "weight", "bias")
        return functional.batch_norm(x, *(state[f"{norm}.{key}"] for key in keys), training=False)

    x = x.permute(0, 3, 1, 2) / 255
    x = (x - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    x = functional.max_pool2d(normalised(x, "conv1", "bn1", 2, 3).relu(), 3, 2, 1)
    for layer in range(1, 5):
        for block in range(2):
            prefix, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            inner = normalised(x, f"{prefix}.conv1", f"{prefix}.bn1", stride, 1).relu()
            inner = normalised(inner, f"{prefix}.conv2", f"{prefix}.bn2", 1, 1)
            if f"{prefix}.downsample.0.weight" in state:
                x = normalised(x, f"{prefix}.downsample.0", f"{prefix}.downsample.1", stride, 0)
            x = (inner + x).relu()
    return x.mean((2, 3))


@pytest.fixture(scope="module")
def state():
    return random_torchvision_state()


def test_pretrained_weights_give_the_pretrained_function(state, tmp_path):
    torch.save(state, tmp_path / "resnet18.pth")
    model = load_pretrained(ResNet18(7), tmp_path / "resnet18.pth")
    X = pictures(2, 64)
    with torch.no_grad():
        torch.testing.assert_close(model.features(X), features_of(state, X), rtol=1e-3, atol=1e-3)
    assert not any(isinstance(layer, nn.GroupNorm) for layer in model.modules())
    assert sum(p.numel() for p in model.parameters()) == 11_180_103 - 4800  # scale and shift became one bias
    assert (model(X) == 0).all()


def test_a_pretrained_model_trains_privately(state):
    model = load_pretrained(ResNet18(2), state)
    for layer in (model.conv1, model.layer1, model.layer2, model.layer3, model.layer4):
        layer.requires_grad_(False)
    X, y = pictures(4, 32), np.array([0, 1, 0, 1])
    trained = train(model, X, y, Schedule.constant(2, sample_rate=0.5), delta=1e-3, random_state=0).model
    assert (trained.fc.weight != 0).any()
    assert torch.equal(trained.conv1.weight, model.conv1.weight)


def test_files_that_are_something_else_leave_the_model_unchanged(state, tmp_path):
    model = ResNet18(7)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(pickle.UnpicklingError):
        load_pretrained(model, tmp_path / "text")
    torch.save([1.0], tmp_path / "list")
    cases = {
        "source must hold a state dict, got list": tmp_path / "list",
        'source must hold the weights.*"layer4.1.bn2.running_var"': {
            name: value for name, value in state.items() if name != "layer4.1.bn2.running_var"
        },
        "source must hold the weights.*size mismatch for conv1.weight": state
        | {"conv1.weight": torch.zeros(64, 3, 3, 3)},
    }
    for message, source in cases.items():
        with pytest.raises(ValueError, match=f"(?s){message}"):
            load_pretrained(model, source)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="model must be a ResNet18, got Linear"):
        load_pretrained(linear(3, 2), state)
    with pytest.raises(ValueError, match="model must be new"):
        load_pretrained(load_pretrained(model, state), state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear(0, 2), "n_features must be an integer in"),
        (lambda: mlp(3, 1), "n_classes must be an integer in"),
        (lambda: mlp(3, 2, width=0), "width must be an integer in"),
        (lambda: mlp(3, 2, seed=-1), "seed must be an integer in"),
        (lambda: FTTransformer(0, 2), "n_features must be an integer in"),
        (lambda: FTTransformer(3, 2, dim=12, heads=8), "heads must divide dim, got heads=8, dim=12"),
        (lambda: FTTransformer(3, 2, dropout=1.0), "dropout must be a finite number in"),
        (lambda: ResNet18(1), "n_classes must be an integer in"),
    ],
)
def test_sizes_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
