"""Work that tests give to several processes; it must be importable by name in each of them."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from recbole_denoiser.core import block_penalty, jacobian, passes
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.registry import trainer_class
from recbole_denoiser.runs import launch
from recbole_denoiser.runs.pipeline import build_model, load_data

ROWS = 8  # of the global batch


def in_processes(count: int, work: Callable[..., Any], *args: Any, folder: Path) -> list[Any]:
    """``work(*args)`` in ``count`` processes that know each other; what each gave, in order."""
    processes = launch.Processes(nproc=count)
    port = launch._free_port()
    context = multiprocessing.get_context("spawn")
    workers = []
    for number in range(count):
        given = (processes.environment(number, port), folder / f"{number}.pt", work, args)
        workers.append(context.Process(target=_work, args=given))
        workers[-1].start()
    for worker in workers:
        worker.join()
    return [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(count)]


def _work(environment: dict[str, str], file: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        given = work(*args)
    except Exception:
        given = traceback.format_exc()
    torch.save(given, file)
    parallel.stop()


def everything(variants: list[dict[str, Any]], splits: list[dict[str, Any]], flags: dict[str, Any]) -> dict[str, Any]:
    """All the work below, in one start."""
    return {
        "metrics": metrics(splits, flags),
        "skipped": skipped_step(flags),
        "gradients": gradients(variants, flags),
    }


def gradients(variants: list[dict[str, Any]], flags: dict[str, Any]) -> list[dict[str, Any]]:
    """Loss terms and gradients of this process's part of one global batch, with the same masks U per sequence."""
    return [_gradients({**flags, **variant}) for variant in variants]


def _gradients(flags: dict[str, Any]) -> dict[str, Any]:
    model = flags.pop("model", "SASRecDenoiser")
    quiet = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "jacobian_batch": 0}
    config = Config(model, "toy", flags={**flags, **quiet})
    data = load_data(config)
    network = build_model(config, data.train._dataset)
    torch.manual_seed(3)
    batch = data.train._dataset[list(range(ROWS))]
    mine = parallel.own_part(ROWS)
    calls = 0

    def same_uniform(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal calls
        calls += 1
        n, m = config["MAX_ITEM_LIST_LENGTH"], shape[-1]
        U = torch.rand(ROWS, shape[1], n, n, generator=torch.Generator().manual_seed(calls))
        return U[mine, :, n - m :, n - m :].to(dtype)

    def same_projection(x: torch.Tensor, valid: torch.Tensor, noise: str) -> torch.Tensor:
        return torch.ones_like(x) * valid.unsqueeze(-1)

    passes.uniform, jacobian.draw_projection = same_uniform, same_projection  # type: ignore[assignment]
    assert block_penalty.jacobian_penalty is jacobian.jacobian_penalty
    network.train()
    loss = parallel.wrap(network) if parallel.is_parallel() else network.calculate_loss
    terms = loss(batch[mine])
    sum(terms).backward()
    grads = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"terms": [float(term.detach()) for term in terms], "gradients": grads, "share": mine.stop - mine.start}


def metrics(variants: list[dict[str, Any]], flags: dict[str, Any]) -> list[Any]:
    """Metrics, number of ranks and kept shares of the same weights, for each variant of the settings."""
    given = []
    for variant in variants:
        config = Config("SASRecDenoiser", "toy", flags={**flags, **variant})
        data = load_data(config)
        network = build_model(config, data.train._dataset)
        torch.manual_seed(5)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter)
        trainer = trainer_class("SASRecDenoiser")(config, network)
        trainer.eval_collector.data_collect(data.train)
        result = trainer.evaluate(data.test, load_best_model=False)
        ranks = torch.cat(trainer.ranks.rank) if trainer.ranks.rank else torch.zeros(0)
        given.append([result, ranks, network.kept_share()])
    return given


def skipped_step(flags: dict[str, Any]) -> list[Any]:
    """One process meets a loss that is not finite; all of them skip that step and go on."""
    config = Config("SASRecDenoiser", "toy", flags={**flags, "on_nonfinite": "skip"})
    data = load_data(config)
    network = build_model(config, data.train._dataset)
    trainer = trainer_class("SASRecDenoiser")(config, network)
    plain, calls = network.calculate_loss, 0

    def sometimes_bad(interaction: Any) -> Any:
        nonlocal calls
        calls += 1
        rec, mask, jacobian_term = plain(interaction)
        return (rec * float("nan") if parallel.rank() == 1 and calls == 1 else rec), mask, jacobian_term

    network.calculate_loss = sometimes_bad
    losses = trainer._train_epoch(data.train, 0)
    return [losses, {name: p.detach() for name, p in network.named_parameters()}]
