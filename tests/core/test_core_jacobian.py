"""Hutchinson's estimate against the whole Jacobian (eq. 14): exact by enumerating all sign vectors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_models import Block, SoftmaxAttention, softmax_encoder

from recbole_denoiser.core import (
    DenoiserConfig,
    block_penalty,
    denoise,
    exact_jacobian_norm,
    jacobian,
    jacobian_penalty,
    passes,
)
from recbole_denoiser.core.jacobian import projected_norm, real_outputs
from recbole_denoiser.core.passes import FixedMask, ruled

M, D = 3, 3  # with d = 2 LayerNorm can only answer +-1 and every Jacobian would be 0
VALID = torch.tensor([[True, True, False]])  # the last position is padding


def block_fn(dropout: float = 0.0) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """A Transformer block as a function of its input; dropout draws the same noise at every call."""
    torch.manual_seed(0)
    block = Block(SoftmaxAttention(D), D, dropout).double()
    mask = torch.zeros(1, 1, M, M, dtype=torch.float64)  # padding is seen, so leaving it out must be done by `valid`

    def run(x: Tensor) -> Tensor:
        state = torch.get_rng_state()
        torch.manual_seed(7)
        try:
            return block(x, mask)
        finally:
            torch.set_rng_state(state)

    return block, run


def all_signs(valid: Tensor, d: int) -> list[Tensor]:
    """Every eta of +-1 on the real positions."""
    real = int(valid.sum())
    etas = []
    for signs in itertools.product([-1.0, 1.0], repeat=real * d):
        eta = torch.zeros(*valid.shape, d, dtype=torch.float64)
        eta[valid] = torch.tensor(signs, dtype=torch.float64).view(real, d)
        etas.append(eta)
    return etas


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("method", ["vjp", "finite_difference"])
def test_mean_over_all_signs_is_exact(method: str, dropout: float) -> None:
    _, run = block_fn(dropout)
    x = torch.randn(1, M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    etas = all_signs(VALID, D)
    mean = sum(projected_norm(run, x, VALID, eta, method, 1e-4) for eta in etas) / len(etas)
    exact = exact_jacobian_norm(run, x, VALID)
    assert exact > 0.05
    torch.testing.assert_close(mean / real_outputs(x, VALID), exact, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("method", ["vjp", "finite_difference"])
def test_parameter_gradient_through_layer_norm(method: str) -> None:
    block, run = block_fn()
    x = torch.randn(1, M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    eta = all_signs(VALID, D)[5]
    for parameter in (block.norm1.weight, block.attention.query.weight, block.feed_forward[0].weight):
        (got,) = torch.autograd.grad(projected_norm(run, x, VALID, eta, method, 1e-4), parameter)
        with torch.no_grad():
            entry, step = parameter.view(-1)[1:2], 1e-5
            sides = []
            for sign in (1, -1):
                entry += sign * step
                with torch.enable_grad():
                    sides.append(projected_norm(run, x, VALID, eta, method, 1e-4).detach())
                entry -= sign * step
        torch.testing.assert_close(got.view(-1)[1], (sides[0] - sides[1]) / (2 * step), atol=1e-5, rtol=1e-4)


def test_finite_difference_leaves_the_random_state_as_one_pass_would() -> None:
    layer = torch.nn.Dropout(0.5)
    x, valid = torch.randn(1, M, D), torch.ones(1, M, dtype=torch.bool)
    eta = torch.ones(1, M, D)
    torch.manual_seed(0)
    layer(x)
    after_one_pass = torch.get_rng_state()
    torch.manual_seed(0)
    norm = projected_norm(layer, x, valid, eta, "finite_difference")
    assert torch.equal(torch.get_rng_state(), after_one_pass)
    torch.manual_seed(0)
    kept = (layer(torch.ones_like(x)) ** 2).sum()  # J is diagonal: 2 where kept
    torch.testing.assert_close(norm, kept, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("noise", ["rademacher", "gaussian"])
def test_penalty_is_close_with_many_projections(noise: str) -> None:
    _, run = block_fn()
    torch.manual_seed(4)
    x = torch.randn(1, M, D, dtype=torch.float64)
    estimate = jacobian_penalty(run, x, VALID, projections=300, noise=noise)
    torch.testing.assert_close(estimate, exact_jacobian_norm(run, x, VALID), rtol=0.25, atol=0)


@pytest.mark.parametrize("form", ["product", "renormalise"])
def test_sub_batch_of_the_denoiser_is_unbiased(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean of R_J over all choices of one sequence and all signs = the whole batch's penalty at the same Z."""
    torch.manual_seed(0)
    model: Any = softmax_encoder(layers=1, d=D, n=2).double()
    items, targets = torch.tensor([[3, 4], [5, 0], [6, 7]]), torch.tensor([[1, 2], [3, 4], [5, 6]])
    valid = items != 0
    settings: dict[str, Any] = {"estimator": "ar", "gamma": 1.0, "jacobian_batch": 1, "mask_init": 0.5}
    config = DenoiserConfig(max_length=2, mask_form=form, **settings)
    denoiser: Any = denoise(model, config)
    U = torch.rand(3, 1, 2, 2, dtype=torch.float64)
    monkeypatch.setattr(passes, "uniform", lambda shape, dtype, device: U)
    values = []
    for b in range(3):
        monkeypatch.setattr(block_penalty.torch, "randperm", lambda n, device, b=b: torch.tensor([b]))
        signs = all_signs(valid[b : b + 1], D)
        per_sign = []
        for eta in signs:
            monkeypatch.setattr(jacobian, "draw_projection", lambda x, valid, noise, eta=eta: eta)
            per_sign.append(denoiser.loss(lambda: model.losses(items, targets), valid).r_j)
        values.append(torch.stack(per_sign).mean())
    x = model.items(items) + model.positions.weight
    mask = model.attention_mask(items).double()
    Z = (torch.sigmoid(denoiser.masks[0].phi) > U).double()
    with ruled(denoiser.sites, FixedMask({0: Z})):
        exact = exact_jacobian_norm(lambda x: model.layers[0](x, mask), x.detach(), valid)
    assert exact > 0.05
    torch.testing.assert_close(torch.stack(values).mean(), exact, atol=1e-10, rtol=1e-8)


def test_penalty_trains_the_block_and_the_layers_below() -> None:
    torch.manual_seed(0)
    model: Any = softmax_encoder(layers=2)
    denoiser = denoise(model, DenoiserConfig(max_length=6, gamma=1.0, estimator="ar"))
    items = torch.randint(1, 20, (5, 6))
    result = denoiser.loss(lambda: model.losses(items, items))
    gradients = torch.autograd.grad(result.jacobian, [model.layers[0].norm2.weight, model.items.weight])
    assert all(float(g.abs().sum()) > 0 for g in gradients)
    assert result.r_j > 0
