"""The control: masks drawn once at random, which keep an exact share and never learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy_models import items_and_targets, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise
from recbole_denoiser.core.masks import gate, random_phi
from recbole_denoiser.errors import UserError

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0
# 15 float32 losses averaged in two orders: each sum rounds at most 14 times by half an ulp, in practice by a few.
ROUNDING: dict[str, Any] = {"rtol": 8 * torch.finfo(torch.float32).eps, "atol": 0.0}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.5, 1.0])
def test_the_kept_share_is_exact_and_certain(causal: bool, keep: float) -> None:
    phi = random_phi((2, 20, 20), keep, causal)
    live = 210 if causal else 400
    Z = gate(phi)
    assert Z.sum(dim=(1, 2)).tolist() == [round(keep * live)] * 2
    assert set(Z.unique().tolist()) <= {0.0, 1.0}
    if causal:
        assert not Z.triu(1).any()
    if 0 < keep < 1:
        assert not torch.equal(Z[0], Z[1])


def test_a_random_mask_never_learns_and_a_full_one_is_the_plain_model() -> None:
    torch.manual_seed(0)
    model = softmax_encoder(heads=2, p=0.0)
    plain = model.losses(ITEMS, TARGETS)
    denoiser = denoise(model, DenoiserConfig(max_length=6, random_keep=1.0, beta=0.5))
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), valid=VALID)
    torch.testing.assert_close(result.rec, plain[VALID].mean(), **ROUNDING)
    result.total.backward()
    assert all(mask.phi.grad is None for mask in denoiser.masks)
    assert next(model.parameters()).grad is not None
    assert denoiser.kept_share() == [1.0, 1.0]


def test_training_uses_the_mask_of_inference() -> None:
    torch.manual_seed(0)
    model = softmax_encoder(heads=2, p=0.0)
    denoiser = denoise(model, DenoiserConfig(max_length=6, random_keep=0.5, estimator="arm"))
    trained = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), valid=VALID)
    torch.testing.assert_close(trained.rec, model.losses(ITEMS, TARGETS)[VALID].mean(), **ROUNDING)


@pytest.mark.parametrize(("keep", "mask"), [(-0.1, "position"), (1.1, "position"), (0.5, "content")])
def test_what_is_not_allowed(keep: float, mask: str) -> None:
    with pytest.raises(UserError, match="random_keep"):
        DenoiserConfig(max_length=6, random_keep=keep, mask=mask)
