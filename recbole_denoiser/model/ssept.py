"""SSE-PT and its denoiser: SASRec with a user vector in every input, and stochastic shared embeddings.

Wu, Li, Hsieh and Sharpnack, "SSE-PT: Sequential Recommendation Via Personalized Transformer", RecSys 2020. The input is
[item ; user] plus position, the score <h, [item ; user]>. While training, each index is replaced by another one with a
small probability: of users, input items and target items, independently. The blocks are RecBole's, as in sasrec.py.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import Batch
from recbole_denoiser.model.kernels import attention_bias
from recbole_denoiser.model.sasrec import SASRecDenoiser


def share(index: Tensor, probability: float, count: int) -> Tensor:
    """Each real index 1..count-1 becomes another real one with the given probability; 0, the padding, stays.

    With a single real index there is nothing to share with, and it stays as it is.
    """
    if count <= 2:
        return index
    other = torch.randint(1, count - 1, index.shape, device=index.device)  # 1..count-2
    other = other + (other >= index)  # uniform over the real indices but this one
    replaced = (torch.rand(index.shape, device=index.device) < probability) & (index > 0)
    return torch.where(replaced, other, index)


class SSEPT(SASRecDenoiser):
    """The plain backbone (``denoise: False`` in its YAML). d = ``hidden_size`` = item width + ``user_size``.

    A user that has no training row (id 0, beyond the table, or without training items) gets the mean of the others.
    """

    seen: Tensor
    n_items: int
    position_embedding: nn.Embedding
    LayerNorm: nn.LayerNorm
    dropout: nn.Dropout

    def __init__(self, config: Any, dataset: Any) -> None:
        width, user_size = config["hidden_size"], config["user_size"]
        if user_size >= width:
            raise UserError(f"user_size = {user_size} must be below hidden_size = {width}: the rest is the item's.")
        super().__init__(config, dataset)
        self.user_size, self.item_size = user_size, width - user_size
        self.n_users = dataset.num(self.USER_ID)
        self.user_sse, self.item_sse = config["sse_user"], config["sse_item"]
        self.item_embedding = nn.Embedding(self.n_items, self.item_size, padding_idx=0)
        self.user_embedding = nn.Embedding(self.n_users, self.user_size, padding_idx=0)
        for table in (self.item_embedding, self.user_embedding):
            nn.init.normal_(table.weight, std=config["initializer_range"])
        seen = torch.zeros(self.n_users, dtype=torch.bool)
        seen[dataset.inter_feat[self.USER_ID]] = True
        self.register_buffer("seen", seen)  # users with a training row

    def batch(self, interaction: Any) -> Batch:
        """In training, some input and target items are others."""
        batch = super().batch(interaction)
        if self.training:
            batch.items = share(batch.items, self.item_sse, self.n_items)
            batch.targets = share(batch.targets, self.item_sse, self.n_items)
        return batch

    def embed(self, batch: Batch) -> Any:
        """[sqrt(d_i) item ; sqrt(d_u) user] + position, the causal bias, and the user [B, 1, d_u] for the score."""
        m = batch.items.size(1)
        item = self.item_embedding(batch.items) * math.sqrt(self.item_size)  # [B, m, d_i]
        user = self.user_vectors(self._users(batch)).unsqueeze(1)
        pair = torch.cat([item, user.expand(-1, m, -1) * math.sqrt(self.user_size)], dim=2)  # [B, m, d]
        summed = pair + self.position_embedding(self.position_ids(m))
        return self.dropout(self.LayerNorm(summed)), attention_bias(batch.items, causal=True), user

    def _users(self, batch: Batch) -> Tensor:
        """[B] user ids, some of them others in training; 0 if the batch does not tell."""
        if self.fields.user not in batch.interaction:
            return torch.zeros(len(batch.items), dtype=torch.long, device=batch.items.device)
        user = batch.interaction[self.fields.user]
        return share(user, self.user_sse, self.n_users) if self.training else user

    def user_vectors(self, user: Tensor) -> Tensor:
        """[B, d_u], the mean user where the id has no training row."""
        inside = (user > 0) & (user < self.n_users)
        row = torch.where(inside, user, 0)
        known = inside & self.seen[row]
        vectors = self.user_embedding(row)
        if known.all():
            return vectors
        return torch.where(known[:, None], vectors, self.user_embedding.weight[self.seen].mean(0).detach())

    def encode(self, embedded: Any) -> Tensor:
        """[B, m, d_i + 1]: the item part of the state, and the user's part of every score, <h_u, user>."""
        x, bias, user = embedded
        item_part, user_part = super().encode((x, bias)).split([self.item_size, self.user_size], dim=2)
        return torch.cat([item_part, (user_part * user).sum(2, keepdim=True)], dim=2)

    def item_weights(self) -> Tensor:
        """[items, d_i + 1]: a 1 behind each item takes the user's part of the score in."""
        return F.pad(self.item_embedding.weight, (0, 1), value=1.0)


class SSEPTDenoiser(SSEPT):
    """SSE-PT with trainable binary masks (``denoise: True`` in its YAML)."""
