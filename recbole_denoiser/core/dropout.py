"""Dropout from 16-bit random numbers: the same distribution as nn.Dropout to 1 / 65536, four times faster on a CPU.

On a CPU torch draws one double per element. Four 16-bit numbers per 64-bit draw are enough for a keep / drop decision.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def random_int16(shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Uniform int16 in [-32768, 32767] from torch's global CPU generator."""
    count = 1
    for size in shape:
        count *= size
    drawn = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return drawn.view(torch.int16)[:count].view(shape)


class FastDropout(nn.Dropout):
    """nn.Dropout whose mask comes from ``random_int16`` on a CPU; elsewhere it is nn.Dropout."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        dropped = round(self.p * 65536)  # of 65536 equally likely numbers
        keep = random_int16(x.shape) >= dropped - 32768
        return x * keep.to(x.dtype).mul_(65536 / max(65536 - dropped, 1))


def use_fast_dropout(model: nn.Module) -> None:
    """Replace every nn.Dropout in ``model``."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                fast = FastDropout(child.p)
                fast.train(child.training)
                setattr(module, name, fast)
