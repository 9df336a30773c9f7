"""A progress bar over the detector's steps."""

from __future__ import annotations

from tqdm import tqdm


class Progress:
    """Counts steps; silent unless asked for."""

    def __init__(self, steps: int, shown: bool) -> None:
        self.bar = tqdm(total=steps, desc="detecting noise", disable=not shown, leave=False)

    def step(self, what: str) -> None:
        self.bar.set_postfix_str(what, refresh=False)
        self.bar.update()

    def close(self) -> None:
        self.bar.close()
