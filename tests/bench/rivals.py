"""RecBole's and RecTools' side of what is measured, as ours.py.

RecBole is RecBole as it is: its configuration, data sets, loaders, SASRec and trainer. (Importing this package
repairs RecBole under newer NumPy and torch, see compat.py; without it, it would not start.)
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from rounds import QUIET, SIZES, Round, histories, inference, timed

import recbole_denoiser  # noqa: F401  repairs RecBole

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
    items, length = histories(loaders[0].dataset.item_num, n)
    return inference(model, items, length)


# ---- RecTools ----


def rectools_train(dataset: str, data_path: str, n: int = 50, loss: str = "BCE", batches: int | None = None) -> Round:
    """An epoch of RecTools' SASRec, or ``batches`` of it, with the same sizes, loss and batch, the loop only.

    Unit: predicted position.
    """
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
    data = Dataset.construct(table)
    seconds, positions = [0.0], [0.0]

    class Clock(Callback):
        def on_train_epoch_start(self, *_: Any) -> None:
            seconds[0], positions[0] = time.process_time(), 0.0

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
            positions[0] += float((batch["y"] != 0).sum())

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
            limit_train_batches=batches,
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
        return positions[0], seconds[0]

    return run
