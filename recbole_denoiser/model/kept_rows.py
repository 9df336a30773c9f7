"""The newest position's state where pruned keys are out of the softmax (``mask_form: renormalise``).

Only what the newest position reads, and what that reads in turn, is computed: going down from the top, the rows needed
of a block are those that the block above reads, and its keys are the positions that some needed row keeps open.
Position masks are the same for all users, so the sets are found once per batch. Where the newest position differs
between sequences (``position_from: start``) every row is needed below the top block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from recbole.model.layers import MultiHeadAttention, TransformerLayer
from torch import Tensor

from recbole_denoiser.model.row_parts import rest, sequences_at_once


@dataclass
class Needed:
    """What one block has to compute: positions among the m of a sequence."""

    rows: Tensor  # [R] queries
    keys: Tensor  # [C] keys, the rows themselves among them
    log_gate: Tensor  # [1 or H, R, C]: log Z, -inf where pruned or not allowed
    own: Tensor  # [R, C]: 0 where the key is the row itself, else -inf


def kept_rows(
    encoder: Any,
    gates: list[Tensor],
    embed: Callable[[Tensor], Tensor],
    items: Tensor,
    last: Tensor,
    causal: bool,
) -> Tensor:
    """State [B, d] of position last[b] after all blocks; gates [1 or H, m, m] per block."""
    layers, valid = list(encoder.layer), items != 0
    plan = _plan(gates, last, causal)
    size = sequences_at_once(items, encoder)
    states = []
    for part in (slice(first, first + size) for first in range(0, len(items), size)):
        x, positions = embed(items[part]), torch.arange(items.shape[1], device=items.device)
        for layer, need in zip(layers[:-1], plan, strict=True):
            x = _block(layer, x, positions, valid[part], need)
            positions = need.rows
        states.append(_top(layers[-1], gates[-1], x, positions, valid[part], last[part], causal))
    return torch.cat(states)


def _plan(gates: list[Tensor], last: Tensor, causal: bool) -> list[Needed]:
    """The needs of all blocks but the top one, from the bottom up."""
    same = bool((last == last[0]).all())
    everything = torch.arange(gates[0].shape[-1], device=last.device)
    rows = _read_by(gates[-1], last[:1], causal) if same else everything
    plan: list[Needed] = []
    for Z in reversed(gates[:-1]):
        keys = _read_by(Z, rows, causal)
        log_gate = _log_gate(Z, rows, keys, causal)
        own = torch.zeros(len(rows), len(keys), dtype=Z.dtype, device=Z.device)
        own.masked_fill_(rows[:, None] != keys[None, :], -math.inf)
        plan.insert(0, Needed(rows, keys, log_gate, own))
        rows = keys
    return plan


def _read_by(Z: Tensor, rows: Tensor, causal: bool) -> Tensor:
    """Positions that some of the rows keep open, and the rows themselves, in order."""
    everything = torch.arange(Z.shape[-1], device=Z.device)
    read = (_log_gate(Z, rows, everything, causal) > -math.inf).any(0).any(0)
    read[rows] = True
    return read.nonzero().flatten()


def _log_gate(Z: Tensor, rows: Tensor, keys: Tensor, causal: bool) -> Tensor:
    log_gate = torch.log(Z[:, rows][:, :, keys])  # [1 or H, R, C]
    return log_gate.masked_fill(keys[None, :] > rows[:, None], -math.inf) if causal else log_gate


def _bias(log_gate: Tensor, own: Tensor, valid: Tensor) -> Tensor:
    """What is added to the scores [b, H, R, C]; a row with nothing left attends to itself."""
    bias = log_gate[None] if bool(valid.all()) else log_gate[None].masked_fill(~valid[:, None, None, :], -math.inf)
    nothing = bias.amax(-1, keepdim=True) == -math.inf
    return torch.where(nothing, own, bias)  # [1 or b, 1 or H, R, C]


def _places(wanted: Tensor, positions: Tensor) -> Tensor:
    """Where the wanted positions stand among the given ones."""
    return torch.searchsorted(positions, wanted)


def _block(layer: TransformerLayer, x: Tensor, positions: Tensor, valid: Tensor, need: Needed) -> Tensor:
    """The needed rows [b, R, d] of a block, from states x [b, P, d] at some positions [P]."""
    attention: MultiHeadAttention = layer.multi_head_attention
    heads = attention.num_attention_heads
    from_rows = _take(x, _places(need.rows, positions))
    from_keys = _take(x, _places(need.keys, positions))
    Q = (attention.query(from_rows) / attention.sqrt_attention_head_size).unflatten(2, (heads, -1))
    weight = torch.cat([attention.key.weight, attention.value.weight])
    bias = torch.cat([attention.key.bias, attention.value.bias])
    K, V = F.linear(from_keys, weight, bias).unflatten(2, (2, heads, -1)).unbind(2)  # [b, C, H, d/H]
    added = _bias(need.log_gate, need.own, valid[:, need.keys])
    context = torch.empty_like(Q, memory_format=torch.contiguous_format)
    for h in range(heads):  # head by head the products need no copies
        scores = (Q[:, :, h] @ K[:, :, h].transpose(1, 2)).add_(added[:, h % added.shape[1]])
        context[:, :, h] = torch.softmax(scores, dim=-1) @ V[:, :, h]
    return rest(layer, context.flatten(2), from_rows)


def _take(x: Tensor, places: Tensor) -> Tensor:
    return x if len(places) == x.shape[1] else x[:, places]


def _top(
    layer: TransformerLayer, Z: Tensor, x: Tensor, positions: Tensor, valid: Tensor, last: Tensor, causal: bool
) -> Tensor:
    """The newest row [b, d] of the top block: neither keys nor values are projected, see last_row.py."""
    attention: MultiHeadAttention = layer.multi_head_attention
    H, width = attention.num_attention_heads, attention.attention_head_size
    by_head = (H, width, x.shape[-1])
    state = x.gather(1, _places(last, positions)[:, None, None].expand(-1, 1, x.shape[-1])).squeeze(1)
    log_gate = torch.log(Z[:, last][:, :, positions]).transpose(0, 1)  # [b, 1 or H, P]
    closed = ~valid[:, positions] | (causal & (positions[None, :] > last[:, None]))
    log_gate = log_gate.masked_fill(closed[:, None], -math.inf)
    own = torch.zeros_like(log_gate[:, :1]).masked_fill_((positions[None, :] != last[:, None])[:, None], -math.inf)
    bias = torch.where(log_gate.amax(-1, keepdim=True) == -math.inf, own, log_gate)
    Q = attention.query(state).view(-1, H, width) / attention.sqrt_attention_head_size
    folded = torch.einsum("bhe,hed->bhd", Q, attention.key.weight.view(by_head))  # the key's bias shifts a whole row
    M = torch.softmax(folded @ x.transpose(1, 2) + bias, dim=-1)  # [b, H, P]
    context = torch.einsum("bhd,hed->bhe", M @ x, attention.value.weight.view(by_head))
    return rest(layer, (context + attention.value.bias.view(H, width)).flatten(1), state)
