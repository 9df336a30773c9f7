"""Target denoising by hand."""

from __future__ import annotations

import math

import pytest
import torch

from recbole_denoiser.core import target_weights, warmed_rate
from recbole_denoiser.errors import UserError

LOSSES = torch.tensor([[0.1, 0.9, 0.3], [2.0, 0.5, 9.0]])
VALID = torch.tensor([[True, True, True], [True, True, False]])


def test_none_is_the_mean_over_valid() -> None:
    assert target_weights(LOSSES, VALID).tolist() == [pytest.approx([0.2] * 3), pytest.approx([0.2, 0.2, 0.0])]


def test_truncate_drops_the_largest_valid_losses() -> None:
    half = target_weights(LOSSES, VALID, "truncate", 0.5)  # 0.5 * 5 -> 2 dropped: 2.0 and 0.9
    third = 1 / 3
    assert half.tolist() == [pytest.approx([third, 0.0, third]), pytest.approx([0.0, third, 0.0])]
    assert torch.equal(target_weights(LOSSES, VALID, "truncate", 0.0), target_weights(LOSSES, VALID))
    assert VALID.sum() == 5  # the input is left alone
    assert target_weights(LOSSES, VALID.float(), "truncate", 0.99).sum() == 1


def test_reweight_is_the_power_of_the_probability() -> None:
    weights = target_weights(LOSSES, VALID, "reweight", 2.0)
    p = [math.exp(-2 * x) for x in (0.1, 0.9, 0.3, 2.0, 0.5)]
    expected = [x / sum(p) for x in p]
    assert weights[VALID].tolist() == pytest.approx(expected)
    assert weights[1, 2] == 0


def test_warmed_rate_is_linear() -> None:
    assert [warmed_rate(0.2, epoch, 4) for epoch in (0, 1, 2, 4, 9)] == pytest.approx([0.0, 0.05, 0.1, 0.2, 0.2])
    assert warmed_rate(0.2, 0, 0) == 0.2


@pytest.mark.parametrize(("mode", "rate"), [("magic", 0.1), ("truncate", 1.0), ("reweight", -1.0)])
def test_wrong_settings(mode: str, rate: float) -> None:
    with pytest.raises(UserError, match="allowed"):
        target_weights(LOSSES, VALID, mode, rate)
