"""Gradients of E[L(Z)] with respect to Phi (eq. 12, eq. 13 and others), behind one contract.

With p = sigmoid(phi), U ~ Uniform(0, 1), b = 1[U < p], its antithetic twin b~ = 1[U > 1 - p] and the loss f:

| name             | d/dphi E f                             | forward passes | bias                                   |
|------------------|----------------------------------------|----------------|----------------------------------------|
| reinforce        | (f(b) - c) (b - p)                     | 1              | none                                   |
| ar  (eq. 13)     | (f(b) - c) (1 - 2U)                    | 1              | none                                   |
| arm (eq. 12)     | (f(b~) - f(b)) (U - 1/2)               | 2              | none                                   |
| disarm           | 1/2 (f(b) - f(b~)) (b - b~) s(abs(phi))| 2              | none                                   |
| straight_through | df/dz p (1 - p)                        | 1 + backward   | BIASED unless f is multilinear in Z    |
| hard_concrete    | pathwise through a stretched, clamped  | 1 + backward   | BIASED for Bernoulli masks; unbiased   |
|                  | relaxation of the bit                  |                | for its own relaxed objective          |

s is the sigmoid and c any number that does not depend on this draw (a baseline). DisARM is ARM averaged over the part
of U that the two bits do not see, so it never has more variance. The first four are a product of a signal, which
depends on losses only, and a direction, which depends on phi and U only; that is how they are coded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

STRETCH_LOW, STRETCH_HIGH, TEMPERATURE = -0.1, 1.1, 2.0 / 3.0  # of the hard concrete (Louizos et al. 2018)


def sample(phi: Tensor, U: Tensor) -> Tensor:
    """b = 1[U < sigmoid(phi)], as a float mask."""
    return _as_numbers(torch.gt, torch.sigmoid(phi.detach()), U)


def sample_antithetic(phi: Tensor, U: Tensor) -> Tensor:
    """b~ = 1[U > sigmoid(-phi)], as a float mask."""
    return _as_numbers(torch.lt, torch.sigmoid(-phi.detach()), U)


def _as_numbers(compare: Callable[..., Tensor], p: Tensor, U: Tensor) -> Tensor:
    """A comparison as 0 and 1 in p's type, written at once: on a CPU a detour by bool takes eight times as long."""
    out = torch.empty(torch.broadcast_shapes(p.shape, U.shape), dtype=p.dtype, device=p.device)
    return compare(p, U, out=out)


def direction(name: str, phi: Tensor, U: Tensor, bits: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """The factor of the estimate that depends on phi and U; bits: (b, b~), where they are known already."""
    if name == "ar":
        return 1.0 - 2.0 * U
    if name == "arm":
        return U - 0.5
    if name == "disarm":
        b, b_tilde = bits or (sample(phi, U), sample_antithetic(phi, U))
        return (b - b_tilde).mul_(torch.sigmoid(phi.abs()))
    if name == "reinforce":
        return sample(phi, U) - torch.sigmoid(phi)
    raise ValueError(f"{name} has no coefficients: its gradient goes through the mask itself")


def signal(name: str, f_b: Tensor, f_b_tilde: Tensor | None = None, baseline: Tensor | float = 0.0) -> Tensor:
    """The factor of the estimate that depends on the losses."""
    if name in ("ar", "reinforce"):
        return f_b - baseline
    if f_b_tilde is None:
        raise ValueError(f"{name} needs the loss of the second pass")
    return f_b_tilde - f_b if name == "arm" else 0.5 * (f_b - f_b_tilde)


def coefficients(
    name: str,
    phi: Tensor,
    U: Tensor,
    credit_b: Tensor,
    credit_b_tilde: Tensor | None = None,
    baseline: Tensor | float = 0.0,
) -> Tensor:
    """Estimate of d E[f] / d phi per entry; the credits broadcast against phi."""
    return signal(name, credit_b, credit_b_tilde, baseline) * direction(name, phi, U)


def pathwise_mask(name: str, phi: Tensor, U: Tensor) -> Tensor:
    """A mask Z that gradients pass through (straight-through or hard concrete)."""
    if name == "straight_through":
        p = torch.sigmoid(phi)
        return (p > U).to(phi.dtype) + (p - p.detach())
    noise = torch.logit(U, eps=1e-6)  # log U - log(1 - U)
    relaxed = torch.sigmoid((noise + phi) / TEMPERATURE)
    return (relaxed * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW).clamp(0.0, 1.0)


def keep_probability(name: str, phi: Tensor) -> Tensor:
    """Pi, the chance that an attention is not pruned: what R_M sums (eq. 11)."""
    if name == "hard_concrete":
        return torch.sigmoid(phi - TEMPERATURE * math.log(-STRETCH_LOW / STRETCH_HIGH))
    return torch.sigmoid(phi)


def row_credit(contributions: Tensor, layer: int, n_layers: int, causal: bool) -> Tensor:
    """The part of the loss that each query row of a layer's mask can reach: [B, m] from contributions [B, m].

    Row s of the last layer only reaches the loss at position s. Row s of an earlier layer reaches, through the layers
    above, the positions t >= s (causal) or all of them (bidirectional). What is dropped has mean zero, so the estimate
    stays unbiased. It assumes that positions do not mix after the last attention; credit="total" does not.
    """
    if layer == n_layers - 1:
        return contributions
    if causal:
        return contributions.flip(1).cumsum(1).flip(1)  # sum over t >= s
    return contributions.sum(1, keepdim=True).expand_as(contributions)


def layer_coefficients(
    name: str,
    phi: Tensor,
    U: Tensor,
    row_signal: Tensor,
    valid: Tensor,
    causal: bool,
    live: Tensor | None = None,
    bits: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Gradient estimate for all entries of one layer's Phi, shaped to multiply phi; dead entries get 0.

    phi [1 or B, 1 or H, m, m]; U [1 or B, 1 or H, m, m]; row_signal [B, m] (see `signal`), or [1, m] when one mask
    per batch meets one loss per batch; valid [B, m] in phi's dtype; live [B, 1, m, m], only for Phi per sequence.
    For Phi shared by the batch the sum over sequences is taken here, so that only [m, m] tensors leave.
    """
    W = direction(name, phi, U, bits)
    if live is not None:  # Phi per sequence
        return W * live * row_signal[:, None, :, None]
    if U.shape[0] > 1:  # shared Phi, a mask per sequence
        from_rows = (row_signal * valid)[:, None, :, None]  # in place: W is as large as the attention weights
        coef = W.mul_(from_rows).mul_(valid[:, None, None, :]).sum(0, keepdim=True)
    elif row_signal.shape[0] == 1 and valid.shape[0] > 1:  # one mask, one loss for the whole batch
        coef = W * row_signal.unsqueeze(-1) * ((valid.T @ valid) > 0)
    else:  # one mask: an entry hears the sequences in which its query and its key are both real
        coef = W * ((row_signal * valid).T @ valid)
    return coef.tril() if causal else coef


def surrogate(coef: Tensor, phi: Tensor) -> Tensor:
    """A number worth 0 whose gradient is coef * d phi: clipping, AMP and DDP see it as any other loss."""
    s = (coef.detach() * phi).sum()
    return s - s.detach()
