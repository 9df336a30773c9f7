"""The probe at a module's first run in eval mode: a closed gate must change what the module returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attached import ITEMS, config, encoder, fill
from attentions import FusedKernel, HeadsFirst, OwnKernel, Projected, Shown
from torch import Tensor

from recbole_denoiser.core import denoise
from recbole_denoiser.errors import UserError


class ShownBeside(FusedKernel):
    """Returns the weights beside an output that comes from elsewhere."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.projected(x))
        scores = q @ k.transpose(2, 3) + mask
        own = OwnKernel.weights(self, scores)  # type: ignore[arg-type]
        return (own @ v).transpose(1, 2).flatten(2), F.softmax(scores, dim=-1)


@pytest.mark.parametrize("kind", [Shown, ShownBeside])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_weights_that_are_only_shown_are_an_error_in_eval(kind: type[Projected], mode: Any) -> None:
    model = encoder(kind).eval()
    denoise(model, config())
    with mode(), pytest.raises(UserError, match=r"output of layers\.0\.attention .* does not depend on its attention"):
        model(ITEMS)


class Hard(Projected):
    """All weight on the best key, with the gradient of the softmax (x-transformers: attn_hard)."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.projected(x))
        scores = q @ k.transpose(2, 3) + mask
        A = F.softmax(scores, dim=-1)
        best = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(A)
        return ((best + A - A.detach()) @ v).transpose(1, 2).flatten(2)


def test_hard_attention_has_a_gradient_but_no_value_that_a_mask_could_change() -> None:
    model = encoder(Hard).eval()
    denoise(model, config())
    with torch.inference_mode():
        model(ITEMS)  # no graph here, so it cannot be told from a weight of zero
    with torch.no_grad(), pytest.raises(UserError, match="does not depend on its attention weights"):
        model(ITEMS)


@pytest.mark.parametrize("size", [0.0, 1e-9])
def test_a_weight_of_zero_behind_the_attention_is_none(size: float) -> None:
    model = encoder(HeadsFirst).eval()
    for layer in model.layers:
        layer.attention.val_proj.weight.data.mul_(size)
        layer.attention.val_proj.bias.data.mul_(size)
    plain = model(ITEMS)
    denoise(model, config(mask_init=100.0))
    with torch.no_grad():
        torch.testing.assert_close(model(ITEMS), plain)


class InPlace(FusedKernel):
    """Writes into its input, and counts its runs."""

    runs = 0

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.runs += 1
        x.mul_(1.5)
        return super().forward(x, mask)


def test_the_probe_leaves_nothing_behind() -> None:
    model: Any = encoder(InPlace).eval()
    with torch.no_grad():
        plain = model(ITEMS)
        denoiser = denoise(model, config(mask_init=100.0))
        state = torch.get_rng_state()
        torch.testing.assert_close(model(ITEMS), plain)
        assert torch.equal(torch.get_rng_state(), state)
        runs = model.layers[0].attention.runs
        model(ITEMS)
    assert model.layers[0].attention.runs == runs + 1  # once is enough
    fill(denoiser, -1.0)
    with torch.no_grad():
        assert not torch.allclose(model(ITEMS), plain)


def test_hooks_of_others_are_not_called_by_it() -> None:
    model: Any = encoder(HeadsFirst).eval()
    denoise(model, config())
    seen = []
    model.layers[0].attention.val_proj.register_forward_hook(lambda *call: seen.append(call))
    with torch.no_grad():
        model(ITEMS[:1])  # one sequence: its heads need no trial run
    assert len(seen) == 1
