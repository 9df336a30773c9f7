"""Starts the processes of one run on this machine (RecBole's nproc, world_size, ip, port, group_offset).

Every process gets the environment that torchrun would give it and runs the ordinary pipeline. If one fails, the rest
are ended and the cause is told; if this process dies, they end by themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError

_PATIENCE = 10.0  # seconds that the other processes get to end by themselves after one has failed


@dataclass(frozen=True)
class Processes:
    """How many processes, where, and which of them are this machine's."""

    nproc: int = 1
    world_size: int = -1  # -1: nproc
    ip: str = "localhost"
    port: int | None = None  # None: 5678 between machines, any free one on a single machine
    group_offset: int = 0

    @property
    def total(self) -> int:
        return self.nproc if self.world_size <= 0 else self.world_size

    def check(self) -> None:
        """UserError if the numbers do not fit together."""
        if self.nproc < 1:
            raise UserError(f"--nproc={self.nproc} is not allowed: it takes a whole number >= 1.")
        if self.group_offset < 0 or self.group_offset + self.nproc > self.total:
            raise UserError(
                f"--group_offset={self.group_offset} and --nproc={self.nproc} name processes "
                f"{self.group_offset} .. {self.group_offset + self.nproc - 1}, but --world_size={self.total}."
            )

    def environment(self, local_rank: int, port: int) -> dict[str, str]:
        """What torchrun would set for one of this machine's processes."""
        return {
            "RANK": str(self.group_offset + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.total),
            "LOCAL_WORLD_SIZE": str(self.nproc),
            "MASTER_ADDR": self.ip,
            "MASTER_PORT": str(port),
            # DDP looks for unused parameters, since models may have some, and warns if there are none
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }


def run(arguments: dict[str, Any], processes: Processes) -> dict[str, Any] | None:
    """``pipeline.run(**arguments)`` in several processes; the result on the machine of process 0, None elsewhere."""
    processes.check()
    port = processes.port or (5678 if processes.total > processes.nproc else _free_port())
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=_work, args=(arguments, processes.environment(i, port), folder))
            for i in range(processes.nproc)
        ]
        try:
            for worker in workers:
                worker.start()
            _wait(workers)
        finally:
            for worker in workers:
                if worker.is_alive():
                    worker.terminate()
                worker.join()
        _raise_cause(workers, Path(folder), processes.group_offset)
        result = Path(folder) / "result.json"
        return json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def _wait(workers: list[Any]) -> None:
    """Until all have ended, or a short time after the first failure."""
    deadline: float | None = None
    while running := [worker.sentinel for worker in workers if worker.is_alive()]:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        multiprocessing.connection.wait(running, left)
        if deadline is None and any(worker.exitcode for worker in workers):
            deadline = time.monotonic() + _PATIENCE


def _raise_cause(workers: list[Any], folder: Path, offset: int) -> None:
    """A user's mistake goes before a killed process, and that before what the others ran into then."""
    if not any(worker.exitcode for worker in workers):
        return
    for file in sorted(folder.glob("mistake-*")):
        raise UserError(file.read_text(encoding="utf-8"))
    for number, worker in enumerate(workers):
        if worker.exitcode < 0 and worker.exitcode != -signal.SIGTERM:
            name = signal.Signals(-worker.exitcode).name
            raise UserError(
                f"Process {offset + number} was ended by {name} (out of memory?), so the run stopped. "
                f"The same command with --resume continues after the last finished epoch."
            )
    for file in sorted(folder.glob("trace-*")):
        raise RuntimeError(f"Process {file.name.removeprefix('trace-')} failed:\n{file.read_text(encoding='utf-8')}")
    codes = [worker.exitcode for worker in workers]
    raise UserError(f"The processes of the run ended early, with exit codes {codes}.")


def _work(arguments: dict[str, Any], environment: dict[str, str], folder: str) -> None:
    """One process of the run."""
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    rank = environment["RANK"]
    try:
        _run_pipeline(arguments, int(environment["LOCAL_WORLD_SIZE"]), Path(folder))
    except UserError as error:
        Path(folder, f"mistake-{rank}").write_text(str(error), encoding="utf-8")
        os._exit(2)  # at once: an orderly end would wait for the other processes
    except BaseException:
        Path(folder, f"trace-{rank}").write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)


def _run_pipeline(arguments: dict[str, Any], local_processes: int, folder: Path) -> None:
    import torch

    from recbole_denoiser.integration import parallel
    from recbole_denoiser.runs import pipeline

    if "OMP_NUM_THREADS" not in os.environ:  # the processes share the machine's cores
        torch.set_num_threads(max(1, torch.get_num_threads() // local_processes))
    result = pipeline.run(**arguments)
    if parallel.rank() == 0:
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    parallel.stop()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
