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
    folds: int = 0  # groups of users; a user's statistics come from the other groups; 0: by the size of the data
    draws: int = 200_000  # injected items of each kind, at most 5 for each place
    trees: int = 100  # of each classifier
    rows: int = 150_000  # rows of data that a classifier is fitted on
    sample: int = 500_000  # rows of data that shares and posterior are fitted on
    repeats: int = 100  # bootstrap repeats of the shares
    confidence: float = 0.95  # of the share's interval
    wide: float = 0.1  # a wider interval is "too thin to judge"

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise UserError(f"threshold {self.threshold} is not a posterior; allowed: above 0 up to 1")
        for name in ("window", "rank", "draws", "trees", "rows", "sample", "repeats"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} is too small; allowed: 1 and more")
        if self.folds < 0 or self.folds % 2:
            raise UserError(f"folds {self.folds} is not even; allowed: 0 (by the size of the data), 2, 4, ..")

    def fold_count(self, rows: int, users: int) -> int:
        """The more folds, the more users speak in the statistics: 10; where data are plenty 4 or 2, to save time."""
        folds = self.folds or (10 if rows <= 500_000 else 4 if rows <= 4_000_000 else 2)
        return max(2, min(folds, users - users % 2))
