"""What the fixture small_grid gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recbole_denoiser.experiments.plan import Experiment, PlannedRun


@dataclass(frozen=True)
class SmallGrid:
    """Where the grid is, and its cells."""

    folder: Path  # holds small.yaml and results/
    data_path: Path
    experiment: Experiment
    planned: list[PlannedRun]
