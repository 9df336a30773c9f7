"""Finished runs of a small grid, made once: three models, with and without noise, two seeds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from recbole_denoiser.experiments.cell import run_cell, write_cell
from recbole_denoiser.experiments.plan import Experiment, PlannedRun, load_experiment, plan


@dataclass(frozen=True)
class SmallGrid:
    """Where the grid is, and its cells."""

    folder: Path  # holds small.yaml and results/
    data_path: Path
    experiment: Experiment
    planned: list[PlannedRun]


_made: list[SmallGrid] = []


def make_once(factory: pytest.TempPathFactory, toy: Path) -> SmallGrid:
    """The grid, shared by all test files (their fixtures call this; a second conftest.py would hide the first)."""
    if not _made:
        _made.append(_make(factory.mktemp("grid"), toy))
    return _made[0]


def _make(folder: Path, toy: Path) -> SmallGrid:
    content = {
        "title": "A small grid",
        "datasets": ["toy"],
        "seeds": [1, 2],
        "settings": {
            "MAX_ITEM_LIST_LENGTH": 10, "epochs": 3, "eval_args": {"mode": "uni10"}, "train_batch_size": 32,
            "learning_rate": 0.01, "target_denoise": "none", "state": "WARNING", "noise_action": "none",
        },
        "models": {
            "SASRec": {"model": "SASRecDenoiser", "denoise": False},
            "content": {"model": "SASRecDenoiser", "mask": "content", "beta": 0.5},
            "GRU4Rec": {"vary": False},
        },
        "vary": {"train_noise": [0.0, 0.25]},
        "pairs": "SASRec",
        "figures": [{"x": "train_noise", "metric": "ndcg@10"}, {"x": "epoch"}],
        "pruning": True,
    }  # fmt: skip
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    experiment = load_experiment(str(file))
    before = Path.cwd()
    os.chdir(folder)
    try:
        planned = plan(experiment, folder / "results", {"data_path": str(toy)})
        for cell in planned:
            write_cell(cell.folder, cell.model, cell.dataset, cell.settings)
            run_cell(cell.folder)
    finally:
        os.chdir(before)
    return SmallGrid(folder, toy, experiment, planned)
