"""What a model does with the probabilities of being noise that its batches carry (data/cleaning.py).

Targets: with ``noise_action: weight``, or ``remove`` and ``noise_weight``, the loss of a target counts 1 - posterior.
Inputs: ``mask_prior`` hands the posteriors to the masks, and ``noise_oracle`` closes what is known to be noise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from recbole_denoiser.core.denoiser import Denoiser
from recbole_denoiser.data.rows import Fields
from recbole_denoiser.integration.noise_settings import weighs_targets
from recbole_denoiser.model.oracle import OracleMask


class Posteriors:
    """Reads the posteriors of a batch as far as the settings ask for them."""

    def __init__(self, model: Any, config: Any, fields: Fields) -> None:
        oracle = config["noise_oracle"] or "none"
        self.fields = fields
        self.weighs_targets = weighs_targets(config) or oracle in ("target", "both")
        self.oracle = OracleMask(model, config["mask_form"] or "product") if oracle in ("mask", "both") else None
        self.reads_inputs = self.oracle is not None or bool(config["mask_prior"] and config["denoise"])

    @property
    def column(self) -> str:
        """Posteriors of the items of a history."""
        return self.fields.posterior + self.fields.list_suffix

    def trust(self, interaction: Any, posterior: Callable[[], Tensor]) -> Tensor | None:
        """[B, m] 1 - posterior of each position's target; None: all count the same."""
        if not self.weighs_targets or self.fields.posterior not in interaction:
            return None
        return 1 - posterior()

    def of_inputs(self, interaction: Any, like: Tensor, lay_out: Callable[[Tensor], Tensor]) -> Tensor | None:
        """[B, m] of the items that the model reads; ``lay_out`` aligns them as it aligned the items ``like``.

        What the batch does not tell, as in a sequence from outside, is not suspected.
        """
        if not self.reads_inputs:
            return None
        if self.column not in interaction:
            return torch.zeros(like.shape, device=like.device)
        return lay_out(interaction[self.column])

    def told(self, denoiser: Denoiser | None, batch: Any) -> AbstractContextManager[None]:
        """Inside the context the masks know which positions of a batch are real and how suspicious they are."""
        if denoiser is not None:
            return denoiser.valid_positions(batch.valid, batch.prior)
        return nullcontext() if self.oracle is None else self.oracle.told(batch.prior)
