"""The generator network of GEM: fixed noise vectors in, one component of a mixture of products out for each.

It sees noisy measurements only, through the gradient that it is handed, and promises nothing about privacy. Its weights
and its noise vectors come from the caller's generator, never from PyTorch's global one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import skip_init

_WIDTH = 256  # the published code has twice the embedding's length, at several times the cost of a step
_LAYERS = 2


class _Residual(nn.Module):
    """A layer whose input is handed on beside its output."""

    def __init__(self, n_inputs: int, n_outputs: int):
        super().__init__()
        self.layer = nn.Sequential(skip_init(nn.Linear, n_inputs, n_outputs), nn.BatchNorm1d(n_outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.layer(x), x], dim=1)


class GeneratorNetwork:
    """Logits (n_codes, n_components) of a mixture as a network's outputs; a `helpers.synthesis.mixture.Parameters`.

    Two residual layers of 256 units with batch normalisation over the components, and a linear layer; Adam.
    Runs on a GPU where there is one.

    Parameters
    ----------
    n_components, n_codes, embedding_dim : int
    rng : numpy.random.Generator
        Draws noise vectors and first weights; need not be secret.
    """

    def __init__(self, n_components: int, n_codes: int, embedding_dim: int, rng: np.random.Generator):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._inputs = torch.tensor(rng.normal(size=(n_components, embedding_dim)), dtype=torch.float32, device=device)
        widths = [embedding_dim + i * _WIDTH for i in range(_LAYERS + 1)]
        layers = [_Residual(width, _WIDTH) for width in widths[:-1]]
        self._network = nn.Sequential(*layers, skip_init(nn.Linear, widths[-1], n_codes)).to(device)
        self._draw_weights(rng)
        self._adam = torch.optim.Adam(self._network.parameters())
        self._outputs: Tensor | None = None

    def logits(self) -> NDArray[np.float32]:
        self._outputs = self._network(self._inputs)
        return np.ascontiguousarray(self._outputs.detach().cpu().numpy().T)

    def step(self, gradient: NDArray[np.float32], rate: float) -> None:
        self._adam.param_groups[0]["lr"] = rate
        self._adam.zero_grad()
        self._outputs.backward(torch.from_numpy(np.ascontiguousarray(gradient.T)).to(self._outputs))
        self._adam.step()

    def state(self) -> list[NDArray]:
        return [weight.detach().cpu().numpy().copy() for weight in self._network.parameters()]

    def restore(self, state: Sequence[NDArray]) -> None:
        with torch.no_grad():
            for weight, value in zip(self._network.parameters(), state, strict=True):
                weight.copy_(torch.from_numpy(value))

    def _draw_weights(self, rng: np.random.Generator) -> None:
        """PyTorch's own law for linear layers, uniform within 1/sqrt(inputs), from the caller's generator."""
        with torch.no_grad():
            for module in self._network.modules():
                if isinstance(module, nn.Linear):
                    limit = module.in_features**-0.5
                    for weight in (module.weight, module.bias):
                        weight.copy_(torch.from_numpy(rng.uniform(-limit, limit, size=weight.shape)))
