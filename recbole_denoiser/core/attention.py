"""Attention sites: where Z acts on the attention weights (eq. 8), M = softmax(QK'/sqrt(d)) * Z.

A Site stands for one attention layer of somebody's model. It is a plain object, so the modules it points at are not
registered twice and no state_dict key changes. What it does is decided by its rule, which the denoiser sets: the gate
of inference, a sampled mask, the antithetic mask of the second pass, or nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_denoiser.core import forms
from recbole_denoiser.core.layout import Layout, find_heads_first
from recbole_denoiser.core.masks import AttentionMask
from recbole_denoiser.core.probe import can_be_probed, probe
from recbole_denoiser.errors import UserError


class AttentionCall:
    """One call of one site: the attention [B, H, m, m] as it would be without a mask."""

    def __init__(self, form: str, scores: Tensor | None = None, A: Tensor | None = None) -> None:
        self.form, self.scores, self._A = form, scores, A
        known = scores if scores is not None else A
        assert known is not None
        self.shape, self.device, self.dtype = known.shape, known.device, known.dtype
        if form == "product" and A is None and scores is not None:
            self._A = F.softmax(scores, dim=-1)

    @property
    def weights(self) -> Tensor:
        """Attention weights before the mask."""
        if self._A is None:
            assert self.scores is not None
            self._A = F.softmax(self.scores, dim=-1)
        return self._A

    def masked(self, Z: Tensor) -> Tensor:
        """What the values are weighted with; Z [1 or B, 1 or H, m, m]."""
        if self.form == "product":
            return forms.product(self.weights, Z)
        if self.scores is None:
            return forms.renormalised_weights(self.weights, Z)
        return forms.renormalised_path(self.scores, Z) if Z.requires_grad else forms.renormalised_scores(self.scores, Z)

    def detached(self) -> AttentionCall:
        """The same without its graph; a form that needs no weights keeps the scores only."""
        if self._A is not None:
            return AttentionCall(self.form, A=self._A.detach())
        assert self.scores is not None
        return AttentionCall(self.form, scores=self.scores.detach())


@contextmanager
def quiet_trace() -> Iterator[None]:
    """Inside the context torch.jit.trace does not complain that shapes are looked at: a trace holds for one shape."""
    if not torch.jit.is_tracing():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        yield


Rule = Callable[["Site", AttentionCall], Tensor]  # the attention of a call -> masked attention weights


class Site:
    """One attention layer: its name, its module, its Transformer block, its mask and the rule that applies it."""

    mask: AttentionMask  # set by the denoiser, which owns it

    def __init__(self, name: str, index: int, attention: nn.Module, block: nn.Module, batch_first: bool = True) -> None:
        self.name, self.index = name, index
        self.attention, self.block = attention, block
        self.batch_first = batch_first  # layout of the block's input: [B, m, d] or [m, B, d]
        self.form = "product"
        self.rule: Rule | None = None  # None: attention passes untouched
        self.keeps_states = False  # does the mask read the hidden states?
        self.states: Tensor | None = None  # input of the attention layer [B, m, d], for content masks
        self.layout = Layout()
        self.listeners: list[Tensor] | None = None  # gets the weights or scores of a trial run, see layout.py
        self.around: Callable[[Site], AbstractContextManager[Any]] | None = None  # entered while the module runs
        self.undo: Callable[[], None] = _nothing  # puts the model back as it was

    # ------------------------------------------------------- what attention modules call

    def attend(self, scores: Tensor) -> Tensor:
        """Scores before the softmax -> what the values are weighted with."""
        if self.listeners is not None:
            self.listeners.append(scores.detach())
        self.reached = True
        if self.rule is None or self.listeners is not None:
            return F.softmax(scores, dim=-1)
        with quiet_trace():
            return self._ruled(scores, True)

    def multiply(self, A: Tensor) -> Tensor:
        """Attention weights after the softmax -> what the values are weighted with."""
        if self.listeners is not None:
            self.listeners.append(A.detach())
        self.reached = True
        if self.rule is None or self.listeners is not None:
            return A
        with quiet_trace():
            return self._ruled(A, False)

    def _ruled(self, x: Tensor, are_scores: bool) -> Tensor:
        assert self.rule is not None
        if x.dim() < 3 or x.shape[-1] != x.shape[-2]:
            raise UserError(
                f"Attention site {self.name} has weights of shape {tuple(x.shape)}: the last two sides must be equal "
                "(self-attention over whole sequences). List the self-attention modules to be masked in the setting "
                "sites, and turn caches of keys off (use_cache=False)."
            )
        attention, back = self.layout.open(x, lambda B: find_heads_first(self, x, B))  # [B, H, m, m]
        given = {"scores" if are_scores else "A": attention}
        return back(self.rule(self, AttentionCall(self.form, **given)))

    # ------------------------------------------------------- around the attention module

    reached = False  # have the weights of the module that runs come by?
    proven = False  # does the module's output depend on them?
    own_forward: Callable[..., Any]  # of the module

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Takes the place of the module's forward: the weights that it computes must come by here."""
        if self.rule is None and self.listeners is None:
            return self.own_forward(*args, **kwargs)
        if self.listeners is None:
            if not self.proven and can_be_probed(self, args, kwargs):
                self.proven = probe(self, self._run_own, args, kwargs)
            self.layout.enter(args, kwargs)
            if self.keeps_states:
                self.catch_states(self.attention, args, kwargs)
        try:
            output = self._run_own(*args, **kwargs)
        finally:
            if self.listeners is None:
                self.layout.leave()
        if not self.reached:
            raise UserError(
                f"The attention at {self.name} ({type(self.attention).__name__}) ran without its weights being seen, "
                "so a mask has no effect there. Known are nn.Softmax, softmax functions and "
                "F.scaled_dot_product_attention over square scores; a fused kernel must be switched off (Hugging Face: "
                "attn_implementation='eager' or 'sdpa'), other code is told by register_attention; or leave this "
                "module out by naming the others in the setting sites."
            )
        return output

    def _run_own(self, *args: Any, **kwargs: Any) -> Any:
        self.reached = False
        with self.around(self) if self.around is not None else nullcontext():
            return self.own_forward(*args, **kwargs)

    def catch_states(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember the attention's first tensor argument as the hidden states (also a forward pre-hook)."""
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if x is None or x.dim() != 3:
            shape = None if x is None else tuple(x.shape)
            raise UserError(
                f"Content mask at {self.name}: the attention's input is {shape}, not [batch, length, width]."
            )
        self.states = x if self.batch_first else x.transpose(0, 1)

    def before_dropout(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Forward pre-hook on an attention-dropout module: its input is the attention, unless that was seen before."""
        return args if self.reached else (self.multiply(args[0]), *args[1:])

    def after_softmax(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        """Forward hook on a module that turns scores into weights."""
        return self.multiply(output)


def _nothing() -> None:
    """The undo of a site that has not been attached."""


class MaskedSoftmax(nn.Module):
    """Takes the place of an attention's nn.Softmax child; it has no parameters of its own."""

    def __init__(self, site: Site, dim: int | None) -> None:
        super().__init__()
        self.site, self.dim = site, dim

    def forward(self, scores: Tensor) -> Tensor:
        """Scores [B, H, m, m] -> masked attention weights."""
        if self.site.rule is None and self.site.listeners is None:
            return F.softmax(scores, dim=self.dim)
        return self.site.attend(scores)
