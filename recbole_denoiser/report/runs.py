"""The runs that a report is about: what their settings have in common, and their masks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import read_json
from recbole_denoiser.integration.earlier import with_earlier
from recbole_denoiser.integration.schema import DERIVED, PLACES
from recbole_denoiser.runs.record import Run

# settings that make a good name, best first
_TELLING = ("dataset", "train_noise", "noise_action", "seed", "mask", "estimator", "denoise", "target_denoise",
            "beta", "gamma", "target_sparsity", "random_keep", "n_layers")  # fmt: skip


def names_of(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: its label, if need be with the settings that tell it from the others."""
    names = [run.label for run in runs]
    differing = dict(differing_settings(runs))
    for key in [key for key in (*_TELLING, *differing) if key in differing]:
        if len(set(names)) == len(names):
            return names
        longer = [
            f"{name}, {value if key == 'dataset' else f'{key} {value}'}" if names.count(name) > 1 else name
            for name, value in zip(names, differing[key], strict=True)
        ]
        if len(set(longer)) > len(set(names)):
            names = longer
    return names if len(set(names)) == len(names) else [run.run for run in runs]


def differing_settings(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(key, value of each run) for the settings in which the runs differ, whatever version wrote them."""
    keys = sorted({key for run in runs for key in run.config} - PLACES - DERIVED)
    configs = [with_earlier(run.config, known=keys) for run in runs]
    rows = [(key, [setting_text(config.get(key)) for config in configs]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def setting_text(value: Any) -> str:
    """A value as it could stand in a YAML file."""
    if value is None:
        return "~"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def is_causal(run: Run) -> bool:
    """Whether positions read earlier ones only, by the class of the run's model."""
    from recbole_denoiser.integration.registry import model_class, trains_on_sequences

    found = model_class(run.model)
    return bool(found.causal) if trains_on_sequences(found) else True


def pruning_quality(run: Run) -> list[dict[str, Any]] | None:
    """What ``pruning.json`` of a run with noise says, layer by layer."""
    file = run.folder / "pruning.json"
    if not file.is_file():
        return None
    stored = read_json(file)
    layers = stored.get("layers") if isinstance(stored, dict) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise UserError(f"{file} must hold a list 'layers' of mappings.")
    return layers


def live(Z: Tensor, causal: bool) -> Tensor:
    """Z with nan where a position cannot read at all."""
    n = Z.shape[-1]
    return Z.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), torch.nan) if causal else Z
