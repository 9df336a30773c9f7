"""nn.MultiheadAttention with a place for the mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_denoiser.core.attention import Site
from recbole_denoiser.errors import UserError


class MaskedMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention written out, so that Z can be put between the softmax and the values.

    An object becomes one by a change of its class: it stays the same object with the same parameters for all who hold
    it. A subclass keeps its own methods in front; its ``super().forward`` is then the masked one. The attention is
    explicit matrix products on purpose: torch's fused kernels neither take a post-softmax mask nor support the second
    derivative that the Jacobian penalty needs.
    """

    site: Site

    @classmethod
    def take_over(cls, module: nn.MultiheadAttention, site: Site) -> Callable[[], None]:
        """Make `module` a masked one; the way back."""
        if module.bias_k is not None or module.add_zero_attn:
            raise UserError(f"Attention site {site.name}: add_bias_kv and add_zero_attn are not supported.")
        if "forward" in module.__dict__:
            raise UserError(
                f"Attention site {site.name}: its forward was replaced on the object itself and passes by the mask. "
                "Take that back first."
            )
        kind, flag = type(module), module._qkv_same_embed_dim
        module.__class__ = cls if kind is nn.MultiheadAttention else type(f"Masked{kind.__name__}", (kind, cls), {})
        module.site = site  # type: ignore[assignment]
        # nn.TransformerEncoderLayer reads this flag; False keeps it off its fused path, which would skip the mask.
        module._qkv_same_embed_dim = False
        return partial(_give_back, module, kind, flag)  # no closure: a copy of the model has a way back of its own

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        weights = (
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if self.in_proj_weight is None
            else self.in_proj_weight.chunk(3)
        )
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return [x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in projected]  # [B, H, m, d/H]

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As nn.MultiheadAttention on batched input; the returned weights are the masked ones."""
        if query.dim() != 3:
            raise UserError(f"Attention site {self.site.name} needs a batch: input of shape {tuple(query.shape)}.")
        if is_causal and attn_mask is None:
            raise UserError(f"Attention site {self.site.name}: is_causal needs attn_mask as well, as in torch.")
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        Q, K, V = self._project(query, key, value)
        scores = Q @ K.transpose(2, 3) / math.sqrt(self.head_dim)  # [B, H, m, m]
        if attn_mask is not None:
            per_head = attn_mask.unflatten(0, (-1, self.num_heads)) if attn_mask.dim() == 3 else attn_mask
            scores = scores + _additive(per_head, scores)
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask[:, None, None, :], scores)
        M = self.site.attend(scores)
        out = F.dropout(M, self.dropout, self.training) @ V  # [B, H, m, d/H]
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        out = out if self.batch_first else out.transpose(0, 1)
        if not need_weights:
            return out, None
        return out, M.mean(1) if average_attn_weights else M


def _give_back(module: nn.MultiheadAttention, kind: type[nn.MultiheadAttention], flag: bool) -> None:
    del module.site
    module.__class__, module._qkv_same_embed_dim = kind, flag


def _additive(mask: Tensor, scores: Tensor) -> Tensor:
    """A bool mask (True = forbidden) as 0 and -inf; a float mask as it is, in the precision of the scores."""
    if mask.dtype != torch.bool:
        return mask.to(scores.dtype)
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -math.inf)
