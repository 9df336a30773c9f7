"""What a conversion gave, beside the paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PaperRow:
    """One row of Table 1 as printed. Average and actions are those of the TRAIN split.

    That is: without the last two actions of every user with at least three (checked on MovieLens and Games).
    """

    name: str
    users: int
    items: int
    average: str  # actions per user
    actions: str  # millions


TABLE_1 = {
    "ml-1m": PaperRow("MovieLens", 6_040, 3_416, "163.5", "0.987"),
    "amazon-beauty": PaperRow("Beauty", 51_369, 19_369, "4.39", "0.225"),
    "amazon-games": PaperRow("Games", 30_935, 12_111, "6.46", "0.2"),
    "amazon-movies-tv": PaperRow("Movies&TV", 40_928, 37_564, "25.55", "1.05"),
    "steam": PaperRow("Steam", 114_796, 8_648, "7.58", "0.87"),
}


def agrees(value: float, printed: str) -> bool:
    """Whether value could have been printed so, by rounding or by cutting off (Table 1 does both)."""
    decimals = len(printed.partition(".")[2])
    return abs(value - float(printed)) < 10**-decimals


@dataclass(frozen=True)
class PrepareReport:
    """Counts of one converted data set. ``str(report)`` is a text table."""

    name: str
    rule: str
    users: int
    items: int
    actions: int
    train_actions: int
    read: int  # actions in the raw file before filtering
    malformed: int
    malformed_examples: tuple[str, ...]
    titles: int
    inter_file: Path
    item_file: Path | None

    @property
    def average(self) -> float:
        """Actions per user, all splits."""
        return self.actions / self.users

    @property
    def train_average(self) -> float:
        """Train actions per user: what Table 1 calls average actions per user."""
        return self.train_actions / self.users

    @property
    def paper(self) -> PaperRow | None:
        """The row of Table 1 with this data set; None for one that the paper does not use."""
        return TABLE_1.get(self.name)

    def differences(self) -> list[str]:
        """Where this data set differs from the paper's row, one phrase each; empty if nowhere."""
        paper, found = self.paper, []
        if paper is None:
            return []
        for label, ours, theirs in (("users", self.users, paper.users), ("items", self.items, paper.items)):
            if ours != theirs:
                found.append(f"{label} {ours:,} instead of {theirs:,} ({ours / theirs - 1:+.1%})")
        if not agrees(self.train_average, paper.average):
            found.append(f"train actions per user {self.train_average:.2f} instead of {paper.average}")
        if not agrees(self.train_actions / 1e6, paper.actions):
            found.append(f"train actions {self.train_actions:,} instead of {paper.actions}M")
        return found

    def __str__(self) -> str:
        paper = self.paper
        rows = [
            ("", "here", f"Table 1 ({paper.name})" if paper else ""),
            ("users", f"{self.users:,}", f"{paper.users:,}" if paper else ""),
            ("items", f"{self.items:,}", f"{paper.items:,}" if paper else ""),
            ("train actions per user", f"{self.train_average:.2f}", paper.average if paper else ""),
            ("train actions", f"{self.train_actions:,}", f"{paper.actions}M" if paper else ""),
            ("actions", f"{self.actions:,}", ""),
            ("actions per user", f"{self.average:.2f}", ""),
            ("actions in the raw file", f"{self.read:,}", ""),
            ("malformed lines", f"{self.malformed:,}", ""),
            ("items with a title", f"{self.titles:,}", ""),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{self.name} (rule {self.rule}) -> {self.inter_file}"]
        lines += [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows]
        differences = self.differences()
        if differences:
            lines.append("Differs from the paper's Table 1: " + "; ".join(differences) + ".")
        elif paper:
            lines.append("Agrees with the paper's Table 1.")
        if self.malformed:
            lines.append(f"{self.malformed:,} malformed lines were skipped, the first of them:")
            lines += [f"  {example}" for example in self.malformed_examples]
        return "\n".join(lines)
