"""Denoiser.loss on a real attention model: its Phi gradient has exactly the enumerated expectation.

All pieces of U (see enumeration.py) are laid side by side as sequences of one batch and weighted by their probability,
so that one call of loss() gives the expectation of the estimate.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from enumeration import all_bits, bits_probability, pieces, product
from torch import Tensor
from toy_models import Encoder, softmax_encoder

from recbole_denoiser.core import DenoiserConfig, denoise, passes
from recbole_denoiser.core.passes import FixedMask, ruled

M, L = 2, 2
ITEMS, TARGETS = torch.tensor([[3, 7]]), torch.tensor([[5, 2]])


def tiny_model(causal: bool = True, layers: int = L) -> Encoder:
    torch.manual_seed(3)
    model = softmax_encoder(layers=layers, d=4, n=M, causal=causal).double()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.7)
    return model


def live_places(causal: bool, m: int = M) -> list[tuple[int, int]]:
    return [(s, t) for s in range(m) for t in range(m) if t <= s or not causal]


def spread(values: Tensor, places: list[tuple[int, int]], fill: float) -> Tensor:
    """[K, bits] -> [K, 1, m, m] with the bits at their places."""
    grid = torch.full((values.shape[0], 1, M, M), fill, dtype=values.dtype)
    for i, (s, t) in enumerate(places):
        grid[:, 0, s, t] = values[:, i]
    return grid


def feed_uniforms(monkeypatch: pytest.MonkeyPatch, draws: list[Tensor]) -> None:
    """The first pass gets the given U, one per attention site."""
    queue = iter(draws)
    monkeypatch.setattr(passes, "uniform", lambda shape, dtype, device: next(queue))


def losses_at(model: Encoder, denoiser: Any, Z: list[Tensor]) -> Tensor:
    """Losses [K, m] with the masks given."""
    K = Z[0].shape[0]
    with torch.no_grad(), ruled(denoiser.sites, FixedMask(dict(enumerate(Z)))):
        return model.losses(ITEMS.expand(K, -1), TARGETS.expand(K, -1))


def exact_gradients(model: Encoder, denoiser: Any, causal: bool) -> list[Tensor]:
    """Gradient of E[mean loss] with respect to phi of each layer, by enumeration of all Z."""
    places = live_places(causal)
    bits = all_bits(L * len(places))
    per_layer = bits.chunk(L, 1)
    losses = losses_at(model, denoiser, [spread(b, places, 1.0) for b in per_layer]).mean(1)
    phis = [mask.phi for mask in denoiser.masks]
    probability = torch.ones(len(bits), dtype=torch.float64)
    for phi, b in zip(phis, per_layer, strict=True):
        logits = torch.stack([phi[s, t] for s, t in places])
        probability = probability * bits_probability(b, logits)
    return list(torch.autograd.grad((probability * losses).sum(), phis))


def position_denoiser(model: Encoder, **settings: Any) -> Any:
    denoiser: Any = denoise(model, DenoiserConfig(max_length=M, baseline=False, **settings))
    for mask in denoiser.masks:
        mask.phi.data = torch.tensor([[0.8, -0.5], [-1.1, 0.3]], dtype=torch.float64)
    return denoiser


@pytest.mark.parametrize("form", ["product", "renormalise"])
@pytest.mark.parametrize("name", ["ar", "arm", "disarm", "reinforce"])
@pytest.mark.parametrize(
    ("causal", "credit", "conditional"),
    [(True, "row", False), (True, "row", True), (True, "total", False), (False, "row", False), (False, "row", True)],
)
def test_phi_gradient_is_unbiased(
    name: str, causal: bool, credit: str, conditional: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(causal)
    denoiser = position_denoiser(
        model, estimator=name, causal=causal, credit=credit, conditional=conditional, mask_form=form
    )
    places = live_places(causal)
    per_bit = [
        pieces([p, 1 - p]) for mask in denoiser.masks for p in (torch.sigmoid(mask.phi[s, t]).item() for s, t in places)
    ]
    U, width = product(per_bit)
    feed_uniforms(monkeypatch, [spread(u, places, 0.5) for u in U.chunk(L, 1)])
    items, targets = ITEMS.expand(len(U), -1), TARGETS.expand(len(U), -1)
    weights = width.unsqueeze(1).expand(-1, M) / M
    denoiser.loss(lambda: model.losses(items, targets), weights=weights).total.backward()
    for mask, exact in zip(denoiser.masks, exact_gradients(model, denoiser, causal), strict=True):
        assert exact.abs().max() > 1e-3
        torch.testing.assert_close(mask.phi.grad, exact, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", ["ar", "arm", "disarm", "reinforce"])
@pytest.mark.parametrize("shape", ["position", "sequence", "scalar"])
@pytest.mark.parametrize("sampling", ["batch", "sequence"])
def test_one_layer_with_padding_and_any_loss_shape(
    name: str, shape: str, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sequences, the second with a padded first position: 3 live bits and 1, drawn apart or shared."""
    model = tiny_model(layers=1)
    denoiser = position_denoiser(model, estimator=name, mask_sampling=sampling)
    phi = denoiser.masks[0].phi
    items, targets = torch.tensor([[3, 7], [0, 9]]), torch.tensor([[5, 2], [1, 4]])
    valid = items != 0
    share = valid.double() / valid.sum()

    def loss_fn() -> Tensor:
        losses = model.losses(items, targets)
        if shape == "position":
            return losses
        return (losses * share).sum(1) if shape == "sequence" else (losses * share).sum()

    weights = {"position": None, "sequence": torch.ones(2, dtype=torch.float64), "scalar": None}[shape]
    places = live_places(True)
    where = [(0, s, t) for s, t in places] + ([(1, 1, 1)] if sampling == "sequence" else [])
    logits = [phi[s, t] for _, s, t in where]

    def masks_from(values: Tensor, fill: float) -> Tensor:
        Z = torch.full((2 if sampling == "sequence" else 1, 1, M, M), fill, dtype=torch.float64)
        for value, (b, s, t) in zip(values, where, strict=True):
            Z[b, 0, s, t] = value
        return Z

    expected = torch.zeros(())
    for bits in all_bits(len(where)):
        with torch.no_grad(), ruled(denoiser.sites, FixedMask({0: masks_from(bits, 1.0)})):
            f = loss_fn()
        total = (f * share).sum() if shape == "position" else f.sum()
        expected = expected + bits_probability(bits, torch.stack(logits)) * total
    (exact,) = torch.autograd.grad(expected, phi)

    U, width = product([pieces([p, 1 - p]) for p in torch.sigmoid(torch.stack(logits)).tolist()])
    mean = torch.zeros_like(phi)
    for u, w in zip(U, width, strict=True):
        feed_uniforms(monkeypatch, [masks_from(u, 0.5)])
        result = denoiser.loss(loss_fn, valid=valid, weights=weights)
        (gradient,) = torch.autograd.grad(result.mask, phi)
        mean += w * gradient
    torch.testing.assert_close(mean, exact, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("name", "form"),
    [("ar", "product"), ("arm", "product"), ("disarm", "product"), ("reinforce", "product"), ("disarm", "renormalise")],
)
def test_content_masks_are_unbiased(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phi of the second layer depends on Z of the first: the expectation is over both, in order."""
    model = tiny_model()
    settings = DenoiserConfig(max_length=M, mask="content", estimator=name, baseline=False, mask_form=form)
    denoiser = denoise(model, settings)
    torch.manual_seed(5)
    for parameter in denoiser.parameters():
        parameter.data.normal_(0, 0.6)
    places = live_places(True)
    parameters = list(denoiser.parameters())

    # Exact: E = sum over Z1, Z2 of P(Z1) P(Z2 | Z1) loss(Z1, Z2).
    bits = all_bits(2 * len(places))
    first, second = bits.chunk(2, 1)
    logits: dict[int, Tensor] = {}

    class Watching(FixedMask):
        def __call__(self, site, call):  # type: ignore[no-untyped-def]
            logits[site.index] = torch.stack([site.mask.logits(M, site.states)[:, 0, s, t] for s, t in places], 1)
            return super().__call__(site, call)

    fixed = Watching({0: spread(first, places, 1.0), 1: spread(second, places, 1.0)})
    with ruled(denoiser.sites, fixed):
        losses = model.losses(ITEMS.expand(len(bits), -1), TARGETS.expand(len(bits), -1)).detach().mean(1)
    probability = bits_probability(first, logits[0]) * bits_probability(second, logits[1])
    exact = torch.autograd.grad((probability * losses).sum(), parameters)

    # Pieces of U: a bit of the second layer can flip at g(+-Phi) of every Z of the first layer.
    per_bit = []
    for phis in (*logits[0].T, *logits[1].T):
        p = [round(value, 14) for value in torch.sigmoid(phis).tolist()]
        per_bit.append(pieces([*p, *(1 - value for value in p)]))
    kept = [[(middle, width) for middle, width in bit if width > 1e-12] for bit in per_bit]
    U, width = product(kept)
    assert abs(float(width.sum()) - 1) < 1e-9
    feed_uniforms(monkeypatch, [spread(u, places, 0.5) for u in U.chunk(2, 1)])
    items, targets = ITEMS.expand(len(U), -1), TARGETS.expand(len(U), -1)
    weights = width.unsqueeze(1).expand(-1, M) / M
    result = denoiser.loss(lambda: model.losses(items, targets), weights=weights)
    estimate = torch.autograd.grad(result.mask, parameters)
    for got, want in zip(estimate, exact, strict=True):
        torch.testing.assert_close(got, want, atol=1e-8, rtol=0)
    assert max(float(g.abs().max()) for g in itertools.islice(exact, 4)) > 1e-3


@pytest.mark.parametrize("name", ["ar", "arm", "disarm", "reinforce"])
def test_the_prior_s_gradient_is_unbiased(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phi = phi + s logit(1 - p): gradients of phi and of s, by enumeration."""
    model = tiny_model()
    denoiser = position_denoiser(model, estimator=name, mask_prior=True, mask_form="renormalise")
    p = torch.tensor([[0.2, 0.7]], dtype=torch.float64)
    for mask in denoiser.masks:
        mask.prior_scale.data.fill_(0.6)
    places = live_places(True)
    parameters = list(denoiser.parameters())
    bits = all_bits(L * len(places))
    per_layer = bits.chunk(L, 1)
    losses = losses_at(model, denoiser, [spread(b, places, 1.0) for b in per_layer]).mean(1)
    probability = torch.ones(len(bits), dtype=torch.float64)
    per_bit = []
    for mask, b in zip(denoiser.masks, per_layer, strict=True):
        shift = mask.prior_scale * torch.log((1 - p[0]) / p[0])
        logits = torch.stack([mask.phi[s, t] + shift[t] for s, t in places])
        probability = probability * bits_probability(b, logits)
        per_bit += [pieces([q, 1 - q]) for q in torch.sigmoid(logits).tolist()]
    exact = torch.autograd.grad((probability * losses).sum(), parameters)
    U, width = product(per_bit)
    feed_uniforms(monkeypatch, [spread(u, places, 0.5) for u in U.chunk(L, 1)])
    items, targets = ITEMS.expand(len(U), -1), TARGETS.expand(len(U), -1)
    weights = width.unsqueeze(1).expand(-1, M) / M
    result = denoiser.loss(lambda: model.losses(items, targets), weights=weights, prior=p.expand(len(U), -1))
    for got, want in zip(torch.autograd.grad(result.mask, parameters), exact, strict=True):
        assert want.abs().max() > 1e-3
        torch.testing.assert_close(got, want, atol=1e-10, rtol=0)


def test_straight_through_reaches_phi_through_the_loss() -> None:
    model = tiny_model()
    denoiser = position_denoiser(model, estimator="straight_through")
    result = denoiser.loss(lambda: model.losses(ITEMS, TARGETS))
    (gradient,) = torch.autograd.grad(result.rec, denoiser.masks[1].phi)
    assert gradient[0, 1] == 0  # dead: the query would look ahead
    assert gradient[1].abs().sum() > 0


def test_the_surrogate_is_worth_zero() -> None:
    model = tiny_model()
    result = position_denoiser(model, beta=0.5).loss(lambda: model.losses(ITEMS, TARGETS))
    torch.testing.assert_close(result.mask.detach(), 0.5 * result.r_m)
    torch.testing.assert_close(result.r_m, result.kept_probability.sum())
