"""From finished runs to a table like the paper's Table 2 (section 5.2), with what Table 2 leaves out.

A cell is the mean over seeds with its deviation and number of seeds; a denoiser also has the relative improvement
(RI) over its backbone and the p-value of a paired test over users. The best and the second value of a column are
marked, and a sign says whether the best is significantly better than the second. p-values are Holm-corrected in two
families, one per question: all pairs of denoiser and backbone, and all columns' best against second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.paper import PaperTable
from recbole_denoiser.experiments.stats import (
    aligned_values,
    common_seeds,
    holm,
    per_user,
    permutation_p,
    t_p,
    wilcoxon_p,
)
from recbole_denoiser.experiments.yardstick import seed_note
from recbole_denoiser.runs.record import Run

TESTS: dict[str, Callable[[np.ndarray], float]] = {"permutation": permutation_p, "t": t_p, "wilcoxon": wilcoxon_p}
RANKS_TOLERANCE = 1e-3  # between a metric of result.json (rounded) and the same from the ranks

BEST, SECOND, SIGNIFICANT = "bold", "underlined", "†"  # in the legend of a table

Place = tuple[str, str, str]  # label, data set, metric
Comparison = tuple[str, tuple[str, ...], tuple[str, ...]]  # metric, runs of the one, runs of the other


@dataclass(frozen=True)
class Cell:
    """One model on one data set by one metric."""

    mean: float
    deviation: float | None  # over seeds, n - 1 in the denominator; None for one seed
    seeds: int
    improvement: float | None = None  # RI in per cent
    p: float | None = None  # against the backbone, corrected
    paper: float | None = None
    mark: str = ""  # "best", "second" or ""
    significant: bool = False  # of the best: better than the second, corrected p < alpha


@dataclass(frozen=True)
class ResultTable:
    """Rows labels, column groups data sets x metrics; a missing place was not run."""

    labels: list[str]
    datasets: list[str]
    metrics: list[str]
    cells: dict[Place, Cell]
    notes: list[str]


def default_pairs(labels: Sequence[str]) -> dict[str, str]:
    """{"SASRecDenoiser": "SASRec", ...} for every label that has a backbone by that name."""
    known = set(labels)
    names = {label: label.removesuffix("Denoiser").rstrip("+- ") for label in labels if label.endswith("Denoiser")}
    return {label: backbone for label, backbone in names.items() if backbone in known}


def build_table(
    runs: Sequence[Run],
    metrics: Sequence[str] = ("hit@10", "ndcg@10"),
    pairs: Mapping[str, str] | None = None,
    paper: PaperTable | None = None,
    test: str | None = "permutation",
    alpha: float = 0.05,
    labels: Sequence[str] | None = None,
) -> ResultTable:
    """The table of all runs. ``test=None`` reads no ranks: no p-values, and no value is significant."""
    if test is not None and test not in TESTS:
        raise UserError(f"There is no test {test!r}. Allowed: {', '.join(TESTS)}, or none.")
    groups = group_runs(runs)
    rows = _row_order(groups, labels)
    groups = {key: group for key, group in groups.items() if key[0] in rows}
    datasets = sorted({dataset for _, dataset in groups})
    pairs = default_pairs(rows) if pairs is None else pairs
    cells = {
        (label, dataset, metric): _cell(group, label, dataset, metric, paper)
        for (label, dataset), group in groups.items()
        for metric in metrics
    }
    notes = _data_notes(groups, paper)
    tests: dict[Place, Comparison] = {}
    p_values: dict[Comparison, float] = {}
    for label, dataset, metric in list(cells):
        backbone = (pairs.get(label, ""), dataset, metric)
        if backbone not in cells:
            continue
        place = (label, dataset, metric)
        own, base = common_seeds(groups[label, dataset], groups[backbone[0], dataset])
        cells[place] = replace(cells[place], improvement=_improvement(own, base, metric))
        if test is not None:
            comparison = (metric, tuple(run.run for run in own), tuple(run.run for run in base))
            tests[place] = comparison
            if comparison not in p_values:  # a run may stand beside every value of what is varied
                p_values[comparison] = _p(test, own, base, metric)
    corrected = holm(p_values)
    for place, comparison in tests.items():
        cells[place] = replace(cells[place], p=corrected[comparison])

    notes += _mark(cells, groups, datasets, metrics, test, alpha)
    notes += _test_notes(groups, metrics, test, len(p_values), pairs)
    if paper is not None and any(cell.paper is not None for cell in cells.values()):
        slips = "; ".join(paper.slip_notes())
        notes.append(f"paper: {paper.title}. Its improvements where the printed ones do not follow: {slips}.")
    return ResultTable(rows, datasets, list(metrics), cells, notes)


def group_runs(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """(label, data set) -> its runs, one per seed."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        group = groups.setdefault((run.label, run.dataset), [])
        twin = next((other for other in group if other.seed == run.seed), None)
        if twin is not None:
            raise UserError(
                f"{twin.folder} and {run.folder} are both {run.label} on {run.dataset} with seed {run.seed}. "
                "Give one of them another label or leave it out."
            )
        group.append(run)
    if not groups:
        raise UserError("There are no runs to make a table of.")
    return groups


def _row_order(groups: Mapping[tuple[str, str], list[Run]], labels: Sequence[str] | None) -> list[str]:
    known = list(dict.fromkeys(label for label, _ in groups))
    if labels is None:
        return known
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise UserError(f"No run has the label {', '.join(unknown)}. There are: {', '.join(known)}.")
    return list(labels)


def _cell(group: list[Run], label: str, dataset: str, metric: str, paper: PaperTable | None) -> Cell:
    for run in group:
        if metric not in run.test:
            raise UserError(f"Run {run.run} has no test metric {metric!r}. It has: {', '.join(run.test)}.")
    values = np.array([run.test[metric] for run in group], dtype=float)
    return Cell(
        mean=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
        seeds=len(values),
        paper=paper.value(label, dataset, metric) if paper is not None else None,
    )


def _improvement(own: list[Run], base: list[Run], metric: str) -> float | None:
    """Per cent of the mean over seeds of ``base``; None where that is 0."""
    mean, reference = (float(np.mean([run.test[metric] for run in group])) for group in (own, base))
    return 100 * (mean / reference - 1) if reference > 0 else None


def _p(test: str, first: list[Run], second: list[Run], metric: str) -> float:
    values_a, values_b = aligned_values(first, second, metric)
    return TESTS[test](values_a - values_b)


def _mark(
    cells: dict[Place, Cell],
    groups: Mapping[tuple[str, str], list[Run]],
    datasets: Sequence[str],
    metrics: Sequence[str],
    test: str | None,
    alpha: float,
) -> list[str]:
    """Set the marks of best and second in every column; returns the legend of the marks."""
    ranked: dict[tuple[str, str], list[Place]] = {}
    for dataset in datasets:
        for metric in metrics:
            column = [place for place in cells if place[1:] == (dataset, metric)]
            if len(column) > 1:
                ranked[dataset, metric] = sorted(column, key=lambda place: -cells[place].mean)[:2]
    for best, second in ranked.values():
        cells[best] = replace(cells[best], mark="best")
        cells[second] = replace(cells[second], mark="second")
    if not ranked:
        return []
    legend = f"{BEST}: best mean of its column; {SECOND}: second best."
    if test is None:
        return [f"{legend} No test was made: differences may be chance."]
    corrected = holm(
        {
            (dataset, metric): _p(test, groups[best[0], dataset], groups[second[0], dataset], metric)
            for (dataset, metric), (best, second) in ranked.items()
        }
    )
    for (dataset, metric), (best, _) in ranked.items():
        cells[best] = replace(cells[best], significant=corrected[dataset, metric] < alpha)
    return [
        f"{legend} {SIGNIFICANT}: significantly better than the second best ({test} test over users, seeds averaged "
        f"per user, p < {alpha:g} after Holm's correction over {len(ranked)} columns); else the lead may be chance."
    ]


def _data_notes(groups: Mapping[tuple[str, str], list[Run]], paper: PaperTable | None) -> list[str]:
    """Where runs of one data set, or the paper, used other data."""
    notes = []
    for dataset in sorted({dataset for _, dataset in groups}):
        runs = [run for (_, other), group in groups.items() if other == dataset for run in group]
        versions = {run.data["sha256"] for run in runs if run.data.get("sha256")}  # empty: not known
        if len(versions) > 1:
            notes.append(f"{dataset}: the runs used {len(versions)} different versions of the data.")
        published = paper.datasets.get(dataset) if paper is not None else None
        users = runs[0].data.get("users")
        if published is not None and users is not None and users != published["users"]:
            notes.append(
                f"{dataset}: {users:,} users here, {published['users']:,} in the paper: its values are of other data."
            )
    return notes


def _references(pairs: Mapping[str, str], labels: set[str]) -> str:
    """The one label that all are compared with, or that each has its own."""
    names = list(dict.fromkeys(base for label, base in pairs.items() if label in labels and base in labels))
    return names[0] if len(names) == 1 else "the plain backbone" + (f" ({', '.join(names)})" if names else "")


def _compared(group: list[Run], other: list[Run]) -> str:
    common = sorted({run.seed for run in group} & {run.seed for run in other})
    return f"; RI and p are over those that both have ({', '.join(map(str, common))})" if common else ", none in common"


def _test_notes(
    groups: Mapping[tuple[str, str], list[Run]],
    metrics: Sequence[str],
    test: str | None,
    pairs_tested: int,
    pairs: Mapping[str, str],
) -> list[str]:
    notes = []
    if any(len(group) == 1 for group in groups.values()):
        notes.append("Rows with one seed have no deviation.")
    labels = {label for label, _ in groups}
    for label, backbone in pairs.items():
        if label in labels and backbone not in labels:
            notes.append(f"There is no run of {backbone}: no improvement can be given for {label}.")
    different: dict[str, list[str]] = {}  # what is to be said -> the data sets of which it is true
    for (label, dataset), group in groups.items():
        other = groups.get((pairs.get(label, ""), dataset))
        if other is not None and {run.seed for run in group} != {run.seed for run in other}:
            text = f"{label} and {pairs[label]} were run with different seeds{_compared(group, other)}."
            different.setdefault(text, []).append(dataset)
    notes += [f"{'; '.join(datasets)}: {text}" for text, datasets in different.items()]
    if test is None:
        return notes
    for group in groups.values():
        for run in group:
            ranks = run.ranks()
            for metric in metrics:
                by_ranks = float(per_user(ranks.rank, metric).mean())
                if abs(by_ranks - run.test[metric]) > RANKS_TOLERANCE:
                    notes.append(f"{run.run}: {metric} is {run.test[metric]:.4f}, but {by_ranks:.4f} by its ranks.")
    seeds = seed_note(groups, metrics, {base for label, base in pairs.items() if label in labels})
    notes += [seeds] if seeds else []
    notes.append(
        f"RI and p: against {_references(pairs, labels)}; {test} test over users (seeds averaged per user), two-sided, "
        f"Holm-corrected over {pairs_tested} comparisons."
    )
    return notes
