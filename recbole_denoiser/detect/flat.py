"""The detector on flat arrays: the one place where its parts meet."""

from __future__ import annotations

import time as clock
from dataclasses import asdict

import numpy as np

from recbole_denoiser.detect import mixture
from recbole_denoiser.detect.crossfit import CrossFit, Rows, Scores, cross_fit, score
from recbole_denoiser.detect.expect import expected_auc, precision_recall
from recbole_denoiser.detect.inject import KINDS
from recbole_denoiser.detect.posterior import Posterior, ranking
from recbole_denoiser.detect.progress import Progress
from recbole_denoiser.detect.removal import protect
from recbole_denoiser.detect.report import JUDGED, TOO_THIN, NoiseReport
from recbole_denoiser.detect.settings import Settings
from recbole_denoiser.detect.texts import text_vectors
from recbole_denoiser.errors import UserError

LEAST_ROWS = 40  # fewer interactions, or users, than these are not judged
LEAST_USERS = 4
LEAST_AUC = 0.6  # data that look like random items cannot be judged


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

    user, item: [rows] integers, items in 0 .. n_items - 1. texts: one per item id, '' where there is none. time is
    checked for its length only: it did not help (docs/noise.md). more: further fields of Settings.
    """
    begin = clock.perf_counter()
    settings = Settings(seed=seed, threshold=threshold, **more)  # type: ignore[arg-type]
    rows = _rows(user, item, n_items, texts, time, settings)
    rng = np.random.default_rng(seed)
    enough = len(rows) >= LEAST_ROWS and rows.users >= LEAST_USERS and len(np.unique(rows.item)) > 1
    bar = Progress(2 * min(settings.folds, rows.users) + 2 * len(KINDS) + 2 if enough else 1, progress)
    try:
        if not enough:
            return _unjudged(rows, settings, begin)
        fitted = cross_fit(rows, settings, rng, bar)
        scores = score(rows, fitted, settings, rng, bar)
        return _judge(rows, fitted, scores, settings, rng, bar, begin)
    finally:
        bar.close()


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
            f"user and item have shapes {user.shape} and {item.shape}; two flat arrays of one length are needed"
        )
    if len(item) and (not np.issubdtype(item.dtype, np.integer) or item.min() < 0 or item.max() >= n_items):
        raise UserError(f"item ids must be integers in 0 .. {n_items - 1}")
    if time is not None and len(time) != len(item):
        raise UserError(f"time has {len(time)} values for {len(item)} interactions")
    if texts is not None and len(texts) != n_items:
        raise UserError(
            f"texts has {len(texts)} entries for {n_items} items; one each is needed ('' where there is none)"
        )
    change = np.r_[True, user[1:] != user[:-1]] if len(user) else np.empty(0, bool)
    if change.sum() != len(np.unique(user)):
        raise UserError("rows must be grouped by user: the rows of at least one user are apart")
    vectors = None if texts is None else text_vectors(list(texts), settings.seed)
    return Rows(np.cumsum(change) - 1, item.astype(np.int64), int(n_items), vectors)


def _judge(
    rows: Rows,
    fitted: CrossFit,
    scores: Scores,
    settings: Settings,
    rng: np.random.Generator,
    bar: Progress,
    begin: float,
) -> NoiseReport:
    groups = min(mixture.GROUPS, rows.users)
    group = (rng.permutation(rows.users) % groups)[rows.user]
    sample = np.arange(len(rows))
    if len(rows) > settings.sample:
        sample = np.sort(rng.choice(len(rows), settings.sample, replace=False))
    counted = mixture.tails(
        scores.data[sample], group[sample], scores.injected, [group[k.places] for k in fitted.injected], groups
    )
    shares = mixture.shares(counted)
    again = mixture.bootstrap(counted, settings.repeats, rng).sum(1)
    beyond = (1 - settings.confidence) / 2
    low, high = (float(np.quantile(again, q)) for q in (beyond, 1 - beyond))
    share = float(shares.sum())
    low, high = min(low, share), max(high, share)
    bar.step("shares")

    s = ranking(scores.data, shares)
    s_injected = [ranking(part, shares) for part in scores.injected]
    curve = Posterior.fit(s[sample], s_injected, shares)
    alone = fitted.features[:, fitted.names.index("neighbours")] == 0
    posterior = np.where(alone, share, curve(s))
    p_injected = [curve(part) for part in s_injected]
    auc = expected_auc(s[sample], s_injected, shares)
    rarity = fitted.names.index("popularity")
    popularity_auc = expected_auc(
        -fitted.features[sample, rarity], [-k.features[:, rarity] for k in fitted.injected], shares
    )
    judged = high - low <= settings.wide and auc >= LEAST_AUC
    # the lower bound of the share: the posterior is in proportion to the share
    bound = low / share if share > 0 else 0.0
    remove = posterior * bound > settings.threshold if judged else np.zeros(len(rows), bool)
    remove = protect(rows.user, posterior, remove)
    grid = np.linspace(0.01, 0.99, 99)
    slider = precision_recall(grid / bound if bound > 0 else np.full(99, 2.0), posterior, p_injected, shares)
    slider["threshold"] = grid
    at = precision_recall(np.array([settings.threshold / bound if bound > 0 else 2.0]), posterior, p_injected, shares)
    first, last = np.quantile(np.concatenate([s[sample], *s_injected]), [0.001, 0.999])
    edges = np.linspace(float(first), float(last), 61)
    histogram = {"edges": edges, "data": _density(s[sample], edges)}
    histogram |= {kind: _density(part, edges) for kind, part in zip(KINDS, s_injected, strict=True)}
    bar.step("posterior")
    return NoiseReport(
        posterior=posterior,
        remove=remove,
        share=share,
        share_interval=(low, high),
        shares=dict(zip(KINDS, (float(a) for a in shares), strict=True)),
        auc=auc,
        precision=float(at["precision"][0]),
        recall=float(at["recall"][0]),
        popularity_auc=popularity_auc,
        verdict=JUDGED if judged else TOO_THIN,
        feature_names=fitted.names,
        features=fitted.features,
        curve=slider,
        histogram=histogram,
        settings=asdict(settings),
        sizes=_sizes(rows),
        seconds=clock.perf_counter() - begin,
    )


def _density(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / max(len(values), 1)


def _sizes(rows: Rows) -> dict[str, int]:
    return {"interactions": len(rows), "users": rows.users, "items": rows.n_items}


def _unjudged(rows: Rows, settings: Settings, begin: float) -> NoiseReport:
    """Too little data for any statement: the prior is that nothing is noise, and nothing is removed."""
    nan = float("nan")
    none = np.zeros(0)
    return NoiseReport(
        posterior=np.zeros(len(rows)),
        remove=np.zeros(len(rows), bool),
        share=0.0,
        share_interval=(0.0, 1.0),
        shares=dict.fromkeys(KINDS, 0.0),
        auc=nan,
        precision=nan,
        recall=nan,
        popularity_auc=nan,
        verdict=TOO_THIN,
        feature_names=(),
        features=np.zeros((len(rows), 0), np.float32),
        curve={"threshold": none, "precision": none, "recall": none, "removed": none},
        histogram={"edges": none, "data": none} | dict.fromkeys(KINDS, none),
        settings=asdict(settings),
        sizes=_sizes(rows),
        seconds=clock.perf_counter() - begin,
    )
