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

from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.files import require_plain_name, write_arrays
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.schema import deciding
from recbole_denoiser.training.evaluation import CandidateLoader, RankCollector

RANKS_FILE = "ranks.npz"
NOISE_FILE = "noise.npz"


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
        return require_plain_name(str(config["run_name"]), "run_name")
    digest = hashlib.sha256(json.dumps(deciding(config.plain()), sort_keys=True).encode()).hexdigest()[:8]
    require_plain_name(str(config["dataset"]), "dataset")
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


def write_ranks(folder: Path, dataset: Any, ranks: dict[str, RankCollector]) -> None:
    """The rank of every user's true item in each phase."""
    arrays = {
        f"{phase}_{name}": values for phase, part in ranks.items() for name, values in part.arrays(dataset).items()
    }
    write_arrays(folder / RANKS_FILE, arrays)


def write_noise(folder: Path, dataset: Any) -> None:
    """What ``train_noise`` replaced, if there is any."""
    if isinstance(dataset, SequenceDataset) and dataset.noise is not None:
        write_arrays(folder / NOISE_FILE, dataset.noise_arrays())


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
