"""The second pass of a step sees the random numbers of the first, and computes nothing twice that cannot differ.

Only torch's generators are replayed: a loss that draws from numpy or from Python's random module would differ by that
noise between the two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_denoiser.core.dropout import dropout_noise, fast_dropout
from recbole_denoiser.core.exposure import Exposure
from recbole_denoiser.errors import UserError


@dataclass
class RngState:
    """CPU state, and the state of the CUDA device in use."""

    cpu: Tensor
    cuda: Tensor | None
    device: torch.device

    def key(self) -> Hashable:
        """Equal for equal states."""
        return tuple(state.numpy().tobytes() for state in (self.cpu, self.cuda) if state is not None)


def save_rng(device: torch.device) -> RngState:
    """The global random state now."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return RngState(torch.get_rng_state(), cuda, device)


def restore_rng(state: RngState) -> None:
    """Set the global random state back to `state`."""
    torch.set_rng_state(state.cpu)
    if state.cuda is not None:
        torch.cuda.set_rng_state(state.cuda, state.device)


def in_checkpoint(graph: bool) -> bool:
    """Is this part of the pass computed again in backward() (torch.utils.checkpoint)? graph: does the pass have one?

    A reentrant checkpoint runs without gradients inside a pass that has them; the other kind hooks saved tensors.
    """
    hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return graph and (not torch.is_grad_enabled() or (hooks is not None and hooks(True) is not None))


@contextmanager
def outside_checkpoint(graph: bool) -> Iterator[None]:
    """Inside the context a graph is built that the checkpoint around it neither drops nor computes again."""
    with torch.set_grad_enabled(graph), torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is):
        yield


def _as_it_is(value: Tensor) -> Tensor:
    return value


def in_backward() -> bool:
    """Does autograd run this call, from inside backward()?"""
    return torch._C._current_graph_task_id() != -1


@dataclass
class Mark:
    """A place in a pass: the random state there and how many dropouts came before."""

    rng: RngState
    dropouts: int


@dataclass
class Dropout:
    """One dropout of the first pass."""

    kind: tuple[Any, ...]  # which function, its p, the shape and type of its input
    noise: Tensor | None  # what its input was multiplied with; None: torch's own function is to draw it again
    before: Tensor  # CPU random state in front of it
    after: RngState  # random state behind it


@dataclass
class Computed:
    """One pure function call of the first pass. Its arguments are kept, so that their memory is not given away."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Tensor
    version: int  # of the result, when it was made


_paused = 0  # how many `paused` contexts are open


@contextmanager
def paused() -> Iterator[None]:
    """Inside the context nothing is recorded or replayed: for trial runs within a pass."""
    global _paused
    _paused += 1
    try:
        yield
    finally:
        _paused -= 1


# The costly functions without side effects that come before the first attention weights.
_PURE = frozenset({
    F.embedding, F.linear, F.layer_norm, F.softmax, torch.matmul, Tensor.matmul, Tensor.__matmul__,
    Tensor.add, Tensor.__add__, Tensor.div, Tensor.__truediv__, Tensor.reshape, torch.baddbmm,
})  # fmt: skip
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


class Replay(Exposure):
    """What the second pass need not do again. Use as a context around each pass, rewound in between.

    Replaying the random state alone would be right, but on a CPU drawing dropout noise is a quarter of a training step.
    So the noise itself, which autograd keeps anyway, is remembered and multiplied with again; every other random
    function runs as usual from the state it had in the first pass. A pass that draws otherwise than the first one did
    is an error.

    Up to the first attention site both passes compute the same (embeddings, first projections, first scores). A result
    is handed out again if the same function is given the same arguments: the same memory, not written into since. So a
    model that skips work in its second pass (a table made at the first call and kept) gets what belongs to each call.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.dropouts: list[Dropout] = []
        self.position = 0
        self.computed: dict[tuple[Any, ...], Computed] = {}
        self.in_prefix, self.replaying = True, False
        self.graph = torch.is_grad_enabled()
        self.start = self.mark()
        self.end: Mark | None = None  # of the first pass

    def mark(self) -> Mark:
        """Where the pass is now."""
        return Mark(save_rng(self.device), self.position)

    def end_of_first_pass(self) -> Mark:
        """Where the first pass came to."""
        if self.end is None:
            self.end = self.mark()
        return self.end

    def rewind(self) -> None:
        """Back to the beginning, to replay."""
        self.wind_to(self.start)
        self.in_prefix, self.replaying = True, True

    def wind_to(self, mark: Mark) -> None:
        """Go on from `mark`, which lies at or after the first site."""
        restore_rng(mark.rng)
        self.position = mark.dropouts
        self.in_prefix = False

    def check(self, mark: Mark) -> None:
        """A replaying pass must have come to `mark` as the first pass did."""
        if self.position != mark.dropouts or not torch.equal(torch.get_rng_state(), mark.rng.cpu):
            raise UserError(_DIFFERS)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.note(func, args)
        if _paused:
            return func(*args, **kwargs)
        if func is F.dropout:
            return self._torch_dropout(*args, **kwargs)
        if func is fast_dropout:
            return self._dropout(dropout_noise, *args)
        if self.in_prefix and func in _PURE:
            return self._shared(func, args, kwargs)
        return func(*args, **kwargs)

    def _shared(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        key = _call_key(func, args, kwargs)
        known = self.computed.get(key) if key is not None and self.replaying else None
        if known is not None and known.result._version == known.version and not self._is_open(known):
            return known.result
        result = func(*args, **kwargs)
        if key is not None and not self.replaying and not result.is_inference():
            self.computed[key] = Computed(args, kwargs, result, result._version)
        return result

    def _is_open(self, known: Computed) -> bool:
        return self.has_exposed(known.result) or self.has_exposed(known.args) or self.has_exposed(known.kwargs)

    def _torch_dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or inplace or not 0.0 < p < 1.0 or input.device.type != "cpu":
            return F.dropout(input, p, training, inplace)
        return self._dropout(_torch_noise, input, p)

    def _dropout(self, draw: Callable[[Tensor, float], Tensor], input: Tensor, p: float) -> Tensor:
        kind = (draw, p, input.shape, input.dtype)
        now = torch.get_rng_state()
        if not self.replaying:
            # A checkpoint, which computes this again in backward(), must save the same tensors both times.
            if draw is _torch_noise and in_checkpoint(self.graph):
                noise, output = None, F.dropout(input, p)
            else:
                noise = draw(input, p)
                output = input * noise
            self.dropouts.append(Dropout(kind, noise, now, save_rng(self.device)))
            self.position += 1
            return output
        drawn = self.dropouts[self.position] if self.position < len(self.dropouts) else None
        if drawn is None or drawn.kind != kind or not torch.equal(drawn.before, now):
            raise UserError(_DIFFERS)
        self.position += 1
        if drawn.noise is None:
            return F.dropout(input, p)
        restore_rng(drawn.after)
        return input * drawn.noise


_DIFFERS = (
    "The second pass of a training step drew other random numbers than the first, so their losses cannot be compared. "
    "If the model draws something once and keeps it, run it once in training mode before the first step; else choose "
    "an estimator with one pass (ar, reinforce)."
)


def _torch_noise(input: Tensor, p: float) -> Tensor:
    """As torch's dropout draws it on a CPU, to the bit."""
    return torch.empty_like(input).bernoulli_(1.0 - p).div_(1.0 - p)


def _call_key(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The function, the identity of all it is given and its precision; None if some of it cannot be identified."""
    if "out" in kwargs:
        return None
    key = [(func, torch._C._is_any_autocast_enabled()), *(_identity(value) for value in args)]
    for name, value in kwargs.items():
        part = _identity(value)
        key.append(None if part is None else (name, part))
    return None if None in key else tuple(key)


def _identity(value: Any) -> Any:
    """What tells a value from others: a tensor by its memory, geometry and version, so that equal views are one.

    Inside torch.vmap and torch.func's gradients a tensor has no memory of its own.
    """
    if isinstance(value, Tensor):
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(value)
        if wrapped or value.layout is not torch.strided or value.is_inference():
            return None
        view = (value.data_ptr(), value.shape, value.stride(), value.is_conj(), value.is_neg())
        return (*view, value.dtype, value.device, value._version)
    if isinstance(value, _PLAIN):
        return (type(value), value)
    if isinstance(value, (tuple, list)):
        parts = tuple(_identity(item) for item in value)
        return None if None in parts else parts
    return None
