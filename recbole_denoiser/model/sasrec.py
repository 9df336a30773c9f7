"""SASRec with the denoiser: RecBole's SASRec, eq. 7 at every position, masks on its attention layers.

``denoise: False`` is the plain backbone under the same objective.
"""

from __future__ import annotations

from typing import Any

from recbole.model.sequential_recommender.sasrec import SASRec
from torch import Tensor, nn

from recbole_denoiser.model.base import Batch, OverrideConfig, SequenceModel
from recbole_denoiser.model.kernels import attention_bias, use_fast_kernels
from recbole_denoiser.model.last_row import last_row


class SASRecDenoiser(SequenceModel, SASRec):
    """Left-to-right self-attention (section 3.2) with trainable binary masks (section 4)."""

    position_embedding: nn.Embedding
    trm_encoder: Any
    LayerNorm: nn.LayerNorm
    dropout: nn.Dropout

    def __init__(self, config: Any, dataset: Any) -> None:
        SASRec.__init__(self, OverrideConfig(config, loss_type="CE"), dataset)
        use_fast_kernels(self, config)
        self.prepare(config, dataset)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Eq. 1, and the causal attention bias."""
        return self.embed_items(batch.items), attention_bias(batch.items, causal=True)

    def embed_items(self, items: Tensor) -> Tensor:
        """Eq. 1: item plus position, [B, m] -> [B, m, d]."""
        positions = self.position_embedding(self.position_ids(items.size(1)))
        return self.dropout(self.LayerNorm(self.item_embedding(items) + positions))

    def encode(self, embedded: tuple[Tensor, Tensor]) -> Tensor:
        """L Transformer blocks (section 3.2.2)."""
        x, bias = embedded
        return self.trm_encoder(x, bias, output_all_encoded_layers=False)[-1]

    def last_row(self, batch: Batch, last: Tensor) -> Tensor | None:
        """The newest position only; a subclass with other inputs or another pattern runs the full pass."""
        if type(self).embed is not SASRecDenoiser.embed or type(self).encode is not SASRecDenoiser.encode:
            return None
        return last_row(self.trm_encoder, self.denoiser, self.embed_items, batch.items, last, causal=True)
