"""16-bit dropout and U: their distribution, and that the second pass of a step multiplies with the same noise."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from toy_models import items_and_targets, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise, passes
from recbole_denoiser.core.dropout import FastDropout, dropout_noise, random_int16, uniform, use_fast_dropout
from recbole_denoiser.core.replay import Replay

ITEMS, TARGETS = items_and_targets()
CPU = torch.device("cpu")


def test_every_number_is_drawn_and_equally_often() -> None:
    torch.manual_seed(0)
    counts = torch.bincount(random_int16((4 * 65536,)).long() + 32768, minlength=65536)
    assert len(counts) == 65536
    # Poisson(4): 1.8 % of the numbers are missed
    assert abs(float((counts == 0).double().mean()) - 0.0183) < 0.003
    assert random_int16((3, 5, 7)).shape == (3, 5, 7)


def test_u_is_inside_the_unit_interval() -> None:
    torch.manual_seed(0)
    U = uniform((1000, 1000), torch.float32, CPU)
    assert 0.0 < float(U.min()) < 1e-4 and 1 - 1e-4 < float(U.max()) < 1.0
    assert abs(float(U.mean()) - 0.5) < 1e-3 and abs(float(U.var()) - 1 / 12) < 1e-3


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    noise = dropout_noise(torch.empty(1000, 1000), p)
    assert abs(float((noise == 0).float().mean()) - p) < 2e-3
    assert float(noise.max()) == pytest.approx(1 / (1 - p), rel=1e-4)
    assert abs(float(noise.mean()) - 1) < 1e-2


def test_the_replay_draws_nothing_anew() -> None:
    """Replayed noise is the same, and so is the random state behind it."""
    dropout = FastDropout(0.5).train()
    x = torch.ones(4, 8)
    torch.manual_seed(0)
    plain = [dropout(x), dropout(x)]
    after = torch.get_rng_state()
    torch.manual_seed(0)
    replay = Replay(CPU)
    with replay:
        first = [dropout(x), dropout(x)]
    replay.rewind()
    with replay:
        second = [dropout(x), dropout(x)]
    assert torch.equal(torch.get_rng_state(), after)
    for a, b, c in zip(plain, first, second, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_a_step_with_fast_dropout_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """U = 1/2 gives the same bits in both passes, so equal losses mean equal dropout."""
    torch.manual_seed(0)
    model = softmax_encoder(heads=2, p=0.5)
    use_fast_dropout(model)
    assert any(isinstance(module, FastDropout) for module in model.modules())
    assert not any(type(module) is nn.Dropout for module in model.modules())
    denoiser = denoise(model, DenoiserConfig(max_length=6, estimator="disarm", mask_init=1.0))
    monkeypatch.setattr(passes, "uniform", lambda shape, dtype, device: torch.full(shape, 0.5))
    seen = []

    def losses() -> torch.Tensor:
        seen.append(model.losses(ITEMS, TARGETS))
        return seen[-1]

    denoiser.loss(losses, ITEMS != 0)
    assert len(seen) == 2 and torch.equal(seen[0], seen[1])
