"""Features of an item x at a place, from its neighbours z_1 .. z_c within the window and statistics of other users.

    popularity   log(pop_x + 1)                                  [rarity alone finds uniform noise with AUC 0.7-0.8]
    given        log(g + e),  g = mean_z (k_xz + mu q_x) / (deg_z + mu),  e = 0.1 / sum pop
    lift         log((g + e) / (q_x + e))
    seen         share of neighbours with k_xz > 0
    pmi          mean_z log(k_xz D / (max(deg_x, 1) max(deg_z, 1)) + 0.001)
    cosine       mean_z v_x . v_z
    nearest      max_z v_x . v_z                                 [-1 without neighbours]
    agreement    mean of v_z . v_z' over pairs of neighbours     [how much the neighbours agree without x]
    neighbours   log(c + 1)
with item texts: text, text_nearest, the same two cosines of the text vectors; and with w_z = 1 / distance of z, and
the company that x keeps elsewhere, s_x = sum_j k_xj v_j / deg_x:
    near_lift    lift with g = sum_z w_z (..) / sum_z w_z
    near_cosine  sum_z w_z v_x . v_z / sum_z w_z
    company      cosine of s_x with sum_z w_z v_z                [are these the neighbours that x has elsewhere?]
    usual        v_x . s_x                                       [how much x agrees with its neighbours elsewhere]
    usual_around mean_z v_z . s_z
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from recbole_denoiser.detect.counts import Counts
from recbole_denoiser.detect.vectors import unit_rows

NAMES = ("popularity", "given", "lift", "seen", "pmi", "cosine", "nearest", "agreement", "neighbours")
TEXT_NAMES = ("text", "text_nearest")
NEAR_NAMES = ("near_lift", "near_cosine", "company", "usual", "usual_around")
MU = 15.0
CHUNK = 8192  # places at once


@dataclass
class Statistics:
    """What the users of the other folds say: counts, vectors [n + 1, d], text vectors [n + 1, t] or none."""

    counts: Counts
    vectors: np.ndarray
    texts: np.ndarray | None = None
    mu: float = MU
    company: np.ndarray = field(init=False)  # s, scaled to length 1: [n + 1, d]
    usual: np.ndarray = field(init=False)  # v . s: [n + 1]

    def __post_init__(self) -> None:
        mean = np.asarray(self.counts.table @ self.vectors) / np.maximum(self.counts.degree, 1e-9)[:, None]
        self.company, self.usual = unit_rows(mean), (mean * self.vectors).sum(1)

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES + (() if self.texts is None else TEXT_NAMES) + NEAR_NAMES


def offsets(window: int) -> np.ndarray:
    """Places of the neighbours from the item: [2 window]."""
    return np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)])


def neighbours(
    user: np.ndarray, item: np.ndarray, places: np.ndarray, window: int, empty: int
) -> tuple[np.ndarray, np.ndarray]:
    """Items of the same user within the window of each place, and whether there is one: [places, 2 window] each."""
    index = places[:, None] + offsets(window)
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
    near = 1.0 / np.abs(offsets(window)).astype(np.float32)  # w
    for start in range(0, len(places), CHUNK):
        part = slice(start, start + CHUNK)
        around, present = neighbours(user, item, places[part], window, empty)
        out[part] = _features(at[part], around, present, near, statistics)
    return out


def _features(
    x: np.ndarray, z: np.ndarray, present: np.ndarray, near: np.ndarray, statistics: Statistics
) -> np.ndarray:
    """x [m], z and present [m, w], near [w] -> [m, features]."""
    counts, mu = statistics.counts, statistics.mu
    number = present.sum(1)  # c
    divide = np.maximum(number, 1)
    weight = np.where(present, near, np.float32(0))
    weight /= np.maximum(weight.sum(1), 1e-9)[:, None]

    def mean(values: np.ndarray) -> np.ndarray:
        return np.where(present, values, 0.0).sum(1) / divide

    k = counts.pairs(np.broadcast_to(x[:, None], z.shape), z)
    q, degree = counts.frequency, counts.degree
    e = 0.1 / max(float(counts.popularity.sum()), 1.0)
    each = (k + mu * q[x][:, None]) / (degree[z] + mu)
    given, near_given = mean(each), (each * weight).sum(1)
    scale = counts.total / np.maximum(degree[x], 1.0)
    pmi = mean(np.log(k * (scale[:, None] / np.maximum(degree[z], 1.0)) + 1e-3))
    around = statistics.vectors[z]  # [m, w, d]
    cosine, nearest, agreement = _cosines(around, statistics.vectors[x], present, number)
    columns = [
        np.log(counts.popularity[x] + 1.0),
        np.log(given + e),
        np.log((given + e) / (q[x] + e)),
        mean(k > 0),
        pmi,
        cosine.sum(1) / divide,
        nearest,
        agreement,
        np.log(number + 1.0),
    ]
    if statistics.texts is not None:
        text, text_nearest, _ = _cosines(statistics.texts[z], statistics.texts[x], present, number)
        columns += [text.sum(1) / divide, text_nearest]
    middle = unit_rows(np.matmul(weight[:, None, :], around)[:, 0, :])  # [m, d]
    columns += [
        np.log((near_given + e) / (q[x] + e)),
        (cosine * weight).sum(1),
        (statistics.company[x] * middle).sum(1),
        statistics.usual[x],
        mean(statistics.usual[z]),
    ]
    return np.column_stack(columns)


def _cosines(
    around: np.ndarray, own: np.ndarray, present: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cosines of x with its neighbours [m, w] (0 where there is none), the largest, and the mean among the neighbours.

    around: vectors of the neighbours [m, w, d], zero where there is none; own: vectors of the items [m, d].
    """
    cosine = np.matmul(around, own[:, :, None])[:, :, 0]  # [m, w]
    total = around.sum(1)  # [m, d]
    largest = np.where(present, cosine, -1.0).max(1)
    # sum over pairs z != z' of v_z . v_z' = |sum v_z|^2 - sum |v_z|^2
    squares = np.einsum("mwd,mwd->m", around, around)
    among = ((total * total).sum(1) - squares) / np.maximum(number * (number - 1), 1)
    return cosine, largest, among
