"""Attention as a trained model computes it: A before the mask, the gate Z, and what is left of A (eq. 8).

The denoiser's own attention sites are listened to; a model without masks gets sites for the duration of the pass.
No attention code is repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recbole_denoiser.core import Site, gate
from recbole_denoiser.core.attach import attach_sites


@dataclass
class Attention:
    """One attention layer in one forward pass."""

    name: str
    A: Tensor  # [B, H, m, m] weights before the mask
    Z: Tensor | None  # gate [1 or B, 1 or H, m, m]; None: the model has no masks, or they are off
    M: Tensor  # [B, H, m, m] weights that the values got


@contextmanager
def attention_sites(model: nn.Module) -> Iterator[list[Site]]:
    """The sites of the model's denoiser, or sites that are there inside the context only."""
    denoiser: Any = getattr(model, "denoiser", None)
    if denoiser is not None:
        yield denoiser.sites
        return
    sites = attach_sites(model, None)
    try:
        yield sites
    finally:
        for site in sites:
            site.undo()


@contextmanager
def recorded(sites: list[Site], masks_on: bool = True, unread: Tensor | None = None) -> Iterator[list[Attention]]:
    """The attention of the forward pass inside the context, one entry per layer.

    ``masks_on=False`` lets the attention pass untouched. ``unread`` [B] names one position of each sequence that no
    other position can read, in any layer, as if a mask cut it: the rest of the row is not renormalised (eq. 8).
    """
    seen: list[Attention] = []
    rules = {site.index: site.rule for site in sites}

    def rule(site: Site, A: Tensor) -> Tensor:
        own = rules[site.index] if masks_on else None
        if own is None:
            Z, M = None, A
        else:
            Z = gate(site.mask.logits(A.shape[-1], site.states))
            M = own(site, A)
        if unread is not None:
            M = M * _readable(unread, A)
        seen.append(Attention(site.name, _with_heads(A), Z, _with_heads(M)))
        return M

    for site in sites:
        site.rule = rule
    try:
        yield seen
    finally:
        for site in sites:
            site.rule = rules[site.index]
            site.states = None


def _readable(unread: Tensor, A: Tensor) -> Tensor:
    """1, and 0 in column unread[b] of sequence b but for its own row; shaped like A but for the heads."""
    m = A.shape[-1]
    position = torch.arange(m, device=A.device)
    column = position[None, :] == unread[:, None]  # [B, m]
    hidden = column[:, None, :] & ~column[:, :, None]  # [B, query, key]
    allowed = (~hidden).to(A.dtype)
    return allowed.unsqueeze(1) if A.dim() == 4 else allowed


def _with_heads(A: Tensor) -> Tensor:
    return A if A.dim() == 4 else A.unsqueeze(1)


def is_causal(layers: list[Attention]) -> bool:
    """No query reads a later key in any layer."""
    return all(float(layer.A.triu(1).abs().max()) < 1e-6 for layer in layers)


def is_chain(layers: list[Attention]) -> bool:
    """The layers are one stack (FDSA, for one, has two stacks side by side)."""
    return len({re.split(r"\.\d+(?:\.|$)", layer.name)[0] for layer in layers}) <= 1


def rollout(layers: list[Tensor], last: int) -> Tensor:
    """Share [m] of the state at position ``last`` that comes from each input position, through attention.

    Attention rollout (Abnar and Zuidema, ACL 2020) with the residual: layer l passes on W = (I + M) / row sum, M [m, m]
    being the mean over heads of the masked weights; the shares are row ``last`` of W^(L) ... W^(1) and add up to 1.
    Rows of M need not add up to 1 (nothing is renormalised after the mask), so a position whose links are all cut
    keeps only itself.
    """
    share = torch.zeros(layers[0].shape[-1], dtype=torch.float64)
    share[last] = 1.0
    for M in reversed(layers):
        W = M.double().cpu() + torch.eye(M.shape[-1], dtype=torch.float64)
        share = share @ (W / W.sum(1, keepdim=True))
    return share
