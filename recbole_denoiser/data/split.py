"""RecBole's splits (eval_args.split), without a Python loop per interaction.

Rows are sorted by user and time; every function returns the phase of each row: 0 training, 1 validation, 2 test.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recbole_denoiser.errors import UserError

TRAIN, VALID, TEST = 0, 1, 2


def split_rows(user: np.ndarray, time: np.ndarray, eval_args: dict[str, Any]) -> np.ndarray:
    """Phases of the rows as ``eval_args`` says: LS (leave one out), RS (ratios) or TS (time)."""
    split = eval_args.get("split")
    if not isinstance(split, dict) or len(split) != 1:
        raise UserError(f"eval_args.split = {split!r} must be one of {{LS: ...}}, {{RS: [...]}}, {{TS: [...]}}.")
    ((mode, value),) = split.items()
    if mode == "LS":
        return leave_one_out(user, value)
    if mode not in ("RS", "TS"):
        raise UserError(f"eval_args.split: unknown way to split '{mode}'; known are LS, RS and TS.")
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(r, (int, float)) and r >= 0 for r in value):
        raise UserError(f"eval_args.split.{mode} = {value!r} must be three ratios, such as [0.8, 0.1, 0.1].")
    if sum(value) <= 0:
        raise UserError(f"eval_args.split.{mode} = {value!r} must not be all zero.")
    ratios = [ratio / sum(value) for ratio in value]
    if mode == "TS":
        return by_time(user, time, ratios)
    group_by = str(eval_args.get("group_by"))
    if group_by.lower() == "none":
        return by_ratio(np.zeros_like(user), np.argsort(time, kind="stable"), ratios)
    if group_by != "user":
        raise UserError(f"eval_args.group_by = {group_by!r} must be 'user' or 'none'.")
    return by_ratio(user, np.arange(len(user)), ratios)


def _places(user: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row: its place among its user's rows (0 = oldest) and how many rows the user has."""
    starts = np.flatnonzero(np.diff(user, prepend=user[0] - 1 if len(user) else 0))
    counts = np.diff(starts, append=len(user))
    return np.arange(len(user)) - np.repeat(starts, counts), np.repeat(counts, counts)


def leave_one_out(user: np.ndarray, mode: str) -> np.ndarray:
    """The newest row of each user for testing, the second newest for validation.

    A user keeps at least one row for training, so one with two rows has no validation row.
    """
    if mode not in ("valid_and_test", "valid_only", "test_only"):
        raise UserError(f"eval_args.split.LS = {mode!r} must be valid_and_test, valid_only or test_only.")
    place, count = _places(user)
    from_end = count - 1 - place
    phase = np.full(len(user), TRAIN)
    phase[(from_end == 0) & (count >= 2)] = VALID if mode == "valid_only" else TEST
    if mode == "valid_and_test":
        phase[(from_end == 1) & (count >= 3)] = VALID
    return phase


def _cuts(total: int, ratios: list[float]) -> list[int]:
    """Where RecBole cuts ``total`` rows: parts are rounded down, but a part with a ratio gets one row if it can."""
    parts = [int(ratio * total) for ratio in ratios]
    parts[0] = total - sum(parts[1:])
    for i in range(1, len(ratios)):
        if parts[0] <= 1:
            break
        if 0 < ratios[-i] * total < 1:
            parts[-i] += 1
            parts[0] -= 1
    return [parts[0], parts[0] + parts[1]]


def by_ratio(group: np.ndarray, order: np.ndarray, ratios: list[float]) -> np.ndarray:
    """Ratios within each group, in ``order``."""
    place, count = _places(group)
    cuts = np.zeros((count.max(initial=0) + 1, 2), dtype=np.int64)
    for total in np.unique(count):
        cuts[total] = _cuts(int(total), ratios)
    phase = np.empty(len(group), dtype=np.int64)
    phase[order] = (place >= cuts[count, 0]).astype(np.int64) + (place >= cuts[count, 1])
    return phase


def by_time(user: np.ndarray, time: np.ndarray, ratios: list[float]) -> np.ndarray:
    """Everything after one moment is for testing; before it, the ratios of training and validation per user."""
    if ratios[2] >= 1:
        raise UserError("eval_args.split.TS must leave something to train on.")
    boundary = np.percentile(time, 100 * (1 - ratios[2]))
    early = time <= boundary
    phase = np.full(len(user), TEST)
    place, count = _places(user[early])
    cut = (count * (ratios[0] / (1 - ratios[2]))).astype(np.int64)
    phase[early] = np.where(place < cut, TRAIN, VALID)
    return phase
