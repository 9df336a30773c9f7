"""Co-occurrence counts of the items of a group of users.

    k_ij  = sum of 1 / distance over places of i and j in one sequence, at most `window` apart (k is symmetric)
    deg_i = sum_j k_ij,   D = sum_i deg_i,   pop_i = how often i occurs,   q_i = pop_i / sum_j pop_j

Item id n (one more than there are) is the empty item, without counts or vector: it stands for items that are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse

DENSE_ITEMS = 6000  # up to here the table is a plain array: 144 MB
CHUNK = 1_000_000  # interactions counted at once


@dataclass
class Counts:
    """Counts of `n_items` items; `table` is [n + 1, n + 1], dense or CSR, the last row and column empty."""

    table: np.ndarray | sparse.csr_matrix
    popularity: np.ndarray  # [n + 1]
    degree: np.ndarray = field(init=False)  # [n + 1]

    def __post_init__(self) -> None:
        self.degree = np.asarray(self.table.sum(1), dtype=np.float64).ravel()

    @property
    def n_items(self) -> int:
        return len(self.popularity) - 1

    @property
    def total(self) -> float:
        """D, at least 1 so that it can divide."""
        return max(float(self.degree.sum()), 1.0)

    @property
    def frequency(self) -> np.ndarray:
        """q: [n + 1]."""
        return self.popularity / max(float(self.popularity.sum()), 1.0)

    def pairs(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """k of each pair; the arrays have one shape.

        SciPy's look-up reads the whole table at every call to see that it is in order; a sorted search does not.
        """
        if isinstance(self.table, np.ndarray):
            return self.table[first, second]
        wanted = (first.astype(np.int64) * len(self.popularity) + second).ravel()
        order = np.argsort(wanted)  # neighbours in the table are looked up one after the other
        found = np.zeros(len(wanted), np.float32)
        if len(self._places):
            wanted = wanted[order]
            at = np.minimum(np.searchsorted(self._places, wanted), len(self._places) - 1)
            found[order] = np.where(self._places[at] == wanted, self.table.data[at], 0)
        return found.reshape(first.shape)

    @cached_property
    def _places(self) -> np.ndarray:
        """row * (n + 1) + column of every entry of the CSR table, ascending: [entries]."""
        assert not isinstance(self.table, np.ndarray)
        self.table.sum_duplicates()  # also sorts the columns of each row
        rows = np.repeat(np.arange(self.table.shape[0], dtype=np.int64), np.diff(self.table.indptr))
        return rows * self.table.shape[1] + self.table.indices


def count(user: np.ndarray, item: np.ndarray, n_items: int, window: int, by_distance: bool = True) -> Counts:
    """Count rows grouped by user in time order; without `by_distance` every pair counts 1, as people count."""
    size = n_items + 1
    popularity = np.bincount(item, minlength=size).astype(np.float64)
    table: np.ndarray | sparse.csr_matrix
    if size <= DENSE_ITEMS:
        half = np.zeros(size * size)
        for first, second, weight in _pairs(user, item, window, by_distance):
            half += np.bincount(first * size + second, weight, minlength=size * size)
        table = half.reshape(size, size).astype(np.float32)
        table = table + table.T
    else:
        table = sparse.csr_matrix((size, size), dtype=np.float32)
        for first, second, weight in _pairs(user, item, window, by_distance):
            table = table + sparse.coo_matrix((weight, (first, second)), shape=(size, size)).tocsr()
        table = (table + table.T).tocsr()
        table.sort_indices()
    return Counts(table, popularity)


def _pairs(
    user: np.ndarray, item: np.ndarray, window: int, by_distance: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs (i before j) within the window and 1 / distance (or 1), in pieces of about CHUNK rows times the window."""
    rows = len(item)
    for start in range(0, rows, CHUNK):
        stop = min(start + CHUNK, rows)
        first, second, weights = [], [], []
        for distance in range(1, window + 1):
            last = min(stop, rows - distance)
            if last <= start:
                break
            same = user[start:last] == user[start + distance : last + distance]
            first.append(item[start:last][same])
            second.append(item[start + distance : last + distance][same])
            weights.append(np.full(len(first[-1]), 1.0 / distance if by_distance else 1.0, np.float32))
        if first:
            yield np.concatenate(first), np.concatenate(second), np.concatenate(weights)
