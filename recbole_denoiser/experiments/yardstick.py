"""How much the seed alone changes a result: a plain model against itself, one seed against another.

A test over users (stats.py) says whether two trained models differ, not whether two trainings of the same model would.
So every table with several seeds of its plain models says how far those are apart: a difference of one seed that is
no larger may be the seed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from recbole_denoiser.experiments.stats import aligned_values, t_p
from recbole_denoiser.runs.record import Run

ALPHA = 0.05


def seed_note(
    groups: Mapping[tuple[str, str], list[Run]], metrics: Sequence[str], plain: Collection[str]
) -> str | None:
    """One sentence about all pairs of seeds of the plain models; None where no plain model has two seeds."""
    pairs = {
        (first.run, second.run): (first, second)  # once, also where a run stands beside every value of what is varied
        for (label, _), group in groups.items()
        if label in plain
        for first, second in combinations(group, 2)
    }.values()
    if not pairs:
        return None
    parts = []
    for metric in metrics:
        largest = max(_apart(first.test[metric], second.test[metric]) for first, second in pairs)
        differ = sum(_p(first, second, metric) < ALPHA for first, second in pairs)
        parts.append(f"{metric} by up to {largest:.2f} %, p < {ALPHA:g} in {differ} of {len(pairs)} pairs")
    return (
        "A plain model and the same with another seed, which also draws sampled negatives and injected noise, differ "
        f"in {'; in '.join(parts)} (paired t test over users, not corrected): differences of that size may be the "
        "seed's."
    )


def _apart(first: float, second: float) -> float:
    """Difference in per cent of the mean of both."""
    return 200 * abs(first - second) / (first + second) if first + second else 0.0


def _p(first: Run, second: Run, metric: str) -> float:
    # each as a model of its own: two seeds of one have no seed in common
    values_a, values_b = aligned_values([first], [second], metric)
    return t_p(values_a - values_b)
