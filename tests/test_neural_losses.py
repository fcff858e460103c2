"""Losses of single records: against their formulas, without a share of other records, with finite slopes."""

import pytest
import torch
from torch.func import grad, vmap

from helpers.neural import CrossEntropy, Focal

LOSSES = [CrossEntropy(), Focal(0.5), Focal(2.0)]
each = pytest.mark.parametrize("loss", LOSSES, ids=str)
LOGITS = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 0.0], [-1.0, 0.2, 2.0]], dtype=torch.float64)
LABELS = torch.tensor([2, 1, 0])


@each
def test_no_record_has_a_part_in_anothers_loss(loss):
    alone = torch.cat([loss(z[None], y[None]) for z, y in zip(LOGITS, LABELS, strict=True)])
    torch.testing.assert_close(loss(LOGITS, LABELS), alone)
    assert alone.shape == (3,)


@each
def test_gradients_of_single_records_are_those_of_single_calls(loss):
    """As the trainer takes them: mapped over a batch."""
    mapped = vmap(grad(lambda z, y: loss(z[None], y[None]).sum()))(LOGITS, LABELS)
    for i in range(3):
        alone = LOGITS[i : i + 1].clone().requires_grad_()
        loss(alone, LABELS[i : i + 1]).sum().backward()
        torch.testing.assert_close(mapped[i], alone.grad[0])


@each
@pytest.mark.parametrize("size", [0.0, 30.0, -30.0, 1e4])
def test_slopes_are_finite(loss, size):
    logits = torch.tensor([[size, 0.0, 0.0]], requires_grad=True)
    loss(logits, torch.tensor([0])).sum().backward()
    assert logits.grad.isfinite().all()


def test_values_are_those_of_the_formula():
    p = torch.softmax(LOGITS, 1)[torch.arange(3), LABELS]
    torch.testing.assert_close(Focal(2.0)(LOGITS, LABELS), -((1 - p) ** 2) * p.log())


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match="gamma must"):
        Focal(-1.0)
