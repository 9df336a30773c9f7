"""The three rules for Z at inference: clipped, hard and expected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from enumeration import all_bits, bits_probability
from toy_models import Encoder, SoftmaxAttention, items_and_targets

from recbole_denoiser.core import DenoiserConfig, denoise
from recbole_denoiser.core.masks import CERTAIN, gate
from recbole_denoiser.errors import UserError

ITEMS = items_and_targets()[0][:, :3]
PHI = torch.tensor([0.4, -0.3, 2.0, -1.5, 0.1, 0.8], dtype=torch.float64)
LIVE = torch.tril_indices(3, 3)


def output(phi: torch.Tensor, rule: str) -> torch.Tensor:
    """What one layer of attention puts out at inference, linear in Z."""
    torch.manual_seed(0)
    model = Encoder([SoftmaxAttention(8, 2)], n=3).double().eval()
    denoiser: Any = denoise(model, DenoiserConfig(max_length=3, inference_gate=rule))
    with torch.no_grad():
        denoiser.masks[0].phi[LIVE[0], LIVE[1]] = phi.to(denoiser.masks[0].phi.dtype)
        result: torch.Tensor = model(ITEMS)
    return result


def test_the_expected_gate_is_the_mean_over_all_masks() -> None:
    phi = PHI.float().double()  # masks are float32
    bits = all_bits(len(PHI))
    outputs = torch.stack([output((2 * mask - 1) * CERTAIN, "clipped") for mask in bits])
    mean = torch.einsum("k,kbmd->bmd", bits_probability(bits, phi), outputs)
    torch.testing.assert_close(output(phi, "expected"), mean, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(output(phi, "clipped"), mean, rtol=1e-2, atol=1e-2)


def test_the_hard_gate_is_the_mask_of_the_open_entries() -> None:
    torch.testing.assert_close(output(PHI, "hard"), output(torch.where(PHI > 0, CERTAIN, -CERTAIN), "clipped"))


def test_values() -> None:
    phi = torch.tensor([-1.0, 0.0, 1.0])
    high = pytest.approx(0.7310586)
    assert gate(phi).tolist() == [0.0, 0.0, high]
    assert gate(phi, "hard").tolist() == [0.0, 0.0, 1.0]
    assert gate(phi, "expected").tolist() == [pytest.approx(0.2689414), 0.5, high]


def test_expected_prunes_nothing_and_hard_what_clipped_prunes() -> None:
    for rule, kept in (("clipped", 0.0), ("hard", 0.0), ("expected", 1.0)):
        denoiser: Any = denoise(Encoder([SoftmaxAttention(8)]), DenoiserConfig(max_length=6, inference_gate=rule))
        denoiser.masks[0].phi.data.fill_(-0.1)
        assert denoiser.kept_share() == [kept]


def test_a_wrong_rule_is_refused() -> None:
    with pytest.raises(UserError, match=r"inference_gate.*clipped, hard.*expected"):
        DenoiserConfig(max_length=6, inference_gate="soft")
