"""GRU4Rec on whole sequences: RecBole's GRU4Rec, whose state at every position is trained in one pass.

A GRU reads from left to right, so that its state after an item is the one RecBole's model has after the prefix that
ends there: the same weights give the same scores, and a sequence of m items costs one pass instead of m.
"""

from __future__ import annotations

from typing import Any

from recbole.model.sequential_recommender.gru4rec import GRU4Rec
from torch import Tensor, nn

from recbole_denoiser.core.dropout import use_fast_dropout
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import Batch, OverrideConfig, SequenceModel


class GRU4RecSequence(SequenceModel, GRU4Rec):
    """Sequences start at the left (``position_from: start``): a GRU must not read the padding first."""

    emb_dropout: nn.Dropout
    gru_layers: nn.GRU
    dense: nn.Linear

    def __init__(self, config: Any, dataset: Any) -> None:
        if config["position_from"] == "end":
            raise UserError("GRU4RecSequence has no positions to count from the end: position_from takes start.")
        if config["denoise"]:
            raise UserError("GRU4RecSequence has no attention to mask: denoise takes False.")
        GRU4Rec.__init__(self, OverrideConfig(config, loss_type="CE"), dataset)
        use_fast_dropout(self)
        self.prepare(config, dataset)

    def embed(self, batch: Batch) -> Tensor:
        """[B, m] -> [B, m, d]."""
        return self.emb_dropout(self.item_embedding(batch.items))

    def encode(self, embedded: Tensor) -> Tensor:
        """States of all positions, in the space of the items."""
        return self.dense(self.gru_layers(embedded)[0])
