"""Ways to put a mask on an attention module, and the registry of users' own.

Tried in this order:
 0. classes told by register_attention;
 1. torch's nn.MultiheadAttention: becomes an explicit attention with a place for the mask, the same object;
 2. a module with an nn.Softmax child (RecBole's MultiHeadAttention): the child is replaced;
 3. a module with query and key projections, or one fused projection: the softmax or F.scaled_dot_product_attention
    inside its forward, or else the input of its attention-dropout child (functional.py).
Each way keeps an undo in the site. If one fails, nothing of it stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from recbole_denoiser.core.attention import MaskedSoftmax, Site
from recbole_denoiser.core.functional import Intercept
from recbole_denoiser.core.torch_attention import MaskedMultiheadAttention
from recbole_denoiser.errors import UserError

Way = Callable[[nn.Module, Site], None]  # (model, site): put the mask in place and set site.undo

_WORD = r"(proj|projection|linear|lin|layer|weight|w|fc|net)"
_QUERY = re.compile(rf"^((w|lin|linear|to|fc)_?)?(q|query|queries)(_?{_WORD})?$", re.IGNORECASE)
_KEY = re.compile(rf"^((w|lin|linear|to|fc)_?)?(k|key|keys)(_?{_WORD})?$", re.IGNORECASE)
_FUSED = re.compile(r"qkv|c_attn|in_proj|query_key_value|to_qk", re.IGNORECASE)
_DROPOUT = re.compile(r"^(attn|att|attention|attention_probs)_?(drop|dropout)$", re.IGNORECASE)

_registered: dict[type[nn.Module], Way] = {}


def register_attention(
    kind: type[nn.Module],
    *,
    softmax: str | None = None,
    dropout: str | None = None,
    attach: Callable[[Site], Callable[[], None]] | None = None,
) -> None:
    """Tell how attention modules of a class (and its subclasses) are masked; they are then found by themselves.

    softmax: name of the child module that turns scores into weights. dropout: name of the child that gets the weights.
    attach: a function that makes the module call ``site.attend(scores)`` or ``site.multiply(weights)`` and returns how
    to undo that. Nothing given: the module calls a softmax function or F.scaled_dot_product_attention.

    >>> import torch
    >>> class MyAttention(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.normalise = torch.nn.Softmax(-1)
    ...
    ...     def forward(self, x):
    ...         return self.normalise(x @ x.transpose(1, 2)) @ x
    >>> register_attention(MyAttention, softmax="normalise")
    >>> from recbole_denoiser import DenoiserConfig, denoise
    >>> len(denoise(torch.nn.Sequential(MyAttention()), DenoiserConfig(max_length=5, causal=False)).sites)
    1
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise UserError(f"register_attention takes a class of modules, not {kind!r}.")
    if sum(given is not None for given in (softmax, dropout, attach)) > 1:
        raise UserError(f"register_attention({kind.__name__}) takes one of softmax, dropout and attach.")
    if softmax is not None:
        _registered[kind] = partial(_hook_child, softmax, after=True)
    elif dropout is not None:
        _registered[kind] = partial(_hook_child, dropout, after=False)
    elif attach is not None:
        _registered[kind] = partial(_own_way, attach)
    else:
        _registered[kind] = _intercept


def unregister_attention(kind: type[nn.Module]) -> None:
    """Take back register_attention; models that are attached already stay as they are.

    >>> import torch
    >>> from recbole_denoiser import register_attention
    >>> class MyAttention(torch.nn.Module):
    ...     pass
    >>> register_attention(MyAttention)
    >>> unregister_attention(MyAttention)
    """
    _registered.pop(kind, None)


def way_of(module: nn.Module) -> Way | None:
    """The way to mask a module that is found by itself, or None if it is no attention."""
    for kind in type(module).__mro__:
        if kind in _registered:
            return _registered[kind]
    if isinstance(module, nn.MultiheadAttention):
        return _take_over_torch_attention
    if not has_projections(module):
        return None
    return _replace_softmax if softmax_child(module) is not None else _intercept


def way_of_named(module: nn.Module) -> Way:
    """The way to mask a module that the user names."""
    return way_of(module) or (_replace_softmax if softmax_child(module) is not None else _intercept)


def softmax_child(module: nn.Module) -> str | None:
    """The name of a child that is a softmax over keys."""
    return _child(module, lambda name, child: isinstance(child, nn.Softmax) and child.dim in (-1, 3))


def dropout_child(module: nn.Module) -> str | None:
    """The name of a child that is called attention dropout."""
    return _child(module, lambda name, child: isinstance(child, nn.Dropout) and _DROPOUT.match(name) is not None)


def has_projections(module: nn.Module) -> bool:
    """Query and key projections, or one for both."""
    names = [name for name, _ in module.named_children()]
    both = any(map(_QUERY.match, names)) and any(map(_KEY.match, names))
    return both or any(map(_FUSED.search, names))


def _child(module: nn.Module, test: Callable[[str, nn.Module], bool]) -> str | None:
    return next((name for name, child in module.named_children() if test(name, child)), None)


def _wrap_forward(site: Site) -> Callable[[], None]:
    """Let the site watch the module's forward; the way back."""
    module = site.attention
    own = module.__dict__.get("forward")
    site.own_forward = module.forward
    module.__dict__["forward"] = site.run
    return partial(_unwrap_forward, module, own)


def _unwrap_forward(module: nn.Module, own: Any) -> None:
    if own is None:
        module.__dict__.pop("forward", None)
    else:
        module.__dict__["forward"] = own


def _replace_softmax(model: nn.Module, site: Site) -> None:
    name = softmax_child(site.attention)
    assert name is not None
    original = getattr(site.attention, name)
    unwrap = _wrap_forward(site)
    setattr(site.attention, name, MaskedSoftmax(site, original.dim).train(original.training))
    site.undo = partial(_in_turn, partial(_put_back, site.attention, name, original), unwrap)


def _intercept(model: nn.Module, site: Site) -> None:
    unwrap = _wrap_forward(site)
    site.around = Intercept
    name = dropout_child(site.attention)
    if name is None:
        site.undo = unwrap
        return
    handle = getattr(site.attention, name).register_forward_pre_hook(site.before_dropout)
    site.undo = partial(_in_turn, handle.remove, unwrap)


def _hook_child(name: str, model: nn.Module, site: Site, *, after: bool) -> None:
    child = getattr(site.attention, name, None)
    if not isinstance(child, nn.Module):
        raise UserError(f"register_attention names {name!r}, which is no child of {site.name}.")
    unwrap = _wrap_forward(site)
    hook = (
        child.register_forward_hook(site.after_softmax)
        if after
        else child.register_forward_pre_hook(site.before_dropout)
    )
    site.undo = partial(_in_turn, hook.remove, unwrap)


def _own_way(attach: Callable[[Site], Callable[[], None]], model: nn.Module, site: Site) -> None:
    unwrap = _wrap_forward(site)
    try:
        undo = attach(site)
    except BaseException:
        unwrap()
        raise
    site.undo = partial(_in_turn, undo, unwrap)


def _take_over_torch_attention(model: nn.Module, site: Site) -> None:
    module = site.attention
    assert isinstance(module, nn.MultiheadAttention)
    has_own_forward = type(module).forward is not nn.MultiheadAttention.forward
    give_back = MaskedMultiheadAttention.take_over(module, site)
    unwrap = _wrap_forward(site) if has_own_forward else _no_step  # an own forward may pass by the masked one
    # nn.TransformerEncoder turns padded input into nested tensors in eval mode, which explicit attention cannot take.
    encoders = [m for m in model.modules() if isinstance(m, nn.TransformerEncoder) and m.use_nested_tensor]
    for encoder in encoders:
        encoder.use_nested_tensor = False
    site.undo = partial(_in_turn, unwrap, give_back, partial(_use_nested_tensors, encoders))


def _put_back(parent: nn.Module, name: str, original: nn.Module) -> None:
    original.train(getattr(parent, name).training)
    setattr(parent, name, original)


def _use_nested_tensors(encoders: list[nn.TransformerEncoder]) -> None:
    for encoder in encoders:
        encoder.use_nested_tensor = True


def _no_step() -> None:
    """Nothing to undo."""


def _in_turn(*steps: Callable[[], None]) -> None:
    for step in steps:
        step()
