"""Our vectorised splits against RecBole's own loops, on the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recbole.data.dataset import Dataset

from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.data.split import leave_one_out, split_rows
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config


class RecBoleSplit(SequenceDataset):
    """Our rows, RecBole's ``build``: its loops read the rows like an Interaction."""

    def build(self) -> list[Dataset]:
        return Dataset.build(self)


SPLITS = [
    {"split": {"LS": "valid_and_test"}},
    {"split": {"LS": "valid_only"}},
    {"split": {"LS": "test_only"}},
    {"split": {"RS": [0.8, 0.1, 0.1]}, "group_by": "user"},
    {"split": {"RS": [0.6, 0.2, 0.2]}, "group_by": "none"},
    {"split": {"TS": [0.8, 0.1, 0.1]}},
]


@pytest.mark.parametrize("eval_args", SPLITS, ids=str)
def test_split_equals_recbole(toy: Path, eval_args: dict) -> None:
    flags = {"data_path": str(toy), "eval_args": {"order": "TO", "group_by": "user", "mode": "full", **eval_args}}
    config = Config("GRU4Rec", "toy", flags=flags)

    def targets(dataset: Dataset) -> list[set[tuple[int, int, float]]]:
        parts = dataset.build()
        fields = (dataset.uid_field, dataset.iid_field, dataset.time_field)
        found = []
        for part in parts:
            rows = part.inter_feat if len(part) else None
            found.append(
                set() if rows is None else set(zip(*(rows[field].numpy().tolist() for field in fields), strict=True))
            )
        return found

    assert targets(SequenceDataset(config)) == targets(RecBoleSplit(config))


def test_leave_one_out_by_hand() -> None:
    user = np.array([1, 2, 2, 3, 3, 3, 3])  # rows per user: 1, 2, 4
    assert leave_one_out(user, "valid_and_test").tolist() == [0, 0, 2, 0, 0, 1, 2]


@pytest.mark.parametrize("split", [None, {"XX": 1}, {"RS": [1, 2]}, {"LS": "nothing"}, {"RS": [0, 0, 0]}])
def test_wrong_split_is_told(split: object) -> None:
    with pytest.raises(UserError, match="eval_args"):
        split_rows(np.array([1, 1, 1]), np.array([1.0, 2.0, 3.0]), {"split": split, "group_by": "user"})
