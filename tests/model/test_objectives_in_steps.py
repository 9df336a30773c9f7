"""Every objective inside a training step: weights of the targets, masks and row credit, against the formulas."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from built import Built, build
from test_objectives import EVERY
from torch import Tensor

from recbole_denoiser.core.passes import Draw, ruled
from recbole_denoiser.core.training import TrainingStep
from recbole_denoiser.model.base import Batch

WEIGHTS: dict[str, dict[str, Any]] = {
    "all the same": {"target_denoise": "none"},
    "truncated": {"target_denoise": "truncate", "target_rate": 0.3, "target_warmup": 0},
    "reweighted": {"target_denoise": "reweight", "target_rate": 0.7, "target_warmup": 0},
    "weights of the detector": {"target_denoise": "none", "noise_action": "weight"},
    "truncated, with the detector's weights": {
        "target_denoise": "truncate", "target_rate": 0.3, "target_warmup": 0, "noise_action": "weight",
    },
}  # fmt: skip


def fixed_batch(built: Built) -> Batch:
    """The first batch, which the model then meets in every call."""
    batch = built.model.batch(built.train_batch())
    built.model.batch = lambda _: batch
    return batch


def expected_weights(positive: Tensor, batch: Batch, way: str) -> Tensor:
    """[B, m] by hand: the largest positive losses left out, p^rate, times the trust, adding up to 1."""
    there = (batch.targets != 0).nonzero().tolist()
    flat = {(b, t): float(positive[b, t]) for b, t in there}
    weight = dict.fromkeys(flat, 1.0)
    if way.startswith("truncated"):
        for place in sorted(flat, key=lambda place: -flat[place])[: int(0.3 * len(flat))]:
            weight[place] = 0.0
    if way == "reweighted":
        weight = {place: 2.718281828459045 ** (-0.7 * value) for place, value in flat.items()}
    if "weights" in way:
        assert batch.trust is not None and 0 < float(batch.trust.min()) < 0.2
        weight = {place: value * float(batch.trust[place]) for place, value in weight.items()}
    else:
        assert batch.trust is None
    total = sum(weight.values())
    found = torch.zeros_like(positive)
    for place, value in weight.items():
        found[place] = value / total
    return found


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "GRU4RecSequence"])
@pytest.mark.parametrize("way", list(WEIGHTS))
@pytest.mark.parametrize("name", EVERY)
def test_the_loss_is_the_weighted_sum(
    workplace: Path, settings: dict, every_third: SimpleNamespace, model: str, way: str, name: str
) -> None:
    flags = {"dropout_prob": 0.0} if model.startswith("GRU") else {"denoise": False}
    built = build(model, settings, **flags, **EVERY[name], **WEIGHTS[way])
    net = built.model.train()
    batch = fixed_batch(built)
    rec, *nothing = net.calculate_loss(None)
    losses, positive = net.position_losses(net.encode(net.embed(batch)), batch)
    weights = expected_weights(positive.detach(), batch, way)
    assert float(rec.detach()) == pytest.approx(float((losses * weights).sum().detach()), rel=1e-4)
    assert [float(term) for term in nothing] == [0.0, 0.0]


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
@pytest.mark.parametrize("way", ["all the same", "truncated", "weights of the detector"])
@pytest.mark.parametrize("name", EVERY)
def test_phi_learns_by_eq_12_from_the_losses_of_its_rows(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, every_third: SimpleNamespace, model: str,
    way: str, name: str,
) -> None:  # fmt: skip
    """Losses of both masks computed again by themselves, the weights of the first pass for both, and row credit."""
    built = build(model, settings, denoise=True, estimator="arm", credit="row", beta=0.0, mask_init=0.5,
                  **EVERY[name], **WEIGHTS[way])  # fmt: skip
    net = built.model.double().train()
    torch.manual_seed(2)
    for parameter in net.trm_encoder.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    batch = fixed_batch(built)
    steps: list[TrainingStep] = []
    inner = TrainingStep.run

    def run(self: TrainingStep, *given: Any) -> Any:
        steps.append(self)
        return inner(self, *given)

    monkeypatch.setattr(TrainingStep, "run", run)
    sum(net.calculate_loss(None)).backward()
    draws: list[Draw] = steps[0].draws

    def losses_at(masks: list[Tensor]) -> tuple[Tensor, Tensor]:
        given = iter(masks)
        with torch.no_grad(), ruled(net.denoiser.sites, lambda _site, call: call.masked(next(given))):
            return net.position_losses(net.encode(net.embed(batch)), batch)

    first, positive = losses_at([draw.Z for draw in draws])
    twins = [(torch.sigmoid(-draw.Phi.detach()) < draw.U).double() for draw in draws]
    second, _ = losses_at(twins)
    weights = expected_weights(positive, batch, way)
    difference = (second - first) * weights  # [B, m]
    causal = model == "SASRecDenoiser"
    B, m = difference.shape
    for layer, draw in enumerate(draws):
        expected = torch.zeros(m, m, dtype=torch.float64)
        for b in range(B):
            for row in range(m):
                reached = difference[b, row] if layer == 1 else difference[b, row if causal else 0 :].sum()
                for column in range(row + 1 if causal else m):
                    if batch.valid[b, row] and batch.valid[b, column]:
                        expected[row, column] += reached * (draw.U[b, 0, row, column] - 0.5)
        found = net.denoiser.masks[layer].phi.grad[-m:, -m:]
        assert found.abs().max() > 0
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
