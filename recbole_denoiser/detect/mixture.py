"""How much of each kind of noise can the data hold?

    F_data = (1 - sum_c a_c) F_clean + sum_c a_c F_c,   F_clean >= 0, so on every set R of scores
    sum_c a_c F_c(R) <= F_data(R).

The shares are the largest sum_c a_c that all sets R allow: a linear program. The sets are the upper tails
{ w . z > t } of weighted scores z = (z_1, .., z_c), where z_c is the log odds of kind c against data, for a fan of
weights w, at levels t that a steady part of some kind's injected items exceeds. F_data(R) is known up to its standard
error (over users); without an allowance for it, the smallest of many estimates would be too small:

    sum_c a_c F_c(R) <= F_data(R) + SLACK * standard error.

Popular items are drawn from the data, of which a part a_u is uniform noise: what is injected as popular is
(1 - a_u) popular + a_u uniform. `unmix` takes that out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

TAILS = np.linspace(0.15, 0.7, 16)  # part of the injected items above t
SLACK = 1.5
GROUPS = 200  # users are resampled in at most this many groups


def fan(kinds: int) -> np.ndarray:
    """Directions in score space: [directions, kinds]. For each two kinds 13 angles from -45 to 135 degrees."""
    if kinds == 1:
        return np.ones((1, 1))
    angles = np.deg2rad(np.linspace(-45, 135, 13))
    plane = np.column_stack([np.cos(angles), np.sin(angles)])
    out = []
    for first in range(kinds):
        for second in range(first + 1, kinds):
            block = np.zeros((len(plane), kinds))
            block[:, [first, second]] = plane
            out.append(block)
    return np.unique(np.concatenate(out).round(12), axis=0)


@dataclass
class Tails:
    """How many scores of each group of users lie in each set R: data [groups, sets], injected [kinds, groups, sets]."""

    data: np.ndarray
    injected: np.ndarray
    data_size: np.ndarray  # [groups]
    injected_size: np.ndarray  # [kinds, groups]


def tails(
    data: np.ndarray, data_group: np.ndarray, injected: list[np.ndarray], injected_group: list[np.ndarray], groups: int
) -> Tails:
    """Scores are [rows, kinds]; groups are ids 0 .. groups - 1 of the users of the rows."""
    kinds = data.shape[1]
    blocks: list[list[np.ndarray]] = [[] for _ in range(kinds + 1)]
    for direction in fan(kinds):
        along = [scores @ direction for scores in (data, *injected)]
        levels = np.unique(np.concatenate([np.quantile(a, 1 - TAILS) for a in along[1:]]))
        for block, a, group in zip(blocks, along, (data_group, *injected_group), strict=True):
            cell = np.searchsorted(levels, a, side="left")  # how many levels lie below a
            size = len(levels) + 1
            table = np.bincount(group * size + cell, minlength=groups * size).reshape(groups, size)
            block.append(table[:, ::-1].cumsum(1)[:, ::-1][:, 1:])
    joined = [np.concatenate(block, axis=1).astype(np.float64) for block in blocks]
    sizes = [np.bincount(group, minlength=groups).astype(np.float64) for group in (data_group, *injected_group)]
    return Tails(joined[0], np.stack(joined[1:]), sizes[0], np.stack(sizes[1:]))


def shares(counted: Tails, weight: np.ndarray | None = None) -> np.ndarray:
    """The largest shares that the sets allow, groups weighted: [kinds]."""
    weight = np.ones(len(counted.data)) if weight is None else weight
    size = max(float(weight @ counted.data_size), 1.0)
    data = weight @ counted.data / size
    injected = np.einsum("g,kgs->ks", weight, counted.injected)
    injected = injected / np.maximum(counted.injected_size @ weight, 1.0)[:, None]
    steady = injected.max(0) >= 0.9 * TAILS[0]
    return largest(injected[:, steady], (data + SLACK * _error(counted, weight, data, size))[steady])


def _error(counted: Tails, weight: np.ndarray, data: np.ndarray, size: float) -> np.ndarray:
    """Standard error of F_data(R): between groups of users, and at least that of a count: [sets]."""
    apart = counted.data - counted.data_size[:, None] * data
    between = np.sqrt(weight @ apart**2) / size
    return np.maximum(between, np.sqrt(data * size + 1) / size)


def largest(injected: np.ndarray, data: np.ndarray) -> np.ndarray:
    """max sum a with a . injected <= data on every set, a >= 0, sum a <= 1: injected [kinds, sets], data [sets]."""
    kinds = len(injected)
    bound = np.vstack([injected.T, np.ones((1, kinds))])
    solved = linprog(-np.ones(kinds), A_ub=bound, b_ub=np.append(data, 1.0), bounds=[(0, 1)] * kinds, method="highs")
    return np.clip(solved.x, 0.0, 1.0)


def unmix(found: np.ndarray) -> np.ndarray:
    """True shares (uniform a, popular b) from those found with popular items drawn from the data (A, B).

    a U + b P = A U + B ((1 - a) P + a U), so b = B (1 - a) and a = A + B a: a = A / (1 - B). The sum stays.
    """
    uniform, popular = found[0], found[1]
    a = min(uniform / max(1.0 - popular, 1e-9), uniform + popular)
    return np.array([a, uniform + popular - a, *found[2:]])


def bootstrap(counted: Tails, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """Shares of data sets whose groups of users are drawn again with replacement: [repeats, kinds]."""
    groups = len(counted.data)
    weights = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=repeats)
    return np.stack([shares(counted, weight.astype(np.float64)) for weight in weights])


def interval(share: float, again: np.ndarray, confidence: float) -> tuple[float, float]:
    """Spread of the repeats, laid around the estimate: a repeat has the noise of two draws, and its smallest bound is
    lower than the estimate's for that reason alone."""
    beyond = (1 - confidence) / 2
    below, above = np.quantile(again - again.mean(), [beyond, 1 - beyond])
    return float(np.clip(share + below, 0.0, share)), float(np.clip(share + above, share, 1.0))
