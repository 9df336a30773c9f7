"""What must hold for any Transformer: random small ones, every seed another combination; make soak tries more.

Kinds of attention (heads folded or not, fused kernels, torch's own), pre- and post-norm, kept tables, shared layers,
dropout, gradient checkpointing.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attentions import BatchFirst, Einsum, FusedKernel, HeadsFirst
from enumeration import all_bits, bits_probability, pieces, product
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from toy_models import DropoutAttention, SoftmaxAttention

from recbole_denoiser.core import AttentionCall, DenoiserConfig, Site, denoise, passes
from recbole_denoiser.core.passes import ruled

D, N = 4, 5
SEEDS = range(16 * int(os.environ.get("HOSTILE_INPUT", "1")))
PLACES = [(0, 0), (1, 0), (1, 1)]  # live attentions of two positions: three bits


class TorchAttention(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(d, heads, dropout, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.inner(x, x, x, attn_mask=mask[0, 0], need_weights=False)[0]


KINDS: list[Any] = [
    SoftmaxAttention, DropoutAttention, HeadsFirst, BatchFirst, Einsum, FusedKernel, TorchAttention
]  # fmt: skip


class RandomBlock(nn.Module):
    def __init__(self, attention: nn.Module, dropout: float, pre: bool) -> None:
        super().__init__()
        self.attention, self.pre = attention, pre
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.feed_forward = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.pre:
            x = x + self.dropout(self.attention(self.norm1(x), mask))
            return x + self.dropout(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class RandomTransformer(nn.Module):
    """Built from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        choose = random.Random(seed)
        torch.manual_seed(seed)
        self.kind = kind = KINDS[seed % len(KINDS)]
        self.shared, self.keeps_tables, pre = (choose.random() < 0.5 for _ in range(3))
        self.pre = pre
        self.ways: dict[str, Any] | None = choose.choice([None, {"use_reentrant": True}, {"use_reentrant": False}])
        heads = choose.choice([1, 2])
        self.depth = choose.choice([1, 2])
        dropout = choose.choice([0.2, 0.5])
        self.items, self.positions = nn.Embedding(9, D), nn.Embedding(N, D)
        made = 1 if self.shared else self.depth
        self.layers = nn.ModuleList([RandomBlock(kind(D, heads, dropout), dropout, pre) for _ in range(made)])
        self.double()
        for parameter in self.parameters():
            parameter.data.normal_(0, 0.7)

    def bias(self, m: int) -> Tensor:
        if not self.keeps_tables or not hasattr(self, "kept"):
            self.kept = torch.ones(N, N, dtype=torch.float64).tril().log().clamp(min=-1e4)[None, None] / 1.0
        return self.kept[:, :, :m, :m]

    def forward(self, items: Tensor) -> Tensor:
        m = items.shape[1]
        x, mask = self.items(items) + self.positions.weight[:m], self.bias(m).expand(len(items), -1, -1, -1)
        for k in range(self.depth):
            layer = self.layers[0 if self.shared else k]
            x = layer(x, mask) if self.ways is None else checkpoint(layer, x, mask, **self.ways)
        return x

    def losses(self, items: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy((self(items) @ self.items.weight.T).transpose(1, 2), targets, reduction="none")


ITEMS = torch.randint(1, 9, (3, N), generator=torch.Generator().manual_seed(0))


def output(model: RandomTransformer, items: Tensor = ITEMS) -> Tensor:
    with torch.no_grad():
        return model(items)


def test_every_choice_is_among_them() -> None:
    made = [RandomTransformer(seed) for seed in range(16)]
    for name in ("kind", "shared", "keeps_tables", "pre", "ways", "depth"):
        found = [str(getattr(model, name)) for model in made]
        assert len(set(found)) == {"kind": len(KINDS), "ways": 3}.get(name, 2)
        assert min(found.count(value) for value in found) >= 2
    assert {(model.shared, model.depth) for model in made} == {(a, b) for a in (True, False) for b in (1, 2)}
    assert all(module.p > 0 for model in made for module in model.modules() if isinstance(module, nn.Dropout))


@pytest.mark.parametrize("form", ["product", "renormalise"])
@pytest.mark.parametrize("seed", SEEDS)
def test_gates(seed: int, form: str) -> None:
    model = RandomTransformer(seed).eval()
    plain, inside = output(model), [set(module.__dict__) for module in model.modules()]
    denoiser: Any = denoise(model, DenoiserConfig(max_length=N, mask_form=form, mask_init=100.0))
    torch.testing.assert_close(output(model), plain)  # open gates are the plain model
    other = ITEMS.clone()
    if form == "product":  # a closed row knows nothing but its own item (a closed key is still in the denominator)
        other[:, :-1] = 9 - other[:, :-1]
        closed: tuple[Any, Any] = (slice(None), slice(None))
        unchanged = slice(N - 1, N)
    else:  # a closed key is known to nobody but itself
        other[:, 1] = 9 - other[:, 1]
        closed, unchanged = (slice(2, None), 1), slice(2, None)
    assert (output(model, other) - plain)[:, unchanged].abs().max() > 1e-6
    for mask in denoiser.masks:
        mask.phi.data[closed] = -1.0
    assert torch.equal(output(model, other)[:, unchanged], output(model)[:, unchanged])
    denoiser.detach()
    assert torch.equal(output(model), plain)
    assert [set(module.__dict__) for module in model.modules()] == inside


class InTurn:
    """The masks of the calls, one after the other."""

    def __init__(self, Z: list[Tensor]) -> None:
        self.Z = iter(Z)

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        return call.masked(next(self.Z))


def spread(values: Tensor, fill: float) -> Tensor:
    """[K, 3] -> [K, 1, 2, 2] with the bits at their places."""
    grid = torch.full((len(values), 1, 2, 2), fill, dtype=torch.float64)
    for i, (s, t) in enumerate(PLACES):
        grid[:, 0, s, t] = values[:, i]
    return grid


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_is_that_of_the_exact_expectation(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finite differences of sum over all masks of their probability times the loss, against one call of loss()."""
    choose = random.Random(100 + seed)
    model = RandomTransformer(seed)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    form, estimator = choose.choice(["product", "renormalise"]), choose.choice(["arm", "disarm", "ar"])
    config = DenoiserConfig(max_length=2, mask_form=form, estimator=estimator, baseline=False)
    denoiser: Any = denoise(model, config)
    phis = [mask.phi for mask in denoiser.masks]
    for phi in phis:
        phi.data.normal_()
    calls = [phis[0 if model.shared else k] for k in range(model.depth)]
    items, targets = torch.tensor([[3, 7]]), torch.tensor([[5, 2]])

    bits = all_bits(3 * len(calls))
    with torch.no_grad(), ruled(denoiser.sites, InTurn([spread(b, 1.0) for b in bits.chunk(len(calls), 1)])):
        losses = model.losses(items.expand(len(bits), -1), targets.expand(len(bits), -1)).mean(1)

    def expectation() -> Tensor:
        logits = torch.cat([torch.stack([phi[s, t] for s, t in PLACES]) for phi in calls])
        return (bits_probability(bits, logits.detach()) * losses).sum()

    per_bit = [pieces([p, 1 - p]) for phi in calls for p in torch.sigmoid(phi.detach())[[0, 1, 1], [0, 0, 1]].tolist()]
    U, width = product(per_bit)
    queue = iter([spread(u, 0.5) for u in U.chunk(len(calls), 1)])
    monkeypatch.setattr(passes, "uniform", lambda shape, dtype, device: next(queue))
    many = items.expand(len(U), -1), targets.expand(len(U), -1)
    denoiser.loss(lambda: model.losses(*many), weights=width.unsqueeze(1).expand(-1, 2) / 2).total.backward()
    step = 1e-5
    for phi in phis:
        for s, t in PLACES:
            slopes = []
            for sign in (1, -1):
                phi.data[s, t] += sign * step
                slopes.append(sign * float(expectation()) / (2 * step))
                phi.data[s, t] -= sign * step
            assert float(phi.grad[s, t]) == pytest.approx(sum(slopes), abs=1e-8)
        assert float(phi.grad[0, 1]) == 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_checkpoints_and_kept_tables_change_no_gradient(seed: int) -> None:
    """With dropout on: the same step without checkpoints and with warm tables."""
    model = RandomTransformer(seed).train()
    denoiser: Any = denoise(model, DenoiserConfig(max_length=N, mask_init=0.5))
    found = []
    for ways in (model.ways, None):
        model.ways = ways
        torch.manual_seed(1)
        total = denoiser.loss(lambda: model.losses(ITEMS, ITEMS.flip(1))).total
        denoiser.zero_grad()
        model.zero_grad()
        total.backward()
        found.append([p.grad.clone() for p in (*denoiser.parameters(), *model.parameters()) if p.grad is not None])
    assert len(found[0]) == len(found[1]) > 5
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
