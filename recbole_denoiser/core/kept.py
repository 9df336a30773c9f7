"""How many attentions a mask keeps at inference: gate > 0, counted over live attentions only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recbole_denoiser.core.masks import AttentionMask, live_for
from recbole_denoiser.errors import UserError


class KeptCounter:
    """Live and kept attentions per layer, summed over forward passes."""

    def __init__(self, n_layers: int, causal: bool) -> None:
        self.causal = causal
        self.live = [0.0] * n_layers
        self.kept = [0.0] * n_layers

    def add(self, layer: int, Z: Tensor, valid: Tensor) -> None:
        """Count one call of a layer's gate Z [1 or B, 1 or H, m, m] on sequences valid [B, m]."""
        live = live_for(Z, valid, self.causal)
        self.live[layer] += float(live.sum()) * Z.shape[1]
        self.kept[layer] += float(((Z > 0) * live).sum())

    @property
    def share(self) -> list[float]:
        """Kept share per layer; nan where nothing was counted."""
        return [kept / live if live else float("nan") for kept, live in zip(self.kept, self.live, strict=True)]


def position_kept_share(mask: nn.Module, causal: bool) -> float:
    """Kept share of a position mask over its causal triangle or its full square."""
    assert isinstance(mask, AttentionMask)
    if mask.is_content:
        raise UserError("A content mask depends on the data: count its kept share inside collect_kept().")
    counter = KeptCounter(1, causal)
    counter.add(0, mask.gate(mask.n).detach(), torch.ones(1, mask.n, device=mask.phi.device))
    return counter.share[0]
