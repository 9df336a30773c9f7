"""Noise that is gathered in some users: what a row is sorted by, and made-up data in which it is known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from made_up import made_up

from recbole_denoiser.detect import Detector, detect_flat, detect_noise, quality
from recbole_denoiser.detect.counts import count
from recbole_denoiser.detect.features import NAMES, Statistics, features
from recbole_denoiser.detect.gathered import SYMMETRIC, Strata, others
from recbole_denoiser.detect.report import NoiseReport
from recbole_denoiser.detect.vectors import item_vectors

FEW: dict[str, Any] = {"draws": 20_000, "repeats": 20, "folds": 4, "trees": 60}


def test_what_the_others_say_is_counted_by_hand() -> None:
    """One user, three rows, window 1: pairs (0, 1) and (1, 2). Without row 0 the pair (1, 2) is left, without row 1 none."""
    table = np.zeros((3, len(NAMES)), np.float32)
    table[:, NAMES.index("neighbours")] = np.log1p([1, 2, 1])
    table[:, NAMES.index("popularity")] = [1.0, 2.0, 4.0]
    for name in SYMMETRIC:  # f(0, 1) = 3, f(1, 2) = 5: row means 3, 4, 5
        table[:, NAMES.index(name)] = [3.0, 4.0, 5.0]
    found = others(np.zeros(3, np.int64), table, NAMES)
    np.testing.assert_allclose(found[:, 0], [5.0, 0.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(found[:, 3], [3.0, 2.5, 1.5])
    np.testing.assert_array_equal(found[:, -1], 1.0)


def test_another_item_at_a_place_changes_nothing_that_the_place_is_sorted_by() -> None:
    user, item, n_items = made_up(users=40, length=25)
    counts = count(user, item, n_items, window=4)
    statistics = Statistics(counts, item_vectors(counts, 8, 0))
    place = 57
    swapped = item.copy()
    swapped[place] = (item[place] + 77) % n_items
    rows = np.arange(len(item))
    before, after = (
        others(user, features(user, sequence, rows, sequence, statistics, 4), NAMES) for sequence in (item, swapped)
    )
    np.testing.assert_allclose(after[place], before[place], rtol=1e-4, atol=1e-5)
    assert np.abs(after - before)[50:75].max() > 0.01  # the user's other rows are sorted anew


def test_users_with_few_items_are_in_no_part() -> None:
    table = np.zeros((7, len(NAMES)), np.float32)
    table[:, NAMES.index("popularity")] = [0, 0, 9, 9, 9, 9, 9]
    strata = Strata(np.array([0.0, 0, 0, 1, 0]), np.array([5.0]), least=3)
    part = strata.of(np.array([0, 0, 1, 1, 1, 1, 1]), table, NAMES)
    np.testing.assert_array_equal(part, [0, 0, 2, 2, 2, 2, 2])


@pytest.fixture(scope="module")
def gathered() -> tuple[np.ndarray, np.ndarray, np.ndarray, NoiseReport]:
    """Users with a second topic; of every sixth user half of the items are replaced. User, item, where, report."""
    user, item, n_items = made_up(users=500, length=24)
    other = made_up(users=500, length=24, seed=5)[1]
    rng = np.random.default_rng(2)
    item = np.where(rng.random(len(item)) < 0.15, other, item)
    where = (user % 6 == 0) & (rng.random(len(item)) < 0.5)
    item[where] = rng.integers(0, n_items, where.sum())
    return user, item, where, detect_flat(user, item, n_items, **FEW)


def test_gathered_noise_is_found(gathered) -> None:
    user, _, where, report = gathered
    assert abs(report.share - where.mean()) < 0.03
    assert report.gathered > 0.9 * report.share
    assert quality(report.posterior, where)["auc"] > 0.97
    assert quality(report.remove, where)["precision"] > 0.7
    assert report.remove[user % 6 != 0].mean() < 0.02
    assert "in some users only" in str(report)


def test_noise_that_is_everywhere_is_not_called_gathered(clean) -> None:
    user, item, n_items = clean
    where = np.random.default_rng(1).random(len(item)) < 0.15
    item = np.where(where, np.random.default_rng(3).integers(0, n_items, len(item)), item)
    report = detect_flat(user, item, n_items, **FEW)
    assert report.gathered == 0.0 and abs(report.share - where.mean()) < 0.03


def test_a_kept_detector_tells_such_users_apart(tmp_path, gathered) -> None:
    user, item, where, report = gathered
    kept = Detector.load(report.detector.save(tmp_path))
    np.testing.assert_array_equal(kept.score_rows(user, item), report.detector.score_rows(user, item))
    assert kept.share == report.share and kept.strata is not None
    posterior = kept.score_rows(user, item)
    assert quality(posterior, where)["auc"] > 0.9
    first = user == 0
    np.testing.assert_allclose(kept.score(item[first]), posterior[first])  # a user is judged by own rows only


def test_a_detector_of_format_1_still_opens(tmp_path, small) -> None:
    """Before groups of users: one curve, one share for each kind, and mu was 50."""
    report = detect_noise(small, draws=2_000, repeats=5, folds=2, trees=20)
    report.detector.statistics.mu = 50.0
    with np.load(report.detector.save(tmp_path)) as stored:
        arrays = dict(stored)
    about = json.loads(arrays.pop("about").tobytes()) | {"format": 1}
    about.pop("share")
    old = {"at": arrays.pop("at_0"), "value": arrays.pop("value_0"), "shares": arrays.pop("shares")[0]}
    arrays.pop("group_of_part")
    np.savez(tmp_path / "old.npz", **arrays, **old, about=np.frombuffer(json.dumps(about).encode(), np.uint8))
    kept = Detector.load(tmp_path / "old.npz")
    np.testing.assert_array_equal(kept.score(small[0]), report.detector.score(small[0]))
    assert kept.share == pytest.approx(report.share)


def test_where_no_noise_is_found_the_posterior_still_ranks(clean) -> None:
    """Twelve wrong items among 12,000 are too few for a share, and yet stand out."""
    user, item, n_items = clean
    where = np.zeros(len(item), bool)
    where[np.random.default_rng(4).choice(len(item), 12, replace=False)] = True
    report = detect_flat(
        user, np.where(where, np.random.default_rng(8).integers(0, n_items, len(item)), item), n_items, **FEW
    )
    assert report.share == 0.0 and not report.remove.any()
    assert 0 < report.posterior.max() < 0.1
    assert quality(report.posterior, where)["auc"] > 0.95
