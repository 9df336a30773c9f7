"""What must hold for every attention that is attached to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attentions import Projected
from torch import Tensor, nn
from toy_models import Block, Encoder, items_and_targets

from recbole_denoiser.core import DenoiserConfig, denoise

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0
M = 6


class TorchEncoder(nn.Module):
    """torch's attention, whose class changes when it is masked; a causal mask is float32, whatever the model is."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.items = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, items: Tensor) -> Tensor:
        """[B, m] -> [B, m, d]"""
        mask = nn.Transformer.generate_square_subsequent_mask(items.shape[1]) if self.causal else None
        return self.layers(self.items(items), mask=mask, is_causal=self.causal)


def encoder(kind: type[Projected], p: float = 0.0, layers: int = 2) -> Any:
    torch.manual_seed(0)
    return Encoder([Block(kind(8, 2, p), 8, p) for _ in range(layers)])


def config(**settings: Any) -> DenoiserConfig:
    return DenoiserConfig(**{"max_length": M, **settings})


def fill(denoiser: Any, value: float) -> None:
    for mask in denoiser.masks:
        mask.phi.data.fill_(value)


def holds(run: Callable[[], Tensor], model: nn.Module, **settings: Any) -> Any:
    """Open masks are the plain model, closed ones are not, training works, and detaching restores every bit."""
    model.eval()
    before, keys = run(), list(model.state_dict())
    members = [(name, type(m), set(m.__dict__), len(m._forward_pre_hooks)) for name, m in model.named_modules()]
    denoiser: Any = denoise(model, config(mask_init=100.0, **settings))
    assert len(denoiser.sites) == 2 and list(model.state_dict()) == keys
    torch.testing.assert_close(run(), before)
    fill(denoiser, -1.0)
    assert (run() - before).abs().max() > 1e-3
    fill(denoiser, 0.5)
    model.train()
    # not the mean of squares: behind a LayerNorm it is 1 whatever the masks do
    denoiser.loss(lambda: run().tanh().mean(-1)).total.backward()
    assert all(mask.phi.grad.abs().sum() > 0 for mask in denoiser.masks)
    model.eval()
    denoiser.detach()
    assert torch.equal(run(), before)
    assert members == [(name, type(m), set(m.__dict__), len(m._forward_pre_hooks)) for name, m in model.named_modules()]
    return denoiser
