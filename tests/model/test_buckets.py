"""Bucketed batches: every row once, similar lengths, the same positions per batch, the same loss for the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from built import build

from recbole_denoiser.data import buckets
from recbole_denoiser.data.buckets import bucketed_batches, own_rows
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.config import Config


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def skewed(rows: int = 5000) -> np.ndarray:
    """Lengths as in a shop: most short, a few at the maximum."""
    return np.minimum(np.random.default_rng(0).geometric(0.2, rows), 25)


def test_each_row_is_in_one_batch_and_batches_have_equal_positions_of_similar_length() -> None:
    length = skewed()
    batches = bucketed_batches(length, 32, seeded(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    assert len(batches) == pytest.approx(5000 / 32, abs=5)  # as many steps as without buckets
    positions = np.array([length[batch].sum() for batch in batches])
    assert positions.max() < 1.4 * positions.mean() and positions.min() > 0.6 * positions.mean()
    padded = sum(len(batch) * length[batch].max() for batch in batches)
    shuffled = np.random.default_rng(1).permutation(length)[:4992].reshape(-1, 32)
    assert padded < 1.15 * length.sum() < 0.5 * 32 * shuffled.max(1).sum()


def test_epochs_differ_seeds_decide_and_the_state_of_the_generator_resumes() -> None:
    length, generator = skewed(1000), seeded(1)
    first = bucketed_batches(length, 8, generator)
    state = generator.get_state()
    second = bucketed_batches(length, 8, generator)
    resumed = torch.Generator()
    resumed.set_state(state)
    for again, expected in ((bucketed_batches(length, 8, seeded(1)), first),
                            (bucketed_batches(length, 8, resumed), second)):  # fmt: skip
        assert [batch.tolist() for batch in again] == [batch.tolist() for batch in expected]
    assert {frozenset(batch.tolist()) for batch in first} & {frozenset(batch.tolist()) for batch in second} == set()
    mean = [length[batch].mean() for batch in first]
    assert np.abs(np.corrcoef(mean, np.arange(len(mean)))[0, 1]) < 0.3  # no order of length between batches


@pytest.mark.parametrize("length", [[7], [1, 1, 1], [25, 1], [0, 3]])
def test_few_rows(length: list[int]) -> None:
    batches = bucketed_batches(np.array(length), 2, seeded(0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(length)))


def test_processes_share_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "world_size", lambda: 3)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        parts.append([own_rows(batch).tolist() for batch in (np.arange(7), np.array([5]))])
    assert sorted(row for part in parts for row in part[0]) == list(range(7))
    assert [part[1] for part in parts] == [[5], [5], [5]]  # no process without a row


def test_loader_gives_all_rows_cut_to_the_longest(settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "POOL", 4)
    built = build("SASRecDenoiser", {**settings, "long_history": "windows", "train_batch_size": 4})
    rows = built.data.train._dataset.inter_feat
    seen = []
    batches = list(built.data.train)
    for batch in batches:
        assert batch["item_id_list"].size(1) == batch["target_item_id_list"].size(1) == int(batch["item_length"].max())
        seen += list(zip(batch["user_id"].tolist(), batch["item_id"].tolist(), strict=True))
    assert sorted(seen) == sorted(zip(rows["user_id"].tolist(), rows["item_id"].tolist(), strict=True))
    assert max(batch["item_length"].float().std(correction=0) for batch in batches) < rows["item_length"].float().std()


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "TiSASRec", "SSEPTDenoiser"])
@pytest.mark.parametrize("loss", ["BCE", "CE"])
@pytest.mark.parametrize("masked", [True, False])
def test_same_rows_have_the_same_loss_and_gradient(settings: dict, model: str, loss: str, masked: bool) -> None:
    """Cut to the longest row or padded to n, with and without masks: Phi, positions and targets stay aligned to the end."""
    flags = {**settings, "loss_type": loss, "long_history": "windows", "sse_user": 0.0, "sse_item": 0.0,
             "ft_ratio": 1.0, "denoise": masked, "random_keep": 0.5 if masked else None}  # fmt: skip
    flags = {name: value for name, value in flags.items() if name[:3] != "sse" or model.startswith("SSEPT")}
    flags = {name: value for name, value in flags.items() if name != "ft_ratio" or model.startswith("BERT")}
    found = []
    for way in ("bucketed", "shuffled"):
        built = build(model, flags, train_batches=way)
        rows = built.data.train._dataset
        short = np.flatnonzero(rows.inter_feat["item_length"].numpy() <= 6)[:7]
        interaction = rows[short]
        if loss == "BCE":  # the same negatives for both
            drawn = (torch.arange(7).view(7, 1, 1) * 5 % 39 + 1).expand(7, 10, 1)  # one per row
            interaction.interaction.update({"neg_item_id_list": drawn[:, : interaction["item_id_list"].size(1)]})
        assert interaction["item_id_list"].size(1) == (int(interaction["item_length"].max()) if way[0] == "b" else 10)
        built.model.train()
        rec = built.model.calculate_loss(interaction)[0]
        rec.backward()
        found.append((rec.detach(), built.model.item_embedding.weight.grad))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "GRU4RecSequence"])
def test_a_bucket_of_one_row_trains(settings: dict, model: str) -> None:
    built = build(model, {**settings, "train_batch_size": 1})
    alone = next(batch for batch in built.data.train if len(batch) == 1)
    loss = sum(built.model.train().calculate_loss(alone))
    loss.backward()
    assert float(loss.detach()) > 0
    gradient = built.model.item_embedding.weight.grad
    assert torch.isfinite(gradient).all() and gradient.any()


def test_recboles_models_take_shuffled_rows_only(toy: Path) -> None:
    with pytest.raises(UserError, match="GRU4Rec reads n items of every row; it takes shuffled"):
        Config("GRU4Rec", "toy", flags={"data_path": str(toy), "train_batches": "bucketed"})
