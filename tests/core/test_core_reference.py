"""The fast way against Algorithm 1 written out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_models import items_and_targets, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise, jacobian, passes
from recbole_denoiser.core.passes import FixedMask, ruled
from recbole_denoiser.core.reference import Block, algorithm_1

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0
B, N, D = 3, 6, 8


@pytest.mark.parametrize("estimator", ["ar", "arm"])
@pytest.mark.parametrize("form", ["product", "renormalise"])
def test_the_fast_way_is_algorithm_1(estimator: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model: Any = softmax_encoder(heads=2).double()
    settings: dict[str, Any] = {"mask_sampling": "batch", "credit": "total", "baseline": False, "jacobian_batch": 0}
    config = DenoiserConfig(max_length=N, estimator=estimator, beta=0.3, gamma=0.7, mask_form=form, **settings)
    denoiser: Any = denoise(model, config)
    for mask in denoiser.masks:
        mask.phi.data.normal_()
    U = [torch.rand(N, N, dtype=torch.float64) for _ in range(2)]
    eta = [(torch.randn(B, N, D, dtype=torch.float64) * VALID[:, :, None]) for _ in range(2)]
    mask = model.attention_mask(ITEMS).double()

    def under(Z: list[Tensor]) -> Any:
        return ruled(denoiser.sites, FixedMask({layer: z[None, None] for layer, z in enumerate(Z)}))

    def run(Z: list[Tensor]) -> Tensor:
        with torch.no_grad(), under(Z):
            return model.losses(ITEMS, TARGETS)

    def blocks(Z: list[Tensor]) -> list[tuple[Block, Tensor]]:
        x = model.items(ITEMS) + model.positions.weight
        found: list[tuple[Block, Tensor]] = []
        for layer in model.layers:

            def block(x: Tensor, layer: Any = layer) -> Tensor:
                with under(Z):
                    return layer(x, mask)

            found.append((block, x))
            x = block(x)
        return found

    expected = algorithm_1(run, blocks, [m.phi.detach() for m in denoiser.masks], U, eta, VALID, 0.3, estimator)

    uniforms, projections = iter(U), itertools.cycle(eta)
    monkeypatch.setattr(passes, "uniform", lambda shape, dtype, device: next(uniforms)[None, None])
    monkeypatch.setattr(jacobian, "draw_projection", lambda x, valid, noise: next(projections))
    # One number for the batch: given losses per position, an entry would not be told of sequences it does not act in.
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS)[VALID].mean(), VALID)
    torch.testing.assert_close(result.rec.detach(), expected.loss)
    torch.testing.assert_close(result.r_m, expected.r_m.double())
    torch.testing.assert_close(result.r_j, expected.r_j)
    assert float(expected.r_j) > 0.1
    gradients = torch.autograd.grad(result.mask, [m.phi for m in denoiser.masks])
    for got, want in zip(gradients, expected.phi_gradients, strict=True):
        assert want.abs().max() > 1e-3
        torch.testing.assert_close(got, want)
