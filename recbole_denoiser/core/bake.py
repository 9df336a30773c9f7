"""Gates as constants of the model itself, for deployment: no Phi, no denoiser, nothing random."""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_denoiser.core.attention import AttentionCall, Site
from recbole_denoiser.core.config import DenoiserConfig

BUFFER = "denoiser_gate"  # [1 or H, n, n], in the state_dict of the attention module


class Baked:
    """A rule that reads the gate from a buffer of the attention module."""

    def __init__(self, n: int, align: str) -> None:
        self.n, self.align = n, align

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        m = call.shape[-1]
        first = self.n - m if self.align == "end" else 0
        Z: Tensor = getattr(site.attention, BUFFER)[None, :, first : first + m, first : first + m]
        return call.masked(Z)


def bake_sites(sites: list[Site], config: DenoiserConfig) -> None:
    """Give each attention module its gate as a buffer, and let its site read that."""
    for site in sites:
        with torch.no_grad():
            Z = site.mask.gate(config.max_length)[0]
        site.attention.register_buffer(BUFFER, Z)
        site.rule = Baked(config.max_length, config.align)
        del site.mask
