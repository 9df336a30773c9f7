"""Small state that training carries along: the beta of a wanted sparsity, and the baseline of one-pass estimators."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_denoiser.core.config import DenoiserConfig

START_BETA = 1e-2  # where the control starts if beta is 0
SMALLEST_BETA, LARGEST_BETA = 1e-5, 1e2
GAIN = 0.05  # change of log beta per step and unit of missing sparsity
MOMENTUM = 0.9


class SparsityControl(nn.Module):
    """beta, fixed or moved by an integral controller on log beta until the pruned share meets target_sparsity.

    Each step adds GAIN * (target - pruned share) to log beta, within fixed bounds so that it cannot wind up while the
    masks are still on their way from their open start. The buffer is part of the state_dict.
    """

    log_beta: Tensor

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.target, self.fixed = config.target_sparsity, config.beta
        self.register_buffer("log_beta", torch.tensor(math.log(config.beta or START_BETA), dtype=torch.float64))

    def beta(self) -> float:
        """beta now."""
        return self.fixed if self.target is None else math.exp(float(self.log_beta))

    def update(self, pruned: Tensor) -> None:
        """One step of the controller; `pruned` is the batch's share of closed live attentions."""
        if self.target is not None:
            self.log_beta += GAIN * (self.target - pruned.to(self.log_beta))
            self.log_beta.clamp_(math.log(SMALLEST_BETA), math.log(LARGEST_BETA))


class CreditBaseline(nn.Module):
    """Running mean of the credit of each layer and query row: the c of ar and reinforce.

    The value handed out comes from earlier steps only, so it does not depend on this step's masks and adds no bias.
    """

    mean: Tensor
    steps: Tensor

    def __init__(self, n_layers: int, config: DenoiserConfig) -> None:
        super().__init__()
        self.used, self.align = config.baseline, config.align
        self.register_buffer("mean", torch.zeros(n_layers, config.max_length))
        self.register_buffer("steps", torch.zeros(n_layers))

    def step(self, layer: int, credit: Tensor, valid: Tensor) -> Tensor | float:
        """c per row [m] for this step; then take in credit [B or 1, m], weighted by valid [B, m]."""
        if not self.used:
            return 0.0
        n, m = self.mean.shape[1], credit.shape[1]
        rows = slice(n - m, n) if self.align == "end" else slice(0, m)
        old = self.mean[layer, rows].to(credit.dtype)  # a copy or not, it is not written to below
        seen = valid.sum(0)
        now = (credit * valid).sum(0) / seen.clamp(min=1.0)
        keep = min(MOMENTUM, float(self.steps[layer]) / (float(self.steps[layer]) + 1.0))  # a plain mean at first
        new = torch.where(seen > 0, keep * old + (1.0 - keep) * now, old)
        constant = old.clone()
        self.mean[layer, rows] = new.to(self.mean.dtype)
        self.steps[layer] += 1
        return constant
