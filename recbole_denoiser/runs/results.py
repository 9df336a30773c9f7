"""What a run leaves behind: ``result.json``, per-user ranks and the frozen negatives."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recbole_denoiser
from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.files import copy, require_plain_name, write_arrays
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.earlier import EARLIER, idle
from recbole_denoiser.integration.registry import shown_name
from recbole_denoiser.integration.schema import deciding
from recbole_denoiser.training.evaluation import CandidateLoader, RankCollector

RANKS_FILE = "ranks.npz"
NOISE_FILE = "noise.npz"


def is_same_experiment(old: dict[str, Any], config: Config) -> bool:
    """Do the deciding settings of a finished run mean the same as this configuration?

    A later version may have settings that the run does not know: they must have the value of what was done before.
    Settings that are gone do not count, nor do those that say nothing under the others.
    """
    now = json.loads(json.dumps(deciding(config.plain())))
    now = {name: value for name, value in now.items() if name not in idle(now)}
    before = {name: EARLIER.get(name, config.internal_config_dict.get(name)) for name in now.keys() - old.keys()}
    expected = {**json.loads(json.dumps(before, default=str)), **old}
    return all(expected[name] == value for name, value in now.items())


def run_name(config: Config) -> str:
    """``<model>-<data set>-s<seed>-<hash of the settings>``, unless the user named the run."""
    if config["run_name"]:
        return require_plain_name(str(config["run_name"]), "run_name")
    digest = hashlib.sha256(json.dumps(deciding(config.plain()), sort_keys=True).encode()).hexdigest()[:8]
    require_plain_name(str(config["dataset"]), "dataset")
    model = shown_name(str(config["model"]), config["denoise"])
    return f"{model}-{config['dataset']}-s{config['seed']}-{digest}"


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


@functools.cache
def commit() -> str:
    """The commit of this package's checkout, else the installed version."""
    root = Path(recbole_denoiser.__file__).resolve().parent.parent
    return commit_of(root) or f"version {recbole_denoiser.__version__}"


def commit_of(root: Path) -> str | None:
    """The commit of a checkout, with "+" if its code or its defaults were changed since; None if it is none."""
    if not (root / ".git").exists():
        return None
    code = ("--porcelain", "--", "recbole_denoiser", "properties")  # tables that a grid makes do not count
    try:
        head, changed = (
            subprocess.run(
                ["git", "-C", str(root), *asked], capture_output=True, text=True, timeout=20, check=True
            ).stdout
            for asked in (("rev-parse", "HEAD"), ("status", *code))
        )
    except (OSError, subprocess.SubprocessError):  # no git, or a repository of somebody else
        return None
    return head.strip() + ("+" if changed else "")


def data_statistics(dataset: Any, train: Any) -> dict[str, Any]:
    """Size and fingerprint of the data set, and how many of its training items noise replaced."""
    ours = isinstance(dataset, SequenceDataset)  # a few of RecBole's models have a data set class of their own
    noise = dataset.noise if ours else None
    return {
        "users": dataset.user_num - 1,
        "items": dataset.item_num - 1,
        "interactions": dataset.interaction_count() if ours else len(dataset.inter_feat),
        "train_rows": len(train),
        "replaced": 0 if noise is None else len(noise.index),
        "sha256": dataset.fingerprint() if ours else "",
    }


def cleanings(dataset: Any) -> dict[str, Any]:
    """Name -> what was done about noise in what is trained on, and in what is read at evaluation if that differs."""
    found = {"detection": dataset.cleaning, "detection-read": dataset.read_cleaning}
    return {name: cleaning for name, cleaning in found.items() if cleaning is not None}


def noise_summary(dataset: Any) -> dict[str, Any] | None:
    """What the noise detector found and what was done about it."""
    found = {name: cleaning.summary() for name, cleaning in cleanings(dataset).items()}
    if not found:
        return None
    return found["detection"] | ({"read": found["detection-read"]} if "detection-read" in found else {})


def keep_detection(dataset: Any, folder: Path) -> None:
    """The posteriors and the fitted detector go with the run, which then reads the same data when it is opened."""
    for name, cleaning in cleanings(dataset).items():
        if cleaning.detection is not None:
            copy(cleaning.detection.file, folder / f"{name}.npz")
            if name == "detection" and cleaning.detection.detector_file.is_file():
                copy(cleaning.detection.detector_file, folder / cleaning.detection.detector_file.name)


def write_ranks(folder: Path, dataset: Any, ranks: dict[str, RankCollector]) -> None:
    """The rank of every user's true item: ``test_user`` and ``test_rank``, and ``test_full_rank`` of another mode.

    The other modes rank the same users in the same order, whose names are the larger part, so they stand there once.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, part in ranks.items():
        found = part.arrays(dataset)
        phase = name.partition("_")[0]
        if name == phase or not np.array_equal(found["user"], arrays[f"{phase}_user"]):
            arrays[f"{name}_user"] = found["user"]
        arrays[f"{name}_rank"] = found["rank"]
    write_arrays(folder / RANKS_FILE, arrays)


def write_noise(folder: Path, dataset: Any) -> None:
    """What ``train_noise`` replaced, if there is any."""
    if isinstance(dataset, SequenceDataset) and dataset.noise is not None:
        write_arrays(folder / NOISE_FILE, dataset.noise_arrays())


def write_negatives(folder: Path, loaders: dict[str, Any]) -> None:
    """The frozen negatives of each phase: user tokens, and the true item and the negatives as places in ``items``.

    ``items`` are the tokens of all items: one for each of a hundred negatives per user would take far more space.
    """
    arrays: dict[str, np.ndarray] = {}
    for phase, loader in loaders.items():
        if isinstance(loader, CandidateLoader) and loader.frozen is not None:
            dataset = loader.dataset
            arrays["items"] = np.asarray(dataset.field2id_token[dataset.iid_field], dtype=str)
            users = np.asarray(dataset.field2id_token[dataset.uid_field], dtype=str)
            arrays[f"{phase}_user"] = users[loader.user.numpy()]
            arrays[f"{phase}_item"] = loader.positive.numpy().astype(np.int32)
            arrays[f"{phase}_negatives"] = loader.frozen.numpy().astype(np.int32)
    if arrays:
        write_arrays(folder / "negatives.npz", arrays)


def environment() -> dict[str, Any]:
    """Where the run took place."""
    return {"device": "cuda" if torch.cuda.is_available() else "cpu", "threads": torch.get_num_threads()}
