"""The positions of a batch: sequences laid against one end, and those that have a target as a flat list."""

from __future__ import annotations

import torch
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


def align(sequence: Tensor, length: Tensor, width: int, to_end: bool) -> Tensor:
    """Right-padded [B, w, ...] -> the newest ``width`` entries of each row, against the end or the start."""
    if not is_traced() and sequence.size(1) == width and bool((length == width).all()):
        return sequence  # rows of one length, as most bucketed batches are (a graph asks for no width)
    steps = torch.arange(width, device=sequence.device)
    shift = length - width if to_end else (length - width).clamp(min=0)  # first source column of each row
    source = steps + shift[:, None]  # [B, width]
    inside = (source >= 0) & (source < length[:, None])
    source = source.clamp(0, sequence.size(1) - 1)
    extra = (1,) * (sequence.dim() - 2)
    values = sequence.gather(1, source.view(*source.shape, *extra).expand(-1, -1, *sequence.shape[2:]))
    return torch.where(inside.view(*inside.shape, *extra), values, 0)
