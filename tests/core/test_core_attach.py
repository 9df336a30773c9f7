"""The plug-in on every kind of attention: found, equal when off, masked when on, restored after."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_models import dropout_encoder, items_and_targets, recbole_model, softmax_encoder

from recbole_denoiser import core
from recbole_denoiser.core import DenoiserConfig, MaskedMultiheadAttention, denoise
from recbole_denoiser.errors import UserError

RECBOLE = ["SASRec", "BERT4Rec", "CORE", "GCSAN", "SASRecCPR"]
ITEMS, _ = items_and_targets()
LENGTHS = (ITEMS != 0).sum(1)


def config(**settings: Any) -> DenoiserConfig:
    return DenoiserConfig(**{"max_length": 7, "align": "start", **settings})


def hidden(name: str, model: Any) -> Tensor:
    """The model's output for ITEMS, however it wants to be called."""
    if name in ("BERT4Rec", "CORE"):
        return model(ITEMS)
    output = model(ITEMS, LENGTHS)
    return output[-1] if isinstance(output, list) else output


@pytest.mark.parametrize("name", RECBOLE)
def test_recbole_models(name: str) -> None:
    torch.manual_seed(0)
    model: Any = recbole_model(name, p=0.3)
    before, keys = _seeded(name, model), list(model.state_dict())
    children = [(path, type(module)) for path, module in model.named_modules()]
    denoiser = denoise(model, config(causal=name != "BERT4Rec"))
    assert len(denoiser.sites) == 2
    assert {type(site.block).__name__ for site in denoiser.sites} == {"TransformerLayer"}
    assert list(model.state_dict()) == keys
    denoiser.off()
    assert torch.equal(_seeded(name, model), before)
    denoiser.on()
    for mask in denoiser.masks:
        mask.get_parameter("phi").data.fill_(-5.0)
    assert not torch.allclose(_seeded(name, model), before)
    denoiser.detach()
    assert torch.equal(_seeded(name, model), before)
    assert [(path, type(module)) for path, module in model.named_modules()] == children


def _seeded(name: str, model: nn.Module) -> Tensor:
    torch.manual_seed(1)
    return hidden(name, model).detach()


@pytest.mark.parametrize("encoder", [softmax_encoder, dropout_encoder])
def test_closed_masks_remove_attention(encoder: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    model = encoder(heads=2).eval()
    plain = model(ITEMS)
    denoiser = denoise(model, config())
    assert torch.allclose(_closed(model, denoiser), _without_attention(model))
    denoiser.detach()
    assert torch.equal(model(ITEMS), plain)


def _closed(model: Any, denoiser: Any) -> Tensor:
    for mask in denoiser.masks:
        mask.phi.data.fill_(-1.0)
    return model(ITEMS)


def _without_attention(model: Any) -> Tensor:
    """The residual stream alone: what is left when every attention weight is 0."""
    x = model.items(ITEMS) + model.positions.weight
    for layer in model.layers:
        x = layer.norm1(x)
        x = layer.norm2(x + layer.feed_forward(x))
    return x


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("float_masks", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_torch_attention_is_the_same_when_off(batch_first: bool, float_masks: bool, bias: bool) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first)})
    x = torch.randn(3, 6, 8) if batch_first else torch.randn(6, 3, 8)
    causal = torch.ones(6, 6).triu(1).bool()
    padding = torch.tensor([[False] * 6, [False] * 5 + [True], [False] * 3 + [True] * 3])
    if float_masks:
        causal, padding = (torch.zeros(t.shape).masked_fill(t, float("-inf")) for t in (causal, padding))
    calls: list[dict[str, Any]] = [
        {"attn_mask": causal, "key_padding_mask": padding},
        {"attn_mask": causal, "need_weights": False, "is_causal": True},
        {"attn_mask": causal.expand(6, 6, 6), "average_attn_weights": False},
        {},
    ]
    expected = [model["attention"](x, x, x, **call) for call in calls]
    keys = list(model.state_dict())
    denoiser = denoise(model, config())
    denoiser.off()
    assert isinstance(model["attention"], MaskedMultiheadAttention)
    assert list(model.state_dict()) == keys
    for call, (output, weights) in zip(calls, expected, strict=True):
        got, got_weights = model["attention"](x, x, x, **call)
        torch.testing.assert_close(got, output)
        assert (weights is None) == (got_weights is None)
        if weights is not None:
            torch.testing.assert_close(got_weights, weights)
    denoiser.detach()
    assert type(model["attention"]) is nn.MultiheadAttention


def test_other_key_and_value_widths_are_projected() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True)})
    q, k, v = torch.randn(2, 5, 8), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    expected, _ = model["attention"](q, k, v)
    denoise(model, config()).off()
    torch.testing.assert_close(model["attention"](q, k, v)[0], expected)


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_encoder_never_bypasses_the_masks(batch_first: bool) -> None:
    """Its fused path of eval mode would; nested tensors would, too."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first).eval()
    nested = model.use_nested_tensor
    x = torch.randn(3, 6, 8) if batch_first else torch.randn(6, 3, 8)
    padding = torch.tensor([[False] * 6, [False] * 5 + [True], [False] * 3 + [True] * 3])
    real = ~padding if batch_first else ~padding.T
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padding)[real]
        denoiser: Any = denoise(model, config(causal=False, gamma=0.1, jacobian_batch=2))
        denoiser.off()
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[real], plain)
        denoiser.on()
        for mask in denoiser.masks:
            mask.phi.data.fill_(-1.0)
        closed = model(x, src_key_padding_mask=padding)[real]
        assert not torch.allclose(closed, plain)
        other = model(x + real.unsqueeze(-1) * 0.0, src_key_padding_mask=padding)[real]
        torch.testing.assert_close(other, closed)

    def losses() -> Tensor:
        out = model(x, src_key_padding_mask=padding).square().mean(-1)
        return out if batch_first else out.T

    model.train()
    denoiser.loss(losses, ~padding).total.backward()
    denoiser.detach()
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[real], plain)
    assert model.use_nested_tensor == nested


def test_content_masks_with_batch_second() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
    denoiser: Any = denoise(model, config(causal=False, mask="content", max_length=6))
    x = torch.randn(6, 3, 8)
    result = denoiser.loss(lambda: model(x).square().mean(-1).T)
    result.total.backward()
    assert denoiser.masks[0].item_weight.grad.abs().sum() > 0


def test_no_attention_is_an_error_with_candidates() -> None:
    model = nn.Module()
    model.pool_attention = nn.Linear(4, 1)
    model.gate = nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=-1))
    with pytest.raises(UserError, match=r"(?s)pool_attention.*no query.*gate.*no query.*register_attention"):
        denoise(model, config())


def test_attaching_twice_is_refused() -> None:
    for encoder in (softmax_encoder, dropout_encoder):
        model = encoder()
        denoiser = denoise(model, config())
        with pytest.raises(UserError, match="already has a denoiser"):
            denoise(model, config())
        denoiser.detach()
        denoise(model, config())
        with pytest.raises(UserError, match="detached"):
            denoiser.loss(lambda: model(ITEMS).mean())  # noqa: B023


def test_sites_by_name() -> None:
    model = softmax_encoder()
    denoiser = denoise(model, config(sites=("layers.1.attention",)))
    assert [site.name for site in denoiser.sites] == ["layers.1.attention"]
    denoiser.detach()
    with pytest.raises(UserError, match="no module"):
        denoise(model, config(sites=("layers.7",)))
    with pytest.raises(UserError, match="same module twice"):
        denoise(model, config(sites=("layers.1.attention", "layers.1.attention")))
    denoiser = denoise(model, config(sites=("layers.0.feed_forward",)))
    with pytest.raises(UserError, match=r"layers\.0\.feed_forward .* without its weights being seen"):
        model(ITEMS)
    denoiser.detach()
    model(ITEMS)


def test_a_refused_setting_leaves_the_model_alone() -> None:
    model: Any = softmax_encoder()
    del model.layers[0].attention.num_attention_heads
    with pytest.raises(UserError, match="n_heads"):
        denoise(model, config(mask_per_head=True))
    assert type(model.layers[0].attention.softmax) is nn.Softmax


def test_core_never_imports_recbole() -> None:
    folder = Path(core.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "recbole" for name in names), path.name
