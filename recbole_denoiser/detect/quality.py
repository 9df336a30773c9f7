"""How well noise is found: AUC, precision, recall."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from recbole_denoiser.errors import UserError


def auc(score: np.ndarray, label: np.ndarray) -> float:
    """P(score of a labelled row > score of another), ties count half; NaN where one class is empty."""
    label = np.asarray(label, dtype=bool)
    positive, negative = int(label.sum()), int((~label).sum())
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(score)
    return float((ranks[label].sum() - positive * (positive + 1) / 2) / (positive * negative))


def quality(posterior: np.ndarray, labels: np.ndarray, threshold: float = 0.5) -> dict[str, float]:
    """AUC of the posterior, and precision and recall of "posterior > threshold", where noise is known.

    NaN where a figure has no meaning (nothing removed, no noise).
    """
    posterior, labels = np.asarray(posterior, dtype=float).ravel(), np.asarray(labels).ravel().astype(bool)
    if len(posterior) != len(labels):
        raise UserError(f"quality: {len(labels)} labels for {len(posterior)} interactions; one label each is needed")
    gone = posterior > threshold
    return {
        "auc": auc(posterior, labels),
        "precision": float(labels[gone].mean()) if gone.any() else float("nan"),
        "recall": float(gone[labels].mean()) if labels.any() else float("nan"),
    }
