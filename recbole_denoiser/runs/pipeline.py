"""One run from atomic file to result file: data, model, training, best checkpoint, test."""

from __future__ import annotations

from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from recbole.data.utils import create_samplers
from recbole.utils import init_seed

from recbole_denoiser import files
from recbole_denoiser.data.buckets import training_loader
from recbole_denoiser.data.needs import check_needs
from recbole_denoiser.data.prepare.columns import Columns
from recbole_denoiser.data.prepare.events import prepare_frame
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import parallel, trackers
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.logs import run_log
from recbole_denoiser.integration.memory import keep_freed_memory
from recbole_denoiser.integration.processor import mend_half_precision
from recbole_denoiser.integration.registry import MODELS, dataset_class, model_class, shown_name, trainer_class
from recbole_denoiser.model.protocols import MaskedModel
from recbole_denoiser.runs import results
from recbole_denoiser.runs.collapse import mask_warnings
from recbole_denoiser.runs.modes import evaluate_phases, metrics_by_mode, other_modes, ranks_by_mode
from recbole_denoiser.runs.places import forget_unless_begun, place_run
from recbole_denoiser.runs.record import RESULT_FILE
from recbole_denoiser.runs.tokens import Tokens, write_tokens
from recbole_denoiser.training.evaluation import evaluation_loader
from recbole_denoiser.training.tracking import tell_result, tracked


@dataclass
class Parts:
    """A data set, read and split."""

    dataset: Any
    train: Any
    valid: Any
    test: Any


@dataclass
class Data:
    """A data set and its loaders."""

    dataset: Any
    train: Any
    valid: Any
    test: Any
    modes: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # validation and test of the other eval_modes


def read_data(config: Config, kept_detection: Path | None = None) -> Parts:
    """Read the atomic files and split them. No cache is read: RecBole's is a pickle.

    ``kept_detection``: what the noise detector found when the run was trained, instead of asking it again.
    """
    init_seed(config["seed"], config["reproducibility"])
    try:
        dataset = dataset_class(config["model"])(config)
    except (ValueError, KeyError) as error:  # RecBole's models of knowledge graphs have files of their own
        if config["model"] in MODELS:
            raise
        raise UserError(f"{config['model']} cannot read data set '{config['dataset']}': {error}") from error
    dataset.kept_detection = kept_detection
    return Parts(dataset, *dataset.build())


def make_loaders(config: Config, parts: Parts) -> Data:
    """The loaders of a data set that was read."""
    samplers = create_samplers(config, parts.dataset, [parts.train, parts.valid, parts.test])
    return Data(
        parts.dataset,
        training_loader(config, parts.train, samplers[0]),
        evaluation_loader(config, parts.valid, "valid", samplers[1]),
        evaluation_loader(config, parts.test, "test", samplers[2]),
        other_modes(config, parts.valid, parts.test),
    )


def load_data(config: Config) -> Data:
    """Read the atomic files, split them and make the loaders."""
    return make_loaders(config, read_data(config))


def build_model(config: Config, train_dataset: Any) -> Any:
    """The model of the configuration, freshly initialised from the seed."""
    keep_freed_memory()
    check_needs(config, train_dataset)
    init_seed(config["seed"] + parallel.rank(), config["reproducibility"])  # each process draws its own masks
    try:
        return model_class(config["model"])(config, train_dataset).to(config["device"])
    except MemoryError as error:
        raise UserError(f"{config['model']} of these sizes does not fit into memory.") from error
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError) as error:
        if config["model"] in MODELS:
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{config['model']} of RecBole cannot be built from data set '{config['dataset']}' and these settings: "
            f"{reason}. It may need columns that the data set or load_col does not have, such as item_attribute or "
            f"selected_features."
        ) from error
    except RuntimeError as error:
        if "alloc" not in str(error):
            raise
        raise UserError(
            f"{config['model']} of these sizes does not fit into memory: {str(error).splitlines()[0]}"
        ) from error


def run(
    model: str = "SASRecDenoiser",
    dataset: str | None = None,
    config_files: list[str] | None = None,
    config_dict: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    *,
    data: pd.DataFrame | None = None,
    user: str = "user",
    item: str = "item",
    time: str = "time",
    title: str | None = None,
    core: int = 0,
    trust_checkpoint: bool = False,
) -> dict[str, Any]:
    """Train, reload the best checkpoint, test, and write ``<result_dir>/<run>/``; returns the content of
    result.json.

    ``dataset`` names a data set of data_path (ml-100k). Instead, ``data`` is a DataFrame with a row per interaction;
    ``user``, ``item``, ``time`` and perhaps ``title`` name its columns, and ``core`` = k keeps users and items with k
    interactions. It becomes the data set ``<result_dir>/data/<dataset>-<hash of the rows>/``, where the run finds it
    again; the same rows have the same name.

    >>> import pandas as pd
    >>> rows = [(f"u{user}", f"i{(user + step) % 15}", step) for user in range(30) for step in range(7)]
    >>> frame = pd.DataFrame(rows, columns=["who", "what", "when"])
    >>> quick = {"epochs": 1, "eval_args.mode": "full", "state": "ERROR"}
    >>> result = run("SASRecDenoiser", data=frame, user="who", item="what", time="when", flags=quick)
    >>> len(result["epochs"]), sorted(result["test"])[:2]
    (1, ['hit@10', 'hit@5'])
    """
    if data is None:
        return run_config(Config(model, dataset or "ml-100k", config_files, config_dict, flags), trust_checkpoint)
    given = {**(config_dict or {}), **(flags or {})}
    if "data_path" in given:
        raise UserError("data_path cannot be set together with data: the DataFrame is written below result_dir.")
    # the folder of results as the files and flags say, before there is a data set to name
    result_dir = Config(model, "ml-100k", config_files, config_dict, flags)["result_dir"]
    folder = Path(result_dir) / "data"
    written = prepare_frame(data, Columns(user, item, time, title), folder, dataset or "events", core)
    getLogger().info("%s", written)
    flags = {**(flags or {}), "data_path": str(folder)}
    return run_config(Config(model, written.name, config_files, config_dict, flags), trust_checkpoint)


def run_config(config: Config, trust_checkpoint: bool = False) -> dict[str, Any]:
    """``run`` for a ready configuration; ``trust_checkpoint`` allows pickled checkpoints, which can run code."""
    if config["num_threads"]:
        torch.set_num_threads(config["num_threads"])
    if config["enable_amp"]:
        mend_half_precision()
    trackers.require_installed(config)
    folder = place_run(config)
    if parallel.rank() != 0:
        getLogger().setLevel("ERROR")
        return _run_in(folder, config, trust_checkpoint)
    with run_log(folder, config["state"], continued=config["resume"]), forget_unless_begun(folder):
        return _run_in(folder, config, trust_checkpoint)


def _run_in(folder: Path, config: Config, trust_checkpoint: bool) -> dict[str, Any]:
    """The run, with its folder and log ready."""
    begin = perf_counter()
    getLogger().info("Run %s", config["run_name"])
    data = load_data(config)
    tokens = Tokens.of(data.dataset)
    statistics = {**results.data_statistics(data.dataset, data.train._dataset), "tokens": tokens.fingerprint()}
    _log_data(data, config, statistics)
    _require_test_rows(data, config)
    model = build_model(config, data.train._dataset)
    getLogger().info("%s: %s trainable parameters", config["model"], f"{count_parameters(model):,}")
    trainer = trainer_class(config["model"])(config, model)
    trainer.trust_checkpoint = trust_checkpoint
    trainer.data_identity = {name: statistics[name] for name in ("sha256", "tokens")}
    with tracked(trainer, folder):
        seconds_before = _train(folder, config, trainer, data)
        modes = {mode: evaluate_phases(trainer, loaders, config) for mode, loaders in data.modes.items()}
        valid, test = evaluate_phases(trainer, (data.valid, data.test), config)
        modes = {mode: modes.get(mode, (valid, test)) for mode in config["eval_modes"] or []}
        for warning in mask_warnings(model, trainer.history):
            getLogger().warning("%s", warning)
        content = _content(config, trainer, valid.metrics, test.metrics)
        content |= {"data": statistics, "noise": results.noise_summary(data.dataset), **metrics_by_mode(modes)}
        tell_result(trainer, content)
    content["seconds"] = seconds_before + perf_counter() - begin
    if parallel.rank() == 0:
        results.write_ranks(folder, data.dataset, {"valid": valid.ranks, "test": test.ranks, **ranks_by_mode(modes)})
        results.write_negatives(folder, {"valid": data.valid, "test": data.test})
        results.write_noise(folder, data.dataset)
        results.keep_detection(data.dataset, folder)
        write_tokens(folder, tokens)
        files.write_json(folder / RESULT_FILE, content)  # last: a folder with result.json is a finished run
    return content


def _train(folder: Path, config: Config, trainer: Any, data: Data) -> float:
    """Train to the last epoch; returns the seconds that earlier attempts at this run took."""
    if config["resume"] and parallel.from_first(trainer.resume_file.is_file):
        trainer.resume_checkpoint(trainer.resume_file)
    elif parallel.rank() == 0:
        (folder / RESULT_FILE).unlink(missing_ok=True)  # of the run that is overwritten
    before = sum(record["train_seconds"] + record.get("valid_seconds", 0.0) for record in trainer.history)
    trainer.fit(data.train, data.valid, saved=True, show_progress=config["show_progress"])
    return before


def _content(config: Config, trainer: Any, valid: Any, test: Any) -> dict[str, Any]:
    """What result.json holds, but for the data and the time; runs/record.py reads it."""
    model = trainer.model
    return {
        "run": config["run_name"],
        "label": config["label"] or shown_name(config["model"], config["denoise"]),
        "model": config["model"],
        "dataset": config["dataset"],
        "seed": config["seed"],
        "config": config.plain(),
        "versions": results.versions(),
        "commit": results.commit(),
        "environment": results.environment(),
        "epochs": trainer.history,
        "best_epoch": trainer.best_epoch,
        "valid": valid,
        "test": test,
        "kept": model.kept_share() if isinstance(model, MaskedModel) else None,
        "parameters": count_parameters(model),
        "ranks": results.RANKS_FILE,
        "checkpoint": trainer.saved_model_file,
    }


def count_parameters(model: torch.nn.Module) -> int:
    """Trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _log_data(data: Data, config: Config, numbers: dict[str, Any]) -> None:
    getLogger().info(
        "%s: %s users, %s items, %s interactions; %s training rows (%s)",
        config["dataset"],
        *(f"{numbers[key]:,}" for key in ("users", "items", "interactions", "train_rows")),
        config["train_rows"],
    )
    for cleaning in results.cleanings(data.dataset).values():
        getLogger().info("%s", cleaning)
    if not data.valid and config["eval_step"] > 0:
        getLogger().warning("No validation rows: the last epoch is kept, without early stopping.")


def _require_test_rows(data: Data, config: Config) -> None:
    """A split that was asked to leave out a test part but could not is a mistake in the data."""
    split = config["eval_args"]["split"]
    if not data.test and split != {"LS": "valid_only"}:
        raise UserError(
            f"Data set '{config['dataset']}': the split {split} leaves no test rows; users need three interactions."
        )
