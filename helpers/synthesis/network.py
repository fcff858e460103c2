"""The generator network of GEM: fixed noise vectors in, one component of a mixture of products out for each.

It sees noisy measurements only, through the gradient that it is handed, and promises nothing about privacy. Its weights
and its noise vectors come from the caller's generator, never from PyTorch's global one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from helpers.synthesis.mixture import MixtureFit

_WIDTH = 256  # the published code has twice the embedding's length, at several times the cost of a step
_LAYERS = 2
# PyTorch puts an object in the place of the module that mypy reads.
_BFLOAT = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
_ROUNDED: dict[Any, str] = {torch.backends.cuda.matmul: "tf32", _BFLOAT: "bf16"}


class _Residual(nn.Module):
    """Each layer, and the last, sees the noise itself and the outputs of all layers before it."""

    def __init__(self, n_noise: int, n_outputs: int):
        super().__init__()
        sizes = [_WIDTH] * _LAYERS + [n_outputs]
        self.layers = nn.ModuleList([nn.Linear(n_noise + i * _WIDTH, size) for i, size in enumerate(sizes)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(_WIDTH) for _ in range(_LAYERS)])

    def forward(self, noise: Tensor) -> Tensor:
        """Outputs (n, n_outputs) for noise vectors (n, n_noise)."""
        *layers, last = self.layers
        # No outputs yet: columns are added in front, layer by layer.
        hidden = noise[:, :0]
        for layer, norm in zip(layers, self.norms, strict=True):
            hidden = torch.cat([torch.relu(norm(_apply(layer, noise, hidden))), hidden], dim=1)
        return _apply(last, noise, hidden)


def _apply(layer: nn.Module, noise: Tensor, hidden: Tensor) -> Tensor:
    """A linear layer of both, as two products: nothing is derived by the noise, which never changes."""
    of_noise, of_hidden = layer.get_parameter("weight").split([noise.shape[1], hidden.shape[1]], dim=1)
    return linear(noise, of_noise, layer.get_parameter("bias")) + linear(hidden, of_hidden)


class NetworkFit(MixtureFit):
    """A mixture of components of equal weight whose logits are a network's outputs; its weights are the parameters.

    Two residual layers of 256 units with batch normalisation over the components, and a linear layer; Adam.
    Runs on a GPU where there is one, else on one thread. Products are rounded to bfloat16 where the processor has it,
    which takes half the time; weights, sums and Adam are in single precision.

    Parameters
    ----------
    embedding_dim : int
        Length of the noise vectors.
    n_components, sizes, rng
        As in `MixtureFit`.
    """

    def __init__(self, embedding_dim: int, n_components: int, sizes: Sequence[int], rng: np.random.Generator):
        self._embedding_dim = embedding_dim
        super().__init__(n_components, sizes, rng)

    def _begin(self, n_components: int, sizes: Sequence[int], rng: np.random.Generator) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        noise = rng.normal(size=(n_components, self._embedding_dim))
        self._inputs = torch.tensor(noise, dtype=torch.float32, device=device)
        with torch.random.fork_rng():  # PyTorch's global generator stays as it is
            torch.manual_seed(int(rng.integers(2**63)))
            self._network = _Residual(self._embedding_dim, sum(sizes)).to(device)
        self._adam = torch.optim.Adam(self._network.parameters(), fused=True)
        self._outputs: Tensor  # of the latest `_logits`

    def state(self) -> NDArray[np.float32]:
        return parameters_to_vector(self._network.parameters()).detach().cpu().numpy()

    def restore(self, state: NDArray[np.float32]) -> None:
        vector_to_parameters(torch.from_numpy(state).to(self._inputs), self._network.parameters())

    def _logits(self) -> NDArray[np.float32]:
        with _faster():
            self._outputs = self._network(self._inputs).T
        return self._outputs.detach().cpu().numpy()

    def _step(self, gradient: NDArray[np.float32], rate: float) -> None:
        self._adam.param_groups[0]["lr"] = rate
        self._adam.zero_grad()
        with _faster():
            # Backpropagation starts at the outputs: the gradient by them comes from the mixture's loss.
            self._outputs.backward(torch.from_numpy(gradient[:-1]).to(self._outputs))  # without that of the weights
            self._adam.step()


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
