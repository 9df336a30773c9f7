"""What the model tests share: a model on the toy data, whole runs, and what every model has to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_data import write_inter

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline, reopen
from recbole_denoiser.training import checkpoint

# training rows, loss and alignment: each value at least once
WAYS = [("sequences", "BCE", "end"), ("prefixes", "CE", "start"), ("sequences", "BPR", "start")]


@dataclass
class Built:
    """A fresh model and its data."""

    config: Config
    data: pipeline.Data
    model: Any

    def train_batch(self) -> Any:
        """The first training batch."""
        return next(iter(self.data.train))

    def test_batch(self) -> Any:
        """The first test batch and its candidates."""
        return next(iter(self.data.test))


def small(name: str) -> dict[str, int]:
    """Layers that are quick to train."""
    sizes = {"hidden_size": 16, "inner_size": 16}
    return {**sizes, "user_size": 6} if name.startswith("SSEPT") else sizes


def build(name: str, settings: dict[str, Any], **flags: Any) -> Built:
    """A model with small layers and no dropout unless the flags say otherwise."""
    still = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0}
    config = Config(name, flags.pop("dataset", "toy"), flags={**settings, **small(name), **still, **flags})
    data = pipeline.load_data(config)
    return Built(config, data, pipeline.build_model(config, data.train._dataset))


def scores_of(built: Built) -> Tensor:
    """Scores of the first test batch's candidates."""
    built.model.eval()
    with torch.no_grad():
        return built.model.score_candidates(*built.test_batch())


def attention_of(built: Built, interaction: Any) -> list[Tensor]:
    """Attention weights [B, H, m, m] of each layer, as they meet the values."""
    seen: list[Tensor] = []
    dropouts = [module for name, module in built.model.named_modules() if name.endswith("attn_dropout")]
    handles = [module.register_forward_hook(lambda _m, _a, output: seen.append(output)) for module in dropouts]
    built.model.eval()
    with torch.no_grad():
        built.model.last_state(interaction)
    for handle in handles:
        handle.remove()
    return seen


def check_run(model: str, settings: dict[str, Any], way: tuple[str, str, str], **flags: Any) -> dict[str, Any]:
    """A run by the standard path: the loss falls, and the checkpoint returns the same scores."""
    rows, loss, start = way
    flags = {
        **settings,
        **small(model),
        "epochs": 3,
        "learning_rate": 0.01,
        "train_batch_size": 32 if rows == "sequences" else 256,
        "train_rows": rows,
        "loss_type": loss,
        "position_from": start,
        **flags,
    }
    result = pipeline.run(model, flags.pop("dataset", "toy"), flags=flags)
    losses = [record["losses"]["rec"] for record in result["epochs"]]
    assert losses[-1] < losses[0]
    config, again, _, _, _, test = reopen.load_data_and_model(result["checkpoint"])
    assert again.state_dict().keys() == checkpoint.load(result["checkpoint"])["state_dict"].keys()
    again.eval()
    hits = 0.0
    for interaction, candidates in test:
        with torch.no_grad():
            scores = again.score_candidates(interaction, candidates)
        hits += float(((scores > scores[:, :1]).sum(1) < 10).sum())
    assert hits / result["data"]["users"] == pytest.approx(result["test"]["hit@10"])
    assert config["model"] == model
    return result


def check_open_masks_change_nothing(
    plain: str, denoised: str, settings: dict[str, Any], form: str = "renormalise"
) -> None:
    """With Phi so large that Z = 1 always, scores and losses are the backbone's, to the bit."""
    settings = {**settings, "fast_inference": False}  # the full pass, to the bit
    backbone = build(plain, settings, denoise=False)
    masked = build(denoised, settings, denoise=True, mask_init=40.0, mask_form=form, beta=0.0, target_denoise="none")
    missing, unexpected = masked.model.load_state_dict(backbone.model.state_dict(), strict=False)
    assert missing and all(name.startswith("denoiser.") for name in missing) and not unexpected
    assert torch.equal(scores_of(backbone), scores_of(masked))
    interaction = backbone.train_batch()
    losses = []
    for built in (backbone, masked):
        built.model.train()
        torch.manual_seed(3)
        losses.append(built.model.calculate_loss(interaction)[0])
    assert torch.equal(losses[0], losses[1])
    closed = build(denoised, settings, denoise=True, mask_init=-40.0)
    closed.model.load_state_dict(backbone.model.state_dict(), strict=False)
    assert not torch.equal(scores_of(backbone), scores_of(closed))  # the masks do act


def check_one_user(model: str, settings: dict[str, Any], folder: Path) -> None:
    """One user has interacted with every item: no negatives to draw, which is told; with the softmax over all items it runs."""
    write_inter(folder, "single", [("u", f"i{step % 12}", 60.0 * step) for step in range(14)])
    flags = {**settings, "data_path": str(folder), "eval_args.mode": "full", "epochs": 10, "learning_rate": 0.01}
    with pytest.raises(UserError, match="negative item"):
        build(model, flags, dataset="single")
    result = pipeline.run(model, "single", flags={**flags, **small(model), "loss_type": "CE"})
    losses = [record["losses"]["rec"] for record in result["epochs"]]
    assert losses[-1] < losses[0]
    (rank,) = np.load(f"results/{result['run']}/ranks.npz")["test_rank"]
    assert result["test"]["hit@10"] == float(rank <= 10)


def check_denoiser_trains(model: str, settings: dict[str, Any], **flags: Any) -> None:
    """One step with masks of either kind and the Jacobian penalty: finite gradients that reach Phi and the backbone."""
    for mask in ("position", "content"):
        built = build(model, settings, denoise=True, mask=mask, gamma=0.1, jacobian_batch=3, mask_init=0.5, **flags)
        terms = built.model.calculate_loss(built.train_batch())
        assert float(terms[2].detach()) > 0
        sum(terms).backward()
        used = {name: p.grad for name, p in built.model.named_parameters() if p.grad is not None}
        assert all(torch.isfinite(grad).all() for grad in used.values())
        assert len(built.model.denoiser.masks) == 2
        for layer in range(2):
            assert used[f"denoiser.masks.{layer}.phi"].abs().sum() > 0
        assert used["item_embedding.weight"].abs().sum() > 0
