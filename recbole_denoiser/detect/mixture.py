"""How much of each kind of noise can the data hold?

    F_data = (1 - sum_c a_c) F_clean + sum_c a_c F_c,   F_clean >= 0, so on every set R of scores
    sum_c a_c F_c(R) <= F_data(R).

The sets are the upper tails { w . z >= t } of weighted scores z = (z_1, .., z_c), where z_c is the log odds of kind c
against data, for a fan of weights w, at the levels t that a part tau of a kind's injected items reaches. For each tau
a(tau) is the largest sum_c a_c that its sets allow: a linear program. What clean data have in those sets makes it too
large, the less the smaller tau is; few rows make it uncertain, the more the smaller tau is: follow.py weighs the two.

The smallest of several uncertain bounds is too small. The bootstrap over users shows by how much (a repeat has the
noise of two draws), and that much is added: 2 a(tau) - mean of the repeats.

A set that holds few rows of data bounds only the kinds that are well represented in it: leaving out a term a_c F_c(R)
loosens the bound, and what is left does not rest on a handful of rows.

Popular items are drawn from the data, of which a part a_u is uniform noise: what is injected as popular is
(1 - a_u) popular + a_u uniform. `unmix` takes that out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from recbole_denoiser.detect.follow import PARTS, SUM, at_zero, scaled

TAUS = np.array([0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5])  # part of the injected items above t
FEW = 400  # rows of data: a standard error of 5 %
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
    tau: np.ndarray  # [sets] number of the set's tau


def tails(
    data: np.ndarray, data_group: np.ndarray, injected: list[np.ndarray], injected_group: list[np.ndarray], groups: int
) -> Tails:
    """Scores are [rows, kinds]; groups are ids 0 .. groups - 1 of the users of the rows."""
    kinds = data.shape[1]
    blocks: list[list[np.ndarray]] = [[] for _ in range(kinds + 1)]
    taus = []
    for direction in fan(kinds):
        along = [scores @ direction for scores in (data, *injected)]
        levels = np.concatenate([np.quantile(a, 1 - TAUS) for a in along[1:]])
        order = np.argsort(levels, kind="stable")
        taus.append(np.tile(np.arange(len(TAUS)), kinds)[order])
        for block, a, group in zip(blocks, along, (data_group, *injected_group), strict=True):
            cell = np.searchsorted(levels[order], a, side="right")  # how many levels a reaches
            size = len(levels) + 1
            table = np.bincount(group * size + cell, minlength=groups * size).reshape(groups, size)
            block.append(table[:, ::-1].cumsum(1)[:, ::-1][:, 1:])
    joined = [np.concatenate(block, axis=1).astype(np.float64) for block in blocks]
    sizes = [np.bincount(group, minlength=groups).astype(np.float64) for group in (data_group, *injected_group)]
    return Tails(joined[0], np.stack(joined[1:]), sizes[0], np.stack(sizes[1:]), np.concatenate(taus))


def bounds(counted: Tails, weight: np.ndarray | None = None) -> np.ndarray:
    """a(tau) by kind, with the groups weighted: [taus, kinds]."""
    weight = np.ones(len(counted.data)) if weight is None else weight
    size = max(float(weight @ counted.data_size), 1.0)
    data = weight @ counted.data / size
    injected = np.einsum("g,kgs->ks", weight, counted.injected)
    injected = injected / np.maximum(counted.injected_size @ weight, 1.0)[:, None]
    thin = (data * size < FEW) & (injected < TAUS[counted.tau] / 2)
    injected = np.where(thin, 0.0, injected)
    return largest(injected, data, counted.tau, len(TAUS))


def largest(injected: np.ndarray, data: np.ndarray, tau: np.ndarray, taus: int) -> np.ndarray:
    """max sum a with a . injected <= data on every set of a tau, a >= 0, sum a <= 1, for each tau: [taus, kinds].

    injected [kinds, sets], data and tau [sets]. The taus share no unknown, so one program, which is sparse, solves all.
    """
    kinds, sets = injected.shape
    unknown = (tau * kinds)[:, None] + np.arange(kinds)  # [sets, kinds]
    rows = np.repeat(np.arange(sets), kinds)
    bound = sparse.csr_matrix((injected.T.ravel(), (rows, unknown.ravel())), shape=(sets, taus * kinds))
    sums = sparse.kron(sparse.eye(taus), np.ones((1, kinds)))
    solved = linprog(
        -np.ones(taus * kinds), A_ub=sparse.vstack([bound, sums]), b_ub=np.append(data, np.ones(taus)), bounds=(0, 1),
        method="highs",
    )  # fmt: skip
    return np.clip(solved.x, 0.0, 1.0).reshape(taus, kinds)


def unmix(found: np.ndarray) -> np.ndarray:
    """True shares (uniform a, popular b) from those found with popular items drawn from the data (A, B).

    a U + b P = A U + B ((1 - a) P + a U), so b = B (1 - a) and a = A + B a: a = A / (1 - B). The sum stays.
    """
    uniform, popular = found[0], found[1]
    a = min(uniform / max(1.0 - popular, 1e-9), uniform + popular)
    return np.array([a, uniform + popular - a, *found[2:]])


def bootstrap(counted: Tails, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """Bounds of data sets whose groups of users are drawn again with replacement: [repeats, taus, kinds]."""
    groups = len(counted.data)
    weights = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=repeats)
    return np.stack([bounds(counted, weight.astype(np.float64)) for weight in weights])


def shares(found: np.ndarray, again: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares [kinds] from bounds [taus, kinds] and their repeats, and the repeats' sums of shares [repeats]."""
    middle = again.mean(0)
    curve = 2 * found - middle
    v = _variance(again.sum(2), rows)
    share = float(np.clip(at_zero(TAUS, curve.sum(1)[None], v, SUM)[0], 0.0, 1.0))
    share = share if share * rows >= 1 else 0.0  # less than one row is none
    parts = [
        at_zero(TAUS, curve[None, :, kind], _variance(again[:, :, kind], rows), PARTS)[0]
        for kind in range(found.shape[1])
    ]
    return scaled(np.array(parts), share), at_zero(TAUS, (again - middle + curve).sum(2), v, SUM)


def _variance(again: np.ndarray, rows: int) -> float:
    """v of var(a(tau)) = v / tau, from repeats [repeats, taus]; bounds that never change are not perfectly known."""
    return max(float(np.median(again.var(0) * TAUS)), 1e-4 / rows)


def interval(share: float, again: np.ndarray, confidence: float) -> tuple[float, float]:
    """Spread of the repeats' sums [repeats], laid around the estimate."""
    beyond = (1 - confidence) / 2
    below, above = np.quantile(again - again.mean(), [beyond, 1 - beyond])
    return float(np.clip(share + below, 0.0, share)), float(np.clip(share + above, share, 1.0))
