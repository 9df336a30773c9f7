"""Runs the cells of an experiment in parallel processes and survives being stopped at any moment.

Every cell is a process of its own with one thread (attempt.py), so a crash takes one cell with it and nothing else. A
cell is finished when its result.json exists; a cell that was cut short goes on after its last finished epoch. Who makes
the attempts is the engine's affair (engines.py). One grid at a time works on a folder, or one per shard.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.attempt import Attempt
from recbole_denoiser.experiments.cell import write_cell
from recbole_denoiser.experiments.engines import Engine, engine, reason_of
from recbole_denoiser.experiments.plan import PlannedRun
from recbole_denoiser.experiments.progress import GridProgress
from recbole_denoiser.runs.record import RESULT_FILE

LOG_FILE = "log.txt"
CELL_MODULE = "recbole_denoiser.experiments.cell"
POLL_SECONDS = 0.5


@dataclass
class Outcome:
    """What became of the cells that were not finished before."""

    failed: list[tuple[PlannedRun, str]] = field(default_factory=list)  # with the last line of the log


def run_grid(
    runs: Sequence[PlannedRun], jobs: int | None = None, scheduler: str | None = None, shard: str | None = None
) -> Outcome:
    """Run all cells that are not finished, ``jobs`` at a time. Ctrl-C stops the processes; nothing finished is lost."""
    cells = list({run.name: run for run in runs}.values())  # cells with the same settings share one run
    with only_one(cells[0].folder.parent, shard), engine(jobs, scheduler) as found:
        grid = _Grid(cells, found)
        try:
            grid.work()
        finally:
            grid.stop()
    return grid.outcome


@contextmanager
def only_one(folder: Path, shard: str | None = None) -> Iterator[None]:
    """Inside the context no other grid works on the folder (or on this shard of it)."""
    folder.mkdir(parents=True, exist_ok=True)
    part = "" if shard is None else "-" + shard.replace("/", "of")
    lock = FileLock(folder / f".grid{part}.lock", blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"Another grid works on {folder} already; wait for it, or split the work with --shard."
        ) from None
    try:
        yield
    finally:
        lock.release()


class _Grid:
    def __init__(self, cells: list[PlannedRun], engine: Engine) -> None:
        self.engine = engine
        self.waiting = deque(cell for cell in cells if not cell.finished)
        self.running: dict[Future[str | None], PlannedRun] = {}
        self.outcome = Outcome()
        self.progress = GridProgress(cells, 1)

    def work(self) -> None:
        # never more than can run: Dask blames a killed worker's whole queue for its end, and shards may be worked on
        while self.waiting or self.running:
            slots = self.engine.slots()
            self.progress.jobs = max(slots, 1)
            while self.waiting and len(self.running) < slots:
                self._start(self.waiting.popleft())
            done = wait(self.running, POLL_SECONDS, FIRST_COMPLETED).done if self.running else _pause()
            for future in done:
                self._ended(self.running.pop(future), future)
            self.progress.show(len(self.waiting))

    def _start(self, cell: PlannedRun) -> None:
        if cell.finished:  # by a grid over another shard
            self.progress.finished(cell)
            return
        write_cell(cell.folder, cell.model, cell.dataset, cell.settings)
        attempt = Attempt(CELL_MODULE, str(cell.folder), str(cell.folder / LOG_FILE), str(Path.cwd()))
        self.running[self.engine.submit(attempt)] = cell
        self.progress.started(cell)

    def _ended(self, cell: PlannedRun, future: Future[str | None]) -> None:
        if cell.finished:
            self.progress.finished(cell)
            return
        reason = reason_of(future) or f"the process ended well but left no {RESULT_FILE}"
        self.outcome.failed.append((cell, reason))
        self.progress.failed(cell, reason)

    def stop(self) -> None:
        for future in self.running:
            future.cancel()
        self.progress.close()


def _pause() -> set[Future[str | None]]:
    """No worker is there yet, or no longer."""
    time.sleep(POLL_SECONDS)
    return set()
