"""The positions of a batch that have a target, as a flat list and back."""

from __future__ import annotations

from torch import Tensor

from recbole_denoiser.model.tracing import is_traced


class Positions:
    """P chosen places of [B, m]; where all are chosen, as in most bucketed batches, nothing is copied."""

    def __init__(self, chosen: Tensor) -> None:
        self.shape = chosen.shape
        whole = not is_traced() and bool(chosen.all())
        self.index = None if whole else chosen.flatten().nonzero().squeeze(1)  # [P]

    def of(self, values: Tensor) -> Tensor:
        """[B, m, ...] -> [P, ...]."""
        flat = values.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)

    def back(self, values: Tensor) -> Tensor:
        """[P] -> [B, m], 0 at all other places."""
        if self.index is None:
            return values.view(self.shape)
        return values.new_zeros(self.shape.numel()).index_copy(0, self.index, values).view(self.shape)
