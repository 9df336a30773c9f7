"""What to expect of the posterior on this data, from the injected items.

With noise share a = sum a_c and injected items weighted by a_c / a:
    AUC(noise, clean) = (AUC(noise, data) - a / 2) / (1 - a)        [the data are a part a noise]
    recall(t)    = P_injected(p > t)
    precision(t) = a P_injected(p > t) / P_data(p > t)
"""

from __future__ import annotations

import numpy as np

from recbole_denoiser.detect.quality import auc


def kind_weights(shares: np.ndarray) -> np.ndarray:
    """a_c / a; equal weights where no noise is estimated."""
    total = float(shares.sum())
    return shares / total if total > 0 else np.full(len(shares), 1.0 / len(shares))


def expected_auc(data: np.ndarray, injected: list[np.ndarray], shares: np.ndarray) -> float:
    """Of any score, with the share of noise in the data taken out."""
    against = 0.0
    for weight, scores in zip(kind_weights(shares), injected, strict=True):
        label = np.repeat([False, True], [len(data), len(scores)])
        against += weight * auc(np.concatenate([data, scores]), label)
    a = min(float(shares.sum()), 0.9)
    return float(np.clip((against - a / 2) / (1 - a), 0.0, 1.0))


def precision_recall(
    threshold: np.ndarray, data: np.ndarray, injected: list[np.ndarray], shares: np.ndarray
) -> dict[str, np.ndarray]:
    """Precision, recall and the part removed at each threshold of the posterior; precision is NaN where none goes."""
    recall = np.zeros(len(threshold))
    for weight, p in zip(kind_weights(shares), injected, strict=True):
        recall += weight * above(p, threshold)
    gone = above(data, threshold)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(gone > 0, np.minimum(shares.sum() * recall / gone, 1.0), np.nan)
    return {"threshold": threshold, "precision": precision, "recall": recall, "removed": gone}


def above(values: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Part of the values above each threshold."""
    return 1.0 - np.searchsorted(np.sort(values), threshold, side="right") / max(len(values), 1)
