"""Negatives: never from the history, uniform over the rest, frozen when asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from recbole_denoiser.data.negatives import NegativeSampler, SeenItems, frozen_negatives
from recbole_denoiser.errors import UserError

USERS = np.array([1, 1, 1, 2, 2])
ITEMS = np.array([1, 2, 3, 3, 4])


def test_contain() -> None:
    histories = SeenItems(USERS, ITEMS, n_items=7)
    user, item = torch.tensor([[1], [2]]), torch.tensor([[1, 4, 6], [1, 4, 6]])
    assert histories.contain(user, item).tolist() == [[True, False, False], [False, True, False]]


def test_training_negatives_are_uniform_over_unmet_items() -> None:
    torch.manual_seed(0)
    drawn = NegativeSampler(SeenItems(USERS, ITEMS, 7), count=2).draw(torch.tensor([1, 2]), length=3000)
    assert drawn.shape == (2, 3000, 2)
    for row, unmet in ((0, [4, 5, 6]), (1, [1, 2, 5, 6])):
        counts = np.bincount(drawn[row].flatten().numpy(), minlength=7)
        assert set(np.flatnonzero(counts)) == set(unmet)
        assert chisquare(counts[unmet]).pvalue > 1e-3


def test_frozen_negatives_are_distinct_unmet_and_reproducible() -> None:
    histories = SeenItems(USERS, ITEMS, 8)
    user = torch.tensor([1, 2, 1])
    first = frozen_negatives(user, histories, 3, seed=1, name="d:test")
    torch.rand(5)  # training's generator does not matter
    assert torch.equal(first, frozen_negatives(user, histories, 3, seed=1, name="d:test"))
    assert not torch.equal(first, frozen_negatives(user, histories, 3, seed=2, name="d:test"))
    assert not torch.equal(first, frozen_negatives(user, histories, 3, seed=1, name="d:valid"))
    assert not histories.contain(user[:, None], first).any()
    assert all(len(set(row.tolist())) == 3 for row in first)


def test_frozen_negatives_are_uniform() -> None:
    histories = SeenItems(np.array([1]), np.array([1]), 6)  # items 2..5 are left
    drawn = frozen_negatives(torch.ones(4000, dtype=torch.long), histories, 1, seed=0, name="d:test")
    assert chisquare(np.bincount(drawn.flatten().numpy(), minlength=6)[2:]).pvalue > 1e-3


def test_popular_negatives_follow_popularity() -> None:
    histories = SeenItems(np.array([1]), np.array([1]), 4)
    popularity = np.array([0, 5, 30, 10])
    drawn = frozen_negatives(torch.ones(4000, dtype=torch.long), histories, 1, 0, "d:test", popularity)
    counts = np.bincount(drawn.flatten().numpy(), minlength=4)
    assert chisquare(counts[2:], [3000, 1000]).pvalue > 1e-3


def test_a_user_who_met_everything_is_told() -> None:
    histories = SeenItems(np.array([1, 1]), np.array([1, 2]), 3)
    with pytest.raises(UserError, match="all but 0 of the 2 items"):
        NegativeSampler(histories, 1)
    with pytest.raises(UserError, match="negative"):
        frozen_negatives(torch.tensor([1]), histories, 1, 0, "d:test")
