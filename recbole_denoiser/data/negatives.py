"""Items a user has not interacted with: drawn per training position (eq. 7), and frozen once for evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from recbole_denoiser.errors import UserError


class SeenItems:
    """Set of (user, item) pairs with vectorised look-up, as one sorted array of keys."""

    def __init__(self, user: np.ndarray, item: np.ndarray, n_items: int) -> None:
        self.n_items = n_items  # ids 1 .. n_items - 1 are items, 0 is padding
        keys = user.astype(np.int64)  # in place from here on: there is one key per interaction
        keys *= n_items
        keys += item
        keys.sort()
        keys = keys[np.diff(keys, prepend=-1) != 0]
        self.keys = torch.from_numpy(keys)
        count = np.bincount(keys // n_items) if len(keys) else np.zeros(1, dtype=np.int64)
        self.count = torch.from_numpy(count)  # [users] how many different items each user has interacted with

    def contain(self, user: Tensor, item: Tensor) -> Tensor:
        """Whether each user has interacted with the item; ``user`` broadcasts against ``item``."""
        key = user * self.n_items + item
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return self.keys[place] == key

    def require_unmet(self, count: int) -> None:
        """UserError unless every user has at least ``count`` items left to draw."""
        fewest = self.n_items - 1 - int(self.count.max())
        if fewest < count:
            raise UserError(
                f"{count} negative item(s) per user are needed, but a user has all but {fewest} of the "
                f"{self.n_items - 1} items. Filter such users with user_inter_num_interval, or use loss_type: CE "
                f"and eval_args.mode: full, which need no negatives."
            )


def item_popularity(counts: Mapping[int, int], n_items: int) -> np.ndarray:
    """[n_items] share of each item among the training targets; an item without any counts as one, the padding as 0."""
    popularity = np.ones(n_items)
    for item, count in counts.items():
        popularity[item] = max(count, 1)
    popularity[0] = 0.0
    return popularity / popularity.sum()


class NegativeSampler:
    """Items outside the user's training history, ``count`` per position: uniform, or by ``popularity`` [n_items]."""

    def __init__(self, histories: SeenItems, count: int, popularity: np.ndarray | None = None) -> None:
        histories.require_unmet(1)
        self.histories, self.count = histories, count
        self.cumulative = None if popularity is None else torch.from_numpy(np.cumsum(popularity[1:]))

    def _items(self, shape: tuple[int, ...]) -> Tensor:
        if self.cumulative is None:
            return torch.randint(1, self.histories.n_items, shape)
        at = torch.rand(shape, dtype=torch.float64) * self.cumulative[-1]
        return 1 + torch.searchsorted(self.cumulative, at, right=True).clamp(max=len(self.cumulative) - 1)

    def draw(self, user: Tensor, length: int) -> Tensor:
        """[B] users -> [B, length, count] items."""
        user = user.view(-1, 1, 1).expand(-1, length, self.count)
        item = self._items(tuple(user.shape))
        seen = self.histories.contain(user, item).nonzero(as_tuple=True)
        while len(seen[0]):
            redrawn = self._items(tuple(seen[0].shape))
            item[seen] = redrawn
            again = self.histories.contain(user[seen], redrawn)
            seen = tuple(index[again] for index in seen)
        return item


def frozen_negatives(
    user: Tensor, histories: SeenItems, count: int, seed: int, name: str, popularity: np.ndarray | None = None
) -> Tensor:
    """[R] users -> [R, count] different items per row, none from the user's history, the same for every model.

    ``name`` (data set and phase) and ``seed`` fix the draw; the generator is separate from training's.
    ``popularity`` [n_items] makes the draw proportional to it instead of uniform.
    """
    histories.require_unmet(count)
    entropy = int.from_bytes(hashlib.sha256(f"{name}:{seed}".encode()).digest()[:8], "little")
    generator = np.random.default_rng(entropy)
    if popularity is None:

        def draw(size: int) -> np.ndarray:
            return generator.integers(1, histories.n_items, size)
    else:
        cumulative = np.cumsum(popularity[1:].astype(np.float64))

        def draw(size: int) -> np.ndarray:
            return 1 + np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")

    rows = len(user)
    item = torch.from_numpy(draw(rows * count).reshape(rows, count).astype(np.int64, copy=False))
    left = torch.arange(rows)  # rows that may still hold an item they must not
    for _ in range(10_000):
        bad = _unusable(histories, user[left], item, left)
        concerned = bad.any(1)
        if not concerned.any():
            return item
        left, bad = left[concerned], bad[concerned]
        redrawn = item[left]
        redrawn[bad] = torch.from_numpy(draw(int(bad.sum())).astype(np.int64, copy=False))
        item[left] = redrawn
    raise UserError(
        f"Could not draw {count} different popular items outside every user's history; use eval_args.mode: uni{count}."
    )


def _unusable(histories: SeenItems, user: Tensor, item: Tensor, rows: Tensor, at_once: int = 1 << 16) -> Tensor:
    """[rows, count]: items of the user's history, or that the row holds twice; a part of the rows at a time."""
    parts = [
        histories.contain(some_users[:, None], item[some_rows]) | _repeated(item[some_rows])
        for some_users, some_rows in zip(user.split(at_once), rows.split(at_once), strict=True)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, item.size(1), dtype=torch.bool)


def _repeated(item: Tensor) -> Tensor:
    """True where a row holds the same item at an earlier column."""
    ordered, order = item.sort(dim=1, stable=True)
    same = torch.zeros_like(item, dtype=torch.bool)
    same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(same).scatter(1, order, same)
