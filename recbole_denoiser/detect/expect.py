"""What to expect of the posterior on this data, from the injected items.

Injected item i of kind c stands for a_c(i) / draws_c noise, where a_c(i) is the share of its kind among the rows of its
group (gathered.py); together they stand for the noise share a. P_injected is the distribution with these weights.
    AUC(noise, clean) = (AUC(noise, data) - a / 2) / (1 - a)        [the data are a part a noise]
    recall(t)    = P_injected(p > t)
    precision(t) = a P_injected(p > t) / P_data(p > t)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def noise_weights(injected: list[np.ndarray], shares: Sequence[np.ndarray | float]) -> tuple[np.ndarray, float]:
    """Weights of all injected items, one kind after the other, that sum to 1; and a. Equal ones where a is 0."""
    each = [np.broadcast_to(share, s.shape) / max(len(s), 1) for s, share in zip(injected, shares, strict=True)]
    weights = np.concatenate(each).astype(np.float64)
    a = float(weights.sum())
    if a > 0:
        return weights / a, a
    return np.concatenate([np.full(len(s), 1.0 / (len(injected) * max(len(s), 1))) for s in injected]), 0.0


def expected_auc(data: np.ndarray, injected: list[np.ndarray], shares: Sequence[np.ndarray | float]) -> float:
    """Of any score, with the share of noise in the data taken out; shares by kind, or by kind and injected item."""
    weights, a = noise_weights(injected, shares)
    sorted_data, values = np.sort(data), np.concatenate(injected)
    below = np.searchsorted(sorted_data, values, "left") + np.searchsorted(sorted_data, values, "right")
    against = float(weights @ below) / (2 * max(len(data), 1))  # ties count half
    a = min(a, 0.9)
    return float(np.clip((against - a / 2) / (1 - a), 0.0, 1.0))


def precision_recall(
    threshold: np.ndarray, data: np.ndarray, injected: list[np.ndarray], shares: Sequence[np.ndarray | float]
) -> dict[str, np.ndarray]:
    """Precision, recall and the part removed at each threshold of the posterior; precision is NaN where none goes."""
    weights, a = noise_weights(injected, shares)
    values = np.concatenate(injected)
    recall = above(values, threshold, weights)
    gone = above(data, threshold, np.full(len(data), 1.0 / max(len(data), 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(gone > 0, np.minimum(a * recall / gone, 1.0), np.nan)
    return {"threshold": threshold, "precision": precision, "recall": recall, "removed": gone}


def above(values: np.ndarray, threshold: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weight of the values above each threshold."""
    order = np.argsort(values)
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    return total[-1] - total[np.searchsorted(values[order], threshold, side="right")]
