"""SSE-PT: replacement rates, user vectors in input and score, unseen users, and its denoiser."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from built import (
    WAYS,
    build,
    check_denoiser_trains,
    check_one_user,
    check_open_masks_change_nothing,
    check_run,
    scores_of,
)
from torch import Tensor
from toy_data import toy_rows, write_inter

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.ssept import share


@pytest.mark.parametrize("probability", [0.0, 0.08, 0.5, 1.0])
def test_share_replaces_at_the_stated_rate(probability: float) -> None:
    torch.manual_seed(0)
    index = torch.randint(1, 6, (200_000,))
    shared = share(index, probability, 6)
    spread = (probability * (1 - probability) / len(index)) ** 0.5
    assert abs(float((shared != index).float().mean()) - probability) <= 5 * spread
    assert shared.min() >= 1 and shared.max() <= 5
    if probability == 1.0:  # the others are equally likely
        for j in range(1, 6):
            counts = torch.bincount(shared[index == j], minlength=6)[1:]
            assert counts[j - 1] == 0
            torch.testing.assert_close(counts[counts > 0] / counts.sum(), torch.full((4,), 0.25), atol=0.01, rtol=0)


def test_share_keeps_padding_and_a_lonely_index() -> None:
    assert not share(torch.zeros(1000, dtype=torch.long), 1.0, 50).any()
    assert (share(torch.ones(1000, dtype=torch.long), 1.0, 2) == 1).all()


def test_share_with_two_indices_swaps_them() -> None:
    assert share(torch.tensor([1, 2, 0]), 1.0, 3).tolist() == [2, 1, 0]


def test_rates_in_training_and_none_in_evaluation(settings: dict) -> None:
    built = build("SSEPT", {**settings, "train_batch_size": 60}, sse_user=0.3, sse_item=0.1)
    interaction = built.train_batch()
    users: list[Tensor] = []
    looked_up = built.model.user_vectors

    def spied(user: Tensor) -> Tensor:
        users.append(user)
        return looked_up(user)

    built.model.user_vectors = spied
    built.model.eval()
    given = built.model.batch(interaction)
    built.model.embed(given)
    assert torch.equal(users.pop(), interaction["user_id"])
    assert torch.equal(given.items.sort().values, interaction["item_id_list"][:, : given.items.size(1)].sort().values)
    built.model.train()
    torch.manual_seed(1)
    changed: dict[str, list[Tensor]] = {"items": [], "targets": [], "users": []}
    for _ in range(100):
        batch = built.model.batch(interaction)
        changed["items"].append((batch.items != given.items)[given.valid])
        changed["targets"].append((batch.targets != given.targets)[given.valid])
        built.model.embed(batch)
        changed["users"].append(users.pop() != interaction["user_id"])
        assert torch.equal(batch.valid, given.valid) and not batch.targets[~given.valid].any()
    for name, rate in (("items", 0.1), ("targets", 0.1), ("users", 0.3)):
        seen = torch.cat(changed[name]).float()
        assert abs(float(seen.mean()) - rate) < 5 * (rate * (1 - rate) / len(seen)) ** 0.5
    both = torch.cat(changed["items"]) & torch.cat(changed["targets"])
    assert abs(float(both.float().mean()) - 0.01) < 0.003  # independent draws
    assert torch.equal(scores_of(built), scores_of(built))


def test_sharing_is_on_by_default(settings: dict) -> None:
    built = build("SSEPT", settings)
    assert (built.model.user_sse, built.model.item_sse) == (0.08, 0.1)


def test_score_is_the_product_with_item_and_user(settings: dict) -> None:
    built = build("SSEPT", settings)
    model = built.model.eval()
    interaction, candidates = built.test_batch()
    batch, last = model.inference_batch(interaction)
    rows = torch.arange(len(last))
    with torch.no_grad():
        user = model.user_embedding.weight[interaction["user_id"]]  # [B, d_u]
        item = model.item_embedding.weight[batch.items] * 10**0.5  # [B, m, d_i]
        m = batch.items.size(1)
        position = model.position_embedding.weight[-m:]
        x = torch.cat([item, user[:, None].expand(-1, m, -1) * 6**0.5], 2) + position
        h = model.trm_encoder(model.LayerNorm(x), model.get_attention_mask(batch.items))[-1][rows, last]  # [B, d]
        pair = torch.cat([model.item_embedding.weight[candidates], user[:, None].expand(-1, candidates.size(1), -1)], 2)
        torch.testing.assert_close(model.score_candidates(interaction, candidates), torch.einsum("bd,bcd->bc", h, pair))
        everything = model.full_sort_predict(interaction)
    torch.testing.assert_close(everything.gather(1, candidates), model.score_candidates(interaction, candidates))


def test_the_user_changes_the_ranking(settings: dict) -> None:
    built = build("SSEPT", settings)
    before = scores_of(built)
    with torch.no_grad():
        built.model.user_embedding.weight.copy_(built.model.user_embedding.weight.roll(1, 0) * 5)
    after = scores_of(built)
    assert not torch.equal((before - before[:, :1]).sign(), (after - after[:, :1]).sign())


def test_unseen_users_get_the_mean(settings: dict, tmp_path: Path) -> None:
    rows = [*toy_rows(), ("new", "i1", 1.0)]  # one item: nothing to train on
    write_inter(tmp_path, "more", rows)
    built = build("SSEPT", {**settings, "data_path": str(tmp_path)}, dataset="more")
    model = built.model.eval()
    new = built.data.dataset.token2id("user_id", "new")
    assert model.seen.sum() == 60 and not model.seen[new] and not model.seen[0]
    table = model.user_embedding.weight.detach()
    mean = table[model.seen].mean(0)
    known = int(model.seen.nonzero()[0])
    found = model.user_vectors(torch.tensor([known, 0, new, 62, 10_000, -1])).detach()
    assert torch.equal(found[0], table[known])
    for vector in found[1:]:
        assert torch.equal(vector, mean)
    interaction, _ = built.test_batch()
    state = model(interaction["item_id_list"], interaction["item_length"])  # RecBole's call, which names no user
    assert torch.isfinite(state).all()


def test_open_masks_are_the_backbone(settings: dict) -> None:
    check_open_masks_change_nothing("SSEPT", "SSEPTDenoiser", settings)


def test_denoiser_trains(settings: dict) -> None:
    check_denoiser_trains("SSEPTDenoiser", settings)


@pytest.mark.parametrize("model", ["SSEPT", "SSEPTDenoiser"])
@pytest.mark.parametrize("way", WAYS)
def test_runs_and_reloads(workplace: Path, settings: dict, model: str, way: tuple[str, str, str]) -> None:
    check_run(model, settings, way)


def test_one_user(workplace: Path, settings: dict, tmp_path: Path) -> None:
    """There is nobody to share with: the user stays, items are still shared."""
    check_one_user("SSEPT", settings, tmp_path)


def test_wrong_settings(settings: dict) -> None:
    with pytest.raises(UserError, match=r"user_size = 16 must be below hidden_size = 16"):
        build("SSEPT", settings, user_size=16)
    with pytest.raises(UserError, match=r"sse_user = 1.5 .*<= 1"):
        build("SSEPT", settings, sse_user=1.5)
    with pytest.raises(UserError, match=r"sse_item = -0.1 .*>= 0"):
        build("SSEPT", settings, sse_item=-0.1)
