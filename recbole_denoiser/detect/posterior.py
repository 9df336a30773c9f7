"""From scores and shares to the probability that an interaction is noise.

    s(x) = log sum_c a_c exp(z_c(x))                                one number to rank by: z_c is log F_c / F_data
    p(s) = sum_c a_c F_c(s) / F_data(s), never falling in s, at most 1

F are the shares of injected items and of data in narrow bins of s; a weighted isotonic regression of the bins' ratios
makes p monotone, and p is interpolated between the bins' middles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import IsotonicRegression

FLOOR = 0.002  # share that a kind has at least when interactions are ranked


def ranking(scores: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """s of each row: scores [m, kinds], shares [kinds] or [m, kinds] -> [m]."""
    return np.logaddexp.reduce(scores + np.log(np.maximum(shares, FLOOR)), axis=1)


@dataclass
class Posterior:
    """p as a piecewise linear function of s."""

    at: np.ndarray  # [bins] s in rising order
    value: np.ndarray  # [bins] p, never falling

    @classmethod
    def fit(cls, data: np.ndarray, injected: list[np.ndarray], shares: np.ndarray) -> Posterior:
        """From the s of the data and of each kind's injected items."""
        bins = int(np.clip(len(data) ** 0.4, 5, 100))
        pooled = np.concatenate([data, *injected])
        edges = np.unique(np.quantile(pooled, np.linspace(0, 1, bins + 1)[1:-1]))
        cell = np.searchsorted(edges, data)
        count = np.bincount(cell, minlength=len(edges) + 1)
        middle = np.bincount(cell, data, minlength=len(edges) + 1)
        noise = np.zeros(len(edges) + 1)
        for share, s in zip(shares, injected, strict=True):
            noise += share * np.bincount(np.searchsorted(edges, s), minlength=len(edges) + 1) / max(len(s), 1)
        held = count > 0
        ratio = noise[held] * len(data) / count[held]
        value = IsotonicRegression().fit_transform(np.arange(held.sum()), ratio, sample_weight=count[held])
        return cls(middle[held] / count[held], np.clip(value, 0.0, 1.0))

    def __call__(self, s: np.ndarray) -> np.ndarray:
        return np.interp(s, self.at, self.value)


def applied(curves: list[Posterior], group: np.ndarray, s: np.ndarray) -> np.ndarray:
    """p of each row by the curve of its group: group and s [m] -> [m]."""
    out = np.empty(len(s))
    for number, curve in enumerate(curves):
        held = group == number
        out[held] = curve(s[held])
    return out
