"""The one reader of finished runs: ``<folder>/<run>/result.json``, checked field by field, and its ``ranks.npz``.

A folder with result.json is a finished run. What the file must hold is said once, in ``FIELDS``; everything that reads
a run (experiments, progress, tune, reports, recommend and explain) comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import is_plain_name, read_arrays, read_json
from recbole_denoiser.integration.registry import shown_name

RESULT_FILE = "result.json"


# ---- what result.json holds ----


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e300 < value < 1e300


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _metrics(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(_number(number) for number in value.values()))


def _modes(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(map(_text, value)) and all(map(_metrics, value.values())))


def _shares(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(_number(share) for share in value))


def _epochs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(record, dict)
        and _whole(record.get("epoch"))
        and isinstance(record.get("losses"), dict)
        and _metrics(record["losses"])
        and _metrics(record.get("valid"))
        and _shares(record.get("kept"))
        for record in value
    )


def _config(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(value.get(key)) for key in ("model", "dataset", "data_path"))


def _noise(value: Any) -> bool:
    """What cleaning found; a detector's share comes with its interval and verdict."""
    if value is None or not isinstance(value, dict) or "share" not in value:
        return value is None or isinstance(value, dict)
    interval = value.get("interval")
    pair = isinstance(interval, list) and len(interval) == 2 and all(map(_number, interval))
    return pair and _number(value["share"]) and _text(value.get("verdict"))


@dataclass(frozen=True)
class _Field:
    """One field: is a value right, and what it must be in words."""

    right: Callable[[Any], bool]
    words: str
    required: bool = True


FIELDS = {
    "run": _Field(_text, "a text"),
    "label": _Field(_text, "a text"),
    "model": _Field(_text, "a text"),
    "dataset": _Field(_text, "a text"),
    "seed": _Field(_whole, "a whole number"),
    "test": _Field(_metrics, "a mapping of metrics to finite numbers, or null"),
    "valid": _Field(_metrics, "a mapping of metrics to finite numbers, or null"),
    "config": _Field(_config, "a mapping with the texts model, dataset and data_path"),
    "data": _Field(_mapping, "a mapping"),
    "versions": _Field(_mapping, "a mapping"),
    "epochs": _Field(_epochs, "a list of records, each with epoch, losses, and perhaps valid and kept"),
    "best_epoch": _Field(_whole, "a whole number"),
    "ranks": _Field(lambda value: _text(value) and is_plain_name(value), "the name of a file beside result.json"),
    "seconds": _Field(_number, "a number"),
    "kept": _Field(_shares, "a list of numbers, or null", required=False),
    "valid_by_mode": _Field(_modes, "a mapping of modes to metrics", required=False),
    "test_by_mode": _Field(_modes, "a mapping of modes to metrics", required=False),
    "checkpoint": _Field(lambda value: value is None or _text(value), "a text or null", required=False),
    "noise": _Field(_noise, "a mapping with share, interval and verdict, or null", required=False),
}


def read_result(folder: str | Path, *fields: str) -> dict[str, Any]:
    """result.json of a run, every field checked; with ``fields`` only those, and nothing else is looked at."""
    path = Path(folder) / RESULT_FILE
    record = read_json(path, f"{path.parent} is no finished run: it has no {RESULT_FILE}.")
    if not isinstance(record, dict):
        raise UserError(f"{path} holds no JSON object.")
    asked = fields or tuple(FIELDS)
    missing = [name for name in asked if name not in record and FIELDS[name].required]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}.")
    for name in asked:
        if not FIELDS[name].right(record.get(name)):
            raise UserError(f"{path}: {name} is {_short(record.get(name))}, but must be {FIELDS[name].words}.")
    return {name: record.get(name) for name in fields} if fields else {**dict.fromkeys(FIELDS), **record}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# ---- finished runs ----


@dataclass(frozen=True)
class UserRanks:
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
    kept: list[float] | None = None  # share of attentions that each layer of the best checkpoint keeps
    valid_by_mode: dict[str, dict[str, float] | None] | None = None  # of eval_modes
    test_by_mode: dict[str, dict[str, float] | None] | None = None
    noise: dict[str, Any] | None = None  # what was found and done before training
    mode: str = ""  # that ``test``, ``valid`` and ``ranks`` are of; empty: eval_args.mode

    @property
    def modes(self) -> list[str]:
        """The modes of ``eval_modes`` in which this run was measured."""
        return list(self.test_by_mode or {})

    @property
    def main_mode(self) -> str | None:
        """The mode that ``test`` is of: ``eval_args.mode``, or one of ``modes``."""
        main = self.config.get("eval_args", {}).get("mode", {})
        return self.mode or (main.get("test") if isinstance(main, dict) else main)

    def in_mode(self, mode: str) -> Run:
        """The same run, its metrics and ranks those of one of its ``modes``."""
        valid, test = ((part or {}).get(mode) or {} for part in (self.valid_by_mode, self.test_by_mode))
        return replace(self, valid=valid, test=test, mode=mode)

    def ranks(self, split: str = "test") -> UserRanks:
        """Per-user ranks of the test or valid split."""
        path = self.folder / self.ranks_file
        phase, split = split, f"{split}_{self.mode}" if self.mode else split
        try:
            arrays = read_arrays(path)
            users = arrays.get(f"{split}_user", arrays.get(f"{phase}_user"))  # modes share their phase's users
            if users is None or f"{split}_rank" not in arrays:
                raise ValueError(f"it holds {', '.join(arrays) or 'nothing'}")
            user, rank = users.astype(str), arrays[f"{split}_rank"].astype(float)
        except (UserError, ValueError, TypeError) as error:
            raise UserError(f"The ranks of run {self.run} ({path}, split {split}) cannot be read: {error}") from error
        if user.shape != rank.shape or user.ndim != 1 or not len(user):
            raise UserError(
                f"{path}: {split}_user {user.shape} and {split}_rank {rank.shape} must be equally long lists."
            )
        if not np.isfinite(rank).all() or rank.min() < 1:
            raise UserError(f"{path}: {split}_rank must hold numbers from 1 (best) upwards.")
        return UserRanks(user, rank)


def load_run(folder: str | Path) -> Run:
    """The run in one folder."""
    record = read_result(folder)
    # a run without a split of that kind has null for its metrics
    record |= {split: {} for split in ("valid", "test") if record[split] is None}
    if record["label"] == record["model"]:  # release 0.1 called a plain backbone by its model's name
        record["label"] = shown_name(record["model"], record["config"].get("denoise"))
    fields: dict[str, Any] = {name: record.get(name) for name in FIELDS if name != "ranks"}
    return Run(folder=Path(folder), ranks_file=record["ranks"], **fields)


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
