"""``recbole-denoiser compare``: any finished runs in one table, with paired tests of all against a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.reference import reference
from recbole_denoiser.experiments.stats import PairedTest, compare, holm
from recbole_denoiser.experiments.table_text import metric_name, p_text
from recbole_denoiser.experiments.tables import TESTS, ResultTable, build_table, group_runs
from recbole_denoiser.files import read_arrays
from recbole_denoiser.runs.record import Run, find_runs


@dataclass(frozen=True)
class Comparison:
    """The table and, by (label, data set, metric), the tests against the reference."""

    table: ResultTable
    reference: str
    tests: dict[tuple[str, str, str], PairedTest]
    test: str  # whose p-values the table shows

    def __str__(self) -> str:
        return "\n".join(_test_lines(self))


def named_runs(sources: Sequence[str], result_dir: str = "results") -> list[Run]:
    """Runs by folder (of one run or of several) or by name in ``result_dir``, each optionally as ``name=run``.

    Runs that would be mistaken for each other (same label, data set and seed) get the names of their folders.
    """
    runs: list[Run] = []
    for source in sources:
        name, equals, folder = source.partition("=")
        found = find_runs([folder if equals else source], result_dir)
        runs += [replace(run, label=name) for run in found] if equals else found
    places = [(run.label, run.dataset, run.seed) for run in runs]
    clashing = {run.label for run, place in zip(runs, places, strict=True) if places.count(place) > 1}
    return [replace(run, label=run.folder.name) if run.label in clashing else run for run in runs]


def compare_runs(
    runs: Sequence[Run], metrics: Sequence[str], test: str = "permutation", against: str | None = None
) -> Comparison:
    """Table and paired tests; everything is compared with the label ``against``, by default the plain backbone's."""
    labels = list(dict.fromkeys(run.label for run in runs))
    if len(labels) < 2:
        raise UserError(
            f"All {len(runs)} run(s) have the label '{labels[0]}': there is nothing to compare. "
            f"Name them: a=folder b=folder."
        )
    if test not in TESTS:
        raise UserError(f"--test {test} must be one of {', '.join(TESTS)}.")
    if against is not None and against not in labels:
        raise UserError(f"--reference {against}: no run has this label. There are: {', '.join(labels)}.")
    first = against or reference(runs).label
    others = [label for label in labels if label != first]
    table = build_table(runs, metrics, dict.fromkeys(others, first), test=test, labels=labels)
    groups = group_runs(runs)
    tests = {
        (label, dataset, metric): compare(group, groups[first, dataset], metric)
        for (label, dataset), group in groups.items()
        if label != first and (first, dataset) in groups
        for metric in metrics
    }
    if not tests:
        raise UserError(f"No other run is on a data set of {first}, so nothing can be compared.")
    notes = table.notes + _candidate_notes(runs, first)
    return Comparison(replace(table, notes=notes), first, tests, test)


def _candidate_notes(runs: Sequence[Run], first: str) -> list[str]:
    """Where two runs of the same seed ranked other candidates: their ranks are then not paired."""
    notes = []
    for run in runs:
        for base in runs:
            paired = base.label == first != run.label and (base.dataset, base.seed) == (run.dataset, run.seed)
            if paired and not _same_candidates(run, base):
                notes.append(f"{run.label} and {first} (seed {run.seed}) did not rank the same candidates.")
    return list(dict.fromkeys(notes))


def _same_candidates(one: Run, other: Run) -> bool:
    """By the files of the candidates; if one was not kept, by what frozen candidates are drawn from."""
    ours, theirs = _candidates(one), _candidates(other)
    if ours is not None and theirs is not None:
        return np.array_equal(ours, theirs)
    drawn_from = [
        (run.data.get("sha256"), run.seed, run.config.get("eval_args"), run.config.get("eval_negatives"))
        for run in (one, other)
    ]
    return drawn_from[0] == drawn_from[1] and drawn_from[0][3] == "frozen"


def _candidates(run: Run) -> np.ndarray | None:
    """The test candidates of each user [users, 2 + negatives], users sorted; the evaluation mode if all items count."""
    mode = run.config.get("eval_args", {}).get("mode", {})
    if isinstance(mode, dict) and mode.get("test") == "full":
        return np.array(["full"])
    names = ("test_user", "test_item", "test_negatives")
    try:
        kept = read_arrays(run.folder / "negatives.npz")
        user, item, negatives = (kept[name] for name in names)
    except (UserError, KeyError):
        return None  # not kept: RecBole's own negatives are drawn anew at each evaluation
    if "items" in kept:  # else written by release 0.1, as tokens
        item, negatives = kept["items"][item], kept["items"][negatives]
    return np.column_stack([user, item, negatives])[np.argsort(user, kind="stable")]


def _test_lines(comparison: Comparison) -> list[str]:
    corrected = holm({place: getattr(found, comparison.test) for place, found in comparison.tests.items()})
    lines = [
        f"Paired tests over users against {comparison.reference} (two-sided; Holm: {comparison.test} corrected over "
        f"{len(corrected)} comparisons)",
        "",
        "| Model | Data set | Metric | Users | Difference | 95 % interval | Permutation | t | Wilcoxon | McNemar "
        "| Holm |",
        "|---|---|---|" + "---:|" * 8,
    ]
    for (label, dataset, metric), found in comparison.tests.items():
        low, high = found.interval
        numbers = [p_text(found.permutation), p_text(found.t), p_text(found.wilcoxon)]
        numbers += ["-" if found.mcnemar is None else p_text(found.mcnemar), p_text(corrected[label, dataset, metric])]
        lines.append(
            f"| {label} | {dataset} | {metric_name(metric)} | {found.users:,} | {found.difference:+.4f} "
            f"| {low:+.4f} to {high:+.4f} | " + " | ".join(numbers) + " |"
        )
    return lines
