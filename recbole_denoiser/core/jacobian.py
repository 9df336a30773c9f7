"""Jacobian penalty of a Transformer block (section 4.2, eq. 14).

J is the (m*d) x (m*d) Jacobian of the block at its input x, one per sequence. Hutchinson's estimator needs only random
projections: ||J||_F^2 = E ||eta' J||^2 for any eta with independent entries of mean 0 and variance 1. Rademacher signs
have the smallest spread; the paper draws Gaussians.

Two ways to project. "vjp" takes eta' J by a backward pass that is itself differentiable (not torch.func.jvp, whose
parameter gradients through LayerNorm are wrong in some torch versions). "finite_difference" takes J eta from two
forward passes; it also works for attentions without a usable second derivative, such as entmax. Padded positions are
out of eta and out of the sum.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from recbole_denoiser.core.replay import restore_rng, save_rng

BlockFn = Callable[[Tensor], Tensor]  # [B, m, d] -> [B, m, d]


def draw_projection(x: Tensor, valid: Tensor, noise: str) -> Tensor:
    """eta [B, m, d], zero at padded positions."""
    eta = torch.randn_like(x) if noise == "gaussian" else torch.empty_like(x).bernoulli_(0.5).mul_(2).sub_(1)
    return eta * valid.unsqueeze(-1)


def projected_norm(
    block_fn: BlockFn, x: Tensor, valid: Tensor, eta: Tensor, method: str = "vjp", step: float = 1e-3
) -> Tensor:
    """||eta' J||^2 (vjp) or ||J eta||^2 (finite difference), summed over the sequences; differentiable."""
    real = valid.unsqueeze(-1).to(x.dtype)  # [B, m, 1]
    if method == "vjp":
        if not x.requires_grad:
            x = x.detach().requires_grad_()
        (row,) = torch.autograd.grad(block_fn(x), x, eta, create_graph=True)  # eta' J
        return (row * real).square().sum()
    state = save_rng(x.device)  # both evaluations must see the same dropout
    up = block_fn(x + step * eta)
    after = save_rng(x.device)
    restore_rng(state)
    down = block_fn(x - step * eta)
    restore_rng(after)
    return ((up - down) * (real / (2 * step))).square().sum()


def jacobian_penalty(
    block_fn: BlockFn,
    x: Tensor,
    valid: Tensor,
    projections: int = 1,
    noise: str = "rademacher",
    method: str = "vjp",
    step: float = 1e-3,
) -> Tensor:
    """Unbiased estimate of sum_b ||J_b||_F^2 over the real positions, divided by their number times d."""
    total = x.new_zeros(())
    for _ in range(projections):
        eta = draw_projection(x, valid, noise)
        total = total + projected_norm(block_fn, x, valid, eta, method, step)
    return total / (projections * real_outputs(x, valid))


def real_outputs(x: Tensor, valid: Tensor) -> Tensor:
    """Number of real outputs of a block: real positions times d (at least 1, for an all-padded batch)."""
    return (valid.sum() * x.shape[-1]).clamp(min=1)


def exact_jacobian_norm(block_fn: BlockFn, x: Tensor, valid: Tensor) -> Tensor:
    """The same figure with the whole Jacobian written out: m*d backward passes, for tests and small checks."""
    jacobian = torch.autograd.functional.jacobian(block_fn, x, create_graph=True)  # [B, m, d, B, m, d]
    real = valid.to(x.dtype)
    real_in_and_out = real[:, :, None, None, None, None] * real[None, None, None, :, :, None]
    return (jacobian * real_in_and_out).square().sum() / real_outputs(x, valid)
