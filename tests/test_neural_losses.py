"""Losses of single records: against their formulas, without a share of other records, with finite slopes."""

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from helpers.neural import LDAM, CrossEntropy, Focal, LogitAdjusted, effective_number_weights

LOSSES = [CrossEntropy(), Focal(0.5), Focal(2.0), LogitAdjusted((0.7, 0.2, 0.1), 1.5), LDAM((100.0, 10.0, 1.0))]
each = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
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


def test_values_are_those_of_the_formulas():
    p = torch.softmax(LOGITS, 1)[torch.arange(3), LABELS]
    torch.testing.assert_close(Focal(2.0)(LOGITS, LABELS), -((1 - p) ** 2) * p.log())
    priors = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    adjusted = torch.softmax(LOGITS, 1) * priors**1.5
    expected = -(adjusted[torch.arange(3), LABELS] / adjusted.sum(1)).log()
    torch.testing.assert_close(LogitAdjusted((7.0, 2.0, 1.0), 1.5)(LOGITS, LABELS), expected)
    lowered = LOGITS.clone()
    for i, y in enumerate(LABELS.tolist()):
        lowered[i, y] -= 0.3 * (1 / (1, 16, 81)[y]) ** 0.25 * 1.0
    expected = -torch.log_softmax(5 * lowered, 1)[torch.arange(3), LABELS]
    torch.testing.assert_close(LDAM((1.0, 16.0, 81.0), 0.3, 5.0)(LOGITS, LABELS), expected)


def test_effective_numbers_run_from_equal_to_inverse_counts():
    counts = (900.0, 90.0, 9.0)
    assert effective_number_weights(counts, 0.0).tolist() == [1, 1, 1]
    np.testing.assert_allclose(effective_number_weights(counts, 1 - 1e-9), 9 / np.array(counts), rtol=1e-5)
    np.testing.assert_allclose(effective_number_weights(counts, 1.0), 9 / np.array(counts))
    # (1 - beta) / (1 - beta^n), with sums of powers in place of the formula
    numbers = np.array([sum(0.99**i for i in range(int(count))) for count in counts])
    np.testing.assert_allclose(effective_number_weights(counts, 0.99), numbers[-1] / numbers)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Focal(-1.0), "gamma must"),
        (lambda: LogitAdjusted((0.5, 0.0)), "priors must"),
        (lambda: LogitAdjusted((0.5, 0.5), -1.0), "tau must"),
        (lambda: LDAM((1.0, -2.0)), "counts must"),
        (lambda: LDAM((1.0, 2.0), scale=0.0), "scale must"),
        (lambda: effective_number_weights((1.0,), 1.1), "beta must"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
