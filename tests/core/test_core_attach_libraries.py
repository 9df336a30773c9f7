"""Attention of Hugging Face, x-transformers and RecBole: found by itself, nowhere without effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attached import ITEMS, VALID, M, config, holds
from torch import Tensor
from toy_models import Encoder, recbole_model

from recbole_denoiser.core import denoise
from recbole_denoiser.errors import UserError


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["GPT2", "Bert"])
def test_hugging_face(name: str, kernel: str) -> None:
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, f"{name}Config")(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=8,
        intermediate_size=16, attn_implementation=kernel, bos_token_id=0, eos_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    model = getattr(transformers, f"{name}Model")(made)
    real = torch.ones(3, M, dtype=torch.long)
    real[2, 4:] = 0
    causal = name == "GPT2"

    def run(**flags: Any) -> Tensor:
        return model(ITEMS.clamp(min=1), attention_mask=real, **flags).last_hidden_state

    for settings in ({}, {"mask": "content"}, {"conditional": True, "mask_form": "renormalise"}):
        model.zero_grad()
        holds(run, model, causal=causal, **settings)
    denoiser = denoise(model, config(causal=causal, gamma=0.1))
    if causal:  # its blocks are given a cache
        with pytest.raises(UserError, match="use_cache=False"):
            denoiser.loss(lambda: run().square().mean(-1))
    denoiser.loss(lambda: run(use_cache=False).square().mean(-1)).total.backward()


@pytest.mark.parametrize("flags", [{}, {"attn_flash": True}])
def test_x_transformers(flags: dict[str, Any]) -> None:
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(0)
    layers = Decoder(dim=8, depth=2, heads=2, attn_dim_head=4, **flags)
    model = TransformerWrapper(num_tokens=20, max_seq_len=M, attn_layers=layers)
    holds(lambda: model(ITEMS), model)


def fearec(dual_domain: bool) -> Any:
    from recbole.model.sequential_recommender.fearec import FEAEncoder

    settings = {"topk_factor": 1, "global_ratio": 0.6, "n_layers": 2, "MAX_ITEM_LIST_LENGTH": M, "std": False,
                "dual_domain": dual_domain, "spatial_ratio": 0.5, "use_filter": False}  # fmt: skip
    torch.manual_seed(0)
    blocks = FEAEncoder(2, 2, 8, 16, 0.0, 0.0, config=settings).layer
    return Encoder(list(blocks))


def test_fearec_has_attention_in_its_time_domain_only() -> None:
    model = fearec(dual_domain=True)
    holds(lambda: model(ITEMS), model)
    model = fearec(dual_domain=False)
    denoise(model, config())
    with pytest.raises(UserError, match=r"HybridAttention\) ran without its weights being seen"):
        model.eval()(ITEMS)


def test_a_loss_of_one_entry_is_one_number() -> None:
    """GCSAN's loss has shape [1]."""
    gradients = []
    for shape in ((1,), ()):
        torch.manual_seed(0)
        model: Any = recbole_model("GCSAN")
        denoiser: Any = denoise(model, config(align="start", estimator="arm"))
        torch.manual_seed(1)
        result = denoiser.loss(lambda: model(ITEMS, VALID.sum(1)).square().mean().reshape(shape))  # noqa: B023
        assert result.rec.shape == ()
        result.total.backward()
        gradients.append(denoiser.masks[0].phi.grad)
    assert gradients[0].any() and torch.equal(*gradients)
