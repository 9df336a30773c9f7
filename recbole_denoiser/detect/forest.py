"""Gradient boosted trees whose fitted form is a handful of plain arrays.

    score(x) = baseline + sum over trees of the value of x's leaf   [log odds of "injected" against "data"]

scikit-learn grows the trees; the arrays can be stored without pickle and return the same scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

RATE, LEAVES = 0.1, 15


def grow(features: np.ndarray, injected: np.ndarray, trees: int, seed: int) -> HistGradientBoostingClassifier:
    """Fit: features [m, f], injected [m] of 0 (data) and 1."""
    model = HistGradientBoostingClassifier(
        max_iter=trees, learning_rate=RATE, max_leaf_nodes=LEAVES, early_stopping=False, random_state=seed
    )
    return model.fit(features, injected)


@dataclass
class Forest:
    """All trees' nodes one after the other; a leaf is its own child, so that every row can take `depth` steps."""

    feature: np.ndarray  # [nodes] column that is compared
    threshold: np.ndarray  # [nodes] x <= threshold goes left
    left: np.ndarray  # [nodes]
    right: np.ndarray  # [nodes]
    value: np.ndarray  # [nodes] 0 except at leaves
    root: np.ndarray  # [trees]
    depth: int
    baseline: float

    @classmethod
    def of(cls, model: HistGradientBoostingClassifier, offset: float = 0.0) -> Forest:
        """The arrays of a fitted model (two classes, no missing values), `offset` added to its scores."""
        trees = [stage[0].nodes for stage in model._predictors]
        root = np.cumsum([0] + [len(nodes) for nodes in trees])[:-1]
        nodes = np.concatenate(trees)
        start = np.repeat(root, [len(part) for part in trees])
        leaf = nodes["is_leaf"].astype(bool)
        own = np.arange(len(nodes))
        return cls(
            np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
            np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float64),
            np.where(leaf, own, nodes["left"] + start).astype(np.int32),
            np.where(leaf, own, nodes["right"] + start).astype(np.int32),
            np.where(leaf, nodes["value"], 0.0),
            root.astype(np.int32),
            int(nodes["depth"].max()),
            float(np.ravel(model._baseline_prediction)[0]) + offset,
        )

    def score(self, features: np.ndarray) -> np.ndarray:
        """Log odds of each row: [m]."""
        out = np.full(len(features), self.baseline)
        rows = np.arange(len(features))
        for root in self.root:
            node = np.full(len(features), root)
            for _ in range(self.depth):
                left = features[rows, self.feature[node]] <= self.threshold[node]
                node = np.where(left, self.left[node], self.right[node])
            out += self.value[node]
        return out
