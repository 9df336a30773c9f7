"""Trainable attention masks Phi and the gate of inference (sections 4.1.1 and 4.1.2).

Z_uv ~ Bernoulli(Pi_uv) with Pi = g(Phi) and g the sigmoid; Z multiplies the attention weights after the softmax and
nothing is renormalised (eq. 8; forms.py has the other form). At inference the gate is g(Phi) with every value <= 0.5
set to exactly 0. That is not the mean of what training drew: where many Pi are near 0.5 the clipped gate lets half as
much through, which costs accuracy (published/ablation-ml-1m); inference_gate has the two other rules.

Only live attentions count: those that the causal pattern allows and whose query and key are both real items. The
others are out of R_M, of the estimators and of every kept figure.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recbole_denoiser.core.config import DenoiserConfig
from recbole_denoiser.errors import UserError

UNSURE = 1e-4  # posteriors are kept this far from 0 and 1, where their logit is infinite
CERTAIN = 1e4  # a Phi whose sigmoid is exactly 1, and whose negative's is exactly 0


def gate(phi: Tensor, rule: str = "clipped") -> Tensor:
    """The mask of inference: sigmoid(Phi), exactly 0 where that is <= 0.5 (section 4.1.2).

    rule "hard" is 1 instead of sigmoid(Phi), "expected" is sigmoid(Phi) everywhere: the mean of Z.
    """
    p = torch.sigmoid(phi)
    if rule == "expected":
        return p
    return torch.where(p > 0.5, torch.ones_like(p) if rule == "hard" else p, torch.zeros_like(p))


def random_phi(shape: tuple[int, ...], keep: float, causal: bool) -> Tensor:
    """Phi of a mask that keeps exactly the share `keep` of the live attentions, for certain and at random places.

    A control: only what a learned mask gains over a random one of the same sparsity has been learned.
    """
    n = shape[-1]
    rows, columns = torch.tril_indices(n, n) if causal else torch.ones(n, n).nonzero().T
    phi = torch.full(shape, -CERTAIN)
    for layer in phi.view(-1, n, n):  # one per head
        kept = torch.randperm(len(rows))[: round(keep * len(rows))]
        layer[rows[kept], columns[kept]] = CERTAIN
    return phi


class AttentionMask(nn.Module):
    """Phi of one attention layer.

    mask="position" is the paper's: a free parameter phi [n, n], or [H, n, n] with a mask per head, shared by all users.

    mask="content" goes beyond the paper: Phi_uv = phi_uv + (x_u Wq)(x_v Wk)' / sqrt(rank) + x_v w, so that an item can
    be pruned because of what it is, for one query (bilinear part) or for all of them (w). The hidden states x are
    DETACHED on purpose: the backbone is trained by the recommendation loss and the mask weights by the estimator. The
    path from a backbone weight through Phi to the distribution of Z is therefore left out of the backbone's gradient.

    mask_prior adds what is known about the items: Phi_uv = phi_uv + s logit(1 - p_v), p_v the posterior probability
    that the item at position v is noise, s trainable. With phi = 0 and s = 1, where training starts, Pi_uv = 1 - p_v:
    an item is kept with the probability that it is real, and the gate closes exactly where p_v >= 1/2. From there phi
    learns which positions need more or less than that, and s how far the posterior is to be trusted.
    """

    def __init__(self, config: DenoiserConfig, width: int | None = None, n_heads: int = 1) -> None:
        super().__init__()
        n = config.max_length
        self.n, self.align = n, config.align
        self.heads = n_heads if config.mask_per_head else 1
        self.is_content = config.mask == "content"
        self.inference_gate = config.inference_gate
        shape = (n_heads, n, n) if config.mask_per_head else (n, n)
        self.phi = nn.Parameter(torch.full(shape, config.first_phi))
        self.prior_scale = nn.Parameter(torch.ones(())) if config.mask_prior else None
        if config.random_keep is not None:
            self.phi.data.copy_(random_phi(shape, config.random_keep, config.causal))
            self.phi.requires_grad_(False)
        if self.is_content:
            if width is None:
                raise UserError("A content mask needs the width of the hidden states, and it could not be found.")
            self.rank = config.content_rank
            # Small but not zero: with both factors at zero the bilinear part would have no gradient.
            self.query_weight = nn.Parameter(torch.randn(width, self.heads * self.rank) * 0.02)
            self.key_weight = nn.Parameter(torch.randn(width, self.heads * self.rank) * 0.02)
            self.item_weight = nn.Parameter(torch.zeros(width, self.heads))

    @property
    def needs_data(self) -> bool:
        """Does Phi depend on the sequence?"""
        return self.is_content or self.prior_scale is not None

    def logits(self, length: int, states: Tensor | None = None, prior: Tensor | None = None) -> Tensor:
        """Phi of sequences of `length` positions: [1, 1 or H, m, m], or [B, ...] if it depends on the sequence.

        states [B, m, d] for a content mask; prior [B, m] (posterior of being noise) with mask_prior.
        """
        if length > self.n:
            raise UserError(
                f"A sequence of {length} positions is longer than its mask of {self.n}: set the denoiser's "
                f"max_length to {length}."
            )
        rows = slice(self.n - length, self.n) if self.align == "end" else slice(0, length)
        phi = self.phi[..., rows, rows]
        phi = phi.reshape(1, self.heads, length, length)
        phi = phi + self._content(states) if self.is_content else phi
        return phi if self.prior_scale is None else phi + self._prior(length, prior)

    def gate(self, length: int, states: Tensor | None = None, prior: Tensor | None = None) -> Tensor:
        """Z of inference, of the same shape as the logits."""
        return gate(self.logits(length, states, prior), self.inference_gate)

    def _prior(self, length: int, prior: Tensor | None) -> Tensor:
        if prior is None or prior.dim() != 2 or prior.shape[1] != length:
            shape = None if prior is None else tuple(prior.shape)
            raise UserError(
                f"mask_prior needs the posterior of being noise [batch, {length}] and got {shape}: pass prior to "
                "loss(), or to valid_positions() around other passes."
            )
        assert self.prior_scale is not None
        p = prior.detach().to(self.prior_scale).clamp(UNSURE, 1.0 - UNSURE)
        return self.prior_scale * torch.logit(1.0 - p)[:, None, None, :]  # [B, 1, 1, m]: the same for every query

    def _content(self, states: Tensor | None) -> Tensor:
        if states is None:
            raise UserError("A content mask needs the hidden states of the attention layer, and none were given.")
        x = states.detach().to(self.query_weight.dtype)  # [B, m, d]
        B, m, _ = x.shape
        q = (x @ self.query_weight).view(B, m, self.heads, self.rank).transpose(1, 2)  # [B, H, m, r]
        k = (x @ self.key_weight).view(B, m, self.heads, self.rank).transpose(1, 2)
        item = (x @ self.item_weight).transpose(1, 2).unsqueeze(2)  # [B, H, 1, m]: the same for every query
        return q @ k.transpose(2, 3) / self.rank**0.5 + item


def valid_for(shape: torch.Size, valid: Tensor | None, device: torch.device) -> Tensor:
    """Real positions [B, m] of the sequences that attention of a shape [B, H, m, m] is over."""
    B, m = shape[0], shape[-1]
    if valid is None:
        return torch.ones(B, m, dtype=torch.bool, device=device)
    if valid.shape != (B, m):
        raise UserError(
            f"valid has shape {tuple(valid.shape)}, but the attention is over {B} sequences of {m} positions."
        )
    return valid


def live_counts(valid: Tensor, causal: bool, dtype: torch.dtype = torch.float32) -> Tensor:
    """In how many sequences each attention is live: [m, m] from valid [B, m]."""
    real = valid.to(dtype)
    counts = real.T @ real
    return counts.tril_() if causal else counts


def live_entries(valid: Tensor, causal: bool, dtype: torch.dtype = torch.float32) -> Tensor:
    """Live attentions of each sequence as 0 and 1: [B, 1, m, m] from valid [B, m]."""
    real = valid.to(dtype)
    live = (real.unsqueeze(2) * real.unsqueeze(1)).unsqueeze(1)
    return live.tril_() if causal else live


def live_for(phi: Tensor, valid: Tensor, causal: bool) -> Tensor:
    """How often each entry of Phi is live in the batch; broadcasts to phi (heads share it).

    Phi shared by the batch gets counts [m, m]; Phi per sequence gets 0 and 1 [B, 1, m, m].
    """
    if phi.shape[0] == 1:
        return live_counts(valid, causal, phi.dtype)
    return live_entries(valid, causal, phi.dtype)


def live_mean(values: Tensor, live: Tensor) -> Tensor:
    """Mean of values [1 or B, 1 or H, m, m] over the live entries counted by live_for."""
    return (values * live).sum() / (live.sum() * values.shape[1]).clamp(min=1.0)
