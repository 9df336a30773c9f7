"""Child processes of a grid or a study: one thread each, and all stopped when their parent is asked to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def default_jobs() -> int:
    """One process per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(
    module: str, arguments: list[str], log: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """``python -m <module> <arguments>`` in a new interpreter, its output appended to ``log``.

    ``variables`` are added to its environment.
    """
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]  # a plain checkout is not installed
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), "PYTHONPATH": os.pathsep.join(paths)}
    environment.update(variables or {})
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops its children
        )


def stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End those that still run, and wait for them."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        process.wait()


def ending(log: Path, code: int) -> str:
    """Why a process ended: the last line of its log, or the signal that killed it."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"


@contextmanager
def termination_is_an_interrupt() -> Iterator[None]:
    """Inside the context, kill and a closed terminal do what Ctrl-C does."""
    before: dict[int, Any] = {}
    try:
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                number = getattr(signal, name)
                before[number] = signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
