"""The forward passes of one training step: what each attention site multiplies with, and what is remembered.

FirstPass draws Z = 1[U < g(Phi)] at every site (Algorithm 1). SecondPass replays the same loss with antithetic bits
Z~ = 1[U > g(-Phi)] at the flipped sites and the same U everywhere else, and with the same dropout. FixedMask re-runs
one block for the Jacobian penalty. Each is a rule (see attention.Site): (site, attention) -> masked attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.config import PATHWISE, DenoiserConfig
from recbole_denoiser.core.dropout import uniform
from recbole_denoiser.core.estimators import pathwise_mask, sample, sample_antithetic
from recbole_denoiser.core.replay import Mark, Replay
from recbole_denoiser.errors import UserError


@dataclass
class Draw:
    """One call of one site in the first pass."""

    site: Site
    Phi: Tensor  # [1 or B, 1 or H, m, m], with the graph to the mask's parameters
    U: Tensor  # [1 or B, 1 or H, m, m]
    Z: Tensor  # the same shape
    A: Tensor  # attention before the mask, detached
    before: Mark | None  # right before U was drawn; None if nothing will be replayed
    after: Mark | None  # right after it
    twin: Tensor | None = None  # Z~ of the second pass, if the estimator needs it


def masked(A: Tensor, Z: Tensor) -> Tensor:
    """A [B, H, m, m] (or [B, m, m]) times Z [1 or B, 1 or H, m, m]."""
    return A * (Z if A.dim() == 4 else Z.squeeze(1)).to(A.dtype)


class FirstPass:
    """Draws a mask at every call of a site and remembers the draws in the order of the calls."""

    def __init__(self, config: DenoiserConfig, replay: Replay | None) -> None:
        self.config, self.replay = config, replay
        self.draws: list[Draw] = []

    def __call__(self, site: Site, A: Tensor) -> Tensor:
        mask = site.mask
        m = A.shape[-1]
        Phi = mask.logits(m, site.states)
        B = A.shape[0] if self.config.mask_sampling == "sequence" else 1
        before = None if self.replay is None else self.replay.mark()
        U = uniform((B, mask.heads, m, m), Phi.dtype, A.device)
        name = self.config.estimator
        Z = pathwise_mask(name, Phi, U) if name in PATHWISE else sample(Phi.detach(), U)
        if self.replay is not None:
            self.replay.in_prefix = False
        after = None if self.replay is None else self.replay.mark()
        self.draws.append(Draw(site, Phi, U, Z, A.detach(), before, after))
        return masked(A, Z)


class SecondPass:
    """Replays the draws with some of them flipped to their antithetic twins.

    Sites above a flipped one keep their U. Position masks then keep their Z; content masks see other states, so their
    Phi is computed anew and the same U gives the Z that belongs to it.
    """

    def __init__(self, draws: list[Draw], flipped: Iterable[int], replay: Replay, keep_twins: bool) -> None:
        self.draws, self.replay, self.keep_twins = draws, replay, keep_twins
        self.flipped = set(flipped)
        self.waiting: dict[int, list[int]] = {}  # site index -> its draws, next one first
        for k, draw in enumerate(draws):
            self.waiting.setdefault(draw.site.index, []).append(k)

    def __call__(self, site: Site, A: Tensor) -> Tensor:
        waiting = self.waiting.get(site.index)
        if not waiting:
            raise UserError(_calls_differ(site, "more"))
        k = waiting.pop(0)
        draw = self.draws[k]
        if A.shape != draw.A.shape:
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
            Z = sample(site.mask.logits(A.shape[-1], site.states), draw.U)
        return masked(A, Z)

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


class FixedMask:
    """Multiplies with given masks: the first pass's Z of some sequences of the batch."""

    def __init__(self, Z: dict[int, Tensor]) -> None:
        self.Z = Z  # site index -> Z

    def __call__(self, site: Site, A: Tensor) -> Tensor:
        return masked(A, self.Z[site.index]) if site.index in self.Z else A


@contextmanager
def ruled(sites: list[Site], rule: FirstPass | SecondPass | FixedMask | None) -> Iterator[None]:
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


@dataclass
class BlockCall:
    """What went into and came out of a Transformer block in the first pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    mark: Mark | None  # after the block; None if nothing will be replayed
    input_versions: list[int]  # before the block ran
    output_versions: list[int]

    def input_is_kept(self) -> bool:
        """Has nobody, the block included, written into what it was given?"""
        return versions((self.args, self.kwargs)) == self.input_versions

    def output_is_kept(self) -> bool:
        """Has nobody written into what it returned? What hides its tensors counts as written into."""
        shown = isinstance(self.output, (Tensor, tuple, list, dict))
        return shown and versions(self.output) == self.output_versions


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
        self.calls: dict[int, list[BlockCall]] = {id(block): [] for block in self.blocks}
        self.entered: dict[int, list[int]] = {}  # versions of the input of a block that is running

    def _enter(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.entered[id(block)] = versions((args, kwargs))

    def _remember(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        mark = self.replay.mark() if self.replay else None
        call = BlockCall(args, kwargs, output, mark, self.entered.pop(id(block)), versions(output))
        self.calls[id(block)].append(call)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Remember every call of the blocks inside the context."""
        handles = [block.register_forward_hook(self._remember, with_kwargs=True) for block in self.blocks]
        handles += [block.register_forward_pre_hook(self._enter, with_kwargs=True) for block in self.blocks]
        try:
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
            return call.output

        return forward
