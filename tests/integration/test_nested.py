"""Settings whose inside RecBole reads without looking are checked before it does."""

from __future__ import annotations

from typing import Any

import pytest

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config


@pytest.mark.parametrize(
    ("model", "flags", "words"),
    [
        (
            "GRU4Rec",
            {"loss_type": "BPR", "train_neg_sample_args": {"foo": 1}},
            "train_neg_sample_args has no foo; it has",
        ),
        ("SASRecDenoiser", {"train_neg_sample_args": {"distribution": "uniform"}}, "draws its negatives itself"),
        ("GRU4Rec", {"transform": "mask_itemseq"}, "transform = mask_itemseq needs mask_ratio"),
        ("GRU4Rec", {"transform": "crop_itemseq"}, "transform = crop_itemseq needs eta"),
        ("GRU4Rec", {"transform": "user_defined"}, "is for code of one's own"),
        ("GRU4Rec", {"benchmark_filename": []}, "names no files"),
        ("GRU4Rec", {"load_col": {"item": ["item_id"]}}, "load_col = .* it maps inter"),
        ("GRU4Rec", {"load_col": {"inter": "user_id"}}, "load_col = .* to lists of columns"),
        ("GRU4Rec", {"numerical_features": None}, "numerical_features"),
    ],
)
def test_what_does_not_fit_is_told(model: str, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        Config(model, "toy", flags=flags)
    assert "\n" not in str(caught.value)
