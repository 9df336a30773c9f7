"""What the trainer and the evaluation ask of a model of this package, beside what RecBole asks of every model."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from recbole_denoiser.core import Denoiser


@runtime_checkable
class MaskedModel(Protocol):
    """A model that may carry a denoiser; ``isinstance(model, MaskedModel)`` is the one test of "is it ours?".

    Members are what a class has or a model holds in its ``__dict__``: from Python 3.12 on isinstance does not ask
    ``__getattr__``, by which torch finds sub-modules. The denoiser is one of these: ``denoiser_of``.
    """

    loss_terms: tuple[str, ...]  # names of the terms that calculate_loss returns

    def start_epoch(self, epoch: int) -> None:
        """The trainer says which epoch begins."""

    def mask_parameters(self) -> list[nn.Parameter]:
        """Phi and what makes it, for an optimiser group of their own."""
        ...

    def counting_kept(self) -> AbstractContextManager[None]:
        """Count, over all forward passes inside the context, which attentions the gate keeps."""
        ...

    def kept_share(self) -> list[float] | None:
        """Share of live attentions that the gate keeps, per layer: of the last ``counting_kept``."""
        ...

    def score_candidates(self, interaction: Any, candidates: Tensor) -> Tensor:
        """Scores [B, C] of candidate items [B, C]."""
        ...


def denoiser_of(model: Any) -> Denoiser | None:
    """The denoiser of a model, if it carries one."""
    return getattr(model, "denoiser", None) if isinstance(model, MaskedModel) else None
