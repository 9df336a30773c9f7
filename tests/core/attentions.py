"""Attention modules as people write them: folded heads, einsum, SDPA, kernels of their own."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projected(nn.Module):
    """Query, key and value projections, and a plain dropout that is not named after attention."""

    def __init__(self, d: int = 8, heads: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = heads
        self.query_proj, self.key_proj, self.val_proj = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.dropout = nn.Dropout(dropout)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query_proj(x), self.key_proj(x), self.val_proj(x)


class HeadsFirst(Projected):
    """Heads are chunks of the width, laid one behind the other in the batch: [H*B, m, m] (gSASRec)."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (torch.cat(part.chunk(self.num_heads, 2), 0) for part in self.projected(x))
        scores = torch.bmm(q, k.transpose(1, 2)) / k.shape[-1] ** 0.5
        scores = scores + mask[:, 0].repeat(self.num_heads, 1, 1)
        out = torch.bmm(self.dropout(F.softmax(scores, dim=-1)), v)
        return torch.cat(out.chunk(self.num_heads, 0), 2)


class BatchFirst(Projected):
    """Heads folded the other way: [B*H, m, m]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1) for part in self.projected(x))
        scores = torch.bmm(q, k.transpose(1, 2)) / k.shape[-1] ** 0.5
        scores = scores + mask[:, 0].repeat_interleave(self.num_heads, 0)
        out = torch.bmm(self.dropout(torch.softmax(scores, -1)), v)
        return out.unflatten(0, (len(x), self.num_heads)).transpose(1, 2).flatten(2)


class Einsum(Projected):
    """Heads in front of the batch: [H, B, m, m]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)) for part in self.projected(x))
        scores = torch.einsum("bqhd,bkhd->hbqk", q, k) / k.shape[-1] ** 0.5
        A = self.dropout((scores + mask[:, 0]).softmax(dim=-1))
        return torch.einsum("hbqk,bkhd->bqhd", A, v).flatten(2)


class FusedKernel(Projected):
    """F.scaled_dot_product_attention."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.projected(x))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.dropout.p * self.training)
        return out.transpose(1, 2).flatten(2)


class OwnKernel(Projected):
    """Computes its weights in a way that nobody can see."""

    def weights(self, scores: Tensor) -> Tensor:
        w = torch.exp(scores - scores.amax(-1, keepdim=True))
        return w / w.sum(-1, keepdim=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.projected(x))
        A = self.weights(q @ k.transpose(2, 3) / math.sqrt(k.shape[-1]) + mask)
        return (self.dropout(A) @ v).transpose(1, 2).flatten(2)


class Shown(FusedKernel):
    """Computes weights to show them, and takes its output from elsewhere."""

    shown: Any = None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.projected(x))
        self.shown = F.softmax(q @ k.transpose(2, 3) + mask, dim=-1)
        own = OwnKernel.weights(self, q @ k.transpose(2, 3) + mask)  # type: ignore[arg-type]
        return (own @ v).transpose(1, 2).flatten(2)
