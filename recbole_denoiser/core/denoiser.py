"""Rec-Denoiser as one object: masks on the attention of an existing model, and the loss that trains them (section 4).

    denoiser = denoise(model, DenoiserConfig(max_length=50, beta=0.01))
    result = denoiser.loss(lambda: model.losses_per_position(batch), valid=batch.is_real_item)
    result.total.backward()

The masks are parameters of the denoiser, not of the model: give ``denoiser.parameters()`` to an optimiser (a learning
rate of their own helps), and save both, ``model.state_dict()`` and ``denoiser.state_dict()``. To load, build the model,
call denoise() with the same settings and load both. bake() puts the masks into the model for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from recbole_denoiser.core.attach import attach_sites, detach_sites, heads_of, width_of
from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.bake import bake_sites
from recbole_denoiser.core.config import DenoiserConfig
from recbole_denoiser.core.control import CreditBaseline, SparsityControl
from recbole_denoiser.core.kept import KeptCounter, position_kept_share
from recbole_denoiser.core.masks import AttentionMask
from recbole_denoiser.core.objective import WHOLE, DenoiserLoss, Share, Weights
from recbole_denoiser.core.passes import Gate, Recompute, Step
from recbole_denoiser.core.torch_attention import MaskedMultiheadAttention
from recbole_denoiser.core.training import TrainingStep
from recbole_denoiser.errors import UserError


def denoise(model: nn.Module, config: DenoiserConfig) -> Denoiser:
    """Attach trainable attention masks to an existing model; `detach()` of the result undoes it.

    A refused setting leaves the model as it was.

    >>> import torch
    >>> from recbole_denoiser import DenoiserConfig, denoise
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    >>> denoiser = denoise(model, DenoiserConfig(max_length=5, causal=False, beta=0.02))
    >>> x = torch.randn(3, 5, 8)
    >>> result = denoiser.loss(lambda: model(x).square().mean(-1))  # losses per position [3, 5]
    >>> result.total.backward()
    >>> all(parameter.grad is not None for parameter in denoiser.parameters())
    True
    """
    sites = attach_sites(model, config.sites)
    try:
        with torch.inference_mode(False):  # or masks made inside it would never get a gradient
            return Denoiser(sites, config)
    except BaseException:
        detach_sites(sites)
        raise


class Denoiser(nn.Module):
    """Masks of all attention layers of one model, and the loss that trains them.

    It may be made a submodule of the model it serves: it holds the mask parameters only and points at the model's
    layers through plain objects. Outside loss() the gate of inference acts on the attention.

    >>> import torch
    >>> from recbole_denoiser import DenoiserConfig, denoise
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    >>> denoiser = denoise(model, DenoiserConfig(max_length=5, causal=False, beta=0.02))
    >>> denoiser.kept_share()  # per layer; every gate is open at first
    [1.0, 1.0]
    >>> "masks.0.phi" in denoiser.state_dict()  # and not in the model's own: save both
    True
    >>> denoiser.detach()  # the model is as it was
    """

    def __init__(self, sites: list[Site], config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        self.sites = sites
        self.control = SparsityControl(config)
        self.baseline = CreditBaseline(len(sites), config)
        self.masks = nn.ModuleList([self._make_mask(site) for site in sites])
        self.enabled = True
        self._gate = Gate()
        self._checked = False  # what is looked at once, in the first training step
        self._handles: list[Any] = []
        for site, mask in zip(sites, self.masks, strict=True):
            assert isinstance(mask, AttentionMask)
            site.mask, site.rule, site.form = mask, self._gate, config.mask_form
            site.keeps_states = config.mask == "content"
            if site.keeps_states and isinstance(site.attention, MaskedMultiheadAttention):
                self._handles.append(site.attention.register_forward_pre_hook(site.catch_states, with_kwargs=True))

    def _make_mask(self, site: Site) -> AttentionMask:
        heads = self.config.n_heads or heads_of(site)
        if self.config.mask_per_head and heads is None:
            raise UserError(f"mask_per_head: attention site {site.name} does not tell its heads; set n_heads.")
        mask = AttentionMask(self.config, width_of(site), heads or 1)
        like = next(site.attention.parameters(), None)
        if like is None:
            return mask
        # at least float32, whatever the model's precision: a step of 0.01 from 3.0 is nothing in bfloat16
        return mask.to(device=like.device, dtype=torch.promote_types(like.dtype, torch.float32))

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
        detach_sites(self.sites)
        self._let_go()

    def bake(self) -> None:
        """Leave the gates in the model as constants, and let go of it: for deployment and export.

        The model then needs no denoiser: each attention module has a buffer ``denoiser_gate`` [1 or H, n, n], which
        is in the model's state_dict. To load such a state_dict, build the model, call ``denoise(model, config).bake()``
        and then ``model.load_state_dict``. Position masks only: others depend on the data.
        """
        self._require_position_masks("bake()", "Deploy the model with its denoiser, both state_dicts saved")
        bake_sites(self.sites, self.config)
        self._let_go()

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self.sites, self._handles, self.enabled = [], [], False

    # ---------------------------------------------------------------- inference

    def has_plain_gates(self) -> bool:
        """Are all gates known without any data, and nothing but them applied to the attention?"""
        plain = all(site.rule is self._gate and not site.mask.needs_data for site in self.sites)
        return self.enabled and plain

    def position_gates(self, valid: Tensor) -> list[Tensor]:
        """Gates Z [1, 1 or H, m, m] of all layers for sequences valid [B, m]; counted if collect_kept is open."""
        gates = [site.mask.gate(valid.shape[1]) for site in self.sites]
        if self._gate.counter is not None:
            for site, Z in zip(self.sites, gates, strict=True):
                self._gate.counter.add(site.index, Z.detach(), valid)
        return gates

    @contextmanager
    def valid_positions(self, valid: Tensor | None, prior: Tensor | None = None) -> Iterator[None]:
        """Inside the context `valid` [B, m] says which positions are real items, `prior` [B, m] how likely noise."""
        with self._gate_with(step=Step(valid, prior)):
            yield

    @contextmanager
    def collect_kept(self) -> Iterator[KeptCounter]:
        """Count live and kept (gate > 0) attentions over all forward passes inside the context."""
        counter = KeptCounter(len(self.masks), self.config.causal)
        with self._gate_with(counter=counter):
            yield counter

    @contextmanager
    def _gate_with(self, **changes: Any) -> Iterator[None]:
        before = {name: getattr(self._gate, name) for name in changes}
        self._gate.__dict__.update(changes)
        try:
            yield
        finally:
            self._gate.__dict__.update(before)

    def kept_share(self, forward: Callable[[], Any] | None = None, valid: Tensor | None = None) -> list[float]:
        """Kept share of each layer's live attentions.

        Without arguments that of the position masks over the causal triangle or the full square. Masks that depend on
        the data (content, prior) have a share on data only: ``forward`` runs the model on some, e.g.
        ``denoiser.kept_share(lambda: model(items), valid=items != 0)``.
        """
        if forward is None:
            counted = "Count what they keep by kept_share(lambda: model(batch), valid) or collect_kept()"
            self._require_position_masks("kept_share() without data", counted)
            return [position_kept_share(mask, self.config.causal) for mask in self.masks]
        step = self._gate.step if valid is None else replace(self._gate.step, valid=valid)
        with self._gate_with(step=step), self.collect_kept() as counter:
            forward()
        return counter.share

    def _require_position_masks(self, what: str, instead: str) -> None:
        if any(mask.needs_data for mask in self.masks):
            raise UserError(
                f"{what} is for position masks: these depend on the data (mask {self.config.mask}, mask_prior "
                f"{self.config.mask_prior}). {instead}."
            )

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
        prior: Tensor | None = None,
    ) -> DenoiserLoss:
        """Run the model through `loss_fn` and return the terms of the objective.

        loss_fn() returns losses per position [B, m], per sequence [B] or one number: the estimator uses the finest
        credit it gets. valid [B, m] marks real items (None: all). weights: None (mean over valid positions), a tensor
        like the losses, or a function of the first pass's detached losses; rec = sum(losses * weights) and the second
        pass uses the same weights. share: this process's part of a batch that several processes train on (a loss that
        is one number already is not scaled). prior [B, m]: with mask_prior, the posterior that each item is noise.
        Afterwards torch's random state is where the first pass left it (the Jacobian penalty, which comes last, draws
        on from there).
        """
        if not self.sites:
            raise UserError("This denoiser was detached from its model: call denoise() again.")
        outer = self._gate.step
        step = Step(outer.valid if valid is None else valid, outer.prior if prior is None else prior)
        first_ever = self.enabled and not self._checked
        run = TrainingStep(self.sites, self.config, self.control, self.baseline, step, self.enabled, first_ever)
        result = run.run(loss_fn, weights, share)
        self._checked = self._checked or self.enabled
        # A checkpointed part of the model runs again in backward(): then it must meet the masks of this step.
        again = run.first is not None and run.first.in_checkpoint
        self._gate.recompute = Recompute(run.draws, self.config, step) if again else None
        return result
