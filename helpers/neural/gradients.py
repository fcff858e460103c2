"""Gradients of single records, clipped and summed: what a step of private training adds noise to.

PyTorch's `torch.func` differentiates the loss of one record as a function of that record alone and maps this over a
batch. No layer, loss or weight can let one record into another's gradient, since none of them ever sees two records;
no layer needs a rule of its own, and parameters may be shared. The result is not private; noise is left to `training`.

Norms, factors and sums are 64 bits wide, and every norm has room for its own rounding: what a record adds to the sum is
never longer than its bound.

Source: Abadi et al. 2016, Algorithm 1. Opacus' `GradSampleModule`, which has a rule for each kind of layer, gives the
same gradients (`tests/test_neural_gradients.py`) in .8 to 1.5 times the time on this package's networks.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from helpers.neural.losses import RecordLoss

# Records whose gradients are in memory at a time: many where a network is small, because every call takes its time.
_FEW, _MANY = 256, 1024
_NUMBERS = 2**22, 2**26  # in all of these gradients: up to the first more than `_FEW`, never more than the second
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
        # "loss" multiplies the gradient before it is clipped, "bound" afterwards.
        inside, outside = (weights, ones) if weighting == "loss" else (ones, weights)
        views = records[:, None] if augment is None else torch.stack([augment(record) for record in records])
        gradients = _of_single_records(model, loss, as_input(views, model), labels, inside)
        parts = torch.stack([_norms(rows) for rows in gradients.values()])
        norms = room * torch.linalg.vector_norm(parts, dim=0)
        finite = norms.isfinite()
        # min(1, C / norm) times the weight, and 0 for a record whose gradient is not finite.
        factors = torch.where(finite, outside * clip_norm / norms.clamp(min=clip_norm), 0.0)
        for name, rows in gradients.items():
            if not finite.all():  # zero times infinity is no number
                rows = rows.index_fill(0, (~finite).nonzero()[:, 0], 0.0)
            total[name] += _weighted_sum(factors, rows).reshape(total[name].shape)
    return total


def as_input(records: Tensor, model: nn.Module) -> Tensor:
    """Floats and bytes in the type of the model's parameters, other integers as they are."""
    dtype = next(value.dtype for value in model.parameters() if value.requires_grad)
    return records.to(dtype) if records.is_floating_point() or records.dtype == torch.uint8 else records


def _of_single_records(
    model: nn.Module, loss: RecordLoss, views: Tensor, labels: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Gradients (B, ...) of each record's weighted loss, a mean over its views (B, V, ...), by every parameter."""
    trainable = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    fixed = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
    fixed |= dict(model.named_buffers())

    def record_loss(parameters, views, label, weight):
        logits = functional_call(model, (parameters, fixed), (views,))
        return weight * loss(logits, label.expand(len(views))).sum() / len(views)

    dtype = next(iter(trainable.values())).dtype
    mapped = vmap(grad(record_loss), in_dims=(None, 0, 0, 0), randomness="different")
    return mapped(trainable, views, labels, weights.to(dtype))


def _blocks(rows: Tensor) -> tuple[Tensor, ...]:
    """Rows (n, size), few enough to stay in the cache with 64 bits a number."""
    rows = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
    return rows.split(max(_CACHED // max(rows.shape[1], 1), 1))


def _norms(rows: Tensor) -> Tensor:
    """Euclidean norms (n,), in 64 bits, of the rows (n, ...) of one parameter's gradients."""
    return torch.cat([torch.linalg.vector_norm(few, dim=1, dtype=torch.float64) for few in _blocks(rows)])


def _weighted_sum(factors: Tensor, rows: Tensor) -> Tensor:
    """Sum (size,) of the rows (n, ...), flattened, times the factors (n,), in 64 bits."""
    blocks = _blocks(rows)
    return sum(some @ few.double() for some, few in zip(factors.split(len(blocks[0])), blocks, strict=True))
