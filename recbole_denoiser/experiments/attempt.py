"""One attempt at a cell or a study: a module run in an interpreter of its own, by whoever works on the grid.

The attempt has one thread, its own log, and ends with the process that started it, even if that is killed. It may be
made anywhere that sees the same folders: in a thread of the grid itself or in a worker of a Dask cluster. This module
loads nothing heavy, since workers import it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POLL_SECONDS = 0.5  # between two looks whether the attempt is still wanted
_PATIENCE_SECONDS = 10.0  # after SIGTERM, before SIGKILL


@dataclass(frozen=True)
class Attempt:
    """``python -m <module> <argument>`` in ``folder``, its output appended to ``log``."""

    module: str
    argument: str
    log: str
    folder: str  # relative paths are meant from here
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # of its environment; may be secret

    def run(self, stopped: Callable[[], bool]) -> str | None:
        """Run to the end, or until ``stopped``; None if it went well, else why not."""
        log = Path(self.folder, self.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module, self.argument],
                stdin=subprocess.PIPE,  # its end tells the attempt that this process is gone
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**_environment(), **dict(self.variables)},
                start_new_session=True,  # Ctrl-C reaches the grid alone, which then stops its attempts
            )
        try:
            while True:
                try:
                    code = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if stopped():
                        return "stopped"
        finally:
            _end(process)
        return None if code == 0 else ending(log, code)


def _environment() -> dict[str, str]:
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]  # a plain checkout is not installed
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), "PYTHONPATH": os.pathsep.join(paths)}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdin is not None
    process.stdin.close()


def ending(log: Path, code: int) -> str:
    """Why a process ended: the last line of its log, or the signal that killed it."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"


def end_with_starter() -> None:
    """To be called by the attempt: it ends at once when its standard input, held by its starter, is closed."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def in_worker(attempt: Attempt) -> str | None:
    """The task that a Dask worker runs. It is no longer wanted when the worker's own state says so."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def stopped() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state != "executing"  # cancelled, or its grid is gone

    return attempt.run(stopped)
