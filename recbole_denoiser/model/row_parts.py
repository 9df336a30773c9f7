"""What both ways to the newest position's state share: RecBole's blocks, part by part."""

from __future__ import annotations

from typing import Any

import torch
from recbole.model.layers import FeedForward, MultiHeadAttention, TransformerEncoder, TransformerLayer
from torch import Tensor, nn

from recbole_denoiser.core.attention import MaskedSoftmax
from recbole_denoiser.core.denoiser import Denoiser
from recbole_denoiser.model.kernels import FastAttention

CACHE_NUMBERS = 3_200_000  # numbers that are worked on at once by a CPU thread: about the size of its last cache


def is_plain(encoder: Any, denoiser: Denoiser | None) -> bool:
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
        if type(attention) not in (MultiHeadAttention, FastAttention) or type(attention.softmax) is not softmax:
            return False
    return not any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules())


def sequences_at_once(items: Tensor, encoder: Any) -> int:
    """Sequences whose attention weights and projections stay in a CPU's cache; elsewhere all of them."""
    if items.device.type != "cpu":
        return len(items)
    attention, m = encoder.layer[0].multi_head_attention, items.shape[1]
    numbers = m * (attention.num_attention_heads * m + 4 * attention.all_head_size)
    return max(1, CACHE_NUMBERS * torch.get_num_threads() // numbers)


def fused(attention: MultiHeadAttention) -> tuple[Tensor, Tensor]:
    """Weight [3d, d] and bias [3d] of queries (over sqrt(d/H)), keys and values in one product."""
    scale = 1 / attention.sqrt_attention_head_size
    weight = torch.cat([attention.query.weight * scale, attention.key.weight, attention.value.weight])
    return weight, torch.cat([attention.query.bias * scale, attention.key.bias, attention.value.bias])


def rest(layer: TransformerLayer, context: Tensor, residual: Tensor) -> Tensor:
    """What a block does behind its attention, which knows no other position."""
    attention, feed_forward = layer.multi_head_attention, layer.feed_forward
    hidden = attention.LayerNorm(attention.dense(context) + residual)
    inner = feed_forward.intermediate_act_fn(feed_forward.dense_1(hidden))
    return feed_forward.LayerNorm(feed_forward.dense_2(inner) + hidden)
