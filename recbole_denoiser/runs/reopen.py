"""The one opener of finished runs: settings, data set, trained model and item titles.

Everything that needs a trained model comes here (recommend, explain, pruning, variance, the demo and RecBole's own
``load_data_and_model``); reports and tables read result files (record.py) and open nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.data.items import read_titles
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config, config_from_plain
from recbole_denoiser.runs.pipeline import DETECTION_FILE, Data, Parts, build_model, make_loaders, read_data
from recbole_denoiser.runs.record import find_run, read_result
from recbole_denoiser.training import checkpoint


@dataclass
class OpenRun:
    """Everything that a trained model needs to work again."""

    folder: Path
    result: dict[str, Any]
    config: Config
    parts: Parts
    model: Any

    @property
    def dataset(self) -> Any:
        """The whole data set."""
        return self.parts.dataset

    @property
    def test(self) -> Any:
        """The test part of the data set."""
        return self.parts.test

    @property
    def items(self) -> np.ndarray:
        """Item tokens by id; id 0 is padding."""
        return np.asarray(self.dataset.field2id_token[self.dataset.iid_field], dtype=str)

    def titles(self) -> np.ndarray | None:
        """Item titles by id, "" where there is none; None if the data set has no titles."""
        known = read_titles(self.config)
        return None if not known else np.array([known.get(token, "") for token in self.items], dtype=object)

    def user_id(self, user: str) -> int:
        """The id of a user token of the data set."""
        ids = self.dataset.field2token_id[self.dataset.uid_field]
        if user not in ids or user == "[PAD]":
            some = ", ".join(str(token) for token in self.dataset.field2id_token[self.dataset.uid_field][1:6])
            raise UserError(f"Data set '{self.config['dataset']}' has no user '{user}'; it has users such as {some}.")
        return int(ids[user])

    def loaders(self) -> Data:
        """The loaders that the run trained and was measured with."""
        return make_loaders(self.config, self.parts)


def open_run(
    name: str | Path,
    data_path: str | None = None,
    result_dir: str | Path = "results",
    trust: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> OpenRun:
    """Data set and best checkpoint of a run.

    ``data_path`` says where the data is, if it was moved; ``trust`` allows a pickled checkpoint, which can run code:
    it comes from the caller alone, never from a file. ``changes`` are other settings for the model; what the denoiser
    then has and the checkpoint has not starts fresh.
    """
    folder = find_run(name, result_dir)
    result = read_result(folder)
    settings = {**result["config"], **(changes or {})}
    settings["data_path"] = str(_moved(Path(settings["data_path"]), folder))
    if data_path is not None:
        settings["data_path"] = str(Path(data_path) / settings["dataset"])
    config = config_from_plain(settings)
    file = checkpoint_file(folder, result["checkpoint"])
    state = checkpoint.load(file, config["device"], trust)
    kept = folder / DETECTION_FILE if (config["noise_action"] or "none") != "none" else None
    parts, model = _rebuild(config, state, file, kept, fresh_masks=bool(changes))
    return OpenRun(folder, result, config, parts, model)


def _rebuild(
    config: Config, state: dict[str, Any], file: str | Path, kept: Path | None = None, fresh_masks: bool = False
) -> tuple[Parts, Any]:
    """The data and the trained model of a configuration and a checkpoint."""
    parts = read_data(config, kept)
    model = build_model(config, parts.train)
    checkpoint.load_weights(model, state, file, fresh="denoiser." if fresh_masks else None)
    model.eval()
    return parts, model


def checkpoint_file(folder: Path, recorded: str | None) -> Path:
    """Where the checkpoint of a run is: beside its result, as recorded, or where the run's folder was moved to."""
    if not recorded:
        raise UserError(f"{folder} names no checkpoint, so its model cannot be opened.")
    beside = folder / Path(recorded).name
    return beside if beside.is_file() else _moved(Path(recorded), folder)


def _moved(path: Path, folder: Path) -> Path:
    """``path``, or the same path from the folder that holds ``results/``, where the run was started."""
    if path.is_absolute() or path.exists():
        return path
    from_start = folder.resolve().parent.parent / path
    return from_start if from_start.exists() else path


def load_data_and_model(model_file: str, trust: bool = False) -> tuple[Any, ...]:
    """Replaces ``recbole.quick_start.load_data_and_model`` for checkpoints with plain settings."""
    state = checkpoint.load(model_file, trust=trust)
    settings = state["config"]
    config = config_from_plain(settings if isinstance(settings, dict) else dict(settings.final_config_dict))
    parts, model = _rebuild(config, state, model_file)
    data = make_loaders(config, parts)
    return config, model, data.dataset, data.train, data.valid, data.test
