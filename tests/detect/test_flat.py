"""The detector on flat arrays: made-up data whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import QUICK, made_up, with_noise

from recbole_denoiser.detect import detect_flat, quality
from recbole_denoiser.errors import UserError


@pytest.mark.parametrize(("kind", "share"), [("uniform", 0.1), ("popularity", 0.2)])
def test_known_noise_is_found_and_counted(clean, kind: str, share: float) -> None:
    user, item, n_items = clean
    item, where = with_noise(item, n_items, share, kind)
    report = detect_flat(user, item, n_items, folds=4, draws=20_000, repeats=20, trees=60)
    assert abs(report.share - where.mean()) < 0.03
    assert abs(report.shares[kind] - where.mean()) < 0.03
    # a replaced item that stays in its topic is no noise that could be seen: 1 in 10
    assert quality(report.posterior, where & (item // 20 != clean[1] // 20))["auc"] > 0.97
    assert abs(quality(report.posterior, where)["auc"] - report.auc) < 0.03
    found = quality(report.remove, where)
    assert abs(found["precision"] - report.precision) < 0.1 and abs(found["recall"] - report.recall) < 0.1
    assert found["precision"] > 0.8 and found["recall"] > 0.8
    assert report.verdict == "judged" and "estimated share of noise" in str(report)


def test_clean_data_lose_almost_nothing(clean) -> None:
    report = detect_flat(*clean, draws=20_000, repeats=20, folds=4, trees=60)
    assert report.share < 0.02
    assert report.remove.mean() < 0.01


def test_same_seed_same_answer() -> None:
    user, item, n_items = made_up(users=60, length=12)
    first, second = (detect_flat(user, item, n_items, seed=3, **QUICK) for _ in range(2))
    np.testing.assert_array_equal(first.posterior, second.posterior)
    assert first.share_interval == second.share_interval


def test_rows_of_a_user_must_stand_together() -> None:
    with pytest.raises(UserError, match="grouped by user"):
        detect_flat(np.array([0, 1, 0]), np.array([0, 1, 2]), 3)
