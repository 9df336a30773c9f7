"""Overall progress of a grid: how many cells are done, which failed, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tqdm import tqdm

from recbole_denoiser.experiments.plan import PlannedRun
from recbole_denoiser.runs.record import read_result


class GridProgress:
    """A bar for the whole grid and a line for each cell that ends."""

    def __init__(self, cells: Sequence[PlannedRun], jobs: int) -> None:
        self.cells = {cell.name: cell for cell in cells}
        self.jobs = jobs
        self.seconds: dict[str, float] = {}  # run name -> how long it took
        self.began: dict[str, float] = {}  # run name -> when it was started
        self.failures: set[str] = set()
        for cell in cells:
            if cell.finished:
                self.seconds[cell.name] = _seconds(cell)
        self.bar = tqdm(
            total=len(cells),
            initial=len(self.seconds),
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),  # a log file gets the lines only
            bar_format="{n_fmt}/{total_fmt} runs |{bar}| {elapsed} gone, {postfix}",
        )
        self._say(f"{len(self.seconds)} of {len(cells)} runs are finished already.")

    def started(self, cell: PlannedRun) -> None:
        self.began[cell.name] = time.monotonic()

    def finished(self, cell: PlannedRun) -> None:
        self.began.pop(cell.name, None)
        self.seconds[cell.name] = _seconds(cell)
        self.bar.update()
        took, left = duration(self.seconds[cell.name]), duration(self.time_left())
        self._say(f"[{len(self.seconds)}/{len(self.cells)}] {cell}: {took}, {left} left")

    def failed(self, cell: PlannedRun, reason: str) -> None:
        self.began.pop(cell.name, None)
        self.failures.add(cell.name)
        self._say(f"FAILED {cell}: {reason} (log in {cell.folder})")

    def show(self, left: int) -> None:
        """Refresh the bar; ``left`` cells have not been started."""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        self.bar.set_postfix_str(f"{duration(self.time_left())} left, {len(self.began)} running{failed}")

    def time_left(self) -> float | None:
        """Seconds until all cells are done, or None while no cell has ended."""
        if not self.seconds:
            return None
        now = time.monotonic()
        rest = 0.0
        for name, cell in self.cells.items():
            if name not in self.seconds and name not in self.failures:
                gone = now - self.began[name] if name in self.began else 0.0
                rest += max(self._expected(cell) - gone, 0.0)
        return rest / self.jobs

    def _expected(self, cell: PlannedRun) -> float:
        """Mean time of the ended cells that are most like this one."""
        ended = [self.cells[name] for name in self.seconds]
        like = [other for other in ended if (other.label, other.dataset) == (cell.label, cell.dataset)]
        like = like or [other for other in ended if other.dataset == cell.dataset] or ended
        return sum(self.seconds[other.name] for other in like) / len(like)

    def _say(self, text: str) -> None:
        self.bar.write(text, file=sys.stderr)

    def close(self) -> None:
        self.bar.close()


def _seconds(cell: PlannedRun) -> float:
    return float(read_result(cell.folder, "seconds")["seconds"])


def duration(seconds: float | None) -> str:
    """2 h 05 min, 3 min, 20 s, or ? while nothing is known."""
    if seconds is None:
        return "?"
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min" if seconds >= 60 else f"{seconds:.0f} s"
