"""What a position's scores cost: eq. 7 and the objectives that the field's best results use.

Every function takes scores of P positions and returns ``(loss, positive part)`` [P]; the positive part is what
``target_denoise`` ranks positions by. A negative whose score is -inf does not count.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def bce(positive: Tensor, negatives: Tensor, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """Eq. 7: -power log sigmoid(r+) - sum_j log(1 - sigmoid(r-_j)); [P], [P, k]."""
    part = power * F.softplus(-positive)
    return part + F.softplus(negatives).sum(1), part


def gbce_power(k: int, items: int, t: float) -> float:
    """beta of gBCE (Petrov and Macdonald, RecSys 2023) for k of ``items`` - 1 possible negatives.

    alpha = k / (items - 1) and beta = alpha (t (1 - 1/alpha) + 1/alpha): 1 (plain BCE) at t = 0, alpha at t = 1.
    """
    alpha = k / (items - 1)
    return alpha * (t * (1 - 1 / alpha) + 1 / alpha)


def bpr(positive: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the negatives of -log sigmoid(r+ - r-); a position without any costs nothing."""
    each = F.softplus(negatives - positive[:, None])  # softplus(-inf) = 0
    loss = each.sum(1) / torch.isfinite(negatives).sum(1).clamp(min=1)
    return loss, loss


def sampled_softmax(
    positive: Tensor, negatives: Tensor, log_q: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """-log of the positive's share of softmax([r+, r-]).

    ``log_q`` are the log probabilities of being drawn of the positive [P] and of the negatives [k] or [P, k]; they are
    subtracted from the scores, so that popular items are not pushed down for being drawn often. Uniform drawing
    subtracts the same from all, which changes nothing.
    """
    if log_q is not None:
        positive, negatives = positive - log_q[0], negatives - log_q[1]
    loss = torch.logsumexp(torch.cat([positive[:, None], negatives], dim=1).float(), dim=1) - positive.float()
    return loss, loss
