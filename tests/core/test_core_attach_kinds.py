"""Hand-written attention of every make: found by itself, nowhere without effect, and left as it was if it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attached import ITEMS, TARGETS, VALID, M, config, encoder, fill, holds
from attentions import BatchFirst, Einsum, FusedKernel, HeadsFirst, OwnKernel, Projected, Shown
from torch import Tensor, nn
from toy_models import Block, Encoder, softmax_encoder

from recbole_denoiser.core import Site, denoise, register_attention, unregister_attention
from recbole_denoiser.core.functional import written_out
from recbole_denoiser.errors import UserError


@pytest.mark.parametrize("kind", [HeadsFirst, BatchFirst, Einsum, FusedKernel])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_hand_written(kind: type[Projected], p: float) -> None:
    model = encoder(kind, p)
    holds(lambda: model(ITEMS), model)
    holds(lambda: model(ITEMS), model, mask_per_head=True)


@pytest.mark.parametrize("kind", [HeadsFirst, BatchFirst, Einsum])
@pytest.mark.parametrize("B", [2, 3])  # with two sequences there are as many as heads
def test_a_sequence_s_mask_acts_on_its_own_heads(kind: type[Projected], B: int) -> None:
    model = encoder(kind).eval()
    denoise_model = denoise(model, config(mask_prior=True, mask_form="renormalise"))
    p = torch.full((B, M), 0.1)
    p[1, 2] = 0.9
    seen: list[Tensor] = []
    model.layers[0].attention.dropout.register_forward_hook(lambda module, args, out: seen.append(out))
    with torch.no_grad(), denoise_model.valid_positions(VALID[:B], prior=p):
        model(ITEMS[:B])
    by_head = {
        HeadsFirst: lambda A: A.unflatten(0, (2, B)).transpose(0, 1),
        BatchFirst: lambda A: A.unflatten(0, (B, 2)),
        Einsum: lambda A: A.transpose(0, 1),
    }[kind](seen[-1])
    assert not by_head[1, :, 3:, 2].any()
    assert (by_head[0, :, 3:, 2] > 0).all() and (by_head[1, :, 3:, 1] > 0).all()


def test_the_fused_kernel_written_out() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    few_k, few_v = k[:, :2], v[:, :2]
    bools = torch.rand(2, 1, 5, 5) > 0.4
    bools[0, 0, 2] = False  # a row that may not look at anything
    site = Site("attention", 0, nn.Identity(), nn.Identity())
    for flags in ({}, {"is_causal": True}, {"attn_mask": bools}, {"attn_mask": torch.randn(5, 5)}, {"scale": 0.3}):
        torch.testing.assert_close(
            written_out(site, q, k, v, **flags), F.scaled_dot_product_attention(q, k, v, **flags)
        )
    expected = F.scaled_dot_product_attention(q, few_k, few_v, enable_gqa=True)
    torch.testing.assert_close(written_out(site, q, few_k, few_v, enable_gqa=True), expected)


class TwoParents(nn.Module):
    """One nn.MultiheadAttention in two places."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.MultiheadAttention(8, 2, batch_first=True)
        self.first = nn.ModuleDict({"attention": shared})
        self.second = nn.ModuleDict({"attention": shared})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first["attention"](x, x, x)[0]
        return x + self.second["attention"](x, x, x)[0]


def test_one_attention_under_two_parents_is_masked_in_both() -> None:
    torch.manual_seed(0)
    model: Any = TwoParents()
    x = torch.randn(3, M, 8)
    plain = model(x)
    denoiser = denoise(model, config(causal=False))
    fill(denoiser, -1.0)
    with torch.no_grad():
        model.first["attention"].out_proj.bias.zero_()
    torch.testing.assert_close(model(x), x)
    fill(denoiser, 0.5)
    denoiser.loss(lambda: model(x).square().mean(-1)).total.backward()
    denoiser.detach()
    assert model.first["attention"] is model.second["attention"]
    assert type(model.first["attention"]) is nn.MultiheadAttention
    torch.testing.assert_close(model(x), plain)


def test_a_refused_attach_leaves_the_model_as_it_was() -> None:
    model = nn.ModuleDict({
        "good": nn.MultiheadAttention(8, 2), "hand": HeadsFirst(), "bad": nn.MultiheadAttention(8, 2, add_bias_kv=True)
    })  # fmt: skip
    before = [(name, id(module), set(module.__dict__)) for name, module in model.named_modules()]
    with pytest.raises(UserError, match="add_bias_kv"):
        denoise(model, config())
    assert before == [(name, id(module), set(module.__dict__)) for name, module in model.named_modules()]


class Doubling(nn.MultiheadAttention):
    """Does something of its own around torch's attention."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **flags: Any) -> Any:  # type: ignore[override]
        return super().forward(2.0 * query, key, value, **flags)


class Past(nn.MultiheadAttention):
    """Calls torch's function itself."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **flags: Any) -> Any:  # type: ignore[override]
        q, k, v = (x.transpose(0, 1) for x in (query, key, value))
        weights = (
            self.in_proj_weight,
            self.in_proj_bias,
            None,
            None,
            False,
            0.0,
            self.out_proj.weight,
            self.out_proj.bias,
        )
        out, _ = F.multi_head_attention_forward(q, k, v, self.embed_dim, self.num_heads, *weights)
        return out.transpose(0, 1), None


class Held(nn.Module):
    """Keeps its attention in a list of Python's as well, and calls it from there."""

    def __init__(self, kind: type[nn.MultiheadAttention]) -> None:
        super().__init__()
        self.attention = kind(8, 2, batch_first=True)
        self.others = nn.ModuleDict({"one": kind(8, 2, batch_first=True)})
        self.held = [self.attention, self.others["one"]]

    def forward(self, x: Tensor) -> Tensor:
        for attention in self.held:
            x = x + attention(x, x, x)[0]
        return x


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, Doubling])
def test_torch_s_attention_is_masked_wherever_it_is_held(kind: type[nn.MultiheadAttention]) -> None:
    torch.manual_seed(0)
    model, x = Held(kind), torch.randn(3, M, 8)
    holds(lambda: model(x), model, causal=False)
    alone = kind(8, 2, batch_first=True)
    denoiser = denoise(alone, config(causal=False))
    fill(denoiser, -1.0)
    torch.testing.assert_close(alone(x, x, x)[0], alone.out_proj.bias.expand(3, M, 8))


def test_torch_s_attention_that_passes_by_the_mask_is_told() -> None:
    x = torch.randn(3, M, 8)
    model = Held(Past).eval()
    denoise(model, config(causal=False))
    with pytest.raises(UserError, match="ran without its weights being seen"):
        model(x)
    model = Held(nn.MultiheadAttention)
    own = model.attention.forward
    model.attention.forward = lambda *args, **flags: own(*args, **flags)  # type: ignore[method-assign]
    with pytest.raises(UserError, match="Attention site attention: its forward was replaced on the object itself"):
        denoise(model, config(causal=False))
    with pytest.raises(UserError, match="scripted model"):
        denoise(torch.jit.script(nn.Sequential(nn.Linear(2, 2))), config())


@pytest.fixture
def own_kernel() -> Iterator[type[OwnKernel]]:
    yield OwnKernel
    unregister_attention(OwnKernel)


def test_weights_that_nobody_sees_are_an_error_and_its_advice_works(own_kernel: type[OwnKernel]) -> None:
    model = encoder(own_kernel)
    denoiser = denoise(model, config())
    for mode in (True, False):
        model.train(mode)
        with pytest.raises(UserError, match=r"layers\.0\.attention .OwnKernel. ran without its weights .*register_att"):
            model(ITEMS)
    denoiser.detach()
    model(ITEMS)
    register_attention(own_kernel, dropout="dropout")
    holds(lambda: model(ITEMS), model)

    def attach(site: Site) -> Callable[[], None]:
        module: Any = site.attention
        own = module.weights
        module.weights = lambda scores: site.multiply(own(scores))
        return lambda: delattr(module, "weights")

    register_attention(own_kernel, attach=attach)
    holds(lambda: model(ITEMS), model)
    mixed = Encoder([Block(own_kernel()), Block(HeadsFirst())])
    unregister_attention(own_kernel)
    denoise(mixed, config(sites=("layers.1.attention",)))
    mixed(ITEMS)


class Normalised(nn.Module):
    """An attention without projections of its own and with a softmax that is none of torch's."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.normalise = child

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.normalise(x @ self.mix(x).transpose(1, 2) + mask[:, 0]) @ x


class Normaliser(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return OwnKernel.weights(self, scores)  # type: ignore[arg-type]


def test_a_registered_class_is_found_by_itself() -> None:
    model = Encoder([Block(Normalised(Normaliser())) for _ in range(2)])
    with pytest.raises(UserError, match="No attention was found"):
        denoise(model, config())
    register_attention(Normalised, softmax="normalise")
    try:
        holds(lambda: model(ITEMS), model)
        register_attention(Normalised, softmax="softmax")
        with pytest.raises(UserError, match=r"names 'softmax', which is no child of layers\.0\.attention"):
            denoise(model, config())
    finally:
        unregister_attention(Normalised)
    for wrong in (lambda: register_attention(Normaliser(), softmax="x"),  # type: ignore[arg-type]
                  lambda: register_attention(Normaliser, softmax="x", dropout="y")):  # fmt: skip
        with pytest.raises(UserError, match="register_attention"):
            wrong()


def test_weights_that_the_loss_does_not_use_are_an_error() -> None:
    model = encoder(Shown)
    denoiser = denoise(model, config())
    with pytest.raises(UserError, match=r"does not depend on the attention weights at layers\.0\.attention, layers\.1"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_weight_of_zero_behind_the_attention_is_a_warning(frozen: bool) -> None:
    model = encoder(HeadsFirst)
    model.requires_grad_(not frozen)
    for layer in model.layers:
        layer.attention.val_proj.weight.data.zero_()
        layer.attention.val_proj.bias.data.zero_()
    denoiser = denoise(model, config())
    with pytest.warns(UserWarning, match="no influence on the loss yet"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
    denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()


def test_a_key_cache_is_told() -> None:
    model: Any = softmax_encoder()
    denoise(model, config())
    with pytest.raises(UserError, match="use_cache=False"):
        model.layers[0].attention.softmax(torch.zeros(2, 1, 1, 6))
