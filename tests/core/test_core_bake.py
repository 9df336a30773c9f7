"""Masks that are saved, loaded, and left in the model for good."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from typing import Any

import pytest
import torch
from attentions import FusedKernel, HeadsFirst
from torch import Tensor, nn
from toy_models import Block, Encoder, SoftmaxAttention, items_and_targets

from recbole_denoiser.core import DenoiserConfig, denoise
from recbole_denoiser.errors import UserError

ITEMS, _ = items_and_targets()


class TorchBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x + self.attention(x, x, x, attn_mask=mask[0, 0], need_weights=False)[0]


KINDS = {
    "softmax": lambda: Block(SoftmaxAttention(8, 2)),
    "folded": lambda: Block(HeadsFirst()),
    "sdpa": lambda: Block(FusedKernel()),
    "torch": TorchBlock,
}


def setup(kind: str, **settings: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Encoder([KINDS[kind]() for _ in range(2)]).eval()
    config = DenoiserConfig(max_length=6, **settings)
    denoiser: Any = denoise(model, config)
    for mask in denoiser.masks:
        mask.phi.data.normal_()
    return model, denoiser


@pytest.mark.parametrize(
    "settings",
    [{}, {"mask_form": "renormalise", "mask_per_head": True}, {"align": "start"}, {"inference_gate": "expected"}],
)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_baked_model_is_the_gated_one_and_loads_like_any_other(kind: str, settings: dict[str, Any]) -> None:
    model, denoiser = setup(kind, **settings)
    model.requires_grad_(False), denoiser.requires_grad_(False)
    expected, short = model(ITEMS), model(ITEMS[:2, :4])
    denoiser.bake()
    assert torch.equal(model(ITEMS), expected)
    torch.testing.assert_close(model(ITEMS[:2, :4]), short)
    assert sum("denoiser_gate" in key for key in model.state_dict()) == 2
    assert torch.equal(copy.deepcopy(model)(ITEMS), expected)
    with pytest.raises(UserError, match="detached"):
        denoiser.loss(lambda: model(ITEMS).mean())
    other, second = setup(kind, **settings)
    second.bake()
    for mask in second.masks:
        mask.phi.data.zero_()  # no longer of any meaning to the model
    kept = io.BytesIO()
    torch.save(model.state_dict(), kept)
    kept.seek(0)
    other.load_state_dict(torch.load(kept, weights_only=True))
    assert torch.equal(other(ITEMS), expected)


@pytest.mark.parametrize("form", ["product", "renormalise"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_baked_model_can_be_exported(kind: str, form: str) -> None:
    model, denoiser = setup(kind, mask_form=form)
    denoiser.bake()
    other = ITEMS.flip(0)
    with torch.no_grad():
        expected = model(other)
        traced = torch.jit.trace(model, (ITEMS,), check_trace=False)
        torch.testing.assert_close(traced(other), expected)
        exported = torch.export.export(model, (ITEMS,))
    torch.testing.assert_close(exported.module()(other), expected)
    assert sum("denoiser_gate" in key for key in exported.state_dict) == 2


def test_masks_of_a_trained_model_are_saved_beside_it() -> None:
    model, denoiser = setup("folded")
    expected = model(ITEMS)
    saved = {"model": model.state_dict(), "masks": denoiser.state_dict()}
    torch.manual_seed(9)
    again = Encoder([KINDS["folded"]() for _ in range(2)]).eval()
    masks = denoise(again, denoiser.config)
    again.load_state_dict(saved["model"])
    assert not torch.allclose(again(ITEMS), expected)  # the model alone is not all of it
    masks.load_state_dict(saved["masks"])
    assert torch.equal(again(ITEMS), expected)


def test_masks_that_need_data_explain_themselves() -> None:
    model, denoiser = setup("softmax", mask="content")
    with pytest.raises(UserError, match=r"depend on the data .*kept_share\(lambda: model\(batch\), valid\)"):
        denoiser.kept_share()
    with pytest.raises(UserError, match=r"bake\(\) .*depend on the data .*Deploy the model with its denoiser"):
        denoiser.bake()
    with denoiser.collect_kept() as counted, denoiser.valid_positions(ITEMS != 0), torch.no_grad():
        model(ITEMS)
    assert denoiser.kept_share(lambda: model(ITEMS), ITEMS != 0) == counted.share
    assert 0.05 < counted.share[0] < 0.95


def test_the_core_is_pure() -> None:
    """Neither RecBole nor pandas, no changed NumPy, no environment variables."""
    code = (
        "import os, sys; before = dict(os.environ); from recbole_denoiser.core import denoise; "
        "assert dict(os.environ) == before; "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('recbole', 'pandas', 'sklearn', 'ray')]; "
        "assert not bad, bad; import numpy; assert numpy.__version__.startswith('1') or not hasattr(numpy, 'float')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
