"""alpha-entmax in place of the softmax, with a learnable alpha per head: attention weights that are exactly 0.

Correia, Niculae and Martins, "Adaptively Sparse Transformers", EMNLP 2019; the second group of the paper's baselines
(section 5.1.2). alpha = 1 would be the softmax, alpha = 2 is the sparsemax. The projection is the package entmax's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from entmax import entmax_bisect
from torch import Tensor, nn

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import SequenceModel
from recbole_denoiser.model.bert4rec import BERT4RecDenoiser
from recbole_denoiser.model.sasrec import SASRecDenoiser

LOWEST, HIGHEST = 1.01, 2.0  # of alpha: at 1 the bisection has no solution and its gradient is not a number
ITERATIONS = 24  # of the bisection; enough for float32


class Entmax(nn.Module):
    """Takes the place of an attention's softmax. Not an nn.Softmax, so masks go behind it, not in its place."""

    def __init__(self, n_heads: int, alpha: float) -> None:
        super().__init__()
        if not LOWEST < alpha < HIGHEST:
            raise UserError(f"entmax_alpha = {alpha!r} is not allowed: it takes a number > {LOWEST} < {HIGHEST:g}.")
        share = (alpha - LOWEST) / (HIGHEST - LOWEST)
        self.raw = nn.Parameter(torch.full((n_heads, 1, 1), math.log(share / (1 - share))))

    @property
    def alpha(self) -> Tensor:
        """[H, 1, 1], always between LOWEST and HIGHEST."""
        return LOWEST + (HIGHEST - LOWEST) * torch.sigmoid(self.raw)

    def forward(self, scores: Tensor) -> Tensor:
        """Scores [B, H, m, m] -> attention weights with exact zeros, rows adding up to 1."""
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision cannot be bisected
        return entmax_bisect(scores, self.alpha.to(scores.dtype), dim=-1, n_iter=ITERATIONS)


class EntmaxAttention(SequenceModel):
    """Mixin in front of a model with RecBole's layers."""

    trm_encoder: Any

    def prepare(self, config: Any) -> None:
        """Swap every softmax before the denoiser, if any, attaches its masks."""
        if config["denoise"] and config["gamma"] > 0 and config["jacobian_method"] == "vjp":
            raise UserError(
                "jacobian_method = vjp is not allowed with entmax, which has no second derivative where a weight is 0: "
                "it takes finite_difference."
            )
        for layer in self.trm_encoder.layer:
            layer.multi_head_attention.softmax = Entmax(config["n_heads"], config["entmax_alpha"])
        super().prepare(config)


class SASRecEntmax(EntmaxAttention, SASRecDenoiser):
    """SASRec with alpha-entmax attention; ``denoise: True`` puts masks on top."""


class BERT4RecEntmax(EntmaxAttention, BERT4RecDenoiser):
    """BERT4Rec with alpha-entmax attention."""
