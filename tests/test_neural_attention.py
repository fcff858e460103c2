"""Attention among few tokens: the function and the derivative that are written out, record by record."""

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from helpers.neural.attention import attend

pytest_plugins = ("neural_torch",)
pytestmark = pytest.mark.usefixtures("one_thread_and_one_seed")


def plain(x, heads, queries):
    """By PyTorch's own attention."""
    query, key, value = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in x.chunk(3, dim=2))
    answers = functional.scaled_dot_product_attention(query[:, :, :queries], key, value)
    return answers.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("tokens", "heads", "size", "queries"), [(1, 1, 1, 1), (4, 2, 3, None), (4, 3, 2, 1), (9, 1, 5, 2)]
)
def test_answers_and_gradients_are_those_of_pytorch(tokens, heads, size, queries):
    x = torch.randn(5, tokens, 3 * heads * size, dtype=torch.double, requires_grad=True)
    pull = torch.randn(5, queries or tokens, heads * size, dtype=torch.double)
    ours, theirs = attend(x, heads, queries), plain(x, heads, queries)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(answers, x, pull)[0] for answers in (ours, theirs)]
    torch.testing.assert_close(*gradients)
    rows = vmap(grad(lambda row, by: (attend(row[None], heads, queries)[0] * by).sum()))(x.detach(), pull)
    torch.testing.assert_close(rows, gradients[1])


def test_scores_without_end_are_no_overflow():
    x = 1e3 * torch.randn(3, 4, 12)
    torch.testing.assert_close(attend(x, 2, 4), plain(x, 2, 4))


def test_a_record_that_is_not_a_number_spoils_nobody_else():
    x = torch.randn(4, 3, 12, requires_grad=True)
    tainted = torch.cat([x[:2], torch.full((1, 3, 12), torch.nan), x[3:]])
    answers = attend(tainted, 2, 3)
    slopes = torch.autograd.grad(answers, tainted, torch.ones_like(answers))[0]
    for values in (answers, slopes):
        assert values[2].isnan().all()
        assert values[[0, 1, 3]].isfinite().all()
    torch.testing.assert_close(answers[3], attend(x, 2, 3)[3])


@pytest.mark.parametrize("share", [0.1, 0.75])
def test_dropped_weights_have_the_gradient_of_what_is_left(share):
    """With values that name their token, the answers show which weights are left; the rest is arithmetic."""
    tokens = 5
    x = torch.randn(400, tokens, 3 * tokens, dtype=torch.double)
    x[:, :, 2 * tokens :] = torch.eye(tokens)
    x.requires_grad_()
    answers = attend(x, 1, tokens, share)
    whole = plain(x, 1, tokens)
    factors = (answers / whole).detach()
    left = factors > 0.5
    torch.testing.assert_close(factors[left], torch.full_like(factors[left], 1 / (1 - share)), rtol=1e-4, atol=0)
    assert abs(left.double().mean() - (1 - share)) < 5 * (share * (1 - share) / left.numel()) ** 0.5
    pull = torch.randn_like(answers)
    ours, theirs = (
        torch.autograd.grad(out, x, by)[0][..., : 2 * tokens] for out, by in ((answers, pull), (whole, pull * factors))
    )
    torch.testing.assert_close(ours, theirs)


def test_every_weight_is_dropped_alone():
    """No correlation between the weights of a record or between records, by either route."""
    x = torch.zeros(4000, 8, 24)
    x[:, :, 16:] = torch.eye(8)  # answers show the weights
    mapped = vmap(lambda record: attend(record[None], 1, 1, 0.5)[0], randomness="different")
    for answers in (attend(x, 1, 1, 0.5), mapped(x)):
        signs = (answers[:, 0] > 0).double() - 0.5
        products = (signs.T @ signs) / (0.25 * len(signs))
        assert (products - torch.eye(8)).abs().max() < 5 / len(signs) ** 0.5
        assert abs((signs[1:] * signs[:-1]).mean()) < 5 * 0.25 / signs.numel() ** 0.5


def test_random_attention_may_not_be_mapped_as_if_it_were_none():
    """It would get its gradient from another draw."""
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda x: attend(x[None], 2, 3, 0.5)[0])(torch.ones(2, 3, 12))
    answers = vmap(lambda x: attend(x[None], 2, 3, 0.5)[0], randomness="different")(torch.ones(2, 3, 12))
    assert answers.shape == (2, 3, 4)
