"""loss_type through the models: the numbers, masks and target denoising with all, and sizes that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from built import build, check_run
from toy_data import write_inter

from recbole_denoiser.errors import UserError

SAMPLED: dict[str, dict[str, Any]] = {
    "BCE": {"loss_type": "BCE", "train_negatives": 2},
    "BPR": {"loss_type": "BPR", "train_negatives": 3},
    "BPR shared": {"loss_type": "BPR", "train_negatives": 9, "negatives_shared": True},
    "gBCE": {"loss_type": "gBCE", "train_negatives": 5, "gbce_t": 0.6},
    "gBCE shared": {"loss_type": "gBCE", "train_negatives": 30, "gbce_t": 0.6, "negatives_shared": True},
    "SSM uniform per position": {"loss_type": "SSM", "train_negatives": 5},
    "SSM per position": {"loss_type": "SSM", "train_negatives": 5, "negative_sampling": "popularity"},
    "SSM shared": {"loss_type": "SSM", "train_negatives": 20, "negatives_shared": True},
    "SSM popularity": {
        "loss_type": "SSM", "train_negatives": 20, "negatives_shared": True, "negative_sampling": "popularity",
    },
    "SSM in batch": {"loss_type": "SSM", "train_negatives": 20, "negative_sampling": "in_batch"},
}  # fmt: skip
EVERY: dict[str, dict[str, Any]] = {
    **SAMPLED,
    "CE": {"loss_type": "CE"},
    "BCE shared": {"loss_type": "BCE", "negatives_shared": True},
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
def test_loss_is_the_formula(settings: dict, model: str, name: str) -> None:
    """From scores of all items and the popularity of the data, position by position."""
    built = build(model, settings, denoise=False, target_denoise="none", **EVERY[name])
    network = built.model.eval()
    batch = network.batch(built.train_batch())
    states = network.encode(network.embed(batch))
    loss, positive = network.position_losses(states, batch)
    assert (batch.shared is not None) == ("shared" in name or name in ("SSM popularity", "SSM in batch"))
    flat = built.data.dataset.flat
    rows = built.data.train._dataset.inter_feat
    count = torch.bincount(flat.columns["item_id"][torch.from_numpy(rows.covered_targets())], minlength=network.n_items)
    q = count.clamp(min=1).float()
    q[0] = 0
    q /= q.sum()
    scores = network.readout(states) @ network.item_weights()[: network.n_items].t()
    if model.startswith("BERT"):
        scores = scores + network.output_bias
    checked = 0
    for row, column in (batch.targets != 0).nonzero()[:40].tolist():
        target, r = int(batch.targets[row, column]), scores[row, column]
        kind = EVERY[name]["loss_type"]
        expected = part = -torch.log_softmax(r, 0)[target]  # CE
        if kind != "CE":
            drawn = batch.shared if batch.shared is not None else batch.negatives[row, column]
            drawn = drawn[drawn != target]
        if kind in ("BCE", "gBCE"):
            alpha = EVERY[name].get("train_negatives", 1) / (network.n_items - 2)
            beta = alpha * (0.6 * (1 - 1 / alpha) + 1 / alpha) if kind == "gBCE" else 1.0
            part = -beta * F.logsigmoid(r[target])
            expected = part - F.logsigmoid(-r[drawn]).sum()
        elif kind == "BPR":
            expected = part = -F.logsigmoid(r[target] - r[drawn]).sum() / max(len(drawn), 1)
        elif kind == "SSM":
            if EVERY[name].get("negative_sampling", "uniform") != "uniform":
                r = r - q.log()
            expected = part = -torch.log_softmax(torch.cat([r[target][None], r[drawn]]), 0)[0]
        assert positive[row, column].item() == pytest.approx(part.item(), rel=1e-4)
        assert loss[row, column].item() == pytest.approx(expected.item(), rel=1e-4)
        checked += 1
    assert checked == 40


@pytest.mark.parametrize("name", EVERY)
def test_masks_truncation_and_training_work_with_every_objective(workplace: Path, settings: dict, name: str) -> None:
    way = ("sequences", EVERY[name]["loss_type"], "end")
    result = check_run("SASRecDenoiser", settings, way, estimator="arm", target_rate=0.2, target_warmup=0,
                       **EVERY[name])  # fmt: skip
    assert all(torch.isfinite(torch.tensor(list(record["losses"].values()))).all() for record in result["epochs"])


def test_both_passes_of_a_step_meet_the_same_negatives(settings: dict) -> None:
    built = build("SASRecDenoiser", settings, estimator="arm", **SAMPLED["SSM shared"])
    seen = []
    inner = built.model.objective.losses

    def watched(*given: Any) -> Any:
        seen.append(given[3].tolist())
        return inner(*given)

    built.model.objective.losses = watched
    built.model.train()
    built.model.calculate_loss(built.train_batch())
    built.model.calculate_loss(built.train_batch())
    assert len(seen) == 4 and seen[0] == seen[1] and seen[2] == seen[3] and seen[0] != seen[2]


def test_negatives_by_popularity_avoid_the_history(settings: dict) -> None:
    built = build("SASRecDenoiser", settings, loss_type="SSM", train_negatives=30, negative_sampling="popularity")
    sampler = built.data.train._dataset.inter_feat.negatives
    user = torch.arange(1, 61)
    drawn = sampler.draw(user, 200)
    assert not sampler.histories.contain(user[:, None, None].expand_as(drawn), drawn).any()
    share = torch.bincount(drawn.flatten(), minlength=built.model.n_items)[1:].double()
    counts = built.data.train._dataset.counter("item_id")
    popular = torch.tensor([float(counts[item]) for item in range(1, built.model.n_items)])
    assert torch.corrcoef(torch.stack([share, popular.double()]))[0, 1] > 0.8


@pytest.mark.parametrize("sampling", ["uniform", "popularity", "in_batch"])
def test_shared_negatives_are_drawn_as_the_setting_says(settings: dict, sampling: str) -> None:
    """Uniform over all items, by the share of the training targets, or from the targets of the batch."""
    flags = {"loss_type": "SSM", "negatives_shared": True, "negative_sampling": sampling, "train_negatives": 39}
    model = build("SASRecDenoiser", settings, **flags).model
    targets = torch.tensor([[0, 3, 5], [7, 3, 3]])
    drawn = torch.cat([model.objective.draw(targets) for _ in range(600)])
    share = torch.bincount(drawn, minlength=model.n_items).double() / len(drawn)
    if sampling == "in_batch":
        expected = torch.bincount(targets[targets != 0], minlength=model.n_items) / 5
    else:
        expected = torch.full((model.n_items,), 1 / (model.n_items - 1))
        expected = expected if sampling == "uniform" else model.objective.log_q.exp()
        expected[0] = 0
    assert (share - expected).abs().max() < 0.01
    assert sampling == "uniform" or expected[1:].max() > 0.035  # the toy data and the batch are not uniform


@pytest.mark.parametrize("loss", ["SSM", "gBCE"])
def test_more_negatives_than_items(settings: dict, loss: str) -> None:
    with pytest.raises(UserError, match=r"train_negatives = 40 .* 40 item.* at most 39"):
        build("SASRecDenoiser", settings, loss_type=loss, train_negatives=40)
    built = build("SASRecDenoiser", settings, loss_type=loss, train_negatives=39, negatives_shared=True)
    assert torch.isfinite(built.model.calculate_loss(built.train_batch())[0])


@pytest.mark.parametrize("name", ["CE", "SSM shared", "SSM in batch", "BCE shared"])
def test_a_universe_of_two_items(workplace: Path, settings: dict, name: str) -> None:
    write_inter(workplace, "two", [(f"u{u}", f"i{step % 2}", 60.0 * step) for u in range(4) for step in range(5)])
    flags = {**settings, "data_path": str(workplace), "eval_args.mode": "full", "topk": [1], "valid_metric": "NDCG@1"}
    chosen = {**EVERY[name], "train_negatives": 1}
    built = build("SASRecDenoiser", flags, dataset="two", **chosen)
    rec = built.model.calculate_loss(built.train_batch())[0]
    rec.backward()
    assert torch.isfinite(rec)
    with pytest.raises(UserError, match="negative item"):  # every user has interacted with both
        build("SASRecDenoiser", flags, dataset="two", loss_type="gBCE")


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "GRU4RecSequence"])
@pytest.mark.parametrize("name", EVERY)
def test_padding_only_costs_nothing(settings: dict, model: str, name: str) -> None:
    flags = {} if model.startswith("GRU") else {"denoise": False}
    built = build(model, settings, **flags, **EVERY[name])
    interaction = built.train_batch()
    for column in ("item_id", "item_id_list", "target_item_id_list", "item_length"):
        interaction.interaction.update({column: torch.zeros_like(interaction[column])})
    rec = built.model.calculate_loss(interaction)[0]
    rec.backward()
    assert float(rec.detach()) == 0.0
    assert all(torch.isfinite(p.grad).all() for p in built.model.parameters() if p.grad is not None)
