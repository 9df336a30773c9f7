"""Metrics of runs with their uncertainty: bootstrap intervals over users, paired differences, the paper's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.paper import PaperTable
from recbole_denoiser.experiments.stats import METRIC, bootstrap_interval, compare, holm, seed_mean
from recbole_denoiser.report.groups import Group, references
from recbole_denoiser.runs.record import Run


@dataclass(frozen=True)
class Measured:
    """One metric of one experiment on the test split, the mean over its seeds."""

    metric: str
    valid: float | None
    test: float
    deviation: float | None  # over seeds, n - 1 in the denominator; None for one seed
    interval: tuple[float, float] | None  # 95 %, users drawn again; None where the metric has no value per user
    paper: float | None


def measured(runs: Sequence[Run], paper: PaperTable) -> list[Measured]:
    """Every test metric of an experiment, given as its seeds; then those of other ``eval_modes``, named with them."""
    rows = _measured(runs, paper)
    for mode in runs[0].modes:
        if mode != runs[0].main_mode and all(mode in run.modes for run in runs):
            others = _measured([run.in_mode(mode) for run in runs], paper)
            rows += [replace(row, metric=f"{row.metric} ({mode})", paper=None) for row in others]
    return rows


def _measured(runs: Sequence[Run], paper: PaperTable) -> list[Measured]:
    one_rank_each = all(_has_ranks(run) for run in runs)
    rows = []
    for metric in runs[0].test:
        test = np.array([run.test[metric] for run in runs])
        valid = [run.valid[metric] for run in runs if metric in run.valid]
        interval = None
        if one_rank_each and METRIC.fullmatch(metric):
            _, values = seed_mean([run.ranks() for run in runs], metric, [run.run for run in runs])
            interval = bootstrap_interval(values)
        rows.append(
            Measured(
                metric,
                float(np.mean(valid)) if valid else None,
                float(test.mean()),
                float(test.std(ddof=1)) if len(test) > 1 else None,
                interval,
                paper.value(runs[0].label, runs[0].dataset, metric) if _as_in_the_paper(runs[0]) else None,
            )
        )
    return rows


def _as_in_the_paper(run: Run) -> bool:
    """Clean data and 100 negatives: what the paper's Table 2 measures."""
    noise = [run.config.get(name) for name in ("train_noise", "eval_noise")]
    return not any(noise) and run.main_mode == "uni100"


def _has_ranks(run: Run) -> bool:
    """Ranks of the test items were kept, one per user."""
    if not (run.folder / run.ranks_file).is_file():
        return False
    ranks = run.ranks()
    return len(np.unique(ranks.user)) == len(ranks.user)


@dataclass(frozen=True)
class Difference:
    """An experiment against the reference on the same data set, by one metric."""

    run: str
    against: str
    metric: str
    difference: float
    interval: tuple[float, float]
    p: float  # permutation test, Holm-corrected over all of the report


def differences(groups: Sequence[Group], metrics: Sequence[str]) -> tuple[list[Difference], list[str]]:
    """Paired comparisons with each one's reference that can be made, and why others cannot."""
    bases = references(groups)
    found: dict[tuple[str, str], Difference] = {}
    notes = []
    for group in groups:
        base = bases.get(group.name)
        if base is None:
            continue
        try:
            tests = [compare(group.runs, base.runs, metric) for metric in metrics]
        except UserError as error:
            notes.append(f"{group.name} cannot be compared with {base.name}: {error}")
            continue
        for test in tests:
            found[group.name, test.metric] = Difference(
                group.name, base.name, test.metric, test.difference, test.interval, test.permutation
            )
    corrected = holm({key: entry.p for key, entry in found.items()})
    return [replace(entry, p=corrected[key]) for key, entry in found.items()], notes


def main_metrics(runs: Sequence[Run]) -> list[str]:
    """hit@10 and ndcg@10 where all runs have them, else the first metrics that they share."""
    shared = [metric for metric in runs[0].test if all(metric in run.test for run in runs) and METRIC.fullmatch(metric)]
    preferred = [metric for metric in shared if metric in ("hit@10", "ndcg@10")]
    return preferred or shared[:2]
