"""Rec-Denoiser as one object: L = L_rec + beta * R_M + gamma * R_J with masks sampled in training (section 4.3).

    denoiser = denoise(model, DenoiserConfig(max_length=50, beta=0.01))
    result = denoiser.loss(lambda: model.losses_per_position(batch), valid=batch.is_real_item)
    result.total.backward()

How a step runs. The first pass draws Z at every attention site and gives the recommendation loss. Two-pass estimators
replay it without gradients at the antithetic Z~, with the same dropout, and turn loss differences into a gradient for
Phi. conditional=True flips one layer at a time and answers the blocks below it from the first pass.

Content masks. Phi of an upper layer depends on the states and so on the Z below it. Its estimate must compare two
losses at the same Phi, so content masks always flip one layer at a time: everything below is as in the first pass.
Layers above the flipped one keep their U, not their Z: their Phi is computed from the new states, and the same U then
draws from the right conditional distribution, which keeps the estimate unbiased (checked by enumeration in the tests).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from recbole_denoiser.core import objective
from recbole_denoiser.core.attach import attach_sites, heads_of, width_of
from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.block_penalty import block_penalties
from recbole_denoiser.core.config import ONE_PASS, PATHWISE, TWO_PASS, DenoiserConfig
from recbole_denoiser.core.control import CreditBaseline, SparsityControl
from recbole_denoiser.core.estimators import layer_coefficients, signal, surrogate
from recbole_denoiser.core.kept import KeptCounter, position_kept_share
from recbole_denoiser.core.masks import AttentionMask, gate, live_for
from recbole_denoiser.core.objective import WHOLE, DenoiserLoss, Share, Weights, row_credits, valid_for
from recbole_denoiser.core.passes import BlockRecorder, Draw, FirstPass, SecondPass, masked, ruled
from recbole_denoiser.core.replay import Replay
from recbole_denoiser.errors import UserError


def denoise(model: nn.Module, config: DenoiserConfig) -> Denoiser:
    """Attach trainable attention masks to an existing model; `detach()` of the result undoes it."""
    sites = attach_sites(model, config.sites)
    try:
        return Denoiser(sites, config)
    except UserError:
        for site in sites:  # a refused setting leaves the model as it was
            site.undo()
        raise


class Denoiser(nn.Module):
    """Masks of all attention layers of one model, and the loss that trains them.

    It may be made a submodule of the model it serves: it holds the mask parameters only and points at the model's
    layers through plain objects. Outside loss() the gate of inference multiplies the attention.
    """

    def __init__(self, sites: list[Site], config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        self.sites = sites
        self.masks = nn.ModuleList()
        self.control = SparsityControl(config)
        self.baseline = CreditBaseline(len(sites), config)
        self.enabled = True
        self._valid: Tensor | None = None
        self._counter: KeptCounter | None = None
        self._checked = False  # the causal pattern, once
        self._handles = []
        for site in sites:
            site.mask = self._make_mask(site)
            site.rule = self._gate
            self.masks.append(site.mask)
            if config.mask == "content":
                self._handles.append(site.attention.register_forward_pre_hook(site.catch_states, with_kwargs=True))

    def _make_mask(self, site: Site) -> AttentionMask:
        heads = self.config.n_heads or heads_of(site)
        if self.config.mask_per_head and heads is None:
            raise UserError(f"mask_per_head: attention site {site.name} does not tell its heads; set n_heads.")
        mask = AttentionMask(self.config, width_of(site), heads or 1)
        like = next(site.attention.parameters(), None)
        return mask if like is None else mask.to(device=like.device, dtype=like.dtype)

    # ---------------------------------------------------------------- switching

    def on(self) -> None:
        """Masks act (the state after attaching)."""
        self._switch(True)

    def off(self) -> None:
        """The plain model: attention passes untouched and no random number is drawn."""
        self._switch(False)

    def _switch(self, enabled: bool) -> None:
        self.enabled = enabled
        for site in self.sites:
            site.rule = self._gate if enabled else None

    def detach(self) -> None:
        """Put the model back as it was before denoise()."""
        for site in self.sites:
            site.rule = None
            site.undo()
        for handle in self._handles:
            handle.remove()
        self.sites, self._handles, self.enabled = [], [], False

    # ---------------------------------------------------------------- inference

    def _gate(self, site: Site, A: Tensor) -> Tensor:
        Z = gate(site.mask.logits(A.shape[-1], site.states))
        site.states = None
        if self._counter is not None:
            self._counter.add(site.index, Z.detach(), valid_for(A, self._valid))
        return masked(A, Z)

    def has_plain_gates(self) -> bool:
        """Are all gates known without any hidden state, and nothing but them multiplied with the attention?"""
        return self.enabled and all(site.rule == self._gate and not site.mask.is_content for site in self.sites)

    def position_gates(self, valid: Tensor) -> list[Tensor]:
        """Gates Z [1, 1 or H, m, m] of all layers for sequences valid [B, m]; counted if collect_kept is open."""
        gates = [gate(site.mask.logits(valid.shape[1])) for site in self.sites]
        if self._counter is not None:
            for site, Z in zip(self.sites, gates, strict=True):
                self._counter.add(site.index, Z.detach(), valid)
        return gates

    @contextmanager
    def valid_positions(self, valid: Tensor) -> Iterator[None]:
        """Inside the context `valid` [B, m] says which positions are real items."""
        before, self._valid = self._valid, valid
        try:
            yield
        finally:
            self._valid = before

    @contextmanager
    def collect_kept(self) -> Iterator[KeptCounter]:
        """Count live and kept (gate > 0) attentions over all forward passes inside the context."""
        before, self._counter = self._counter, KeptCounter(len(self.masks), self.config.causal)
        try:
            yield self._counter
        finally:
            self._counter = before

    def kept_share(self) -> list[float]:
        """Kept share of each layer's position mask, over the causal triangle or the full square; needs no data."""
        return [position_kept_share(mask, self.config.causal) for mask in self.masks]

    # ---------------------------------------------------------------- training

    @property
    def beta(self) -> float:
        """beta of R_M now; moves if target_sparsity is set."""
        return float(self.control.beta)

    def loss(
        self,
        loss_fn: Callable[[], Tensor],
        valid: Tensor | None = None,
        weights: Weights = None,
        share: Share = WHOLE,
    ) -> DenoiserLoss:
        """Run the model through `loss_fn` and return the terms of the objective.

        loss_fn() gives losses per position [B, m], per sequence [B] or one number: the estimator uses the finest
        credit it gets. valid [B, m] marks real items (None: all). weights: None (mean over valid positions), a tensor
        like the losses, or a function of the first pass's detached losses; rec = sum(losses * weights) and the second
        pass uses the same weights. share: this process's part of a batch that several processes train on (a loss that
        is one number already is not scaled). Afterwards torch's random state is where the first pass left it (the
        Jacobian penalty, which comes last, draws on from there).
        """
        if not self.sites:
            raise UserError("This denoiser was detached from its model: call denoise() again.")
        with self.valid_positions(valid) if valid is not None else nullcontext():
            return self._loss(loss_fn, weights, share)

    def _loss(self, loss_fn: Callable[[], Tensor], weights: Weights, share: Share) -> DenoiserLoss:
        config = self.config
        graph = torch.is_grad_enabled()
        two_pass = self.enabled and graph and config.estimator in TWO_PASS
        replay = Replay(self.sites[0].mask.phi.device) if two_pass else None
        first = FirstPass(config, replay) if self.enabled else None
        recorder = BlockRecorder(self.sites, replay)
        record = graph and (config.gamma > 0 or (two_pass and config.one_layer_at_a_time))
        with ruled(self.sites, first), recorder.recording() if record else nullcontext(), replay or nullcontext():
            losses = loss_fn()
        draws = first.draws if first is not None else []
        fixed = objective.position_weights(losses, self._valid, weights)  # the second pass uses the same
        fixed = None if fixed is None else fixed * share.targets
        rec = losses if fixed is None else (losses * fixed).sum()
        objective.check_finite(rec, draws)

        zero = rec.new_zeros(())
        mask_term, r_m, kept = zero, zero, rec.new_ones(len(self.masks))
        if self.enabled:
            self._check_sites(draws)
            kept = objective.kept_probabilities(draws, len(self.masks), self._valid, config)
            r_m = kept.sum() * share.live
            if graph and config.target_sparsity is not None:
                self.control.update(objective.pruned_share(draws, self._valid, config))
            mask_term = self.beta * r_m
            if graph and config.estimator not in PATHWISE:
                mask_term = mask_term + self._estimate(loss_fn, draws, losses.detach(), fixed, replay, recorder)
        r_j = zero
        if graph and config.gamma > 0:
            r_j = block_penalties(self.sites, recorder, draws, self._valid, config) * share.real
        return DenoiserLoss(rec, mask_term, config.gamma * r_j, r_m.detach(), r_j.detach(), kept.detach())

    def _check_sites(self, draws: list[Draw]) -> None:
        objective.check_sites_used(self.sites, draws)
        if not self._checked:
            objective.check_attention(draws, valid_for(draws[0].A, self._valid), self.config.causal)
            self._checked = True

    def _estimate(
        self,
        loss_fn: Callable[[], Tensor],
        draws: list[Draw],
        losses: Tensor,
        weights: Tensor | None,
        replay: Replay | None,
        recorder: BlockRecorder,
    ) -> Tensor:
        """The zero-valued surrogate of all layers; losses: those of the first pass."""
        config, K = self.config, len(draws)
        end = None if replay is None else replay.mark()
        f = losses if weights is None else losses * weights
        twin: Tensor | None = None
        total = f.new_zeros(())
        for k, draw in enumerate(draws):
            if replay is not None and end is not None and (twin is None or config.one_layer_at_a_time):
                flipped = [k] if config.one_layer_at_a_time else range(K)
                below = recorder.below(draws, k) if config.one_layer_at_a_time else []
                replay.rewind()
                rule = SecondPass(draws, flipped, replay, keep_twins=config.estimator == "disarm")
                with torch.no_grad(), ruled(self.sites, rule), recorder.skipping(below), replay:
                    again = loss_fn()
                rule.finish(below)
                replay.check(end)
                twin = again if weights is None else again * weights
            credit_b = row_credits(f, draw, k, K, config)
            credit_twin = None if twin is None else row_credits(twin, draw, k, K, config)
            valid = valid_for(draw.A, self._valid).to(draw.U.dtype)
            constant = self.baseline.step(draw.site.index, credit_b, valid) if config.estimator in ONE_PASS else 0.0
            row_signal = signal(config.estimator, credit_b, credit_twin, constant)
            Phi = draw.Phi.detach()
            live = live_for(Phi, valid, config.causal) if config.mask == "content" else None
            bits = None if draw.twin is None else (draw.Z, draw.twin)
            coef = layer_coefficients(config.estimator, Phi, draw.U, row_signal, valid, config.causal, live, bits)
            total = total + surrogate(coef, draw.Phi)
        if replay is not None and end is not None:
            replay.wind_to(end)
        return total
