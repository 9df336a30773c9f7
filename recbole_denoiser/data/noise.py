"""Synthetic noise in the training data (section 5.3, RQ2), and a record of where it went.

A share of the observed training interactions is noise, of one of four kinds (``train_noise_kind``):

- replace: another item stands in their place, drawn uniformly from all items (the paper);
- popularity: the same, drawn by how often an item is in the training part, so that rarity tells nothing;
- segment: runs of 3 to 5 consecutive items of another user stand in the place of as many (a shared account);
- insert: items drawn uniformly stand between the others, which all stay. The share is of what is then there.

A drawn item is neither held out for the same user (validation and test) nor the item that was there. The number is
exact: round(share * N_train), with ``insert`` round(share / (1 - share) * N_train).

What noise reaches. The paper corrupts "the training data". So validation and test items, the split and the evaluation
negatives (drawn against the clean histories) are those of the clean data, the same for every share. The history that a
model reads when it is evaluated begins with the user's training items, and these are the corrupted ones: they are
what was observed. The same holds for every model. With ``eval_noise`` only these histories are corrupted, and what the
model is trained on is not.

Draws are nested: with one seed, the interactions replaced at 10 % are also replaced at 20 %, by the same items, so that
a curve over shares does not mix in the difference between independent corruptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from recbole_denoiser.data.negatives import SeenItems
from recbole_denoiser.data.rows import FlatSequences
from recbole_denoiser.data.split import TEST, VALID
from recbole_denoiser.data.view import View
from recbole_denoiser.errors import UserError

_STREAM = 0x6E6F697365  # keeps these draws apart from others made with the same seed
_SHORTEST, _LONGEST = 3, 5  # items of a segment
_TRIES = 10_000


@dataclass(frozen=True)
class Noise:
    """Injected interactions, in the order of the sequences that hold them."""

    kind: str
    index: np.ndarray  # [K] their places in the sequences with noise, ascending
    anchor: np.ndarray  # [K] in the sequences without: what was replaced, or what they are inserted behind
    original: np.ndarray  # [K] item ids of what was replaced; 0: inserted
    drawn: np.ndarray  # [K] item ids
    eligible: np.ndarray  # [N_train] training interactions of the sequences without noise


def inject(view: View, kind: str, share: float, seed: int, n_items: int) -> tuple[View, Noise]:
    """The view with noise in its training part, and what was done."""
    draw = _Draw(view, share, seed, n_items)
    noise = draw.segments() if kind == "segment" else draw.items(kind)
    return (_inserted if kind == "insert" else _replaced)(view, noise), noise


class _Draw:
    """Which interactions become noise, and of which items; always drawn for all, and a share of it is used."""

    def __init__(self, view: View, share: float, seed: int, n_items: int) -> None:
        fields, columns = view.flat.fields, view.flat.columns
        self.share, self.n_items = share, n_items
        self.user, self.item = columns[fields.user].numpy(), columns[fields.item].numpy()  # [N]
        held_out = (view.phase == VALID) | (view.phase == TEST)
        self.forbidden = SeenItems(self.user[held_out], self.item[held_out], n_items)
        if n_items - 1 - int(self.forbidden.count.max()) < 2:
            raise self._impossible(f"with {n_items - 1} items there is none")
        self.random = np.random.default_rng((seed, _STREAM))
        self.eligible = view.training

    def _impossible(self, why: str) -> UserError:
        return UserError(
            f"train_noise = {self.share:g}: {why} to draw that is neither held out for the user nor the replaced item."
        )

    def items(self, kind: str) -> Noise:
        """One item at a time: replace, popularity, insert."""
        order = self.random.permutation(self.eligible)
        if kind == "popularity":
            drawn = self._until_allowed(order, lambda n: self.item[self.random.choice(self.eligible, n)])
        else:
            drawn = self._until_allowed(order, lambda n: self.random.integers(1, self.n_items, n))
        if kind == "insert":
            count = round(self.share / (1 - self.share) * len(order))
            if count > len(order):
                raise UserError(f"train_noise = {self.share:g}: kind insert takes a share up to 0.5.")
        else:
            count = round(self.share * len(order))
        place = np.argsort(order[:count])
        anchor, drawn = order[:count][place], drawn[:count][place]
        if kind == "insert":
            return Noise(kind, anchor + 1 + np.arange(count), anchor, np.zeros_like(drawn), drawn, self.eligible)
        return Noise(kind, anchor, anchor, self.item[anchor], drawn, self.eligible)

    def _until_allowed(self, order: np.ndarray, draw: Callable[[int], np.ndarray]) -> np.ndarray:
        """An item for every interaction in ``order``."""
        drawn = draw(len(order))
        wrong = np.arange(len(order))
        for _ in range(_TRIES):
            wrong = wrong[self._not_allowed(order[wrong], drawn[wrong])]
            if not len(wrong):
                return drawn
            drawn[wrong] = draw(len(wrong))
        raise self._impossible("there is too little")

    def _not_allowed(self, place: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """For each place whether the item must not stand there."""
        same = drawn == self.item[place]
        if not len(self.forbidden.keys):
            return same
        user = torch.from_numpy(self.user[place])
        return same | self.forbidden.contain(user, torch.from_numpy(drawn)).numpy()

    def segments(self) -> Noise:
        """Runs of another user in the place of as many items; the last one is cut where the share is reached."""
        start, length = self._runs()
        order = self.random.permutation(len(start))
        start, length = start[order], length[order]  # [runs] places among ``eligible``
        source = self._donors(start, length)
        count = round(self.share * len(self.eligible))
        if count > length.sum():
            raise UserError(
                f"train_noise = {self.share:g}: only {length.sum():,} of {len(self.eligible):,} training items are in "
                f"runs of {_SHORTEST} to {_LONGEST}, which is what kind segment replaces."
            )
        step = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        into, taken = (self.eligible[np.repeat(first, length) + step][:count] for first in (start, source))
        place = np.argsort(into)
        index = into[place]
        return Noise("segment", index, index, self.item[index], self.item[taken[place]], self.eligible)

    def _runs(self) -> tuple[np.ndarray, np.ndarray]:
        """Every user's training items cut into runs of 3 to 5; what is left over at the end stays."""
        owner = self.user[self.eligible]
        begin = np.flatnonzero(np.diff(owner, prepend=-1))
        starts, lengths = [], []
        for first, end in zip(begin, np.append(begin[1:], len(owner)), strict=True):
            while end - first >= _SHORTEST:
                length = min(int(self.random.integers(_SHORTEST, _LONGEST + 1)), end - first)
                starts.append(first)
                lengths.append(length)
                first += length
        return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)

    def _donors(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        """[runs] where, among ``eligible``, the run of another user begins that takes the place of each."""
        owner = self.user[self.eligible]
        source = np.zeros(len(start), dtype=np.int64)
        wrong = np.arange(len(start))
        for _ in range(_TRIES):
            if not len(wrong):
                return source
            source[wrong] = self.random.integers(0, len(owner) - length[wrong] + 1)
            wrong = wrong[self._bad_donor(owner, start[wrong], length[wrong], source[wrong])]
        raise self._impossible("there is no run of another user")

    def _bad_donor(self, owner: np.ndarray, start: np.ndarray, length: np.ndarray, source: np.ndarray) -> np.ndarray:
        bad = (owner[source] == owner[start]) | (owner[source] != owner[source + length - 1])
        for step in range(_LONGEST):
            inside = np.flatnonzero(~bad & (step < length))
            place, taken = self.eligible[start[inside] + step], self.eligible[source[inside] + step]
            bad[inside] = self._not_allowed(place, self.item[taken])
        return bad


def _replaced(view: View, noise: Noise) -> View:
    """The view with the drawn items in the place of others."""
    flat = view.flat
    item = flat.columns[flat.fields.item].clone()
    item[torch.from_numpy(noise.index)] = torch.from_numpy(noise.drawn)
    injected = view.noise.copy()
    injected[noise.index] = True
    return replace(view, flat=FlatSequences({**flat.columns, flat.fields.item: item}, flat.fields), noise=injected)


def _inserted(view: View, noise: Noise) -> View:
    """The view with more interactions: each as the one it stands behind, but for the item."""
    flat = view.flat
    copies = np.ones(len(view), dtype=np.int64)
    copies[noise.anchor] += 1
    source = np.repeat(np.arange(len(view)), copies)
    index = torch.from_numpy(source)
    columns = {name: column[index] for name, column in flat.columns.items()}
    columns[flat.fields.item][torch.from_numpy(noise.index)] = torch.from_numpy(noise.drawn)
    origin, injected = view.origin[source], view.noise[source]
    origin[noise.index], injected[noise.index] = -1, True
    return View(FlatSequences(columns, flat.fields), view.phase[source], origin, injected)


def noise_arrays(
    view: View, noise: Noise, users: np.ndarray, items: np.ndarray, share: float, seed: int
) -> dict[str, np.ndarray]:
    """What noise.npz holds: for each injected interaction the user, its place in the user's history with noise
    (0 = oldest), and both items ("": inserted); ``view`` is that with noise, ``users`` and ``items`` tokens by id."""
    flat = view.flat
    user = flat.columns[flat.fields.user].numpy()[noise.index]
    tokens = np.asarray(items, dtype=str)
    return {
        "user": np.asarray(users, dtype=str)[user],
        "position": noise.index - flat.user_start[noise.index],
        "original": np.where(noise.original > 0, tokens[noise.original], ""),
        "item": tokens[noise.drawn],
        "share": np.array(share),
        "seed": np.array(seed),
        "kind": np.array(noise.kind),
    }
