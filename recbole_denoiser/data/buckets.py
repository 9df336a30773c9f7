"""Training batches of rows of similar length, so that little of a batch is padding.

Each epoch shuffles the rows, cuts them into pools, sorts each pool by length and cuts it into batches with the same
number of positions: short rows come in larger batches, so that every position weighs as much as in shuffled batches
and an epoch has as many steps. The batches of a pool, and the pools, are in random order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from recbole.data.dataloader import TrainDataLoader

from recbole_denoiser.integration import parallel

POOL = 32  # batches per pool: enough for batches of one length, few enough for other neighbours in every epoch


def bucketed_batches(length: np.ndarray, batch_size: int, generator: torch.Generator | None) -> list[np.ndarray]:
    """Row numbers of every batch of an epoch; each row is in one batch. Without a generator, in the order of length."""
    rows = len(length)
    weight = np.maximum(length, 1)
    budget = batch_size * weight.mean()  # positions of a shuffled batch
    order = np.arange(rows) if generator is None else torch.randperm(rows, generator=generator).numpy()
    batches: list[np.ndarray] = []
    for pool in np.array_split(order, max(1, round(rows / (POOL * batch_size)))):
        pool = pool[np.argsort(length[pool], kind="stable")]  # rows of equal length stay shuffled
        behind = np.cumsum(weight[pool])
        count = max(1, round(behind[-1] / budget))
        middle = behind - weight[pool] / 2
        number = np.minimum((middle * count / behind[-1]).astype(np.int64), count - 1)  # batch of each row
        batches += [part for part in np.split(pool, np.flatnonzero(np.diff(number)) + 1) if len(part)]
    if generator is None:
        return batches
    return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]


class BucketedLoader(TrainDataLoader):
    """RecBole's training loader with bucketed batches.

    The order of an epoch comes from ``generator`` alone, whose state a checkpoint keeps. With several processes each
    makes the same batches and takes its part of every one.
    """

    def __init__(self, config: Any, dataset: Any, sampler: Any, shuffle: bool = False) -> None:
        with parallel.as_single_process(config):
            super().__init__(config, dataset, sampler, shuffle=shuffle)
        self.length = dataset.inter_feat[dataset.item_list_length_field].numpy()  # [R]

    def __len__(self) -> int:
        return len(bucketed_batches(self.length, self.step, self._copy() if self.shuffle else None))

    def _copy(self) -> torch.Generator:
        copy = torch.Generator()
        copy.set_state(self.generator.get_state())
        return copy

    def __iter__(self) -> Iterator[Any]:
        batches = bucketed_batches(self.length, self.step, self.generator if self.shuffle else None)
        inner: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
            range(len(self.length)),  # type: ignore[arg-type]
            batch_sampler=[own_rows(batch).tolist() for batch in batches],
            collate_fn=self.collate_fn,
            num_workers=self.config["worker"],
            generator=self.generator,
        )
        return iter(inner)


def own_rows(batch: np.ndarray) -> np.ndarray:
    """This process's rows of a batch, at least one: rows are repeated if there are fewer than processes."""
    if len(batch) < parallel.world_size():
        batch = np.resize(batch, parallel.world_size())
    return batch[parallel.rank() :: parallel.world_size()]


def training_loader(config: Any, train: Any, sampler: Any) -> Any:
    """Bucketed or shuffled batches of the training part."""
    if config["train_batches"] == "bucketed":
        return BucketedLoader(config, train, sampler, shuffle=config["shuffle"])
    loader = TrainDataLoader(config, train, sampler, shuffle=config["shuffle"])
    if parallel.is_parallel():
        loader.sampler.seed = config["seed"]  # RecBole's order of rows would be the same for every seed
    return loader
