"""Which process works on a run: files that only one process can create, without a lock server.

``<folder>/claim-<k>.json`` names a host, a process and when that process began. The claim with the largest k counts.
To take over from a dead process one creates k + 1, which again only one can do, so nothing is ever removed from under
a living process. Whether a process lives can only be judged on its own host; a claim of another host stands.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_UNWRITTEN_SECONDS = 10  # a claim that is still empty after this was left by a process that died while making it


@dataclass(frozen=True)
class Holder:
    """The process behind a claim."""

    host: str  # empty: it gave up without having finished
    pid: int
    started: float  # process ids are used again; the start time tells two processes apart

    @property
    def here(self) -> bool:
        """Whether it runs, or ran, on this machine."""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """False only for a process that gave up or that was on this machine and is certainly gone."""
        if not self.here:
            return self.host != ""
        try:
            process = psutil.Process(self.pid)
            return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - self.started) < 2
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def myself() -> Holder:
    """The process that asks."""
    return Holder(socket.gethostname(), os.getpid(), psutil.Process().create_time())


def _claims(folder: Path) -> list[int]:
    """Numbers of the claims in a folder, ascending."""
    return sorted(int(file.stem.partition("-")[2]) for file in folder.glob("claim-*.json"))


def _file(folder: Path, number: int) -> Path:
    return folder / f"claim-{number}.json"


def _read(file: Path) -> Holder | None:
    """The holder in a claim file; None if it is gone, or was never written."""
    while True:
        try:
            return Holder(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # its maker is between creating and writing it
            if time.time() - file.stat().st_mtime > _UNWRITTEN_SECONDS:
                return None
            time.sleep(0.05)


def holder(folder: Path) -> Holder | None:
    """Who works on the run in ``folder``; None if nobody does."""
    numbers = _claims(folder)
    found = _read(_file(folder, numbers[-1])) if numbers else None
    return found if found is not None and found.alive else None


def claim(folder: Path) -> int | None:
    """Take the run in ``folder`` for this process: the number of the claim, or None if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = _claims(folder)
    if numbers and holder(folder) is not None:
        return None
    number = numbers[-1] + 1 if numbers else 0
    try:
        descriptor = os.open(_file(folder, number), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(asdict(myself()), stream)
    return number


def release(folder: Path, number: int, finished: bool) -> None:
    """Give up claim ``number``. Claims are only removed when the run is finished and nobody needs one any more.

    Otherwise two processes could at the same moment find different numbers to be the next one.
    """
    if not finished:
        _file(folder, number).write_text(json.dumps(asdict(Holder("", 0, 0.0))), encoding="utf-8")
        return
    for old in _claims(folder):
        _file(folder, old).unlink(missing_ok=True)
