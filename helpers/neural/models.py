"""Models for private training: every one maps records to logits (B, K) and treats each record alone.

None has batch normalisation or another layer that mixes records, all work under `torch.func` and under hooks, and
starting values are drawn from a public `seed` without touching PyTorch's global state. Models for images take bytes
(B, side, side, 3) and scale them inside by public constants. Losses, weights and noise are left to `train`.
"""

import copy
import os
from collections.abc import Mapping
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from helpers.neural.attention import attend
from helpers.validation import check_integer, check_real

# Channel means and deviations of ImageNet's training part in [0, 1], public and the ones pretrained weights expect.
IMAGENET_MEAN, IMAGENET_SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@contextmanager
def drawn_from(seed: int):
    """PyTorch's generator as if seeded, and afterwards as it was."""
    seed = check_integer("seed", seed, low=0, high=2**63 - 1)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _check_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        check_integer(name, value, low=2 if name == "n_classes" else 1)


# ------------------------------------------------------------------------------------------------------- tabular


def linear(n_features: int, n_classes: int) -> nn.Linear:
    """Multinomial logistic regression, starting from zero.

    Raises
    ------
    ValueError
        A size is out of range.

    >>> linear(3, 2)(torch.ones(1, 3)).tolist()
    [[0.0, 0.0]]
    """
    _check_sizes(n_features=n_features, n_classes=n_classes)
    # `skip_init` leaves the weights undrawn, so that PyTorch's global generator is not touched.
    return zeroed(nn.utils.skip_init(nn.Linear, n_features, n_classes))


def mlp(n_features: int, n_classes: int, *, width: int = 64, seed: int = 0) -> nn.Sequential:
    """Two hidden layers of `width` rectified units; the last layer starts from zero.

    Parameters
    ----------
    seed : int
        Of the starting values, which are public.

    Raises
    ------
    ValueError
        A size is out of range.

    >>> sum(value.numel() for value in mlp(6, 2).parameters())
    4738
    """
    _check_sizes(n_features=n_features, n_classes=n_classes, width=width)
    with drawn_from(seed):
        first, second = nn.Linear(n_features, width), nn.Linear(width, width)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), zeroed(nn.utils.skip_init(nn.Linear, width, n_classes)))


def zeroed(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class FeatureTokens(nn.Module):
    """Each feature as a vector, after one vector of the record as a whole: (B, d) to (B, 1 + d, dim).

    A number x_j becomes x_j w_j + b_j.
    """

    def __init__(self, n_features: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_features, dim))
        self.bias = nn.Parameter(torch.empty(n_features, dim))
        self.summary = nn.Parameter(torch.empty(dim))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        # The vector of the whole record comes first: the last block reads it off at position 0.
        return torch.cat([self.summary.expand(len(x), 1, -1), x[..., None] * self.weight + self.bias], 1)


class SelfAttention(nn.Module):
    """Multi-head attention of the first `queries` tokens (all if None) to all: (B, T, dim) to (B, queries, dim)."""

    def __init__(self, dim: int, heads: int, dropout: float, queries: int | None = None) -> None:
        super().__init__()
        self.heads, self.queries, self.dropout = heads, queries, dropout
        self.projections, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.zeros_(self.projections.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return self.out(attend(self.projections(x), self.heads, self.queries, dropout))


class ReGLU(nn.Module):
    """One half of the last axis, times the other half rectified."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return left * right.relu()


class _TransformerBlock(nn.Module):
    """Normalise, attend, add; normalise, feed forward, add. The first block does not normalise before attention."""

    def __init__(self, dim: int, heads: int, dropout: float, first: bool, queries: int | None) -> None:
        super().__init__()
        # ReGLU halves its input, so the first layer has twice this width.
        hidden = int(dim * 4 / 3)
        self.before = nn.Identity() if first else nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads, dropout, queries)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * hidden), ReGLU(), nn.Dropout(dropout), nn.Linear(hidden, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        # The residual of those tokens alone whose answer is wanted.
        x = x[:, : self.attention.queries] + self.attention(self.before(x))
        return x + self.feed_forward(x)


class FTTransformer(nn.Module):
    """The FT-Transformer: a transformer over the features of a record, read off at the token of the record.

    The function is that of `rtdl_revisiting_models.FTTransformer` with equal weights, without its detours by the
    batch's size, which per-record gradients cannot follow. In the last block only the record's token is computed.

    Parameters
    ----------
    n_features, n_classes : int
        Columns of numbers of a record, and classes.
    dim, depth, heads : int
        Length of a token, number of blocks, attention heads (a divisor of `dim`).
    dropout : float
        In [0, 1), on attention weights and hidden units.
    seed : int
        Of the starting values, which are public.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Source: Gorishniy, Rubachev, Khrulkov and Babenko 2021, section 3.3.

    >>> sum(value.numel() for value in FTTransformer(6, 2).parameters())
    51482
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        dim: int = 32,
        depth: int = 6,
        heads: int = 8,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        _check_sizes(n_features=n_features, n_classes=n_classes, dim=dim, depth=depth, heads=heads)
        dropout = check_real("dropout", dropout, low=0, high=1, inclusive="low")
        if dim % heads:
            raise ValueError(f"heads must divide dim, got heads={heads!r}, dim={dim!r}")
        super().__init__()
        with drawn_from(seed):
            self.tokens = FeatureTokens(n_features, dim)
            self.blocks = nn.Sequential(
                *(
                    _TransformerBlock(dim, heads, dropout, first=i == 0, queries=1 if i == depth - 1 else None)
                    for i in range(depth)
                )
            )
            self.head = nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(x))[:, 0])


# -------------------------------------------------------------------------------------------------------- prior


class WithPrior(nn.Module):
    """A model whose logits are moved by a fixed vector; see `with_prior`."""

    def __init__(self, model: nn.Module, log_prior: Tensor) -> None:
        super().__init__()
        self.model = model
        # A buffer goes along to the GPU and into copies, but no optimiser changes it.
        self.register_buffer("log_prior", log_prior)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) + self.log_prior


def with_prior(model: nn.Module, log_prior: ArrayLike) -> WithPrior:
    """The model with log priors added to its logits, in training and in use, and never trained.

    What the model itself learns is then the evidence beyond the prior. Clipping takes most from the rare class's
    gradients, which would have to teach a trained bias the prior first.

    Parameters
    ----------
    log_prior : array (K,)
        Finite numbers: public, or from noisy counts that are paid for.

    Raises
    ------
    ValueError
        No such numbers.

    >>> with_prior(linear(3, 2), np.log([0.75, 0.25]))(torch.zeros(1, 3)).softmax(1)
    tensor([[0.7500, 0.2500]], grad_fn=<SoftmaxBackward0>)
    """
    values = np.asarray(log_prior, dtype=float)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"log_prior must be a vector of two or more finite numbers, got {log_prior!r}")
    dtype = next((value.dtype for value in model.parameters()), torch.get_default_dtype())
    return WithPrior(model, torch.tensor(values, dtype=dtype))


# -------------------------------------------------------------------------------------------------------- images


class Pixels(nn.Module):
    """Bytes (B, side, side, 3) to standardised channels (B, 3, side, side), by public constants."""

    mean: Tensor
    sd: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", 255 * torch.tensor(IMAGENET_MEAN), persistent=False)
        self.register_buffer("sd", 255 * torch.tensor(IMAGENET_SD), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.sd).movedim(-1, 1)


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, each normalised, added to the input; named as in torchvision."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), _group_norm(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), _group_norm(outputs)
        self.downsample = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _group_norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(inner)) + self.downsample(x)).relu()


def _group_norm(channels: int) -> nn.GroupNorm:
    # 32 groups, the usual number; statistics of one record's channels alone.
    return nn.GroupNorm(min(32, channels), channels)


class ResNet18(nn.Module):
    """ResNet-18 with GroupNorm in place of batch normalisation, for images (B, side, side, 3) of bytes.

    `load_pretrained` puts torchvision's weights into it. The last layer starts from zero.

    Parameters
    ----------
    n_classes : int
    seed : int
        Of the starting values, which are public.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Source: He, Zhang, Ren and Sun 2016; Wu and He 2018 (GroupNorm).
    """

    def __init__(self, n_classes: int, *, seed: int = 0) -> None:
        _check_sizes(n_classes=n_classes)
        super().__init__()
        with drawn_from(seed):
            self.pixels = Pixels()
            self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), _group_norm(64)
            self.layer1, self.layer2, self.layer3, self.layer4 = (
                nn.Sequential(_BasicBlock(inputs, outputs, stride), _BasicBlock(outputs, outputs, 1))
                for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
            )
        self.fc = zeroed(nn.utils.skip_init(nn.Linear, 512, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees, (B, 512)."""
        x = functional.max_pool2d(self.bn1(self.conv1(self.pixels(x))).relu(), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))


def load_pretrained(model: ResNet18, source: str | os.PathLike | Mapping[str, Tensor]) -> ResNet18:
    """Put the weights of a torchvision ResNet-18 into `model`, its last layer aside, and return it.

    Batch normalisation with frozen statistics multiplies and shifts each channel by constants. These are folded into
    the convolution before it, which gets a bias, and the normalisation goes: the function is that of the pretrained
    network in evaluation mode, record by record, and all its weights can be trained. The statistics are those of the
    data of the pretraining, which is public.

    Parameters
    ----------
    model : ResNet18
        Changed in place.
    source : path or mapping
        A state dict in torchvision's names, or a file that holds one.

    Raises
    ------
    ValueError
        A tensor is missing or has another shape. The model is then unchanged.
    OSError, pickle.UnpicklingError
        As `torch.load`: no such file, or not one of plain tensors.

    Source: names and statistics as in torchvision's resnet18.
    """
    if not isinstance(model, ResNet18):
        raise ValueError(f"model must be a ResNet18, got {type(model).__name__}")
    if not isinstance(model.bn1, nn.GroupNorm):
        raise ValueError("model must be new, got one that holds pretrained weights")
    state = source if isinstance(source, Mapping) else torch.load(source, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping):
        raise ValueError(f"source must hold a state dict, got {type(state).__name__}")
    layers = dict(model.named_modules())
    convolutions = [name for name, layer in layers.items() if isinstance(layer, nn.Conv2d)]
    norms = [name for name, layer in layers.items() if isinstance(layer, nn.GroupNorm)]  # one behind each of them
    pretrained = copy.deepcopy(model)
    for name in norms:
        pretrained.set_submodule(name, nn.BatchNorm2d(layers[name].num_channels))
    # Folding is done in 64 bits, in evaluation mode, where normalisation uses its stored statistics.
    pretrained.double().eval()
    try:
        # The last layer is the model's own: its number of classes differs from ImageNet's.
        pretrained.load_state_dict({**state, **model.fc.state_dict(prefix="fc.")})
    except RuntimeError as error:
        raise ValueError(f"source must hold the weights of torchvision's ResNet-18: {error}") from error
    for conv, norm in zip(convolutions, norms, strict=True):
        fused = fuse_conv_bn_eval(
            cast(nn.Conv2d, pretrained.get_submodule(conv)), cast(nn.BatchNorm2d, pretrained.get_submodule(norm))
        )
        # The bias is new, and PyTorch freezes it.
        model.set_submodule(conv, fused.to(model.fc.weight).requires_grad_())
        model.set_submodule(norm, nn.Identity())
    return model
