"""Scores of a few candidates per position: each state with vectors of its own.

As a batched product its gradients would be thousands of products of one row with one column, five times slower on a CPU
than the same numbers element by element.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FEW = 4  # up to so many candidates a sum of scaled vectors is faster than a batched product


def dots(vectors: Tensor, state: Tensor) -> Tensor:
    """<vectors[p, c], state[p]>: [P, C, d], [P, d] -> [P, C]; under autocast in half precision, as ``matmul``."""
    kind = state.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        vectors, state = vectors.to(dtype), state.to(dtype)
    if not torch.is_grad_enabled():
        return torch.matmul(vectors, state.unsqueeze(2)).squeeze(2)
    return _Dots.apply(vectors, state)


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, state: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, state)
        return torch.bmm(vectors, state.unsqueeze(2)).squeeze(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        vectors, state = ctx.saved_tensors
        grad = grad.to(state.dtype)
        d_vectors = grad.unsqueeze(2) * state.unsqueeze(1)
        if not 0 < vectors.size(1) <= FEW:
            return d_vectors, torch.bmm(grad.unsqueeze(1), vectors).squeeze(1)
        d_state = vectors[:, 0] * grad[:, :1]
        for c in range(1, vectors.size(1)):
            d_state = torch.addcmul(d_state, vectors[:, c], grad[:, c : c + 1])
        return d_vectors, d_state
