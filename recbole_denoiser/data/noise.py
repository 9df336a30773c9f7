"""Synthetic noise in the training data (section 5.3, RQ2), and a record of where it went.

``train_noise`` of the observed training interactions get another item, drawn uniformly from all items that are neither
held out for the same user (validation and test) nor the item that was there. The number of replaced interactions is
exactly round(share * N_train).

What noise reaches. The paper corrupts "the training data". So validation and test items, the split and the evaluation
negatives (drawn against the clean histories) are those of the clean data, the same for every share. The history that a
model reads when it is evaluated begins with the user's training items, and these are the corrupted ones: they are
what was observed. The same holds for every model.

Draws are nested: with one seed, the interactions replaced at 10 % are also replaced at 20 %, by the same items, so that
a curve over shares does not mix in the difference between independent corruptions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from recbole_denoiser.data.negatives import SeenItems
from recbole_denoiser.data.rows import FlatSequences
from recbole_denoiser.data.split import TEST, VALID
from recbole_denoiser.data.view import View
from recbole_denoiser.errors import UserError

_STREAM = 0x6E6F697365  # keeps these draws apart from others made with the same seed


@dataclass(frozen=True)
class Noise:
    """Replaced interactions: their place in the flat sequences, the item that was there and the one that is."""

    index: np.ndarray  # [K], ascending
    original: np.ndarray  # [K] item ids
    drawn: np.ndarray  # [K] item ids
    eligible: np.ndarray  # [N_train] all interactions that could have been replaced


def draw_noise(view: View, share: float, seed: int, n_items: int) -> Noise:
    """Which training interactions are replaced, and by what."""
    flat, held_out = view.flat, (view.phase == VALID) | (view.phase == TEST)
    user, item = flat.columns[flat.fields.user].numpy(), flat.columns[flat.fields.item].numpy()  # [N]
    forbidden = SeenItems(user[held_out], item[held_out], n_items)
    if n_items - 1 - int(forbidden.met.max()) < 2:
        raise UserError(
            f"train_noise = {share:g}: with {n_items - 1} items there is none to draw that is neither held out for the "
            f"user nor the replaced item."
        )
    random = np.random.default_rng((seed, _STREAM))
    eligible = view.training
    order = random.permutation(eligible)
    drawn = random.integers(1, n_items, len(order))
    wrong = np.arange(len(order))
    while len(wrong):  # drawn for all interactions and not only for the share: this is what makes the draws nested
        wrong = wrong[_not_allowed(forbidden, user[order[wrong]], drawn[wrong], item[order[wrong]])]
        drawn[wrong] = random.integers(1, n_items, len(wrong))
    count = round(share * len(order))
    place = np.argsort(order[:count])
    index = order[:count][place]
    return Noise(index, item[index], drawn[:count][place], eligible)


def _not_allowed(forbidden: SeenItems, user: np.ndarray, drawn: np.ndarray, original: np.ndarray) -> np.ndarray:
    same = drawn == original
    if not len(forbidden.keys):
        return same
    return same | forbidden.contain(torch.from_numpy(user), torch.from_numpy(drawn)).numpy()


def with_noise(view: View, noise: Noise) -> View:
    """The view with the drawn items in the place of others."""
    flat = view.flat
    item = flat.columns[flat.fields.item].clone()
    item[torch.from_numpy(noise.index)] = torch.from_numpy(noise.drawn)
    injected = view.noise.copy()
    injected[noise.index] = True
    return replace(view, flat=FlatSequences({**flat.columns, flat.fields.item: item}, flat.fields), noise=injected)


def noise_arrays(
    flat: FlatSequences, noise: Noise, users: np.ndarray, items: np.ndarray, share: float, seed: int
) -> dict[str, np.ndarray]:
    """What noise.npz holds: for each replaced interaction the user, its place in the user's history (0 = oldest),
    and both items; ``users`` and ``items`` are the tokens by id."""
    user = flat.columns[flat.fields.user].numpy()[noise.index]
    return {
        "user": np.asarray(users, dtype=str)[user],
        "position": noise.index - flat.user_start[noise.index],
        "original": np.asarray(items, dtype=str)[noise.original],
        "item": np.asarray(items, dtype=str)[noise.drawn],
        "share": np.array(share),
        "seed": np.array(seed),
    }
