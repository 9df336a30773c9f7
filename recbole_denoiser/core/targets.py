"""Denoising the targets: weights for the loss at each position.

Noise in a training sequence corrupts targets as well as inputs. An attention mask cannot touch a wrong target, a
truncated or reweighted loss can (Wang et al. 2021, the paper's reference on denoising implicit feedback): early in
training noisy positives are those with a large loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_denoiser.errors import UserError

MODES = ("none", "truncate", "reweight")


def target_weights(positive_losses: Tensor, valid: Tensor, mode: str = "none", rate: float = 0.0) -> Tensor:
    """Weights [B, m] that sum to 1 and are 0 where not valid; positive_losses [B, m] = -log sigmoid(positive score).

    none: every valid position counts the same. truncate: the `rate` share of valid positions with the largest positive
    loss is dropped (rounded down, so at least one position stays). reweight: weight p^rate, p = exp(-positive loss).
    """
    if mode not in MODES:
        raise UserError(f"Target denoising mode {mode!r} is not known; allowed: {', '.join(MODES)}.")
    if rate < 0 or (mode == "truncate" and rate >= 1):
        raise UserError(
            f"Target denoising rate is {rate!r}; allowed: a share in [0, 1) for truncate, >= 0 for reweight."
        )
    losses = positive_losses.detach()
    weights = valid.to(losses.dtype)
    if mode == "truncate":
        candidates = losses.masked_fill(~valid.bool(), -torch.inf).flatten()
        worst = candidates.topk(int(rate * int(valid.sum()))).indices
        weights = weights.flatten().index_fill(0, worst, 0.0).view_as(losses)
    elif mode == "reweight":
        weights = weights * torch.exp(-rate * losses.clamp(min=0.0))
    return weights / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def warmed_rate(rate: float, epoch: int, warmup: int) -> float:
    """The rate of an epoch (counted from 0), raised linearly from 0 to its full value over `warmup` epochs."""
    return rate if warmup <= 0 else rate * min(1.0, epoch / warmup)
