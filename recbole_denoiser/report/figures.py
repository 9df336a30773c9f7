"""Figures of a report, each as a PNG file and as SVG for the page, in the colours of the experiments' figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import plots
from recbole_denoiser.files import write_atomically
from recbole_denoiser.report.metrics import Measured
from recbole_denoiser.report.runs import live
from recbole_denoiser.runs.record import Run

PANEL = (3.5, 2.7)  # inches
TERMS = {"rec": "recommendation loss", "mask": "mask term", "jacobian": "Jacobian term", "loss": "loss"}


def losses_figure(runs: Sequence[Run], names: Sequence[str], stem: Path) -> list[Path]:
    """Mean of each loss term per epoch, a panel per term; the best epoch is marked. Nothing without epochs."""
    terms = list(dict.fromkeys(term for run in runs for record in run.epochs for term in record["losses"]))
    terms = [t for t in terms if any(record["losses"].get(t) for run in runs for record in run.epochs)]
    panels = {TERMS.get(term, term): {name: _losses(run, term) for run, name in zip(runs, names, strict=True)}
              for term in terms}  # fmt: skip
    return _lines(panels, {name: run.best_epoch for run, name in zip(runs, names, strict=True)}, stem)


def validation_figure(runs: Sequence[Run], names: Sequence[str], metrics: Sequence[str], stem: Path) -> list[Path]:
    """Validation metrics per epoch."""
    panels = {f"validation {metric}": {name: _validation(run, metric) for run, name in zip(runs, names, strict=True)}
              for metric in metrics}  # fmt: skip
    return _lines(panels, {name: run.best_epoch for run, name in zip(runs, names, strict=True)}, stem)


def _losses(run: Run, term: str) -> dict[int, float]:
    return {record["epoch"]: record["losses"][term] for record in run.epochs if term in record["losses"]}


def _validation(run: Run, metric: str) -> dict[int, float]:
    return {record["epoch"]: record["valid"][metric] for record in run.epochs if metric in (record.get("valid") or {})}


def _lines(panels: dict[str, dict[str, dict[int, float]]], best: dict[str, int], stem: Path) -> list[Path]:
    panels = {title: lines for title, lines in panels.items() if any(lines.values())}
    if not panels:
        return []
    figure, axes = _grid(len(panels))
    names = list(best)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, line in lines.items():
            number = names.index(name)
            colour, style = _look(number)
            epochs = np.array(list(line)) + 1
            if line:
                axis.plot(epochs, list(line.values()), style, color=colour, linewidth=1.4, label=name)
            if best[name] in line:
                axis.plot([best[name] + 1], [line[best[name]]], "o", color=colour, markersize=5)
        axis.set_title(title)
        axis.set_xlabel("epoch (dot: the checkpoint)")
        axis.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, axes)
    return _save(figure, stem)


def intervals_figure(rows: dict[str, list[Measured]], metrics: Sequence[str], stem: Path) -> list[Path]:
    """Test metrics of all runs with their 95 % intervals; a hollow diamond is the paper's value."""
    figure, axes = _grid(len(metrics), height=0.9 + 0.32 * len(rows))
    for axis, metric in zip(axes, metrics, strict=True):
        for place, entries in enumerate(rows.values()):
            entry = next(entry for entry in entries if entry.metric == metric)
            colour = plots.COLOURS[place % len(plots.COLOURS)]
            if entry.interval:
                axis.plot(
                    entry.interval, [place, place], color=colour, linewidth=2.5, alpha=0.55, solid_capstyle="round"
                )
            axis.plot([entry.test], [place], "o", color=colour, markersize=6)
            if entry.paper is not None:
                axis.plot([entry.paper], [place], "D", color=colour, markersize=6, fillstyle="none")
        axis.set_yticks(range(len(rows)), list(rows) if axis is axes[0] else [""] * len(rows))
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_title(f"test {metric}")
    return _save(figure, stem)


def masks_figure(gates: Sequence[Tensor], causal: bool, complete: bool, stem: Path) -> list[Path]:
    """Gate of every layer (and head): dark is open, red is pruned, empty cannot be read.

    ``complete`` is False for the positional part of a content mask, which alone decides nothing.
    """
    entries = [(layer, head, live(Z[head], causal).numpy()) for layer, Z in enumerate(gates) for head in range(len(Z))]
    figure, axes = _grid(len(entries), height=PANEL[0])
    from matplotlib import colormaps  # after _grid, which says what to do where it is missing

    colours = colormaps["YlGnBu"].with_extremes(under="#e07a5f", bad=(0, 0, 0, 0))
    n = gates[0].shape[-1]
    image = None
    for axis, (layer, head, Z) in zip(axes, entries, strict=True):
        image = axis.imshow(
            Z, cmap=colours, vmin=0.5, vmax=1.0, interpolation="nearest", extent=(0.5, n + 0.5, n + 0.5, 0.5)
        )
        title = f"layer {layer + 1}" + (f", head {head + 1}" if len(gates[layer]) > 1 else "")
        kept = (Z > 0).sum() / np.isfinite(Z).sum()
        axis.set_title(f"{title}: {100 * kept:.1f} % kept" if complete else title)
        axis.set_xlabel("position that is read")
        axis.grid(visible=False)
    axes[0].set_ylabel("position that reads")
    bar = figure.colorbar(image, ax=axes, shrink=0.75, extend="min")
    bar.set_label("gate (red: pruned)")
    return _save(figure, stem)


def noise_figure(runs: Sequence[Run], metric: str, stem: Path) -> list[Path]:
    """A metric against the share of training noise, where some label has been run at two shares or more."""
    panels: dict[str, dict[str, dict[float, list[float]]]] = {}
    for run in runs:
        share = 100 * float(run.config.get("train_noise") or 0.0)
        panels.setdefault(run.dataset, {}).setdefault(run.label, {}).setdefault(share, []).append(run.test[metric])
    panels = {dataset: {label: line for label, line in lines.items() if len(line) > 1}
              for dataset, lines in panels.items()}  # fmt: skip
    panels = {dataset: lines for dataset, lines in panels.items() if lines}
    if not panels:
        return []
    figure, axes = _grid(len(panels))
    names = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    for axis, (dataset, lines) in zip(axes, panels.items(), strict=True):
        for label, line in lines.items():
            colour, style = _look(names.index(label))
            shares = sorted(line)
            axis.plot(shares, [np.mean(line[x]) for x in shares], style, color=colour, linewidth=1.4, label=label)
            for x in shares:  # every seed
                axis.plot([x] * len(line[x]), line[x], "o", color=colour, markersize=4, alpha=0.6)
        axis.set_title(f"{dataset}: test {metric}")
        axis.set_xlabel("training items replaced (%)")
    _legend(figure, axes)
    return _save(figure, stem)


def kept_figure(runs: Sequence[Run], names: Sequence[str], stem: Path) -> list[Path]:
    """Kept share of live attentions per epoch, a panel per layer, of runs with masks."""
    depth = max((len(record["kept"]) for run in runs for record in run.epochs if record.get("kept")), default=0)
    panels = {f"kept attention (%), layer {layer + 1}": {name: _kept(run, layer)
              for run, name in zip(runs, names, strict=True)} for layer in range(depth)}  # fmt: skip
    return _lines(panels, {name: run.best_epoch for run, name in zip(runs, names, strict=True)}, stem)


def _kept(run: Run, layer: int) -> dict[int, float]:
    return {
        record["epoch"]: 100 * record["kept"][layer] for record in run.epochs if len(record.get("kept") or []) > layer
    }


def _look(number: int) -> tuple[str, str]:
    return plots.COLOURS[number % len(plots.COLOURS)], plots.STYLES[number % len(plots.STYLES)]


def _legend(figure: Any, axes: list[Any]) -> None:
    """One legend below all panels, unless there is only one line."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if len(found) > 1:
        figure.legend(found.values(), found.keys(), loc="outside lower center", frameon=False, fontsize="small")


def _grid(count: int, height: float = PANEL[1]) -> tuple[Any, list[Any]]:
    """Axes beside each other, three in a row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("A report needs matplotlib: pip install 'recbole-denoiser[plots]'.") from None
    columns = min(count, 3)
    lines = -(-count // columns)
    figure = Figure(figsize=(PANEL[0] * columns + 0.6, height * lines + 0.5), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.remove()
    for axis in axes[:count]:
        axis.grid(alpha=0.3, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def _save(figure: Any, stem: Path) -> list[Path]:
    """``<stem>.png`` and ``<stem>.svg``; labels are plain text, whatever characters they have."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(match=Text):
        text.set_parse_math(False)
    with matplotlib.rc_context({"svg.hashsalt": "report", "svg.fonttype": "none"}):
        for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}, "transparent": True})):
            write_atomically(
                stem.with_suffix(f".{kind}"), lambda stream, k=kind, o=options: figure.savefig(stream, format=k, **o)
            )
    return [stem.with_suffix(".png"), stem.with_suffix(".svg")]
