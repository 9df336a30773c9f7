"""The denoiser around a model: passes, replay, switches, figures, errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_models import dropout_encoder, items_and_targets, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise, passes
from recbole_denoiser.errors import UserError

ITEMS, TARGETS = items_and_targets()
VALID = ITEMS != 0


def setup(p: float = 0.0, encoder: Callable[..., Any] = softmax_encoder, **settings: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = encoder(heads=2, p=p)
    return model, denoise(model, DenoiserConfig(max_length=6, **settings))


class Watched:
    """A loss function that remembers what it returned and where it left the random state."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.values: list[Tensor] = []
        self.states: list[Tensor] = []

    def __call__(self) -> Tensor:
        losses = self.model.losses(ITEMS, TARGETS)
        self.values.append(losses.detach().clone())
        self.states.append(torch.get_rng_state())
        return losses


class NoisyLinear(nn.Linear):
    """Random in a way that is not dropout."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn_like(x)


class InPlaceEmbedding(nn.Embedding):
    """Writes into a result that the tape has seen."""

    def forward(self, items: Tensor) -> Tensor:
        x = super().forward(items)
        x *= 3.0
        return x


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("mask", ["position", "content"])
@pytest.mark.parametrize("encoder", [softmax_encoder, dropout_encoder])
def test_second_pass_replays_everything_random(conditional: bool, mask: str, encoder: Callable[..., Any]) -> None:
    model, denoiser = setup(0.5, encoder, conditional=conditional, mask=mask, mask_init=60.0)  # Z~ = Z = 1
    model.items = InPlaceEmbedding(20, 8)
    for layer in model.layers:
        layer.feed_forward.append(NoisyLinear(8, 8))
    loss_fn = Watched(model)
    denoiser.loss(loss_fn, VALID)
    assert len(loss_fn.values) == (3 if conditional or mask == "content" else 2)
    for again, state in zip(loss_fn.values[1:], loss_fn.states[1:], strict=True):
        assert torch.equal(again, loss_fn.values[0])
        assert torch.equal(state, loss_fn.states[0])
    assert torch.equal(torch.get_rng_state(), loss_fn.states[0])


def test_the_second_pass_differs_where_masks_do() -> None:
    model, denoiser = setup(0.5, mask_init=0.0)
    loss_fn = Watched(model)
    denoiser.loss(loss_fn, VALID)
    assert not torch.equal(loss_fn.values[0], loss_fn.values[1])
    assert torch.equal(torch.get_rng_state(), loss_fn.states[0])


def test_conditional_pass_answers_lower_blocks_from_the_first() -> None:
    model, denoiser = setup(0.2, conditional=True, mask_init=0.0)
    calls = {0: 0, 1: 0}
    for i, layer in enumerate(model.layers):
        layer.feed_forward.register_forward_hook(lambda *_, i=i: calls.__setitem__(i, calls[i] + 1))
    denoiser.loss(Watched(model), VALID)
    assert calls == {0: 2, 1: 3}
    assert "forward" not in model.layers[0].__dict__


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_off_is_the_plain_model_to_the_bit(p: float) -> None:
    model, denoiser = setup(p)
    plain = copy.deepcopy(model)
    denoiser.off()
    torch.manual_seed(1)
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS).mean())
    result.total.backward()
    state = torch.get_rng_state()
    denoiser.detach()
    torch.manual_seed(1)
    plain_model: Any = softmax_encoder(heads=2, p=p)
    plain_model.load_state_dict(plain.state_dict())
    torch.manual_seed(1)
    loss = plain_model.losses(ITEMS, TARGETS).mean()
    loss.backward()
    assert torch.equal(result.total, loss)
    assert torch.equal(torch.get_rng_state(), state)
    for ours, theirs in zip(model.parameters(), plain_model.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_dropout_of_the_first_pass_is_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With open masks the sampled loss is the plain loss under the same dropout."""
    model, denoiser = setup(0.5, estimator="disarm", mask_init=60.0)
    with monkeypatch.context() as patch:  # draws nothing, so dropout is at the same place
        patch.setattr(passes, "uniform", lambda shape, dtype, device: torch.full(shape, 0.5))
        torch.manual_seed(2)
        sampled = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).rec
    denoiser.off()
    torch.manual_seed(2)
    assert torch.equal(sampled, denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).rec)


def test_r_m_is_the_live_mean() -> None:
    model, denoiser = setup(beta=2.0, estimator="ar")
    torch.manual_seed(3)
    for mask in denoiser.masks:
        mask.phi.data.normal_()
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
    for layer, mask in enumerate(denoiser.masks):
        pi = [
            float(torch.sigmoid(mask.phi.detach()[s, t]))
            for b in range(len(ITEMS))
            for s in range(6)
            for t in range(s + 1)
            if VALID[b, s] and VALID[b, t]
        ]
        assert float(result.kept_probability[layer]) == pytest.approx(sum(pi) / len(pi), rel=1e-5)
    assert float(result.mask.detach()) == pytest.approx(2.0 * float(result.r_m), rel=1e-5)


@pytest.mark.parametrize("settings", [{}, {"mask_per_head": True}, {"mask": "content"}])
def test_kept_is_counted_over_live_attentions(settings: dict[str, Any]) -> None:
    model, denoiser = setup(**settings)
    torch.manual_seed(4)
    for parameter in denoiser.parameters():
        parameter.data.normal_()
    with torch.no_grad(), denoiser.collect_kept() as kept, denoiser.valid_positions(VALID):
        model.eval()(ITEMS)
        model(ITEMS)
    seen: list[Tensor] = []
    handle = model.layers[0].attention.attn_dropout.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model(ITEMS)
    handle.remove()
    live = (VALID[:, :, None] & VALID[:, None, :]).tril()[:, None].expand_as(seen[0])
    heads = 2 if settings.get("mask_per_head") else 1
    assert kept.live[0] == 2 * live[:, :heads].sum()
    assert kept.share[0] == pytest.approx(float((seen[0][live] > 0).float().mean()), abs=1e-6)


def test_kept_share_without_data() -> None:
    _, denoiser = setup()
    assert denoiser.kept_share() == [1.0, 1.0]
    denoiser.masks[0].phi.data.fill_(-1.0)
    denoiser.masks[0].phi.data[0, 0] = 1.0
    assert denoiser.kept_share() == [pytest.approx(1 / 21), 1.0]
    _, content = setup(mask="content")
    with pytest.raises(UserError, match="collect_kept"):
        content.kept_share()


def test_rows_that_are_all_closed_are_finite() -> None:
    cases: list[dict[str, Any]] = [{}, {"mask": "content"}, {"estimator": "hard_concrete"}]
    for settings in cases:
        model, denoiser = setup(gamma=1e-3, mask_init=-60.0, **settings)
        result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)  # noqa: B023
        result.total.backward()
        assert torch.isfinite(model.eval()(ITEMS)).all()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("estimator", ["disarm", "straight_through"])
def test_content_masks_leave_the_backbone_to_the_recommendation_loss(estimator: str) -> None:
    model, denoiser = setup(mask="content", beta=1.0, estimator=estimator)
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
    backbone = [p for name, p in model.named_parameters() if not name.startswith("denoiser")]
    assert all(g is None for g in torch.autograd.grad(result.mask, backbone, allow_unused=True, retain_graph=True))
    own = torch.autograd.grad(result.total, list(denoiser.parameters()))
    assert all(float(g.abs().sum()) > 0 for g in own)


def test_weights_of_the_first_pass_are_used_again() -> None:
    model, denoiser = setup(mask_init=0.0, estimator="arm")
    calls: list[Tensor] = []

    def weights(losses: Tensor) -> Tensor:
        assert not losses.requires_grad
        calls.append(losses)
        return (losses < losses.median()).float() / losses.numel()

    loss_fn = Watched(model)
    result = denoiser.loss(loss_fn, VALID, weights)
    assert len(calls) == 1
    torch.testing.assert_close(result.rec.detach(), (loss_fn.values[0] * weights(loss_fn.values[0])).sum())


@pytest.mark.parametrize("estimator", ["ar", "disarm"])
def test_state_dict_round_trip_and_deepcopy(estimator: str) -> None:
    for encoder in (softmax_encoder, dropout_encoder):
        model, denoiser = setup(0.1, encoder, estimator=estimator, target_sparsity=0.5, mask="content")
        model.denoiser = denoiser
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()  # noqa: B023
        twin = copy.deepcopy(model)
        twin.denoiser.masks[0].phi.data.fill_(-5.0)
        model.eval(), twin.eval()
        assert not torch.allclose(model(ITEMS), twin(ITEMS))  # the copy obeys its own masks
        twin.load_state_dict(model.state_dict())
        assert torch.equal(model(ITEMS), twin(ITEMS))
        twin.denoiser.detach()
        assert model.denoiser.sites and not torch.equal(model(ITEMS), twin(ITEMS))
        assert twin.train().denoiser is not None


def test_a_mask_shorter_than_n_is_aligned() -> None:
    for align, corner in (("end", 5), ("start", 2)):
        _, denoiser = setup(align=align)
        mask = denoiser.masks[0]
        mask.phi.data.copy_(torch.arange(36.0).view(6, 6))
        assert mask.logits(3)[0, 0, -1, -1].item() == corner * 7
        with pytest.raises(UserError, match="7 positions is longer than its mask of 6"):
            mask.logits(7)


def test_bidirectional_model_with_causal_setting_is_refused() -> None:
    model = softmax_encoder(causal=False)
    denoiser = denoise(model, DenoiserConfig(max_length=6))
    with pytest.raises(UserError, match="causal=False"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)
    denoiser.detach()
    denoiser = denoise(model, DenoiserConfig(max_length=6, causal=False))
    denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID).total.backward()


def test_nan_is_reported_with_its_site() -> None:
    model, denoiser = setup()
    model.layers[1].attention.key.weight.data[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"layers\.1\.attention"):
        denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID)


def raises_on(match: str, call: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match=match):
        call()


def test_wrong_shapes_are_named() -> None:
    model, denoiser = setup()
    raises_on(
        "valid has shape|losses have shape", lambda: denoiser.loss(lambda: model.losses(ITEMS, TARGETS), VALID[:, :4])
    )
    raises_on("allowed", lambda: denoiser.loss(lambda: model(ITEMS)))
    raises_on("weights have shape", lambda: denoiser.loss(lambda: model.losses(ITEMS, TARGETS), weights=torch.ones(3)))
    raises_on("never used", lambda: denoiser.loss(lambda: model.items.weight.mean()))
    raises_on("for attention over", lambda: denoiser.loss(lambda: model.losses(ITEMS, TARGETS)[:, :2]))


@pytest.mark.parametrize(
    ("key", "value"),
    [("beta", -1.0), ("estimator", "magic"), ("max_length", 0), ("target_sparsity", 1.0), ("causal", "yes"),
     ("jacobian_step", 0.0), ("sites", ()), ("mask_init", float("nan")), ("n_heads", 0), ("gamma", "0.1")],
)  # fmt: skip
def test_wrong_settings_are_named(key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{key} is .*allowed"):
        DenoiserConfig(**{"max_length": 6, key: value})


def test_one_loss_without_gradients_draws_no_second_pass() -> None:
    model, denoiser = setup(gamma=1.0)
    loss_fn = Watched(model)
    with torch.no_grad():
        result = denoiser.loss(loss_fn, VALID)
    assert len(loss_fn.values) == 1 and float(result.r_j) == 0.0


def test_baseline_is_the_mean_of_earlier_credits() -> None:
    _, denoiser = setup(estimator="ar")
    first = denoiser.baseline.step(1, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    assert first.tolist() == [0.0, 0.0]
    second = denoiser.baseline.step(1, torch.zeros(2, 2), torch.ones(2, 2))
    assert second.tolist() == [2.0, 2.0]
    assert denoiser.baseline.mean[1].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
