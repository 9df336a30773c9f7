"""Finished runs as the experiments and reports read them: ``<folder>/<run>/result.json`` and its ``ranks.npz``."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.errors import UserError

RESULT_FILE = "result.json"


@dataclass(frozen=True)
class Ranks:
    """The rank of each user's held-out item, 1 = best; the average rank where scores tie."""

    user: np.ndarray  # [users] tokens (str)
    rank: np.ndarray  # [users] float


@dataclass(frozen=True)
class Run:
    """One result.json. ``label`` names the model in tables; several seeds share one label."""

    folder: Path
    run: str
    label: str
    model: str
    dataset: str
    seed: int
    test: dict[str, float]
    valid: dict[str, float]
    config: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, Any]
    epochs: list[dict[str, Any]]
    best_epoch: int
    ranks_file: str
    checkpoint: str | None
    seconds: float

    def ranks(self, split: str = "test") -> Ranks:
        """Per-user ranks of the test or valid split."""
        path = self.folder / self.ranks_file
        try:
            with np.load(path, allow_pickle=False) as arrays:
                user, rank = arrays[f"{split}_user"].astype(str), arrays[f"{split}_rank"].astype(float)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"The ranks of run {self.run} ({path}, split {split}) cannot be read: {error}") from error
        if user.shape != rank.shape or user.ndim != 1 or not len(user):
            raise UserError(
                f"{path}: {split}_user {user.shape} and {split}_rank {rank.shape} must be equally long lists."
            )
        if not np.isfinite(rank).all() or rank.min() < 1:
            raise UserError(f"{path}: {split}_rank must hold numbers from 1 (best) upwards.")
        return Ranks(user, rank)


# field of result.json -> allowed types
REQUIRED: dict[str, tuple[type, ...]] = {
    "run": (str,),
    "label": (str,),
    "model": (str,),
    "dataset": (str,),
    "seed": (int,),
    "test": (dict,),
    "valid": (dict,),
    "config": (dict,),
    "data": (dict,),
    "versions": (dict,),
    "epochs": (list,),
    "best_epoch": (int,),
    "ranks": (str,),
    "seconds": (int, float),
}


def load_run(folder: str | Path) -> Run:
    """The run in one folder."""
    path = Path(folder) / RESULT_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path.parent} is no finished run: it has no {RESULT_FILE}.") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{path} holds no JSON object.")
    missing = [key for key in REQUIRED if key not in record]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}.")
    # a run without a split of that kind has null for its metrics
    record |= {split: {} for split in ("valid", "test") if record[split] is None}
    for key, types in REQUIRED.items():
        if not isinstance(record[key], types) or isinstance(record[key], bool):
            allowed = " or ".join(kind.__name__ for kind in types)
            raise UserError(f"{path}: {key} is {record[key]!r}, but must be of type {allowed}.")
    fields = {key: record[key] for key in REQUIRED if key != "ranks"}
    return Run(folder=path.parent, ranks_file=record["ranks"], checkpoint=record.get("checkpoint"), **fields)


def load_runs(source: str | Path | Iterable[str | Path]) -> list[Run]:
    """All finished runs: of a folder of runs (unfinished ones, without result.json, are left out) or of a list.

    A folder that is itself a run counts as one. Sorted by data set, label and seed.
    """
    if isinstance(source, (str, Path)):
        folder = Path(source)
        if not folder.is_dir():
            raise UserError(f"There is no folder of runs {folder}.")
        own = folder / RESULT_FILE
        found = [own] if own.is_file() else sorted(folder.glob(f"*/{RESULT_FILE}"))
        if not found:
            raise UserError(f"{folder} holds no finished run (a folder with {RESULT_FILE}).")
        runs = [load_run(path.parent) for path in found]
    else:
        runs = [run for entry in source for run in load_runs(entry)]
        if not runs:
            raise UserError("The list of runs is empty.")
    return sorted(runs, key=lambda run: (run.dataset, run.label, run.seed, str(run.folder)))


def find_run(name: str | Path, result_dir: str | Path = "results") -> Path:
    """The folder of a finished run, from the folder itself or from the name of a run in ``result_dir``."""
    for folder in (Path(name), Path(result_dir) / name):
        if (folder / RESULT_FILE).is_file():
            return folder
    finished = sorted(file.parent.name for file in Path(result_dir).glob(f"*/{RESULT_FILE}"))
    known = (
        f"Finished runs in {result_dir}/: {', '.join(finished)}." if finished else f"None is in {result_dir}/ either."
    )
    raise UserError(f"'{name}' is not the folder of a finished run (with {RESULT_FILE}). {known}")


def find_runs(names: Sequence[str], result_dir: str | Path = "results") -> list[Run]:
    """Runs in the order given: each name is a run's folder, a folder of runs, or the name of a run in result_dir."""
    found: dict[Path, Run] = {}
    for name in names:
        folder = Path(name)
        if folder.is_dir() and not (folder / RESULT_FILE).is_file() and any(folder.glob(f"*/{RESULT_FILE}")):
            runs = load_runs(folder)
        else:
            runs = [load_run(find_run(name, result_dir))]
        found.update({run.folder.resolve(): run for run in runs})
    return list(found.values())
