"""Cross-entropy over all items without the positions x items matrix.

A piece of the logits is made, reduced to its normaliser and forgotten; the backward pass makes it again, as the
softmax minus the target, and uses it up at once. A piece stays in the processor's cache, which is what makes it about
as fast as the full matrix in spite of the extra product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CACHED = 2**19  # positions x items of one piece that the cache holds: 2 MB
ROWS = 64  # fewer positions at once than this waste time on writing the gradient of the items,
LARGEST = 2**25  # but no piece has more logits than this: 128 MB


def cross_entropy(state: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rows: int = 0) -> Tensor:
    """-log softmax(state weight' + bias)[target] for each of P positions: [P, d], [I, d], [I], [P] -> [P] float32.

    ``rows`` positions make a piece; 0: as many as are fastest. Under autocast the products are in half precision, as
    those of ``F.linear`` would be.
    """
    kind = state.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        state, weight = state.to(dtype), weight.to(dtype)
    return _CrossEntropy.apply(state, weight, bias, target, rows or piece_rows(len(weight)))


def piece_rows(items: int) -> int:
    """How many positions make a piece."""
    return max(CACHED // items, min(ROWS, LARGEST // items), 1)


def _pieces(positions: int, rows: int) -> Iterator[slice]:
    return (slice(start, start + rows) for start in range(0, positions, rows))


def _logits(state: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    logits = (state @ weight.t()).float()
    return logits if bias is None else logits.add_(bias)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rows: int) -> Tensor:
        loss = torch.empty(len(state), dtype=torch.float32, device=state.device)
        normaliser = torch.empty_like(loss)
        for piece in _pieces(len(state), rows):
            logits = _logits(state[piece], weight, bias)  # [p, I]
            chosen = logits.gather(1, target[piece, None]).squeeze(1)
            highest = logits.amax(1, keepdim=True)
            normaliser[piece] = logits.sub_(highest).exp_().sum(1).log_().add_(highest.squeeze(1))
            loss[piece] = normaliser[piece] - chosen
        ctx.save_for_backward(state, weight, bias, target, normaliser)
        ctx.rows = rows
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """d loss / d logits = softmax - one-hot, weighted by ``grad`` [P]."""
        state, weight, bias, target, normaliser = ctx.saved_tensors
        d_state = torch.empty_like(state)
        d_weight = torch.zeros_like(weight, dtype=torch.float32)
        d_bias = None if bias is None else torch.zeros_like(bias)
        for piece in _pieces(len(state), ctx.rows):
            share = _logits(state[piece], weight, bias).sub_(normaliser[piece, None]).exp_()  # [p, I]
            share.scatter_add_(1, target[piece, None], share.new_full((len(share), 1), -1.0))
            share.mul_(grad[piece, None])
            if d_bias is not None:
                d_bias += share.sum(0)
            share = share.to(state.dtype)
            torch.mm(share, weight, out=d_state[piece])
            if weight.dtype == torch.float32:
                d_weight.addmm_(share.t(), state[piece])
            else:
                d_weight += (share.t() @ state[piece]).float()
        return d_state, d_weight.to(weight.dtype), d_bias, None, None
