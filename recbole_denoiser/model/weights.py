"""What the loss of each target counts: its denoising and the noise detector's trust together, over all processes."""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_denoiser.core.objective import Share
from recbole_denoiser.core.targets import target_weights
from recbole_denoiser.integration.parallel import is_parallel, of_all, world_size


def batch_weights(
    positive: Tensor, targets: Tensor, trust: Tensor | None, mode: str, rate: float, share: Share
) -> Tensor:
    """[B, m] weights of this process's targets (0 = none), before ``share`` scales them.

    positive [B, m]: the positive part of each loss. With several processes, which targets are the worst and what all
    weights add up to is decided over the whole batch, as one process would.
    """
    real = targets != 0
    if not is_parallel() or mode == "none" or rate == 0:
        return weighted(target_weights(positive, real, mode, rate), trust)
    everyone, own = of_all(positive[real])
    everyones_trust = None if trust is None else of_all(trust[real].to(positive.dtype))[0]
    found = weighted(target_weights(everyone, torch.ones_like(everyone), mode, rate), everyones_trust)[own]
    factor = (
        world_size() / share.targets if share.targets > 0 else 0.0
    )  # DDP takes the mean; the caller scales by share
    return positive.new_zeros(real.shape).masked_scatter(real, found * factor)


def weighted(weights: Tensor, trust: Tensor | None) -> Tensor:
    """Weights of the targets [B, m] that sum to 1, times how far each is trusted, and again summing to 1."""
    if trust is None:
        return weights
    weights = weights * trust
    return weights / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
