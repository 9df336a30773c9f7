"""One training step (Algorithm 1): L = L_rec + beta * R_M + gamma * R_J with masks sampled in the first pass.

How a step runs. The first pass draws Z at every attention site and returns the recommendation loss. Two-pass estimators
replay it without gradients at the antithetic Z~, with the same dropout, and turn loss differences into a gradient for
Phi. conditional=True flips one layer at a time and answers the blocks below it from the first pass.

Content masks. Phi of an upper layer depends on the states and so on the Z below it. Its estimate must compare two
losses at the same Phi, so content masks always flip one layer at a time: everything below is as in the first pass.
Layers above the flipped one keep their U, not their Z: their Phi is computed from the new states, and the same U then
draws from the right conditional distribution, which keeps the estimate unbiased (checked by enumeration in the tests).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from recbole_denoiser.core import objective
from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.block_penalty import block_penalties
from recbole_denoiser.core.blocks import BlockRecorder
from recbole_denoiser.core.config import ONE_PASS, PATHWISE, TWO_PASS, DenoiserConfig
from recbole_denoiser.core.control import CreditBaseline, SparsityControl
from recbole_denoiser.core.estimators import layer_coefficients, signal, surrogate
from recbole_denoiser.core.masks import live_for, valid_for
from recbole_denoiser.core.objective import DenoiserLoss, Share, Weights, row_credits
from recbole_denoiser.core.passes import Draw, FirstPass, SecondPass, Step, ruled
from recbole_denoiser.core.replay import Replay

LossFn = Callable[[], Tensor]


class TrainingStep:
    """The passes of one step and the terms that come of them."""

    def __init__(
        self,
        sites: list[Site],
        config: DenoiserConfig,
        control: SparsityControl,
        baseline: CreditBaseline,
        step: Step,
        enabled: bool,
        first_ever: bool,
    ) -> None:
        self.sites, self.config, self.control, self.baseline, self.step = sites, config, control, baseline, step
        self.enabled, self.first_ever = enabled, first_ever
        self.graph = torch.is_grad_enabled()
        two_pass = enabled and self.graph and config.estimator in TWO_PASS
        self.replay = Replay(sites[0].mask.phi.device) if two_pass else None
        self.first = FirstPass(config, step, self.replay, watch=first_ever and self.graph) if enabled else None
        self.recorder = BlockRecorder(sites, self.replay)

    @property
    def draws(self) -> list[Draw]:
        """The masks of the first pass, in the order of the calls."""
        return [] if self.first is None else self.first.draws

    def run(self, loss_fn: LossFn, weights: Weights, share: Share) -> DenoiserLoss:
        """All passes; see Denoiser.loss."""
        config, valid = self.config, self.step.valid
        record = self.graph and (config.gamma > 0 or (self.replay is not None and config.one_layer_at_a_time))
        recording = self.recorder.recording() if record else nullcontext()
        with ruled(self.sites, self.first), recording, self.replay or nullcontext():
            losses = objective.one_number(loss_fn(), weights)
        fixed = objective.position_weights(losses, valid, weights)  # the second pass uses the same
        fixed = None if fixed is None else fixed * share.targets
        rec = losses if fixed is None else (losses * fixed).sum()
        objective.check_finite(rec, self.draws)

        zero = rec.new_zeros(())
        mask_term, r_m, kept = zero, zero, rec.new_ones(len(self.sites))
        if self.first is not None:
            objective.check_sites_used(self.sites, self.draws)
            if self.first_ever:
                objective.check_attention(self.draws, valid, config.causal)
                objective.check_influence(rec, self.first)
            kept = objective.kept_probabilities(self.draws, len(self.sites), valid, config)
            r_m = kept.sum() * share.live
            if self.graph and config.target_sparsity is not None:
                self.control.update(objective.pruned_share(self.draws, valid, config))
            mask_term = float(self.control.beta) * r_m
            if self.graph and config.estimator not in PATHWISE:
                mask_term = mask_term + self._estimate(loss_fn, losses.detach(), fixed, weights)
        r_j = zero
        if self.graph and config.gamma > 0:
            r_j = block_penalties(self.sites, self.recorder, self.draws, valid, config) * share.real
        return DenoiserLoss(rec, mask_term, config.gamma * r_j, r_m.detach(), r_j.detach(), kept.detach())

    def _estimate(self, loss_fn: LossFn, losses: Tensor, fixed: Tensor | None, weights: Weights) -> Tensor:
        """The zero-valued surrogate of all layers; losses: those of the first pass."""
        config, K = self.config, len(self.draws)
        f = losses if fixed is None else losses * fixed
        end = None if self.replay is None else self.replay.end_of_first_pass()
        twin: Tensor | None = None
        total = f.new_zeros(())
        for k, draw in enumerate(self.draws):
            if self.replay is not None and (twin is None or config.one_layer_at_a_time):
                flipped = [k] if config.one_layer_at_a_time else list(range(K))
                again = objective.one_number(self._second_pass(loss_fn, flipped), weights)
                twin = again if fixed is None else again * fixed
            total = total + self._layer(draw, k, f, twin)
        if self.replay is not None and end is not None:
            self.replay.wind_to(end)
        return total

    def _second_pass(self, loss_fn: LossFn, flipped: list[int]) -> Tensor:
        """The loss with some draws at their antithetic twins, and everything else random as in the first pass."""
        config, replay = self.config, self.replay
        assert replay is not None
        below = self.recorder.below(self.draws, flipped[0]) if config.one_layer_at_a_time else []
        end = replay.end_of_first_pass()
        replay.rewind()
        rule = SecondPass(self.draws, flipped, self.step, replay, keep_twins=config.estimator == "disarm")
        with torch.no_grad(), ruled(self.sites, rule), self.recorder.skipping(below), replay:
            losses = loss_fn()
        rule.finish(below)
        replay.check(end)
        return losses

    def _layer(self, draw: Draw, k: int, f: Tensor, twin: Tensor | None) -> Tensor:
        """The surrogate of one draw: its gradient with respect to Phi is the estimate."""
        config, K, shape = self.config, len(self.draws), draw.call.shape
        credit_b = row_credits(f, draw, k, K, config)
        credit_twin = None if twin is None else row_credits(twin, draw, k, K, config)
        valid = valid_for(shape, self.step.valid, draw.call.device).to(draw.U.dtype)
        constant = self.baseline.step(draw.site.index, credit_b, valid) if config.estimator in ONE_PASS else 0.0
        row_signal = signal(config.estimator, credit_b, credit_twin, constant)
        Phi = draw.Phi.detach()
        live = live_for(Phi, valid, config.causal) if Phi.shape[0] > 1 else None  # Phi per sequence
        bits = None if draw.twin is None else (draw.Z, draw.twin)
        coef = layer_coefficients(config.estimator, Phi, draw.U, row_signal, valid, config.causal, live, bits)
        return surrogate(coef, draw.Phi)
