"""Runs the cells of an experiment in parallel processes and survives being stopped at any moment.

Every cell is a process of its own with one thread, so a crash takes one cell with it and nothing else. A cell is
finished when its result.json exists; a cell that was cut short goes on after its last finished epoch. Several grids
may work on one folder, on one machine or on several: a cell belongs to the process that claimed it (claim.py).
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import claim, processes
from recbole_denoiser.experiments.cell import TAKEN, write_cell
from recbole_denoiser.experiments.plan import PlannedRun
from recbole_denoiser.experiments.progress import Progress

LOG_FILE = "log.txt"
POLL_SECONDS = 0.2


@dataclass
class Outcome:
    """What became of the cells that were not finished before."""

    failed: list[tuple[PlannedRun, str]] = field(default_factory=list)  # with the last line of the log
    elsewhere: list[tuple[PlannedRun, claim.Holder]] = field(default_factory=list)  # another machine is at it


def run_grid(runs: Sequence[PlannedRun], jobs: int) -> Outcome:
    """Run all cells that are not finished, ``jobs`` at a time. Ctrl-C stops the processes; nothing finished is lost."""
    if jobs < 1:
        raise UserError(f"--jobs {jobs} must be at least 1.")
    cells = list({run.name: run for run in runs}.values())  # cells with the same settings share one run
    grid = _Grid(cells, jobs)
    with processes.termination_is_an_interrupt():
        try:
            grid.work()
        finally:
            grid.stop()
    return grid.outcome


class _Grid:
    def __init__(self, cells: list[PlannedRun], jobs: int) -> None:
        self.jobs = jobs
        self.waiting = deque(cell for cell in cells if not cell.finished)
        self.running: dict[str, tuple[PlannedRun, subprocess.Popen[bytes]]] = {}
        self.taken: list[PlannedRun] = []  # claimed by a process that is not ours
        self.outcome = Outcome()
        self.progress = Progress(cells, jobs)

    def work(self) -> None:
        while self.waiting or self.running or self._others_at_work():
            while self.waiting and len(self.running) < self.jobs:
                self._start(self.waiting.popleft())
            time.sleep(POLL_SECONDS)
            for cell, process in list(self.running.values()):
                if process.poll() is not None:
                    self._ended(cell, process)
            self._look_after_taken()
            self.progress.show(len(self.waiting) + len(self.taken))

    def _start(self, cell: PlannedRun) -> None:
        if claim.holder(cell.folder) is not None:
            self.taken.append(cell)
            return
        write_cell(cell.folder, cell.model, cell.dataset, cell.settings)
        process = processes.start("recbole_denoiser.experiments.cell", [str(cell.folder)], cell.folder / LOG_FILE)
        self.running[cell.name] = (cell, process)
        self.progress.started(cell)

    def _ended(self, cell: PlannedRun, process: subprocess.Popen[bytes]) -> None:
        del self.running[cell.name]
        if process.returncode == TAKEN:
            self.taken.append(cell)
        elif cell.finished:
            self.progress.finished(cell)
        else:
            reason = processes.ending(cell.folder / LOG_FILE, process.returncode)
            self.outcome.failed.append((cell, reason))
            self.progress.failed(cell, reason)

    def _look_after_taken(self) -> None:
        for cell in list(self.taken):
            if cell.finished:
                self.progress.finished(cell)
            elif claim.holder(cell.folder) is None:
                self.waiting.append(cell)
            else:
                continue
            self.taken.remove(cell)

    def _others_at_work(self) -> bool:
        """Whether to wait for other processes: only for those of this machine, whose end would be noticed."""
        holders = [(cell, claim.holder(cell.folder)) for cell in self.taken]
        self.outcome.elsewhere = [(cell, found) for cell, found in holders if found is not None and not found.here]
        return len(self.outcome.elsewhere) < len(self.taken)

    def stop(self) -> None:
        processes.stop(process for _, process in self.running.values())
        self.progress.close()
