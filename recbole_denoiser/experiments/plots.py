"""Figures in the paper's form: a metric against what was varied (Figures 3 to 5), kept attention against the epoch; and
bars of what each method recovers.

Every figure has one panel per data set and is written as PNG and SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.experiments import canvas
from recbole_denoiser.experiments.recovered import RecoveredShare
from recbole_denoiser.experiments.table_text import metric_name

SIZE, MARGIN = (3.4, 3.0), (2.2, 0.3)  # inches of a panel, and beside and above all
AXIS_NAMES = {
    "train_noise": "Share of training items replaced (%)",
    "eval_noise": "Share of read items replaced at test (%)",
    "MAX_ITEM_LIST_LENGTH": "Maximum length n",
    "beta": r"$\beta$ (mean scale)",
    "gamma": r"$\gamma$ (mean scale)",
}
PERCENT = {"train_noise", "eval_noise"}
LOGARITHMIC = {"beta", "gamma"}
BAR = 0.14  # inches of a bar
CLOSEST = 0.09  # of the axis: labels of ticks nearer than this would run into each other


@dataclass(frozen=True)
class Line:
    """Values of one model: one list of seeds' values per x. Without x the value holds everywhere."""

    x: list[float] | None
    values: list[list[float]]  # [points][seeds]

    @property
    def mean(self) -> np.ndarray:
        return np.array([np.mean(seeds) for seeds in self.values])

    @property
    def deviation(self) -> np.ndarray:
        """Over seeds, n - 1 in the denominator; 0 for one seed."""
        return np.array([np.std(seeds, ddof=1) if len(seeds) > 1 else 0.0 for seeds in self.values])


def metric_figure(panels: Mapping[str, Mapping[str, Line]], x: str, metric: str, stem: Path) -> list[Path]:
    """Panels (data set -> label -> line) of a metric against the key ``x``; error bars are deviations over seeds."""
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    figure, axes = canvas.panels(len(panels), SIZE, MARGIN)
    for axis, (dataset, lines) in zip(axes, panels.items(), strict=True):
        for label, line in lines.items():
            _draw(axis, label, line, labels.index(label), 100.0 if x in PERCENT else 1.0)
        axis.set_title(dataset)
        axis.set_xlabel(AXIS_NAMES.get(x, x))
        if x in LOGARITHMIC and all(value > 0 for line in lines.values() for value in line.x or []):
            axis.set_xscale("log")
        else:
            scale = 100 if x in PERCENT else 1
            ticks = [value * scale for value in sorted({value for line in lines.values() for value in line.x or []})]
            axis.set_xticks(ticks, spaced_labels(ticks))
    for axis in axes[:: canvas.MOST_COLUMNS]:
        axis.set_ylabel(metric_name(metric))
    canvas.legend(figure, axes)
    return canvas.save(figure, stem)


def spaced_labels(ticks: Sequence[float]) -> list[str]:
    """A label for each of these rising ticks, empty where it would touch its neighbour's; the first and last stay."""
    room = CLOSEST * (ticks[-1] - ticks[0]) if ticks else 0.0
    labels, last = [], -np.inf
    for number, tick in enumerate(ticks):
        fits = tick - last >= room and (number == len(ticks) - 1 or ticks[-1] - tick >= room)
        labels.append(f"{tick:g}" if fits or number == len(ticks) - 1 else "")
        last = tick if fits else last
    return labels


def _draw(axis: Any, label: str, line: Line, number: int, scale: float) -> None:
    colour, style = canvas.look(number)
    if line.x is None:  # does not depend on x
        axis.axhline(line.mean[0], color=colour, linestyle=style, linewidth=1.3, label=label)
        low, high = line.mean[0] - line.deviation[0], line.mean[0] + line.deviation[0]
        axis.axhspan(low, high, color=colour, alpha=0.12, linewidth=0)
        return
    order = np.argsort(line.x)
    axis.errorbar(
        np.array(line.x)[order] * scale, line.mean[order], yerr=line.deviation[order], label=label, color=colour,
        linestyle=style, linewidth=1.3, marker=canvas.marker(number), markersize=4, capsize=3,
    )  # fmt: skip


def recovered_figure(shares: Sequence[RecoveredShare], stem: Path) -> list[Path]:
    """Panels (data set and what was varied) of the recovered share: a bar per method and metric, from 0 = plain."""
    columns = list(dict.fromkeys(share.dataset for share in shares))
    labels = list(dict.fromkeys(share.label for share in shares))
    metrics = list(dict.fromkeys(share.metric for share in shares))
    height = 0.9 + BAR * (len(metrics) + 0.6) * len(labels)
    figure, axes = canvas.panels(len(columns), (5.0, height), (1.2, 0.3))
    for axis, name in zip(axes, columns, strict=True):
        for share in (share for share in shares if share.dataset == name and share.recovered is not None):
            number = metrics.index(share.metric)
            _bar(axis, share, labels.index(share.label) + (number - (len(metrics) - 1) / 2) / (len(metrics) + 0.6),
                 1 / (len(metrics) + 0.6), canvas.look(number + 1)[0])  # fmt: skip
        axis.set_title(name)
        axis.set_xlabel("Recovered: plain = 0, oracle removal = 100 %")
        axis.grid(False, axis="y")
        axis.set_yticks(range(len(labels)), labels)
        axis.set_ylim(len(labels) - 0.5, -0.5)  # the first method on top
        axis.axvline(0, color="black", linewidth=0.8)
        axis.axvline(100, color="black", linewidth=0.8, linestyle=":")
    ends = [axis.get_xlim() for axis in axes]
    for axis in axes:  # one scale, so that bars of two panels can be compared
        axis.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
    canvas.legend(figure, axes)
    return canvas.save(figure, stem)


def _bar(axis: Any, share: RecoveredShare, at: float, height: float, colour: str) -> None:
    """One bar with its interval over users."""
    value = 100 * (share.recovered or 0.0)
    axis.barh(at, value, height, color=colour, alpha=0.85, label=metric_name(share.metric))
    if share.interval is not None:
        low, high = (100 * end for end in share.interval)
        spread = [[max(value - low, 0.0)], [max(high - value, 0.0)]]  # a bootstrap's interval may miss its estimate
        axis.errorbar(value, at, xerr=spread, color="black", linewidth=0.8, capsize=2)


def kept_figure(panels: Mapping[str, Mapping[str, Sequence[Sequence[dict[str, Any]]]]], stem: Path) -> list[Path]:
    """Panels (data set -> label -> one list of epoch records per seed) of the kept share per layer against the epoch.

    The mean over seeds, for as long as all seeds were trained; seeds that stop early would bend it otherwise.
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    figure, axes = canvas.panels(len(panels), SIZE, MARGIN)
    for axis, (dataset, lines) in zip(axes, panels.items(), strict=True):
        for label, seeds in lines.items():
            epochs, share = _kept(seeds)
            for layer in range(share.shape[2]):
                colour, _ = canvas.look(labels.index(label))
                mean, low, high = share[:, :, layer].mean(0), share[:, :, layer].min(0), share[:, :, layer].max(0)
                style = canvas.STYLES[layer % len(canvas.STYLES)]
                axis.plot(epochs, 100 * mean, style, color=colour, linewidth=1.3, label=f"{label}, layer {layer + 1}")
                axis.fill_between(epochs, 100 * low, 100 * high, color=colour, alpha=0.12, linewidth=0)
        axis.set_title(dataset)
        axis.set_xlabel("Epoch")
        axis.set_ylim(0, 102)
        axis.xaxis.get_major_locator().set_params(integer=True)
    for axis in axes[:: canvas.MOST_COLUMNS]:
        axis.set_ylabel("Kept attention (%)")
    canvas.legend(figure, axes)
    return canvas.save(figure, stem)


def _kept(seeds: Sequence[Sequence[dict[str, Any]]]) -> tuple[np.ndarray, np.ndarray]:
    """Epochs [E] counted from 1 and kept shares [seeds, E, layers], over the epochs that all seeds have."""
    records = [{record["epoch"]: record["kept"] for record in epochs if record.get("kept")} for epochs in seeds]
    common = sorted(set.intersection(*(set(record) for record in records)))
    share = np.array([[record[epoch] for epoch in common] for record in records])
    return np.array(common) + 1, share
