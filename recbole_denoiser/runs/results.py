"""What a run leaves behind: ``result.json``, per-user ranks and the frozen negatives."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recbole_denoiser.files import write_arrays
from recbole_denoiser.integration.config import Config
from recbole_denoiser.training.evaluation import CandidateLoader

# Settings that do not change the numbers, so that the same experiment has the same name on every machine.
_NOT_IN_NAME = {
    "data_path", "checkpoint_dir", "result_dir", "run_name", "label", "resume", "trust_checkpoint", "show_progress",
    "device", "gpu_id", "use_gpu", "state", "log_wandb", "wandb_project", "worker", "save_dataset",
    "dataset_save_path", "save_dataloaders", "dataloaders_save_path", "num_threads", "nproc", "ip", "port",
    "config_files",
}  # fmt: skip


def deciding(settings: dict[str, Any]) -> dict[str, Any]:
    """Those of the plain settings that the numbers depend on."""
    return {name: value for name, value in settings.items() if name not in _NOT_IN_NAME}


# Settings that came later, with the value that says what runs before them did. A setting that is not listed stands for
# its default.
EARLIER = {
    "noise_action": "none",
    "train_batches": "shuffled",
    "mask_form": "product",
    "mask_prior": False,
    "train_noise_kind": "replace",
    "eval_noise": 0.0,
    "noise_oracle": None,
}


def is_same_experiment(old: dict[str, Any], config: Config) -> bool:
    """Do the deciding settings of a finished run mean the same as this configuration?

    A later version may have settings that the run does not know: they must have the value of what was done before.
    Settings that are gone do not count.
    """
    now = json.loads(json.dumps(deciding(config.plain())))
    before = {name: EARLIER.get(name, config.internal_config_dict.get(name)) for name in now.keys() - old.keys()}
    expected = {**json.loads(json.dumps(before, default=str)), **old}
    return all(expected[name] == value for name, value in now.items())


def run_name(config: Config) -> str:
    """``<model>-<data set>-s<seed>-<hash of the settings>``, unless the user named the run."""
    if config["run_name"]:
        return str(config["run_name"])
    digest = hashlib.sha256(json.dumps(deciding(config.plain()), sort_keys=True).encode()).hexdigest()[:8]
    return f"{config['model']}-{config['dataset']}-s{config['seed']}-{digest}"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    packages = ("recbole-denoiser", "recbole", "torch", "numpy", "pandas", "scipy", "entmax")
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"  # a plain checkout has no metadata of its own
    return found


def write_negatives(folder: Path, loaders: dict[str, Any]) -> None:
    """The frozen negatives of each phase: user tokens, true item, negatives (all as tokens)."""
    arrays: dict[str, np.ndarray] = {}
    for phase, loader in loaders.items():
        if isinstance(loader, CandidateLoader) and loader.frozen is not None:
            dataset = loader.dataset
            items = np.asarray(dataset.field2id_token[dataset.iid_field], dtype=str)
            users = np.asarray(dataset.field2id_token[dataset.uid_field], dtype=str)
            arrays[f"{phase}_user"] = users[loader.user.numpy()]
            arrays[f"{phase}_item"] = items[loader.positive.numpy()]
            arrays[f"{phase}_negatives"] = items[loader.frozen.numpy()]
    if arrays:
        write_arrays(folder / "negatives.npz", arrays)


def environment() -> dict[str, Any]:
    """Where the run took place."""
    return {"device": "cuda" if torch.cuda.is_available() else "cpu", "threads": torch.get_num_threads()}
