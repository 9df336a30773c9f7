"""One run from atomic file to result file: data, model, training, best checkpoint, test."""

from __future__ import annotations

from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from recbole.data.dataloader import TrainDataLoader
from recbole.data.utils import create_samplers
from recbole.utils import init_logger, init_seed

from recbole_denoiser import files
from recbole_denoiser.data.prepare.events import Columns, prepare_frame
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.memory import keep_freed_memory
from recbole_denoiser.integration.processor import mend_half_precision
from recbole_denoiser.integration.registry import dataset_class, model_class, trainer_class
from recbole_denoiser.runs import results
from recbole_denoiser.training.evaluation import Ranks, evaluation_loader

DETECTION_FILE, DETECTOR_FILE = "detection.npz", "detector.npz"  # posteriors of the training part; the detector
COLLAPSED = 0.001  # share of attentions kept (or pruned) below which a mask decides nothing


@dataclass
class Data:
    """A data set and its loaders."""

    dataset: Any
    train: Any
    valid: Any
    test: Any


def load_data(config: Config) -> Data:
    """Read the atomic files, split them and make the loaders. No cache is read: RecBole's is a pickle."""
    init_seed(config["seed"], config["reproducibility"])
    dataset = dataset_class(config["model"])(config)
    for name, off in (("train_noise", 0.0), ("noise_action", "none")):
        if config[name] not in (None, off) and not hasattr(dataset, "noise"):
            raise UserError(f"{name}: {config['model']} reads its data in a way of its own, which noise cannot reach.")
    train, valid, test = dataset.build()
    train_sampler, valid_sampler, test_sampler = create_samplers(config, dataset, [train, valid, test])
    train_loader = TrainDataLoader(config, train, train_sampler, shuffle=config["shuffle"])
    if parallel.is_parallel():
        train_loader.sampler.seed = config["seed"]  # RecBole's order of rows would be the same for every seed
    return Data(
        dataset,
        train_loader,
        evaluation_loader(config, valid, "valid", valid_sampler),
        evaluation_loader(config, test, "test", test_sampler),
    )


def build_model(config: Config, train_dataset: Any) -> Any:
    """The model of the configuration, freshly initialised from the seed."""
    keep_freed_memory()
    init_seed(config["seed"] + parallel.rank(), config["reproducibility"])  # each process draws its own masks
    return model_class(config["model"])(config, train_dataset).to(config["device"])


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
) -> dict[str, Any]:
    """Train, reload the best checkpoint, test, and write ``<result_dir>/<run>/``; gives the content of result.json.

    ``dataset`` names a data set of data_path (ml-100k). Instead, ``data`` is a DataFrame with a row per interaction;
    ``user``, ``item``, ``time`` and perhaps ``title`` name its columns, and ``core`` = k keeps users and items with k
    interactions. It becomes the data set ``<result_dir>/data/<dataset>-<hash of the rows>/``, where the run finds it
    again; the same rows have the same name.
    """
    if data is None:
        return run_config(Config(model, dataset or "ml-100k", config_files, config_dict, flags))
    given = {**(config_dict or {}), **(flags or {})}
    if "data_path" in given:
        raise UserError("data_path cannot be set together with data: the DataFrame is written below result_dir.")
    # the folder of results as the files and flags say, before there is a data set to name
    result_dir = Config(model, "ml-100k", config_files, config_dict, flags)["result_dir"]
    folder = Path(result_dir) / "data"
    written = prepare_frame(data, Columns(user, item, time, title), folder, dataset or "events", core)
    getLogger().info("%s", written)
    flags = {**(flags or {}), "data_path": str(folder)}
    return run_config(Config(model, written.name, config_files, config_dict, flags))


def run_config(config: Config) -> dict[str, Any]:
    """``run`` for a ready configuration."""
    begin = perf_counter()
    if config["num_threads"]:
        torch.set_num_threads(config["num_threads"])
    if config["enable_amp"]:
        mend_half_precision()
    name = parallel.from_first(lambda: results.run_name(config))
    config["run_name"] = name
    folder = Path(config["result_dir"]) / name
    logger = getLogger()
    if parallel.rank() == 0:
        for place in (folder.parent, Path(config["checkpoint_dir"]), Path("log")):
            files.require_writable(place)
        init_logger(config)
    else:
        logger.setLevel("ERROR")
    logger.info("Run %s", name)
    data = load_data(config)
    _log_data(data, config)
    model = build_model(config, data.train._dataset)
    logger.info("%s: %s trainable parameters", config["model"], f"{count_parameters(model):,}")
    trainer = trainer_class(config["model"])(config, model)
    if config["resume"] and parallel.from_first(trainer.resume_file.is_file):
        trainer.resume_checkpoint(trainer.resume_file)
    before = sum(record["train_seconds"] + record.get("valid_seconds", 0.0) for record in trainer.history)
    trainer.fit(data.train, data.valid, saved=True, show_progress=config["show_progress"])
    valid, valid_ranks = _evaluate(trainer, data.valid, config)
    test, test_ranks = _evaluate(trainer, data.test, config)
    for warning in mask_warnings(model, trainer.history):
        logger.warning("%s", warning)
    content = {
        "run": name,
        "label": config["label"] or config["model"],
        "model": config["model"],
        "dataset": config["dataset"],
        "seed": config["seed"],
        "config": config.plain(),
        "data": data_statistics(data),
        "noise": noise_summary(data.dataset),
        "versions": results.versions(),
        "environment": results.environment(),
        "epochs": trainer.history,
        "best_epoch": trainer.best_epoch,
        "valid": valid,
        "test": test,
        "kept": model.kept_share() if hasattr(model, "kept_share") else None,
        "parameters": count_parameters(model),
        "ranks": "ranks.npz",
        "checkpoint": trainer.saved_model_file,
        "seconds": before + perf_counter() - begin,  # with the epochs of earlier attempts
    }
    if parallel.rank() != 0:
        return content
    ranks = {
        f"{phase}_{name}": values
        for phase, part in (("valid", valid_ranks), ("test", test_ranks))
        for name, values in part.arrays(data.dataset).items()
    }
    files.write_arrays(folder / "ranks.npz", ranks)
    results.write_negatives(folder, {"valid": data.valid, "test": data.test})
    if getattr(data.dataset, "noise", None) is not None:
        files.write_arrays(folder / "noise.npz", data.dataset.noise_arrays())
    _keep_detection(data.dataset, folder)
    files.write_json(folder / "result.json", content)  # last: a folder with result.json is a finished run
    return content


def _evaluate(trainer: Any, loader: Any, config: Config) -> tuple[dict[str, float] | None, Ranks]:
    result = trainer.evaluate(loader, load_best_model=True, show_progress=config["show_progress"])
    return result, trainer.ranks


def mask_warnings(model: Any, history: list[dict[str, Any]]) -> list[str]:
    """What to change if training has closed a layer altogether, or has pruned nothing at all."""
    denoiser = getattr(model, "denoiser", None)
    if denoiser is None:
        return []
    kept = model.kept_share()
    if not kept or not history or denoiser.config.random_keep is not None:  # not trained, or a control that never is
        return []
    closed = [str(layer) for layer, share in enumerate(kept, start=1) if share < COLLAPSED]
    if closed:
        return [
            f"Collapsed masks: layer {', '.join(closed)} keeps no attention at all, so no item sees another there. "
            f"Lower beta or mask_learning_rate, raise mask_init, or set target_sparsity."
        ]
    if all(share > 1 - COLLAPSED for share in kept):
        return [
            "Collapsed masks: no attention was pruned in any layer, so the model ends as its plain backbone with "
            "scaled attention. Raise beta or mask_learning_rate, lower mask_init, train longer, or set target_sparsity."
        ]
    return []


def count_parameters(model: torch.nn.Module) -> int:
    """Trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def data_statistics(data: Data) -> dict[str, Any]:
    """Size and fingerprint of the data set, and how many of its training items noise replaced."""
    dataset = data.dataset
    flat, noise = getattr(dataset, "source", None), getattr(dataset, "noise", None)
    return {
        "users": dataset.user_num - 1,
        "items": dataset.item_num - 1,
        "interactions": len(flat) if flat is not None else len(dataset.inter_feat),
        "train_rows": len(data.train._dataset),
        "replaced": 0 if noise is None else len(noise.index),
        "sha256": dataset.fingerprint() if hasattr(dataset, "fingerprint") else "",
    }


def noise_summary(dataset: Any) -> dict[str, Any] | None:
    """What the noise detector found and what was done about it."""
    cleaning = getattr(dataset, "cleaning", None)
    return None if cleaning is None else cleaning.summary()


def _keep_detection(dataset: Any, folder: Path) -> None:
    """The posteriors and the fitted detector go with the run, which then reads the same data when it is opened."""
    cleaning = getattr(dataset, "cleaning", None)
    if cleaning is None:
        return
    files.copy(cleaning.detection.file, folder / DETECTION_FILE)
    if cleaning.detection.detector_file.is_file():
        files.copy(cleaning.detection.detector_file, folder / DETECTOR_FILE)


def _log_data(data: Data, config: Config) -> None:
    numbers = data_statistics(data)
    getLogger().info(
        "%s: %s users, %s items, %s interactions; %s training rows (%s)",
        config["dataset"],
        *(f"{numbers[key]:,}" for key in ("users", "items", "interactions", "train_rows")),
        config["train_rows"],
    )
    if getattr(data.dataset, "cleaning", None) is not None:
        getLogger().info("%s", data.dataset.cleaning)
    if not data.valid and config["eval_step"] > 0:
        getLogger().warning("No validation rows: the last epoch is kept, without early stopping.")
    if not data.test:
        raise_if_no_test(config)


def raise_if_no_test(config: Config) -> None:
    """A split that was asked to leave out a test part but could not is a mistake in the data."""
    split = config["eval_args"]["split"]
    if split != {"LS": "valid_only"}:
        raise UserError(
            f"Data set '{config['dataset']}': the split {split} leaves no test rows; users need three interactions."
        )
