"""GRU4Rec on whole sequences against RecBole's GRU4Rec with the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from built import build, check_run
from recbole.model.sequential_recommender.gru4rec import GRU4Rec

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs.pipeline import load_data


def test_same_weights_same_scores_at_every_position(settings: dict) -> None:
    flags = {**settings, "long_history": "windows", "dropout_prob": 0.0, "num_layers": 2}
    ours = build("GRU4RecSequence", flags, embedding_size=12)
    config = Config("GRU4Rec", "toy", flags={**flags, "hidden_size": 16, "embedding_size": 12})
    theirs = GRU4Rec(config, load_data(config).train._dataset)
    theirs.load_state_dict(ours.model.state_dict())
    theirs.eval()
    interaction, candidates = ours.test_batch()
    assert interaction["item_length"].unique().numel() > 3
    ours.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(ours.model.full_sort_predict(interaction), theirs.full_sort_predict(interaction))
        torch.testing.assert_close(ours.model.predict(interaction), theirs.predict(interaction))
        scores = ours.model.score_candidates(interaction, candidates)
        torch.testing.assert_close(scores, theirs.full_sort_predict(interaction).gather(1, candidates))
        batch = ours.model.batch(ours.train_batch())
        states = ours.model.encode(ours.model.embed(batch))
        for row, column in (batch.targets != 0).nonzero()[:50].tolist():  # RecBole: the prefix that ends there
            prefix = batch.items[row : row + 1, : column + 1]
            torch.testing.assert_close(states[row, column], theirs(prefix, torch.tensor([column + 1]))[0])


def test_it_learns(workplace: Path, settings: dict) -> None:
    check_run("GRU4RecSequence", settings, ("sequences", "CE", "start"), embedding_size=16)


@pytest.mark.parametrize(("key", "value"), [("position_from", "end"), ("denoise", True)])
def test_what_a_gru_has_not(settings: dict, key: str, value: object) -> None:
    with pytest.raises(UserError, match=f"GRU4RecSequence has no .* {key} takes"):
        build("GRU4RecSequence", settings, **{key: value})
