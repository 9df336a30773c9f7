"""Sparse Transformer on SASRec: each position attends to a fixed pattern of earlier ones.

Child, Gray, Radford and Sutskever, "Generating Long Sequences with Sparse Transformers", 2019 (section 4.3); the second
group of the paper's baselines (section 5.1.2). With l = ``stride`` and c = ``summary``, query i attends to j <= i if
 - strided: i - j <= l, or (i - j) mod l = 0;
 - fixed: i and j are in the same block of l, or j is one of the last c positions of its block.
Both heads' patterns of their paper are merged into one. Blocks are counted from the newest item, so that it always
ends a whole block, however long the history is. The pattern is part of the attention bias: masks work as everywhere,
though with ``denoise: True`` the kept shares count the attentions that the pattern forbids, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import Batch
from recbole_denoiser.model.kernels import FORBIDDEN
from recbole_denoiser.model.sasrec import SASRecDenoiser


def attention_pattern(pattern: str, age: Tensor, stride: int, summary: int) -> Tensor:
    """[B, m, m], true where query i may attend to key j; age [B, m] = how many items are newer."""
    query, key = age[:, :, None], age[:, None, :]
    back = key - query  # i - j
    if pattern == "strided":
        chosen = (back <= stride) | (back % stride == 0)
    else:
        same_block = torch.div(query, stride, rounding_mode="floor") == torch.div(key, stride, rounding_mode="floor")
        chosen = same_block | (key % stride < summary)
    return chosen & (back >= 0)


class SASRecSparse(SASRecDenoiser):
    """SASRec with a fixed sparse attention pattern."""

    def prepare(self, config: Any, dataset: Any) -> None:
        """Read the pattern."""
        self.pattern, self.stride, self.summary = config["pattern"], config["stride"], config["summary"]
        if self.stride > self.max_seq_length:
            raise UserError(f"stride = {self.stride} is larger than MAX_ITEM_LIST_LENGTH = {self.max_seq_length}.")
        if self.summary > self.stride:
            raise UserError(f"summary = {self.summary} is larger than stride = {self.stride}, the length of a block.")
        super().prepare(config, dataset)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """As SASRec, with the pattern in the attention bias."""
        x, bias = super().embed(batch)  # bias [1 or B, 1, m, m]
        m = batch.items.size(1)
        newest = batch.valid.sum(1, keepdim=True) - 1 if not self.from_end else m - 1  # position of the newest item
        age = newest - torch.arange(m, device=x.device).unsqueeze(0)  # [B or 1, m]
        allowed = attention_pattern(self.pattern, age, self.stride, self.summary).unsqueeze(1)
        return x, torch.where(allowed, bias, FORBIDDEN)
