"""Finding the attention sites of a model, swapping them in, and putting everything back.

Three kinds of attention are known, tried in this order:
 1. torch's nn.MultiheadAttention: replaced by an explicit module on the same parameters;
 2. a module with an nn.Softmax child (RecBole's MultiHeadAttention): the child is replaced;
 3. a module without one but with an attention-dropout child (minGPT): a pre-hook on the dropout.
Kinds 2 and 3 must also have query and key projections (or one fused projection), so that gating networks and
classifiers with a softmax are left alone. A module that none of this fits is an error, never a silent no-op.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from torch import nn

from recbole_denoiser.core.attention import MaskedMultiheadAttention, MaskedSoftmax, Site
from recbole_denoiser.errors import UserError

_QUERY = re.compile(
    r"^(w_?|lin_?|linear_?)?(q|query)(_?(proj|projection|linear|lin|layer|weight|w|fc))?$", re.IGNORECASE
)
_FUSED = re.compile(r"qkv|c_attn|in_proj", re.IGNORECASE)
_DROPOUT = re.compile(r"^(attn|att|attention|attention_probs)_?(drop|dropout)$", re.IGNORECASE)
_ATTENTION_LIKE = re.compile(r"attn|attention", re.IGNORECASE)


def attach_sites(model: nn.Module, names: tuple[str, ...] | None) -> list[Site]:
    """Find the sites (or take the named ones), put the masks' hooks in place and return them in module order."""
    _refuse_double(model)
    found = _named(model, names) if names is not None else _search(model)
    sites = []
    for index, (name, module) in enumerate(found):
        batch_first = module.batch_first if isinstance(module, nn.MultiheadAttention) else True
        site = Site(name, index, module, _block_of(model, name), batch_first)
        _swap_in(model, site)
        sites.append(site)
    return sites


def width_of(site: Site) -> int | None:
    """Width of the hidden states that enter the attention, for content masks."""
    if isinstance(site.attention, nn.MultiheadAttention):
        return site.attention.embed_dim
    linear = next((child for child in site.attention.children() if isinstance(child, nn.Linear)), None)
    return None if linear is None else linear.in_features


def heads_of(site: Site) -> int | None:
    """Number of heads, as far as the attention module tells."""
    for name in ("num_attention_heads", "num_heads", "n_heads", "n_head", "head_num"):
        value = getattr(site.attention, name, None)
        if isinstance(value, int):
            return value
    return None


def _search(model: nn.Module) -> list[tuple[str, nn.Module]]:
    found = [(name, m) for name, m in model.named_modules() if _kind(m) is not None and _has_projections(m)]
    if not found:
        raise UserError(_no_site_message(model))
    return found


def _named(model: nn.Module, names: tuple[str, ...]) -> list[tuple[str, nn.Module]]:
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules:
            raise UserError(f"Setting sites names {name!r}, which is no module of {type(model).__name__}.")
        if _kind(modules[name]) is None:
            raise UserError(
                f"Setting sites names {name!r} ({type(modules[name]).__name__}), which has neither an nn.Softmax child "
                "nor an attention-dropout child and is no nn.MultiheadAttention: there is nowhere to put the mask."
            )
    return [(name, modules[name]) for name in names]


def _kind(module: nn.Module) -> Callable[[nn.Module, Site], None] | None:
    """The way to mask this module, or None if it is no attention."""
    if isinstance(module, nn.MultiheadAttention):
        return _replace_torch_attention
    if _child(module, _is_softmax) is not None:
        return _replace_softmax
    if _child(module, _is_attention_dropout) is not None:
        return _hook_dropout
    return None


def _is_softmax(name: str, child: nn.Module) -> bool:
    return isinstance(child, nn.Softmax) and child.dim in (-1, 3)


def _is_attention_dropout(name: str, child: nn.Module) -> bool:
    return isinstance(child, nn.Dropout) and _DROPOUT.match(name) is not None


def _child(module: nn.Module, test: Callable[[str, nn.Module], bool]) -> str | None:
    return next((name for name, child in module.named_children() if test(name, child)), None)


def _has_projections(module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return True
    return any(_QUERY.match(name) or _FUSED.search(name) for name, _ in module.named_children())


def _block_of(model: nn.Module, name: str) -> nn.Module:
    """The Transformer layer of an attention: the child of the nearest nn.ModuleList above it, or its parent."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            return model.get_submodule(".".join(parts[: end + 1]))
    return model.get_submodule(".".join(parts[:-1]))


def _swap_in(model: nn.Module, site: Site) -> None:
    way = _kind(site.attention)
    assert way is not None  # only modules with a kind become sites
    way(model, site)


def _replace_softmax(model: nn.Module, site: Site) -> None:
    name = _child(site.attention, _is_softmax)
    assert name is not None
    original = getattr(site.attention, name)
    setattr(site.attention, name, MaskedSoftmax(site, original.dim).train(original.training))
    site.undo = partial(_put_back, site.attention, name, original)


def _hook_dropout(model: nn.Module, site: Site) -> None:
    name = _child(site.attention, _is_attention_dropout)
    assert name is not None
    site.undo = getattr(site.attention, name).register_forward_pre_hook(site.before_dropout).remove


def _replace_torch_attention(model: nn.Module, site: Site) -> None:
    original = site.attention
    assert isinstance(original, nn.MultiheadAttention)
    path, _, name = site.name.rpartition(".")
    parent = model.get_submodule(path)
    masked = MaskedMultiheadAttention.standing_in_for(original, site)
    setattr(parent, name, masked)
    site.attention = masked
    if site.block is original:
        site.block = masked
    # nn.TransformerEncoder turns padded input into nested tensors in eval mode, which explicit attention cannot take.
    encoders = [m for m in model.modules() if isinstance(m, nn.TransformerEncoder) and m.use_nested_tensor]
    for encoder in encoders:
        encoder.use_nested_tensor = False
    site.undo = partial(_put_back_torch_attention, parent, name, original, encoders)


def _put_back(parent: nn.Module, name: str, original: nn.Module) -> None:
    original.train(getattr(parent, name).training)
    setattr(parent, name, original)


def _put_back_torch_attention(
    parent: nn.Module, name: str, original: nn.Module, encoders: list[nn.TransformerEncoder]
) -> None:
    _put_back(parent, name, original)
    for encoder in encoders:
        encoder.use_nested_tensor = True


def _refuse_double(model: nn.Module) -> None:
    for name, module in model.named_modules():
        hooked = any(isinstance(getattr(hook, "__self__", None), Site) for hook in module._forward_pre_hooks.values())
        if hooked or isinstance(module, (MaskedSoftmax, MaskedMultiheadAttention)):
            raise UserError(f"{type(model).__name__} already has a denoiser (at {name}): call its detach() first.")


def _no_site_message(model: nn.Module) -> str:
    lines = [f"No attention was found in {type(model).__name__}, so there is nothing to mask."]
    for name, module in model.named_modules():
        like = _ATTENTION_LIKE.search(name.rpartition(".")[2]) or _ATTENTION_LIKE.search(type(module).__name__)
        if name and not isinstance(module, nn.Dropout) and (like or _kind(module) is not None):
            why = "no query/key projection" if _kind(module) is not None else "no nn.Softmax or attention-dropout child"
            lines.append(f"  candidate {name} ({type(module).__name__}): {why}")
    if len(lines) == 1:
        lines.append("  No module looks like attention.")
    lines.append("Name the attention modules in the setting sites, or give them an nn.Softmax child.")
    return "\n".join(lines)
