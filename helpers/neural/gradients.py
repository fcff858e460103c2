"""Gradients of single records, clipped and summed: what a step of private training adds noise to.

The model and the loss are mapped over records by PyTorch's `torch.func`: no layer, loss or weight can let one record
into another's gradient, since none of them ever sees two records, and parameters may be shared. The result is not
private; noise is left to `training`.

The gradient of a matrix in an `nn.Linear` is never formed. What went in and the gradient of what came out are kept, and
norms and sums follow from these: for a matrix that a record meets at M places, the squared norm takes M x M inner
products, and all records share one product of matrices for the sum (ghost clipping without its second backward pass).

Norms, factors and sums are 64 bits wide, and every norm has room for its own rounding: what a record adds to the sum is
never longer than its bound.

Sources: Abadi et al. 2016, Algorithm 1; Goodfellow 2015 and Li, Tramer, Liang and Hashimoto 2022 (norms from inputs and
gradients of outputs). Opacus' `GradSampleModule` has the same gradients (`tests/test_neural_gradients.py`) but shows
every layer a whole batch; `benchmarks/neural.py` compares the times.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from helpers.neural.losses import RecordLoss

# Records whose gradients are in memory at a time: many where a network is small, because every call takes its time.
_FEW, _MANY = 256, 4096
_NUMBERS = 2**23, 2**26  # in all of these gradients: up to the first more than `_FEW`, never more than the second
_CACHED = 2**18  # numbers that are 64 bits wide at a time: more would leave the processor's cache


def clipped_sum(
    model: nn.Module,
    loss: RecordLoss,
    X: Tensor,
    y: Tensor,
    clip_norm: float,
    *,
    class_weight: Tensor | None = None,
    weighting: str = "loss",
    augment: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Sum over records of their clipped, weighted gradients: what a step adds noise to. **Not private.**

    Parameters
    ----------
    X, y : tensors (B, ...), (B,)
        A batch, possibly empty.
    clip_norm : float
        C. One record more moves the sum by at most C, with weighting "bound" by at most its weight times C.
    model, loss, class_weight, weighting, augment
        As in `train`.

    Returns
    -------
    dict of str to float64 tensors
        One for each trainable parameter, of its shape. A record whose gradient is not finite adds zero.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> total = clipped_sum(model, lambda z, y: z[:, 0], torch.tensor([[3.0, 4.0]]), torch.tensor([0]), 1.0)
    >>> total["weight"].numpy().round(4).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in trainable.items()}
    dtype = next(iter(trainable.values())).dtype
    n_numbers = sum(value.numel() for value in trainable.values())
    # The computed norm of n numbers, and their products with a factor, are off by less than n + 8 units of the last
    # digit (Higham 2002, section 3.1).
    room = 1 + (n_numbers + 8) * torch.finfo(torch.float64).eps
    n_together = max(min(_NUMBERS[0] // n_numbers, _MANY), min(_NUMBERS[1] // n_numbers, _FEW), 1)
    for start in range(0, len(y), n_together):
        records, labels = X[start : start + n_together], y[start : start + n_together]
        weights = ones = torch.ones(len(labels), dtype=torch.float64, device=labels.device)
        if class_weight is not None:
            weights = class_weight.to(weights)[labels]
        inside, outside = (weights, ones) if weighting == "loss" else (ones, weights)
        views = records[:, None] if augment is None else torch.stack([augment(record) for record in records])
        parts = _of_single_records(model, loss, as_input(views, model), labels, inside.to(dtype))
        norms = room * torch.linalg.vector_norm(torch.stack([part.norms() for part in parts.values()]), dim=0)
        finite = norms.isfinite()
        factors = torch.where(finite, outside * clip_norm / norms.clamp(min=clip_norm), 0.0)
        if not finite.all():  # zero times infinity is no number
            parts = {name: part.without((~finite).nonzero()[:, 0]) for name, part in parts.items()}
        for name, part in parts.items():
            total[name] += part.weighted_sum(factors).reshape(total[name].shape)
    return total


def as_input(records: Tensor, model: nn.Module) -> Tensor:
    """Floats and bytes in the type of the model's parameters, other integers as they are."""
    dtype = next(value.dtype for value in model.parameters() if value.requires_grad)
    return records.to(dtype) if records.is_floating_point() or records.dtype == torch.uint8 else records


@dataclass(frozen=True)
class _Rows:
    """Gradients (n, ...) of one parameter, as they are."""

    rows: Tensor

    def norms(self) -> Tensor:
        return torch.cat([torch.linalg.vector_norm(few, dim=1, dtype=torch.float64) for few in self._blocks()])

    def weighted_sum(self, factors: Tensor) -> Tensor:
        blocks = self._blocks()
        return sum(some @ few.double() for some, few in zip(factors.split(len(blocks[0])), blocks, strict=True))

    def without(self, spoiled: Tensor) -> "_Rows":
        return _Rows(self.rows.index_fill(0, spoiled, 0.0))

    def _blocks(self) -> tuple[Tensor, ...]:
        """Rows (n, size), few enough to stay in the cache with 64 bits a number."""
        rows = self.rows.flatten(1) if self.rows.ndim > 1 else self.rows[:, None]
        return rows.split(max(_CACHED // max(rows.shape[1], 1), 1))


@dataclass(frozen=True)
class _Products:
    """Gradients of a matrix: sums over M places of left (n, M, p) times right (n, M, d), 64 bits wide."""

    left: Tensor
    right: Tensor

    def norms(self) -> Tensor:
        left, right = self.left, self.right
        places = left.shape[1]
        if places == 1:
            return torch.linalg.vector_norm(left, dim=(1, 2)) * torch.linalg.vector_norm(right, dim=(1, 2))
        products = (left @ left.mT).mul_(right @ right.mT)
        squares, lengths = products.sum((1, 2)), products.diagonal(dim1=1, dim2=2).sqrt()
        # Room for what rounding takes off, here and in the sum, where the places cancel.
        terms = places**2 + left.shape[2] + right.shape[2]
        return (squares + 4 * terms * torch.finfo(torch.float64).eps * lengths.sum(1).square()).sqrt()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return (self.left * factors[:, None, None]).flatten(0, 1).T @ self.right.flatten(0, 1)

    def without(self, spoiled: Tensor) -> "_Products":
        return _Products(self.left.index_fill(0, spoiled, 0.0), self.right.index_fill(0, spoiled, 0.0))


def _of_single_records(
    model: nn.Module, loss: RecordLoss, views: Tensor, labels: Tensor, weights: Tensor
) -> dict[str, _Rows | _Products]:
    """Gradients of each record's weighted loss, a mean over its views (B, V, ...), by every trainable parameter."""
    fixed = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
    fixed |= dict(model.named_buffers())

    def record_loss(parameters, views, label, weight):
        logits = functional_call(model, (parameters, fixed), (views,))
        return weight * loss(logits, label.expand(len(views))).sum() / len(views)

    # `_kept` gives every record parameters of its own: with these, convolutions are slow, and PyTorch forgets padding.
    layers = model.modules()
    if not any(isinstance(layer, _ConvNd) or getattr(layer, "padding_idx", None) is not None for layer in layers):
        parts = _kept(model, record_loss, views, labels, weights)
        if parts is not None:
            return parts
    trainable = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    mapped = vmap(grad(record_loss), in_dims=(None, 0, 0, 0), randomness="different")
    return {name: _Rows(rows) for name, rows in mapped(trainable, views, labels, weights).items()}


def _kept(
    model: nn.Module, record_loss: Callable[..., Tensor], views: Tensor, labels: Tensor, weights: Tensor
) -> dict[str, _Rows | _Products] | None:
    """Gradients, those of matrices in products; None if a matrix is used outside its layer, or its layer not once."""
    n = len(labels)
    names = {value: name for name, value in model.named_parameters() if value.requires_grad}
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear and layer.weight in names]
    inside = [value for layer in layers for value in layer.parameters() if value in names]
    if len(set(inside)) < len(inside):
        return None
    shared = {names[value]: value.detach().requires_grad_() for value in inside}
    own = {name: value.detach().expand(n, *value.shape).requires_grad_() for value, name in names.items()
           if name not in shared}  # fmt: skip
    calls: list[list[tuple[Tensor, Tensor]]] = [[] for _ in layers]
    constant = [[None if value is None else value.detach() for value in (layer.weight, layer.bias)] for layer in layers]

    def watched_loss(own, views, label, weight, watched):
        for layer, values, seen in zip(layers, constant, calls, strict=True):
            layer.forward = functools.partial(_linear, watched, *values, seen.append)
        try:
            return record_loss(own | shared, views, label, weight) + watched
        finally:
            for layer in layers:
                del layer.forward

    watched = weights.new_zeros(n).requires_grad_()  # has autograd visit layers that nothing trainable stands before
    with torch.enable_grad():
        losses = vmap(watched_loss, randomness="different")(own, views, labels, weights, watched)
    inputs = [watched, *shared.values(), *own.values()]
    _, *gradients = torch.autograd.grad(losses.sum(), inputs, allow_unused=True)
    used_outside = any(gradient is not None for gradient in gradients[: len(shared)])
    if used_outside or any(len(seen) != 1 for seen in calls):
        return None
    parts: dict[str, _Rows | _Products] = {}
    for (name, value), rows in zip(own.items(), gradients[len(shared) :], strict=True):
        parts[name] = _Rows(torch.zeros_like(value) if rows is None else rows)
    for layer, [sides] in zip(layers, calls, strict=True):
        left, right = (side.unflatten(0, (n, -1)) for side in sides)
        if layer.bias in names:
            parts[names[layer.bias]] = _Rows(left.sum(1))
        fewer = left.shape[1] * (left.shape[2] + right.shape[2]) <= left.shape[2] * right.shape[2]
        parts[names[layer.weight]] = _Products(left.double(), right.double()) if fewer else _Rows(left.mT @ right)
    return parts


def _linear(watched: Tensor, matrix: Tensor, bias: Tensor | None, keep: Callable[..., Any], x: Tensor) -> Tensor:
    rows = _Linear.apply(x.reshape(-1, x.shape[-1]), watched, matrix, bias, keep)
    return rows.reshape(*x.shape[:-1], len(matrix))


class _Linear(torch.autograd.Function):
    """Rows x (m, d) to x W^T + b (m, p); `keep` is told the gradient of what came out and what went in."""

    @staticmethod
    def forward(x: Tensor, watched: Tensor, matrix: Tensor, bias: Tensor | None, keep: Callable[..., Any]) -> Tensor:
        return functional.linear(x, matrix, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, _, matrix, _, ctx.keep = inputs
        ctx.save_for_backward(x, matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix = ctx.saved_tensors
        ctx.keep((gradient, x.detach()))
        return gradient @ matrix if ctx.needs_input_grad[0] else None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, *others: Any) -> tuple[Tensor, int]:
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        return _Linear.apply(x.flatten(0, 1), *others).unflatten(0, (info.batch_size, -1)), 0
