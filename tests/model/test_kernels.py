"""Cheaper kernels against RecBole's own layers: the same numbers and gradients."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from built import build
from recbole.model.layers import MultiHeadAttention
from torch import Tensor

from recbole_denoiser.model.kernels import FastAttention, attention_bias, gelu
from recbole_denoiser.model.positions import Positions

PADDED = torch.tensor([[0, 0, 3, 4], [1, 2, 3, 4], [0, 1, 2, 0]])
WHOLE = PADDED + 1


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("items", [PADDED, WHOLE, PADDED[:1], PADDED[:, :1]])
def test_bias_is_recboles(settings: dict, items: Tensor, causal: bool) -> None:
    model = build("SASRecDenoiser", settings, denoise=False).model
    theirs = model.get_attention_mask(items, bidirectional=not causal)  # [B, 1, m or 1, m]
    shape = (len(items), 1, items.size(1), items.size(1))
    assert torch.equal(attention_bias(items, causal).expand(shape), theirs.expand(shape))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("items", [PADDED, WHOLE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_is_recboles(items: Tensor, causal: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    theirs = MultiHeadAttention(2, 6, 0.0, 0.0, 1e-12).to(dtype)
    ours = deepcopy(theirs)
    ours.__class__ = FastAttention
    bias = attention_bias(items, causal)
    inputs = torch.randn(3, 4, 6, dtype=dtype)
    found = []
    for layer in (ours, theirs):
        x = inputs.clone().requires_grad_()
        y = layer(x, bias)
        (y * torch.arange(6)).sum().backward()
        found.append([y.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())])
    torch.testing.assert_close(found[0], found[1])


def test_every_layer_has_it(settings: dict) -> None:
    for name in ("SASRecDenoiser", "BERT4RecDenoiser", "SASRecEntmax", "SASRecSparse", "SSEPT"):
        layers = build(name, settings).model.trm_encoder.layer
        assert all(isinstance(layer.multi_head_attention, FastAttention) for layer in layers)


@pytest.mark.parametrize("chosen", [PADDED != 0, WHOLE != 0, PADDED < 0])
def test_positions_and_back(chosen: Tensor) -> None:
    values = torch.randn(3, 4, 5, requires_grad=True)
    there = Positions(chosen)
    assert torch.equal(there.of(values), values[chosen])
    losses = there.back(there.of(values)[:, 0])
    assert torch.equal(losses, values[..., 0] * chosen)
    losses.sum().backward()
    assert values.grad is not None and torch.equal(values.grad[..., 0], chosen.float())
    assert not values.grad[..., 1:].any()


def test_gelu_is_torchs() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(gelu(x), torch.nn.functional.gelu(x))
    assert gelu(x).is_contiguous() and torch.autograd.gradcheck(gelu, x) and torch.autograd.gradgradcheck(gelu, x)
