"""RecBole's layers in fewer or cheaper kernels: the same functions of the same parameters, equal to rounding."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from recbole.model.layers import MultiHeadAttention
from torch import Tensor

from recbole_denoiser.core.dropout import use_fast_dropout
from recbole_denoiser.model.tracing import is_traced

FORBIDDEN = -10000.0  # RecBole's bias of a key that may not be attended to


def use_fast_kernels(model: Any, config: Any) -> None:
    """To be called before masks are attached."""
    use_fast_dropout(model)
    for layer in model.trm_encoder.layer:
        layer.multi_head_attention.__class__ = FastAttention
        if config["hidden_act"] == "gelu":  # RecBole writes gelu out in four operations
            layer.feed_forward.intermediate_act_fn = gelu


def gelu(x: Tensor) -> Tensor:
    """GELU of [..., m, d] by torch's own kernel: oneDNN's, as fast, is compiled anew for every shape of a batch."""
    if is_traced():
        return F.gelu(x)
    return F.gelu(x.transpose(-1, -2)).transpose(-1, -2)  # oneDNN takes contiguous tensors only


class FastAttention(MultiHeadAttention):
    """RecBole's attention with scale and bias inside the product of queries and keys; keys are not transposed."""

    def forward(self, input_tensor: Tensor, attention_mask: Tensor, asking: Tensor | None = None) -> Tensor:
        """[B, m, d] and a bias that broadcasts to [B, H, m, m] -> [B, m, d].

        With ``asking`` [B, q, d], these are the queries and only they get an answer: [B, q, d].
        """
        if is_traced() and asking is None:
            return super().forward(input_tensor, attention_mask)
        x = input_tensor if asking is None else asking
        (B, m, _), q = input_tensor.shape, x.size(1)
        H, d_h = self.num_attention_heads, self.attention_head_size

        def heads(x: Tensor) -> Tensor:
            return x.view(B, -1, H, d_h).transpose(1, 2).reshape(B * H, -1, d_h)

        Q, K, V = heads(self.query(x)), heads(self.key(input_tensor)), heads(self.value(input_tensor))
        if attention_mask.size(0) == 1 and attention_mask.size(1) == 1:
            bias = attention_mask[0]  # one for all: no copy
        else:
            bias = attention_mask.expand(B, H, q, m).reshape(B * H, q, m)
        scores = torch.baddbmm(bias.to(Q.dtype), Q, K.transpose(1, 2), alpha=1 / self.sqrt_attention_head_size)
        weights = self.attn_dropout(self.softmax(scores.view(B, H, q, m)))
        context = torch.bmm(weights.view(B * H, q, m), V)
        context = context.view(B, H, q, d_h).transpose(1, 2).reshape(B, q, H * d_h)
        return self.LayerNorm(self.out_dropout(self.dense(context)) + x)


def encode_at(layers: Any, x: Tensor, bias: Tensor, chosen: Tensor) -> Tensor:
    """Blocks of ``FastAttention`` on x [B, m, d], right where ``chosen`` [B, m], 0 elsewhere.

    Every position is a key, but the last block has no other queries than the chosen positions.
    """
    for layer in layers[:-1]:
        x = layer(x, bias)
    (B, m, d), most = x.shape, int(chosen.sum(1).max())
    place = chosen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]  # [B, q], chosen ones first
    is_chosen = chosen.gather(1, place)
    asking = x.gather(1, place[..., None].expand(-1, -1, d))
    states = layers[-1].feed_forward(layers[-1].multi_head_attention(x, bias, asking))  # [B, q, d]
    flat = (place + m * torch.arange(B, device=x.device)[:, None])[is_chosen]  # [P]
    return states.new_zeros(B * m, d).index_copy(0, flat, states[is_chosen]).view(B, m, d)


def attention_bias(items: Tensor, causal: bool) -> Tensor:
    """RecBole's bias of items [B, m], 0 = padding: 0 where a key may be attended to, else -10000.

    [B, 1, m, m] or, where all keys are real or order does not matter, a shape that broadcasts to it.
    """
    m = items.size(1)
    order = torch.full((m, m), FORBIDDEN, device=items.device).triu_(1)[None, None] if causal else None
    if not is_traced() and bool((items != 0).all()):
        return order if order is not None else torch.zeros(1, 1, 1, 1, device=items.device)
    padding = (items == 0).to(torch.float32).mul_(FORBIDDEN)[:, None, None]  # [B, 1, 1, m]
    return padding if order is None else torch.minimum(padding, order)
