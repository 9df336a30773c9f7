"""The report of one run or several: one HTML file, and a folder of its figures as PNG and SVG.

Everything comes from result files; only the heat maps of masks read the checkpoint's weights.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recbole_denoiser.analysis.capture import mask_gates
from recbole_denoiser.experiments.paper import PaperTable, load_paper_table
from recbole_denoiser.files import write_text
from recbole_denoiser.report import figures
from recbole_denoiser.report.html import fill, page, template
from recbole_denoiser.report.metrics import Measured, differences, main_metrics, measured
from recbole_denoiser.report.runs import (
    differing_settings,
    is_causal,
    names_of,
    pruning_quality,
    setting_text,
)
from recbole_denoiser.runs.record import Run

STYLES = ("base.css", "report.css")
SCRIPTS = ("base.js",)
NOTHING = "-"


def write_report(runs: Sequence[Run], file: Path) -> list[Path]:
    """Write the page and its figures; gives the files."""
    folder = file.with_name(f"{file.stem}_figures")
    names = names_of(runs)
    paper = load_paper_table()
    rows = {name: measured(run, paper) for run, name in zip(runs, names, strict=True)}
    metrics = main_metrics(runs)
    drawn = _Figures(folder)
    sections = [
        _overview(runs, names, rows, metrics, paper, drawn),
        _comparison(runs, names, metrics),
        _training(runs, names, metrics, drawn),
        _masks(runs, names, drawn),
        _noise(runs, names, metrics, drawn),
        *(_metrics(name, rows[name]) for name in names),
        _settings(runs, names),
    ]
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    alone = len(runs) == 1
    heading = f"{runs[0].label} on {runs[0].dataset}" if alone else f"{len(runs)} runs on {', '.join(datasets)}"
    body = fill(
        template("report.html"),
        heading=escape(heading),
        facts=escape(_facts(runs[0]) if alone else "; ".join(names)),
        sections="\n".join(section for section in sections if section),
    )
    write_text(file, page(heading, STYLES, SCRIPTS, body))
    return [file, *drawn.files]


def _facts(run: Run) -> str:
    data = run.data
    size = ", ".join(f"{data[key]:,} {key}" for key in ("users", "items", "interactions") if key in data)
    return f"run {run.run}; {size}; seed {run.seed}; {run.seconds:.0f} s"


# ---- markup ----


class _Figures:
    """Files that were drawn, and their markup."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, list[Path]()

    def stem(self, name: str) -> Path:
        return self.folder / name

    def show(self, files: Sequence[Path], caption: str) -> str:
        """A figure with its SVG inside; nothing if nothing was drawn."""
        if not files:
            return ""
        self.files += files
        drawing = next(file for file in files if file.suffix == ".svg").read_bytes()
        source = "data:image/svg+xml;base64," + base64.b64encode(drawing).decode("ascii")
        text = escape(caption)
        image = f'<div class="scroll"><img src="{source}" alt="{text}"></div>'
        return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def _section(title: str, *parts: str) -> str:
    inside = "\n".join(part for part in parts if part)
    return f'<section class="panel"><h2>{escape(title)}</h2>\n{inside}\n</section>' if inside else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Cells are text; only ``_Markup`` goes in as it is."""
    head = "".join(_cell("th", cell, place >= text_columns) for place, cell in enumerate(header))
    body = "".join(
        "<tr>" + "".join(_cell("td", cell, place >= text_columns) for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


class _Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def _cell(tag: str, text: str, number: bool) -> str:
    inside = text if isinstance(text, _Markup) else escape(text)
    kind = ' class="number"' if number else ""
    return f"<{tag}{kind}>{inside}</{tag}>"


def _note(text: str) -> str:
    return f'<p class="note small muted">{escape(text)}</p>'


def _value(entry: Measured) -> str:
    if entry.interval is None:
        return f"{entry.test:.4f}"
    low, high = entry.interval
    return _Markup(f'{entry.test:.4f} <span class="range">[{low:.4f}, {high:.4f}]</span>')


def _optional(value: float | None, digits: int = 4) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


# ---- sections ----


def _overview(
    runs: Sequence[Run],
    names: Sequence[str],
    rows: dict[str, list[Measured]],
    metrics: Sequence[str],
    paper: PaperTable,
    drawn: _Figures,
) -> str:
    header = ["Run", "Data set"]
    published = any(entry.paper is not None for entries in rows.values() for entry in entries)
    for metric in metrics:
        header += [f"test {metric}", *(["paper"] if published else [])]
    header += ["kept attention", "best epoch", "seconds"]
    table = []
    for run, name in zip(runs, names, strict=True):
        line = [name, run.dataset]
        for metric in metrics:
            entry = next(entry for entry in rows[name] if entry.metric == metric)
            line += [_value(entry), *([_optional(entry.paper)] if published else [])]
        kept = run.kept
        line.append(" / ".join(f"{100 * share:.1f} %" for share in kept) if kept else NOTHING)
        line += [f"{run.best_epoch + 1} of {len(run.epochs)}", f"{run.seconds:.0f}"]
        table.append(line)
    notes = "Intervals: 95 %, users drawn again with replacement. They say how much the users differ, not the seeds."
    if published:
        slips = "; ".join(paper.slip_notes())
        notes += f" Paper: {paper.title}; where its printed improvements do not follow from its values: {slips}."
    picture = ""
    if metrics and len(runs) > 1:
        picture = drawn.show(
            figures.intervals_figure(rows, metrics, drawn.stem("metrics")),
            "Test metrics with 95 % intervals over users" + ("; hollow: the paper's value." if published else "."),
        )
    return _section("Results", _table(header, table, 2), _note(notes), picture)


def _comparison(runs: Sequence[Run], names: Sequence[str], metrics: Sequence[str]) -> str:
    found, notes = differences(runs, names, metrics)
    table = [
        [
            entry.run,
            entry.against,
            entry.metric,
            f"{entry.difference:+.4f}",
            f"[{entry.interval[0]:+.4f}, {entry.interval[1]:+.4f}]",
            f"{entry.p:.4f}",
        ]
        for entry in found
    ]
    if not table and not notes:
        return ""
    header = ["Run", "against", "metric", "difference", "95 % interval", "p"]
    explanation = "Paired over users; p: permutation test with Holm's correction over this table. One seed each."
    return _section(
        "Differences to the first run",
        _table(header, table, 3) + _note(explanation) if table else "",
        *(_note(note) for note in notes),
    )


def _training(runs: Sequence[Run], names: Sequence[str], metrics: Sequence[str], drawn: _Figures) -> str:
    return _section(
        "Training",
        drawn.show(
            figures.losses_figure(runs, names, drawn.stem("losses")),
            "Loss terms per epoch: rec is the recommendation loss (eq. 7), the mask term is beta R_M (eq. 11) with the "
            "zero-valued surrogate of Phi, the Jacobian term is gamma R_J (eq. 14). A term that is zero in all runs is "
            "left out.",
        ),
        drawn.show(
            figures.validation_figure(runs, names, metrics, drawn.stem("validation")),
            "Validation metrics per epoch.",
        ),
        drawn.show(
            figures.kept_figure(runs, names, drawn.stem("kept")),
            "Share of live attentions whose gate is open at inference, per layer.",
        ),
    )


def _masks(runs: Sequence[Run], names: Sequence[str], drawn: _Figures) -> str:
    parts = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        if not run.config.get("denoise"):
            continue
        gates = mask_gates(run)
        if gates is None:
            parts.append(_note(f"{name}: the checkpoint {run.checkpoint} is not there, so its masks cannot be shown."))
            continue
        complete = run.config.get("mask") != "content"
        caption = f"{name}: gate of each layer, the newest position last."
        if not complete:
            caption += " Only the part that depends on the positions; the rest depends on the items (see explain)."
        files = figures.masks_figure(gates, is_causal(run), complete, drawn.stem(f"masks-{number + 1}"))
        parts.append(drawn.show(files, caption))
    return _section("Masks", *parts)


def _noise(runs: Sequence[Run], names: Sequence[str], metrics: Sequence[str], drawn: _Figures) -> str:
    curves = [
        drawn.show(
            figures.noise_figure(runs, metric, drawn.stem(f"noise-{metric.replace('@', '')}")),
            f"Test {metric} against the share of training items that were replaced (section 5.3).",
        )
        for metric in metrics
    ]
    table = []
    for run, name in zip(runs, names, strict=True):
        for layer in pruning_quality(run) or []:
            numbers = [
                layer.get(key) for key in ("injected", "pruned", "precision", "recall", "gate_auc", "attention_auc")
            ]
            table.append([name, str(layer["layer"]), *(_optional(number, 3) for number in numbers)])
    quality = ""
    if table:
        header = ["Run", "layer", "injected", "pruned", "precision", "recall", "gate AUC", "attention AUC"]
        quality = _table(header, table, 2) + _note(
            "Pruning as a detector of injected items. A random mask has a precision equal to the injected share, a "
            "recall equal to the pruned share and an AUC of 0.5."
        )
    return _section("Noise", *curves, quality)


def _metrics(name: str, rows: Sequence[Measured]) -> str:
    published = any(row.paper is not None for row in rows)
    header = ["Metric", "validation", "test", *(["paper"] if published else [])]
    table = [
        [row.metric, _optional(row.valid), _value(row), *([_optional(row.paper)] if published else [])] for row in rows
    ]
    return _section(f"Metrics of {name}", _table(header, table))


def _settings(runs: Sequence[Run], names: Sequence[str]) -> str:
    parts = []
    if len(runs) > 1:
        rows = [[key, *values] for key, values in differing_settings(runs)]
        parts.append("<h3>Where the runs differ</h3>" + _table(["Key", *names], rows, len(names) + 1))
    for run, name in zip(runs, names, strict=True):
        rows = [[key, setting_text(value)] for key, value in sorted(run.config.items())]
        rows += [[f"version of {key}", str(value)] for key, value in run.versions.items()]
        rows += [[f"data: {key}", str(value)] for key, value in run.data.items()]
        parts.append(
            f"<details><summary>All settings of {escape(name)}</summary>{_table(['Key', 'Value'], rows, 2)}</details>"
        )
    return _section("Settings", *parts)
