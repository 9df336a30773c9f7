"""What the second pass takes from the first is the same call: function, memory, how it is read, precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from toy_models import Block, Encoder, SoftmaxAttention, items_and_targets

from recbole_denoiser.core import DenoiserConfig, denoise

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0


def conjugate(x: Tensor, weight: Tensor) -> Tensor:
    """The same memory twice, once to be read conjugated."""
    c = torch.view_as_complex(x.unflatten(-1, (4, 2)))
    mixing = torch.view_as_complex(weight.unflatten(-1, (4, 2)))[:4]
    return torch.view_as_real(2.0 * (c @ mixing) + c.conj() @ mixing).flatten(-2)


def half_and_full(x: Tensor, weight: Tensor) -> Tensor:
    """The same call in two precisions."""
    with torch.autocast("cpu", torch.bfloat16):
        half = F.linear(x, weight)
    return 16.0 * (half.float() - F.linear(x, weight))


def mapped(x: Tensor, weight: Tensor) -> Tensor:
    """Inside vmap tensors have no memory of their own."""
    return torch.vmap(lambda row: F.linear(row, weight))(x)


class Mixing(Encoder):
    mix: Callable[[Tensor, Tensor], Tensor]

    def forward(self, items: Tensor) -> Tensor:
        x = self.items(items) + self.positions.weight
        mask = self.attention_mask(items)
        x = x + self.mix(x, self.items.weight[:8])
        for layer in self.layers:
            x = layer(x, mask)
        return x


@pytest.mark.parametrize("mix", [conjugate, half_and_full, mapped])
def test_calls_are_told_apart_by_all_that_matters(mix: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Fresh copies of the arguments share nothing with another call."""
    found = []
    for fresh in (False, True):
        torch.manual_seed(0)
        model: Any = Mixing([Block(SoftmaxAttention(8, 2), 8) for _ in range(2)])
        model.mix = (lambda x, w: mix(x.clone(), w.clone())) if fresh else mix
        denoiser: Any = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5))
        torch.manual_seed(5)
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()  # noqa: B023
        found.append([mask.phi.grad for mask in denoiser.masks])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
