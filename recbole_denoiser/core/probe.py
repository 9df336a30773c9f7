"""A probe of an attention module at its first run in eval mode: closing the gate must change what the module returns.

A module may compute weights to show them and take its output from elsewhere; a mask on such weights has no effect. The
same holds for hard attention with a straight-through gradient, one_hot + A - A.detach(): a gradient, but no value. In
training objective.check_influence looks at the whole loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recbole_denoiser.core.layout import has_cache
from recbole_denoiser.core.replay import in_backward, paused
from recbole_denoiser.errors import UserError

if TYPE_CHECKING:
    from recbole_denoiser.core.attention import AttentionCall, Site

ROUNDING = 4.0  # output changes up to this many units of its precision are no effect
PROMISE = 1000.0  # a gradient that speaks of a change this many times larger, where there is none, is no real one


def can_be_probed(site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Not while a graph is recorded or computed again, nor where a further run would be remembered or listened to."""
    recorded = torch.jit.is_tracing() or torch.compiler.is_compiling() or in_backward()
    return not (site.attention.training or recorded or has_cache(args, kwargs) or _has_listeners(site))


def _has_listeners(site: Site) -> bool:
    """Are there forward hooks inside the module that are not the site's own?"""
    inside = (module for module in site.attention.modules() if module is not site.attention)
    hooks = (hook for m in inside for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values()))
    return any(getattr(hook, "__self__", None) is not site for hook in hooks)


def probe(site: Site, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """An error if what `run` returns for these arguments does not depend on the weights that it shows to the site.

    Whether that is proven: inference mode, which keeps no graph, cannot tell a weight of zero from no effect.
    """
    seen: list[Tensor] = []

    def opened(site: Site, call: AttentionCall) -> Tensor:
        seen.append(call.weights.detach())
        return seen[-1]

    def closed(site: Site, call: AttentionCall) -> Tensor:
        return torch.zeros_like(call.weights)

    def watched(site: Site, call: AttentionCall) -> Tensor:
        return opened(site, call).requires_grad_()

    def states_by(rule: Callable[[Site, AttentionCall], Tensor]) -> Tensor | None:
        seen.clear()
        site.rule = rule
        return _first(run(*_copied(args), **_copied(kwargs)))

    before, rng = site.rule, torch.get_rng_state()
    try:
        with paused(), torch.no_grad():
            with_weights = states_by(opened)
            if with_weights is None or not seen:  # weights that are not seen are told after the run itself
                return True
            without = states_by(closed)
        if without is None:
            return True
        noise = ROUNDING * torch.finfo(with_weights.dtype).eps * with_weights.abs().max()
        if not (with_weights - without).abs().max() <= noise:  # also if closing gives NaN
            return True
        if torch.is_inference_mode_enabled():
            return False
        with paused(), torch.enable_grad():  # a weight of zero behind the attention looks the same: follow the graph
            states = states_by(watched)
            if states is not None and states.requires_grad:
                along = torch.randn(states.shape).to(states)  # a plain sum is 0 behind a LayerNorm, whatever happens
                found = torch.autograd.grad((states * along).sum(), seen, allow_unused=True)
                promised = [(g * A).sum().abs() for g, A in zip(found, seen, strict=True) if g is not None]
                if promised and max(promised) <= PROMISE * noise:
                    return True
    finally:
        site.rule = before
        torch.set_rng_state(rng)
    raise UserError(
        f"The output of {site.name} ({type(site.attention).__name__}) does not depend on its attention weights: the "
        "module computes them but takes its output from elsewhere (a fused kernel, hard attention?), so a mask has no "
        "effect there. "
        "Switch that off, tell register_attention how it works, or name the other modules in the setting sites."
    )


def _first(value: Any) -> Tensor | None:
    """The first tensor of nested tuples, lists and dictionaries: the hidden states that a module returns."""
    if isinstance(value, Tensor):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((found for item in inner if (found := _first(item)) is not None), None)


def _copied(value: Any) -> Any:
    """Copies of all tensors, so that a module that writes into its input writes into these."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(_copied(item) for item in value)
    return {key: _copied(item) for key, item in value.items()} if type(value) is dict else value
