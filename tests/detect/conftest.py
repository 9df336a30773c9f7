"""Made-up data whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

QUICK = {"draws": 2_000, "repeats": 5, "folds": 2, "trees": 20}


def made_up(users: int = 400, length: int = 30, topics: int = 10, per_topic: int = 20, seed: int = 0):
    """Users stay in one topic; within it items are drawn by popularity. User, item, number of items."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), length)
    topic = np.repeat(rng.integers(0, topics, users), length)
    chance = 1.0 / np.arange(1, per_topic + 1)
    item = topic * per_topic + rng.choice(per_topic, users * length, p=chance / chance.sum())
    return user, item, topics * per_topic


def with_noise(item: np.ndarray, n_items: int, share: float, kind: str, seed: int = 1):
    """Items with noise, and where it is."""
    rng = np.random.default_rng(seed)
    where = rng.random(len(item)) < share
    out = item.copy()
    out[where] = rng.integers(0, n_items, where.sum()) if kind == "uniform" else rng.choice(item, where.sum())
    return out, where


@pytest.fixture(scope="session")
def clean():
    return made_up()


@pytest.fixture(scope="session")
def small():
    """60 users of 12 items with a tenth replaced, as lists of tokens."""
    _, item, n_items = made_up(users=60, length=12, topics=4, per_topic=8)
    item, _ = with_noise(item, n_items, 0.1, "uniform")
    return [[f"i{x}" for x in row] for row in item.reshape(60, 12)]
