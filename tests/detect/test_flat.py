"""The detector on flat arrays: made-up data whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from recbole_denoiser.detect import detect_flat, quality
from recbole_denoiser.errors import UserError


def made_up(users: int = 400, length: int = 30, topics: int = 10, per_topic: int = 20, seed: int = 0):
    """Users stay in one topic; within it items are drawn by popularity."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), length)
    topic = np.repeat(rng.integers(0, topics, users), length)
    chance = 1.0 / np.arange(1, per_topic + 1)
    item = topic * per_topic + rng.choice(per_topic, users * length, p=chance / chance.sum())
    return user, item, topics * per_topic


def with_noise(item: np.ndarray, n_items: int, share: float, kind: str, seed: int = 1):
    rng = np.random.default_rng(seed)
    where = rng.random(len(item)) < share
    out = item.copy()
    out[where] = rng.integers(0, n_items, where.sum()) if kind == "uniform" else rng.choice(item, where.sum())
    return out, where


@pytest.fixture(scope="module")
def clean():
    return made_up()


def test_known_noise_is_ranked_first(clean) -> None:
    user, item, n_items = clean
    item, where = with_noise(item, n_items, 0.1, "uniform")
    # a replaced item that stays in its topic is no noise that could be seen: 1 in 10
    visible = where & (item // 20 != clean[1] // 20)
    report = detect_flat(user, item, n_items, draws=20_000, repeats=30)
    assert quality(report.posterior, visible)["auc"] > 0.97
    assert "estimated share of noise" in str(report)


def test_clean_data_lose_almost_nothing(clean) -> None:
    report = detect_flat(*clean, draws=20_000, repeats=30)
    assert report.share < 0.02
    assert report.remove.mean() < 0.01


def test_same_seed_same_answer() -> None:
    user, item, n_items = made_up(users=60, length=12)
    first, second = (detect_flat(user, item, n_items, seed=3, draws=2_000, repeats=5) for _ in range(2))
    np.testing.assert_array_equal(first.posterior, second.posterior)
    assert first.share_interval == second.share_interval


def test_rows_of_a_user_must_stand_together() -> None:
    with pytest.raises(UserError, match="grouped by user"):
        detect_flat(np.array([0, 1, 0]), np.array([0, 1, 2]), 3)
