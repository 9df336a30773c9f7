"""BERT4Rec with the denoiser: RecBole's BERT4Rec, cloze training over whole sequences.

A share of the items is replaced by a mask token and predicted from both sides; ``ft_ratio`` of the rows mask only
the last item, which is what the model is asked at test time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from recbole.model.sequential_recommender.bert4rec import BERT4Rec
from torch import Tensor, nn

from recbole_denoiser.model.base import Batch, OverrideConfig, SequenceModel
from recbole_denoiser.model.kernels import attention_bias, encode_at, gelu, use_fast_kernels
from recbole_denoiser.model.last_row import last_row
from recbole_denoiser.model.positions import align


class BERT4RecDenoiser(SequenceModel, BERT4Rec):
    """Bidirectional self-attention with trainable binary masks."""

    causal = False

    position_embedding: nn.Embedding
    trm_encoder: Any
    LayerNorm: nn.LayerNorm
    dropout: nn.Dropout
    output_ffn: nn.Linear
    output_ln: nn.LayerNorm
    output_bias: nn.Parameter
    mask_token: int
    mask_ratio: float

    def __init__(self, config: Any, dataset: Any) -> None:
        BERT4Rec.__init__(self, OverrideConfig(config, loss_type="CE"), dataset)
        use_fast_kernels(self, config)
        self.ft_ratio = config["ft_ratio"]
        self.prepare(config, dataset)

    def item_bias(self) -> Tensor:
        return self.output_bias

    def batch(self, interaction: Any) -> Batch:
        """The whole training sequence, history and last target, with some items masked; those are the targets."""
        length = interaction[self.fields.length]
        width = self._width(length + 1)
        items = self._whole(interaction, self.fields.item, width)
        masked = self._cloze(items != 0, self._last(length + 1, width))
        negatives = None
        if self.fields.negative_list in interaction:
            drawn = interaction[self.fields.negative_list]  # any unmet item will do at any position
            negatives = drawn[:, torch.arange(width, device=drawn.device) % drawn.size(1)]
        inputs, targets = items.masked_fill(masked, self.mask_token), items.masked_fill(~masked, 0)

        def posterior() -> Tensor:  # of the items themselves: each is its position's target
            return self._whole(interaction, self.fields.posterior, width)

        prior = self.posteriors.of_inputs(interaction, items, lambda _: posterior().masked_fill(masked, 0.0))
        trust = self.posteriors.trust(interaction, posterior)
        return Batch(inputs, targets, negatives, interaction, trust=trust, prior=prior)

    def _whole(self, interaction: Any, name: str, width: int) -> Tensor:
        """[B, width] a column's values of the history and of the target behind it, aligned."""
        length = interaction[self.fields.length]
        history = F.pad(interaction[name + self.fields.list_suffix], (0, 1))
        sequence = history.scatter(1, length[:, None], interaction[name][:, None])  # [B, w + 1]
        return align(sequence, length + 1, width, self.from_end)

    def _cloze(self, real: Tensor, last: Tensor) -> Tensor:
        """[B, m] positions to mask: ``mask_ratio`` of the real ones, or only the last; never none."""
        only_last = torch.zeros_like(real).scatter(1, last[:, None], True)
        masked = (torch.rand(real.shape, device=real.device) < self.mask_ratio) & real
        fine_tune = torch.rand(len(real), 1, device=real.device) < self.ft_ratio
        return torch.where(fine_tune | ~masked.any(1, keepdim=True), only_last, masked)

    def inference_batch(self, interaction: Any) -> tuple[Batch, Tensor]:
        """The history with the mask token behind it; with ``position_from: start`` laid out as RecBole does."""
        length = interaction[self.fields.length]
        items = self._asked(interaction[self.fields.item + self.fields.list_suffix], length, self.mask_token)
        prior = self.posteriors.of_inputs(interaction, items, lambda values: self._asked(values, length, 0))
        batch = Batch(items, torch.zeros_like(items), None, interaction, prior=prior)
        if self.from_end:
            return batch, self._last(length + 1, items.size(1))
        return batch, (length.clamp(max=self.max_seq_length) - 1).clamp(min=0)

    def _asked(self, values: Tensor, length: Tensor, question: int) -> Tensor:
        """Values [B, w] of a history with ``question`` behind them, aligned."""
        if self.from_end:
            sequence = F.pad(values, (0, 1)).scatter(1, length[:, None], question)
            return align(sequence, length + 1, self._width(length + 1), to_end=True)
        values = align(values, length, self.max_seq_length, to_end=False)
        return F.pad(values, (0, 1)).scatter(1, length.clamp(max=self.max_seq_length)[:, None], question)[:, 1:]

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 1, the attention bias against padding, and which positions have a target."""
        return self.embed_items(batch.items), attention_bias(batch.items, causal=False), batch.targets != 0

    def embed_items(self, items: Tensor) -> Tensor:
        """Eq. 1: item plus position, [B, m] -> [B, m, d]."""
        positions = self.position_embedding(self.position_ids(items.size(1)))
        return self.dropout(self.LayerNorm(self.item_embedding(items) + positions))

    def encode(self, embedded: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """L blocks. Training without masks needs the states of the targets only; the others are 0 then."""
        x, bias, targets = embedded
        masked = self.denoiser is not None and self.denoiser.enabled
        if self.training and not masked and bool(targets.any()):
            return encode_at(self.trm_encoder.layer, x, bias, targets)
        return self.trm_encoder(x, bias, output_all_encoded_layers=False)[-1]

    def readout(self, states: Tensor) -> Tensor:
        """BERT's output layer; a fifth of the positions are targets, the others need none of it."""
        return self.output_ln(gelu(self.output_ffn(states)))

    def last_row(self, batch: Batch, last: Tensor) -> Tensor | None:
        """The position of the mask token only."""
        state = last_row(self.trm_encoder, self.denoiser, self.embed_items, batch.items, last, causal=False)
        return None if state is None else self.readout(state)
