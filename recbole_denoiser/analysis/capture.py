"""Attention as a trained model computes it: A before the mask, the gate Z, and what is left of A (eq. 8).

The denoiser's own attention sites are listened to; a model without masks gets sites for the duration of the pass.
No attention code is repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recbole_denoiser.core import AttentionCall, Gate, Site, gate
from recbole_denoiser.core.attach import attach_sites, detach_sites
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.protocols import denoiser_of
from recbole_denoiser.runs.record import Run
from recbole_denoiser.runs.reopen import checkpoint_file
from recbole_denoiser.training import checkpoint


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
    denoiser = denoiser_of(model)
    if denoiser is not None:
        yield denoiser.sites
        return
    sites = attach_sites(model, None)
    try:
        yield sites
    finally:
        detach_sites(sites)


@contextmanager
def recorded(sites: list[Site], masks_on: bool = True, unread: Tensor | None = None) -> Iterator[list[Attention]]:
    """The attention of the forward pass inside the context, one entry per layer.

    ``masks_on=False`` lets the attention pass untouched. ``unread`` [B] names one position of each sequence that no
    other position can read, in any layer, as if a mask cut it: in the model's mask_form, so by default the rest of the
    row is not renormalised (eq. 8).
    """
    seen: list[Attention] = []
    rules = {site.index: site.rule for site in sites}

    def rule(site: Site, call: AttentionCall) -> Tensor:
        own = rules[site.index] if masks_on else None
        Z = own.of(site, call) if isinstance(own, Gate) else None
        if unread is not None:
            readable = _readable(unread, call)
            M = call.masked(readable if Z is None else Z * readable)
        else:
            M = call.weights if own is None else own(site, call)
        seen.append(Attention(site.name, call.weights, Z, M))
        return M

    for site in sites:
        site.rule = rule
    try:
        yield seen
    finally:
        for site in sites:
            site.rule = rules[site.index]
            site.states = None


def _readable(unread: Tensor, call: AttentionCall) -> Tensor:
    """1, and 0 in column unread[b] of sequence b but for its own row: [B, 1, m, m]."""
    position = torch.arange(call.shape[-1], device=call.device)
    column = position[None, :] == unread[:, None]  # [B, m]
    hidden = column[:, None, :] & ~column[:, :, None]  # [B, query, key]
    return (~hidden).to(call.dtype).unsqueeze(1)


def mask_gates(run: Run) -> list[Tensor] | None:
    """Gates [1 or H, n, n] of each layer from the run's checkpoint; None if it has no masks or is gone.

    Of a content mask this is the part that depends on the positions only. The checkpoint is read without trust.
    """
    if not run.checkpoint or not (file := checkpoint_file(run.folder, run.checkpoint)).is_file():
        return None
    try:
        weights = checkpoint.load(file)["state_dict"]
    except UserError:  # a report of the rest is better than none; the page says that there are no heat maps
        return None
    names = sorted(
        (name for name in weights if re.search(r"denoiser\.masks\.\d+\.phi$", name)),
        key=lambda name: int(name.split(".")[-2]),
    )
    rule = run.config.get("inference_gate", "clipped")
    gates = [gate(weights[name].float(), rule) for name in names]
    return [Z if Z.dim() == 3 else Z.unsqueeze(0) for Z in gates] or None


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
