"""The state that predicts the next item, without the rest: same scores as the full pass, less work.

Only the newest position is scored, so the last block needs one query row, and for one row neither keys nor values have
to be projected: q (W x_j)' = (q W) x_j', and the same for the values.

What a mask saves (eq. 8). Z comes after the softmax and nothing is renormalised, so a pruned key still stands in the
denominator of its row: a row with an open entry needs the states of all its keys, a row whose entries are all zero
needs none. Going down from the top, as long as the newest row is closed a block is a feed-forward layer on one
position; below the first block where it is open, every position is needed.

For stacks of RecBole's TransformerLayer with position masks or none. Anything else (content masks, other attentions,
somebody listening to the attention weights) makes ``last_row`` answer None, and the full pass runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from recbole.model.layers import FeedForward, MultiHeadAttention, TransformerEncoder, TransformerLayer
from torch import Tensor, nn

from recbole_denoiser.core.attention import MaskedSoftmax
from recbole_denoiser.core.denoiser import Denoiser

FORBIDDEN = -10000.0  # RecBole's bias of attentions that the pattern does not allow
CACHE_NUMBERS = 400_000  # numbers that one thread's share of a CPU's cache holds


def last_row(
    encoder: Any,
    denoiser: Denoiser | None,
    embed: Callable[[], Tensor],
    valid: Tensor,
    last: Tensor,
    causal: bool,
) -> Tensor | None:
    """State [B, d] of position last[b] of each sequence after all blocks; None where only the full pass will do.

    embed gives the blocks' input [B, m, d]; valid [B, m] marks real positions.
    """
    if not _is_plain(encoder, denoiser) or not bool(valid[torch.arange(len(last), device=last.device), last].all()):
        return None
    gates = None if denoiser is None else denoiser.position_gates(valid)
    x = embed()
    rows = _rows_at_once(x, encoder)
    parts = [_stack(encoder, x[i : i + rows], valid[i : i + rows], last[i : i + rows], gates, causal)
             for i in range(0, len(x), rows)]  # fmt: skip
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _is_plain(encoder: Any, denoiser: Denoiser | None) -> bool:
    """RecBole's blocks as they are, masks that need no states, and no hook that would miss something."""
    if type(encoder) is not TransformerEncoder:
        return False
    if denoiser is not None:
        masked = [site.attention for site in denoiser.sites]
        if not denoiser.has_plain_gates() or masked != [layer.multi_head_attention for layer in encoder.layer]:
            return False
    for layer in encoder.layer:
        if type(layer) is not TransformerLayer or type(layer.feed_forward) is not FeedForward:
            return False
        attention = layer.multi_head_attention
        softmax = MaskedSoftmax if denoiser is not None else nn.Softmax
        if type(attention) is not MultiHeadAttention or type(attention.softmax) is not softmax:
            return False
    return not any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules())


def _rows_at_once(x: Tensor, encoder: Any) -> int:
    """Sequences whose attention weights and projections stay in a CPU's cache; elsewhere all of them."""
    B, m, d = x.shape
    if x.device.type != "cpu":
        return B
    heads = encoder.layer[0].multi_head_attention.num_attention_heads
    return max(1, CACHE_NUMBERS * torch.get_num_threads() // (m * (heads * m + 4 * d)))


def _stack(encoder: Any, x: Tensor, valid: Tensor, last: Tensor, gates: list[Tensor] | None, causal: bool) -> Tensor:
    """All blocks for x [B, m, d]; gates: Z [1, 1 or H, m, m] of each block."""
    layers = list(encoder.layer)
    B, m = valid.shape
    sequence = torch.arange(B, device=x.device)
    position = torch.arange(m, device=x.device)
    readable = valid & (position <= last[:, None]) if causal else valid  # [B, m] keys of the last row
    closed = 0  # blocks at the top whose newest row is closed
    rows = None if gates is None else [Z[0][:, last].transpose(0, 1) for Z in gates]  # [B, 1 or H, m]
    if rows is not None:
        while closed < len(layers) and not bool((rows[-1 - closed] * readable[:, None]).any()):
            closed += 1
    reading = len(layers) - closed - 1  # the block that reads keys with one query row; -1: none does
    if reading > 0:
        bias = _bias(valid, causal, x.dtype)
        for k in range(reading):
            x = _full_block(layers[k], x, bias, None if gates is None else gates[k])
    state = x[sequence, last]  # [B, d]
    for k in range(max(reading, 0), len(layers)):
        attention = layers[k].multi_head_attention
        if k == reading:
            context = _read(attention, state, x, readable, None if rows is None else rows[k])
        else:
            context = torch.zeros_like(state)
        state = _rest(layers[k], context, state)
    return state


def _bias(valid: Tensor, causal: bool, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: [m, m] if no sequence is padded, else [B, 1, 1 or m, m]."""
    m = valid.shape[1]
    pattern = torch.ones(m, m, dtype=torch.bool, device=valid.device)
    if causal:
        pattern = pattern.tril_()
    allowed = pattern if bool(valid.all()) else pattern & valid[:, None, None, :]
    return torch.zeros(allowed.shape, dtype=dtype, device=valid.device).masked_fill_(~allowed, FORBIDDEN)


def _full_block(layer: TransformerLayer, x: Tensor, bias: Tensor, Z: Tensor | None) -> Tensor:
    """One block for every position: [B, m, d] -> [B, m, d]."""
    attention = layer.multi_head_attention
    B, m, _ = x.shape
    H, width = attention.num_attention_heads, attention.attention_head_size
    parts = (attention.query, attention.key, attention.value)
    weight, offset = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
    Q, K, V = F.linear(x, weight, offset).view(B, m, 3, H, width).permute(2, 0, 3, 1, 4)  # [B, H, m, d/H] each
    if Z is None:
        context = F.scaled_dot_product_attention(Q, K, V, attn_mask=bias)
    else:
        scores = (Q / attention.sqrt_attention_head_size) @ K.transpose(2, 3)
        context = torch.softmax(scores.add_(bias), dim=-1).mul_(Z) @ V
    return _rest(layer, context.transpose(1, 2).reshape(B, m, -1), x)


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


def _rest(layer: TransformerLayer, context: Tensor, residual: Tensor) -> Tensor:
    """What a block does behind its attention, which knows no other position."""
    attention, feed_forward = layer.multi_head_attention, layer.feed_forward
    hidden = attention.LayerNorm(attention.dense(context) + residual)
    inner = feed_forward.intermediate_act_fn(feed_forward.dense_1(hidden))
    return feed_forward.LayerNorm(feed_forward.dense_2(inner) + hidden)
