"""CPU time of starting: what a user waits for before anything of this package happens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from row import Row, row

STARTS = {
    "import recbole_denoiser": ["-c", "import recbole_denoiser"],
    "recbole-denoiser --help": ["-m", "recbole_denoiser", "--help"],
}
TORCH = ["-c", "import torch"]


def seconds(words: list[str]) -> float:
    """CPU seconds of a fresh interpreter, its own start left in."""
    before = os.times()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def cold_start(rounds: int) -> Iterator[Row]:
    """Each start over ``import torch``, in alternating rounds."""
    done = []
    for _ in range(rounds + 1):
        done.append({name: seconds(words) for name, words in {**STARTS, "torch": TORCH}.items()})
    for name in STARTS:
        yield row(
            name, "import torch", "at most 0.5", [r[name] / r["torch"] for r in done[1:]]
        )  # the first reads files
