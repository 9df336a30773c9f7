"""What is measured: each function sets something up and gives one round of it, which answers how much it did.

RecBole's side is RecBole as it is: its configuration, data sets, loaders, SASRec and trainer. (Importing this package
repairs RecBole under newer NumPy and torch, see compat.py; without it, it would not start.)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import recbole_denoiser  # noqa: F401  repairs RecBole

Round = Callable[[], tuple[float, float]]  # -> (units of work, seconds of CPU)
SIZES = {"hidden_size": 64, "inner_size": 64, "n_layers": 2, "n_heads": 2}
QUIET = {"state": "ERROR", "show_progress": False, "save_dataset": False, "save_dataloaders": False}


def timed(work: Callable[[], float]) -> Round:
    """A round whose whole work counts."""

    def run() -> tuple[float, float]:
        begin = time.process_time()
        units = work()
        return units, time.process_time() - begin

    return run


# ---- ours ----


def _ours(dataset: str, data_path: str, model: str = "SASRecDenoiser", **flags: Any) -> tuple[Any, Any, Any]:
    """Data, model and trainer by the package's own path."""
    from recbole_denoiser.integration.config import Config
    from recbole_denoiser.integration.registry import trainer_class
    from recbole_denoiser.runs import pipeline

    config = Config(model, dataset, flags={**SIZES, **QUIET, "data_path": data_path, **flags})
    data = pipeline.load_data(config)
    network = pipeline.build_model(config, data.train._dataset)
    return data, network, trainer_class(model)(config, network)


def ours_train(steps: int, **flags: Any) -> Round:
    """Training steps with everything around them: loader, negatives, backward, optimiser. Unit: predicted position."""
    data, _, trainer = _ours(**flags)
    batches: list[Any] = []

    def some() -> Any:
        batches.clear()
        for interaction in itertools.islice(itertools.chain.from_iterable(itertools.repeat(data.train)), steps):
            batches.append(interaction)
            yield interaction

    def work() -> float:
        trainer._train_epoch(some(), 0)
        return float(sum(int((batch["target_item_id_list"] != 0).sum()) for batch in batches))

    return timed(work)


def ours_step(steps: int, batch_size: int, **flags: Any) -> Round:
    """Training steps on batches that are ready, all of full size. Unit: step."""
    data, _, trainer = _ours(train_batch_size=batch_size, train_batches="shuffled", **flags)
    batches = [batch for batch in data.train if len(batch) == batch_size][:steps]

    def work() -> float:
        trainer._train_epoch(batches, 0)
        return len(batches)

    return timed(work)


def ours_epoch(**flags: Any) -> Round:
    """One epoch with its loader. Unit: epoch."""
    data, _, trainer = _ours(**flags)

    def work() -> float:
        trainer._train_epoch(data.train, 0)
        return 1

    return timed(work)


def ours_cross_entropy(items: int, positions: int, in_pieces: bool) -> Round:
    """Loss and gradients of the cross-entropy over all items, in pieces or by the full matrix. Unit: position."""
    import torch.nn.functional as F

    from recbole_denoiser.core.cross_entropy import cross_entropy

    generator = torch.Generator().manual_seed(0)
    state = torch.randn(positions, 64, generator=generator).requires_grad_()
    weight = (torch.randn(items, 64, generator=generator) * 0.1).requires_grad_()
    target = torch.randint(items, (positions,), generator=generator)

    def work() -> float:
        if in_pieces:
            loss = cross_entropy(state, weight, None, target)
        else:
            loss = F.cross_entropy(F.linear(state, weight), target, reduction="none")
        loss.mean().backward()
        return positions

    return timed(work)


def ours_evaluate(mode: str, **flags: Any) -> Round:
    """One evaluation on the test part. Unit: evaluation."""
    data, _, trainer = _ours(**{**flags, "eval_args.mode": mode})

    def work() -> float:
        trainer.evaluate(data.test, load_best_model=False)
        return 1

    return timed(work)


def ours_infer(n: int, keep: float | None, closed: bool = False, **flags: Any) -> Round:
    """States of 256 full histories, masks open (keep empty) or at random places. Unit: batch.

    closed: nothing of the last block's newest row is kept.
    """
    data, model, _ = _ours(MAX_ITEM_LIST_LENGTH=n, random_keep=keep, **flags)
    if closed:
        model.denoiser.masks[-1].phi.data[..., -1, :] = -1.0
    items, length = _histories(data.dataset.item_num, n)
    return _inference(model, items, length)


def ours_recommend(count: int, dataset: str, data_path: str) -> Round:
    """Raw tokens to the ten best items with titles and scores. Unit: sequence."""
    from recommend import sequences, untrained

    recommender = untrained(dataset, data_path, Path.cwd())
    given = sequences(recommender.items, count, 80)

    def work() -> float:
        return len(recommender.recommend(given, k=10))

    return timed(work)


def ours_outside(**flags: Any) -> Round:
    """One epoch. Unit: epochs' worth of CPU seconds spent in the model (loss, backward, update)."""
    data, model, trainer = _ours(**flags)
    inside = [0.0]

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.process_time()
            result = function(*args, **kwargs)
            inside[0] += time.process_time() - begin
            return result

        return call

    model.calculate_loss, trainer._step = watched(model.calculate_loss), watched(trainer._step)
    trainer.train_loader = data.train

    def work() -> float:
        inside[0] = 0.0
        trainer._fit_epoch(0, data.train, None, True, False, False)
        return inside[0]

    return timed(work)


# ---- RecBole ----


def _recbole(dataset: str, data_path: str, model: str = "SASRec", **settings: Any) -> tuple[Any, Any, Any, Any]:
    """Configuration, loaders, model and trainer as RecBole's quick start makes them."""
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.trainer import Trainer
    from recbole.utils import get_model, init_seed

    given = {
        **SIZES,
        **QUIET,
        "data_path": data_path,
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "hidden_dropout_prob": 0.2,
        "attn_dropout_prob": 0.2,
        "loss_type": "BPR",  # one sampled negative, as eq. 7
        "metrics": ["Hit", "NDCG", "MRR"],
        "topk": [5, 10],
        "valid_metric": "NDCG@10",
        **settings,
    }
    if given["loss_type"] == "CE":
        given["train_neg_sample_args"] = None
    config = Config(model=model, dataset=dataset, config_dict=given)
    init_seed(config["seed"], config["reproducibility"])
    loaders = data_preparation(config, create_dataset(config))
    network = get_model(model)(config, loaders[0].dataset).to(config["device"])
    return config, loaders, network, Trainer(config, network)


def recbole_train(steps: int, **settings: Any) -> Round:
    """Training steps on RecBole's prefixes, one loss each. Unit: predicted position."""
    config, (train, _, _), _, trainer = _recbole(**settings)

    def work() -> float:
        trainer._train_epoch(itertools.islice(iter(train), steps), 0)
        return steps * config["train_batch_size"]

    return timed(work)


def recbole_evaluate(mode: str, **settings: Any) -> Round:
    """RecBole's evaluation on the test part. Unit: evaluation."""
    split = {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": mode}
    _, (train, _, test), _, trainer = _recbole(eval_args=split, **settings)
    trainer.eval_collector.data_collect(train)

    def work() -> float:
        trainer.evaluate(test, load_best_model=False)
        return 1

    return timed(work)


def recbole_infer(n: int, **settings: Any) -> Round:
    """RecBole's forward pass. Unit: batch."""
    _, loaders, model, _ = _recbole(MAX_ITEM_LIST_LENGTH=n, **settings)
    items, length = _histories(loaders[0].dataset.item_num, n)
    return _inference(model, items, length)


def _histories(n_items: int, n: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, n_items, (256, n), generator=generator), torch.full((256,), n)


def _inference(model: Any, items: Any, length: Any) -> Round:
    model.eval()

    def work() -> float:
        with torch.no_grad():
            model(items, length)
        return 1

    return timed(work)


# ---- RecTools ----


def rectools_train(dataset: str, data_path: str, n: int = 50, loss: str = "BCE") -> Round:
    """An epoch of RecTools' SASRec with the same sizes, loss and batch, the loop only. Unit: predicted position."""
    import pandas as pd
    from pytorch_lightning import Callback, Trainer
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel

    table = pd.read_csv(f"{data_path}/{dataset}/{dataset}.inter", sep="\t")
    table.columns = [name.split(":")[0] for name in table.columns]
    table = table[["user_id", "item_id", "timestamp"]].rename(columns={"timestamp": "datetime"})
    table["datetime"], table["weight"] = pd.to_datetime(table["datetime"], unit="s"), 1
    held_out = table.sort_values("datetime").groupby("user_id").cumcount(ascending=False) < 2
    table = table[~held_out.reindex(table.index)]
    positions = float((table.groupby("user_id").size() - 1).clip(upper=n).sum())
    data = Dataset.construct(table)
    seconds = [0.0]

    class Clock(Callback):
        def on_train_epoch_start(self, *_: Any) -> None:
            seconds[0] = time.process_time()

        def on_train_epoch_end(self, *_: Any) -> None:
            seconds[0] = time.process_time() - seconds[0]

    def trainer() -> Any:
        return Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Clock()],
        )

    def run() -> tuple[float, float]:
        SASRecModel(
            n_factors=64,
            n_blocks=2,
            n_heads=2,
            session_max_len=n,
            dropout_rate=0.2,
            loss=loss,
            n_negatives=1,
            batch_size=128,
            get_trainer_func=trainer,
        ).fit(data)
        return positions, seconds[0]

    return run
