"""The report of one run or several: one HTML file, and a folder of its figures as PNG and SVG.

Everything comes from result files; only the heat maps of masks read the checkpoint's weights. Runs that differ only in
the seed are one row and one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from recbole_denoiser.analysis.capture import mask_gates
from recbole_denoiser.experiments.paper import PaperTable, load_paper_table
from recbole_denoiser.files import write_text
from recbole_denoiser.report import figures
from recbole_denoiser.report.groups import Group, group_seeds
from recbole_denoiser.report.html import fill, page, template
from recbole_denoiser.report.markup import Figures, Markup, folded, note, section, table
from recbole_denoiser.report.metrics import Measured, differences, main_metrics, measured
from recbole_denoiser.report.runs import differing_settings, is_causal, pruning_quality, setting_text
from recbole_denoiser.runs.record import Run

STYLES = ("base.css", "report.css")
SCRIPTS = ("base.js",)
NOTHING = "-"
FEW = 3  # experiments whose details stand open


def write_report(runs: Sequence[Run], file: Path) -> list[Path]:
    """Write the page and its figures; returns the files, the page first."""
    groups = group_seeds(runs)
    paper = load_paper_table()
    rows = {group.name: measured(group.runs, paper) for group in groups}
    metrics = main_metrics(runs)
    drawn = Figures(file.with_name(f"{file.stem}_figures"))
    sections = [
        _overview(groups, rows, metrics, paper, drawn),
        _comparison(groups, metrics),
        _training(groups, metrics, drawn),
        _masks(groups, drawn),
        _noise(runs, groups, metrics, drawn),
        _metrics(groups, rows),
        _settings(groups),
    ]
    datasets = ", ".join(dict.fromkeys(run.dataset for run in runs))
    alone = len(runs) == 1
    heading = f"{runs[0].label} on {datasets}" if alone else f"{len(runs)} runs on {datasets}"
    if alone:
        facts = _facts(runs[0])
    else:
        facts = f"{len(groups)} experiments, seeds {', '.join(str(s) for s in sorted({run.seed for run in runs}))}"
    body = fill(
        template("report.html"),
        heading=escape(heading),
        facts=escape(facts),
        sections="\n".join(part for part in sections if part),
    )
    write_text(file, page(heading, STYLES, SCRIPTS, body))
    return [file, *drawn.files]


def _facts(run: Run) -> str:
    data = run.data
    size = ", ".join(f"{data[key]:,} {key}" for key in ("users", "items", "interactions") if key in data)
    return f"run {run.run}; {size}; seed {run.seed}; {run.seconds:.0f} s"


def _value(entry: Measured) -> str:
    text = f"{entry.test:.4f}" + ("" if entry.deviation is None else f" ± {entry.deviation:.4f}")
    if entry.interval is None:
        return text
    low, high = entry.interval
    return Markup(f'{text} <span class="range">[{low:.4f}, {high:.4f}]</span>')


def _optional(value: float | None, digits: int = 4) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _overview(
    groups: Sequence[Group],
    rows: dict[str, list[Measured]],
    metrics: Sequence[str],
    paper: PaperTable,
    drawn: Figures,
) -> str:
    several_sets = len({group.first.dataset for group in groups}) > 1
    header = ["Experiment", *(["Data set"] if several_sets else [])]
    published = any(entry.paper is not None for entries in rows.values() for entry in entries)
    for metric in metrics:
        header += [f"test {metric}", *(["paper"] if published else [])]
    header += ["seeds", "kept attention", "best epoch", "seconds"]
    lines = []
    for group in groups:
        line = [group.name, *([group.first.dataset] if several_sets else [])]
        for metric in metrics:
            entry = next(entry for entry in rows[group.name] if entry.metric == metric)
            line += [_value(entry), *([_optional(entry.paper)] if published else [])]
        kept = group.first.kept
        line.append(str(len(group.runs)))
        line.append(" / ".join(f"{100 * share:.1f} %" for share in kept) if kept else NOTHING)
        best = ", ".join(str(run.best_epoch + 1) for run in group.runs)
        line.append(f"{best} of {max(len(run.epochs) for run in group.runs)}")
        line.append(f"{sum(run.seconds for run in group.runs):.0f}")
        lines.append(line)
    several = any(len(group.runs) > 1 for group in groups)
    notes = "[...]: 95 % intervals, users drawn again with replacement. They say how much the users differ."
    if several:
        notes += " ±: deviation over seeds, which share a row; kept attention is the first seed's."
    if published:
        slips = "; ".join(paper.slip_notes())
        notes += f" Paper: {paper.title}; where its printed improvements do not follow from its values: {slips}."
    picture = ""
    if metrics and len(groups) > 1:
        picture = drawn.show(
            figures.intervals_figure(rows, metrics, drawn.stem("metrics")),
            "Test metrics with 95 % intervals over users" + ("; hollow: the paper's value." if published else "."),
        )
    return section("Results", table(header, lines, 1 + several_sets), note(notes), picture)


def _comparison(groups: Sequence[Group], metrics: Sequence[str]) -> str:
    found, notes = differences(groups, metrics)
    lines = [
        [
            entry.run,
            entry.against,
            entry.metric,
            f"{entry.difference:+.4f}",
            f"[{entry.interval[0]:+.4f}, {entry.interval[1]:+.4f}]",
            f"{entry.p:.4f}" + (" †" if entry.p < 0.05 else ""),
        ]
        for entry in found
    ]
    if not lines and not notes:
        return ""
    header = ["Experiment", "against", "metric", "difference", "95 % interval", "p"]
    explanation = (
        "Each is compared with its plain backbone at the same share of noise, where there is one. Paired over users, "
        "seeds averaged per user; p: permutation test with Holm's correction over this table; †: p < 0.05, not "
        "what chance among the users explains. With one seed, another seed may still turn it round."
    )
    bases = list(dict.fromkeys(entry.against for entry in found))
    return section(
        f"Differences to {bases[0]}" if len(bases) == 1 else "Differences to the reference",
        table(header, lines, 3) + note(explanation) if lines else "",
        *(note(text) for text in notes),
    )


def _training(groups: Sequence[Group], metrics: Sequence[str], drawn: Figures) -> str:
    seeds = " The band is the range over seeds." if any(len(group.runs) > 1 for group in groups) else ""
    grey = " The other experiments on the data set are grey." if len(groups) > figures.MOST_LINES else ""
    return section(
        "Training",
        drawn.show(
            figures.validation_figure(groups, metrics, drawn.stem("validation")),
            "Validation metrics per epoch." + seeds + grey,
        ),
        drawn.show(
            figures.losses_figure(groups, drawn.stem("losses")),
            "Loss terms per epoch: rec is the recommendation loss (eq. 7), the mask term is beta R_M (eq. 11) with the "
            "zero-valued surrogate of Phi, the Jacobian term is gamma R_J (eq. 14). A term that is zero in all runs is "
            "left out." + seeds + grey,
        ),
        drawn.show(
            figures.kept_figure(groups, drawn.stem("kept")),
            "Share of live attentions whose gate is open at inference, per layer." + seeds + grey,
        ),
    )


def _masks(groups: Sequence[Group], drawn: Figures) -> str:
    parts = []
    masked = [group for group in groups if group.first.config.get("denoise")]
    for number, group in enumerate(masked):
        run, name = group.first, group.name
        gates = mask_gates(run)
        if gates is None:
            parts.append(note(f"{name}: the checkpoint {run.checkpoint} is not there, so its masks cannot be shown."))
            continue
        complete = run.config.get("mask") != "content"
        caption = f"{name}{f', seed {run.seed}' if len(group.runs) > 1 else ''}: gate of each layer, the newest "
        caption += "position last."
        if not complete:
            caption += " Only the part that depends on the positions; the rest depends on the items (see explain)."
        drawing = figures.masks_figure(gates, is_causal(run), complete, drawn.stem(f"masks-{number + 1}"))
        shown = drawn.show(drawing, caption)
        parts.append(shown if len(masked) <= FEW else folded(f"Masks of {name}", shown))
    return section("Masks", *parts)


def _noise(runs: Sequence[Run], groups: Sequence[Group], metrics: Sequence[str], drawn: Figures) -> str:
    curves = [
        drawn.show(
            figures.noise_figure(runs, metric, drawn.stem(f"noise-{metric.replace('@', '')}")),
            f"Test {metric} against the share of training items that were replaced (section 5.3).",
        )
        for metric in metrics
    ]
    lines = []
    for group in groups:
        for run in group.runs:
            for layer in pruning_quality(run) or []:
                keys = ("injected", "pruned", "precision", "recall", "gate_auc", "attention_auc")
                lines.append([group.name, str(layer["layer"]), *(_optional(layer.get(key), 3) for key in keys)])
    quality = ""
    if lines:
        header = ["Experiment", "layer", "injected", "pruned", "precision", "recall", "gate AUC", "attention AUC"]
        quality = table(header, lines, 2) + note(
            "Pruning as a detector of injected items. A random mask has a precision equal to the injected share, a "
            "recall equal to the pruned share and an AUC of 0.5."
        )
    return section("Noise", *curves, quality)


def _metrics(groups: Sequence[Group], rows: dict[str, list[Measured]]) -> str:
    parts = []
    for group in groups:
        entries = rows[group.name]
        published = any(row.paper is not None for row in entries)
        header = ["Metric", "validation", "test", *(["paper"] if published else [])]
        lines = [
            [row.metric, _optional(row.valid), _value(row), *([_optional(row.paper)] if published else [])]
            for row in entries
        ]
        inside = table(header, lines)
        if len(groups) <= FEW:
            parts.append(f"<h3>{escape(group.name)}</h3>{inside}")
        else:
            parts.append(folded(f"All metrics of {group.name}", inside))
    return section("All metrics", *parts)


def _settings(groups: Sequence[Group]) -> str:
    parts = []
    if len(groups) > 1:
        differing = differing_settings([group.first for group in groups])
        lines = [[group.name, *(values[place] for _, values in differing)] for place, group in enumerate(groups)]
        header = ["Experiment", *(key for key, _ in differing)]
        parts.append("<h3>Where the experiments differ</h3>" + table(header, lines, len(header)))
    for group in groups:
        run = group.first
        lines = [[key, setting_text(value)] for key, value in sorted(run.config.items())]
        lines += [[f"version of {key}", str(value)] for key, value in run.versions.items()]
        lines += [[f"data: {key}", str(value)] for key, value in run.data.items()]
        parts.append(folded(f"All settings of {group.name}", table(["Key", "Value"], lines, 2)))
    return section("Settings", *parts)
