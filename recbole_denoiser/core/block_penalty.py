"""R_J of a whole model (eq. 14): the Jacobian penalty of every Transformer block at the inputs of the first pass.

Each block is run again on a random sub-batch, with the first pass's Z and fresh dropout. Scaling by B over the size of
the sub-batch keeps the estimate of the whole batch's penalty unbiased. Z is held constant, since R_J is there to train
Theta; its gradient also reaches the layers below, through the block's input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.blocks import BlockCall, BlockRecorder
from recbole_denoiser.core.config import DenoiserConfig
from recbole_denoiser.core.jacobian import jacobian_penalty, real_outputs
from recbole_denoiser.core.layout import has_cache
from recbole_denoiser.core.passes import Draw, FixedMask, ruled
from recbole_denoiser.errors import UserError


def block_penalties(
    sites: list[Site], recorder: BlockRecorder, draws: list[Draw], valid: Tensor | None, config: DenoiserConfig
) -> Tensor:
    """R_J, summed over the blocks. A block that was called several times counts with its first call."""
    Z = {draw.site.index: draw.Z.detach() for draw in reversed(draws)}  # reversed: the first call of a site stays
    penalties = []
    for block in recorder.blocks:
        calls = recorder.calls[id(block)]
        if calls:
            batch_first = next(site.batch_first for site in sites if site.block is block)
            penalties.append(_block_penalty(sites, block, calls[0], batch_first, Z, valid, config))
    if not penalties:
        raise UserError("The Jacobian penalty found no Transformer block that loss_fn ran: set gamma to 0.")
    return torch.stack(penalties).sum()


def _block_penalty(
    sites: list[Site],
    block: nn.Module,
    call: BlockCall,
    batch_first: bool,
    Z: dict[int, Tensor],
    valid: Tensor | None,
    config: DenoiserConfig,
) -> Tensor:
    if not call.input_is_kept():
        raise UserError(
            f"The Jacobian penalty needs the input of {type(block).__name__}, which the model overwrites in place: "
            "write x = x + y instead of x += y, or set gamma to 0."
        )
    if has_cache(call.args, call.kwargs):
        raise UserError(
            f"The Jacobian penalty runs {type(block).__name__} twice, and its cache of keys remembers both runs: call "
            "the model with use_cache=False, or set gamma to 0."
        )
    x = _input_of(call)
    if call.without_graph and not x.requires_grad:
        raise UserError(
            f"The Jacobian penalty needs the graph of {type(block).__name__}'s input, which a reentrant checkpoint "
            "around several blocks drops: use checkpoints with use_reentrant=False, or set gamma to 0."
        )
    if x.dim() != 3:
        raise UserError(
            f"The Jacobian penalty needs block inputs [B, m, d]; {type(block).__name__} got {tuple(x.shape)}."
        )
    B, m = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    real = x.new_ones(B, m) if valid is None else valid.to(x.dtype)
    outputs = real_outputs(x, real)
    scale = 1.0
    if batch_first and 0 < config.jacobian_batch < B and _can_be_cut(call, B, m):
        chosen = torch.randperm(B, device=x.device)[: config.jacobian_batch]
        scale = B / len(chosen)
        call, x, real = _cut(call, chosen, B), x[chosen], real[chosen]
        Z = {index: z[chosen] if z.shape[0] == B else z for index, z in Z.items()}

    def run(x: Tensor) -> Tensor:
        output = block(*_with_input(call.args, x), **call.kwargs)
        return output if isinstance(output, Tensor) else output[0]

    with ruled(sites, FixedMask(Z)):
        penalty = jacobian_penalty(
            run,
            x,
            real if batch_first else real.T,
            projections=config.jacobian_projections,
            noise=config.jacobian_noise,
            method=config.jacobian_method,
            step=config.jacobian_step,
        )
    return penalty * (scale * real_outputs(x, real) / outputs)


def _input_of(call: BlockCall) -> Tensor:
    """The hidden states: the first positional argument of the block."""
    if not call.args or not isinstance(call.args[0], Tensor):
        raise UserError("The Jacobian penalty needs blocks whose first positional argument is the hidden states.")
    return call.args[0]


def _with_input(args: tuple[Any, ...], x: Tensor) -> tuple[Any, ...]:
    return (x, *args[1:])


def _others(call: BlockCall) -> list[Tensor]:
    return [value for value in (*call.args[1:], *call.kwargs.values()) if isinstance(value, Tensor)]


def _can_be_cut(call: BlockCall, B: int, m: int) -> bool:
    """Is it clear which arguments have one entry per sequence? If not, the whole batch is used."""
    unclear_side = m == B and any(t.dim() in (1, 2) for t in _others(call))  # [B, m] padding or [m, m] mask?
    merged_heads = any(t.dim() > 2 and t.shape[0] not in (1, B) for t in _others(call))  # [B * H, m, m]
    return not unclear_side and not merged_heads


def _cut(call: BlockCall, chosen: Tensor, B: int) -> BlockCall:
    def cut(value: Any) -> Any:
        return value[chosen] if isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == B else value

    kwargs = {key: cut(value) for key, value in call.kwargs.items()}
    return replace(call, args=tuple(cut(value) for value in call.args), kwargs=kwargs)
