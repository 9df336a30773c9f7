"""A line of the table of speed figures."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass
class Row:
    """One line of the table; target: "at least 50", "at most 1.4" or "" for a figure without one."""

    what: str
    against: str
    target: str
    median: float
    low: float
    high: float
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the target."""
        if not self.target:
            return None
        bound = float(self.target.split()[-1])
        return self.median >= bound if self.target.startswith("at least") else self.median <= bound


def row(what: str, against: str, target: str, values: list[float], note: str = "") -> Row:
    """Median and spread of the rounds' ratios."""
    return Row(what, against, target, statistics.median(values), min(values), max(values), note)
