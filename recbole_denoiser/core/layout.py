"""How an attention module lays out its weights: heads in a side of their own, folded into the batch, or none.

Everything behind a site sees [B, H, m, m]. Modules that split heads by chunking fold them into the batch, [B*H, m, m]
or [H*B, m, m]; which of the two the shape does not tell, so the module is tried once on a changed first sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from recbole_denoiser.core.replay import paused
from recbole_denoiser.errors import UserError

Back = Callable[[Tensor], Tensor]


class Layout:
    """The layout of one site's weights, learned from its calls."""

    def __init__(self) -> None:
        self.heads_first: bool | None = None  # [H, B, m, m] or folded [H*B, m, m]; None: not known yet
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # of the module, while it runs
        self.rng: Tensor | None = None  # random state when it began

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The attention module begins."""
        self.arguments = args, kwargs
        self.rng = torch.get_rng_state() if self.heads_first is None else None

    def leave(self) -> None:
        """It is done."""
        self.arguments = self.rng = None

    def open(self, x: Tensor, heads_first: Callable[[int], bool]) -> tuple[Tensor, Back]:
        """x as [B, H, m, m], and the way back; heads_first(B) finds out what the shape does not tell."""
        B = self._batch(x)
        if x.dim() > 4 or (x.dim() == 4 and B is None):
            return x.flatten(1, -3), lambda y: y.reshape(x.shape)
        if x.dim() == 3 and (B is None or x.shape[0] == B):
            return x.unsqueeze(1), lambda y: y.squeeze(1)
        assert B is not None
        if self.heads_first is None:  # once known it stays: a recorded graph must not depend on the number of sequences
            if x.dim() == 4 and not x.shape[0] == x.shape[1] == B:
                self.heads_first = x.shape[1] == B
            elif B > 1:
                self.heads_first = heads_first(B)
        if x.dim() == 4:
            return (x.transpose(0, 1), lambda y: y.transpose(0, 1)) if self.heads_first else (x, lambda y: y)
        if self.heads_first:
            return x.unflatten(0, (-1, B)).transpose(0, 1), lambda y: y.transpose(0, 1).flatten(0, 1)
        return x.unflatten(0, (B, -1)), lambda y: y.flatten(0, 1)

    def _batch(self, x: Tensor) -> int | None:
        """Sequences in the module's input [B, m, d] or [m, B, d]; None if the input does not tell."""
        given = None if self.arguments is None else first_tensor(*self.arguments)
        if given is None or given.dim() < 3:
            return None
        m, (a, b) = x.shape[-1], given.shape[:2]
        B = a if b == m else b if a == m else None
        return B if (B and x.shape[0] % B == 0) or x.dim() > 3 else None


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The hidden states: the first tensor that a module is given."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)


@runtime_checkable
class KeyCache(Protocol):
    """A memory of earlier keys and values, as Hugging Face's models are given."""

    def get_seq_length(self) -> int:
        """How many positions it remembers."""
        ...


def has_cache(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a module is given a cache of keys, which would remember a trial run of it."""
    return any(isinstance(value, KeyCache) for value in (*args, *kwargs.values()))


def find_heads_first(site: Any, x: Tensor, B: int) -> bool:
    """Run the attention module again with another first sequence: the rows of x that change are its heads."""
    args, kwargs = site.layout.arguments
    if has_cache(args, kwargs):
        return False  # who has one (Hugging Face) puts the batch first
    states = first_tensor(args, kwargs)
    assert states is not None  # B was read from it
    changed = states.detach().clone()
    changed[0] = 1.0 - changed[0]

    def swap(value: Any) -> Any:
        return changed if value is states else value

    now = torch.get_rng_state()
    torch.set_rng_state(site.layout.rng)
    site.listeners = []
    try:
        with torch.no_grad(), paused():
            site.run(*(swap(value) for value in args), **{name: swap(value) for name, value in kwargs.items()})
        (again,) = site.listeners or [x]
    finally:
        site.listeners = None
        torch.set_rng_state(now)
    rows = (again != x.detach()).flatten(1).any(1).nonzero().flatten().tolist()
    H = x.shape[1] if x.dim() == 4 else x.shape[0] // B
    if rows == ([0] if x.dim() == 4 else list(range(H))):
        return False
    if rows == (list(range(H)) if x.dim() == 4 else [h * B for h in range(H)]):
        return True
    raise UserError(
        f"Attention site {site.name} has weights of shape {tuple(x.shape)} for {B} sequences, and which of them belong "
        "to one sequence could not be found out: give them as [batch, heads, length, length]."
    )
