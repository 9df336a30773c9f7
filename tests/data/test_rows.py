"""Rows cut on demand against RecBole's augmentation and hand-made cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from recbole.data.dataset import SequentialDataset
from toy_data import write_inter

from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.data.rows import Fields, FlatSequences, SequenceRows, sequence_rows
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config

FIELDS = Fields("user_id", "item_id", "item_length", "_list", "neg_")


def flat(*lengths: int) -> FlatSequences:
    """Users 1, 2, ... with items 1, 2, 3, ... over all users."""
    users = torch.cat([torch.full((n,), i + 1) for i, n in enumerate(lengths)])
    return FlatSequences({"user_id": users, "item_id": torch.arange(1, len(users) + 1)}, FIELDS)


def test_prefixes_equal_recbole_augmentation(tmp_path: Path) -> None:
    # times small enough to be exact in float32, so that RecBole's order is right, too
    random = np.random.default_rng(1)
    rows = [(f"u{u}", f"i{random.integers(9)}", t) for u in range(8) for t in random.permutation(50)[:12]]
    write_inter(tmp_path, "small", rows)
    config = Config("GRU4Rec", "small", flags={"data_path": str(tmp_path), "MAX_ITEM_LIST_LENGTH": 5})
    theirs, ours = SequentialDataset(config), SequenceDataset(config)
    theirs._change_feat_format()
    ours._change_feat_format()
    assert len(theirs) == len(ours) == 8 * 11
    expected, found = theirs[np.arange(len(theirs))], ours[np.arange(len(ours))]
    for field in ("user_id", "item_id", "item_id_list", "item_length", "timestamp", "timestamp_list"):
        assert torch.equal(expected[field].double(), found[field].double()), field


def test_whole_rows_predict_each_next_item() -> None:
    rows = sequence_rows(flat(4, 3), np.array([1, 2, 3, 5, 6]), max_length=5, windows=False, negatives=None)
    batch = rows[[0, 1]]
    assert batch["item_id_list"].tolist() == [[1, 2, 3, 0, 0], [5, 6, 0, 0, 0]]
    assert batch["target_item_id_list"].tolist() == [[2, 3, 4, 0, 0], [6, 7, 0, 0, 0]]
    assert batch["item_length"].tolist() == [3, 2]
    assert batch["item_id"].tolist() == [4, 7]


def test_last_keeps_the_newest() -> None:
    rows = sequence_rows(flat(8), np.arange(1, 8), max_length=3, windows=False, negatives=None)
    assert rows[[0]]["item_id_list"].tolist() == [[5, 6, 7]]
    assert rows[[0]]["target_item_id_list"].tolist() == [[6, 7, 8]]


def test_windows_predict_each_target_once() -> None:
    sequences = flat(8, 2, 5)
    targets = np.flatnonzero(sequences.user_start != np.arange(15))
    rows = sequence_rows(sequences, targets, max_length=3, windows=True, negatives=None)
    assert sorted(rows.covered_targets().tolist()) == targets.tolist()
    assert rows[[0, 1, 2]]["target_item_id_list"].tolist() == [[6, 7, 8], [3, 4, 5], [2, 0, 0]]


def test_training_split_hides_validation_and_test(toy: Path) -> None:
    config = Config("SASRecDenoiser", "toy", flags={"data_path": str(toy), "MAX_ITEM_LIST_LENGTH": 50})
    train, valid, test = SequenceDataset(config).build()
    last_target = {
        int(u): int(i) for u, i in zip(train.inter_feat["user_id"], train.inter_feat["item_id"], strict=True)
    }
    history = valid[np.arange(len(valid))]
    for row in range(len(valid)):
        length = int(history["item_length"][row])
        assert last_target[int(history["user_id"][row])] == int(history["item_id_list"][row, length - 1])
    assert len(train) == len(valid) == len(test) == 60


def test_sort_is_stable_and_by_exact_value() -> None:
    columns = {"user_id": torch.tensor([1, 1, 1]), "item_id": torch.tensor([7, 8, 9])}
    columns["timestamp"] = torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64)
    rows = SequenceRows.prefixes(FlatSequences(columns, FIELDS), np.array([0, 1, 2]), 2)
    rows.sort("timestamp")
    assert rows["item_id"].tolist() == [8, 9, 7]


def test_order_is_exact_where_float32_is_not(tmp_path: Path) -> None:
    # three interactions within one 64-second step of float32 Unix time, written out of order, and a tie
    rows = [("u", "c", 880_000_030), ("u", "a", 880_000_010), ("u", "b", 880_000_020), ("u", "d", 880_000_030)]
    write_inter(tmp_path, "close", rows)
    dataset = SequenceDataset(Config("GRU4Rec", "close", flags={"data_path": str(tmp_path)}))
    dataset._change_feat_format()
    items = dataset.field2id_token["item_id"][dataset.source.columns["item_id"].numpy()]
    assert items.tolist() == ["a", "b", "c", "d"]  # c before d: the tie keeps file order


def test_ml_100k_has_four_users_tested_on_a_wrong_item_in_recbole() -> None:
    config = Config("GRU4Rec", "ml-100k", flags={"MAX_ITEM_LIST_LENGTH": 2})
    dataset = SequenceDataset(config)
    frame = dataset.inter_feat.copy()
    _, _, test = dataset.build()
    rounded = frame.assign(timestamp=frame.timestamp.astype("float32"))
    latest = frame.groupby("user_id").timestamp.max()
    exact = dict(zip(test.inter_feat["user_id"].tolist(), test.inter_feat["timestamp"].tolist(), strict=True))
    assert exact == latest.to_dict()  # ours: every user is tested on a latest interaction
    assert (rounded.groupby("user_id").timestamp.nunique() < frame.groupby("user_id").timestamp.nunique()).any()


@pytest.mark.parametrize("users", [1, 2])
def test_users_with_one_interaction_cannot_be_predicted(tmp_path: Path, users: int) -> None:
    write_inter(tmp_path, "short", [(f"u{u}", "i", 1) for u in range(users)])
    with pytest.raises(UserError, match="no user has two interactions"):
        SequenceDataset(Config("GRU4Rec", "short", flags={"data_path": str(tmp_path)})).build()
