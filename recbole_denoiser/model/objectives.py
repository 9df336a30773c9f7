"""The training objective of a model, by ``loss_type``: which negatives it needs and what the scores cost.

Negatives come from the data loader, per position and never from the user's history, or are shared: drawn once per step
for all positions, where a position's own target does not count as its negative.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_denoiser.core.cross_entropy import cross_entropy
from recbole_denoiser.core.objectives import bce, bpr, gbce_power, sampled_softmax
from recbole_denoiser.data.negatives import item_popularity


class Objective:
    """``losses`` of positions, and ``draw`` for the shared negatives of a step."""

    def __init__(self, config: Any, dataset: Any, n_items: int) -> None:
        self.loss_type, self.n_items = config["loss_type"], n_items
        self.k = config["train_negatives"] or 1
        self.sampling = config["negative_sampling"] or "uniform"
        self.shared = self.loss_type != "CE" and (bool(config["negatives_shared"]) or self.sampling == "in_batch")
        self.power = 1.0
        if self.loss_type == "gBCE":
            self.power = gbce_power(self.k, n_items - 1, config["gbce_t"])
        self.log_q: Tensor | None = None  # [items], -inf for the padding
        if self.loss_type != "CE" and self.sampling != "uniform":
            popularity = item_popularity(dataset.counter(dataset.iid_field), n_items)
            self.log_q = torch.from_numpy(popularity).log().float()

    def draw(self, targets: Tensor) -> Tensor | None:
        """[k] items that are negatives of every position of the batch; None where each position has its own."""
        if not self.shared:
            return None
        if self.sampling == "in_batch":
            there = targets[targets != 0]
            return there[torch.randperm(len(there), device=there.device)[: self.k]]
        if self.sampling == "popularity":
            assert self.log_q is not None
            return torch.multinomial(self.log_q.exp(), self.k, replacement=True).to(targets.device)
        return torch.randint(1, self.n_items, (self.k,), device=targets.device)

    def losses(
        self, model: Any, state: Tensor, target: Tensor, negatives: Tensor | None, equal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Loss and its positive part [P] of states [P, d] and targets [P]; negatives [P, k], or [k] for all.

        ``equal``: every position will count the same.
        """
        weight, bias = model.item_weights()[: self.n_items], model.item_bias()
        if self.loss_type == "CE":
            loss = cross_entropy(state, weight, bias, target, equal=equal)
            return loss, loss
        assert negatives is not None
        if negatives.dim() == 1:
            r_pos = model.scores(state, target[:, None]).squeeze(1)  # [P]
            r_neg = F.linear(state, F.embedding(negatives, weight), None if bias is None else bias[negatives])
            r_neg = r_neg.masked_fill(negatives == target[:, None], -torch.inf)  # [P, k]
        else:  # one look-up for both: each would make a gradient of the size of the whole table
            scores = model.scores(state, torch.cat([target[:, None], negatives], dim=1))  # [P, 1 + k]
            r_pos, r_neg = scores[:, 0], scores[:, 1:]
        if self.loss_type == "SSM":
            if self.log_q is None:
                return sampled_softmax(r_pos, r_neg)
            log_q = self.log_q.to(state.device)
            return sampled_softmax(r_pos, r_neg, (log_q[target], log_q[negatives]))
        return bpr(r_pos, r_neg) if self.loss_type == "BPR" else bce(r_pos, r_neg, self.power)
