"""Speed of clipped sums of per-record gradients: helpers.neural beside Opacus' hooks, on one model and batch.

Each contender computes what a private step adds noise to, from the same parameters and records. Opacus runs its hooks
(`GradSampleModule`), and then the norms, factors and sums that its optimiser would compute, in 32 bits; ours has
products in 32 bits, norms and sums of blocks in 64. For the transformer hooks run twice: on our model, whose attention
is made for few tokens, and on the same function with attention by PyTorch's operations, which users of Opacus would
have. "not private" is an ordinary forward and backward pass.
"""

import argparse
import copy
import functools
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import timing
from helpers.neural.gradients import ClippedSums
from helpers.neural.losses import CrossEntropy
from helpers.neural.models import FTTransformer, SelfAttention

CLIP_NORM = 1.0
OURS = "book-keeping"


def small_cnn(n_classes: int = 7) -> nn.Module:
    """Three convolutions with group normalisation, for 3 x 28 x 28."""
    layers: list[nn.Module] = []
    for inputs, width in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, width, 3, stride=2, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, n_classes))


MODELS = {
    "FT-Transformer, dimension 32, depth 6, 8 heads, 7 tokens": (
        lambda: FTTransformer(6, 2, dropout=0.0),
        (6,),
        2,
    ),
    "GroupNorm CNN, 28 x 28 x 3": (small_cnn, (3, 28, 28), 7),
}


def opacus(model: nn.Module) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Hooks, and the clipping and summing of Opacus' optimiser; without a rule it maps the layer itself."""
    from opacus import GradSampleModule

    hooked = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    parameters = [value for value in hooked.parameters() if value.requires_grad]

    def clipped_sum(X: Tensor, y: Tensor) -> list[Tensor]:
        functional.cross_entropy(hooked(X), y, reduction="sum").backward()
        norms = torch.stack([value.grad_sample.reshape(len(X), -1).norm(2, dim=-1) for value in parameters], 1)
        factors = (CLIP_NORM / (norms.norm(2, dim=1) + 1e-6)).clamp(max=1.0)
        total = [torch.einsum("i,i...", factors, value.grad_sample) for value in parameters]
        hooked.zero_grad()
        return total

    return clipped_sum


class PlainAttention(SelfAttention):
    """The same by products of matrices and softmax, without dropout."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.projections(x).unflatten(-1, (3, self.heads, -1)).movedim(1, 3).unbind(1)
        scores = query[..., : self.queries, :] @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


def with_plain_attention(model: nn.Module) -> nn.Module | None:
    """A copy, or None if there is no attention in it."""
    plain = copy.deepcopy(model)
    layers = [layer for layer in plain.modules() if isinstance(layer, SelfAttention)]
    for layer in layers:
        layer.__class__ = PlainAttention
    return plain if layers else None


def contenders(model: nn.Module, X: Tensor, y: Tensor) -> dict[str, Callable[[], object]]:
    """What is timed, after a check that all agree."""
    kept, mapped = (ClippedSums(model, CrossEntropy(), X.dtype, X.shape[1:]) for _ in range(2))
    if kept.route != OURS:
        raise RuntimeError(f"the model is not fit for {OURS}")
    mapped.route = "mapping"
    hooks = {"Opacus hooks": opacus(model)}
    if plain := with_plain_attention(model):
        hooks["hooks, PyTorch's attention"] = opacus(plain)

    def not_private() -> None:
        functional.cross_entropy(model(X), y, reduction="sum").backward()
        model.zero_grad()

    sums = [list(way(X, y, CLIP_NORM).values()) for way in (kept, mapped)] + [way(X, y) for way in hooks.values()]
    for others in sums[1:]:
        gap = max(float((one - other).abs().max()) for one, other in zip(sums[0], others, strict=True))
        if gap > 1e-4 * CLIP_NORM * len(y) ** 0.5:
            raise RuntimeError(f"sums differ by {gap}")
    ways = {
        OURS: lambda: kept(X, y, CLIP_NORM, micro_batch=len(y)),
        "mapping": lambda: mapped(X, y, CLIP_NORM, micro_batch=len(y)),
    }
    ways |= {name: functools.partial(way, X, y) for name, way in hooks.items()}
    return ways | {"not private": not_private}


def seconds(work: Callable[[], object], device: str) -> float:
    """CPU seconds, or on a GPU seconds until it is idle again."""
    if device == "cpu":
        return timing.cpu_seconds(work)
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def one_size(name: str, n_records: int, rounds: int, device: str) -> None:
    make, shape, n_classes = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    with torch.no_grad():
        for value in model.parameters():  # some start from zero
            value.add_(0.1 * torch.randn_like(value))
    X = torch.randn(n_records, *shape, device=device)
    y = torch.randint(n_classes, (n_records,), device=device)
    print(f"{name}: {sum(value.numel() for value in model.parameters()):,} parameters, {n_records} records, {device}")
    ways = {way: functools.partial(seconds, work, device) for way, work in contenders(model, X, y).items()}
    timing.show(timing.alternate(ways, rounds), "Opacus hooks")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    torch.set_num_threads(1)
    timing.describe_machine()
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        with timing.one_core():
            for name in MODELS:
                for size in arguments.sizes:
                    one_size(name, size, arguments.rounds, device)
