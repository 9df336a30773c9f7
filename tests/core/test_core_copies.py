"""Copies of an attached model, in memory and in a file: each obeys its own masks and has a way back of its own."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attached import ITEMS, TorchEncoder, config, encoder, fill
from attentions import FusedKernel, HeadsFirst

from recbole_denoiser.core import denoise


def through_a_file(pair: Any) -> Any:
    file = io.BytesIO()
    torch.save(pair, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, through_a_file])
@pytest.mark.parametrize("make", [TorchEncoder, lambda: encoder(FusedKernel), lambda: encoder(HeadsFirst)])
def test_a_copy_is_independent(make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        plain = model(ITEMS)
        denoiser = denoise(model, config(mask_init=100.0, causal=False))
        model(ITEMS)
        twin, its_denoiser = copied((model, denoiser))
        fill(its_denoiser, -100.0)
        torch.testing.assert_close(model(ITEMS), plain)
        assert (twin(ITEMS) - plain).abs().max() > 1e-3
        its_denoiser.detach()
        assert torch.equal(twin(ITEMS), plain)
        fill(denoiser, -100.0)
        assert (model(ITEMS) - plain).abs().max() > 1e-3  # detaching the copy left the masks here
        denoiser.detach()
        assert torch.equal(model(ITEMS), plain)


def test_a_baked_model_is_saved_whole() -> None:
    model: Any = TorchEncoder().eval()
    with torch.no_grad():
        denoiser = denoise(model, config(mask_init=100.0, causal=False))
        fill(denoiser, -100.0)
        denoiser.bake()
        assert torch.equal(through_a_file(model)(ITEMS), model(ITEMS))
