"""Are two models different? Paired tests over users (section 5.2 reports p-values without naming its test).

The unit is the user: every model ranks the same held-out item of the same user, so two models are compared by the
per-user differences of Hit@k or NDCG@k.

Several seeds: a user's values are first averaged over the seeds of a model, then the test runs over users. Users
times seeds are not independent observations, and counting them as such would give p-values that are far too small.
What such a test says is "on this sample of users, the average over these seeds differs"; how much training itself
varies is said by the deviation over seeds, which tables print beside it. Two models are compared over the seeds that
both have.

With sampled negatives the ranks are only paired if both runs used the same negatives for the same user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats as scipy_stats

from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.record import Run, UserRanks

PERMUTATIONS = 9_999
BOOTSTRAPS = 2_000
CHUNK = 2_000_000  # numbers drawn at a time, to bound memory
METRIC = re.compile(r"(hit|ndcg|mrr)@([1-9][0-9]*)", re.IGNORECASE)

Key = TypeVar("Key")


def per_user(rank: np.ndarray, metric: str) -> np.ndarray:
    """Value of a metric for each user [users], from ranks [users] (1 = best; one relevant item per user)."""
    match = METRIC.fullmatch(metric)
    if match is None:
        raise UserError(f"There is no per-user metric {metric!r}. Allowed: hit@k, ndcg@k, mrr@k with k from 1 on.")
    name, inside = match[1].lower(), rank <= int(match[2])
    if name == "hit":
        return inside.astype(float)
    gain = 1 / np.log2(rank + 1) if name == "ndcg" else 1 / rank
    return np.where(inside, gain, 0.0)


def align(
    first: UserRanks, second: UserRanks, names: tuple[str, str] = ("first", "second")
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of both for the same users in the same order (sorted by token); an error if the users differ."""
    users_a, rank_a = _sorted_by_user(first, names[0])
    users_b, rank_b = _sorted_by_user(second, names[1])
    require_same_users(users_a, users_b, names)
    return rank_a, rank_b


def _sorted_by_user(ranks: UserRanks, name: str) -> tuple[np.ndarray, np.ndarray]:
    users, place = np.unique(ranks.user, return_index=True)
    if len(users) != len(ranks.user):
        raise UserError(f"{name} has users more than once in its ranks: {len(ranks.user)} ranks of {len(users)} users.")
    return users, ranks.rank[place]


def require_same_users(users_a: np.ndarray, users_b: np.ndarray, names: tuple[str, str]) -> None:
    """Both sorted lists hold the same users, or an error that says which do not."""
    if np.array_equal(users_a, users_b):
        return
    parts = [
        f"{len(only)} only in {name} (such as {', '.join(only[:3])})"
        for only, name in ((np.setdiff1d(users_a, users_b), names[0]), (np.setdiff1d(users_b, users_a), names[1]))
        if len(only)
    ]
    raise UserError(f"{names[0]} and {names[1]} do not rank the same users: {'; '.join(parts)}.")


def seed_mean(
    ranks: Sequence[UserRanks], metric: str, names: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(user tokens, sorted; mean over seeds of each user's value), for the runs of one model on one data set."""
    if not ranks:
        raise UserError("There are no ranks to average.")
    labels = list(names or [f"seed {i + 1}" for i in range(len(ranks))])
    values = [
        per_user(align(ranks[0], other, (labels[0], label))[1], metric)
        for other, label in zip(ranks, labels, strict=True)
    ]
    return np.sort(ranks[0].user), np.mean(values, axis=0)


@dataclass(frozen=True)
class PairedTest:
    """Two models on the same users. All p-values are two-sided; differences are first minus second."""

    metric: str
    users: int
    first: float  # mean of the metric
    second: float
    difference: float
    interval: tuple[float, float]  # 95 % bootstrap interval of the difference
    wilcoxon: float  # signed ranks: is the difference symmetric about 0
    t: float  # paired t: is the mean difference 0
    permutation: float  # sign flips: the same question without a normal distribution
    mcnemar: float | None  # exact, only where each user has hit or not: Hit@k and one seed


def paired_test(first: np.ndarray, second: np.ndarray, metric: str, seed: int = 0) -> PairedTest:
    """All tests on aligned per-user values [users] of one metric."""
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"values must be aligned lists, got shapes {first.shape} and {second.shape}")
    if len(first) < 2:
        raise UserError(f"A paired test needs at least two users, there is {len(first)}.")
    difference = first - second
    binary = bool(np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all())
    return PairedTest(
        metric=metric,
        users=len(first),
        first=float(first.mean()),
        second=float(second.mean()),
        difference=float(difference.mean()),
        interval=bootstrap_interval(difference, seed=seed),
        wilcoxon=wilcoxon_p(difference),
        t=t_p(difference),
        permutation=permutation_p(difference, seed=seed),
        mcnemar=mcnemar_p(first, second) if binary and metric.lower().startswith("hit") else None,
    )


def common_seeds(*groups: Sequence[Run]) -> list[list[Run]]:
    """The runs of each model with the seeds that all of them have; all runs where they have none in common.

    A seed also draws the injected noise: three seeds of one model against one of another would compare draws, too.
    """
    common = set.intersection(*({run.seed for run in group} for group in groups))
    return [[run for run in group if run.seed in common] or list(group) for group in groups]


def aligned_values(first: Sequence[Run], second: Sequence[Run], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Per-user values [users] of two models on the test split, each the mean over the seeds that both have."""
    first, second = common_seeds(first, second)
    users_a, values_a = seed_mean([run.ranks() for run in first], metric, [run.run for run in first])
    users_b, values_b = seed_mean([run.ranks() for run in second], metric, [run.run for run in second])
    require_same_users(users_a, users_b, (first[0].run, second[0].run))
    return values_a, values_b


def compare(first: Sequence[Run], second: Sequence[Run], metric: str, seed: int = 0) -> PairedTest:
    """All tests between two models, each given as its runs (seeds) on one data set."""
    values_a, values_b = aligned_values(first, second, metric)
    return paired_test(values_a, values_b, metric, seed)


def wilcoxon_p(difference: np.ndarray) -> float:
    """Wilcoxon's signed-rank test; users without a difference are left out (Wilcoxon's own treatment)."""
    nonzero = difference[difference != 0]
    if not len(nonzero):
        return 1.0
    return float(scipy_stats.wilcoxon(nonzero).pvalue)


def t_p(difference: np.ndarray) -> float:
    """Paired t test; equal differences for all users have no spread to test against: 1 if all are 0, else 0."""
    if np.ptp(difference) == 0:
        return 1.0 if difference[0] == 0 else 0.0
    return float(scipy_stats.ttest_1samp(difference, 0.0).pvalue)


def permutation_p(difference: np.ndarray, seed: int = 0, resamples: int = PERMUTATIONS) -> float:
    """Sign-flip test of the mean: how often a random sign per user gives a sum at least as large.

    The observed signs count as one draw, so p is never 0: at least 1 / (resamples + 1).
    """
    nonzero = difference[difference != 0]  # a sign changes nothing where there is no difference
    if not len(nonzero):
        return 1.0
    rng = np.random.default_rng(seed)
    total = nonzero.sum()
    slack = 1e-9 * np.abs(nonzero).sum()  # sums that are equal but for rounding count as equal
    as_large, left = 0, resamples
    while left:
        rows = min(left, max(1, CHUNK // len(nonzero)))
        octets = rng.integers(0, 256, size=(rows, -(-len(nonzero) // 8)), dtype=np.uint8)
        positive = np.unpackbits(octets, axis=1, count=len(nonzero)).astype(float)  # [rows, users], 1 = plus
        sums = 2 * (positive @ nonzero) - total  # [rows]
        as_large += int((np.abs(sums) >= abs(total) - slack).sum())
        left -= rows
    return (1 + as_large) / (1 + resamples)


def mcnemar_p(first: np.ndarray, second: np.ndarray) -> float:
    """Exact McNemar test: among users hit by one model only, is each model equally often the one?"""
    only_first = int(((first == 1) & (second == 0)).sum())
    only_second = int(((first == 0) & (second == 1)).sum())
    if only_first + only_second == 0:
        return 1.0
    return float(scipy_stats.binomtest(only_first, only_first + only_second, 0.5).pvalue)


def bootstrap_interval(
    values: np.ndarray, level: float = 0.95, seed: int = 0, resamples: int = BOOTSTRAPS
) -> tuple[float, float]:
    """Percentile interval of the mean when users are drawn again with replacement.

    How often each distinct value comes up in such a draw is multinomial, so counts are drawn instead of users.
    """
    value, count = np.unique(values, return_counts=True)  # [distinct]
    rng = np.random.default_rng(seed)
    means: list[np.ndarray] = []
    left = resamples
    while left:
        rows = min(left, max(1, CHUNK // len(value)))
        means.append(rng.multinomial(len(values), count / len(values), size=rows) @ value / len(values))
        left -= rows
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's step-down correction for many comparisons: the smallest p times m, the next times m - 1, and so on.

    A corrected value is never below the one before it nor above 1.
    """
    adjusted: dict[Key, float] = {}
    running = 0.0
    for place, (key, p) in enumerate(sorted(p_values.items(), key=lambda entry: entry[1])):
        if not 0 <= p <= 1:
            raise ValueError(f"p-value {p} of {key} is outside [0, 1]")
        running = max(running, min(1.0, (len(p_values) - place) * p))
        adjusted[key] = running
    return {key: adjusted[key] for key in p_values}
