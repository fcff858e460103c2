"""Attention among the few tokens of a table's row, for one core.

Heads of four numbers and ten tokens are too small for products of matrices: with them, attention takes most of the
time of a transformer's step. Here records come last, so that every operation runs over long stretches of memory, and
the derivative is written out: a step of the whole transformer takes three quarters of the time that it takes with
products of matrices, for seven tokens and for twenty-one.

Each record is taken alone. Mapped over records (`torch.func.vmap`), attention is one larger batch.
"""

import math
from typing import Any

import torch
from torch import Tensor

_CHANCES = 2**16


def attend(x: Tensor, heads: int, queries: int | None, dropout: float = 0.0) -> Tensor:
    """Multi-head attention of the first tokens to all.

    Parameters
    ----------
    x : tensor (B, T, 3 dim)
        Queries, keys and values of every token, each `heads` stretches long.
    heads : int
        A divisor of dim.
    queries : int or None
        Tokens whose answer is wanted, at most T; None: all.
    dropout : float
        Share of the weights that are dropped, in [0, 1), rounded to a multiple of 2^-16.

    Returns
    -------
    tensor (B, queries, dim)

    >>> attend(torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 2.0]]]), heads=1, queries=1)
    tensor([[[1.5000]]])
    """
    return _Attention.apply(x, heads, queries, dropout)[0]


def _kept(like: Tensor, share: float) -> Tensor:
    """Zeros with probability `share`, and otherwise one over the probability of not being zero.

    PyTorch's generator takes as long for one number of 16 bits as for one of 64, which is four of them.
    """
    dropped = min(round(share * _CHANCES), _CHANCES - 1)
    # One word of 64 random bits gives four numbers of 16.
    words = torch.empty(math.ceil(like.numel() / 4), dtype=torch.long, device=like.device).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: like.numel()].view_as(like)
    return (numbers >= dropped - _CHANCES // 2).to(like.dtype).mul_(_CHANCES / (_CHANCES - dropped))


class _Attention(torch.autograd.Function):
    """Answers (B, Q, dim); queries, keys, values (3, T, c, heads, B); weights (Q, T, heads, B), whole and dropped."""

    @staticmethod
    def forward(x: Tensor, heads: int, queries: int | None, share: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        parts = x.unflatten(2, (3, heads, -1)).permute(2, 1, 4, 3, 0).contiguous()
        query, key, value = parts[0, :queries], parts[1], parts[2]
        weights = _inner(query * key.shape[1] ** -0.5, key)
        # Softmax over the tokens attended to; the largest logit is subtracted so that no exponential overflows.
        weights = weights.sub_(weights.amax(1, keepdim=True)).exp_()
        weights = weights.div_(weights.sum(1, keepdim=True))
        dropped = weights * _kept(weights, share) if share else weights.clone()
        answers = _mixed(dropped, value, torch.zeros_like(query))
        return answers.permute(3, 0, 2, 1).flatten(2), parts, weights, dropped

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, None, None, None]:
        return _AttentionGradient.apply(gradient, *ctx.saved_tensors), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, *options: Any) -> tuple[tuple, tuple]:
        if options[-1] and info.randomness != "different":
            # As PyTorch's own random functions: whoever maps has to say that every record draws for itself.
            raise RuntimeError(f"dropout needs randomness='different' where it is mapped, got {info.randomness!r}")
        x = x.movedim(in_dims[0], 0)
        answers, *rest = _Attention.apply(x.flatten(0, 1), *options)
        rest = [values.unflatten(-1, x.shape[:2]) for values in rest]
        return (answers.unflatten(0, x.shape[:2]), *rest), (0, *(values.ndim - 2 for values in rest))


class _AttentionGradient(torch.autograd.Function):
    """The gradient (B, T, 3 dim) of what went in, from that of the answers and all that was kept."""

    @staticmethod
    def forward(gradient: Tensor, parts: Tensor, weights: Tensor, dropped: Tensor) -> Tensor:
        queries = len(weights)
        query, key, value = parts[0, :queries], parts[1], parts[2]
        gradient = gradient.unflatten(2, (parts.shape[3], -1)).permute(1, 3, 2, 0).contiguous()
        slopes = _inner(gradient, value).mul_(dropped)
        # The derivative of softmax: slope less the mean slope under the weights, times the weight. `dropped` holds the
        # weight and the mask already.
        slopes.addcmul_(weights, slopes.sum(1, keepdim=True), value=-1).mul_(key.shape[1] ** -0.5)
        total = torch.zeros_like(parts)
        _mixed(slopes, key, total[0, :queries])
        _mixed(slopes.transpose(0, 1), query, total[1])
        _mixed(dropped.transpose(0, 1), gradient, total[2])
        return total.permute(4, 1, 0, 3, 2).flatten(2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        """Nothing: it has no derivative of its own."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple, gradient: Tensor, *kept: Tensor) -> tuple[Tensor, int]:
        gradient = gradient.movedim(in_dims[0], 0)
        flat = [values.movedim(dim, -2).flatten(-2) for values, dim in zip(kept, in_dims[1:], strict=True)]
        return _AttentionGradient.apply(gradient.flatten(0, 1), *flat).unflatten(0, gradient.shape[:2]), 0


def _inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner products (I, J, ...) of vectors (I, c, ...) and (J, c, ...)."""
    total = left[:, None, 0] * right[None, :, 0]
    for k in range(1, left.shape[1]):
        total.addcmul_(left[:, None, k], right[None, :, k])
    return total


def _mixed(weights: Tensor, vectors: Tensor, total: Tensor) -> Tensor:
    """Adds to (I, c, ...) the sums of vectors (J, c, ...) by weights (I, J, ...)."""
    for j in range(len(vectors)):
        total.addcmul_(weights[:, j, None], vectors[j])
    return total
