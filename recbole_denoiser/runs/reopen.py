"""The one opener of finished runs: settings, data set, trained model and item titles.

Everything that needs a trained model comes here (recommend, explain, pruning, variance, the demo and RecBole's own
``load_data_and_model``); reports and tables read result files (record.py) and open nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.data.items import read_titles
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config, config_from_plain
from recbole_denoiser.integration.registry import known_models
from recbole_denoiser.runs.pipeline import Data, Parts, build_model, make_loaders, read_data
from recbole_denoiser.runs.record import find_run, read_result
from recbole_denoiser.runs.tokens import KeptDataset, NeedsDataError, Tokens, read_tokens
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
    needs_data: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> OpenRun:
    """Data set and best checkpoint of a run.

    ``data_path`` says where the data is, if it was moved; ``trust`` allows a pickled checkpoint, which can run code:
    it comes from the caller alone, never from a file. ``changes`` are other settings for the model; what the denoiser
    then has and the checkpoint has not starts fresh. ``needs_data=False``: if the run keeps its token maps and its
    model asks for no more, the data is not read at all.
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
    tokens = read_tokens(folder)
    fresh = "denoiser." if changes else None
    if tokens is not None and not needs_data:
        stand_in: Any = KeptDataset(config, tokens)
        with suppress(NeedsDataError):  # a model that reads more than the maps
            model = _trained(config, stand_in, state, file, fresh)
            return OpenRun(folder, result, config, Parts(stand_in, stand_in, stand_in, stand_in), model)
    parts = read_data(config, folder)
    known = {"sha256": result["data"].get("sha256"), "tokens": tokens and tokens.fingerprint()}
    _require_same_data(parts.dataset, known, config, folder)
    return OpenRun(folder, result, config, parts, _trained(config, parts.train, state, file, fresh))


def _trained(config: Config, train: Any, state: dict[str, Any], file: str | Path, fresh: str | None = None) -> Any:
    """The trained model of a configuration and a checkpoint."""
    model = build_model(config, train)
    checkpoint.load_weights(model, state, file, fresh)
    model.eval()
    return model


def _require_same_data(dataset: Any, known: Mapping[str, Any], config: Config, origin: str | Path) -> None:
    """UserError if the data is not what the model was trained on: ids follow the file, so answers would be wrong."""
    now = {"tokens": lambda: Tokens.of(dataset).fingerprint()}
    if isinstance(dataset, SequenceDataset):
        now["sha256"] = dataset.fingerprint
    if any(known.get(name) and known[name] != fingerprint() for name, fingerprint in now.items()):
        raise UserError(
            f"The data set in {config['data_path']} is not the one that {origin} was trained on: its file has changed "
            f"since, and the model's items would be mistaken for others. Put the old file back, say where it is with "
            f"data_path, or train again; sequences of your own (--input) need no data if the run keeps tokens.npz."
        )


def checkpoint_file(folder: Path, recorded: str | None) -> Path:
    """Where the checkpoint of a run is: beside its result, as recorded, or where the run's folder was moved to."""
    if not recorded:
        raise UserError(f"{folder} names no checkpoint, so its model cannot be opened.")
    beside = folder / Path(recorded).name
    return beside if beside.exists() else _moved(Path(recorded), folder)


def _moved(path: Path, folder: Path) -> Path:
    """``path``, or the same path from the folder that holds ``results/``, where the run was started."""
    if path.is_absolute() or path.exists():
        return path
    from_start = folder.resolve().parent.parent / path
    return from_start if from_start.exists() else path


def load_data_and_model(model_file: str, trust: bool = False) -> tuple[Any, ...]:
    """Replaces ``recbole.quick_start.load_data_and_model`` for checkpoints with plain settings."""
    state = checkpoint.load(model_file, trust=trust)
    settings = checkpoint.plain_settings(state)
    if settings["model"] not in known_models():
        return _load_general(settings, state, model_file)
    config = config_from_plain(settings)
    parts = read_data(config)
    _require_same_data(parts.dataset, state.get("data") or {}, config, model_file)
    model = _trained(config, parts.train, state, model_file)
    data = make_loaders(config, parts)
    return config, model, data.dataset, data.train, data.valid, data.test


def _load_general(settings: dict[str, Any], state: dict[str, Any], file: str) -> tuple[Any, ...]:
    """A model that is not sequential: RecBole's configuration, data set and loaders."""
    from recbole.config import Config as RecBoleConfig
    from recbole.data import create_dataset, data_preparation
    from recbole.utils import get_model, init_seed

    config = config_from_plain(settings, RecBoleConfig)
    init_seed(config["seed"], config["reproducibility"])
    dataset = create_dataset(config)
    train, valid, test = data_preparation(config, dataset)
    init_seed(config["seed"], config["reproducibility"])
    model = get_model(config["model"])(config, train.dataset).to(config["device"])
    checkpoint.load_weights(model, state, file)
    return config, model, dataset, train, valid, test
