"""Figures of a report: every panel is a PNG and an SVG file of its own, so that a page can set them in as many columns
as it has room for.

Up to MOST_LINES experiments share a panel and tell themselves apart by colour. More of them get a panel each, in which
the others are grey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from torch import Tensor

from recbole_denoiser.experiments import canvas
from recbole_denoiser.report.groups import Group
from recbole_denoiser.report.metrics import Measured
from recbole_denoiser.report.runs import live
from recbole_denoiser.runs.record import Run

PANEL = (3.6, 2.6)  # inches
MOST_LINES = 6
WIDEST = 42  # letters of a panel's title in a line
GREY = "#b5bcc6"
Value = Callable[[dict[str, Any]], float | None]  # of an epoch's record
TERMS = {"rec": "recommendation loss", "mask": "mask term", "jacobian": "Jacobian term", "loss": "loss"}


@dataclass
class Figure:
    """Files of all panels, and what the colours mean."""

    files: list[Path] = field(default_factory=list)
    legend: list[tuple[str, str, str]] = field(default_factory=list)  # name, colour, line style


@dataclass(frozen=True)
class Curve:
    """Values of an experiment by epoch: the mean and the range over seeds, for as long as all seeds were trained."""

    epochs: np.ndarray  # [E] from 1
    values: np.ndarray  # [seeds, E]
    best: list[int]  # epoch of each seed's checkpoint, from 1

    @classmethod
    def of(cls, group: Group, value: Value) -> Curve | None:
        seeds = []
        for run in group.runs:
            found = {record["epoch"]: value(record) for record in run.epochs}
            seeds.append({epoch: number for epoch, number in found.items() if number is not None})
        common = sorted(set.intersection(*(set(seed) for seed in seeds)))
        if not common:
            return None
        values = np.array([[seed[epoch] for epoch in common] for seed in seeds])
        return cls(np.array(common) + 1, values, [run.best_epoch + 1 for run in group.runs])


def losses_figure(groups: Sequence[Group], stem: Path) -> Figure:
    """Mean of each loss term per epoch; a term that is zero in all runs is left out."""
    records = [record for group in groups for run in group.runs for record in run.epochs]
    terms = list(dict.fromkeys(term for record in records for term in record["losses"]))
    terms = [term for term in terms if any(record["losses"].get(term) for record in records)]

    def loss(term: str) -> Value:
        return lambda record: record["losses"].get(term)

    return _curves(groups, {TERMS.get(term, term): loss(term) for term in terms}, stem)


def validation_figure(groups: Sequence[Group], metrics: Sequence[str], stem: Path) -> Figure:
    """Validation metrics per epoch."""

    def result(metric: str) -> Value:
        return lambda record: (record.get("valid") or {}).get(metric)

    return _curves(groups, {f"validation {metric}": result(metric) for metric in metrics}, stem)


def kept_figure(groups: Sequence[Group], stem: Path) -> Figure:
    """Kept share of live attentions per epoch and layer, of runs with masks; from 0 to 100 %."""
    records = [record for group in groups for run in group.runs for record in run.epochs]
    depth = max((len(record["kept"]) for record in records if record.get("kept")), default=0)

    def share(layer: int) -> Value:
        return lambda record: 100 * record["kept"][layer] if len(record.get("kept") or []) > layer else None

    panels = {f"kept attention (%), layer {layer + 1}": share(layer) for layer in range(depth)}
    return _curves(groups, panels, stem, limits=(0, 102))


def _curves(
    groups: Sequence[Group],
    panels: Mapping[str, Value],
    stem: Path,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """A panel for each value; with many experiments a panel for each of them, of the first value only."""
    figure = Figure()
    named = [group.name for group in groups]
    for title, value in panels.items():
        found = {group.name: Curve.of(group, value) for group in groups}
        lines = {name: curve for name, curve in found.items() if curve is not None}
        if len(groups) <= MOST_LINES:
            if lines:
                drawn = [(curve, canvas.look(named.index(name)), name) for name, curve in lines.items()]
                _panel(figure, title, drawn, [], limits, stem)
            continue
        for group in groups:
            if group.name in lines:
                near = [o.name for o in groups if o is not group and o.first.dataset == group.first.dataset]
                others = [lines[name] for name in near if name in lines]
                drawn = [(lines[group.name], (canvas.COLOURS[2], "-"), group.name)]
                _panel(figure, f"{fill(group.name, WIDEST)}\n{title}", drawn, others, limits, stem)
        break
    if figure.files and 1 < len(groups) <= MOST_LINES:
        figure.legend = [(name, *canvas.look(place)) for place, name in enumerate(named)]
    return figure


def _panel(
    figure: Figure,
    title: str,
    drawn: Sequence[tuple[Curve, tuple[str, str], str]],
    others: Sequence[Curve],
    limits: tuple[float, float] | None,
    stem: Path,
) -> None:
    picture, (axis,) = canvas.panels(1, PANEL)
    for curve in others:
        axis.plot(curve.epochs, curve.values.mean(0), color=GREY, linewidth=0.8, zorder=1)
    for curve, (colour, style), name in drawn:
        axis.plot(curve.epochs, curve.values.mean(0), style, color=colour, linewidth=1.6, label=name, zorder=3)
        axis.fill_between(
            curve.epochs, curve.values.min(0), curve.values.max(0), color=colour, alpha=0.15, linewidth=0, zorder=2
        )
        for seed, best in zip(curve.values, curve.best, strict=True):
            if best in curve.epochs:
                axis.plot([best], seed[curve.epochs == best], "o", color=colour, markersize=4.5, zorder=4)
    if limits is not None:
        axis.set_ylim(*limits)
    axis.set_title(title, fontsize="medium")
    axis.set_xlabel("epoch (dot: the checkpoint)")
    axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)  # also of a single epoch
    axis.ticklabel_format(axis="y", useOffset=False)
    _save(figure, picture, stem)


def intervals_figure(rows: Mapping[str, Sequence[Measured]], metrics: Sequence[str], stem: Path) -> Figure:
    """Test metrics of all experiments with their 95 % intervals; a hollow diamond is the paper's value."""
    figure = Figure()
    for metric in metrics:
        picture, (axis,) = canvas.panels(1, (PANEL[0] * 1.3, 0.9 + 0.4 * len(rows)))
        for place, (name, entries) in enumerate(rows.items()):
            entry = next(entry for entry in entries if entry.metric == metric)
            colour = canvas.COLOURS[2]
            if entry.interval:
                axis.plot(entry.interval, [place, place], color=colour, linewidth=3, alpha=0.45, solid_capstyle="round")
            axis.plot([entry.test], [place], "o", color=colour, markersize=6)
            if entry.paper is not None:
                axis.plot([entry.paper], [place], "D", color=canvas.COLOURS[1], markersize=6, fillstyle="none")
            # above its line, so that a long name costs no width
            axis.text(0.01, place - 0.22, name, transform=axis.get_yaxis_transform(), fontsize="small", va="bottom")
        axis.set_yticks([])
        axis.set_ylim(len(rows) - 0.4, -0.9)
        axis.spines["left"].set_visible(False)
        axis.set_title(f"test {metric}", fontsize="medium")
        _save(figure, picture, stem)
    return figure


def masks_figure(gates: Sequence[Tensor], causal: bool, complete: bool, stem: Path) -> Figure:
    """Gate of every layer (and head): dark is open, red is pruned, empty cannot be read.

    ``complete`` is False for the positional part of a content mask, which alone decides nothing.
    """
    figure = Figure()
    n = gates[0].shape[-1]
    for layer, head in [(layer, head) for layer, Z in enumerate(gates) for head in range(len(Z))]:
        picture, (axis,) = canvas.panels(1, (PANEL[0], PANEL[0] * 0.9))
        from matplotlib import colormaps  # after canvas.panels, which says what to do where it is missing

        Z = live(gates[layer][head], causal).numpy()
        colours = colormaps["YlGnBu"].with_extremes(under="#e07a5f", bad=(0, 0, 0, 0))
        image = axis.imshow(
            Z, cmap=colours, vmin=0.5, vmax=1.0, interpolation="nearest", extent=(0.5, n + 0.5, n + 0.5, 0.5)
        )
        title = f"layer {layer + 1}" + (f", head {head + 1}" if len(gates[layer]) > 1 else "")
        kept = (Z > 0).sum() / np.isfinite(Z).sum()
        axis.set_title(f"{title}: {100 * kept:.1f} % kept" if complete else title, fontsize="medium")
        axis.set_xlabel("position that is read")
        axis.set_ylabel("position that reads")
        axis.grid(visible=False)
        picture.colorbar(image, ax=axis, shrink=0.75, extend="min").set_label("gate (red: pruned)")
        _save(figure, picture, stem)
    return figure


def noise_figure(runs: Sequence[Run], metric: str, stem: Path) -> Figure:
    """A metric against the share of training noise, where some label has been run at two shares or more."""
    panels: dict[str, dict[str, dict[float, list[float]]]] = {}
    for run in runs:
        share = 100 * float(run.config.get("train_noise") or 0.0)
        panels.setdefault(run.dataset, {}).setdefault(run.label, {}).setdefault(share, []).append(run.test[metric])
    panels = {dataset: {label: line for label, line in lines.items() if len(line) > 1}
              for dataset, lines in panels.items()}  # fmt: skip
    panels = {dataset: lines for dataset, lines in panels.items() if lines}
    names = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    figure = Figure(legend=[(name, *canvas.look(place)) for place, name in enumerate(names)])
    for dataset, lines in panels.items():
        picture, (axis,) = canvas.panels(1, PANEL)
        for label, line in lines.items():
            colour, style = canvas.look(names.index(label))
            shares = sorted(line)
            axis.plot(shares, [np.mean(line[x]) for x in shares], style, color=colour, linewidth=1.6, label=label)
            for x in shares:  # every seed
                axis.plot([x] * len(line[x]), line[x], "o", color=colour, markersize=4, alpha=0.6)
        axis.set_title(f"{dataset}: test {metric}", fontsize="medium")
        axis.set_xlabel("training items replaced (%)")
        _save(figure, picture, stem)
    return figure


def _save(figure: Figure, picture: Any, stem: Path) -> None:
    number = len(figure.files) // 2 + 1
    figure.files += canvas.save(picture, stem.with_name(f"{stem.name}-{number}"), plain_text=True)
