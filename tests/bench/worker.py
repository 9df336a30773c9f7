"""One process per subject: ``python worker.py <subject> <settings as JSON>``; a line on stdin asks for a round.

Answers are JSON lines on the real stdout: units of work, seconds of CPU, and megabytes by which the peak resident set
has grown since the set-up.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path


def megabytes(name: str) -> float:
    """VmHWM (peak) or VmRSS (now) of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the libraries print goes elsewhere
    warnings.simplefilter("ignore")
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    warm = settings.pop("warm", True)
    run = getattr(importlib.import_module("ours" if name.startswith("ours_") else "rivals"), name)(**settings)
    before = megabytes("VmRSS")
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    if warm:
        run()
    answers.write(json.dumps({"ready": True}) + "\n")
    for _ in sys.stdin:
        units, seconds = run()
        answers.write(json.dumps({"units": units, "seconds": seconds, "grown": megabytes("VmHWM") - before}) + "\n")


if __name__ == "__main__":
    main()
