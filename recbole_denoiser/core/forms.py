"""How a mask Z acts on attention: two forms.

product      M = softmax(S) * Z        eq. 8: nothing is renormalised, a row may sum to less than 1
renormalise  M = softmax(S + log Z)    what is kept shares the weight; equals A Z / sum(A Z) with A = softmax(S)

With `renormalise` a row of which nothing is left attends to itself. Scores S, weights A and results are [B, H, m, m],
Z [1 or B, 1 or H, m, m] with values in [0, 1].
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FORBIDDEN = 1000.0  # a score this far below the best of its row belongs to a pair that the model does not allow
LARGEST = 20.0  # a pruned key's weight in units of the heaviest kept one, as an exponent: bounds gradients, not values


def product(A: Tensor, Z: Tensor) -> Tensor:
    """Eq. 8."""
    return A * Z.to(A.dtype)


def renormalised_scores(S: Tensor, Z: Tensor) -> Tensor:
    """softmax(S + log Z): safe however heavy the pruned keys are. For masks without a gradient."""
    kept = S + torch.log(Z).to(S.dtype)
    return torch.softmax(torch.where(_nothing_left(S, kept), _own_score(S), kept), dim=-1)


def renormalised_path(S: Tensor, Z: Tensor) -> Tensor:
    """The same value, with a gradient for Z that is finite where Z is 0 (pathwise estimators)."""
    kept = S.detach() + torch.log(Z.detach()).to(S.dtype)
    nothing = _nothing_left(S.detach(), kept)
    top = torch.where(nothing, S.detach().amax(-1, keepdim=True), kept.amax(-1, keepdim=True))
    return _shares((S - top).clamp(max=LARGEST).exp() * Z.to(S.dtype), nothing)


def renormalised_weights(A: Tensor, Z: Tensor) -> Tensor:
    """A Z / sum(A Z): where only the weights are seen, not the scores."""
    W = A * Z.to(A.dtype)
    return _shares(W, W.detach().sum(-1, keepdim=True) < torch.finfo(A.dtype).tiny)


def _nothing_left(S: Tensor, kept: Tensor) -> Tensor:
    """[B, H, m, 1]: every key that the model allows is pruned."""
    best = kept.detach().amax(-1, keepdim=True)
    return (best == -math.inf) | (best < S.detach().amax(-1, keepdim=True) - FORBIDDEN)


def _own_score(S: Tensor) -> Tensor:
    """Scores [m, m] of rows that attend to themselves."""
    own = torch.eye(S.shape[-2], S.shape[-1], dtype=torch.bool, device=S.device)
    return torch.where(own, torch.zeros((), dtype=S.dtype, device=S.device), -math.inf)


def _shares(W: Tensor, nothing: Tensor) -> Tensor:
    """W over its row sums; rows without anything attend to themselves."""
    total = torch.where(nothing, torch.ones_like(W[..., :1]), W.sum(-1, keepdim=True))
    own = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)
    return torch.where(nothing, own, W / total)
