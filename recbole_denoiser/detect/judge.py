"""From scores to a report: shares, posterior, what to remove, what to expect."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from recbole_denoiser.detect import mixture
from recbole_denoiser.detect.crossfit import CrossFit, Rows, Scores
from recbole_denoiser.detect.detector import Detector
from recbole_denoiser.detect.expect import expected_auc, precision_recall
from recbole_denoiser.detect.gathered import Groups, groups
from recbole_denoiser.detect.inject import KINDS
from recbole_denoiser.detect.posterior import Posterior, applied, ranking
from recbole_denoiser.detect.removal import protect
from recbole_denoiser.detect.report import JUDGED, TOO_THIN, NoiseReport
from recbole_denoiser.detect.settings import Settings

LEAST_AUC = 0.6  # data in which random items are not told from the real ones better than this cannot be judged,
LEAST_COHERENCE = 0.55  # nor data whose items are not more at home with their neighbours than popular items put there
MOST_RARE = 0.1  # nor data with more rows than this of items that occur once or twice: of two, which is the wrong one?
GRID = np.linspace(0.01, 0.99, 99)
NEVER = 2.0  # a threshold that no posterior exceeds


def judge(rows: Rows, fitted: CrossFit, scores: Scores, settings: Settings, rng: np.random.Generator) -> NoiseReport:
    """All figures of the report, in the order of the rows."""
    sample = rows.in_company()
    if len(sample) > settings.sample:
        sample = np.sort(rng.choice(sample, settings.sample, replace=False))
    found = groups(rows, fitted, scores, sample, settings, rng)
    share, gathered = found.share, found.share - float(found.shares[0].sum())
    shares = found.sizes @ np.stack([mixture.unmix(of_group) for of_group in found.shares])
    low, high = mixture.interval(share, found.sums, settings.confidence)

    at_places = [found.of_row[kind.places] for kind in fitted.injected]
    of_injected = [found.shares[at, kind] for kind, at in enumerate(at_places)]
    s, s_injected = _ranked(found, scores, at_places)
    auc = expected_auc(s[sample], s_injected, of_injected)
    rarity = fitted.names.index("popularity")
    rare = [-kind.features[:, rarity] for kind in fitted.injected]
    popularity_auc = expected_auc(-fitted.features[sample, rarity], rare, of_injected)
    lift = fitted.names.index("lift")
    popular = fitted.injected[KINDS.index("popularity")].features[:, lift]
    coherence = expected_auc(-fitted.features[sample, lift], [-popular], [0.0])
    rare_rows = float((np.bincount(rows.item)[rows.item] <= 2).mean())
    judged = high - low <= settings.wide and auc >= LEAST_AUC and coherence >= LEAST_COHERENCE
    judged = judged and rare_rows <= MOST_RARE
    if not judged:  # it may be that nothing is noise: then that is what posteriors say
        low, found.shares = 0.0, np.zeros_like(found.shares)
        s, s_injected = _ranked(found, scores, at_places)

    curves = _curves(found, s, sample, s_injected, at_places, len(rows))
    alone = fitted.features[:, fitted.names.index("neighbours")] == 0
    posterior = np.where(alone, found.shares[0].sum(), applied(curves, found.of_row, s))
    p_injected = [applied(curves, at, part) for part, at in zip(s_injected, at_places, strict=True)]
    # removal by the lower bound of the share: the posterior is in proportion to the share
    bound = low / share if share > 0 else 0.0
    remove = protect(rows.user, posterior, posterior * bound > settings.threshold)

    def expected(threshold: np.ndarray) -> dict[str, np.ndarray]:
        effective = threshold / bound if bound > 0 else np.full(len(threshold), NEVER)
        return precision_recall(effective, posterior, p_injected, of_injected) | {"threshold": threshold}

    at = expected(np.array([settings.threshold]))
    return NoiseReport(
        posterior=posterior,
        remove=remove,
        share=share,
        share_interval=(low, high),
        shares={kind: float(value) for kind, value in zip(KINDS, shares, strict=True)},
        auc=auc,
        precision=float(at["precision"][0]),
        recall=float(at["recall"][0]),
        popularity_auc=popularity_auc,
        verdict=JUDGED if judged else TOO_THIN,
        feature_names=fitted.names,
        features=fitted.features,
        curve=expected(GRID),
        histogram=_histogram(s[sample], s_injected),
        settings=asdict(settings),
        sizes=_sizes(rows),
        seconds=0.0,
        gathered=gathered,
        detector=Detector(
            settings,
            KINDS,
            fitted.serving,
            scores.forests,
            share,
            found.shares,
            curves,
            found.strata,
            found.group_of_part,
        ),
    )


def _ranked(found: Groups, scores: Scores, at: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """s of the rows and of each kind's injected items, by the shares of their groups."""
    injected = [ranking(part, found.shares[group]) for part, group in zip(scores.injected, at, strict=True)]
    return ranking(scores.data, found.shares[found.of_row]), injected


def _curves(
    found: Groups, s: np.ndarray, sample: np.ndarray, s_injected: list[np.ndarray], at: list[np.ndarray], rows: int
) -> list[Posterior]:
    """Posterior of each group. Where no noise is found it is that of less than one row, so that it still ranks."""
    curves = []
    for group, shares in enumerate(found.shares):
        injected = [part[of_part == group] for part, of_part in zip(s_injected, at, strict=True)]
        shares = shares if shares.sum() > 0 else np.full(len(shares), 0.1 / rows)
        curves.append(Posterior.fit(s[sample[found.of_row[sample] == group]], injected, shares))
    return curves


def _histogram(data: np.ndarray, injected: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Parts of the data and of each kind's injected items in 60 bins of the score."""
    first, last = np.quantile(np.concatenate([data, *injected]), [0.001, 0.999])
    edges = np.linspace(float(first), max(float(last), float(first) + 1e-6), 61)
    out = {"edges": edges}
    for name, values in zip(("data", *KINDS), (data, *injected), strict=True):
        out[name] = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / max(len(values), 1)
    return out


def _sizes(rows: Rows) -> dict[str, int]:
    return {"interactions": len(rows), "users": rows.users, "items": rows.n_items}


def unjudged(rows: Rows, settings: Settings) -> NoiseReport:
    """Too little data for any statement: the prior is that nothing is noise, and nothing is removed."""
    nan, none = float("nan"), np.zeros(0)
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
        seconds=0.0,
    )
