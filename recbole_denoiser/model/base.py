"""What all models of this package share: aligned sequences, the loss at every position, scoring, the denoiser.

A model defines three things: ``embed`` (items to block inputs), ``encode`` (block inputs to states of all positions)
and the masks it needs. Everything else, from eq. 7 to the candidate scores, stands here once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_denoiser.core import DenoiserConfig, denoise, warmed_rate
from recbole_denoiser.core.dots import dots
from recbole_denoiser.core.masks import live_counts
from recbole_denoiser.data.rows import Fields
from recbole_denoiser.integration.parallel import batch_share, total
from recbole_denoiser.model.objectives import Objective
from recbole_denoiser.model.positions import Positions, align
from recbole_denoiser.model.posteriors import Posteriors
from recbole_denoiser.model.tracing import is_traced
from recbole_denoiser.model.weights import batch_weights


@dataclass
class Batch:
    """Sequences of one length m, all ending (``position_from: end``) or starting at the same place."""

    items: Tensor  # [B, m] input items, 0 = padding
    targets: Tensor  # [B, m] item to predict at each position, 0 = none
    negatives: Tensor | None  # [B, m, k] items the user has not interacted with
    interaction: Any  # the rest of the row: user, times
    trust: Tensor | None = None  # [B, m] probability that the target is not noise; None: all are trusted
    shared: Tensor | None = None  # [k] negatives of all positions, drawn once per step
    prior: Tensor | None = None  # [B, m] probability that the input item is noise; None: nobody asks

    @property
    def valid(self) -> Tensor:
        """[B, m] real positions."""
        return self.items != 0

    def counts(self, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
        """How many targets (by their weights), live attentions and real positions there are."""
        targets = self.targets != 0
        weight = targets.sum() if self.trust is None else (targets * self.trust).sum()
        return weight, live_counts(self.valid, causal).double().sum(), self.valid.sum()


class OverrideConfig:
    """A configuration in which a few keys read differently (RecBole's constructors know no BCE)."""

    def __init__(self, config: Any, **changes: Any) -> None:
        self._config, self._changes = config, changes

    def __getitem__(self, key: str) -> Any:
        return self._changes[key] if key in self._changes else self._config[key]


class SequenceModel(nn.Module):
    """Mixin in front of a RecBole SequentialRecommender."""

    # what RecBole's constructors set
    n_items: int
    max_seq_length: int
    item_embedding: nn.Embedding

    loss_terms = ("rec", "mask", "jacobian")
    causal = True

    def prepare(self, config: Any, dataset: Any) -> None:
        """Read the settings and attach the denoiser; to be called at the end of the constructor."""
        self.fields = Fields(
            config["USER_ID_FIELD"], config["ITEM_ID_FIELD"], config["ITEM_LIST_LENGTH_FIELD"], config["LIST_SUFFIX"],
            config["NEG_PREFIX"],
        )  # fmt: skip
        self.from_end = config["position_from"] == "end"
        self.fast_inference = config["fast_inference"] is not False
        self.objective = Objective(config, dataset, self.n_items)
        self.target_denoise, self.epoch = config["target_denoise"] or "none", 0
        self.target_rate, self.target_warmup = config["target_rate"] or 0.0, config["target_warmup"] or 0
        self.denoiser = denoise(self, self.denoiser_config(config)) if config["denoise"] else None
        self.posteriors = Posteriors(self, config, self.fields)

    def denoiser_config(self, config: Any) -> DenoiserConfig:
        """The keys of the configuration that the denoiser knows."""
        own = {"max_length", "causal", "align", "n_heads"}
        names = {field.name for field in dataclasses.fields(DenoiserConfig)} - own
        given = {name: config[name] for name in names if name in config and config[name] is not None}
        return DenoiserConfig(
            max_length=self.max_seq_length,
            causal=self.causal,
            align="end" if self.from_end else "start",
            n_heads=config["n_heads"],
            **given,
        )

    # ---- what a model defines ----

    def embed(self, batch: Batch) -> Any:
        """Whatever ``encode`` needs that no mask can change; computed once per step."""
        raise NotImplementedError

    def encode(self, embedded: Any) -> Tensor:
        """States F^(L) [B, m, d] of all positions."""
        raise NotImplementedError

    def readout(self, states: Tensor) -> Tensor:
        """What is compared with the items, of states [P, d] that are asked for: the states themselves."""
        return states

    def item_weights(self) -> Tensor:
        """The embedding table T [items, d] that states are compared with."""
        return self.item_embedding.weight

    def item_bias(self) -> Tensor | None:
        """Per-item bias of the score, or none."""
        return None

    # ---- batches ----

    def batch(self, interaction: Any) -> Batch:
        """Whole sequences with a target at every position, or RecBole's prefixes with one at the end."""
        items, length = interaction[self.fields.item + self.fields.list_suffix], interaction[self.fields.length]
        width = self._width(length)
        aligned = align(items, length, width, self.from_end)
        if self.fields.target_list in interaction:
            targets = align(interaction[self.fields.target_list], length, width, self.from_end)
        else:
            targets = torch.zeros_like(aligned)
            targets[torch.arange(len(length)), self._last(length, width)] = interaction[self.fields.item]
        negatives = None
        if self.fields.negative_list in interaction:
            negatives = align(interaction[self.fields.negative_list], length, width, self.from_end)
        trust = self.posteriors.trust(interaction, lambda: self._target_posterior(interaction, length, width))
        return Batch(
            aligned, targets, negatives, interaction, trust=trust, prior=self._prior(interaction, aligned, length)
        )

    def _target_posterior(self, interaction: Any, length: Tensor, width: int) -> Tensor:
        """[B, m] probability that each position's target is noise."""
        if self.fields.target_posterior in interaction:
            return align(interaction[self.fields.target_posterior], length, width, self.from_end)
        return interaction[self.fields.posterior][:, None].expand(-1, width)  # prefixes: one target

    def _prior(self, interaction: Any, items: Tensor, length: Tensor) -> Tensor | None:
        """[B, m] probability that each input item is noise."""
        width = items.size(1)
        return self.posteriors.of_inputs(interaction, items, lambda x: align(x, length, width, self.from_end))

    def inference_batch(self, interaction: Any) -> tuple[Batch, Tensor]:
        """Histories to score the next item of, and the index [B] of the position that predicts it."""
        items, length = interaction[self.fields.item + self.fields.list_suffix], interaction[self.fields.length]
        width = self._width(length)
        aligned = align(items, length, width, self.from_end)
        prior = self._prior(interaction, aligned, length)
        return Batch(aligned, torch.zeros_like(aligned), None, interaction, prior=prior), self._last(length, width)

    def _width(self, length: Tensor) -> int:
        """Positions needed for the longest sequence of the batch, at most n; a traced graph serves any batch."""
        if is_traced():
            return self.max_seq_length
        return min(max(int(length.max()), 1), self.max_seq_length)

    def _last(self, length: Tensor, width: int) -> Tensor:
        if self.from_end:
            return torch.full_like(length, width - 1)
        return length.clamp(1, width) - 1

    def position_ids(self, width: int) -> Tensor:
        """[m] rows of the position table: its last m, or its first m."""
        first = self.max_seq_length - width if self.from_end else 0
        return torch.arange(first, first + width, device=self.item_embedding.weight.device)

    # ---- training: the objective at every position, through the denoiser ----

    def start_epoch(self, epoch: int) -> None:
        """The trainer says which epoch begins (for the warm-up of target denoising)."""
        self.epoch = epoch

    def calculate_loss(self, interaction: Any) -> tuple[Tensor, Tensor, Tensor]:
        """L_rec, beta R_M (with Phi's surrogate) and gamma R_J."""
        batch = self.batch(interaction)
        self._shared(batch)
        share = batch_share(lambda: batch.counts(self.causal))
        embedded = self.embed(batch)
        positive: list[Tensor] = []  # positive losses of the first pass

        def losses() -> Tensor:
            loss, positive_part = self.position_losses(self.encode(embedded), batch)
            positive.append(positive_part)
            return loss

        def weights(_: Tensor) -> Tensor:
            rate = warmed_rate(self.target_rate, self.epoch, self.target_warmup)
            return batch_weights(positive[0].detach(), batch.targets, batch.trust, self.target_denoise, rate, share)

        if self.denoiser is None:
            with self.posteriors.told(None, batch):
                plain = losses()
            zero = plain.new_zeros(())
            return (plain * weights(plain)).sum() * share.targets, zero, zero
        result = self.denoiser.loss(losses, valid=batch.valid, weights=weights, share=share, prior=batch.prior)
        return result.rec, result.mask, result.jacobian

    def position_losses(self, states: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss and its positive part [B, m] at the positions that have a target, 0 elsewhere."""
        there = Positions(batch.targets != 0)
        negatives = self._shared(batch)
        if negatives is None and batch.negatives is not None:
            negatives = there.of(batch.negatives)
        equal = self.target_denoise == "none" and batch.trust is None
        asked = self.readout(there.of(states))  # [P, d]
        loss, positive = self.objective.losses(self, asked, there.of(batch.targets), negatives, equal)
        spread = there.back(loss)
        return spread, spread if positive is loss else there.back(positive)

    def _shared(self, batch: Batch) -> Tensor | None:
        """The shared negatives of the step, the same in all of its passes."""
        if batch.shared is None:
            batch.shared = self.objective.draw(batch.targets)
        return batch.shared

    def scores(self, state: Tensor, items: Tensor) -> Tensor:
        """r_{i,t} = <F_t, T_i> of states [P, d] and items [P, c]."""
        scores = dots(F.embedding(items, self.item_weights()), state)
        bias = self.item_bias()
        return scores if bias is None else scores + bias[items]

    # ---- scoring ----

    def forward(self, item_seq: Tensor, item_seq_len: Tensor) -> Tensor:
        """State [B, d] that predicts the next item, from RecBole's right-padded sequences."""
        return self.last_state({self.fields.item + self.fields.list_suffix: item_seq, self.fields.length: item_seq_len})

    def last_state(self, interaction: Any) -> Tensor:
        """[B, d]: one encoding per sequence."""
        batch, last = self.inference_batch(interaction)
        if self.fast_inference and not self.training and not torch.is_grad_enabled() and not is_traced():
            state = self.last_row(batch, last)
            if state is not None:
                return state
        with self.posteriors.told(self.denoiser, batch):
            states = self.encode(self.embed(batch))
        return self.readout(states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1))

    def last_row(self, batch: Batch, last: Tensor) -> Tensor | None:
        """``last_state`` without the states of other positions (inference.py); None: run the full pass."""
        return None

    def score_candidates(self, interaction: Any, candidates: Tensor) -> Tensor:
        """Scores [B, C] of candidate items [B, C]."""
        return self.scores(self.last_state(interaction), candidates)

    def predict(self, interaction: Any) -> Tensor:
        """RecBole: score [B] of one item per row."""
        return self.score_candidates(interaction, interaction[self.fields.item][:, None]).squeeze(1)

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """RecBole: scores [B, items] of all items."""
        return F.linear(self.last_state(interaction), self.item_weights()[: self.n_items], self.item_bias())

    # ---- masks ----

    def mask_parameters(self) -> list[nn.Parameter]:
        """Phi and what makes it, for an optimiser group of their own."""
        return [] if self.denoiser is None else list(self.denoiser.parameters())

    @contextmanager
    def counting_kept(self) -> Iterator[None]:
        """Count, over all forward passes inside the context, which attentions the gate keeps."""
        if self.denoiser is None:
            yield
            return
        with self.denoiser.collect_kept() as counter:
            yield
        device = self.item_embedding.weight.device
        counter.kept, counter.live = total(counter.kept, device), total(counter.live, device)
        self.counted_share = counter.share

    counted_share: list[float] | None = None

    def kept_share(self) -> list[float] | None:
        """Share of live attentions that the gate keeps, per layer: of the last ``counting_kept``."""
        return self.counted_share
