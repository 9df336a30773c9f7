"""The columns of somebody's table of events."""

from __future__ import annotations

from dataclasses import dataclass

from recbole_denoiser.errors import UserError


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what; ``title`` is the item's, if there is one.

    >>> Columns(user="who", item="what", time="when").names
    ['who', 'what', 'when']
    """

    user: str
    item: str
    time: str
    title: str | None = None

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [self.user, self.item, self.time, *([] if self.title is None else [self.title])]

    def check(self, found: list[str], source: str) -> None:
        """UserError if a column is not there."""
        for name in self.names:
            if name not in found:
                raise UserError(f"{source} has no column '{name}'. It has: {', '.join(map(str, found))}.")
