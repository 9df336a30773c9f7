"""Figure 1 of the paper: a content mask learns to cut across two shopping aims and to keep what is within one."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.capture import attention_sites, recorded
from recbole_denoiser.analysis.recommend import Recommender


@pytest.fixture(scope="module")
def shop(shop_run: Path) -> Recommender:
    return Recommender.load(shop_run)


def kept_links(shop: Recommender, actions: list[str]) -> np.ndarray:
    """[query, key] of one sequence: does the gate keep the link?"""
    given = shop.histories([actions])
    with torch.no_grad(), attention_sites(shop.model) as sites, recorded(sites) as layers:
        shop.scores(given, np.zeros(1, dtype=int))
    (layer,) = layers
    assert layer.Z is not None
    return (layer.Z[0, 0] > 0).numpy()


def test_laptop_reads_phone_and_headphone_pant_reads_bag(shop: Recommender, figure1: ModuleType) -> None:
    """Section 1: prune (phone, headphone) for pant and (bag, pant) for laptop."""
    kept = kept_links(shop, figure1.FIGURE_1)
    same_aim = np.array([[figure1.AIM[a] == figure1.AIM[b] for b in figure1.FIGURE_1] for a in figure1.FIGURE_1])
    below = np.tril(np.ones_like(kept), -1)  # what an earlier item is to a later one
    assert (kept == same_aim)[below].all()


def test_new_customers_are_cut_across_aims_and_not_within(shop: Recommender, figure1: ModuleType) -> None:
    within: list[bool] = []
    across: list[bool] = []
    for actions in figure1.customers(60, seed=99):
        actions = actions[-shop.n :]
        kept = kept_links(shop, actions)
        for query, later in enumerate(actions):
            for key, earlier in enumerate(actions[:query]):
                if later in figure1.AIM and earlier in figure1.AIM:
                    (within if figure1.AIM[later] == figure1.AIM[earlier] else across).append(kept[query, key])
    assert len(within) > 300 and len(across) > 300
    assert np.mean(within) > 0.9
    assert np.mean(across) < 0.1


def test_other_clothes_change_the_scores_less_than_without_masks(shop: Recommender, figure1: ModuleType) -> None:
    """Other clothes between the same electronics. Without masks they change the scores; with masks they are cut, and
    what is left is their part in the softmax's sum (nothing is renormalised after the mask, eq. 8)."""
    other = ["phone", "scarf", "headphone", "cap", "laptop"]
    assert kept_links(shop, other)[4].tolist()[:4] == [True, False, True, False]
    change = {}
    for masks_on in (True, False):
        scores = []
        for actions in (figure1.FIGURE_1, other):
            with torch.no_grad(), attention_sites(shop.model) as sites, recorded(sites, masks_on):
                scores.append(shop.scores(shop.histories([actions]), np.zeros(1, dtype=int))[0, 1:])
        change[masks_on] = float((scores[0] - scores[1]).norm())
    assert change[True] < 0.5 * change[False]
