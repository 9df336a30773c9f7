"""Memory that a model writes past torch's version counters: ``x.data``, ``x.numpy()`` and the like.

What the first pass left in a tensor can be used again only if nobody has written into it since. Torch counts writes,
but not those through a tensor's ``.data``, its NumPy array or its storage; so whoever asks for one of these is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

_DATA: Any = Tensor.data  # a descriptor, whatever its annotation says
_OPENS = frozenset({
    _DATA.__get__, _DATA.__set__, Tensor.numpy, Tensor.__array__, Tensor.data_ptr, Tensor.untyped_storage,
    Tensor.storage, Tensor.__dlpack__,
})  # fmt: skip


class Exposure(TorchFunctionMode):
    """Inside the context, notes whose memory is handed out uncounted."""

    def __init__(self) -> None:
        super().__init__()
        self._exposed: set[int] = set()  # addresses of storages

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.note(func, args)
        return func(*args, **(kwargs or {}))

    def note(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """A call that opens a tensor's memory: remember which."""
        if func in _OPENS:  # (tensor), or (tensor, what becomes its memory)
            self._exposed.update(x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor))

    def has_exposed(self, value: Any) -> bool:
        """Was the memory of a tensor, or of one in nested tuples, lists and dictionaries, opened?"""
        if not self._exposed:
            return False
        if isinstance(value, Tensor):
            return value.untyped_storage().data_ptr() in self._exposed
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
        return any(self.has_exposed(item) for item in inner)
