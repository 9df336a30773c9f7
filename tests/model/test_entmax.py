"""alpha-entmax attention: exact zeros, a learned alpha per head, masks and the Jacobian on top."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from built import (
    WAYS,
    attention_of,
    build,
    check_denoiser_trains,
    check_open_masks_change_nothing,
    check_run,
)
from entmax import entmax15, entmax_bisect

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.entmax import Entmax, EntmaxByNewton
from recbole_denoiser.training import checkpoint


def test_equals_the_closed_form_at_one_and_a_half() -> None:
    torch.manual_seed(0)
    scores = 3 * torch.randn(4, 2, 7, 7)
    found = Entmax(2, 1.5)(scores)
    torch.testing.assert_close(found, entmax15(scores, dim=-1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.sum(-1), torch.ones(4, 2, 7))


@pytest.mark.parametrize("alpha", [1.01, 1.1, 1.5, 1.9, 2.0])
def test_newton_equals_a_long_bisection_forward_and_backward(alpha: float) -> None:
    torch.manual_seed(2)
    scores = 3 * torch.randn(20, 2, 9, 9, dtype=torch.float64)
    scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -1e4)
    weight = torch.randn_like(scores)
    answers = []
    for project in (lambda x, a: entmax_bisect(x, a, dim=-1, n_iter=80), EntmaxByNewton.apply):
        x = scores.clone().requires_grad_()
        a = torch.full((2, 1, 1), alpha, dtype=torch.float64, requires_grad=True)
        p = project(x, a)
        (p * weight).sum().backward()
        answers.append((p.detach(), x.grad, a.grad))
    torch.testing.assert_close(answers[0], answers[1], atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 0.02, 0.5, 3.0])
def test_newton_stops_early_in_single_precision(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    scores = scale * torch.randn(64, 2, 50, 50)
    scores[:, :, :20] -= 1e4  # padded queries: nothing is allowed
    full = Entmax(2, 1.5)(scores)
    monkeypatch.setattr("recbole_denoiser.model.entmax.ITERATIONS", 10)
    torch.testing.assert_close(Entmax(2, 1.5)(scores), full, atol=0, rtol=0)  # it had stopped by itself


def test_larger_alpha_is_sparser_and_each_head_has_its_own() -> None:
    torch.manual_seed(0)
    scores = torch.randn(50, 1, 9, 9).expand(-1, 3, -1, -1)
    entmax = Entmax(3, 1.5)
    with torch.no_grad():
        entmax.raw.copy_(torch.tensor([-6.0, 0.0, 6.0]).view(3, 1, 1))
    zeros = (entmax(scores) == 0).float().mean((0, 2, 3))
    assert zeros[0] < zeros[1] < zeros[2]
    assert zeros[2] > 0.5


@pytest.mark.parametrize("raw", [-1e4, -30.0, 30.0, 1e4])
def test_alpha_stays_in_range_and_gradients_stay_finite(raw: float) -> None:
    entmax = Entmax(1, 1.5)
    with torch.no_grad():
        entmax.raw.fill_(raw)
    assert 1.01 - 1e-6 <= entmax.alpha.item() <= 2.0
    scores = torch.randn(3, 1, 5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -1e4)
    scores[0, 0, 0] = -1e4  # a padded query: nothing is allowed
    scores.requires_grad_()
    (entmax(scores) * torch.randn(3, 1, 5, 5)).sum().backward()
    assert scores.grad is not None and torch.isfinite(scores.grad).all()
    assert entmax.raw.grad is not None and torch.isfinite(entmax.raw.grad).all()


def test_gradients_are_right() -> None:
    torch.manual_seed(1)
    entmax = Entmax(2, 1.4).double()
    scores = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    (entmax(scores) * weight).sum().backward()
    for parameter, place in ((scores, (0, 1, 2, 3)), (entmax.raw, (0, 0, 0)), (entmax.raw, (1, 0, 0))):
        with torch.no_grad():
            values = []
            for step in (1e-4, -1e-4):
                parameter[place] += step
                values.append(float((entmax(scores) * weight).sum()))
                parameter[place] -= step
        assert parameter.grad is not None
        assert float(parameter.grad[place]) == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-3, abs=1e-5)


def test_half_precision_scores_are_projected_in_single_precision() -> None:
    scores = torch.randn(2, 2, 5, 5).bfloat16()
    assert torch.equal(Entmax(2, 1.5)(scores), Entmax(2, 1.5)(scores.float()))


def test_model_attends_with_exact_zeros_and_never_ahead(settings: dict) -> None:
    built = build("SASRecEntmax", settings, entmax_alpha=1.9)
    with torch.no_grad():
        for layer in built.model.trm_encoder.layer:
            layer.multi_head_attention.query.weight.mul_(60)
            layer.multi_head_attention.key.weight.mul_(60)
    interaction, _ = built.test_batch()
    batch, _ = built.model.inference_batch(interaction)
    causal = torch.ones(10, 10).tril().bool()
    live = (causal & batch.valid[:, None, :] & batch.valid[:, :, None])[:, None].expand(-1, 2, -1, -1)
    for A in attention_of(built, interaction):
        zero_share = float((A[live] == 0).float().mean())
        assert 0.05 < zero_share < 0.95
        real = batch.valid[:, None, :].expand(-1, 2, -1)
        torch.testing.assert_close(A.sum(-1)[real], torch.ones(int(real.sum())))
        assert not A[~live & batch.valid[:, None, :, None]].any()


@pytest.mark.parametrize("model", ["SASRecEntmax", "BERT4RecEntmax"])
@pytest.mark.parametrize("way", WAYS)
def test_runs_reloads_and_alpha_moves(workplace: Path, settings: dict, model: str, way: tuple[str, str, str]) -> None:
    result = check_run(model, settings, way, epochs=12)  # a few masked items per epoch: their loss is noisy
    state = checkpoint.load(result["checkpoint"])["state_dict"]
    start = Entmax(2, 1.5).raw
    raws = [state[f"trm_encoder.layer.{layer}.multi_head_attention.softmax.raw"] for layer in range(2)]
    for raw in raws:
        assert raw.shape == start.shape and (raw - start).abs().min() > 1e-4
    assert len({float(value) for raw in raws for value in raw.flatten()}) == 4  # every head on its own


@pytest.mark.parametrize("model", ["SASRecEntmax", "BERT4RecEntmax"])
def test_masks_go_on_top(settings: dict, model: str) -> None:
    check_open_masks_change_nothing(model, model, settings, "product")  # weights over their sum: not to the bit
    closed = build(model, settings, denoise=True, mask_init=-40.0, mask_form="product")
    assert not any(A.any() for A in attention_of(closed, closed.test_batch()[0]))
    alone = build(model, settings, denoise=True, mask_init=-40.0, mask_form="renormalise")
    for A in attention_of(alone, alone.test_batch()[0]):  # a row with nothing left attends to itself
        assert torch.equal(A, torch.eye(A.shape[-1]).expand_as(A))


def test_jacobian_by_finite_difference_has_finite_gradients(settings: dict) -> None:
    check_denoiser_trains("SASRecEntmax", settings)
    built = build("SASRecEntmax", settings, denoise=True, gamma=0.1, entmax_alpha=1.9)
    assert built.config["jacobian_method"] == "finite_difference"
    built.model.calculate_loss(built.train_batch())[2].backward()
    for layer in built.model.trm_encoder.layer:
        raw = layer.multi_head_attention.softmax.raw
        assert torch.isfinite(raw.grad).all() and raw.grad.abs().sum() > 0


def test_jacobian_by_vjp_is_refused(settings: dict) -> None:
    with pytest.raises(UserError, match=r"jacobian_method = vjp .*finite_difference"):
        build("SASRecEntmax", settings, denoise=True, gamma=0.1, jacobian_method="vjp")
    build("SASRecEntmax", settings, denoise=True, gamma=0.0, jacobian_method="vjp")  # no penalty, no derivative


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.01, 2.0, 3])
def test_alpha_out_of_range(settings: dict, alpha: float) -> None:
    with pytest.raises(UserError, match=r"entmax_alpha = .*> 1.01 < 2"):
        build("SASRecEntmax", settings, entmax_alpha=alpha)
    with pytest.raises(UserError, match=r"entmax_alpha = .*> 1.01 < 2"):
        Entmax(2, alpha)
