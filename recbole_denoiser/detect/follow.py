"""A bound a(tau) that is too large, the less the smaller tau is, followed to tau = 0.

    a(tau) = a + b tau + w(tau) + e(tau),      b >= 0
    b ~ N(0, slope^2)                                  clean items get into wider tails: the bound rises
    w, a random walk: cov(w(s), w(t)) = walk^2 min(s, t)           and not quite along a line
    e, of counting:   cov(e(s), e(t)) = v / max(s, t)              wider tails hold more rows

a is the generalised least squares estimate. Where data are plenty (v small) the narrow tails decide; where they are
few, the wide ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Prior(NamedTuple):
    """How far a(tau) may leave the constant."""

    slope: float
    walk: float


SUM = Prior(0.1, 0.01)  # of all kinds together
PARTS = Prior(0.3, 0.1)  # of one kind: in wide tails the kinds are taken for each other


def at_zero(taus: np.ndarray, curves: np.ndarray, v: float, prior: Prior) -> np.ndarray:
    """a of each curve: taus [t], curves [m, t] -> [m]."""
    noise = v / np.maximum.outer(taus, taus) + prior.walk**2 * np.minimum.outer(taus, taus)
    weight = np.linalg.inv(noise)
    line = np.column_stack([np.ones_like(taus), taus])
    normal = line.T @ weight @ line + np.diag([0.0, prior.slope**-2])
    a, b = np.linalg.solve(normal, line.T @ weight @ curves.T)
    flat = weight.sum(0) @ curves.T / weight.sum()  # the same with b = 0
    return np.where(b < 0, flat, a)


def scaled(parts: np.ndarray, share: float) -> np.ndarray:
    """Parts without negative ones, in proportion, that sum to the share."""
    parts = np.maximum(parts, 0.0)
    total = float(parts.sum())
    return parts * (share / total) if total > 0 else np.full(len(parts), share / len(parts))
