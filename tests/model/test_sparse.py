"""Sparse Transformer's patterns: against hand-written matrices, in the model's attention, and at their limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from built import (
    WAYS,
    attention_of,
    build,
    check_denoiser_trains,
    check_open_masks_change_nothing,
    check_run,
    scores_of,
)

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.sparse import attention_pattern

STRIDED_2 = """
1......
11.....
111....
.111...
1.111..
.1.111.
1.1.111
"""
STRIDED_3 = """
1......
11.....
111....
1111...
.1111..
..1111.
1..1111
"""
# blocks of 3 that end at the newest item: 0 | 1 2 3 | 4 5 6; the last of each is seen by all later ones
FIXED_3_1 = """
1......
11.....
111....
1111...
1..11..
1..111.
1..1111
"""
FIXED_3_2 = """
1......
11.....
111....
1111...
1.111..
1.1111.
1.11111
"""


def matrix(text: str) -> torch.Tensor:
    return torch.tensor([[mark == "1" for mark in line] for line in text.split()])


@pytest.mark.parametrize(
    ("pattern", "stride", "summary", "expected"),
    [
        ("strided", 2, 1, STRIDED_2),
        ("strided", 3, 1, STRIDED_3),
        ("fixed", 3, 1, FIXED_3_1),
        ("fixed", 3, 2, FIXED_3_2),
    ],
)
def test_patterns_by_hand(pattern: str, stride: int, summary: int, expected: str) -> None:
    age = torch.arange(6, -1, -1)[None]
    assert torch.equal(attention_pattern(pattern, age, stride, summary)[0], matrix(expected))


def test_blocks_end_at_the_newest_item_whatever_the_length() -> None:
    """The pattern of a shorter history is the lower right corner of a longer one's."""
    for pattern in ("fixed", "strided"):
        long = attention_pattern(pattern, torch.arange(10, -1, -1)[None], 4, 2)[0]
        short = attention_pattern(pattern, torch.arange(5, -1, -1)[None], 4, 2)[0]
        assert torch.equal(long[-6:, -6:], short)


@pytest.mark.parametrize("pattern", ["fixed", "strided"])
@pytest.mark.parametrize("start", ["end", "start"])
def test_model_attends_inside_the_pattern_only(settings: dict, pattern: str, start: str) -> None:
    built = build("SASRecSparse", settings, pattern=pattern, stride=3, summary=1, position_from=start)
    interaction, _ = built.test_batch()
    lengths = interaction["item_length"].tolist()
    assert len(set(lengths)) > 2
    layers = attention_of(built, interaction)
    assert len(layers) == 2
    for A in layers:
        for row, length in zip(A, lengths, strict=True):
            own = row[:, -length:, -length:] if start == "end" else row[:, :length, :length]  # [H, length, length]
            expected = attention_pattern(pattern, torch.arange(length - 1, -1, -1)[None], 3, 1)[0]
            assert torch.equal(own > 0, expected.expand_as(own))
            torch.testing.assert_close(own.sum(-1), torch.ones(own.shape[:2]))


def test_one_block_is_plain_attention(settings: dict) -> None:
    """stride = n: all of the history is in the newest block, or within one stride."""
    plain = build("SASRecDenoiser", settings, denoise=False, fast_inference=False)
    for pattern in ("fixed", "strided"):
        whole = build("SASRecSparse", settings, pattern=pattern, stride=10)
        whole.model.load_state_dict(plain.model.state_dict())
        assert torch.equal(scores_of(plain), scores_of(whole))
        narrow = build("SASRecSparse", settings, pattern=pattern, stride=3)
        narrow.model.load_state_dict(plain.model.state_dict())
        assert not torch.allclose(scores_of(plain), scores_of(narrow))


@pytest.mark.parametrize("pattern", ["fixed", "strided"])
@pytest.mark.parametrize("way", WAYS)
def test_runs_and_reloads(workplace: Path, settings: dict, pattern: str, way: tuple[str, str, str]) -> None:
    check_run("SASRecSparse", settings, way, pattern=pattern, stride=3)


def test_masks_go_on_top(settings: dict) -> None:
    check_open_masks_change_nothing("SASRecSparse", "SASRecSparse", {**settings, "stride": 3})
    check_denoiser_trains("SASRecSparse", settings, stride=3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"stride": 11}, "stride = 11 is larger than MAX_ITEM_LIST_LENGTH = 10"),
        ({"stride": 0}, "stride = 0 .*>= 1"),
        ({"stride": 3, "summary": 4}, "summary = 4 is larger than stride = 3"),
        ({"summary": 0}, "summary = 0 .*>= 1"),
        ({"pattern": "random"}, "pattern = 'random' .*fixed | strided"),
    ],
)
def test_wrong_settings(settings: dict, flags: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build("SASRecSparse", settings, **flags)
