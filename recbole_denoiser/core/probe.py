"""A probe of an attention module at its first run in eval mode: closing the gate must change what the module returns.

A module may compute weights to show them and take its output from elsewhere; a mask on such weights has no effect. In
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


def can_be_probed(site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Not while a graph is recorded or computed again, nor where a further run would be remembered or listened to."""
    recorded = torch.jit.is_tracing() or torch.compiler.is_compiling() or in_backward()
    return not (site.attention.training or recorded or has_cache(args, kwargs) or _has_listeners(site))


def _has_listeners(site: Site) -> bool:
    """Are there forward hooks inside the module that are not the site's own?"""
    inside = (module for module in site.attention.modules() if module is not site.attention)
    hooks = (hook for m in inside for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values()))
    return any(getattr(hook, "__self__", None) is not site for hook in hooks)


def probe(site: Site, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An error if what `run` returns for these arguments does not depend on the weights that it shows to the site."""
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
                return
            without = states_by(closed)
        if without is None or not torch.equal(with_weights, without) or torch.is_inference_mode_enabled():
            return
        with paused(), torch.enable_grad():  # a weight of zero behind the attention looks the same: follow the graph
            states = states_by(watched)
            if states is not None and states.requires_grad:
                found = torch.autograd.grad(states.sum(), seen, allow_unused=True)
                if any(gradient is not None for gradient in found):
                    return
    finally:
        site.rule = before
        torch.set_rng_state(rng)
    raise UserError(
        f"The output of {site.name} ({type(site.attention).__name__}) does not depend on its attention weights: the "
        "module computes them but takes its output from elsewhere (a fused kernel?), so a mask has no effect there. "
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
