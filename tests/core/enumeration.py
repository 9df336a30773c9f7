"""Exact expectations over U: every estimator is at most linear in U between the places where a bit flips.

Between two neighbouring flip points the bits are constant, so the integral over U is the width of the piece times the
value at its middle. Summing over all pieces of all bits gives the expectation with no Monte Carlo error.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def pieces(flip_points: list[float]) -> list[tuple[float, float]]:
    """(middle, width) of the pieces of [0, 1] between the flip points."""
    ends = sorted({0.0, 1.0, *flip_points})
    return [((low + high) / 2, high - low) for low, high in itertools.pairwise(ends)]


def product(per_bit: list[list[tuple[float, float]]]) -> tuple[Tensor, Tensor]:
    """All combinations of pieces: U [K, bits] and their probabilities [K]."""
    combinations = list(itertools.product(*per_bit))
    U = torch.tensor([[middle for middle, _ in c] for c in combinations], dtype=torch.float64)
    width = torch.tensor([[w for _, w in c] for c in combinations], dtype=torch.float64).prod(1)
    return U, width


def all_bits(n: int) -> Tensor:
    """All bit vectors [2^n, n]."""
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=n)), dtype=torch.float64)


def bits_probability(bits: Tensor, phi: Tensor) -> Tensor:
    """Probability of each bit vector [K] under independent Bernoulli(sigmoid(phi))."""
    p = torch.sigmoid(phi)
    return (bits * p + (1 - bits) * (1 - p)).prod(-1)
