"""Noise that is gathered in some users: a shared account, a bot, a child with a tablet.

The shares of mixture.py rest on the places where a wrong item stands out most, and those are among users whose other
items agree. Noise among noise is not seen there. So users with enough items are also looked at in up to 20 equal parts,
from the most to the least agreeing, and each part has shares of its own.

What a row x is sorted by must not depend on x, or what is injected there cannot be compared with it. It is made of the
user's *other* rows: of a symmetric pair value f (PMI, seen together, cosine) with row sums A_y = sum_z f(y, z),
    mean over the pairs without x = (sum_y A_y - 2 A_x) / (sum_y c_y - 2 c_x),      c = number of neighbours
and of the mean log popularity of the others. `oddness` is the linear function of these that comes nearest to how
suspicious the others are (least squares).

People with unusual taste are odd without being wrong: in the oddest part some right items look like noise. A part is
believed only in what exceeds 1.3 times the share found among all, 0.03 more, and three of its own standard errors. In
data where most rows are of users with few items, little is known of any item, and users are not parted at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recbole_denoiser.detect import mixture
from recbole_denoiser.detect.crossfit import CrossFit, Rows, Scores
from recbole_denoiser.detect.follow import scaled
from recbole_denoiser.detect.settings import Settings

PART_ROWS = 2_000  # rows of a part, at least
PARTS = (5, 20)  # of users with enough items; where they have too few rows for the first they are not parted
REPEATS = 30
MARGIN, FACTOR, ERRORS = 0.03, 1.3, 3.0
SYMMETRIC = ("pmi", "seen", "cosine")  # features that are means of a symmetric value of two items


@dataclass
class Strata:
    """Parts of the users by oddness."""

    weight: np.ndarray  # [columns of `others`] of the linear function
    edges: np.ndarray  # [parts - 1], rising
    least: int  # items that a user needs to be in one

    def of(self, user: np.ndarray, features: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        """Part of each row, 1 .. parts; 0 where the user has too few items: [rows]."""
        part = 1 + np.searchsorted(self.edges, others(user, features, names) @ self.weight)
        part[np.bincount(user)[user] < self.least] = 0
        return part


def others(user: np.ndarray, features: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """What the user's other rows say, and a column of ones: [rows, columns], float32."""
    number = np.rint(np.expm1(features[:, names.index("neighbours")].astype(np.float64)))  # c
    without = np.bincount(user, number)[user] - 2 * number
    out = np.ones((len(user), len(SYMMETRIC) + 2), np.float32)
    for column, name in enumerate(SYMMETRIC):
        total = features[:, names.index(name)] * number  # A
        out[:, column] = (np.bincount(user, total)[user] - 2 * total) / np.maximum(without, 1)
    out[:, -2] = _mean_of_others(user, features[:, names.index("popularity")])
    return out


def _mean_of_others(user: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean over the user's other rows: [rows]; 0 where there is none."""
    return (np.bincount(user, values)[user] - values) / np.maximum(np.bincount(user)[user] - 1, 1)


def fit_strata(rows: Rows, fitted: CrossFit, scores: Scores, sample: np.ndarray, settings: Settings) -> Strata | None:
    """Parts of equal size; None where users with enough items have too few rows, or less than half of all."""
    least = 2 * settings.window
    held = sample[(np.bincount(rows.user) >= least)[rows.user[sample]]]
    parts = min(len(held) // PART_ROWS, PARTS[1])
    if parts < PARTS[0] or 2 * len(held) < len(sample):
        return None
    suspicion = 1 / (1 + np.exp(-np.logaddexp.reduce(scores.data, axis=1)))
    table = others(rows.user, fitted.features, fitted.names)[held]
    weight = np.linalg.lstsq(table.astype(np.float64), _mean_of_others(rows.user, suspicion)[held], rcond=None)[0]
    edges = np.quantile(table @ weight, np.linspace(0, 1, parts + 1)[1:-1])
    return Strata(weight, edges, least)


@dataclass
class Groups:
    """Rows with the same shares of noise; group 0 is everyone who is in no part that stands out."""

    of_row: np.ndarray  # [rows]
    shares: np.ndarray  # [groups, kinds]
    sizes: np.ndarray  # [groups] parts of the data
    sums: np.ndarray  # [repeats] bootstrap repeats of the share of noise in all data
    strata: Strata | None  # None where no part stands out
    group_of_part: np.ndarray  # [parts + 1]

    @property
    def share(self) -> float:
        return float(self.sizes @ self.shares.sum(1))


def groups(
    rows: Rows, fitted: CrossFit, scores: Scores, sample: np.ndarray, settings: Settings, rng: np.random.Generator
) -> Groups:
    """Shares among all, and of the parts of the users that exceed them: sample are the rows to be counted."""
    number = min(mixture.GROUPS, rows.users)
    drawn = (rng.permutation(rows.users) % number)[rows.user]  # users are resampled in these
    strata = fit_strata(rows, fitted, scores, sample, settings)
    part = np.zeros(len(rows), np.int64)
    if strata is not None:
        part = strata.of(rows.user, fitted.features, fitted.names)

    def estimate(of: int | None, repeats: int) -> tuple[np.ndarray, np.ndarray]:
        data = sample if of is None else sample[part[sample] == of]
        inside = np.ones(len(rows), bool) if of is None else part == of
        there = [np.flatnonzero(inside[kind.places]) for kind in fitted.injected]
        injected = [values[at] for values, at in zip(scores.injected, there, strict=True)]
        places = [drawn[kind.places[at]] for kind, at in zip(fitted.injected, there, strict=True)]
        counted = mixture.tails(scores.data[data], drawn[data], injected, places, number)
        again = mixture.bootstrap(counted, repeats, rng)
        return mixture.shares(mixture.bounds(counted), again, len(data))

    everywhere, sums = estimate(None, settings.repeats)
    parts = 0 if strata is None else len(strata.edges) + 1
    found, repeated, group_of_part = [everywhere], [sums], np.zeros(parts + 1, np.int64)
    for number_of_part in range(1, parts + 1):
        shares, again = estimate(number_of_part, min(REPEATS, settings.repeats))
        believed = shares.sum() - FACTOR * everywhere.sum() - MARGIN - ERRORS * again.std()
        if believed > 0:
            group_of_part[number_of_part] = len(found)
            found.append(scaled(shares, float(everywhere.sum() + believed)))
            repeated.append(found[-1].sum() + rng.choice(again - again.mean(), len(sums)))
    if len(found) == 1:
        strata = None
    of_row = group_of_part[part]
    sizes = np.bincount(of_row[sample], minlength=len(found)) / max(len(sample), 1)
    return Groups(of_row, np.stack(found), sizes, sizes @ np.stack(repeated), strata, group_of_part)
