"""Features of an item x at a place, from its neighbours z_1 .. z_c within the window and statistics of other users.

    rarity       log(pop_x + 1)                                  [popularity alone finds uniform noise with AUC 0.7-0.8]
    given        log(g + e),  g = mean_z (k_xz + mu q_x) / (deg_z + mu),  e = 0.1 / sum pop
    lift         log((g + e) / (q_x + e))
    seen         share of neighbours with k_xz > 0
    pmi          mean_z log(k_xz D / (max(deg_x, 1) max(deg_z, 1)) + 0.001)
    cosine       mean_z v_x . v_z
    nearest      max_z v_x . v_z                                 [-1 without neighbours]
    agreement    mean of v_z . v_z' over pairs of neighbours     [how much the neighbours agree without x]
    neighbours   log(c + 1)
and with item texts: text, text_nearest, the same two cosines of the text vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recbole_denoiser.detect.counts import Counts

NAMES = ("popularity", "given", "lift", "seen", "pmi", "cosine", "nearest", "agreement", "neighbours")
TEXT_NAMES = ("text", "text_nearest")
MU = 50.0
CHUNK = 8192  # places at once


@dataclass
class Statistics:
    """What the users of the other folds say: counts, vectors [n + 1, d], text vectors [n + 1, t] or none."""

    counts: Counts
    vectors: np.ndarray
    texts: np.ndarray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES if self.texts is None else NAMES + TEXT_NAMES


def neighbours(
    user: np.ndarray, item: np.ndarray, places: np.ndarray, window: int, empty: int
) -> tuple[np.ndarray, np.ndarray]:
    """Items of the same user within the window of each place, and whether there is one: [places, 2 window] each."""
    offsets = np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)])
    index = places[:, None] + offsets
    inside = (index >= 0) & (index < len(item))
    index = np.where(inside, index, 0)
    inside &= user[index] == user[places][:, None]
    return np.where(inside, item[index], empty), inside


def features(
    user: np.ndarray, item: np.ndarray, places: np.ndarray, at: np.ndarray, statistics: Statistics, window: int
) -> np.ndarray:
    """Features of item at[m] standing at places[m]: [places, features], float32."""
    out = np.empty((len(places), len(statistics.names)), np.float32)
    empty = statistics.counts.n_items
    for start in range(0, len(places), CHUNK):
        part = slice(start, start + CHUNK)
        around, present = neighbours(user, item, places[part], window, empty)
        out[part] = _features(at[part], around, present, statistics)
    return out


def _features(x: np.ndarray, z: np.ndarray, present: np.ndarray, statistics: Statistics) -> np.ndarray:
    """x [m], z and present [m, w] -> [m, features]."""
    counts = statistics.counts
    number = present.sum(1)  # c
    divide = np.maximum(number, 1)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.where(present, values, 0.0).sum(1) / divide

    k = counts.pairs(np.broadcast_to(x[:, None], z.shape), z)
    q, degree = counts.frequency, counts.degree
    e = 0.1 / max(float(counts.popularity.sum()), 1.0)
    given = mean((k + MU * q[x][:, None]) / (degree[z] + MU))
    scale = counts.total / np.maximum(degree[x], 1.0)
    pmi = mean(np.log(k * (scale[:, None] / np.maximum(degree[z], 1.0)) + 1e-3))
    cosine, nearest, agreement = _cosines(statistics.vectors, x, z, present, number)
    columns = [
        np.log(counts.popularity[x] + 1.0),
        np.log(given + e),
        np.log((given + e) / (q[x] + e)),
        mean(k > 0),
        pmi,
        cosine,
        nearest,
        agreement,
        np.log(number + 1.0),
    ]
    if statistics.texts is not None:
        columns += _cosines(statistics.texts, x, z, present, number)[:2]
    return np.column_stack(columns)


def _cosines(
    vectors: np.ndarray, x: np.ndarray, z: np.ndarray, present: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and largest cosine of x with its neighbours, and the mean cosine among the neighbours: [m] each."""
    around = vectors[z]  # [m, w, d]
    cosine = np.matmul(around, vectors[x][:, :, None])[:, :, 0]  # [m, w]
    total = around.sum(1)  # [m, d]
    divide = np.maximum(number, 1)
    largest = np.where(present, cosine, -1.0).max(1)
    # sum over pairs z != z' of v_z . v_z' = |sum v_z|^2 - sum |v_z|^2
    own = np.einsum("mwd,mwd->m", around, around)
    among = ((total * total).sum(1) - own) / np.maximum(number * (number - 1), 1)
    return np.where(present, cosine, 0.0).sum(1) / divide, largest, among
