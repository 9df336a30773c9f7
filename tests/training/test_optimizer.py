"""The fused optimiser against torch's plain one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, SparseAdam

from recbole_denoiser.errors import UserError
from recbole_denoiser.training.optimizer import check_sparse, fused


def steps(optimizer: Optimizer, parameters: list[torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_same_updates_in_every_group(kind: type[Adam], decay: float) -> None:
    found = []
    for change in (lambda optimizer: optimizer, fused):
        weight, phi = (torch.linspace(-1, 1, 12).view(3, 4).requires_grad_() for _ in range(2))
        groups: list[dict[str, Any]] = [{"params": [weight]}, {"params": [phi], "lr": 0.5, "weight_decay": 0.0}]
        optimizer = change(kind(groups, lr=0.1, weight_decay=decay))
        steps(optimizer, [weight, phi])
        found.append((weight.detach(), phi.detach()))
    assert optimizer.param_groups[0]["fused"] and type(optimizer) is kind
    torch.testing.assert_close(found[0], found[1])
    assert not torch.equal(found[1][0], found[1][1])  # each group by its own settings


def test_a_checkpoint_of_the_plain_optimizer_goes_on_as_it_began() -> None:
    found = []
    for change in (lambda optimizer: optimizer, fused):
        weight = torch.linspace(-1, 1, 12).requires_grad_()
        plain = Adam([weight])
        steps(plain, [weight])
        other = change(Adam([weight]))
        other.load_state_dict(copy.deepcopy(plain.state_dict()))
        steps(other, [weight])
        found.append(weight.detach())
    assert torch.equal(found[0], found[1])


def test_others_stay_as_they_are() -> None:
    optimizer = SGD([torch.zeros(2, requires_grad=True)], lr=0.1)
    assert fused(optimizer) is optimizer


def test_sparse_adam_is_for_sparse_gradients_only() -> None:
    sparse, dense = nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2)
    check_sparse(SparseAdam(sparse.parameters()), sparse)
    check_sparse(Adam(dense.parameters()), dense)
    model = nn.ModuleList([sparse, dense])
    with pytest.raises(UserError, match="sparse_adam needs sparse gradients, and ModuleList has dense ones"):
        check_sparse(SparseAdam(model.parameters()), model)
