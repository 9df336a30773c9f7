"""TiSASRec: intervals, attention without the m x m x d tensor, time in the scores, and its denoiser."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from built import (
    WAYS,
    Built,
    build,
    check_denoiser_trains,
    check_one_user,
    check_open_masks_change_nothing,
    check_run,
    scores_of,
)
from torch import Tensor
from toy_data import toy_rows, write_inter

from recbole_denoiser.core.jacobian import exact_jacobian_norm, projected_norm
from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.time_attention import TimeAttention, time_intervals


def intervals_by_hand(times: list[int], span: int) -> list[list[int]]:
    """The authors' recipe in whole numbers: units of the smallest gap, rounded, clipped."""
    gaps = [b - a for a, b in itertools.pairwise(times) if b != a]
    scale = min(gaps) if gaps else 1
    steps = [round((t - min(times)) / scale) for t in times]
    return [[min(abs(a - b), span) for b in steps] for a in steps]


@pytest.mark.parametrize("span", [1, 7, 256])
@pytest.mark.parametrize("padding", [0, 3])
def test_intervals_follow_the_recipe(span: int, padding: int) -> None:
    random = np.random.default_rng(span)
    for _ in range(20):
        times = np.cumsum(random.integers(0, 40, size=6)) + 1_300_000_001
        row = torch.tensor([[0] * padding + times.tolist()], dtype=torch.float64)
        valid = torch.arange(padding + 6)[None] >= padding
        found = time_intervals(row, valid, span)[0, padding:, padding:]
        assert found.tolist() == intervals_by_hand(times.tolist(), span)


def test_seconds_are_not_rounded() -> None:
    times = torch.tensor([[1_300_000_000.0, 1_300_000_001.0, 1_300_000_003.0]], dtype=torch.float64)
    assert time_intervals(times, torch.ones(1, 3, dtype=torch.bool), 256)[0, 2].tolist() == [3, 2, 0]


@pytest.mark.parametrize("times", [[5.0, 5.0, 5.0], [7.0]])
def test_constant_times_and_single_items_have_interval_zero(times: list[float]) -> None:
    row = torch.tensor([times], dtype=torch.float64)
    assert not time_intervals(row, torch.ones_like(row, dtype=torch.bool), 256).any()
    assert not time_intervals(row, torch.zeros_like(row, dtype=torch.bool), 256).any()  # an empty history


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_equals_the_lookup_of_every_pair(heads: int) -> None:
    torch.manual_seed(heads)
    B, m, d, span = 3, 5, 8, 6
    attention = TimeAttention(heads, d, 0.0).double()
    queries, states = torch.randn(2, B, m, d, dtype=torch.float64)
    position_k, position_v = torch.randn(2, B, m, d, dtype=torch.float64)
    tables = torch.randn(2, B, span + 1, d, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(m, m, dtype=torch.float64).masked_fill(torch.ones(m, m).triu(1).bool(), -1e4).expand(B, 1, m, m)
    r = torch.randint(0, span + 1, (B, 1, m, m))
    out = attention(queries, states, bias, r, position_k, position_v, *tables)

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, d // heads))

    pairs_k, pairs_v = (split(torch.stack([t[b][r[b, 0]] for b in range(B)])) for t in tables)  # [B, m, m, H, d/H]
    Q, K, V = split(attention.query(queries)), split(attention.key(states)), split(attention.value(states))
    K, V = K + split(position_k), V + split(position_v)
    scores = torch.einsum("bihd,bjhd->bhij", Q, K) + torch.einsum("bihd,bijhd->bhij", Q, pairs_k)
    A = torch.softmax(scores / math.sqrt(d / heads) + bias, -1)
    expected = torch.einsum("bhij,bjhd->bihd", A, V) + torch.einsum("bhij,bijhd->bihd", A, pairs_v)
    torch.testing.assert_close(out, expected.flatten(2))
    weight = torch.randn_like(out)
    gradients = [torch.autograd.grad((x * weight).sum(), tables)[0] for x in (out, expected.flatten(2))]
    torch.testing.assert_close(*gradients)


def states_without_time(built: Built, items: Tensor) -> Tensor:
    """SASRec with position tables on keys and values, written with torch's own attention; for full-length rows."""
    model = built.model
    H = built.config["n_heads"]
    x = model.item_embedding(items) * math.sqrt(16)
    for layer in model.layers:
        q = layer.attention_norm(x)
        Q, K, V = (
            projected.unflatten(-1, (H, -1)).transpose(1, 2)
            for projected in (
                layer.attention.query(q),
                layer.attention.key(x) + model.position_k.weight,
                layer.attention.value(x) + model.position_v.weight,
            )
        )
        attended = F.scaled_dot_product_attention(Q, K, V, is_causal=True).transpose(1, 2).flatten(2)
        x = layer.forward_norm(q + attended)
        x = x + layer.dense_2(torch.relu(layer.dense_1(x)))
    return model.LayerNorm(x)


def with_times(interaction: object, times: Tensor) -> object:
    interaction.interaction["timestamp_list"] = times  # type: ignore[attr-defined]
    return interaction


def test_equal_times_leave_positions_only_and_shuffled_times_do_not(settings: dict) -> None:
    built = build("TiSASRec", {**settings, "MAX_ITEM_LIST_LENGTH": 4}, n_heads=2)
    model = built.model.eval()
    with torch.no_grad():
        model.time_v.weight[0] = 0.0  # interval 0 adds the same to all values; its key drops out of the softmax
    interaction, _ = built.test_batch()
    assert (interaction["item_length"] == 4).all()
    times = interaction["timestamp_list"]
    with torch.no_grad():
        constant, _ = model.inference_batch(with_times(interaction, torch.full_like(times, 1e9)))
        equal = model.encode(model.embed(constant))
        torch.testing.assert_close(equal, states_without_time(built, constant.items))
        timed = model.encode(model.embed(model.inference_batch(with_times(interaction, times))[0]))
        flipped = model.encode(model.embed(model.inference_batch(with_times(interaction, times.roll(1, 0)))[0]))
        later = model.encode(model.embed(model.inference_batch(with_times(interaction, 3 * times + 1e6))[0]))
    assert not torch.allclose(timed, equal)
    assert not torch.allclose(timed, flipped)  # other users' times
    assert torch.equal(timed, later)  # only ratios of intervals count


def test_earlier_positions_do_not_see_later_items(settings: dict) -> None:
    built = build("TiSASRec", settings)
    built.model.eval()
    batch = built.model.batch(built.train_batch())
    with torch.no_grad():
        before = built.model.encode(built.model.embed(batch))
        batch.items[:, -1] = batch.items[:, -1] % (built.model.n_items - 1) + 1
        after = built.model.encode(built.model.embed(batch))
    real = batch.valid[:, :-1]
    assert torch.equal(before[:, :-1][real], after[:, :-1][real])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_width_of_the_batch_does_not_matter(settings: dict) -> None:
    """A short history scores the same alone and beside a long one."""
    built = build("TiSASRec", settings)
    interaction, candidates = built.test_batch()
    short = int(interaction["item_length"].argmin())
    together = scores_of(built)[short]
    with torch.no_grad():
        alone = built.model.score_candidates(interaction[short : short + 1], candidates[short : short + 1])[0]
    torch.testing.assert_close(together, alone)


def test_open_masks_are_the_backbone(settings: dict) -> None:
    check_open_masks_change_nothing("TiSASRec", "TiSASRecDenoiser", settings)


def test_denoiser_trains(settings: dict) -> None:
    check_denoiser_trains("TiSASRecDenoiser", settings)


def test_jacobian_of_a_block_is_the_exact_one(settings: dict) -> None:
    """eq. 14 through gather and scatter: summed over all unit projections it is the written-out Jacobian."""
    built = build("TiSASRec", {**settings, "MAX_ITEM_LIST_LENGTH": 3}, hidden_size=4, inner_size=4)
    built.model.double().eval()
    batch = built.model.inference_batch(built.test_batch()[0][:2])[0]
    with torch.no_grad():
        x, *context = built.model.embed(batch)
    block = built.model.layers[0]

    def run(states: Tensor) -> Tensor:
        return block(states, *context)

    valid = batch.valid.double()
    exact = exact_jacobian_norm(run, x, valid) * valid.sum() * 4
    units = torch.eye(12, dtype=torch.float64).view(12, 1, 3, 4).expand(-1, 2, -1, -1)  # the same in both sequences
    for method, step in (("vjp", 0.0), ("finite_difference", 1e-5)):
        total = sum(projected_norm(run, x, valid, unit, method, step) for unit in units)
        torch.testing.assert_close(total, exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("model", ["TiSASRec", "TiSASRecDenoiser"])
@pytest.mark.parametrize("way", WAYS)
def test_runs_and_reloads(workplace: Path, settings: dict, model: str, way: tuple[str, str, str]) -> None:
    check_run(model, settings, way)


def test_data_without_times_is_an_error(workplace: Path, settings: dict, tmp_path: Path) -> None:
    file = write_inter(tmp_path, "timeless", toy_rows(users=5))
    lines = [line.rsplit("\t", 1)[0] for line in file.read_text().splitlines()]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="has no column 'timestamp'"):
        build("TiSASRec", {**settings, "data_path": str(tmp_path)}, dataset="timeless")


def test_batch_without_times_is_an_error(settings: dict) -> None:
    built = build("TiSASRec", settings)
    interaction, _ = built.test_batch()
    with pytest.raises(UserError, match=r"TiSASRec needs the time of every item .*'timestamp_list'"):
        built.model(interaction["item_id_list"], interaction["item_length"])


def test_unsorted_file_gives_sorted_times(settings: dict) -> None:
    """The toy file is in shuffled order."""
    built = build("TiSASRec", settings)
    assert isinstance(built.data.dataset, SequenceDataset)
    interaction, _ = built.test_batch()
    inside = torch.arange(9)[None] < interaction["item_length"][:, None] - 1
    assert interaction["timestamp_list"].dtype == torch.float64
    assert (interaction["timestamp_list"].diff(dim=1)[inside] >= 0).all()


def test_constant_times_and_one_user_run(workplace: Path, settings: dict, tmp_path: Path) -> None:
    write_inter(tmp_path, "still", [(user, item, 1_300_000_000) for user, item, _ in toy_rows(users=20)])
    check_run("TiSASRec", {**settings, "data_path": str(tmp_path)}, WAYS[0], dataset="still")
    check_one_user("TiSASRec", settings, tmp_path)


def test_wrong_settings(settings: dict) -> None:
    with pytest.raises(UserError, match="time_span"):
        build("TiSASRec", settings, time_span=0)
    with pytest.raises(UserError, match=r"hidden_act = 'steps'.*relu"):
        build("TiSASRec", settings, hidden_act="steps")
