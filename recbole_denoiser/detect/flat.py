"""The detector on flat arrays: the one place where its parts meet."""

from __future__ import annotations

import time as clock
from dataclasses import fields

import numpy as np

from recbole_denoiser.detect.crossfit import Rows, cross_fit, score
from recbole_denoiser.detect.inject import KINDS
from recbole_denoiser.detect.judge import judge, unjudged
from recbole_denoiser.detect.progress import Progress
from recbole_denoiser.detect.report import NoiseReport
from recbole_denoiser.detect.settings import Settings
from recbole_denoiser.detect.texts import text_vectors
from recbole_denoiser.errors import UserError

LEAST_ROWS = 40  # fewer interactions, or users, than these are not judged
LEAST_USERS = 4


def detect_flat(
    user: np.ndarray,
    item: np.ndarray,
    n_items: int,
    *,
    texts: list[str] | None = None,
    time: np.ndarray | None = None,
    seed: int = 0,
    threshold: float = 0.5,
    progress: bool = False,
    **more: object,
) -> NoiseReport:
    """Detect noise in rows grouped by user, in time order within a user.

    user, item: [rows] integers, items in 0 .. n_items - 1. texts: one per item id, '' where there is none. time:
    only its length is checked, it is not used (docs/noise.md). more: further fields of Settings.
    """
    begin = clock.perf_counter()
    allowed = [field.name for field in fields(Settings)]
    for name in more:
        if name not in allowed:
            raise UserError(f"{name} is no setting of the detector; allowed: {', '.join(allowed)}")
    settings = Settings(seed=seed, threshold=threshold, **more)  # type: ignore[arg-type]
    rows = _rows(user, item, n_items, texts, time, settings)
    if len(rows.in_company()) < LEAST_ROWS or rows.users < LEAST_USERS or len(np.unique(rows.item)) < 2:
        report = unjudged(rows, settings)
    else:
        rng = np.random.default_rng(seed)
        bar = Progress(2 * settings.fold_count(len(rows), rows.users) + 2 * len(KINDS) + 1, progress)
        try:
            fitted = cross_fit(rows, settings, rng, bar)
            scores = score(rows, fitted, settings, rng, bar)
            report = judge(rows, fitted, scores, settings, rng)
            bar.step("shares and posterior")
        finally:
            bar.close()
    report.seconds = clock.perf_counter() - begin
    return report


def _rows(
    user: np.ndarray,
    item: np.ndarray,
    n_items: int,
    texts: list[str] | None,
    time: np.ndarray | None,
    settings: Settings,
) -> Rows:
    user, item = np.asarray(user), np.asarray(item)
    if user.ndim != 1 or user.shape != item.shape:
        raise UserError(
            f"user and item have shapes {user.shape} and {item.shape}; flat arrays of one length are needed"
        )
    if not len(item):
        raise UserError("there are no interactions to look at")
    if not np.issubdtype(item.dtype, np.integer) or item.min() < 0 or item.max() >= n_items:
        raise UserError(f"item ids must be integers in 0 .. {n_items - 1}")
    if time is not None and len(time) != len(item):
        raise UserError(f"time has {len(time)} values for {len(item)} interactions; one each is needed")
    if texts is not None and len(texts) != n_items:
        raise UserError(
            f"texts has {len(texts)} entries for {n_items} items; one each is needed ('' where there is none)"
        )
    change = np.r_[True, user[1:] != user[:-1]]
    if change.sum() != len(np.unique(user)):
        raise UserError("rows must be grouped by user: the rows of at least one user are apart")
    vectors = None if texts is None else text_vectors(list(texts), settings.seed)
    return Rows(np.cumsum(change) - 1, item.astype(np.int64), int(n_items), vectors)
