"""alpha-entmax in place of the softmax, with a learnable alpha per head: attention weights that are exactly 0.

Correia, Niculae and Martins, "Adaptively Sparse Transformers", EMNLP 2019; the second group of the paper's baselines
(section 5.1.2). alpha = 1 would be the softmax, alpha = 2 is the sparsemax. Gradients are the package entmax's; its
bisection is replaced by Newton's method, which needs a third of the iterations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from entmax.root_finding import EntmaxBisectFunction
from torch import Tensor, nn

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import SequenceModel
from recbole_denoiser.model.bert4rec import BERT4RecDenoiser
from recbole_denoiser.model.sasrec import SASRecDenoiser
from recbole_denoiser.model.tracing import is_traced

LOWEST, HIGHEST = 1.01, 2.0  # of alpha: at 1 the projection is not defined and its gradient is not a number
ITERATIONS = 50  # of Newton's method at most; 6 to 10 are needed


class EntmaxByNewton(EntmaxBisectFunction):
    """p_i = [(alpha - 1) x_i - tau]_+^e with e = 1 / (alpha - 1), where tau makes them add up to 1.

    For 1 < alpha <= 2 the sum is convex and falls in tau, so Newton's method, begun where the sum is at least 1, comes
    nearer with every step and never goes past the solution.
    """

    @classmethod
    def forward(cls, ctx: Any, X: Tensor, alpha: Tensor) -> Tensor:
        """X [..., m] and alpha, of a shape that broadcasts against [..., 1], -> p [..., m]."""
        ctx.alpha, ctx.dim = alpha.expand(*X.shape[:-1], 1), -1  # what backward expects
        e = 1 / (alpha - 1)
        X = (X - X.amax(-1, keepdim=True)) * (alpha - 1)  # <= 0: no digits are lost in rows with forbidden keys only
        tau = -torch.ones_like(X[..., :1])  # here the largest p alone is 1
        accuracy = X.shape[-1] * torch.finfo(X.dtype).eps  # rounding of the sum
        for _ in range(ITERATIONS):
            u = (X - tau).clamp_min_(0)
            slope = (u ** (e - 1)).mul_(u > 0)  # dp/du over e; 0 ** 0 would be 1 at alpha = 2
            p = u.mul_(slope)
            excess = p.sum(-1, keepdim=True) - 1
            if not is_traced() and bool((excess <= accuracy).all()):
                break
            tau = tau + excess / (e * slope.sum(-1, keepdim=True))
        p = p / p.sum(-1, keepdim=True)
        ctx.save_for_backward(p)
        return p

    @classmethod
    def backward(cls, ctx: Any, dY: Tensor) -> tuple[Tensor, Tensor | None]:
        """The package's, without the arguments that forward does not have."""
        return super().backward(ctx, dY)[:2]


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
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse
        return EntmaxByNewton.apply(scores, self.alpha.to(scores.dtype))


class EntmaxAttention(SequenceModel):
    """Mixin in front of a model with RecBole's layers."""

    trm_encoder: Any

    def prepare(self, config: Any, dataset: Any) -> None:
        """Swap every softmax before the denoiser, if any, attaches its masks."""
        if config["denoise"] and config["gamma"] > 0 and config["jacobian_method"] == "vjp":
            raise UserError(
                "jacobian_method = vjp is not allowed with entmax, which has no second derivative where a weight is 0: "
                "it takes finite_difference."
            )
        for layer in self.trm_encoder.layer:
            layer.multi_head_attention.softmax = Entmax(config["n_heads"], config["entmax_alpha"])
        super().prepare(config, dataset)


class SASRecEntmax(EntmaxAttention, SASRecDenoiser):
    """SASRec with alpha-entmax attention; ``denoise: True`` puts masks on top."""


class BERT4RecEntmax(EntmaxAttention, BERT4RecDenoiser):
    """BERT4Rec with alpha-entmax attention."""
