"""Metrics of runs with their uncertainty: bootstrap intervals over users, paired differences, the paper's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.paper import PaperTable
from recbole_denoiser.experiments.stats import METRIC, align, bootstrap_interval, holm, paired_test, per_user
from recbole_denoiser.runs.record import Run


@dataclass(frozen=True)
class Measured:
    """One metric of one run on the test split."""

    metric: str
    valid: float | None
    test: float
    interval: tuple[float, float] | None  # 95 %, users drawn again; None where the metric has no value per user
    paper: float | None


def measured(run: Run, paper: PaperTable) -> list[Measured]:
    """Every test metric of a run."""
    rank = _ranks(run)
    rows = []
    for metric, value in run.test.items():
        interval = None
        if rank is not None and METRIC.fullmatch(metric):
            interval = bootstrap_interval(per_user(rank, metric))
        rows.append(
            Measured(metric, run.valid.get(metric), value, interval, paper.value(run.label, run.dataset, metric))
        )
    return rows


def _ranks(run: Run) -> np.ndarray | None:
    """Ranks of the test items, one per user; None where users have several, or none was kept."""
    if not (run.folder / run.ranks_file).is_file():
        return None
    ranks = run.ranks()
    return ranks.rank if len(np.unique(ranks.user)) == len(ranks.user) else None


@dataclass(frozen=True)
class Difference:
    """A run against the first one on the same data set, by one metric."""

    run: str
    against: str
    metric: str
    difference: float
    interval: tuple[float, float]
    p: float  # permutation test, Holm-corrected over all of the report


def differences(
    runs: Sequence[Run], names: Sequence[str], metrics: Sequence[str]
) -> tuple[list[Difference], list[str]]:
    """Paired comparisons that can be made, and why others cannot."""
    first: dict[str, int] = {}
    found: dict[tuple[int, str], Difference] = {}
    notes = []
    for number, run in enumerate(runs):
        base = first.setdefault(run.dataset, number)
        if base == number:
            continue
        try:
            rank, other = align(run.ranks(), runs[base].ranks(), (names[number], names[base]))
        except UserError as error:
            notes.append(f"{names[number]} cannot be compared with {names[base]}: {error}")
            continue
        for metric in metrics:
            test = paired_test(per_user(rank, metric), per_user(other, metric), metric)
            found[number, metric] = Difference(
                names[number], names[base], metric, test.difference, test.interval, test.permutation
            )
    corrected = holm({key: entry.p for key, entry in found.items()})
    rows = [
        Difference(entry.run, entry.against, entry.metric, entry.difference, entry.interval, corrected[key])
        for key, entry in found.items()
    ]
    return rows, notes


def main_metrics(runs: Sequence[Run]) -> list[str]:
    """hit@10 and ndcg@10 where all runs have them, else the first metrics that they share."""
    shared = [metric for metric in runs[0].test if all(metric in run.test for run in runs) and METRIC.fullmatch(metric)]
    preferred = [metric for metric in shared if metric in ("hit@10", "ndcg@10")]
    return preferred or shared[:2]
