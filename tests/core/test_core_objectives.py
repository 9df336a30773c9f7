"""Objectives against their formulas written out, one position at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_denoiser.core import cross_entropy as ce
from recbole_denoiser.core.cross_entropy import cross_entropy
from recbole_denoiser.core.objectives import bce, bpr, gbce_power, sampled_softmax


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def made(P: int = 13, items: int = 29, d: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(P, d) * 2, torch.randn(items, d) * 2, torch.randn(items), torch.randint(0, items, (P,))


@pytest.mark.parametrize("rows", [1, 4, 13, 100])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_pieces_have_the_loss_and_gradient_of_the_matrix(rows: int, with_bias: bool, equal: bool, told: bool) -> None:
    """``told`` that positions count the same, rightly or wrongly."""
    state, weight, bias, target = made()
    importance = torch.full((13,), 0.3) if equal else torch.rand(13)  # of target_denoise or row credit
    found = []
    for in_pieces in (True, False):
        s, w, b = (x.clone().requires_grad_() for x in (state, weight, bias))
        given = b if with_bias else None
        if in_pieces:
            loss = cross_entropy(s, w, given, target, rows, told)
        else:
            loss = F.cross_entropy(F.linear(s, w, given), target, reduction="none")
        (loss * importance).sum().backward()
        found.append([loss.detach(), s.grad, w.grad, *([b.grad] if with_bias else [])])
    for ours, full in zip(*found, strict=True):
        assert (ours - full).abs().max() <= 1e-6 * full.abs().max()


def test_no_piece_exceeds_the_set_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for items in (2, 3_000, 100_000, 10_000_000):
        assert ce.piece_rows(items) * items <= max(ce.LARGEST, items)
    state, weight, _, target = made()
    monkeypatch.setattr(ce, "CACHED", 58)
    monkeypatch.setattr(ce, "LARGEST", 58)
    seen = []
    logits = ce._logits

    def watched(*given: Any) -> torch.Tensor:
        found = logits(*given)
        seen.append(found.numel())
        return found

    monkeypatch.setattr(ce, "_logits", watched)
    cross_entropy(state.requires_grad_(), weight, None, target).sum().backward()
    assert max(seen) == 58 and len(seen) == 14


def test_products_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told that positions count the same, a step makes its logits once; without gradients it makes nothing else."""
    state, weight, _, target = made()
    calls: list[str] = []

    def counted(name: str, inner: Any) -> Any:
        def call(*given: Any) -> Any:
            calls.append(name)
            return inner(*given)

        return call

    monkeypatch.setattr(ce, "_logits", counted("logits", ce._logits))
    monkeypatch.setattr(ce._Gradient, "add", counted("gradient", ce._Gradient.add))
    for told, expected in ((True, ["logits", "gradient"]), (False, ["logits", "logits", "gradient"])):
        calls.clear()
        cross_entropy(state.clone().requires_grad_(), weight, None, target, equal=told).mean().backward()
        assert calls == expected
    calls.clear()
    with torch.no_grad():
        cross_entropy(state.clone().requires_grad_(), weight, None, target, equal=True)
    assert calls == ["logits"]


@pytest.mark.parametrize("told", [True, False])
def test_cross_entropy_of_huge_scores_and_of_nothing(told: bool) -> None:
    state, weight, _, target = made()
    state = (state * 1e4).requires_grad_()
    loss = cross_entropy(state, weight, None, target, equal=told)
    loss.sum().backward()
    assert state.grad is not None
    assert torch.isfinite(loss).all() and torch.isfinite(state.grad).all()
    nothing = torch.zeros(0, 5, requires_grad=True)
    cross_entropy(nothing, weight, None, target[:0], equal=told).sum().backward()
    assert nothing.grad is not None and nothing.grad.shape == (0, 5)


@pytest.mark.parametrize("told", [True, False])
def test_half_precision_is_near(told: bool) -> None:
    state, weight, bias, target = made()
    s, w, b = (x.clone().requires_grad_() for x in (state, weight, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(s, w, b, target, equal=told)
    loss.sum().backward()
    full = F.cross_entropy(F.linear(state, weight, bias), target, reduction="none")
    assert s.grad is not None and w.grad is not None
    assert loss.dtype == s.grad.dtype == w.grad.dtype == torch.float32
    torch.testing.assert_close(loss.detach(), full, rtol=0.05, atol=0.2)
    exact = state.clone().requires_grad_()
    F.cross_entropy(F.linear(exact, weight, bias), target, reduction="sum").backward()
    torch.testing.assert_close(s.grad, exact.grad, rtol=0.05, atol=0.2)


POSITIVE, NEGATIVES = [0.3, -1.2], [[0.5, -0.1, 2.0], [-0.4, 0.9, 0.0]]


def test_bce_and_gbce_by_hand() -> None:
    positive, negatives = torch.tensor(POSITIVE), torch.tensor(NEGATIVES)
    k, items, t = 3, 11, 0.75
    alpha = k / (items - 1)
    beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha)
    for power in (1.0, beta):
        expected = [
            -math.log(sigmoid(p) ** power) - sum(math.log(1 - sigmoid(x)) for x in row)
            for p, row in zip(POSITIVE, NEGATIVES, strict=True)
        ]
        loss, part = bce(positive, negatives, power)
        assert loss.tolist() == pytest.approx(expected, rel=1e-5)
        assert part.tolist() == pytest.approx([-power * math.log(sigmoid(p)) for p in POSITIVE], rel=1e-5)
    assert gbce_power(k, items, t) == pytest.approx(beta)
    assert gbce_power(k, items, 0.0) == 1.0  # BCE
    assert gbce_power(k, items, 1.0) == pytest.approx(k / 10)
    assert gbce_power(10, items, 0.6) == pytest.approx(1.0)  # all negatives: nothing to calibrate
    assert gbce_power(1, 2, 0.5) == pytest.approx(1.0)  # two items


def test_bpr_by_hand() -> None:
    expected = [-sum(math.log(sigmoid(p - x)) for x in row) / 3 for p, row in zip(POSITIVE, NEGATIVES, strict=True)]
    assert bpr(torch.tensor(POSITIVE), torch.tensor(NEGATIVES))[0].tolist() == pytest.approx(expected, rel=1e-5)


def test_sampled_softmax_by_hand() -> None:
    q_pos, q_neg = [0.5, 0.1], [0.2, 0.3, 0.4]
    plain, corrected = [], []
    for p, row, q in zip(POSITIVE, NEGATIVES, q_pos, strict=True):
        plain.append(-math.log(math.exp(p) / (math.exp(p) + sum(map(math.exp, row)))))
        shares = [math.exp(x) / share for x, share in zip(row, q_neg, strict=True)]
        corrected.append(-math.log(math.exp(p) / q / (math.exp(p) / q + sum(shares))))
    positive, negatives = torch.tensor(POSITIVE), torch.tensor(NEGATIVES)
    assert sampled_softmax(positive, negatives)[0].tolist() == pytest.approx(plain, rel=1e-5)
    log_q = torch.tensor(q_pos).log(), torch.tensor(q_neg).log()
    assert sampled_softmax(positive, negatives, log_q)[0].tolist() == pytest.approx(corrected, rel=1e-5)
    uniform = torch.full((2,), 0.1).log(), torch.full((3,), 0.1).log()
    assert sampled_softmax(positive, negatives, uniform)[0].tolist() == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("objective", [bce, bpr, sampled_softmax])
def test_a_negative_that_is_the_target_counts_for_nothing(objective) -> None:
    positive = torch.tensor(POSITIVE, requires_grad=True)
    negatives = torch.tensor(NEGATIVES)
    masked = torch.cat([negatives, torch.full((2, 1), -torch.inf)], dim=1).requires_grad_()
    torch.testing.assert_close(objective(positive, masked)[0], objective(positive, negatives)[0])
    objective(positive, masked)[0].sum().backward()
    assert positive.grad is not None and masked.grad is not None
    assert torch.isfinite(positive.grad).all() and torch.isfinite(masked.grad).all()
    only_target = torch.full((2, 1), -torch.inf)
    assert torch.isfinite(objective(positive, only_target)[0]).all()
