"""A model that was exported to open again without its run and without its data: ``model.safetensors``, ``model.json``.

The JSON file says everything but the weights: settings, item tokens and titles. ``detector.npz`` is there if the run
leaves noise out of histories. None of the files can run code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.data.detection import DETECTOR_FILE
from recbole_denoiser.errors import UserError
from recbole_denoiser.files import copy, read_json, write_json
from recbole_denoiser.integration.config import config_from_plain
from recbole_denoiser.runs.pipeline import Parts, build_model
from recbole_denoiser.runs.reopen import OpenRun
from recbole_denoiser.runs.tokens import KeptDataset, Tokens
from recbole_denoiser.training import checkpoint

ABOUT_FILE = "model.json"
WEIGHTS_FILE = "model.safetensors"
FORMAT = 1
EXPORT_EXTRA = "pip install 'recbole-denoiser[export]'"
_KEYS = ("format", "run", "model", "dataset", "settings", "items", "titles")


@dataclass
class ExportedRun(OpenRun):
    """What an exported model needs to work again."""

    item_titles: list[str] | None = None

    def titles(self) -> np.ndarray | None:
        """Item titles by id; None if the data set had none."""
        return None if self.item_titles is None else np.array(self.item_titles, dtype=object)


def write_about(folder: Path, run: OpenRun, titles: np.ndarray | None, **more: Any) -> None:
    """``model.json`` of a run."""
    content = {
        "format": FORMAT,
        "run": run.result["run"],
        "model": run.config["model"],
        "dataset": run.config["dataset"],
        "data": run.result["data"],
        "noise": run.result.get("noise"),
        **more,
        "settings": run.config.plain(),
        "items": run.items.tolist(),
        "titles": None if titles is None else titles.tolist(),
    }
    write_json(folder / ABOUT_FILE, content)


def copy_detector(run: OpenRun, folder: Path) -> None:
    """The detector by which the run leaves noise out of a history, if it has one, goes beside the model."""
    file = run.folder / DETECTOR_FILE
    if file.is_file() and file.resolve() != (folder / DETECTOR_FILE).resolve():
        copy(file, folder / DETECTOR_FILE)


def is_exported(place: str | Path) -> bool:
    """Whether this is an exported model: its folder, or one of its two files."""
    place = Path(place)
    return place.name in (ABOUT_FILE, WEIGHTS_FILE) or (place / ABOUT_FILE).is_file()


def read_about(place: str | Path) -> dict[str, Any]:
    """``model.json`` of an exported model, from its folder or from one of its files."""
    place = Path(place)
    file = (place if place.is_dir() else place.parent) / ABOUT_FILE
    content = read_json(file)
    lacking = [key for key in _KEYS if not isinstance(content, dict) or key not in content]
    if lacking or content["format"] != FORMAT:
        why = f": it lacks {lacking[0]}" if lacking else ""
        raise UserError(f"{file} is no exported model of format {FORMAT}{why}.")
    return content


def open_exported(place: str | Path) -> ExportedRun:
    """The model of a folder with ``model.json`` and ``model.safetensors``."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise UserError(f"An exported model needs safetensors: {EXPORT_EXTRA}.") from None
    about = read_about(place)
    folder = Path(place) if Path(place).is_dir() else Path(place).parent
    config = config_from_plain(about["settings"])
    try:
        weights = load_file(folder / WEIGHTS_FILE, device=str(config["device"]))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS_FILE} cannot be read: {error}") from error
    items = np.array(about["items"], dtype=object)
    dataset: Any = KeptDataset(config, Tokens(np.array(["[PAD]"], dtype=object), items))
    model = build_model(config, dataset)
    checkpoint.load_weights(model, {"state_dict": weights, "config": about["settings"]}, folder / WEIGHTS_FILE)
    model.eval()
    result = {key: about[key] for key in ("run", "model", "dataset")} | {"config": about["settings"]}
    result["noise"] = about.get("noise")
    parts = Parts(dataset, dataset, dataset, dataset)
    return ExportedRun(folder, result, config, parts, model, about["titles"])
