"""Small data that the tests make themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_inter(folder: Path, name: str, rows: Sequence[tuple[str, str, float]]) -> Path:
    """``<folder>/<name>/<name>.inter`` with user, item and time columns."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    lines = ["user_id:token\titem_id:token\ttimestamp:float"] + [f"{u}\t{i}\t{t:.0f}" for u, i, t in rows]
    file = folder / name / f"{name}.inter"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def toy_rows(users: int = 60, items: int = 40, seed: int = 0) -> list[tuple[str, str, float]]:
    """Sequences that walk around a circle of items, in shuffled file order, with Unix times a few seconds apart."""
    random = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        item, time = int(random.integers(items)), 1_300_000_000 + int(random.integers(10_000_000))
        for _ in range(int(random.integers(5, 16))):
            item = (item + 1 + int(random.random() < 0.2)) % items
            time += int(random.integers(1, 30))
            rows.append((f"u{user}", f"i{item}", time))
    return [rows[i] for i in random.permutation(len(rows))]


def quick_settings(toy: Path) -> dict[str, object]:
    """As the fixture ``settings``, for where a fixture cannot be used."""
    return {
        "data_path": str(toy),
        "MAX_ITEM_LIST_LENGTH": 10,
        "epochs": 2,
        "show_progress": False,
        "state": "WARNING",
        "eval_args.mode": "uni10",
        "train_batch_size": 32,
        "noise_action": "none",  # the detector takes seconds; tests/data/test_cleaning.py
    }
