"""Saving and setting torch's random state, so that a second pass sees the same dropout as the first.

Only torch's generators are replayed: a loss that draws from numpy or from Python's random module between the two
passes would differ by that noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
