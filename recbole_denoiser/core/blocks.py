"""The Transformer blocks of a model in the first pass: what went in and came out, and answering from that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.exposure import Exposure
from recbole_denoiser.core.passes import Draw
from recbole_denoiser.core.replay import Mark, Replay


@dataclass
class BlockCall:
    """What went into and came out of a Transformer block in the first pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    mark: Mark | None  # after the block; None if nothing will be replayed
    input_versions: list[int]  # before the block ran
    output_versions: list[int]
    without_graph: bool  # it ran without gradients, as inside a reentrant checkpoint
    exposure: Exposure  # whose memory the pass opened

    def input_is_kept(self) -> bool:
        """Has nobody, the block included, written into what it was given?"""
        given = (self.args, self.kwargs)
        return versions(given) == self.input_versions and not self.exposure.has_exposed(given)

    def output_is_kept(self) -> bool:
        """Has nobody written into what it returned? What hides its tensors counts as written into."""
        shown = isinstance(self.output, (Tensor, tuple, list, dict))
        return shown and versions(self.output) == self.output_versions and not self.exposure.has_exposed(self.output)


def versions(value: Any) -> list[int]:
    """Version counters of all tensors in nested tuples, lists and dictionaries: they change with every write."""
    if isinstance(value, Tensor):
        return [] if value.is_inference() else [value._version]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [version for item in inner for version in versions(item)]


class BlockRecorder:
    """Forward hooks on the blocks, for the duration of the first pass only."""

    def __init__(self, sites: list[Site], replay: Replay | None) -> None:
        self.blocks = list({id(site.block): site.block for site in sites}.values())
        self.replay = replay
        self.exposure = Exposure() if replay is None else replay  # a replay is active in every pass
        self.calls: dict[int, list[BlockCall]] = {id(block): [] for block in self.blocks}
        self.entered: dict[int, list[int]] = {}  # versions of the input of a block that is running

    def _enter(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.entered[id(block)] = versions((args, kwargs))

    def _remember(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        mark = self.replay.mark() if self.replay else None
        entered = self.entered.pop(id(block))
        call = BlockCall(
            args, kwargs, output, mark, entered, versions(output), not torch.is_grad_enabled(), self.exposure
        )
        self.calls[id(block)].append(call)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Remember every call of the blocks inside the context."""
        handles = [block.register_forward_hook(self._remember, with_kwargs=True) for block in self.blocks]
        handles += [block.register_forward_pre_hook(self._enter, with_kwargs=True) for block in self.blocks]
        try:
            with self.exposure if self.replay is None else nullcontext():
                yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def skipping(self, blocks: list[nn.Module]) -> Iterator[None]:
        """Inside the context these blocks return their first-pass output, with the random state that followed it."""
        before = {id(block): block.__dict__.get("forward") for block in blocks}
        try:
            for block in blocks:
                (call,) = self.calls[id(block)]
                block.__dict__["forward"] = self._answer(call)
            yield
        finally:
            for block in blocks:
                own = before[id(block)]
                if own is None:
                    block.__dict__.pop("forward", None)
                else:
                    block.__dict__["forward"] = own

    def below(self, draws: list[Draw], k: int) -> list[nn.Module]:
        """Blocks that finished before draw k was made: called once, and none of their draws is k or later.

        A block whose output was written into is not among them: its output of the first pass is lost.
        """
        busy = {id(draw.site.block) for draw in draws[k:]}
        holds = {id(module) for draw in draws[k:] for module in [draw.site.attention]}
        return [
            block
            for block in self.blocks
            if len(self.calls[id(block)]) == 1
            and self.calls[id(block)][0].output_is_kept()
            and id(block) not in busy
            and not any(id(inner) in holds for inner in block.modules())
        ]

    def _answer(self, call: BlockCall) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            assert self.replay is not None and call.mark is not None
            self.replay.wind_to(call.mark)
            return _alias(call.output)

        return forward


def _alias(value: Any) -> Any:
    """The same values without their graph: a function of autograd would claim the tensors it returns as its own."""
    if isinstance(value, Tensor):
        return value.detach()
    if type(value) in (tuple, list):
        return type(value)(_alias(item) for item in value)
    if type(value) is dict:
        return {key: _alias(item) for key, item in value.items()}
    return value
