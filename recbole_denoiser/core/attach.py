"""Finding the attention sites of a model, putting masks there, and putting everything back.

What counts as attention, and how it is masked, stands in kinds.py. A model in which nothing fits is an error, never a
silent no-op; a module that is masked but computes its attention past the mask is an error when it runs (Site.run); a
mask that the loss does not depend on is one at the first training step (objective.check_influence).
"""

from __future__ import annotations

import re

import torch
from torch import nn

from recbole_denoiser.core.attention import MaskedSoftmax, Site
from recbole_denoiser.core.kinds import dropout_child, has_projections, softmax_child, way_of, way_of_named
from recbole_denoiser.core.torch_attention import MaskedMultiheadAttention
from recbole_denoiser.errors import UserError

_ATTENTION_LIKE = re.compile(r"attn|attention", re.IGNORECASE)


def attach_sites(model: nn.Module, names: tuple[str, ...] | None) -> list[Site]:
    """Find the sites (or take the named ones), put the masks' hooks in place and return them in module order.

    If one of them cannot be masked, the model is left as it was.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError(
            "A scripted model cannot be masked, since its attention is out of reach: denoise it, then script it."
        )
    _refuse_double(model)
    found = _search(model) if names is None else _named(model, names)
    sites: list[Site] = []
    try:
        for index, (name, module) in enumerate(found):
            batch_first = module.batch_first if isinstance(module, nn.MultiheadAttention) else True
            site = Site(name or type(model).__name__, index, module, _block_of(model, name), batch_first)
            way_of_named(module)(model, site)
            sites.append(site)
    except BaseException:
        detach_sites(sites)
        raise
    return sites


def detach_sites(sites: list[Site]) -> None:
    """Undo attach_sites, the newest first."""
    for site in reversed(sites):
        site.rule = None
        site.undo()


def width_of(site: Site) -> int | None:
    """Width of the hidden states that enter the attention, for content masks."""
    if isinstance(site.attention, nn.MultiheadAttention):
        return site.attention.embed_dim
    for child in site.attention.children():
        for name in ("in_features", "nx"):  # nn.Linear; Hugging Face's Conv1D
            if isinstance(getattr(child, name, None), int):
                return int(getattr(child, name))
    return None


def heads_of(site: Site) -> int | None:
    """Number of heads, as far as the attention module tells."""
    for name in ("num_attention_heads", "num_heads", "n_heads", "n_head", "head_num", "heads"):
        value = getattr(site.attention, name, None)
        if isinstance(value, int):
            return value
    return None


def _search(model: nn.Module) -> list[tuple[str, nn.Module]]:
    found = [(name, m) for name, m in model.named_modules() if way_of(m) is not None]
    if not found:
        raise UserError(_no_site_message(model))
    return found


def _named(model: nn.Module, names: tuple[str, ...]) -> list[tuple[str, nn.Module]]:
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules or not name:
            raise UserError(f"Setting sites names {name!r}, which is no module of {type(model).__name__}.")
    if len({id(modules[name]) for name in names}) < len(names):
        raise UserError(f"Setting sites names the same module twice: {', '.join(names)}.")
    return [(name, modules[name]) for name in names]


def _block_of(model: nn.Module, name: str) -> nn.Module:
    """The Transformer layer of an attention: the child of the nearest nn.ModuleList above it, or its parent."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            return model.get_submodule(".".join(parts[: end + 1]))
    return model.get_submodule(".".join(parts[:-1]))


def _refuse_double(model: nn.Module) -> None:
    for name, module in model.named_modules():
        watched = isinstance(getattr(module.__dict__.get("forward"), "__self__", None), Site)
        if watched or isinstance(module, (MaskedSoftmax, MaskedMultiheadAttention)):
            raise UserError(f"{type(model).__name__} already has a denoiser (at {name}): call its detach() first.")


def _no_site_message(model: nn.Module) -> str:
    lines = [f"No attention was found in {type(model).__name__}, so there is nothing to mask."]
    for name, module in model.named_modules():
        like = _ATTENTION_LIKE.search(name.rpartition(".")[2]) or _ATTENTION_LIKE.search(type(module).__name__)
        part = softmax_child(module) is not None or dropout_child(module) is not None
        if name and not isinstance(module, nn.Dropout) and (like or part) and not has_projections(module):
            lines.append(f"  candidate {name} ({type(module).__name__}): no query and key projections")
    if len(lines) == 1:
        lines.append("  No module looks like attention.")
    lines.append("Name the attention modules in the setting sites, or tell their class to register_attention.")
    return "\n".join(lines)
