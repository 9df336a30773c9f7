"""Models in half and double precision, and masks that are made where no gradient is wanted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attached import ITEMS, M, TorchEncoder, config, fill

from recbole_denoiser.core import denoise


def causal(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return TorchEncoder(causal=True).to(dtype).eval()


@pytest.mark.parametrize("mask", ["position", "content"])
@pytest.mark.parametrize("form", ["product", "renormalise"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_of_any_precision(dtype: torch.dtype, form: str, mask: str) -> None:
    model = causal(dtype)
    before = model(ITEMS)
    denoiser: Any = denoise(model, config(mask_init=100.0, mask_form=form, mask=mask))
    assert (model(ITEMS) - before).abs().max() <= 4 * torch.finfo(dtype).eps * before.abs().max()
    fill(denoiser, -100.0)
    other = ITEMS.clone()
    other[:, 1] = ITEMS[:, 1] % 19 + 1
    rest = [position for position in range(M) if position != 1]
    assert torch.equal(model(ITEMS)[:, rest], model(other)[:, rest])
    fill(denoiser, 0.5)
    model.train()
    denoiser.loss(lambda: model(ITEMS).float().tanh().mean(-1)).total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in denoiser.parameters())
    assert all(part.phi.grad.abs().sum() > 0 for part in denoiser.masks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_learn_in_float32_whatever_the_model_has(dtype: torch.dtype) -> None:
    """In bfloat16 a step of 0.005 from 3.0 would round to no step at all, without a word."""
    model = causal(dtype)
    denoiser: Any = denoise(model, config(mask_init=3.0))
    with torch.no_grad():
        for mask in denoiser.masks:
            mask.phi -= 0.005
            torch.testing.assert_close(mask.phi, torch.full((M, M), 2.995))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_model_changes_its_precision_after_attaching(dtype: torch.dtype) -> None:
    model = causal(torch.float32)
    before = model.to(dtype)(ITEMS)
    model = causal(torch.float32)
    denoise(model, config(mask_init=100.0, mask="content"))
    torch.testing.assert_close(model.to(dtype)(ITEMS), before, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_masks_that_are_made_without_gradients_still_learn(mode: Any) -> None:
    model = causal(torch.float32)
    with mode():
        denoiser: Any = denoise(model, config(mask_init=0.5))
    model.train()
    denoiser.loss(lambda: model(ITEMS).tanh().mean(-1)).total.backward()
    assert all(mask.phi.grad.abs().sum() > 0 for mask in denoiser.masks)
