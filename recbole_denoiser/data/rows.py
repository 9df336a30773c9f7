"""Sequences as index ranges into one flat, sorted array of interactions, cut into batches on demand.

RecBole's augmentation copies every prefix of every user into a rows x n tensor per field. Here a row is two
integers, so that 10 million interactions need no more memory than themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor


@dataclass(frozen=True)
class Fields:
    """Names of the columns in the interactions that RecBole's models read."""

    user: str
    item: str
    length: str
    list_suffix: str
    negative_prefix: str

    @property
    def target_list(self) -> str:
        """The item sequence shifted by one: what each position has to predict (eq. 7)."""
        return f"target_{self.item}{self.list_suffix}"

    @property
    def negative_list(self) -> str:
        """Sampled items that the user has not interacted with, one or more per position."""
        return f"{self.negative_prefix}{self.item}{self.list_suffix}"

    @property
    def posterior(self) -> str:
        """Probability of each interaction of being noise; in a batch where the model asks for it."""
        return "noise_posterior"

    @property
    def target_posterior(self) -> str:
        """The same of what each position has to predict."""
        return f"target_{self.posterior}{self.list_suffix}"


class FlatSequences:
    """All interactions in columns, sorted by user and exact time."""

    def __init__(self, columns: dict[str, Tensor], fields: Fields) -> None:
        self.columns, self.fields = columns, fields
        user = columns[fields.user].numpy()  # [N]
        starts = np.flatnonzero(np.diff(user, prepend=-1))  # first interaction of each user
        counts = np.diff(starts, append=len(user))
        self.index_type = np.int32 if len(user) < 2**31 else np.int64  # half the memory where it suffices
        self.user_start = np.repeat(starts.astype(self.index_type), counts)  # [N] where each interaction's user begins

    def __len__(self) -> int:
        return len(self.columns[self.fields.user])

    @property
    def targets(self) -> np.ndarray:
        """Indices of all interactions that have a history: all but the first of each user."""
        return np.flatnonzero(self.user_start != np.arange(len(self)))


class SequenceRows:
    """Rows ``(history, target)`` over flat sequences; behaves like RecBole's Interaction where RecBole needs it.

    Row r reads the interactions ``start[r] .. target[r]-1`` and has to predict ``target[r]``. With ``whole``, every
    position predicts the next one: the row then also has the shifted targets. With a sampler, each position of a row
    gets negatives.
    """

    def __init__(
        self,
        flat: FlatSequences,
        start: np.ndarray,
        target: np.ndarray,
        max_length: int,
        whole: bool = False,
        negatives: Any = None,
    ) -> None:
        self.flat, self.max_length, self.whole, self.negatives = flat, max_length, whole, negatives
        self.to_longest = False  # cut a batch to its longest row instead of max_length
        self.start = torch.from_numpy(np.ascontiguousarray(start, dtype=flat.index_type))  # [R]
        self.target = torch.from_numpy(np.ascontiguousarray(target, dtype=flat.index_type))  # [R]

    @classmethod
    def prefixes(cls, flat: FlatSequences, target: np.ndarray, max_length: int) -> SequenceRows:
        """RecBole's rows: for each target the newest ``max_length`` interactions before it."""
        start = np.maximum(flat.user_start[target], target - max_length)
        return cls(flat, start, target, max_length)

    def __len__(self) -> int:
        return len(self.target)

    def __iter__(self) -> Iterator[str]:
        return iter(self.flat.columns)

    def __contains__(self, field: str) -> bool:
        return field in self.flat.columns

    @property
    def columns(self) -> list[str]:
        return list(self.flat.columns)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            if index == self.flat.fields.length:
                return (self.target - self.start).long()
            if index not in self.flat.columns and index.removesuffix(self.flat.fields.list_suffix) in self.flat.columns:
                return HistoryColumn(self, index)
            return self.flat.columns[index][self.target.long()]
        if isinstance(index, slice):
            return self.cut(torch.arange(len(self))[index])
        index = torch.as_tensor(np.asarray(index))
        return self.cut(index.nonzero().view(-1) if index.dtype == torch.bool else index.view(-1).long())

    def subset(self, index: np.ndarray) -> SequenceRows:
        """The rows at ``index``, still uncut."""
        rows = SequenceRows(
            self.flat,
            self.start.numpy()[index],
            self.target.numpy()[index],
            self.max_length,
            self.whole,
            self.negatives,
        )
        rows.to_longest = self.to_longest
        return rows

    def sort(self, by: str | list[str], ascending: bool = True) -> None:
        """Stable sort of the rows by fields of their targets, first field most significant."""
        order = np.arange(len(self))
        for field in reversed([by] if isinstance(by, str) else by):
            key = self[field].numpy()[order]
            order = order[np.argsort(key if ascending else -key, kind="stable")]
        self.start, self.target = self.start[order], self.target[order]

    def cut(self, rows: Tensor) -> Interaction:
        """The rows as padded tensors, padding on the right as in RecBole."""
        flat, fields = self.flat, self.flat.fields
        start, target = self.start[rows].long(), self.target[rows].long()  # [B]
        length = target - start
        width = max(int(length.max()), 1) if self.to_longest and len(length) else self.max_length
        steps = torch.arange(width)
        inside = steps < length[:, None]  # [B, n]
        index = torch.where(inside, start[:, None] + steps, 0)  # [B, n]
        batch = {fields.length: length}
        for name, column in flat.columns.items():
            batch[name] = column[target]
            if name != fields.user:
                batch[name + fields.list_suffix] = _padded(column, index, inside)
        if self.whole:
            batch[fields.target_list] = _padded(flat.columns[fields.item], index + 1, inside)
            if fields.posterior in flat.columns:
                batch[fields.target_posterior] = _padded(flat.columns[fields.posterior], index + 1, inside)
        if self.negatives is not None:
            batch[fields.negative_list] = self.negatives.draw(batch[fields.user], width)
        return Interaction(batch)

    def covered_targets(self) -> np.ndarray:
        """Flat indices of all interactions that these rows train on, each as often as it is a target."""
        if not self.whole:
            return self.target.numpy()
        length = (self.target - self.start).long().numpy()
        offsets = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return np.repeat(self.start.numpy() + 1, length) + offsets


class HistoryColumn:
    """A column of histories [R, n] of which RecBole's models ask for single rows; rows are cut when they are asked."""

    def __init__(self, rows: SequenceRows, name: str) -> None:
        self.rows, self.name = rows, name

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Tensor:
        one = np.ndim(index) == 0 and not isinstance(index, slice)
        found = self.rows[[int(index)] if one else index][self.name]
        return found[0] if one else found


def _padded(column: Tensor, index: Tensor, inside: Tensor) -> Tensor:
    values = column[index.clamp(max=len(column) - 1)]  # [B, n, ...]
    return torch.where(inside.view(inside.shape + (1,) * (values.dim() - 2)), values, 0)


def sequence_rows(
    flat: FlatSequences, train_target: np.ndarray, max_length: int, windows: bool, negatives: Any
) -> SequenceRows:
    """One training row per user (or per window of n) from the targets of the training split.

    The training targets of a user are the first ones of the user's history, so a user is described by the first
    interaction and the last training target. Each target is predicted in exactly one window.
    """
    if len(train_target) == 0:
        return SequenceRows(flat, train_target, train_target, max_length, True, negatives)
    first = flat.user_start[train_target]
    is_last = np.append(first[1:] != first[:-1], True)
    last, first = train_target[is_last], first[is_last]  # [users]
    count = np.ceil((last - first) / max_length).astype(np.int64) if windows else np.ones(len(last), dtype=np.int64)
    nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)  # 0 = newest window of its user
    target = np.repeat(last, count) - nth * max_length
    start = np.maximum(np.repeat(first, count), target - max_length)
    return SequenceRows(flat, start, target, max_length, True, negatives)
