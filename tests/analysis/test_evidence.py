"""Evidence counted by hand."""

from __future__ import annotations

import numpy as np

from recbole_denoiser.analysis.evidence import evidence


def test_three_users_by_hand() -> None:
    """window 1: a b c | a b | c b a b; items 0 1 2."""
    user = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    item = np.array([0, 1, 2, 0, 1, 2, 1, 0, 1])
    # pairs next to each other: ab bc | ab | cb ba ab, so k_ab = 4, k_bc = 2; degrees a 4, b 6, c 2; D = 12
    (found,) = evidence(user, item, 3, [1], window=1)  # b of the first user
    assert found.neighbours == [0, 2]
    assert found.together == [3, 1]  # without the first user's own ab and bc
    assert found.others == 3
    np.testing.assert_allclose(found.chance, [(6 - 2) * 4 / 12, (6 - 2) * 2 / 12], atol=0.005)
    (last,) = evidence(user, item, 3, [7], window=1)  # a of the third user, between two b
    assert last.together == [2, 2]
    assert last.others == 2


def test_pairs_that_are_not_next_to_each_other_count_whole() -> None:
    """window 3: x y z w | x y z w; a pair three places apart is one time, not a third."""
    user, item = np.repeat([0, 1], 4), np.tile(np.arange(4), 2)
    (found,) = evidence(user, item, 4, [0], window=3)
    assert found.together == [1, 1, 1]
    np.testing.assert_allclose(found.chance, [(6 - 3) * 6 / 24] * 3, atol=0.005)


def test_an_item_that_nobody_else_has() -> None:
    (found,) = evidence(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), 3, [0], window=2)
    assert (found.others, found.together, found.chance) == (0, [0], [0.0])
