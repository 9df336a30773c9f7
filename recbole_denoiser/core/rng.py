"""Torch's random state, and a tape that lets a second pass see the same dropout as the first.

Only torch's generators are replayed: a loss that draws from numpy or from Python's random module would differ by that
noise between the two passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from recbole_denoiser.core.dropout import dropout_noise, fast_dropout


@dataclass
class RngState:
    """CPU state, and the state of the CUDA device in use."""

    cpu: Tensor
    cuda: Tensor | None
    device: torch.device


def save_rng(device: torch.device) -> RngState:
    """The global random state now."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return RngState(torch.get_rng_state(), cuda, device)


def restore_rng(state: RngState) -> None:
    """Set the global random state back to `state`."""
    torch.set_rng_state(state.cpu)
    if state.cuda is not None:
        torch.cuda.set_rng_state(state.cuda, state.device)


@dataclass
class Mark:
    """A place on the tape: the random state there and how many dropouts came before."""

    rng: RngState
    dropouts: int


# The costly functions without side effects that come before the first attention weights.
_PURE = (
    F.embedding, F.linear, F.layer_norm, F.softmax, torch.matmul, Tensor.matmul, Tensor.__matmul__,
    Tensor.add, Tensor.__add__, Tensor.div, Tensor.__truediv__,
)  # fmt: skip


class RandomTape(TorchFunctionMode):
    """What the second pass need not do again. Use as a context around each pass, rewound in between.

    Replaying the random state alone would be right, but on a CPU drawing dropout noise is a quarter of a training step.
    So the noise itself, which autograd keeps anyway, is remembered and multiplied with again; every other random
    function runs as usual from the state it had in the first pass.

    Up to the first attention site both passes compute the same (embeddings, first projections, first scores), so those
    results are handed out again, unless the model has written into them since.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.noise: list[tuple[Tensor, RngState]] = []  # of each dropout, with the random state after it
        self.position = 0
        self.prefix: list[tuple[Tensor, int]] = []  # results before the first site, with their version counters
        self.in_prefix, self.prefix_position, self.replaying = True, 0, False
        self.start = self.mark()

    def mark(self) -> Mark:
        """Where the tape is now."""
        return Mark(save_rng(self.device), self.position)

    def rewind(self) -> None:
        """Back to the beginning, to replay."""
        self.wind_to(self.start)
        self.in_prefix, self.prefix_position, self.replaying = True, 0, True

    def wind_to(self, mark: Mark) -> None:
        """Go on from `mark`, which lies at or after the first site."""
        restore_rng(mark.rng)
        self.position = mark.dropouts
        self.in_prefix = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._torch_dropout(*args, **kwargs)
        if func is fast_dropout:
            return self._dropout(dropout_noise, *args)
        if self.in_prefix and func in _PURE:
            return self._shared(func, args, kwargs)
        return func(*args, **kwargs)

    def _shared(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        if not self.replaying:
            result = func(*args, **kwargs)
            self.prefix.append((result, result._version))
            return result
        result, version = self.prefix[self.prefix_position]
        self.prefix_position += 1
        return result if result._version == version else func(*args, **kwargs)

    def _torch_dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or inplace or not 0.0 < p < 1.0 or input.device.type != "cpu":
            return F.dropout(input, p, training, inplace)
        return self._dropout(_torch_noise, input, p)

    def _dropout(self, draw: Callable[[Tensor, float], Tensor], input: Tensor, p: float) -> Tensor:
        if self.position == len(self.noise):  # first pass
            self.noise.append((draw(input, p), save_rng(self.device)))
        noise, after = self.noise[self.position]
        restore_rng(after)
        self.position += 1
        return input * noise


def _torch_noise(input: Tensor, p: float) -> Tensor:
    """As torch's dropout draws it on a CPU, to the bit."""
    return torch.empty_like(input).bernoulli_(1.0 - p).div_(1.0 - p)
