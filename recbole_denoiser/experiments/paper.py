"""The paper's Table 2, read from ``properties/experiment/paper_table2.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.paths import properties_folder


@dataclass(frozen=True)
class PaperTable:
    """Published values, found by this package's labels, data set names and metric names."""

    title: str
    metrics: list[str]
    datasets: dict[str, dict[str, Any]]  # name, users and items of Table 1
    aliases: dict[str, str]
    values: dict[str, dict[str, list[float]]]
    slips: list[dict[str, Any]]

    def value(self, label: str, dataset: str, metric: str) -> float | None:
        """The published number, or None where the paper has none."""
        row = self.values.get(self.aliases.get(label, label), {})
        if dataset not in row or metric.lower() not in self.metrics:
            return None
        return row[dataset][self.metrics.index(metric.lower())]

    def improvement(self, label: str, backbone: str, dataset: str, metric: str) -> float | None:
        """Relative improvement in per cent that follows from the published values (not the printed one)."""
        ours, base = self.value(label, dataset, metric), self.value(backbone, dataset, metric)
        return None if ours is None or base is None else 100 * (ours / base - 1)

    def slip_notes(self) -> list[str]:
        """One phrase for each printed improvement that does not follow from the printed values."""
        return [
            f"{slip['model']} {self.datasets[slip['dataset']]['name']} {slip['metric']} "
            f"+{slip['right']:.2f} % (printed {slip['printed']:.2f})"
            for slip in self.slips
        ]


def load_paper_table(path: str | Path | None = None) -> PaperTable:
    """The table in a YAML file; without a path, the paper's Table 2."""
    file = Path(path) if path is not None else properties_folder() / "experiment" / "paper_table2.yaml"
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return PaperTable(**{key: content[key] for key in PaperTable.__dataclass_fields__})
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"{file} cannot be read as a table of published values: {error}") from error
