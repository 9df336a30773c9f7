"""BERT4Rec works out its last block and its output layer at the targets only: the loss and gradients of all positions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from built import build
from torch import Tensor

from recbole_denoiser.model.base import Batch
from recbole_denoiser.model.bert4rec import BERT4RecDenoiser
from recbole_denoiser.model.kernels import encode_at


def everywhere(self: BERT4RecDenoiser, embedded: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """States of all positions, with the output layer."""
    x = self.trm_encoder(embedded[0], embedded[1], output_all_encoded_layers=False)[-1]
    return self.output_ln(F.gelu(self.output_ffn(x)))


def step(model: Any, interaction: Any) -> list[Tensor]:
    """Loss and gradients of a training step."""
    model.zero_grad()
    torch.manual_seed(5)
    terms = model.train().calculate_loss(interaction)
    sum(terms).backward()
    return [sum(terms).detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


WAYS: dict[str, dict[str, Any]] = {
    "CE": {},
    "truncated": {"target_denoise": "truncate", "target_rate": 0.2, "target_warmup": 0},
    "reweighted": {"target_denoise": "reweight"},
    "weights of the detector": {"noise_action": "weight"},
    "BCE, positions from the start": {"loss_type": "BCE", "position_from": "start"},
    "SSM": {"loss_type": "SSM", "train_negatives": 7, "negatives_shared": True},
    "masks, row credit": {"denoise": True, "estimator": "disarm", "credit": "row"},
    "masks and Jacobian": {"denoise": True, "estimator": "arm", "gamma": 0.1, "jacobian_batch": 3},
}


@pytest.mark.parametrize("name", ["BERT4RecDenoiser", "BERT4RecEntmax"])
@pytest.mark.parametrize("way", list(WAYS))
def test_loss_and_gradients_are_those_of_all_positions(
    workplace: Path,
    settings: dict,
    monkeypatch: pytest.MonkeyPatch,
    every_third: SimpleNamespace,
    name: str,
    way: str,
) -> None:
    flags = {"denoise": False, "target_denoise": "none", "loss_type": "CE", **WAYS[way]}
    if name == "BERT4RecEntmax":
        flags["jacobian_method"] = "finite_difference"
    built = build(name, settings, **flags)
    model = built.model.double()
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    interaction = built.train_batch()
    found = step(model, interaction)
    monkeypatch.setattr(BERT4RecDenoiser, "encode", everywhere)
    monkeypatch.setattr(BERT4RecDenoiser, "readout", lambda self, states: states)
    expected = step(model, interaction)
    assert len(found) == len(expected) > 20
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_output_layer_meets_targets_only(workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks or none: as many rows as there are targets; the last block's queries too, where there are no masks."""
    for denoise in (False, True):
        built = build("BERT4RecDenoiser", settings, denoise=denoise, mask_ratio=0.2, ft_ratio=0.0)
        rows: list[int] = []
        queries: list[int] = []
        built.model.output_ffn.register_forward_hook(lambda _m, args, _o, rows=rows: rows.append(len(args[0])))
        last = built.model.trm_encoder.layer[-1].multi_head_attention
        last.query.register_forward_hook(lambda _m, args, _o, queries=queries: queries.append(args[0].size(1)))
        batches: list[Batch] = []
        make = built.model.batch
        monkeypatch.setattr(built.model, "batch", lambda x, make=make, seen=batches: seen.append(make(x)) or seen[-1])
        built.model.train().calculate_loss(built.train_batch())
        targets = batches[0].targets != 0
        assert rows[0] == int(targets.sum()) < targets.numel() / 2
        assert queries[0] == (targets.size(1) if denoise else int(targets.sum(1).max()))


@pytest.mark.parametrize(
    "chosen", [[[0, 1, 0], [1, 1, 1]], [[0, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 1]], [[0, 0, 0], [1, 0, 0]]]
)
def test_blocks_at_chosen_positions(settings: dict, chosen: list[list[int]]) -> None:
    model = build("BERT4RecDenoiser", settings, denoise=False).model
    torch.manual_seed(1)
    x, where = torch.randn(2, 3, 16), torch.tensor(chosen, dtype=torch.bool)
    bias = torch.tensor([[0.0, 0.0, 0.0], [-10000.0, 0.0, 0.0]])[:, None, None]
    full = model.trm_encoder(x, bias, output_all_encoded_layers=False)[-1]
    torch.testing.assert_close(encode_at(model.trm_encoder.layer, x, bias, where), full * where[..., None])
