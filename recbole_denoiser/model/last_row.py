"""The state that predicts the next item, without the rest: same scores as the full pass, less work.

Only the newest position is scored, so the last block needs one query row, and for one row neither keys nor values have
to be projected: q (W x_j)' = (q W) x_j', and the same for the values.

What a mask saves (eq. 8). Z comes after the softmax and nothing is renormalised, so a pruned key still stands in the
denominator of its row: a row with an open entry needs the states of all its keys, a row whose entries are all zero
needs none. Going down from the top, as long as the newest row is closed a block is a feed-forward layer on one
position; below the first block where it is open, every position is needed. With ``mask_form: renormalise`` a pruned key
is needed by nobody: kept_rows.py.

For stacks of RecBole's TransformerLayer with position masks or none. Anything else (content masks, other attentions,
somebody listening to the attention weights) makes ``last_row`` answer None, and the full pass runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from recbole.model.layers import MultiHeadAttention, TransformerLayer
from torch import Tensor

from recbole_denoiser.core.denoiser import Denoiser
from recbole_denoiser.model.kept_rows import kept_rows
from recbole_denoiser.model.row_parts import fused, is_plain, rest, sequences_at_once

FORBIDDEN = -10000.0  # RecBole's bias of attentions that the pattern does not allow


def last_row(
    encoder: Any,
    denoiser: Denoiser | None,
    embed: Callable[[Tensor], Tensor],
    items: Tensor,
    last: Tensor,
    causal: bool,
) -> Tensor | None:
    """State [B, d] of position last[b] of each sequence after all blocks; None where only the full pass will do.

    embed returns the blocks' input [b, m, d] of some of the items [B, m], in which 0 is padding.
    """
    valid = items != 0
    if not is_plain(encoder, denoiser) or not bool(valid.gather(1, last[:, None]).all()):
        return None
    layers = list(encoder.layer)
    gates = None if denoiser is None else denoiser.position_gates(valid)
    if gates is not None and denoiser is not None and denoiser.config.mask_form == "renormalise":
        return kept_rows(encoder, [Z[0] for Z in gates], embed, items, last, causal)
    rows = None if gates is None else [Z[0, :, last].transpose(0, 1) for Z in gates]  # newest rows [B, 1 or H, m]
    readable = valid & (torch.arange(items.shape[1], device=items.device) <= last[:, None]) if causal else valid
    reading = len(layers) - 1  # the block that reads keys with one query row; -1: none does
    while rows is not None and reading >= 0 and not bool((rows[reading] * readable[:, None]).any()):
        reading -= 1
    weights = [fused(layer.multi_head_attention) for layer in layers[: max(reading, 0)]]
    pattern = torch.ones(items.shape[1], items.shape[1], dtype=torch.bool, device=items.device)
    pattern = pattern.tril_() if causal else pattern
    size = sequences_at_once(items, encoder)
    contexts, states = [], []
    for part in (slice(first, first + size) for first in range(0, len(items), size)):
        x = embed(items[part])
        if reading > 0:
            bias = _bias(pattern, valid[part], x.dtype)
            for k in range(reading):
                x = _full_block(layers[k], weights[k], x, bias, None if gates is None else gates[k][0])
        states.append(x.gather(1, last[part, None, None].expand(-1, 1, x.shape[-1])).squeeze(1))  # [b, d]
        if reading >= 0:
            Z = None if rows is None else rows[reading][part]
            contexts.append(_read(layers[reading].multi_head_attention, states[-1], x, readable[part], Z))
    state = torch.cat(states)
    for k in range(max(reading, 0), len(layers)):
        state = rest(layers[k], torch.cat(contexts) if k == reading else torch.zeros_like(state), state)
    return state


def _bias(pattern: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: [m, m] if no sequence is padded, else [B, m, m]."""
    allowed = pattern if bool(valid.all()) else pattern & valid[:, None, :]
    return torch.zeros(allowed.shape, dtype=dtype, device=valid.device).masked_fill_(~allowed, FORBIDDEN)


def _full_block(
    layer: TransformerLayer, weights: tuple[Tensor, Tensor], x: Tensor, bias: Tensor, Z: Tensor | None
) -> Tensor:
    """One block for every position: [B, m, d] -> [B, m, d]; Z [1 or H, m, m]."""
    attention = layer.multi_head_attention
    B, m, _ = x.shape
    Q, K, V = F.linear(x, *weights).view(B, m, 3, attention.num_attention_heads, -1).unbind(2)  # [B, m, H, d/H]
    context = torch.empty_like(Q, memory_format=torch.contiguous_format)
    for h in range(attention.num_attention_heads):  # head by head the products need no copies
        scores = Q[:, :, h] @ K[:, :, h].transpose(1, 2)
        M = torch.softmax(scores.add_(bias), dim=-1)
        M = M if Z is None else M.mul_(Z[h % len(Z)])
        context[:, :, h] = M @ V[:, :, h]
    return rest(layer, context.flatten(2), x)


def _read(attention: MultiHeadAttention, state: Tensor, x: Tensor, readable: Tensor, Z: Tensor | None) -> Tensor:
    """Context [B, d] of one query, state [B, d], over the keys x [B, m, d]; Z [B, 1 or H, m]."""
    H, width = attention.num_attention_heads, attention.attention_head_size
    by_head = (H, width, x.shape[-1])
    Q = attention.query(state).view(-1, H, width) / attention.sqrt_attention_head_size
    folded = torch.einsum("bhe,hed->bhd", Q, attention.key.weight.view(by_head))  # the key's bias shifts a whole row
    scores = folded @ x.transpose(1, 2)  # [B, H, m]
    M = torch.softmax(scores.masked_fill(~readable[:, None], FORBIDDEN), dim=-1)
    M = M if Z is None else M * Z
    context = torch.einsum("bhd,hed->bhe", M @ x, attention.value.weight.view(by_head))
    context = context + M.sum(-1, keepdim=True) * attention.value.bias.view(H, width)
    return context.flatten(1)
