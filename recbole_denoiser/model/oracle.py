"""The mask that knows: attention to items that are known to be noise is closed in every layer (``noise_oracle``).

What the masks of the paper could reach at best: eq. 8 with Z_uv = 0 exactly where v was injected, or the same before
the softmax (``mask_form: renormalise``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from recbole_denoiser.core.attach import attach_sites
from recbole_denoiser.core.attention import AttentionCall, Site


class OracleMask:
    """A rule for the attention sites of a plain backbone."""

    def __init__(self, model: nn.Module, form: str) -> None:
        self.known: Tensor | None = None  # [B, m] 1 where the key is noise
        self.sites = attach_sites(model, None)
        for site in self.sites:
            site.rule, site.form = self, form

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        """Attention without the known noise."""
        assert self.known is not None, "the oracle mask was not told what is noise"
        return call.masked(1 - self.known.to(call.dtype)[:, None, None, :])  # Z [B, 1, 1, m], for every query

    @contextmanager
    def told(self, known: Tensor) -> Iterator[None]:
        """Inside the context ``known`` [B, m] says which items are noise."""
        self.known = known
        try:
            yield
        finally:
            self.known = None
