"""The two forms of a mask: the product of eq. 8, and what is kept sharing the weight; and the prior."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_models import dropout_encoder, items_and_targets, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise, gate
from recbole_denoiser.core.forms import renormalised_path, renormalised_scores, renormalised_weights
from recbole_denoiser.errors import UserError

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0
B, H, M = 3, 2, 6


def case(forbidden: float) -> tuple[Tensor, Tensor, Tensor]:
    """Scores with a causal bias, a fractional mask with zeros, and which pairs are allowed."""
    generator = torch.Generator().manual_seed(0)
    allowed = torch.ones(M, M).tril().bool()
    S = torch.randn(B, H, M, M, generator=generator, dtype=torch.float64)
    S = S + torch.zeros(M, M, dtype=torch.float64).masked_fill(~allowed, forbidden)
    Z = torch.rand(B, 1, M, M, generator=generator, dtype=torch.float64)
    return S, torch.where(Z < 0.5, 0.0, Z), allowed


@pytest.mark.parametrize("forbidden", [-10000.0, -math.inf])
def test_renormalised_is_a_times_z_over_its_row_sum_or_itself(forbidden: float) -> None:
    S, Z, allowed = case(forbidden)
    Z[0] = 0.0  # nothing is left in this sequence
    Z[0, 0, 2, 4] = 1.0  # but for a pair that the model does not allow
    expected = torch.zeros_like(S)
    for b in range(B):
        for h in range(H):
            for u in range(M):
                weights = [math.exp(S[b, h, u, v]) * float(Z[b, 0, u, v]) if allowed[u, v] else 0.0 for v in range(M)]
                if sum(weights) == 0:
                    weights[u] = 1.0
                expected[b, h, u] = torch.tensor([w / sum(weights) for w in weights])
    assert (expected[0].diagonal(dim1=1, dim2=2) == 1).all()
    for got in (renormalised_scores(S, Z), renormalised_path(S, Z), renormalised_weights(S.softmax(-1), Z)):
        torch.testing.assert_close(got, expected)


def test_a_pruned_key_however_heavy_leaves_the_rest_exact() -> None:
    S = torch.tensor([[500.0, 1.0, 0.0]]).expand(1, 1, 3, 3)
    Z = torch.tensor([0.0, 1.0, 1.0]).expand(1, 1, 3, 3)
    share = 1 / (1 + math.exp(-1))
    for got in (renormalised_scores(S, Z), renormalised_path(S, Z)):
        torch.testing.assert_close(got[0, 0, 1], torch.tensor([0.0, share, 1 - share]))
    assert S.softmax(-1)[0, 0, 1, 1] == 0  # the weights alone have forgotten it


@pytest.mark.parametrize("forbidden", [-10000.0, -math.inf])
def test_nothing_left_where_the_own_key_is_forbidden(forbidden: float) -> None:
    """A model that reads what came before only: no weight may go to a later key, nor become NaN."""
    torch.manual_seed(0)
    S = (torch.randn(1, H, M, M) + torch.zeros(M, M).masked_fill(~torch.ones(M, M).tril(-1).bool(), forbidden))[
        :, :, 1:
    ]
    S = torch.cat([torch.full((1, H, 1, M), 0.0), S], dim=2).requires_grad_()  # row 0 may read anything
    Z = torch.ones(1, 1, M, M)
    Z[0, 0, 3, :3] = 0.0
    for got in (renormalised_scores(S, Z), renormalised_path(S, Z)):
        assert torch.equal(got[0, :, 3], torch.eye(M)[3].expand(H, -1))
        (slope,) = torch.autograd.grad(got[0, :, 3].square().sum(), S)
        assert not slope.any()
    torch.testing.assert_close(renormalised_scores(S, Z)[:, :, [1, 2, 4, 5]], S.softmax(-1)[:, :, [1, 2, 4, 5]])


def test_gradients_of_the_pathwise_form() -> None:
    """With respect to scores and masks, zeros included, once and twice."""
    S, Z, _ = case(-10000.0)
    S, Z = S[:1].clone(), Z[:1].clone()
    Z[0, 0, 3] = 0.0
    weight = torch.randn(S.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    S.requires_grad_()
    (by_scores,) = torch.autograd.grad((renormalised_path(S, Z) * weight).sum(), S, create_graph=True)
    (expected,) = torch.autograd.grad((renormalised_scores(S, Z) * weight).sum(), S)
    torch.testing.assert_close(by_scores.detach(), expected)
    assert torch.isfinite(torch.autograd.grad(by_scores.square().sum(), S)[0]).all()
    Z.requires_grad_()
    (by_mask,) = torch.autograd.grad((renormalised_path(S.detach(), Z) * weight).sum(), Z)
    step = 1e-6
    for u, v in ((4, 0), (4, 2), (5, 5)):  # one at a time, whether open or closed
        up, down = Z.detach().clone(), Z.detach().clone()
        up[0, 0, u, v] += step
        down[0, 0, u, v] -= 0 if float(down[0, 0, u, v]) == 0 else step
        width = float(up[0, 0, u, v] - down[0, 0, u, v])
        slope = ((renormalised_path(S.detach(), up) - renormalised_path(S.detach(), down)) * weight).sum() / width
        torch.testing.assert_close(by_mask[0, 0, u, v], slope, rtol=1e-4, atol=1e-6)
    assert not by_mask[0, 0, 3].any()  # a row that attends to itself feels no single entry


@pytest.mark.parametrize("encoder", [softmax_encoder, dropout_encoder])
@pytest.mark.parametrize("mask", ["position", "content"])
@pytest.mark.parametrize("estimator", ["disarm", "ar", "straight_through", "hard_concrete"])
def test_training_and_gates_with_shared_weight(encoder: Any, mask: str, estimator: str) -> None:
    torch.manual_seed(0)
    model = encoder(heads=2)
    settings: dict[str, Any] = {"mask": mask, "estimator": estimator, "gamma": 1e-3, "mask_init": 0.5}
    denoiser: Any = denoise(model, DenoiserConfig(max_length=M, mask_form="renormalise", **settings))
    denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()
    assert all(mask.phi.grad.abs().sum() > 0 for mask in denoiser.masks)
    seen: list[Tensor] = []
    for layer in model.layers:
        layer.attention.attn_dropout.register_forward_hook(lambda module, args, out: seen.append(out))
    with torch.no_grad():
        for phi in (mask.phi for mask in denoiser.masks):
            phi.normal_()
        model.eval()(ITEMS)
    for A in seen:
        torch.testing.assert_close(A.sum(-1), torch.ones(3, 2, 6))
        assert (A == 0).float().mean() > 0.6  # 0.42 of the pairs lie ahead


def test_open_masks_of_either_form_are_the_plain_model() -> None:
    for encoder in (softmax_encoder, dropout_encoder):
        torch.manual_seed(0)
        model: Any = encoder(heads=2).eval()
        plain = model(ITEMS)
        for form in ("product", "renormalise"):
            denoiser = denoise(model, DenoiserConfig(max_length=M, mask_form=form, mask_init=100.0))
            torch.testing.assert_close(model(ITEMS), plain)
            denoiser.detach()


# ---------------------------------------------------------------- the prior


def prior_setup(**settings: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = softmax_encoder(heads=2)
    return model, denoise(model, DenoiserConfig(max_length=M, mask_prior=True, **settings))


def test_at_the_start_the_gate_closes_exactly_where_noise_is_more_likely_than_not() -> None:
    _, denoiser = prior_setup()
    p = torch.tensor([[0.0, 0.1, 0.499, 0.5, 0.501, 1.0]])
    for mask in denoiser.masks:
        Phi = mask.logits(M, prior=p)
        assert Phi.shape == (1, 1, M, M)
        torch.testing.assert_close(torch.sigmoid(Phi)[0, 0, 0, 1:5], 1 - p[0, 1:5])
        assert (gate(Phi)[0, 0] > 0).tolist() == [[True, True, True, False, False, False]] * M
        assert mask.prior_scale.item() == 1.0 and not mask.phi.any()


def test_the_prior_acts_per_sequence_and_only_where_it_says() -> None:
    model, denoiser = prior_setup(mask_form="renormalise")
    p = torch.full((3, M), 0.01)
    p[1, 2] = 0.9
    seen: list[Tensor] = []
    model.layers[0].attention.attn_dropout.register_forward_hook(lambda module, args, out: seen.append(out))
    with torch.no_grad(), denoiser.valid_positions(VALID, prior=p), denoiser.collect_kept() as kept:
        model.eval()(ITEMS)
    assert not seen[0][1, :, 3:, 2].any()
    assert (seen[0][0, :, 2:, 2] > 0).all() and (seen[0][1, :, 3:, 1] > 0).all()
    live = 21 + 21 + 6
    assert kept.share[0] == pytest.approx((live - 4) / live)
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID, prior=p)
    result.total.backward()
    assert denoiser.masks[0].prior_scale.grad.abs() > 0
    expected = torch.stack([1 - p[b, v] for b in range(3) for u in range(M) for v in range(u + 1) if VALID[b, u]])
    torch.testing.assert_close(result.kept_probability[0], expected.mean())


def test_a_missing_prior_is_told() -> None:
    model, denoiser = prior_setup()
    with pytest.raises(UserError, match=r"posterior of being noise \[batch, 6\] and got None"):
        model(ITEMS)
    with pytest.raises(UserError, match="got \\(3, 4\\)"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID, prior=torch.zeros(3, 4))
    with pytest.raises(UserError, match="depend on the data"):
        denoiser.kept_share()
    share = denoiser.valid_positions(VALID, torch.zeros(3, M))
    with share:
        assert denoiser.kept_share(lambda: model(ITEMS)) == [1.0, 1.0]
    with pytest.raises(UserError, match="mask_prior is True"):
        DenoiserConfig(max_length=M, mask_prior=True, mask_sampling="batch")
    with pytest.raises(UserError, match="random_keep"):
        DenoiserConfig(max_length=M, mask_prior=True, random_keep=0.5)
    assert DenoiserConfig(max_length=M, mask_prior=True, mask_init=1.0).first_phi == 1.0
    assert DenoiserConfig(max_length=M).first_phi == 3.0
