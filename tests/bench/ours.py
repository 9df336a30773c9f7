"""This package's side of what is measured: each function sets something up and returns one round of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rounds import QUIET, SIZES, Round, histories, inference, timed


def _ours(dataset: str, data_path: str, model: str = "SASRecDenoiser", **flags: Any) -> tuple[Any, Any, Any]:
    """Data, model and trainer by the package's own path."""
    from recbole_denoiser.integration.config import Config
    from recbole_denoiser.integration.registry import trainer_class
    from recbole_denoiser.runs import pipeline

    quiet = {**QUIET, "noise_action": "none"}  # looking for noise is measured by detect_quality.py
    config = Config(model, dataset, flags={**SIZES, **quiet, "data_path": data_path, **flags})
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
            loss = cross_entropy(state, weight, None, target, equal=True)
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
    items, length = histories(data.dataset.item_num, n)
    return inference(model, items, length)


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
