"""Settings of the denoiser (section 4 of the paper), checked when they are made.

beta and gamma are defined on mean scales, so that they do not depend on the batch or on the sequence length:
R_M is the mean of Pi over the live attentions of a layer (summed over layers) and R_J is divided by the number of
real outputs. The paper prints sums (eq. 9 and 14); with a mean recommendation loss a sum would drown it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from recbole_denoiser.errors import UserError

TWO_PASS = ("arm", "disarm")  # unbiased, need the loss at a second, antithetic mask
ONE_PASS = ("ar", "reinforce")  # unbiased, need the loss at one mask
PATHWISE = ("straight_through", "hard_concrete")  # biased, the gradient goes through Z itself
ESTIMATORS = ("ar", "arm", "disarm", "reinforce", "straight_through", "hard_concrete")

_CHOICES: dict[str, tuple[str, ...]] = {
    "align": ("end", "start"),
    "mask": ("position", "content"),
    "estimator": ESTIMATORS,
    "mask_sampling": ("sequence", "batch"),
    "credit": ("row", "total"),
    "jacobian_noise": ("rademacher", "gaussian"),
    "jacobian_method": ("vjp", "finite_difference"),
}
_FLAGS = ("causal", "mask_per_head", "conditional", "baseline")
_SMALLEST_INT = {"max_length": 1, "content_rank": 1, "jacobian_projections": 1, "jacobian_batch": 0}
_NOT_NEGATIVE = ("beta", "gamma")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class DenoiserConfig:
    """All settings of one denoiser. A wrong value raises UserError with the key, the value and what is allowed."""

    max_length: int  # n: side of the mask
    causal: bool = True  # False for bidirectional attention (BERT4Rec)
    align: str = "end"  # where a sequence shorter than n lies on the n x n mask: its last or its first rows
    mask: str = "position"  # "position" is the paper's Phi; "content" adds a score of the hidden states
    mask_per_head: bool = False  # the paper shares Z between heads
    mask_init: float = 3.0  # Phi at the start; 0 or less would prune everything at inference
    random_keep: float | None = None  # control: masks drawn once that keep this share of attentions and never learn
    content_rank: int = 8
    estimator: str = "disarm"
    mask_sampling: str = "sequence"  # the paper draws one Z per batch; per sequence has far less variance
    credit: str = "row"  # "total": every row gets the whole loss, needed if positions mix after the last attention
    conditional: bool = False  # flip one layer at a time in the second pass
    baseline: bool = True  # running mean taken off the loss, for ar and reinforce
    beta: float = 0.0
    gamma: float = 0.0
    target_sparsity: float | None = None  # wanted share of pruned live attentions; moves beta
    jacobian_projections: int = 1
    jacobian_batch: int = 8  # sequences per step, 0 = the whole batch
    jacobian_noise: str = "rademacher"
    jacobian_method: str = "vjp"
    jacobian_step: float = 1e-3  # of the finite difference
    sites: tuple[str, ...] | None = None  # names of attention modules; None = find them
    n_heads: int | None = None  # only needed with mask_per_head if the attention module does not tell

    def __post_init__(self) -> None:
        for key, allowed in _CHOICES.items():
            self._require(getattr(self, key) in allowed, key, f"one of {', '.join(allowed)}")
        for key in _FLAGS:
            self._require(isinstance(getattr(self, key), bool), key, "True or False")
        for key, smallest in _SMALLEST_INT.items():
            value = getattr(self, key)
            self._require(_is_int(value) and value >= smallest, key, f"a whole number >= {smallest}")
        for key in _NOT_NEGATIVE:
            value = getattr(self, key)
            self._require(_is_number(value) and value >= 0, key, "a number >= 0")
        self._require(_is_number(self.mask_init), "mask_init", "a finite number (above 0 starts with open masks)")
        self._require(_is_number(self.jacobian_step) and self.jacobian_step > 0, "jacobian_step", "a number > 0")
        target = self.target_sparsity
        self._require(
            target is None or (_is_number(target) and 0 <= target < 1), "target_sparsity", "None or a share in [0, 1)"
        )
        keep = self.random_keep
        self._require(
            keep is None or (_is_number(keep) and 0 <= keep <= 1 and self.mask == "position"),
            "random_keep",
            "None, or a share in [0, 1] when mask is position",
        )
        if keep is not None:  # nothing is estimated, so the cheapest estimator will do
            object.__setattr__(self, "estimator", "straight_through")
        self._require(self.n_heads is None or (_is_int(self.n_heads) and self.n_heads >= 1), "n_heads", "None or >= 1")
        if self.sites is not None:
            named = isinstance(self.sites, (list, tuple)) and all(isinstance(name, str) for name in self.sites)
            self._require(named and len(self.sites) > 0, "sites", "None or a list of module names")
            object.__setattr__(self, "sites", tuple(self.sites))
        # One U shared by sequences whose Phi differ would tie their bits together, and a loss that is only known
        # for the whole batch would then give a biased gradient.
        self._require(
            not (self.mask == "content" and self.mask_sampling == "batch"),
            "mask_sampling",
            "sequence when mask is content (each sequence has its own Phi)",
        )

    def _require(self, holds: bool, key: str, allowed: str) -> None:
        if not holds:
            raise UserError(f"Denoiser setting {key} is {getattr(self, key)!r}; allowed: {allowed}.")

    @property
    def one_layer_at_a_time(self) -> bool:
        """Content masks always flip one layer at a time: see core/denoiser.py."""
        return self.conditional or self.mask == "content"
