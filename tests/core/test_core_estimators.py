"""Estimators against exact gradients of small enumerated problems (eq. 12, 13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from enumeration import all_bits, bits_probability, pieces, product
from torch import Tensor

from recbole_denoiser.core.estimators import (
    coefficients,
    keep_probability,
    layer_coefficients,
    pathwise_mask,
    row_credit,
    sample,
    sample_antithetic,
    signal,
)

PHI = torch.tensor([0.7, -0.4, 1.9, -2.3], dtype=torch.float64)
UNBIASED = ["ar", "arm", "disarm", "reinforce"]


def wavy(z: Tensor) -> Tensor:
    """A loss of four bits that is not multilinear when z is not binary."""
    w = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=z.dtype)
    return torch.sin((z * w).sum(-1)) + (z * w).sum(-1) ** 3 / 10


def multilinear(z: Tensor) -> Tensor:
    return 2 * z[..., 0] * z[..., 1] - z[..., 2] + 0.5 * z[..., 1] * z[..., 2] * z[..., 3]


def exact_gradient(f: Callable[[Tensor], Tensor]) -> Tensor:
    phi = PHI.clone().requires_grad_()
    bits = all_bits(4)
    (bits_probability(bits, phi) * f(bits)).sum().backward()
    assert phi.grad is not None
    return phi.grad


def all_pieces() -> tuple[Tensor, Tensor]:
    return product([pieces([p, 1 - p]) for p in torch.sigmoid(PHI).tolist()])


def expectation(name: str, f: Callable[[Tensor], Tensor], baseline: float = 0.0) -> Tensor:
    U, width = all_pieces()
    f_b = f(sample(PHI, U)).unsqueeze(-1)
    f_twin = f(sample_antithetic(PHI, U)).unsqueeze(-1)
    return (width.unsqueeze(-1) * coefficients(name, PHI, U, f_b, f_twin, baseline)).sum(0)


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("f", [wavy, multilinear])
def test_expectation_is_the_exact_gradient(name: str, f: Callable[[Tensor], Tensor]) -> None:
    torch.testing.assert_close(expectation(name, f), exact_gradient(f), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["ar", "reinforce"])
def test_a_baseline_changes_nothing_in_expectation(name: str) -> None:
    torch.testing.assert_close(expectation(name, wavy, baseline=5.0), exact_gradient(wavy), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["arm", "disarm"])
def test_swapped_losses_flip_the_sign(name: str) -> None:
    """Eq. 12 subtracts the loss at 1[U < g(Phi)] from the one at 1[U > g(-Phi)], not the other way round."""
    U, width = all_pieces()
    f_b, f_twin = (wavy(b(PHI, U)).unsqueeze(-1) for b in (sample, sample_antithetic))
    swapped = (width.unsqueeze(-1) * coefficients(name, PHI, U, f_twin, f_b)).sum(0)
    torch.testing.assert_close(swapped, -exact_gradient(wavy), atol=1e-12, rtol=0)


def test_disarm_is_arm_averaged_over_what_the_bits_do_not_see() -> None:
    """Within a piece of U no bit changes; ARM is linear there, so its mean is its value in the middle."""
    U, _ = all_pieces()
    f_b, f_twin = (wavy(b(PHI, U)).unsqueeze(-1) for b in (sample, sample_antithetic))
    arm, disarm = (coefficients(name, PHI, U, f_b, f_twin) for name in ("arm", "disarm"))
    torch.testing.assert_close(disarm, arm)


def straight_through_expectation(f: Callable[[Tensor], Tensor]) -> Tensor:
    phi = PHI.clone().requires_grad_()
    U, width = all_pieces()
    (f(pathwise_mask("straight_through", phi, U)) * width).sum().backward()
    assert phi.grad is not None
    return phi.grad


def test_straight_through_is_right_on_multilinear_losses_and_biased_otherwise() -> None:
    torch.testing.assert_close(straight_through_expectation(multilinear), exact_gradient(multilinear))
    error = (straight_through_expectation(wavy) - exact_gradient(wavy)).abs().max()
    assert error > 0.05


def test_hard_concrete_is_biased_but_right_for_its_own_objective() -> None:
    grid = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000  # midpoint rule over one U

    def relaxed(phi: Tensor) -> Tensor:
        return (pathwise_mask("hard_concrete", phi, grid) ** 3).mean()

    phi = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (own,) = torch.autograd.grad(relaxed(phi), phi)
    with torch.no_grad():
        difference = (relaxed(phi + 1e-3) - relaxed(phi - 1e-3)) / 2e-3
    torch.testing.assert_close(own, difference, atol=1e-5, rtol=1e-5)
    bernoulli = torch.sigmoid(phi) * (1 - torch.sigmoid(phi))  # of b^3 = b
    assert (own - bernoulli).abs() > 0.01
    kept = (pathwise_mask("hard_concrete", phi, grid) > 0).double().mean()
    torch.testing.assert_close(keep_probability("hard_concrete", phi), kept, atol=1e-4, rtol=0)


def test_row_credit_by_hand() -> None:
    f = torch.tensor([[1.0, 2.0, 4.0]])
    assert row_credit(f, 1, 2, causal=True).tolist() == [[1.0, 2.0, 4.0]]
    assert row_credit(f, 0, 2, causal=True).tolist() == [[7.0, 6.0, 4.0]]
    assert row_credit(f, 1, 2, causal=False).tolist() == [[1.0, 2.0, 4.0]]
    assert row_credit(f, 0, 2, causal=False).tolist() == [[7.0, 7.0, 7.0]]


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("shared_mask", [False, True])
def test_layer_coefficients_are_the_sum_over_sequences(name: str, shared_mask: bool) -> None:
    """The fast reduction against a loop over sequences and entries."""
    generator = torch.Generator().manual_seed(1)
    B, m = 3, 4
    phi = torch.randn(1, 1, m, m, generator=generator)
    U = torch.rand(1 if shared_mask else B, 1, m, m, generator=generator)
    f, twin = torch.rand(2, B, m, generator=generator)
    valid = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0]]).float()
    row_signal = signal(name, f, twin, 0.0)
    fast = layer_coefficients(name, phi, U, row_signal, valid, causal=True)
    slow = torch.zeros(m, m)
    for b in range(B):
        u = U[0 if shared_mask else b, 0]
        entries = coefficients(name, phi[0, 0], u, f[b].unsqueeze(1), twin[b].unsqueeze(1))
        for s in range(m):
            for t in range(s + 1):
                slow[s, t] += entries[s, t] * valid[b, s] * valid[b, t]
    torch.testing.assert_close(fast[0, 0], slow)
