"""Why an interaction looks like noise, in numbers that people can read: which neighbours it does not go with.

For an item x and a neighbour z within the detector's window:
    together = how often x and z stand within the window at OTHER users
    chance   = deg_x deg_z / D, as often as that would happen if items were shuffled        (counts.py)
Pairs are counted whole, however far apart: these are numbers of times, not the detector's weights by distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recbole_denoiser.detect.counts import count


@dataclass
class Evidence:
    """Of one interaction; neighbours are row numbers."""

    others: int  # interactions of other users with the item
    neighbours: list[int]
    together: list[int]
    chance: list[float]


def evidence(
    user: np.ndarray, item: np.ndarray, n_items: int, rows: Sequence[int] | np.ndarray, window: int
) -> list[Evidence]:
    """Of some rows of flat data, grouped by user and in time order."""
    counts = count(user, item, n_items, window, by_distance=False)
    found = []
    for row in rows:
        first, end = np.searchsorted(user, user[row], "left"), np.searchsorted(user, user[row], "right")
        own = _own_pairs(item[first:end], int(item[row]), window)
        near = [z for z in range(max(first, row - window), min(end, row + window + 1)) if z != row]
        x, z = np.full(len(near), item[row]), item[near]
        k = counts.pairs(x, z) - np.array([own[int(code)] for code in z])
        degree = max(float(counts.degree[item[row]]) - sum(own.values()), 0.0)
        others = int(counts.popularity[item[row]]) - int((item[first:end] == item[row]).sum())
        chance = degree * counts.degree[z] / counts.total
        found.append(Evidence(others, near, np.rint(k).astype(int).tolist(), np.round(chance, 2).tolist()))
    return found


def _own_pairs(sequence: np.ndarray, x: int, window: int) -> Counter[int]:
    """How often each item stands within the window of x in one sequence, counted as counts.py does (x with x twice)."""
    pairs: Counter[int] = Counter()
    for place in np.flatnonzero(sequence == x):
        around = np.r_[sequence[max(0, place - window) : place], sequence[place + 1 : place + window + 1]]
        pairs.update(around.tolist())
    return pairs
