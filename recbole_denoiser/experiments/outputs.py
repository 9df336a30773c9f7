"""What an experiment leaves in ``<result_dir>/<experiment>/``: tables, figures, all runs in one CSV, its own YAML.

Everything is made from the result files of finished runs, so it can be made again at any time, also of a part of the
grid; what is missing is said.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from recbole_denoiser.analysis import pruning
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import plots, recovered
from recbole_denoiser.experiments.paper import load_paper_table
from recbole_denoiser.experiments.plan import Experiment, PlannedRun, Point
from recbole_denoiser.experiments.table_text import to_csv, to_latex, to_markdown
from recbole_denoiser.experiments.tables import ResultTable, build_table
from recbole_denoiser.files import write_text
from recbole_denoiser.runs.record import Run, load_run

KEPT = "epoch"  # the x of a figure that shows the kept share of attentions
RECOVERED = "recovered"  # the x of a figure with a bar per method


@dataclass(frozen=True)
class Finished:
    """A finished cell: where it stands in the grid and what came out."""

    plan: PlannedRun
    run: Run


def write_outputs(experiment: Experiment, planned: Sequence[PlannedRun], folder: Path) -> list[Path]:
    """Tables, figures and lists of all finished runs; returns the files."""
    finished = [Finished(cell, load_run(cell.folder)) for cell in planned if cell.finished]
    if not finished:
        raise UserError(f"No run of {experiment.name} is finished in {folder}.")
    table = experiment_table(experiment, finished)
    head = f"# {experiment.title or experiment.name}\n\n{_state(planned, finished)}\n\n"
    texts = {
        "experiment.yaml": yaml.safe_dump(_plain(experiment), sort_keys=False, allow_unicode=True),
        "table.md": head + _sections(table) + _other_modes(experiment, finished),
        "table.tex": "\n".join(to_latex(part) for part in (_parts(table) if experiment.vary else [table])),
        "table.csv": to_csv(table),
        "runs.csv": runs_csv(finished, experiment.metrics),
    }
    shares = _recovered(experiment, finished)
    if shares:
        texts["table.md"] += f"\n## Recovered\n\n{recovered.to_markdown(shares)}"
        texts |= {"recovered.tex": recovered.to_latex(shares), "recovered.csv": recovered.to_csv(shares)}
    files = [write_text(folder / name, text) for name, text in texts.items()]
    for figure in experiment.figures:
        if figure["x"] != RECOVERED:
            files += _figure(experiment, figure, finished, folder)
        elif shares:
            files += plots.recovered_figure(shares, folder / RECOVERED)
    if experiment.pruning:
        files += _pruning(finished, folder)
    return files


def _recovered(experiment: Experiment, finished: Sequence[Finished]) -> list[recovered.RecoveredShare]:
    """What each model wins back of what noise costs; nothing where the plain or the oracle runs are missing."""
    if not experiment.recovered:
        return []
    runs = _column_runs(experiment, finished)
    return recovered.recovered_shares(
        runs, experiment.recovered["plain"], experiment.recovered["oracle"], experiment.metrics
    )


def _pruning(finished: Sequence[Finished], folder: Path) -> list[Path]:
    """What was measured before, or can be measured now; runs whose checkpoint or data is not there are named."""
    rows, missing = [], []
    for cell in finished:
        try:
            quality = pruning.of_run(cell.run)
        except UserError as error:
            missing.append(f"{cell.plan} ({error})")
            continue
        if quality is not None:
            rows.append(replace(pruning.row(cell.run, quality), label=cell.plan.label))
    if not rows:
        return []
    return [
        write_text(folder / "pruning.md", pruning.to_markdown(rows) + _not_measured(missing)),
        write_text(folder / "pruning.csv", pruning.to_csv(rows)),
    ]


def _not_measured(missing: list[str]) -> str:
    if not missing:
        return ""
    return f"\nNot measured, for want of a checkpoint or data: {len(missing)}, such as {missing[0]}\n"


def _plain(experiment: Experiment) -> dict[str, Any]:
    return {key: value for key, value in asdict(experiment).items() if key != "name"} | {
        "test": experiment.test or "none"
    }


def _state(planned: Sequence[PlannedRun], finished: Sequence[Finished]) -> str:
    total, done = len({cell.name for cell in planned}), len({cell.plan.name for cell in finished})
    missing = [str(cell) for cell in planned if not cell.finished]
    text = f"{done} of {total} runs are finished; their settings are in experiment.yaml and in each run's result.json."
    modes = {cell.run.main_mode for cell in finished}
    if len(modes) == 1 and any(cell.run.modes for cell in finished):
        text += f" Measured with {modes.pop()} unless said."
    if missing:
        shown = "; ".join(missing[:5]) + ("; and others" if len(missing) > 5 else "")
        text += f" Missing: {shown}."
    return text


def _other_modes(experiment: Experiment, finished: Sequence[Finished]) -> str:
    """A further table for each mode of ``eval_modes`` of all runs, but for the one already shown."""
    shown = {cell.run.main_mode for cell in finished}
    shared = [mode for mode in finished[0].run.modes if all(mode in cell.run.modes for cell in finished)]
    parts = []
    for mode in (mode for mode in shared if shown != {mode}):
        cells = [replace(cell, run=cell.run.in_mode(mode)) for cell in finished]
        table = experiment_table(replace(experiment, paper=experiment.paper and mode == "uni100"), cells)
        parts.append(f"\n## Measured with {mode}\n\n{_sections(table)}")
    return "".join(parts)


# ---- tables ----


def column(dataset: str, point: Point) -> str:
    """Name of a column group: the data set and what was varied."""
    return ", ".join([dataset, *(f"{key} = {_value(value)}" for key, value in point)])


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def experiment_table(experiment: Experiment, finished: Sequence[Finished]) -> ResultTable:
    """One table of all finished runs, a column group per data set and varied value."""
    runs = _column_runs(experiment, finished)
    there = {run.dataset for run in runs}
    columns = [column(dataset, point) for dataset in experiment.datasets for point in experiment.points()]
    rows = {run.label for run in runs}
    table = build_table(
        runs,
        experiment.metrics,
        _pairs(experiment),
        load_paper_table() if experiment.paper else None,
        experiment.test,
        labels=[label for label in experiment.models if label in rows],
    )
    return replace(table, datasets=[name for name in columns if name in there])  # in the order of the experiment


def _column_runs(experiment: Experiment, finished: Sequence[Finished]) -> list[Run]:
    """All runs under the labels of the experiment and the names of their columns; a run that does not vary stands in
    every one."""
    return [
        replace(cell.run, label=cell.plan.label, dataset=column(dataset, point))
        for dataset in experiment.datasets
        for point in experiment.points()
        for cell in finished
        if cell.plan.dataset == dataset and cell.plan.point in (point, ())
    ]


def _pairs(experiment: Experiment) -> dict[str, str] | None:
    if isinstance(experiment.pairs, str):
        return {label: experiment.pairs for label in experiment.models if label != experiment.pairs}
    return experiment.pairs


def _parts(table: ResultTable) -> list[ResultTable]:
    """One table per column group; the notes go with the last."""
    return [
        replace(table, datasets=[dataset], notes=table.notes if dataset == table.datasets[-1] else [])
        for dataset in table.datasets
    ]


def _sections(table: ResultTable) -> str:
    return "\n".join(f"## {part.datasets[0]}\n\n{to_markdown(_unnamed(part))}" for part in _parts(table))


def _unnamed(part: ResultTable) -> ResultTable:
    """A table of one column group without its name, which stands in the heading."""
    (dataset,) = part.datasets
    cells = {(label, "", metric): cell for (label, name, metric), cell in part.cells.items() if name == dataset}
    return replace(part, datasets=[""], cells=cells)


def runs_csv(finished: Iterable[Finished], metrics: Sequence[str]) -> str:
    """Every run by itself: what was varied, validation and test metrics, kept shares, epochs and time."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ["label", "model", "dataset", "varied", "seed"]
    header += [f"{split} {metric}" for split in ("valid", "test") for metric in metrics]
    writer.writerow([*header, "kept", "best_epoch", "epochs", "seconds", "run"])
    for cell in finished:
        plan, run = cell.plan, cell.run
        varied = "; ".join(f"{key}={_value(value)}" for key, value in plan.point)
        numbers = [split.get(metric, "") for split in (run.valid, run.test) for metric in metrics]
        kept = next((record["kept"] for record in run.epochs if record["epoch"] == run.best_epoch), None)
        shares = "/".join(f"{share:.4f}" for share in kept or [])
        writer.writerow(
            [plan.label, plan.model, plan.dataset, varied, plan.seed, *numbers, shares, run.best_epoch + 1,
             len(run.epochs), f"{run.seconds:.1f}", run.run]
        )  # fmt: skip
    return text.getvalue()


# ---- figures ----


def _figure(experiment: Experiment, figure: dict[str, str], finished: Sequence[Finished], folder: Path) -> list[Path]:
    if figure["x"] == KEPT:
        panels = kept_panels(finished)
        return plots.kept_figure(panels, folder / "kept") if panels else []
    metric = figure.get("metric", experiment.metrics[0])
    lines = metric_panels(finished, figure["x"], metric)
    if not lines:
        return []
    return plots.metric_figure(lines, figure["x"], metric, folder / f"{figure['x']}-{metric.replace('@', '')}")


def metric_panels(finished: Sequence[Finished], x: str, metric: str) -> dict[str, dict[str, plots.Line]]:
    """Data set -> label -> line of the metric against the varied key ``x``; other varied keys go into the label."""
    values: dict[str, dict[str, dict[float | None, list[float]]]] = {}
    for cell in finished:
        point = dict(cell.plan.point)
        if cell.plan.point and x not in point:
            continue
        at = point.pop(x, None)
        label = column(cell.plan.label, tuple(point.items()))
        line = values.setdefault(cell.plan.dataset, {}).setdefault(label, {})
        line.setdefault(at, []).append(cell.run.test[metric])
    return {
        dataset: {label: _line(line) for label, line in lines.items()}
        for dataset, lines in values.items()
        if any(at is not None for line in lines.values() for at in line)
    }


def _line(values: dict[float | None, list[float]]) -> plots.Line:
    if None in values:
        return plots.Line(None, [values[None]])
    return plots.Line([float(at) for at in values if at is not None], list(values.values()))


def kept_panels(finished: Sequence[Finished]) -> dict[str, dict[str, list[list[dict[str, Any]]]]]:
    """Column -> label -> the epoch records of each seed, for models with masks."""
    panels: dict[str, dict[str, list[list[dict[str, Any]]]]] = {}
    for cell in finished:
        if any(record.get("kept") for record in cell.run.epochs):
            lines = panels.setdefault(column(cell.plan.dataset, cell.plan.point), {})
            lines.setdefault(cell.plan.label, []).append(cell.run.epochs)
    return panels
