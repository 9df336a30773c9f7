"""TiSASRec and its denoiser: self-attention that knows how much time lies between two items.

Li, Wang and McAuley, "Time Interval Aware Self-Attention for Sequential Recommendation", WSDM 2020; the attention is
in time_attention.py. As in the authors' code, no position is added to the input: positions and intervals have key and
value tables that all blocks share. Differences: any number of heads; the time scale comes from the history in the row
(theirs also looks at the test item's time); dropout on the interval tables is drawn per sequence and interval, not per
pair; the objective is this package's (no extra L2 on embeddings).
"""

from __future__ import annotations

import math
from typing import Any

from recbole.model.abstract_recommender import SequentialRecommender
from recbole.model.init import xavier_normal_initialization
from torch import Tensor, nn

from recbole_denoiser.core.dropout import use_fast_dropout
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import Batch, SequenceModel
from recbole_denoiser.model.kernels import attention_bias
from recbole_denoiser.model.positions import align
from recbole_denoiser.model.time_attention import ACTIVATIONS, TimeBlock, time_intervals


class TiSASRec(SequenceModel, SequentialRecommender):
    """The plain backbone (``denoise: False`` in its YAML)."""

    n_items: int
    max_seq_length: int

    def __init__(self, config: Any, dataset: Any) -> None:
        SequentialRecommender.__init__(self, config, dataset)
        width, n = config["hidden_size"], self.max_seq_length
        self.width, self.time_span = width, config["time_span"]
        self.time_list = config["TIME_FIELD"] + config["LIST_SUFFIX"]
        if config["hidden_act"] not in ACTIVATIONS:
            raise UserError(
                f"hidden_act = {config['hidden_act']!r} is not allowed: it takes {' | '.join(ACTIVATIONS)}."
            )
        self.item_embedding = nn.Embedding(self.n_items, width, padding_idx=0)
        self.position_k, self.position_v = nn.Embedding(n, width), nn.Embedding(n, width)
        self.time_k, self.time_v = (nn.Embedding(self.time_span + 1, width) for _ in range(2))
        self.layers = nn.ModuleList(
            TimeBlock(
                config["n_heads"],
                width,
                config["inner_size"],
                config["hidden_dropout_prob"],
                config["attn_dropout_prob"],
                config["hidden_act"],
                config["layer_norm_eps"],
            )
            for _ in range(config["n_layers"])
        )
        self.LayerNorm = nn.LayerNorm(width, eps=config["layer_norm_eps"])
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])
        self.apply(xavier_normal_initialization)
        use_fast_dropout(self)
        self.prepare(config, dataset)

    def embed(self, batch: Batch) -> tuple[Tensor, ...]:
        """Items times sqrt(d), then all that the blocks share: bias, intervals, and the four tables with dropout."""
        B, m = batch.items.shape
        x = self.dropout(self.item_embedding(batch.items) * math.sqrt(self.width))  # [B, m, d]
        intervals = time_intervals(self._times(batch, m), batch.valid, self.time_span)
        rows = self.position_ids(m)
        tables = (self.position_k(rows), self.position_v(rows), self.time_k.weight, self.time_v.weight)
        dropped = (self.dropout(table.expand(B, -1, -1)) for table in tables)  # [B, m or span + 1, d]
        return x, attention_bias(batch.items, causal=True), intervals.unsqueeze(1), *dropped

    def encode(self, embedded: tuple[Tensor, ...]) -> Tensor:
        """L blocks and a last LayerNorm."""
        x, *context = embedded
        for layer in self.layers:
            x = layer(x, *context)
        return self.LayerNorm(x)

    def _times(self, batch: Batch, width: int) -> Tensor:
        """[B, m] exact times of the items."""
        if self.time_list not in batch.interaction or batch.interaction[self.time_list].dim() != 2:
            raise UserError(
                f"{type(self).__name__} needs the time of every item of the history: column '{self.time_list}', one "
                "number per item, is not in the batch. Check TIME_FIELD and load_col; the time column must not be "
                "listed in numerical_features."
            )
        return align(batch.interaction[self.time_list], batch.interaction[self.fields.length], width, self.from_end)


class TiSASRecDenoiser(TiSASRec):
    """TiSASRec with trainable binary masks (``denoise: True`` in its YAML)."""
