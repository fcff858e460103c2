"""Speed of clipped sums of per-record gradients: helpers.neural beside Opacus' hooks, on one model and batch.

Each contender computes what a private step adds noise to, from the same parameters and records. Opacus runs its hooks
(`GradSampleModule`), as it comes and by `torch.func` for every layer ("functorch"), and then the norms, factors and
sums that its optimiser would compute, in 32 bits; ours has norms and sums of 64 bits. "not private" is an ordinary
forward and backward pass.
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
from checks.skin import MapCNN
from helpers.neural.gradients import clipped_sum
from helpers.neural.losses import CrossEntropy
from helpers.neural.models import FTTransformer, mlp

CLIP_NORM = 1.0


MODELS = {
    "FT-Transformer, dimension 32, depth 6, 8 heads, 7 tokens": (lambda: FTTransformer(6, 2, dropout=0.0), (6,), 2),
    "MLP, 20 features, 64 and 64 units": (lambda: mlp(20, 2), (20,), 2),
    "map network, 60 x 7 x 7": (lambda: MapCNN(60, 7), (60, 7, 7), 7),
}


def opacus(model: nn.Module, **options: bool) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Hooks, and the clipping and summing of Opacus' optimiser; without a rule it maps the layer itself."""
    from opacus import GradSampleModule

    hooked = GradSampleModule(copy.deepcopy(model), loss_reduction="sum", **options)
    parameters = [value for value in hooked.parameters() if value.requires_grad]

    def clipped_sum(X: Tensor, y: Tensor) -> list[Tensor]:
        functional.cross_entropy(hooked(X), y, reduction="sum").backward()
        norms = torch.stack([value.grad_sample.reshape(len(X), -1).norm(2, dim=-1) for value in parameters], 1)
        factors = (CLIP_NORM / (norms.norm(2, dim=1) + 1e-6)).clamp(max=1.0)
        total = [torch.einsum("i,i...", factors, value.grad_sample) for value in parameters]
        hooked.zero_grad()
        return total

    return clipped_sum


def contenders(model: nn.Module, X: Tensor, y: Tensor) -> dict[str, Callable[[], object]]:
    """What is timed, after a check that all agree."""

    def not_private() -> None:
        functional.cross_entropy(model(X), y, reduction="sum").backward()
        model.zero_grad()

    ways = {
        "helpers": lambda: list(clipped_sum(model, CrossEntropy(), X, y, CLIP_NORM).values()),
        "Opacus hooks": functools.partial(opacus(model), X, y),
        "Opacus functorch": functools.partial(opacus(model, force_functorch=True), X, y),
    }
    sums = [way() for way in ways.values()]
    for others in sums[1:]:
        gap = max(float((one - other).abs().max()) for one, other in zip(sums[0], others, strict=True))
        if gap > 1e-4 * CLIP_NORM * len(y) ** 0.5:
            raise RuntimeError(f"sums differ by {gap}")
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
