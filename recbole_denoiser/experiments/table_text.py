"""A ResultTable as Markdown, LaTeX or CSV. Best values are bold (with † if significant), second ones underlined."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from recbole_denoiser.experiments.tables import SIGNIFICANT, Cell, ResultTable

METRIC_NAMES = {"hit": "Hit", "ndcg": "NDCG", "mrr": "MRR", "recall": "Recall"}


@dataclass(frozen=True)
class Column:
    """One column: the seeds of a data set, or value, RI, p or the paper's value of one of its metrics."""

    dataset: str
    metric: str  # the data set's first metric for the column of seeds
    kind: str  # seeds, value, RI %, p, paper

    def header(self) -> str:
        return metric_name(self.metric) if self.kind == "value" else self.kind


def metric_name(metric: str) -> str:
    name, at, k = metric.partition("@")
    return METRIC_NAMES.get(name.lower(), name) + at + k


def columns_of(table: ResultTable) -> list[Column]:
    """RI, p and paper have a column only where some row has a value."""
    columns = []
    for dataset in table.datasets:
        columns.append(Column(dataset, table.metrics[0], "seeds"))
        for metric in table.metrics:
            cells = [cell for (_, d, m), cell in table.cells.items() if (d, m) == (dataset, metric)]
            columns.append(Column(dataset, metric, "value"))
            if any(cell.improvement is not None for cell in cells):
                columns.append(Column(dataset, metric, "RI %"))
            if any(cell.p is not None for cell in cells):
                columns.append(Column(dataset, metric, "p"))
            if any(cell.paper is not None for cell in cells):
                columns.append(Column(dataset, metric, "paper"))
    return columns


def p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _plain(cell: Cell, kind: str) -> str:
    """Text of a cell but for its value, or an empty text."""
    if kind == "seeds":
        return str(cell.seeds)
    if kind == "RI %" and cell.improvement is not None:
        return f"{cell.improvement:+.2f}"
    if kind == "p" and cell.p is not None:
        return p_text(cell.p)
    if kind == "paper" and cell.paper is not None:
        return f"{cell.paper:.4f}"
    return ""


def to_markdown(table: ResultTable) -> str:
    marks = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    columns = columns_of(table)
    header = ["Model"] + [f"{c.dataset} {c.header()}" if c.kind in ("value", "seeds") else c.header() for c in columns]
    lines = [_markdown_row(header), "|---|" + "---:|" * len(columns)]
    for label in table.labels:
        row = [label.replace("|", "\\|")]
        for column in columns:
            cell = table.cells.get((label, column.dataset, column.metric))
            if cell is None:
                row.append("-" if column.kind == "value" else "")
            elif column.kind == "value":
                value = marks[cell.mark].format(f"{cell.mean:.4f}") + (SIGNIFICANT if cell.significant else "")
                row.append(value if cell.deviation is None else f"{value} ± {cell.deviation:.4f}")
            else:
                row.append(_plain(cell, column.kind).replace("<", "&lt;"))
        lines.append(_markdown_row(row))
    return "\n".join([*lines, "", *[f"- {note}" for note in table.notes]]) + "\n"


def _markdown_row(fields: list[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    escaped = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        "±": r"$\pm$",
        SIGNIFICANT: r"$\dagger$",
    }
    escaped.update({character: "\\" + character for character in "&%$#_{}"})
    return "".join(escaped.get(character, character) for character in text)


def to_latex(table: ResultTable) -> str:
    """A tabular for booktabs: data sets over their columns; the notes follow as a paragraph."""
    marks = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
    columns = columns_of(table)
    widths = [sum(column.dataset == dataset for column in columns) for dataset in table.datasets]
    groups = [
        rf"\multicolumn{{{width}}}{{c}}{{{latex_text(dataset)}}}"
        for width, dataset in zip(widths, table.datasets, strict=True)
    ]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *groups]) + r" \\",
        " & ".join(["Model", *[latex_text(column.header()) for column in columns]]) + r" \\",
        r"\midrule",
    ]
    for label in table.labels:
        row = [latex_text(label)]
        for column in columns:
            cell = table.cells.get((label, column.dataset, column.metric))
            if cell is None:
                row.append("--" if column.kind == "value" else "")
            elif column.kind == "value":
                value = marks[cell.mark].format(f"{cell.mean:.4f}") + (r"$^\dagger$" if cell.significant else "")
                row.append(value if cell.deviation is None else rf"{value} $\pm$ {cell.deviation:.4f}")
            else:
                row.append(latex_text(_plain(cell, column.kind)))
        lines.append(" & ".join(row) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += ["", r"\smallskip\footnotesize", " ".join(latex_text(note) for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_csv(table: ResultTable) -> str:
    """One line per model, data set and metric, with unrounded numbers; empty where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "dataset", "metric", "mean", "deviation", "seeds", "ri_percent", "p", "paper", "mark",
                     "significant"])  # fmt: skip
    for label in table.labels:
        for dataset in table.datasets:
            for metric in table.metrics:
                cell = table.cells.get((label, dataset, metric))
                if cell is not None:
                    numbers = [cell.mean, cell.deviation, cell.seeds, cell.improvement, cell.p, cell.paper]
                    writer.writerow([label, dataset, metric, *numbers, cell.mark, int(cell.significant)])
    return text.getvalue()
