"""Cross-entropy over all items without the positions x items matrix.

A piece of the logits is made, reduced to its normaliser and forgotten; the backward pass makes it again, as the
softmax minus the target, and uses it up at once. A piece stays in the processor's cache, which is what makes it about
as fast as the full matrix in spite of the extra product.

Where all positions are known to count the same, the gradients are made in the forward pass, from the piece that is
there anyway: no product and no exponential twice. They are those of the sum of the losses; the backward pass scales
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CACHED = 2**18  # positions x items of one piece that the cache holds: 1 MB
ROWS = 96  # fewer positions at once than this waste time on writing the gradient of the items,
LARGEST = 2**25  # but no piece has more logits than this: 128 MB


def cross_entropy(
    state: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rows: int = 0, equal: bool = False
) -> Tensor:
    """-log softmax(state weight' + bias)[target] for each of P positions: [P, d], [I, d], [I], [P] -> [P] float32.

    ``rows`` positions make a piece; 0: as many as are fastest. ``equal`` says that all losses will count the same,
    which saves a third of the time; if they do not after all, only the saving is lost. Under autocast the products are
    in half precision, as those of ``F.linear`` would be.
    """
    kind = state.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        state, weight = state.to(dtype), weight.to(dtype)
    equal = equal and torch.is_grad_enabled()
    return _CrossEntropy.apply(state, weight, bias, target, rows or piece_rows(len(weight)), equal)


def piece_rows(items: int) -> int:
    """How many positions make a piece."""
    return max(CACHED // items, min(ROWS, LARGEST // items), 1)


def _pieces(positions: int, rows: int) -> Iterator[slice]:
    return (slice(start, start + rows) for start in range(0, positions, rows))


def _logits(state: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    logits = (state @ weight.t()).float()
    return logits if bias is None else logits.add_(bias)


class _Gradient:
    """With respect to states, items and bias, filled piece by piece.

    d loss / d logits is the softmax minus the target, times what the loss counts. It comes as ``e * c`` with factors
    c [p], which go to the smaller sides of the products.
    """

    def __init__(self, state: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.state = torch.empty_like(state)
        self.weight = torch.zeros_like(weight, dtype=torch.float32)
        self.bias = None if bias is None else torch.zeros_like(bias)

    def add(self, e: Tensor, c: Tensor, piece: slice, state: Tensor, weight: Tensor) -> None:
        """A piece e [p, I]."""
        if self.bias is not None:
            self.bias += c @ e
        e, c = e.to(state.dtype), c.to(state.dtype)[:, None]
        torch.mm(e, weight, out=self.state[piece]).mul_(c)
        if weight.dtype == torch.float32:
            self.weight.addmm_(e.t(), state[piece] * c)
        else:
            self.weight += (e.t() @ (state[piece] * c)).float()

    def scaled(self, factor: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
        """What autograd asks for."""
        found = [self.state, self.weight.to(dtype), self.bias]
        if factor is not None:
            found = [None if part is None else part * factor.to(part.dtype) for part in found]
        return (*found, None, None, None)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, state: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rows: int, equal: bool
    ) -> Tensor:
        loss = torch.empty(len(state), dtype=torch.float32, device=state.device)
        highest, total = torch.empty_like(loss), torch.empty_like(loss)
        gradient = _Gradient(state, weight, bias) if equal else None
        for piece in _pieces(len(state), rows):
            logits = _logits(state[piece], weight, bias)  # [p, I]
            chosen = logits.gather(1, target[piece, None]).squeeze(1)
            torch.amax(logits, 1, out=highest[piece])
            e = logits.sub_(highest[piece, None]).exp_()
            torch.sum(e, 1, out=total[piece])
            loss[piece] = total[piece].log().add_(highest[piece]).sub_(chosen)
            if gradient is not None:
                gradient.add(_less(e, target[piece], total[piece]), 1 / total[piece], piece, state, weight)
        ctx.save_for_backward(state, weight, bias, target, highest, total)
        ctx.rows, ctx.gradient = rows, gradient
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """``grad`` [P]: what each loss counts."""
        state, weight, bias, target, highest, total = ctx.saved_tensors
        if ctx.gradient is not None and len(grad) and bool((grad == grad[0]).all()):
            return ctx.gradient.scaled(grad[0], weight.dtype)
        gradient = _Gradient(state, weight, bias)
        for piece in _pieces(len(state), ctx.rows):
            e = _logits(state[piece], weight, bias).sub_(highest[piece, None]).exp_()  # [p, I]
            gradient.add(_less(e, target[piece], total[piece]), grad[piece] / total[piece], piece, state, weight)
        return gradient.scaled(None, weight.dtype)


def _less(e: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """e [p, I], whose rows have the sums ``total``, less all of it at the targets, in place."""
    return e.scatter_add_(1, target[:, None], -total[:, None])
