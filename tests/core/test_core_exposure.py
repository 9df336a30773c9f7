"""Writes that torch does not count: through .data, NumPy arrays and storages. Nothing of the first pass is then reused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_models import Block, Encoder, SoftmaxAttention, items_and_targets

from recbole_denoiser.core import DenoiserConfig, denoise
from recbole_denoiser.core.exposure import Exposure
from recbole_denoiser.errors import UserError

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0
Change = Callable[[Tensor], Tensor]


class Changing(Encoder):
    """Changes its embeddings, and what each of its blocks returns."""

    before: Change
    between: Change

    def forward(self, items: Tensor) -> Tensor:
        x = self.before(self.items(items) + self.positions.weight)
        mask = self.attention_mask(items)
        for layer in self.layers:
            x = self.between(layer(x, mask))
        return x


def same(x: Tensor) -> Tensor:
    return x


def halved(x: Tensor) -> Tensor:
    return x * 0.5


def halved_data(x: Tensor) -> Tensor:
    x.data.mul_(0.5)
    return x


def new_data(x: Tensor) -> Tensor:
    x.data = x.detach() * 0.5
    return x


def halved_array(x: Tensor) -> Tensor:
    array = x.detach().numpy()
    array *= 0.5
    return x


def halved_storage(x: Tensor) -> Tensor:
    torch.empty(0).set_(x.detach().untyped_storage(), 0, x.shape, x.stride()).mul_(0.5)
    return x


def mask_gradients(before: Change, between: Change, settings: dict[str, Any]) -> list[Tensor]:
    torch.manual_seed(0)
    model: Any = Changing([Block(SoftmaxAttention(8, 2), 8) for _ in range(2)])
    model.before, model.between = before, between
    denoiser: Any = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5, **settings))
    torch.manual_seed(5)
    denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()
    return [mask.phi.grad for mask in denoiser.masks]


@pytest.mark.parametrize("write", [halved_data, new_data, halved_array, halved_storage])
@pytest.mark.parametrize("settings", [{}, {"conditional": True}, {"mask": "content"}])
def test_uncounted_writes_are_right(write: Change, settings: dict[str, Any]) -> None:
    for places in ((write, same), (same, write)):
        before, between = (halved if place is write else same for place in places)
        expected = mask_gradients(before, between, settings)
        for a, b in zip(mask_gradients(places[0], places[1], settings), expected, strict=True):
            torch.testing.assert_close(a, b)
            assert float(a.abs().max()) > 1e-4


class WritingInput(Block):
    """Writes into its own input."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        x.data.add_(1.0)
        return out


@pytest.mark.parametrize("estimator", ["ar", "disarm"])  # without and with a second pass
def test_the_jacobian_penalty_refuses_such_an_input(estimator: str) -> None:
    torch.manual_seed(0)
    model = Encoder([WritingInput(SoftmaxAttention(8), 8)])
    denoiser = denoise(model, DenoiserConfig(max_length=6, gamma=0.1, estimator=estimator))
    with pytest.raises(UserError, match="overwrites in place"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)


def test_what_is_noted() -> None:
    x, y = torch.ones(3), torch.ones(3)
    with Exposure() as exposure:
        x[1:].detach().numpy()
        y.add_(1.0)
    assert exposure.has_exposed(x) and exposure.has_exposed({"a": (1, [x])})
    assert not exposure.has_exposed(y) and not exposure.has_exposed("x")
