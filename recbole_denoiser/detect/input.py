"""Lists of sequences and frames turned into flat rows, and answers turned back into the input's order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from recbole_denoiser.errors import UserError


@dataclass
class Flat:
    """Rows grouped by user, in time order; `order` holds the input's row number of each."""

    user: np.ndarray
    item: np.ndarray
    tokens: list[Any]  # of item ids 0 .. n - 1
    texts: list[str] | None
    order: np.ndarray
    lengths: np.ndarray | None  # of the sequences, for lists

    def back(self, values: np.ndarray) -> Any:
        """Values of the rows in the order of the input; a list of arrays where the input was a list."""
        out = np.empty_like(values)
        out[self.order] = values
        return out if self.lengths is None else np.split(out, np.cumsum(self.lengths)[:-1])


def from_lists(sequences: Iterable[Sequence[Hashable]], text: Mapping[Any, Any] | None) -> Flat:
    """One sequence of item tokens per user, in time order."""
    if text is not None and not isinstance(text, Mapping):
        raise UserError("text: for a list of sequences a mapping from item to text is needed")
    rows: list[list[Any]] = []
    for number, sequence in enumerate(sequences):
        if isinstance(sequence, (str, bytes)) or not isinstance(sequence, Iterable):
            raise UserError(f"sequence {number} is {sequence!r:.60}; a list of items is needed for each user")
        rows.append(list(sequence))
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    items = [token.item() if isinstance(token, np.generic) else token for row in rows for token in row]
    if not items:
        raise UserError("there are no interactions to look at")
    for place, token in enumerate(items):
        if token is None or token != token or not isinstance(token, Hashable):
            number = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
            raise UserError(f"sequence {number} holds {token!r:.60}; items must be numbers or texts, not missing")
    tokens = ordered(set(items))
    code = {token: number for number, token in enumerate(tokens)}
    item = np.fromiter((code[token] for token in items), np.int64, len(items))
    texts = None if text is None else [words(text.get(token)) for token in tokens]
    return Flat(np.repeat(np.arange(len(rows)), lengths), item, tokens, texts, np.arange(len(items)), lengths)


def from_frame(
    frame: pd.DataFrame,
    user: str | None,
    item: str | None,
    time: str | None,
    text: str | Sequence[str] | Mapping | None,
) -> Flat:
    """Rows in any order; sorted by user, then time; equal times keep the order of the rows."""
    if user is None or item is None:
        raise UserError("a frame needs user= and item=, the names of its columns (and time= where it has times)")
    columns = [] if text is None or isinstance(text, Mapping) else [text] if isinstance(text, str) else list(text)
    for column in [user, item, *([] if time is None else [time]), *columns]:
        if column not in frame.columns:
            raise UserError(f"the frame has no column {column!r}; it has {', '.join(map(str, frame.columns))}")
    if not len(frame):
        raise UserError("there are no interactions to look at: the frame is empty")
    for column in (user, item):
        if missing := int(frame[column].isna().sum()):
            raise UserError(f"column {column!r}: {missing} of {len(frame)} values are missing")
    user_code, _ = coded(frame[user])
    item_code, tokens = coded(frame[item])
    order = np.lexsort((np.arange(len(frame)), moments(frame, time), user_code))
    texts: list[str] | None = None
    if isinstance(text, Mapping):
        texts = [words(text.get(token)) for token in tokens]
    elif columns:
        first = pd.Series(np.arange(len(frame))).groupby(item_code).first().to_numpy()  # a row of each item
        cells = [frame[column].to_numpy()[first] for column in columns]
        texts = [" ".join(words(cell) for cell in of_item) for of_item in zip(*cells, strict=True)]
    return Flat(user_code[order], item_code[order], tokens, texts, order, None)


def coded(column: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Codes of the values, in an order that does not depend on the order of the rows."""
    codes, found = pd.factorize(column)
    values = [value.item() if isinstance(value, np.generic) else value for value in found]
    tokens = ordered(values)
    place = {token: number for number, token in enumerate(tokens)}
    return np.array([place[value] for value in values], dtype=np.int64)[codes], tokens


def ordered(tokens: Iterable[Any]) -> list[Any]:
    """Sorted where the tokens can be compared, else by type and text."""
    try:
        return sorted(tokens)
    except TypeError:
        return sorted(tokens, key=lambda token: (type(token).__name__, repr(token)))


def moments(frame: pd.DataFrame, time: str | None) -> np.ndarray:
    """Times as numbers that sort; row numbers where the frame has none."""
    if time is None:
        return np.arange(len(frame))
    values = frame[time]
    if missing := int(values.isna().sum()):
        raise UserError(f"column {time!r}: {missing} of {len(frame)} times are missing; fill or drop those rows")
    if pd.api.types.is_datetime64_any_dtype(values):
        return values.astype("int64").to_numpy()
    if not pd.api.types.is_numeric_dtype(values):
        raise UserError(f"column {time!r} holds {values.iloc[0]!r:.40}; times must be numbers or dates")
    return values.to_numpy()


def words(value: Any) -> str:
    """The text of a cell: '' where it is missing, the parts joined where it is a list."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, (list, tuple, set, np.ndarray)):
        return " ".join(words(part) for part in value)
    return str(value)
