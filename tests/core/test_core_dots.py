"""Scores of a few candidates per position against the sum written out."""

from __future__ import annotations

import pytest
import torch

from recbole_denoiser.core.dots import FEW, dots


@pytest.mark.parametrize("count", [0, 1, 2, FEW, FEW + 1, 20])
def test_values_and_gradients_of_both_orders(count: int) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(7, count, 3, dtype=torch.float64, requires_grad=True)
    state = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    expected = (vectors * state[:, None]).sum(2)
    torch.testing.assert_close(dots(vectors, state), expected)
    with torch.no_grad():
        torch.testing.assert_close(dots(vectors, state), expected)
    if count:
        assert torch.autograd.gradcheck(dots, (vectors, state))
        assert torch.autograd.gradgradcheck(dots, (vectors, state))


def test_half_precision_is_near() -> None:
    torch.manual_seed(0)
    vectors, state = torch.randn(5, 2, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = dots(vectors, state)
    assert scores.dtype == torch.bfloat16
    scores.float().sum().backward()
    assert state.grad is not None and vectors.grad is not None
    torch.testing.assert_close(state.grad, vectors.detach().sum(1), rtol=0.05, atol=0.05)
    torch.testing.assert_close(vectors.grad, state.detach()[:, None].expand(5, 2, 4), rtol=0.05, atol=0.05)
