"""Small state that training carries along: the beta of a wanted sparsity, and the baseline of one-pass estimators."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_denoiser.core.config import DenoiserConfig

START_BETA = 1e-2  # where the control starts if beta is 0
SMALLEST_BETA, LARGEST_BETA = 1e-5, 1e2
GAIN = 0.05  # change of log beta per step and unit of missing sparsity
BAND = 0.05  # distance to the target within which the pressure fades
MOMENTUM = 0.9


class SparsityControl(nn.Module):
    """beta: fixed, or moved until the pruned share of live attentions meets target_sparsity.

    An integral controller on log beta: each step adds GAIN * (target - pruned share), within fixed bounds so that it
    cannot wind up while the masks are on their way from their open start. Useless attentions feel nothing but beta and
    cross 0 together, and none would come back by itself after an overshoot. So within BAND of the target beta fades,
    and beyond the target it is negative: the multiplier of an equality constraint. State is kept in the state_dict.
    """

    log_beta: Tensor
    beta: Tensor

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.target = config.target_sparsity
        self.register_buffer("log_beta", torch.tensor(math.log(config.beta or START_BETA), dtype=torch.float64))
        self.register_buffer("beta", torch.tensor(config.beta, dtype=torch.float64))  # the one in force

    def update(self, pruned: Tensor) -> None:
        """One step of the controller; `pruned` is the batch's share of closed live attentions."""
        assert self.target is not None
        missing = self.target - pruned.to(self.log_beta)
        self.log_beta.add_(GAIN * missing).clamp_(math.log(SMALLEST_BETA), math.log(LARGEST_BETA))
        self.beta.copy_(self.log_beta.exp() * (missing / BAND).clamp(-1.0, 1.0))


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
        old = self.mean[layer, rows].to(credit.dtype, copy=True)
        seen = valid.sum(0)
        now = (credit * valid).sum(0) / seen.clamp(min=1.0)
        keep = min(MOMENTUM, float(self.steps[layer]) / (float(self.steps[layer]) + 1.0))  # a plain mean at first
        new = torch.where(seen > 0, keep * old + (1.0 - keep) * now, old)
        self.mean[layer, rows] = new.to(self.mean.dtype)
        self.steps[layer] += 1
        return old
