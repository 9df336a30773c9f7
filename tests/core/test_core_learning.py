"""Masks learn: what does not help is closed, what helps stays open, and closed means exactly zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_models import SoftmaxAttention

from recbole_denoiser.core import DenoiserConfig, denoise, gate

N, D, ITEMS = 6, 16, 12
SIGNAL = 4  # items 1..4 tell the target, the others are noise


class OneLayer(nn.Module):
    """Fixed item vectors, one attention layer with position vectors in the scores, a linear head on its output."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.positions = nn.Embedding(ITEMS, D), nn.Embedding(N, D)
        self.attention = SoftmaxAttention(D)
        self.head = nn.Linear(D, ITEMS)

    def forward(self, items: Tensor) -> Tensor:
        x = self.items(items) + self.positions.weight
        mask = torch.ones(N, N).tril().log().clamp(min=-1e4)
        return self.head(self.attention(x, mask))

    def losses(self, items: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(items).transpose(1, 2), targets, reduction="none")


def train(
    config: DenoiserConfig, batch: Callable[[], tuple[Tensor, ...]], steps: int, plain_steps: int = 0
) -> tuple[OneLayer, Any]:
    """Train the model alone for plain_steps, then model and masks together."""
    torch.manual_seed(0)
    model = OneLayer()
    denoiser = denoise(model, config)
    groups = [{"params": model.parameters(), "lr": 0.02}, {"params": denoiser.parameters(), "lr": 0.05}]
    optimizer = torch.optim.Adam(groups)
    denoiser.off()
    for step in range(plain_steps + steps):
        if step == plain_steps:
            denoiser.on()
        items, targets, weights = batch()
        result = denoiser.loss(lambda: model.losses(items, targets), weights=weights)  # noqa: B023
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
    return model, denoiser


def two_back() -> tuple[Tensor, Tensor, Tensor]:
    """The target at position s is the item at s - 2; the first two positions have none."""
    items = torch.randint(1, ITEMS, (64, N))
    targets = items.roll(2, 1)
    weights = torch.zeros(64, N)
    weights[:, 2:] = 1.0 / (64 * (N - 2))
    return items, targets, weights


def one_signal() -> tuple[Tensor, Tensor, Tensor]:
    """One signal item at a random place, noise elsewhere; from there on every target is the signal item.

    Before it the target is a random signal item: a model that took noise as the sign of one of the signals (and then
    had no use for that signal's attention) would be wrong there, so what is useful is well defined.
    """
    items = torch.randint(SIGNAL + 1, ITEMS, (64, N))
    place = torch.randint(0, N - 1, (64, 1))
    signal, other = torch.randint(1, SIGNAL + 1, (2, 64, N))
    signal = signal[:, :1]
    items.scatter_(1, place, signal)
    targets = torch.where(torch.arange(N) >= place, signal, other)
    return items, targets, torch.full((64, N), 1 / (64 * N))


def test_position_mask_keeps_the_positions_that_matter() -> None:
    torch.set_num_threads(1)
    model, denoiser = train(DenoiserConfig(max_length=N, beta=0.5), two_back, 300)
    open_ = gate(denoiser.masks[0].phi) > 0
    useful = torch.ones(N, N).tril(-2).triu(-2).bool()
    useless = torch.ones(N, N).tril().bool() & ~useful
    assert open_[useful].float().mean() >= 0.95
    assert (~open_[useless]).float().mean() >= 0.8
    assert denoiser.kept_share()[0] == pytest.approx(float(open_[useful | useless].float().mean()))
    items, targets, _ = two_back()
    seen = []
    model.attention.attn_dropout.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    accuracy = (model(items).argmax(-1) == targets)[:, 2:].float().mean()
    assert accuracy > 0.95
    assert (seen[0][:, 0][:, useless & ~open_] == 0).all()


def test_content_mask_keeps_the_items_that_matter() -> None:
    torch.set_num_threads(1)
    model, _ = train(DenoiserConfig(max_length=N, beta=1.0, mask="content"), one_signal, 200, plain_steps=150)
    items, _, _ = one_signal()
    seen = []
    model.attention.attn_dropout.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        model(items)
    attention = seen[0][:, 0]  # [B, m, m]
    is_signal = (items <= SIGNAL).unsqueeze(1)
    earlier = torch.ones(N, N).tril(-1).bool()
    useful, useless = earlier & is_signal, earlier & ~is_signal
    assert (attention[useful] > 0).float().mean() >= 0.95
    assert (attention[useless] == 0).float().mean() >= 0.8


@pytest.mark.parametrize("target", [0.4, 0.7])
def test_target_sparsity_is_reached(target: float) -> None:
    torch.set_num_threads(1)
    _, denoiser = train(DenoiserConfig(max_length=N, target_sparsity=target), two_back, 400)
    assert 1 - denoiser.kept_share()[0] == pytest.approx(target, abs=0.1)
    useful = torch.ones(N, N).tril(-2).triu(-2).bool()
    assert (gate(denoiser.masks[0].phi)[useful] > 0).all()
    assert "control.log_beta" in denoiser.state_dict()
