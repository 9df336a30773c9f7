"""RecBole's optimiser: one that fits the model, with the whole update of a parameter in one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Adam, AdamW, Optimizer, SparseAdam

from recbole_denoiser.errors import UserError

KERNELS = {"cuda": (2, 0), "cpu": (2, 4)}  # torch's first version with a fused Adam, by device


def fused(optimizer: Optimizer) -> Optimizer:
    """The same Adam or AdamW, fused where torch can: one pass over a table of items instead of ten.

    Updates are equal to rounding. Other optimisers come back as they are, and a checkpoint says which kind made it.
    """
    kind: Any = type(optimizer)
    if kind not in (Adam, AdamW):
        return optimizer
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if not all(p.is_floating_point() and version >= KERNELS.get(p.device.type, (99,)) for p in parameters):
        return optimizer
    groups = [{name: value for name, value in group.items() if name != "fused"} for group in optimizer.param_groups]
    return kind(groups, fused=True)


def check_sparse(optimizer: Optimizer, model: nn.Module) -> None:
    """torch's SparseAdam takes sparse gradients only: those of embeddings with sparse=True."""
    if not isinstance(optimizer, SparseAdam):
        return
    tables = [module for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    sparse = {id(table.weight) for table in tables if table.sparse}
    if any(id(parameter) not in sparse for group in optimizer.param_groups for parameter in group["params"]):
        raise UserError(
            f"learner = sparse_adam needs sparse gradients, and {type(model).__name__} has dense ones: choose adam."
        )
