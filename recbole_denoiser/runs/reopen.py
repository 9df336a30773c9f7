"""A finished run opened again: its settings, data set, trained model and item titles.

Only ``recommend`` and ``explain`` need the model; reports read result files.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recbole.utils import init_seed

from recbole_denoiser.data.atomic import check_header
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config, config_from_plain
from recbole_denoiser.integration.registry import dataset_class
from recbole_denoiser.runs.pipeline import DETECTION_FILE, build_model, load_data
from recbole_denoiser.runs.record import RESULT_FILE, find_run
from recbole_denoiser.training import checkpoint

_TITLE_WORDS = ("title", "name")  # a column of the .item file with one of these in its name holds titles


@dataclass
class OpenRun:
    """Everything that a trained model needs to work again."""

    folder: Path
    result: dict[str, Any]
    config: Config
    dataset: Any
    test: Any  # the test part of the data set
    model: Any

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


def read_result(folder: Path) -> dict[str, Any]:
    """result.json of a run."""
    try:
        return json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / RESULT_FILE} cannot be read as JSON: {error}") from error


def open_run(name: str | Path, data_path: str | None = None, result_dir: str | Path = "results") -> OpenRun:
    """Data set and best checkpoint of a run. ``data_path`` says where the data is, if it was moved."""
    folder = find_run(name, result_dir)
    result = read_result(folder)
    settings = dict(result["config"])
    settings["data_path"] = str(_moved(Path(settings["data_path"]), folder))
    if data_path is not None:
        settings["data_path"] = str(Path(data_path) / settings["dataset"])
    config = config_from_plain(settings)
    init_seed(config["seed"], config["reproducibility"])
    dataset = dataset_class(config["model"])(config)
    if (config["noise_action"] or "none") != "none":
        dataset.kept_detection = folder / DETECTION_FILE
    train, _, test = dataset.build()
    model = build_model(config, train)
    file = checkpoint_file(folder, result)
    state = checkpoint.load(file, config["device"], trust=bool(config["trust_checkpoint"]))
    checkpoint.load_weights(model, state, file)
    model.eval()
    return OpenRun(folder, result, config, dataset, test, model)


def checkpoint_file(folder: Path, result: dict[str, Any]) -> Path:
    """Where the checkpoint of a run is: as recorded, or where the run's folder was moved to."""
    recorded = Path(result["checkpoint"])
    beside = folder / recorded.name
    return beside if beside.is_file() else _moved(recorded, folder)


def _moved(path: Path, folder: Path) -> Path:
    """``path``, or the same path from the folder that holds ``results/``, where the run was started."""
    if path.is_absolute() or path.exists():
        return path
    from_start = folder.resolve().parent.parent / path
    return from_start if from_start.exists() else path


def read_titles(config: Config) -> dict[str, str]:
    """Item token -> title from the data set's .item file, which the runs themselves do not load."""
    file = Path(config["data_path"]) / f"{config['dataset']}.item"
    if not file.is_file():
        return {}
    separator, encoding = config["field_separator"], config["encoding"] or "utf-8"
    columns = check_header(str(file), separator, encoding)
    names = [column.partition(":")[0] for column in columns]
    title = next((name for word in _TITLE_WORDS for name in names if word in name.lower()), None)
    if title is None or config["ITEM_ID_FIELD"] not in names:
        return {}
    # quotes are ordinary characters: one stray quote in a title must not swallow the rows behind it
    table = pd.read_csv(
        file,
        sep=separator,
        names=names,
        header=0,
        usecols=[config["ITEM_ID_FIELD"], title],
        dtype=str,
        keep_default_na=False,
        encoding=encoding,
        quoting=csv.QUOTE_NONE,
        engine="c" if len(separator) == 1 else "python",
    )
    pairs = zip(table[config["ITEM_ID_FIELD"]], table[title], strict=True)
    return {str(item): _unquoted(str(text)) for item, text in pairs if text}


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def load_data_and_model(model_file: str, trust: bool = False) -> tuple[Any, ...]:
    """Replaces ``recbole.quick_start.load_data_and_model`` for checkpoints with plain settings."""
    state = checkpoint.load(model_file, trust=trust)
    config = config_from_plain({key: state["config"][key] for key in _keys(state["config"])})
    data = load_data(config)
    model = build_model(config, data.train._dataset)
    checkpoint.load_weights(model, state, model_file)
    return config, model, data.dataset, data.train, data.valid, data.test


def _keys(config: Any) -> Any:
    return config if isinstance(config, dict) else config.final_config_dict
