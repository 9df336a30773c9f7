"""torch.utils.checkpoint: what backward() computes again meets the masks and the dropout of the first pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attentions import FusedKernel, HeadsFirst
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from toy_models import Block, Encoder, SoftmaxAttention, items_and_targets

from recbole_denoiser.core import DenoiserConfig, denoise
from recbole_denoiser.core.dropout import use_fast_dropout
from recbole_denoiser.errors import UserError

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0
WAYS = [{"use_reentrant": True}, {"use_reentrant": False}, {"use_reentrant": False, "early_stop": False}]


class Checkpointed(Encoder):
    """Every layer, or all of them together, is computed again in backward()."""

    ways: dict[str, Any] | None = None
    together = False

    def forward(self, items: Tensor) -> Tensor:
        x = self.items(items) + self.positions.weight
        mask = self.attention_mask(items)

        def stack(x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x, mask)
            return x

        if self.ways is None:
            return stack(x)
        if self.together:
            return checkpoint(stack, x, **self.ways)
        for layer in self.layers:
            x = checkpoint(layer, x, mask, **self.ways)
        return x


def model_of(kind: Any, p: float, layers: int = 2) -> Any:
    torch.manual_seed(0)
    return Checkpointed([Block(kind(8, 2, p), 8, p) for _ in range(layers)])


def gradients(model: Any, denoiser: Any) -> list[Tensor]:
    model.zero_grad(), denoiser.zero_grad()
    torch.manual_seed(3)
    denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()
    return [p.grad.clone() for p in (*denoiser.parameters(), *model.parameters()) if p.grad is not None]


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "settings",
    [{"estimator": "disarm"}, {"estimator": "ar", "baseline": False}, {"estimator": "straight_through"},
     {"estimator": "hard_concrete"},
     {"mask": "content"}, {"mask": "content", "estimator": "straight_through"}, {"mask_form": "renormalise"},
     {"mask_form": "renormalise", "estimator": "straight_through"}, {"conditional": True}],
)  # fmt: skip
def test_gradients_are_those_without_checkpoints(
    ways: dict[str, Any], together: bool, settings: dict[str, Any]
) -> None:
    for kind in (SoftmaxAttention, HeadsFirst):
        model = model_of(kind, p=0.3)
        denoiser: Any = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5, beta=0.1, **settings))
        expected = gradients(model, denoiser)
        model.ways, model.together = ways, together
        got = gradients(model, denoiser)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b)
        assert all(mask.phi.grad.abs().sum() > 0 for mask in denoiser.masks)


@pytest.mark.parametrize("ways", WAYS)
def test_fast_dropout_and_a_fused_kernel(ways: dict[str, Any]) -> None:
    model = model_of(FusedKernel, p=0.3)
    use_fast_dropout(model)
    denoiser = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5))
    expected = gradients(model, denoiser)
    model.ways = ways
    for a, b in zip(gradients(model, denoiser), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_the_jacobian_penalty_with_checkpoints() -> None:
    model = model_of(SoftmaxAttention, p=0.0)
    denoiser = denoise(model, DenoiserConfig(max_length=6, gamma=0.5, jacobian_batch=0))
    expected = gradients(model, denoiser)
    for ways, together in ((WAYS[0], False), (WAYS[1], False), (WAYS[1], True)):
        model.ways, model.together = ways, together
        for a, b in zip(gradients(model, denoiser), expected, strict=True):
            torch.testing.assert_close(a, b)
    model.ways, model.together = WAYS[0], True
    with pytest.raises(UserError, match="use_reentrant=False"):
        gradients(model, denoiser)


@pytest.mark.parametrize("ways", WAYS)
def test_a_gated_pass_is_gated_again(ways: dict[str, Any]) -> None:
    model = model_of(SoftmaxAttention, p=0.0).eval()
    denoiser = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5))
    found = []
    for model.ways in (None, ways):
        model.zero_grad()
        model.losses(ITEMS, TARGETS).mean().backward()
        found.append(model.layers[0].attention.query.weight.grad.clone())
    torch.testing.assert_close(*found)
    assert denoiser.enabled


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("items", [ITEMS, ITEMS.flip(0)])  # the first layer's attention of the same items is the same
def test_an_older_step_s_backward_is_refused(ways: dict[str, Any], items: Tensor) -> None:
    model = model_of(SoftmaxAttention, p=0.0, layers=1)
    model.ways = ways
    denoiser = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5))
    older = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
    denoiser.loss(lambda: model.losses(items, TARGETS), items != 0)
    with pytest.raises(UserError, match=r"before the next loss\(\)"):
        older.total.backward()


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("estimator", ["disarm", "ar", "straight_through"])
def test_a_gated_pass_after_a_step_is_gated_again(ways: dict[str, Any], layers: int, estimator: str) -> None:
    """The same items as in the step before it, so that the attention alone does not tell the two apart."""
    found = []
    for way in (None, ways):
        model = model_of(SoftmaxAttention, p=0.0, layers=layers)
        denoiser = denoise(model, DenoiserConfig(max_length=6, mask_init=0.0, estimator=estimator))
        model.ways = way
        gradients(model, denoiser)
        model.zero_grad()
        model.losses(ITEMS, TARGETS).mean().backward()
        found.append(model.layers[0].attention.value.weight.grad)
    torch.testing.assert_close(*found)


def test_a_seed_set_in_between_is_told() -> None:
    model = model_of(SoftmaxAttention, p=0.0)
    model.ways = WAYS[1]
    denoiser = denoise(model, DenoiserConfig(max_length=6))
    gradients(model, denoiser)
    torch.manual_seed(3)  # as before the step
    with pytest.raises(UserError, match="do not set the random seed in between"):
        model.losses(ITEMS, TARGETS).mean().backward()


class Twice(nn.Module):
    """One block, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.block = Block(SoftmaxAttention(8, 2))

    def forward(self, ways: dict[str, Any] | None) -> Tensor:
        x = self.embedding(ITEMS)
        mask = torch.ones(6, 6).tril().log().clamp(min=-1e4)
        for _ in range(2):
            x = self.block(x, mask) if ways is None else checkpoint(self.block, x, mask, **ways)
        return x.square().mean(-1)


@pytest.mark.parametrize("ways", WAYS)
def test_a_shared_block_finds_the_draw_of_each_call(ways: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = Twice()
    denoiser = denoise(model, DenoiserConfig(max_length=6, mask_init=0.5))
    found = []
    for way in (None, ways):
        model.zero_grad()
        torch.manual_seed(1)
        denoiser.loss(lambda: model(way), VALID).total.backward()  # noqa: B023
        gradient = model.embedding.weight.grad
        assert gradient is not None
        found.append(gradient.clone())
    torch.testing.assert_close(*found)
