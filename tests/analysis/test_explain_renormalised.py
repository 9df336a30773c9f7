"""Captured attention and explanations where what is kept shares the weight (mask_form: renormalise)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trained import scores_without_column

from recbole_denoiser.analysis.capture import attention_sites, recorded
from recbole_denoiser.analysis.explain import explain
from recbole_denoiser.analysis.histories import user_history
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.core import gate

ONE = np.zeros(1, dtype=int)
TOKENS = ["i1", "i2", "i9", "i4", "i7"]


@pytest.fixture(scope="module")
def sharing(train_toy: Any) -> Recommender:
    """Random masks that keep half."""
    return Recommender.load(train_toy(mask_form="renormalise", random_keep=0.5, run_name="sharing"))


def test_what_is_kept_shares_the_weight(sharing: Recommender) -> None:
    given = sharing.histories([TOKENS])
    plain = sharing.scores(given, ONE)
    with torch.no_grad(), attention_sites(sharing.model) as sites, recorded(sites) as layers:
        listened = sharing.scores(given, ONE)
    torch.testing.assert_close(plain, listened)  # the other way is the shorter one of kept_rows.py
    for layer, mask in zip(layers, sharing.model.denoiser.masks, strict=True):
        Z = gate(mask.phi.detach())[-5:, -5:]
        assert layer.Z is not None
        torch.testing.assert_close(layer.Z[0, 0], Z)
        kept = layer.A * Z
        total = kept.sum(-1, keepdim=True)
        expected = torch.where(total > 0, kept / total, torch.eye(5))
        torch.testing.assert_close(layer.M, expected)
        assert (Z.tril() == 0).any() and (layer.M[layer.Z.expand_as(layer.M) > 0] > 0).any()
        assert not torch.allclose(layer.M, kept)


def test_a_row_without_anything_attends_to_itself(sharing: Recommender) -> None:
    mask = sharing.model.denoiser.masks[0]
    before = mask.phi.data.clone()
    mask.phi.data[-2] = -1e4
    try:
        with torch.no_grad(), attention_sites(sharing.model) as sites, recorded(sites) as layers:
            sharing.scores(sharing.histories([TOKENS]), ONE)
    finally:
        mask.phi.data.copy_(before)
    for head in layers[0].M[0]:
        assert head[-2].tolist() == [0, 0, 0, 1, 0]


def test_unread_is_a_closed_column_in_this_form_too(sharing: Recommender) -> None:
    given = sharing.histories([TOKENS[:4]])
    with torch.no_grad(), attention_sites(sharing.model) as sites, recorded(sites, unread=torch.tensor([1])) as layers:
        unread = sharing.scores(given, ONE)
    assert all(float(layer.M[..., 2:, 1].abs().max()) == 0 for layer in layers)
    closed = scores_without_column(sharing, given, ONE, sharing.n - 4 + 1)
    torch.testing.assert_close(unread, closed)
    assert not torch.allclose(unread, sharing.scores(given, ONE))


def test_an_explanation(sharing: Recommender) -> None:
    """What is explained is what is recommended, and removing an item shows in the numbers."""
    history = user_history(sharing, "u1")
    (user,) = explain(sharing, [history], k=5).data["users"]
    scores = sharing.scores(sharing.histories([sharing.items[history.item].tolist()]), ONE)[0]
    scores[torch.from_numpy(np.setdiff1d(history.seen, [history.next]))] = -torch.inf
    assert [entry["item"] for entry in user["on"]] == sharing.items[scores.topk(5).indices].tolist()
    assert user["next"]["rank"] == int((scores > scores[history.next]).sum()) + 1
    assert sum(user["contribution"]) == pytest.approx(1, abs=1e-3)
    assert user["without"][user["last"]]["change"] == [0.0] * 5
    assert any(any(entry["change"]) for entry in user["without"])
