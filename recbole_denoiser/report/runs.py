"""The runs that a report is about: what their settings have in common, and their masks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recbole_denoiser.core import gate
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.record import Run
from recbole_denoiser.runs.reopen import checkpoint_file, read_result
from recbole_denoiser.training import checkpoint

# settings that say where and how, not what: left out of the comparison
_PLACES = {
    "data_path", "checkpoint_dir", "result_dir", "run_name", "label", "device", "gpu_id", "use_gpu", "show_progress",
    "state", "resume", "num_threads", "worker", "trust_checkpoint", "log_wandb", "wandb_project", "local_rank",
    "single_spec", "MODEL_TYPE", "eval_type", "valid_metric_bigger",
}  # fmt: skip

# settings that make a good name, best first
_TELLING = ("dataset", "train_noise", "seed", "mask", "estimator", "denoise", "target_denoise", "beta", "gamma",
            "target_sparsity", "random_keep", "n_layers")  # fmt: skip


def names_of(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: its label, if need be with the one setting that tells all runs apart."""
    names = [run.label for run in runs]
    if len(set(names)) == len(names):
        return names
    differing = dict(differing_settings(runs))
    telling = [key for key in (*_TELLING, *differing) if key in differing]
    for key in telling:
        longer = [f"{name}, {key} {value}" for name, value in zip(names, differing[key], strict=True)]
        if len(set(longer)) == len(longer):
            return longer
    return [run.run for run in runs]


def differing_settings(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(key, value of each run) for the settings in which the runs differ."""
    keys = sorted({key for run in runs for key in run.config} - _PLACES)
    rows = [(key, [setting_text(run.config.get(key)) for run in runs]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def setting_text(value: Any) -> str:
    """A value as it could stand in a YAML file."""
    if value is None:
        return "~"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def kept_share(run: Run) -> list[float] | None:
    """Kept share of each layer in the checkpoint, as the run itself recorded it."""
    return read_result(run.folder).get("kept")


def mask_gates(run: Run) -> list[Tensor] | None:
    """Gates [1 or H, n, n] of each layer from the run's checkpoint; None if it has no masks or is gone.

    Of a content mask this is the part that depends on the positions only.
    """
    file = checkpoint_file(run.folder, {"checkpoint": run.checkpoint or ""})
    if not file.is_file():
        return None
    try:
        weights = checkpoint.load(file)["state_dict"]
    except UserError:  # a report of the rest is better than none; the page says that there are no heat maps
        return None
    names = sorted(
        (name for name in weights if re.search(r"denoiser\.masks\.\d+\.phi$", name)),
        key=lambda name: int(name.split(".")[-2]),
    )
    gates = [gate(weights[name].float()) for name in names]
    return [Z if Z.dim() == 3 else Z.unsqueeze(0) for Z in gates] or None


def is_causal(run: Run) -> bool:
    """Whether positions read earlier ones only, by the class of the run's model."""
    from recbole_denoiser.integration.registry import model_class

    return bool(getattr(model_class(run.model), "causal", True))


def pruning_quality(run: Run) -> list[dict[str, Any]] | None:
    """What ``pruning.json`` of a run with noise says, layer by layer."""
    file = run.folder / "pruning.json"
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))["layers"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error


def live(Z: Tensor, causal: bool) -> Tensor:
    """Z with nan where a position cannot read at all."""
    n = Z.shape[-1]
    return Z.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), torch.nan) if causal else Z
