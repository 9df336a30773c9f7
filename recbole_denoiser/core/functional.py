"""Attention written with functions: softmax and scaled_dot_product_attention calls inside an attention module.

While the module runs, a softmax over square scores is the attention, and a fused kernel is written out, so that Z can
act between the softmax and the values. This is how Hugging Face's, x-transformers' and most hand-written attentions
are masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from recbole_denoiser.core.attention import Site, quiet_trace

_SOFTMAX = frozenset({F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax})
_running: list[Intercept] = []  # the innermost attention module is the one that a call belongs to


class Intercept(TorchFunctionMode):
    """Sends the attention of the module that runs inside the context through its site."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def __enter__(self) -> Any:
        _running.append(self)
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        _running.pop()
        super().__exit__(*exception)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _running[-1] is self and func in _SOFTMAX:
            with quiet_trace():
                scores = _attention_scores(func, *args, **kwargs)
            if scores is not None:
                return self.site.attend(scores)
        if _running[-1] is self and func is F.scaled_dot_product_attention:
            with quiet_trace():
                return written_out(self.site, *args, **kwargs)
        return func(*args, **kwargs)


def _attention_scores(
    func: Callable[..., Any], input: Tensor, dim: int | None = None, *rest: Any, **named: Any
) -> Tensor | None:
    """The scores that a softmax call is given, if it is attention: over the last side, with a square of positions."""
    if dim not in (-1, input.dim() - 1) or input.dim() < 3:
        return None
    if input.dim() == 3 and input.shape[-1] != input.shape[-2]:
        return None
    place = 1 if func is F.softmax else 0  # F.softmax(input, dim, _stacklevel, dtype)
    dtype = named.get("dtype", rest[place] if len(rest) > place else None)
    return input if dtype is None else input.to(dtype)


def written_out(
    site: Site,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """F.scaled_dot_product_attention in matrix products: queries [B, ..., m, d], keys and values alike."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    blind = None  # rows that may not look at anything: torch answers 0 there
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        blind = (scores == -math.inf).all(-1, keepdim=True)
        scores = scores.masked_fill(blind, 0.0)
    M = site.attend(scores)
    M = F.dropout(M, dropout_p) if dropout_p > 0 else M
    out = M.to(value.dtype) @ value
    return out if blind is None else out.masked_fill(blind, 0.0)
