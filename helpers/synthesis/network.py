"""The generator network of GEM: fixed noise vectors in, one component of a mixture of products out for each.

It sees noisy measurements only, through the gradient that it is handed, and promises nothing about privacy. Its weights
and its noise vectors come from the caller's generator, never from PyTorch's global one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import skip_init

_WIDTH = 256  # the published code has twice the embedding's length, at several times the cost of a step
_LAYERS = 2
# PyTorch puts an object in the place of the module that mypy reads.
_BFLOAT = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
_ROUNDED: dict[Any, str] = {torch.backends.cuda.matmul: "tf32", _BFLOAT: "bf16"}


class _Residual(nn.Module):
    """Layers whose input is handed on beside their output, so that each of them, and the last, sees the noise itself.

    The noise never changes: what it adds to all layers is one product, and nothing is derived by it.
    """

    def __init__(self, n_inputs: int, n_outputs: int):
        super().__init__()
        self.sizes = [_WIDTH] * _LAYERS + [n_outputs]
        self.direct = skip_init(nn.Linear, n_inputs, sum(self.sizes))
        links = [skip_init(nn.Linear, (i + 1) * _WIDTH, size, bias=False) for i, size in enumerate(self.sizes[1:])]
        self.links = nn.ModuleList(links)
        self.norms = nn.ModuleList([nn.BatchNorm1d(_WIDTH) for _ in range(_LAYERS)])

    def forward(self, noise: Tensor) -> Tensor:
        """Outputs (n_outputs, n) for noise vectors (n_inputs, n): sums along the last axis are the faster ones."""
        first, *parts = torch.addmm(self.direct.bias[:, None], self.direct.weight, noise).split(self.sizes)
        hidden = torch.relu(self.norms[0](first[None])[0])
        for part, link, norm in zip(parts[:-1], self.links[:-1], self.norms[1:], strict=True):
            layer = torch.addmm(part, link.get_parameter("weight"), hidden)
            hidden = torch.cat([torch.relu(norm(layer[None])[0]), hidden])
        return torch.addmm(parts[-1], self.links[-1].get_parameter("weight"), hidden)

    def draw_weights(self, rng: np.random.Generator) -> None:
        """PyTorch's own law for linear layers, uniform within 1/sqrt(inputs), from the caller's generator."""
        ends = np.cumsum([0, *self.sizes])
        for i, (start, end) in enumerate(pairwise(ends)):
            link = [self.links[i - 1].weight] if i else []
            limit = (self.direct.in_features + i * _WIDTH) ** -0.5
            for weight in (self.direct.weight[start:end], self.direct.bias[start:end], *link):
                weight.copy_(torch.from_numpy(rng.uniform(-limit, limit, size=weight.shape)))


class GeneratorNetwork:
    """Logits (n_codes, n_components) of a mixture as a network's outputs; a `helpers.synthesis.mixture.Parameters`.

    Two residual layers of 256 units with batch normalisation over the components, and a linear layer; Adam.
    Runs on a GPU where there is one, else on one thread. Products are rounded to bfloat16 where the processor has it,
    which takes half the time; weights, sums and Adam are in single precision.

    Parameters
    ----------
    n_components, n_codes, embedding_dim : int
    rng : numpy.random.Generator
        Draws noise vectors and first weights; need not be secret.
    """

    def __init__(self, n_components: int, n_codes: int, embedding_dim: int, rng: np.random.Generator):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._inputs = torch.tensor(rng.normal(size=(embedding_dim, n_components)), dtype=torch.float32, device=device)
        self._network = _Residual(embedding_dim, n_codes).to(device)
        with torch.no_grad():
            self._network.draw_weights(rng)
        self._adam = torch.optim.Adam(self._network.parameters())
        self._outputs: Tensor  # of the latest `logits`

    def logits(self) -> NDArray[np.float32]:
        with _faster():
            self._outputs = self._network(self._inputs)
        return self._outputs.detach().cpu().numpy()

    def step(self, gradient: NDArray[np.float32], rate: float) -> None:
        self._adam.param_groups[0]["lr"] = rate
        self._adam.zero_grad()
        with _faster():
            self._outputs.backward(torch.from_numpy(gradient).to(self._outputs))
            self._adam.step()

    def state(self) -> list[NDArray]:
        return [weight.detach().cpu().numpy().copy() for weight in self._network.parameters()]

    def restore(self, state: Sequence[NDArray]) -> None:
        with torch.no_grad():
            for weight, value in zip(self._network.parameters(), state, strict=True):
                weight.copy_(torch.from_numpy(value))


@contextmanager
def _faster() -> Iterator[None]:
    """Rounded products, and one thread: two wait for each other longer than they work. All is as before afterwards."""
    n_threads, before = torch.get_num_threads(), [backend.fp32_precision for backend in _ROUNDED]
    try:
        for backend, precision in _ROUNDED.items():
            backend.fp32_precision = precision
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(n_threads)
        for backend, precision in zip(_ROUNDED, before, strict=True):
            backend.fp32_precision = precision
