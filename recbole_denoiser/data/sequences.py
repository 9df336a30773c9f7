"""Item sequences from outside the data set: lists, tables and files, as flat arrays of ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_denoiser.errors import UserError

# names that a user, item or time column may have in a table, beside those of the data set
_COLUMNS = (("user", "user_id"), ("item", "item_id"), ("time", "timestamp"))


@dataclass(frozen=True)
class LeftOut:
    """An item of a sequence that is not read, because it is likely noise."""

    sequence: int  # number of the sequence
    item: int  # id
    posterior: float  # probability of being noise
    reason: str = ""


@dataclass
class Histories:
    """S sequences, oldest item first, one behind the other."""

    users: list[str]  # [S]
    start: np.ndarray  # [S + 1]: sequence s is entries start[s] .. start[s + 1]
    item: np.ndarray  # [N] ids
    time: np.ndarray  # [N] float64
    unknown: Counter[str]  # tokens that were left out
    timed: bool = True  # False: the times only say the order
    left_out: list[LeftOut] = field(default_factory=list)  # likely noise, not among the items
    posterior: np.ndarray | None = None  # [N] probability of each item of being noise, where a detector was asked

    def __len__(self) -> int:
        return len(self.users)

    @property
    def lengths(self) -> np.ndarray:
        """[S]"""
        return np.diff(self.start)

    def newest(self, rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The newest n items and times of some sequences, padded on the right [B, n], and their lengths [B]."""
        length = np.minimum(self.start[rows + 1] - self.start[rows], n)
        return self.newest_of(self.item, rows, n), self.newest_of(self.time, rows, n), length

    def newest_of(self, values: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
        """The newest n entries of a column [N] of some sequences, padded on the right with 0: [B, n]."""
        end = self.start[rows + 1]
        length = np.minimum(end - self.start[rows], n)
        inside = np.arange(n) < length[:, None]
        index = np.where(inside, (end - length)[:, None] + np.arange(n), 0)
        return np.where(inside, values[index], np.zeros(1, dtype=values.dtype))

    def entries(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every (place in ``rows``, item) of some sequences, with the items that were left out."""
        length = self.lengths[rows]
        offset = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        place, item = np.repeat(np.arange(len(rows)), length), self.item[np.repeat(self.start[rows], length) + offset]
        at = {int(row): number for number, row in enumerate(rows)}
        left = [(at[gone.sequence], gone.item) for gone in self.left_out if gone.sequence in at]
        more = np.array(left, dtype=np.int64).reshape(-1, 2)
        return np.concatenate([place, more[:, 0]]), np.concatenate([item, more[:, 1]])


def from_lists(
    sequences: Sequence[Sequence[Any]],
    ids: Mapping[str, int],
    users: Sequence[str] | None = None,
    times: Sequence[Sequence[float]] | None = None,
) -> Histories:
    """Lists of item tokens. Without times the items count as equally spaced."""
    sequences = list(sequences)
    for number, sequence in enumerate(sequences):
        if isinstance(sequence, (str, bytes)) or not hasattr(sequence, "__len__"):
            raise UserError(f"Sequence {number} is {sequence!r}: give a list of sequences, each a list of item tokens.")
    length = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    tokens = [str(token) for token in chain.from_iterable(sequences)]
    if times is None:
        time = np.arange(len(tokens)) - np.repeat(np.cumsum(length) - length, length)
    else:
        for number, (sequence, stamps) in enumerate(zip(sequences, times, strict=True)):
            if len(sequence) != len(stamps):
                raise UserError(f"Sequence {number} has {len(sequence)} items, but {len(stamps)} times.")
        time = np.fromiter(chain.from_iterable(times), dtype=np.float64, count=len(tokens))
    names = [str(user) for user in users] if users is not None else [str(number) for number in range(len(sequences))]
    owner = np.repeat(np.arange(len(sequences)), length)
    return _known(names, owner, tokens, time.astype(np.float64), ids, times is not None)


def from_frame(
    frame: pd.DataFrame,
    ids: Mapping[str, int],
    names: tuple[str, str, str],
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
) -> Histories:
    """A table with a row per interaction; ``names`` are the data set's names of the user, item and time columns.

    ``user``, ``item`` and ``time`` are the table's own, where they are neither these nor the usual ones.
    """
    for given in (user, item, time):
        if given is not None and given not in frame.columns:
            raise UserError(f"The table has no column '{given}'; it has: {', '.join(map(str, frame.columns))}.")
    names = (user or names[0], item or names[1], time or names[2])
    user, item = (_column(frame, place, names[place]) for place in (0, 1))
    if user is None or item is None:
        raise UserError(
            f"The table needs a column user (or {names[0]}) and a column item (or {names[1]}), and may have a column "
            f"time (or {names[2]}); it has: {', '.join(map(str, frame.columns))}."
        )
    time_name = _column(frame, 2, names[2])
    stamps = np.arange(len(frame), dtype=np.float64) if time_name is None else _seconds(frame[time_name])
    owner, users = pd.factorize(frame[user].astype(str))  # in the order of first appearance
    order = np.lexsort((stamps, owner))  # stable: rows of equal time stay in file order
    tokens = frame[item].astype(str).to_numpy()[order].tolist()
    return _known([str(name) for name in users], owner[order], tokens, stamps[order], ids, time_name is not None)


def _known(
    users: list[str], owner: np.ndarray, tokens: list[str], time: np.ndarray, ids: Mapping[str, int], timed: bool
) -> Histories:
    """``owner`` [N] is the number of each entry's sequence, in rising order."""
    item = np.fromiter((ids.get(token, 0) for token in tokens), dtype=np.int64, count=len(tokens))
    known = item > 0
    unknown = Counter(tokens[place] for place in np.flatnonzero(~known))
    start = np.searchsorted(owner[known], np.arange(len(users) + 1))
    return Histories(users, start, item[known], time[known], unknown, timed)


def _column(frame: pd.DataFrame, place: int, own: str) -> str | None:
    return next((name for name in (own, *_COLUMNS[place]) if name in frame.columns), None)


def _seconds(column: pd.Series) -> np.ndarray:
    """Numbers as they are; dates as seconds since 1970."""
    values = pd.to_numeric(column, errors="coerce")
    if values.isna().any():
        dates = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
        values = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    bad = np.flatnonzero(values.isna())
    if len(bad):
        raise UserError(
            f"Column '{column.name}': {column.iloc[bad[0]]!r} in row {bad[0] + 1} is neither a number nor a date "
            f"like 2024-05-31."
        )
    return values.to_numpy(np.float64)


def read_sequences(file: Path, ids: Mapping[str, int], names: tuple[str, str, str]) -> Histories:
    """A CSV file with the columns of ``from_frame``, or JSON lines: a list of items, or user, items and times."""
    try:
        if file.suffix in (".jsonl", ".ndjson"):
            return _json_lines(file, ids)
        table = pd.read_csv(file, dtype=str, keep_default_na=False, sep="\t" if file.suffix == ".tsv" else ",")
    except FileNotFoundError:
        raise UserError(f"Input file '{file}' does not exist.") from None
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise UserError(f"Input file '{file}' cannot be read: {error}.") from error
    return from_frame(table, ids, names)


def _json_lines(file: Path, ids: Mapping[str, int]) -> Histories:
    users: list[str] = []
    sequences: list[list[str]] = []
    times: list[list[float]] = []
    timed = True
    with file.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                if isinstance(record, list):
                    record = {"items": record}
                items = [str(item) for item in record["items"]]
                timed = timed and "times" in record
                stamps = [float(time) for time in record.get("times", range(len(items)))]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(
                    f'{file}, line {number}: expected a list of items or {{"user": ..., "items": [...], '
                    f'"times": [...]}}: {error}'
                ) from error
            if len(items) != len(stamps):
                raise UserError(f"{file}, line {number}: {len(items)} items, but {len(stamps)} times.")
            users.append(str(record.get("user", len(users))))
            sequences.append(items)
            times.append(stamps)
    return from_lists(sequences, ids, users, times if timed else None)
