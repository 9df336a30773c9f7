"""The forward passes of one training step: what each attention site multiplies with, and what is remembered.

FirstPass draws Z = 1[U < g(Phi)] at every site (Algorithm 1). SecondPass replays the same loss with antithetic bits
Z~ = 1[U > g(-Phi)] at the flipped sites and the same U everywhere else, and with the same dropout. FixedMask re-runs
one block for the Jacobian penalty. Gate is the rule outside of training steps. Each is a rule (see attention.Site):
(site, attention) -> masked attention.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from recbole_denoiser.core.attention import AttentionCall, Rule, Site
from recbole_denoiser.core.config import PATHWISE, DenoiserConfig
from recbole_denoiser.core.dropout import uniform
from recbole_denoiser.core.estimators import pathwise_mask, sample, sample_antithetic
from recbole_denoiser.core.kept import KeptCounter
from recbole_denoiser.core.masks import valid_for
from recbole_denoiser.core.replay import (
    Mark,
    Replay,
    in_backward,
    in_checkpoint,
    outside_checkpoint,
    restore_rng,
    save_rng,
)
from recbole_denoiser.errors import UserError


@dataclass(frozen=True)
class Step:
    """What is known about the sequences of a pass."""

    valid: Tensor | None = None  # [B, m] real items; None: all
    prior: Tensor | None = None  # [B, m] posterior of being noise, for mask_prior


@dataclass
class Draw:
    """One call of one site in the first pass."""

    site: Site
    Phi: Tensor  # [1 or B, 1 or H, m, m], with the graph to the mask's parameters
    U: Tensor  # [1 or B, 1 or H, m, m]
    Z: Tensor  # the same shape
    call: AttentionCall  # the attention before the mask, without its graph
    before: Mark | None  # right before U was drawn; None if nothing will be replayed or computed again
    after: Mark | None  # right after it
    twin: Tensor | None = None  # Z~ of the second pass, if the estimator needs it


@dataclass
class Gate:
    """The rule of inference (section 4.1.2): Z is the gate of Phi."""

    step: Step = field(default_factory=Step)
    counter: KeptCounter | None = None
    recompute: Recompute | None = None  # of the last training step, if it had checkpoints

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        if self.recompute is not None and self.recompute.is_for(site):
            return self.recompute(site, call)
        Z = self.of(site, call)
        site.states = None
        if self.counter is not None:
            self.counter.add(site.index, Z.detach(), valid_for(call.shape, self.step.valid, call.device))
        return call.masked(Z)

    def of(self, site: Site, call: AttentionCall) -> Tensor:
        """Z [1 or B, 1 or H, m, m] of a call."""
        return site.mask.gate(call.shape[-1], site.states, self.step.prior)


class FirstPass:
    """Draws a mask at every call of a site and remembers the draws in the order of the calls."""

    def __init__(self, config: DenoiserConfig, step: Step, replay: Replay | None, watch: bool = False) -> None:
        self.config, self.step, self.replay, self.watch = config, step, replay, watch
        self.graph = torch.is_grad_enabled()
        self.in_checkpoint = False  # is any site computed again in backward()?
        self.draws: list[Draw] = []
        self.watched: list[Tensor] = []  # masked attention of each draw, if asked for

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        mask = site.mask
        B, _, m, _ = call.shape
        again = in_checkpoint(self.graph)
        self.in_checkpoint = self.in_checkpoint or again
        with outside_checkpoint(self.graph) if again else nullcontext():
            Phi = mask.logits(m, site.states, self.step.prior)
        B = B if self.config.mask_sampling == "sequence" else 1
        before = self._mark(call, again)
        U = uniform((B, mask.heads, m, m), Phi.dtype, call.device)
        name = self.config.estimator
        if name in PATHWISE:
            Z = pathwise_mask(name, mask.logits(m, site.states, self.step.prior) if again else Phi, U)
        else:
            Z = sample(Phi.detach(), U)
        if self.replay is not None:
            self.replay.in_prefix = False
        after = self._mark(call, again)
        M = call.masked(Z)
        if self.watch and not again:
            M = M if M.requires_grad else M.detach().requires_grad_()
            self.watched.append(M)
        self.draws.append(Draw(site, Phi, U, Z, call.detached(), before, after))
        return M

    def _mark(self, call: AttentionCall, again: bool) -> Mark | None:
        if self.replay is not None:
            return self.replay.mark()
        return Mark(save_rng(call.device), 0) if again else None


class SecondPass:
    """Replays the draws with some of them flipped to their antithetic twins.

    Sites above a flipped one keep their U. Position masks then keep their Z; content masks see other states, so their
    Phi is computed anew and the same U makes the Z that belongs to it.
    """

    def __init__(self, draws: list[Draw], flipped: Iterable[int], step: Step, replay: Replay, keep_twins: bool) -> None:
        self.draws, self.step, self.replay, self.keep_twins = draws, step, replay, keep_twins
        self.flipped = set(flipped)
        self.waiting: dict[int, list[int]] = {}  # site index -> its draws, next one first
        for k, draw in enumerate(draws):
            self.waiting.setdefault(draw.site.index, []).append(k)

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        waiting = self.waiting.get(site.index)
        if not waiting:
            raise UserError(_calls_differ(site, "more"))
        k = waiting.pop(0)
        draw = self.draws[k]
        if call.shape != draw.call.shape:
            raise UserError(_calls_differ(site, "other"))
        assert draw.before is not None and draw.after is not None
        self.replay.check(draw.before)
        self.replay.wind_to(draw.after)  # as if U had been drawn, so that dropout after this site is the first pass's
        if k in self.flipped:
            Z = sample_antithetic(draw.Phi, draw.U)
            draw.twin = Z if self.keep_twins else None
        elif not site.mask.is_content or k < min(self.flipped):
            Z = draw.Z
        else:
            Z = sample(site.mask.logits(call.shape[-1], site.states, self.step.prior), draw.U)
        return call.masked(Z)

    def finish(self, skipped: list[nn.Module]) -> None:
        """Every draw must have been used, but for those inside blocks that were not run again."""
        answered = {id(block) for block in skipped}
        for ks in self.waiting.values():
            left = next((self.draws[k].site for k in ks if id(self.draws[k].site.block) not in answered), None)
            if left is not None:
                raise UserError(_calls_differ(left, "fewer"))


def _calls_differ(site: Site, how: str) -> str:
    return (
        f"The second pass of a training step used the attention at {site.name} with {how} calls than the first, so "
        "their losses cannot be compared. loss_fn must run the same layers each time (numpy's and Python's own random "
        "numbers are not replayed); else choose an estimator with one pass (ar, reinforce)."
    )


class Recompute:
    """What a checkpoint of the model computes again in backward(): the first pass with its draws.

    torch.utils.checkpoint sets the random state back to what it was, so the state before a call tells which call it is:
    one of the last step's draws, or one that was gated after it.
    """

    def __init__(self, draws: list[Draw], config: DenoiserConfig, step: Step) -> None:
        self.config, self.step = config, step
        self.draws = {
            (draw.site.index, draw.before.rng.key()): draw for draw in draws if draw.before is not None
        }  # fmt: skip
        self.device = draws[0].call.device
        self.gated: set[tuple[int, Hashable]] = set()

    def is_for(self, site: Site) -> bool:
        """Is this call of a site part of the step? If not it is gated, and so it is when backward() repeats it."""
        now = (site.index, save_rng(self.device).key())
        if not in_backward():
            self.gated.add(now)
            return False
        if (now in self.draws) == (now in self.gated):
            raise UserError(
                f"Gradient checkpointing ran the attention at {site.name} again, and it is not clear for which call. "
                "Call backward() before the next loss() or other passes with gradients, leave checkpoint's "
                "preserve_rng_state on, and do not set the random seed in between."
            )
        return now in self.draws

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        draw = self.draws[site.index, save_rng(self.device).key()]
        assert draw.after is not None
        restore_rng(draw.after.rng)  # as if U had been drawn, so that dropout after this site is the first pass's
        Z = draw.Z
        if self.config.estimator in PATHWISE:
            Phi = site.mask.logits(call.shape[-1], site.states, self.step.prior)
            Z = pathwise_mask(self.config.estimator, Phi, draw.U)
        return call.masked(Z)


class FixedMask:
    """Given masks: the first pass's Z of some sequences of the batch."""

    def __init__(self, Z: dict[int, Tensor]) -> None:
        self.Z = Z  # site index -> Z

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        return call.masked(self.Z[site.index]) if site.index in self.Z else call.weights


@contextmanager
def ruled(sites: list[Site], rule: Rule | None) -> Iterator[None]:
    """All sites follow `rule` inside the context, and what they followed before after it."""
    before = [site.rule for site in sites]
    for site in sites:
        site.rule = rule
    try:
        yield
    finally:
        for site, old in zip(sites, before, strict=True):
            site.rule = old
            site.states = None  # do not keep the step's graph alive
