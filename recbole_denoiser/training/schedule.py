"""The learning rate from epoch to epoch: warm-up, then constant, linear or cosine decay."""

from __future__ import annotations

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

SCHEDULES = ("constant", "linear", "cosine")


def factor(epoch: int, schedule: str, warmup: int, epochs: int) -> float:
    """What ``learning_rate`` is multiplied by in an epoch, counted from 0; after ``epochs`` it stays where it is."""
    if epoch < warmup:
        return (epoch + 1) / (warmup + 1)
    done = min(max(epoch - warmup, 0) / max(epochs - warmup, 1), 1.0)  # 0 at the end of warm-up, 1 after the last epoch
    if schedule == "linear":
        return 1 - done
    return (1 + math.cos(math.pi * done)) / 2 if schedule == "cosine" else 1.0


def learning_rates(optimizer: Optimizer, config: Any) -> LambdaLR:
    """Torch's scheduler, to be stepped after each epoch. Phi, the second group, keeps its rate."""
    schedule, warmup = config["lr_schedule"] or "constant", config["lr_warmup"] or 0

    def backbone(epoch: int) -> float:
        return factor(epoch, schedule, warmup, config["epochs"])

    return LambdaLR(optimizer, [backbone, *[lambda _: 1.0] * (len(optimizer.param_groups) - 1)])
