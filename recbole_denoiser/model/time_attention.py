"""Self-attention over relative time intervals (Li, Wang and McAuley, "Time Interval Aware Self-Attention", WSDM 2020).

With r_ij the interval between items i and j the scores are Q_i . (K_j + posK_j + timeK[r_ij]) and the outputs
sum_j A_ij (V_j + posV_j + timeV[r_ij]). Looking up timeK[r_ij] for every pair would make an m x m x d tensor per
sequence. But r_ij has few values, so Q timeK' is computed once per value and gathered, and A is added up per value
before it meets timeV: m x (span + 1) instead of m x m x d.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "swish": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def time_intervals(times: Tensor, valid: Tensor, span: int) -> Tensor:
    """r [B, m, m], whole numbers in 0..span, from exact times and real positions [B, m].

    Times are measured in units of the sequence's own smallest non-zero gap between neighbours, 1 if there is none
    (equal times, a single item). Only the times of the given history enter, so nothing of a later, held-out item does.
    """
    # float32 would round seconds since 1970 to steps of 64; a quarter of any time can be subtracted without overflow
    times = times.double() / 4
    gaps = times.diff(dim=1).abs()  # [B, m - 1]
    usable = valid[:, 1:] & valid[:, :-1] & (gaps > 0)
    smallest = F.pad(gaps.masked_fill(~usable, math.inf), (0, 1), value=math.inf).amin(1, keepdim=True)
    scale = smallest.masked_fill(smallest.isinf(), 0.25)  # [B, 1]
    oldest = times.masked_fill(~valid, math.inf).amin(1, keepdim=True)
    steps = torch.where(valid, torch.round((times - oldest) / scale), 0.0)  # [B, m]
    distance = (steps[:, :, None] - steps[:, None, :]).abs()
    if not torch.isfinite(distance).all():  # times so far apart that their number of units is no number
        direct = torch.round((times[:, :, None] - times[:, None, :]).abs() / scale[:, :, None])
        both = valid[:, :, None] & valid[:, None, :]
        distance = torch.where(torch.isfinite(distance), distance, torch.where(both, direct, span))
    return distance.clamp(max=span).long()


class TimeAttention(nn.Module):
    """Multi-head attention with keys and values of positions and time intervals; any number of heads."""

    def __init__(self, n_heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.softmax = nn.Softmax(dim=-1)  # a module, so that the denoiser finds it
        self.attn_dropout = nn.Dropout(dropout)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # [B, k, d] -> [B, H, k, d/H]

    def forward(
        self,
        queries: Tensor,  # [B, m, d]
        states: Tensor,  # [B, m, d]
        bias: Tensor,  # [B, 1, m, m]
        intervals: Tensor,  # [B, 1, m, m]
        position_k: Tensor,  # [B, m, d]
        position_v: Tensor,  # [B, m, d]
        time_k: Tensor,  # [B, span + 1, d]
        time_v: Tensor,  # [B, span + 1, d]
    ) -> Tensor:
        """Outputs [B, m, d] of the queries over the states."""
        Q = self._heads(self.query(queries))  # [B, H, m, d/H]
        Q = Q / math.sqrt(Q.shape[-1])
        K = self._heads(self.key(states) + position_k)
        V = self._heads(self.value(states) + position_v)
        r = intervals.expand(-1, self.n_heads, -1, -1)  # [B, H, m, m]
        per_interval = Q @ self._heads(time_k).transpose(2, 3)  # [B, H, m, span + 1]
        scores = Q @ K.transpose(2, 3) + per_interval.gather(3, r)
        A = self.attn_dropout(self.softmax(scores + bias))
        A_per_interval = A.new_zeros(per_interval.shape).scatter_add_(3, r, A)  # [B, H, m, span + 1]
        out = A @ V + A_per_interval @ self._heads(time_v)
        return out.transpose(1, 2).flatten(2)


class TimeBlock(nn.Module):
    """One block as in the authors' code: queries and residuals are normalised, keys and values are not."""

    def __init__(
        self, n_heads: int, width: int, inner: int, dropout: float, attn_dropout: float, act: str, eps: float
    ) -> None:
        super().__init__()
        self.attention = TimeAttention(n_heads, width, attn_dropout)
        self.attention_norm, self.forward_norm = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.dense_1, self.dense_2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)
        self.act = ACTIVATIONS[act]

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        """States [B, m, d] -> states; ``context`` is what TimeAttention takes after its states."""
        x_norm = self.attention_norm(x)
        x = self.forward_norm(x_norm + self.attention(x_norm, x, *context))
        inner = self.dropout(self.act(self.dense_1(x)))
        return x + self.dropout(self.dense_2(inner))
