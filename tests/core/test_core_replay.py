"""The second pass: the same random numbers and results as the first, whatever the model keeps between its calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from toy_models import Block, Encoder, SoftmaxAttention, items_and_targets, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise
from recbole_denoiser.errors import UserError

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0


class KeptPositions(Encoder):
    """Makes its position table at the first call, by functions that are shared between passes, and keeps it."""

    def forward(self, items: Tensor) -> Tensor:
        if not hasattr(self, "kept"):
            with torch.no_grad():
                angle = torch.arange(6.0)[:, None] @ torch.linspace(1, 0.1, 4)[None, :]
                self.kept = torch.cat([angle.sin(), angle.cos()], 1) + torch.ones(6, 8) / 7.0
        x = self.items(items) + self.kept
        mask = self.attention_mask(items)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class KeptPattern(Encoder):
    """Makes its causal bias at the first call and keeps it."""

    def forward(self, items: Tensor) -> Tensor:
        if not hasattr(self, "kept"):
            rows = torch.arange(6.0)
            later = torch.add(rows[None, :], -rows[:, None]) > 0
            self.kept = later / 1.0 * torch.full((), -10000.0)
        x = self.items(items) + self.positions.weight
        mask = self.attention_mask(items) + self.kept
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Rotary(SoftmaxAttention):
    """Turns queries and keys by angles that are made at the first call."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not hasattr(self, "kept"):
            angle = torch.matmul(torch.arange(6.0)[:, None], torch.tensor([[1.0, 0.3]])) / 2.0
            self.kept = angle.cos(), angle.sin()
        q, k, v = (p(x).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2) for p in self.projections())
        A = self.softmax(self.turn(q) @ self.turn(k).transpose(2, 3) / math.sqrt(q.shape[-1]) + mask)
        return (self.attn_dropout(A) @ v).transpose(1, 2).flatten(2)

    def turn(self, x: Tensor) -> Tensor:
        cos, sin = self.kept
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Scaled(nn.Module):
    """A parametrisation that costs a matrix product."""

    def forward(self, weight: Tensor) -> Tensor:
        return F.linear(weight, torch.eye(weight.shape[1]) * 2.0) + 0.0


def kept_positions(p: float) -> Any:
    return KeptPositions([Block(SoftmaxAttention(8, 2, p), 8, p) for _ in range(2)])


def kept_pattern(p: float) -> Any:
    return KeptPattern([Block(SoftmaxAttention(8, 2, p), 8, p) for _ in range(2)])


def rotary(p: float) -> Any:
    return Encoder([Block(Rotary(8, 2, p), 8, p) for _ in range(2)])


def parametrised(p: float) -> Any:
    model: Any = softmax_encoder(heads=2, p=p)
    for layer in model.layers:
        parametrize.register_parametrization(layer.attention.query, "weight", Scaled())
    return model


MEMOISING = [kept_positions, kept_pattern, rotary, parametrised]


def forget(model: nn.Module) -> None:
    for module in model.modules():
        module.__dict__.pop("kept", None)


def gradients(model: Any, denoiser: Any) -> list[Tensor]:
    torch.manual_seed(5)
    parameters = [*denoiser.parameters(), *(p for p in model.parameters() if p.requires_grad)]
    with parametrize.cached():
        total = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total
        return [g for g in torch.autograd.grad(total, parameters, allow_unused=True) if g is not None]


@pytest.mark.parametrize("make", MEMOISING)
@pytest.mark.parametrize("settings", [{}, {"conditional": True}, {"mask": "content"}])
def test_what_a_model_keeps_from_its_first_call_changes_nothing(
    make: Callable[[float], Any], settings: dict[str, Any]
) -> None:
    """The first step makes the tables in its first pass only; later steps make none: same gradients."""
    torch.manual_seed(0)
    model = make(0.3)
    denoiser: Any = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5, **settings))
    forget(model)
    cold, warm = gradients(model, denoiser), gradients(model, denoiser)
    assert len(cold) == len(warm) > 4
    for a, b in zip(cold, warm, strict=True):
        assert torch.equal(a, b)
    assert float(cold[0].abs().max()) < 10


class Counting(TorchFunctionMode):
    """How often F.linear really runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.linear += func is F.linear
        return func(*args, **(kwargs or {}))


def test_the_first_projections_are_computed_once() -> None:
    torch.manual_seed(0)
    model = softmax_encoder(heads=2, p=0.2)
    denoiser = denoise(model, DenoiserConfig(max_length=6))
    x = model.items(ITEMS) + model.positions.weight
    mask = model.attention_mask(ITEMS)

    def losses() -> Tensor:
        states = x
        for layer in model.layers:
            states = layer(states, mask)
        return states.square().mean(-1)

    with Counting() as counting:
        losses()
    per_pass = counting.linear
    with Counting() as counting:
        denoiser.loss(losses, VALID)
    assert counting.linear == 2 * per_pass - 3  # query, key and value of the first layer


class Forgetful(nn.Module):
    """Does something in its first call only."""

    def __init__(self, extra: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.extra, self.calls = extra, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.extra(x) if self.calls == 1 else x


@pytest.mark.parametrize("extra", [nn.Dropout(0.5), torch.randn_like])
@pytest.mark.parametrize("place", [0, 1])
def test_other_random_numbers_in_the_second_pass_are_told(extra: Callable[[Tensor], Tensor], place: int) -> None:
    torch.manual_seed(0)
    model: Any = softmax_encoder(heads=2, p=0.2)
    forgetful = Forgetful(extra)
    model.layers[place].feed_forward.append(forgetful)
    denoiser = denoise(model, DenoiserConfig(max_length=6))
    with pytest.raises(UserError, match="drew other random numbers"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
    denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()  # as the message says: now it is warm


@pytest.mark.parametrize(("first", "second", "how"), [(1, 2, "more"), (2, 1, "fewer"), (2, 0, "fewer")])
@pytest.mark.parametrize("conditional", [True, False])
def test_other_layers_in_the_second_pass_are_told(first: int, second: int, how: str, conditional: bool) -> None:
    torch.manual_seed(0)
    model: Any = softmax_encoder(layers=1)
    denoiser = denoise(model, DenoiserConfig(max_length=6, conditional=conditional))
    depth = iter([first, second, second])

    def losses() -> Tensor:
        x, mask = model.items(ITEMS), model.attention_mask(ITEMS)
        for _ in range(next(depth)):
            x = model.layers[0](x, mask)
        return x.square().mean(-1)

    with pytest.raises(UserError, match=rf"layers\.0\.attention with {how} calls"):
        denoiser.loss(losses, VALID)


class Overwriting(Encoder):
    """Writes into what its blocks return."""

    def forward(self, items: Tensor) -> Tensor:
        x = self.items(items) + self.positions.weight
        mask = self.attention_mask(items)
        for layer in self.layers:
            x = layer(x, mask)
            x *= 1.5
        return x


class NotOverwriting(Overwriting):
    def forward(self, items: Tensor) -> Tensor:
        x = self.items(items) + self.positions.weight
        mask = self.attention_mask(items)
        for layer in self.layers:
            x = layer(x, mask) * 1.5
        return x


@pytest.mark.parametrize("settings", [{"conditional": True}, {"mask": "content"}, {}])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_block_s_output_that_is_written_into_is_computed_again(settings: dict[str, Any], frozen: bool) -> None:
    found = []
    for kind in (Overwriting, NotOverwriting):
        torch.manual_seed(0)
        model: Any = kind([Block(SoftmaxAttention(8, 2, 0.2), 8, 0.2) for _ in range(2)])
        model.requires_grad_(not frozen)
        denoiser: Any = denoise(model, DenoiserConfig(max_length=6, mask_init=0.0, **settings))
        found.append(gradients(model, denoiser))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    assert float(found[0][0].abs().max()) > 0


class SelfWriting(Block):
    """Writes into its own input."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        with torch.no_grad():
            x += 1.0
        return out


def test_the_jacobian_penalty_refuses_an_input_that_is_gone() -> None:
    torch.manual_seed(0)
    model = Encoder([SelfWriting(SoftmaxAttention(8), 8)])
    denoiser = denoise(model, DenoiserConfig(max_length=6, gamma=0.1, estimator="ar"))
    with pytest.raises(UserError, match="overwrites in place"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
