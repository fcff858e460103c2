"""Losses of single records, for private training under class imbalance.

Each loss is a value: called with logits (B, K) and labels (B,), it returns one number for each record (B,), in which
no other record has a part. Nothing is averaged over a batch: a mean that divides by the batch's weights would let one
record move the gradients of the others. Priors and counts are public, or noisy and paid for; the caller answers for it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from helpers.checks import check_real

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


@dataclass(frozen=True)
class LogitAdjusted:
    """Cross-entropy of logits + tau log(prior): the model learns scores for balanced classes.

    Parameters
    ----------
    priors : tuple of float, (K,)
        Public (or private and paid for) class probabilities, > 0; scaled to sum to 1.
    tau : float
        At least 0; 0 is cross-entropy.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Source: Menon, Jayasumana, Rawat, Jain, Veit and Kumar 2021.

    >>> round(LogitAdjusted((0.9, 0.1))(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    2.3026
    """

    priors: tuple[float, ...]
    tau: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "priors", _positive_numbers("priors", self.priors))
        check_real("tau", self.tau, low=0)

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        total = sum(self.priors)
        offsets = logits.new_tensor([self.tau * math.log(prior / total) for prior in self.priors])
        return functional.cross_entropy(logits + offsets, labels, reduction="none")


@dataclass(frozen=True)
class LDAM:
    """Cross-entropy with a margin for each class, larger for rarer ones: label-distribution-aware margins.

    The true class's logit is lowered by max_margin (n_min / n_y)^(1/4), and all logits are multiplied by `scale`.

    Parameters
    ----------
    counts : tuple of float, (K,)
        Public (or private and paid for) class counts, > 0; only their ratios matter.
    max_margin : float
        Margin of the rarest class, at least 0.
    scale : float
        > 0. The default is for a last layer whose rows and inputs have length 1; logits without a bound want 1.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Source: Cao, Wei, Gaidon, Arechiga and Ma 2019.

    >>> round(LDAM((16.0, 1.0), scale=1.0)(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    0.9741
    """

    counts: tuple[float, ...]
    max_margin: float = 0.5
    scale: float = 30.0

    def __post_init__(self):
        object.__setattr__(self, "counts", _positive_numbers("counts", self.counts))
        check_real("max_margin", self.max_margin, low=0)
        check_real("scale", self.scale, low=0, inclusive="neither")

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        least = min(self.counts)
        margins = logits.new_tensor([self.max_margin * (least / count) ** 0.25 for count in self.counts])
        own = labels[:, None] == torch.arange(len(self.counts), device=labels.device)  # one_hot fails under vmap
        lowered = own * margins
        return functional.cross_entropy(self.scale * (logits - lowered), labels, reduction="none")


def effective_number_weights(counts: Iterable[float], beta: float = 0.999) -> NDArray[np.float64]:
    """Class weights (K,) in proportion to (1 - beta) / (1 - beta^count), the largest of them 1.

    Parameters
    ----------
    counts : iterable of float, (K,)
        Public (or private and paid for) class counts, > 0.
    beta : float
        In [0, 1]: 0 weighs all classes alike, 1 (the limit) by the inverse count.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Source: Cui, Jia, Lin, Song and Belongie 2019.

    >>> effective_number_weights((1000.0, 10.0), beta=0.99).round(4).tolist()
    [0.0956, 1.0]
    """
    numbers = np.array(_positive_numbers("counts", counts))
    beta = check_real("beta", beta, low=0, high=1)
    if 0 < beta < 1:
        numbers = -np.expm1(numbers * math.log(beta))  # 1 - beta^count, with its digits where beta is near 1
    elif beta == 0:
        numbers = np.ones_like(numbers)
    return numbers.min() / numbers


def _positive_numbers(name: str, values: Iterable[float]) -> tuple[float, ...]:
    return tuple(check_real(name, value, low=0, inclusive="neither") for value in values)
