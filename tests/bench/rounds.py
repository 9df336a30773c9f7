"""One round of something that is measured, and what both sides share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

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


def histories(n_items: int, n: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, n_items, (256, n), generator=generator), torch.full((256,), n)


def inference(model: Any, items: Any, length: Any) -> Round:
    model.eval()

    def work() -> float:
        with torch.no_grad():
            model(items, length)
        return 1

    return timed(work)
