"""The detector's settings, each with the value that was measured to serve (docs/noise.md)."""

from __future__ import annotations

from dataclasses import dataclass

from recbole_denoiser.errors import UserError


@dataclass(frozen=True)
class Settings:
    """Everything that a result depends on besides the data."""

    seed: int = 0
    threshold: float = 0.5  # an interaction may go where its posterior is larger
    window: int = 10  # neighbours: so many places to either side
    rank: int = 64  # length of the item vectors
    folds: int = 4  # groups of users; a user's statistics come from the other groups
    draws: int = 200_000  # injected items of each kind, at most 5 for each place
    rows: int = 150_000  # rows of data that a classifier is fitted on
    sample: int = 500_000  # rows of data that shares and posterior are fitted on
    repeats: int = 100  # bootstrap repeats of the shares
    confidence: float = 0.95  # of the share's interval
    wide: float = 0.1  # a wider interval is "too thin to judge"

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise UserError(f"threshold {self.threshold} is not a posterior; allowed: above 0 up to 1")
        if self.window < 1 or self.rank < 1 or self.folds < 2:
            raise UserError(f"window {self.window}, rank {self.rank}, folds {self.folds}; allowed: at least 1, 1 and 2")
