"""Made-up interactions whose noise is known, for the detector."""

from __future__ import annotations

from typing import Any

import numpy as np

QUICK: dict[str, Any] = {"draws": 2_000, "repeats": 5, "folds": 2, "trees": 20}


def made_up(
    users: int = 400, length: int = 30, topics: int = 10, per_topic: int = 20, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """Users stay in one topic; within it items are drawn by popularity. User, item, number of items."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), length)
    topic = np.repeat(rng.integers(0, topics, users), length)
    chance = 1.0 / np.arange(1, per_topic + 1)
    item = topic * per_topic + rng.choice(per_topic, users * length, p=chance / chance.sum())
    return user, item, topics * per_topic


def with_noise(item: np.ndarray, n_items: int, share: float, kind: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Items with noise, and where it is."""
    rng = np.random.default_rng(seed)
    where = rng.random(len(item)) < share
    out = item.copy()
    out[where] = rng.integers(0, n_items, where.sum()) if kind == "uniform" else rng.choice(item, where.sum())
    return out, where
