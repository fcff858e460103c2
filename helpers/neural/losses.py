"""Losses of single records, for private training under class imbalance.

Each loss is a value: called with logits (B, K) and labels (B,), it returns one number for each record (B,), in which
no other record has a part. Nothing is averaged over a batch: a mean that divides by the batch's weights would let one
record move the gradients of the others.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from helpers.validation import check_real

RecordLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CrossEntropy:
    """-log p_y.

    >>> round(CrossEntropy()(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    0.6931
    """

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class Focal:
    """-(1 - p_y)^gamma log p_y: records that the model is sure about count less.

    Parameters
    ----------
    gamma : float
        At least 0; 0 is cross-entropy.

    Raises
    ------
    ValueError
        `gamma` is out of range.

    Source: Lin, Goyal, Girshick, He and Dollar 2017, equation 4.

    >>> round(Focal(2.0)(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    0.1733
    """

    gamma: float = 2.0

    def __post_init__(self):
        check_real("gamma", self.gamma, low=0)

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = functional.cross_entropy(logits, labels, reduction="none")
        # The power's slope is infinite at 0 for gamma < 1, so a record that is classified perfectly stays above it.
        return torch.clamp(-torch.expm1(-loss), min=1e-12) ** self.gamma * loss
