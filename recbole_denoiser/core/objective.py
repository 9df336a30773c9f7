"""The pieces of the objective that need no model: weights of the loss, R_M, credit, and checks of the first pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recbole_denoiser.core.attention import Site
from recbole_denoiser.core.config import DenoiserConfig
from recbole_denoiser.core.estimators import keep_probability, row_credit
from recbole_denoiser.core.masks import gate, live_for, live_mean, valid_for
from recbole_denoiser.core.passes import Draw, FirstPass
from recbole_denoiser.errors import NonFiniteLossError, UserError

Weights = Tensor | Callable[[Tensor], Tensor] | None


@dataclass(frozen=True)
class Share:
    """What this process's sequences count for in a batch that several processes share.

    Factors local count * processes / global count: the plain mean over the processes of terms scaled by them is the
    mean over the whole batch.
    """

    targets: float = 1.0  # positions with a loss: L_rec, and Phi's estimate with it
    live: float = 1.0  # live attentions: R_M
    real: float = 1.0  # real positions: R_J


WHOLE = Share()


@dataclass
class DenoiserLoss:
    """The three terms of a step (add them up, or log them apart) and figures without gradient.

    >>> import torch
    >>> from recbole_denoiser import DenoiserConfig, denoise
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> denoiser = denoise(model, DenoiserConfig(max_length=5, causal=False, beta=0.02))
    >>> x = torch.randn(3, 5, 8)
    >>> result = denoiser.loss(lambda: model(x).square().mean(-1))
    >>> isinstance(result, DenoiserLoss) and torch.equal(result.total, result.rec + result.mask + result.jacobian)
    True
    """

    rec: Tensor
    mask: Tensor  # beta * R_M plus the zero-valued surrogate that carries Phi's gradient
    jacobian: Tensor  # gamma * R_J
    r_m: Tensor  # R_M, summed over layers
    r_j: Tensor  # R_J, summed over layers
    kept_probability: Tensor  # [L] mean of Pi over live attentions

    @property
    def total(self) -> Tensor:
        """What to call backward() on."""
        return self.rec + self.mask + self.jacobian


def one_number(losses: Tensor, weights: Weights) -> Tensor:
    """A loss of shape [1] is one number for the whole batch (some models keep that side)."""
    return losses.reshape(()) if losses.shape == (1,) and weights is None else losses


def position_weights(losses: Tensor, valid: Tensor | None, weights: Weights) -> Tensor | None:
    """Weights like the losses, without gradient; None for a loss that is one number already."""
    if losses.dim() > 2:
        raise UserError(f"loss_fn returned shape {tuple(losses.shape)}; allowed: [B, m], [B] or one number.")
    given = weights(losses.detach()) if callable(weights) else weights
    if given is not None:
        if given.shape != losses.shape:
            raise UserError(f"weights have shape {tuple(given.shape)}, the losses {tuple(losses.shape)}.")
        return given.detach()
    if losses.dim() == 0:
        return None
    if losses.dim() == 2 and valid is not None:
        if losses.shape != valid.shape:
            raise UserError(f"losses have shape {tuple(losses.shape)}, valid {tuple(valid.shape)}.")
        real = valid.to(losses.dtype)
        return real / real.sum().clamp(min=1.0)
    return torch.full_like(losses, 1.0 / max(losses.numel(), 1), requires_grad=False)


def row_credits(f: Tensor, draw: Draw, k: int, K: int, config: DenoiserConfig) -> Tensor:
    """What each query row of draw k of K is credited with: [B, m], or [1, m] for one mask and one loss per batch.

    f: weighted losses, [B, m], [B] or one number.
    """
    B, m = draw.call.shape[0], draw.call.shape[-1]
    f = f.to(draw.U.dtype)
    if f.dim() == 0:
        return f.expand(draw.U.shape[0], m)
    if f.shape[0] != B or (f.dim() == 2 and f.shape[1] != m):
        raise UserError(f"loss_fn returned losses of shape {tuple(f.shape)} for attention over [{B}, {m}].")
    if f.dim() == 1 or config.credit == "total":
        return f.reshape(B, -1).sum(1, keepdim=True).expand(B, m)
    return row_credit(f, k, K, config.causal)


def kept_probabilities(draws: list[Draw], n_layers: int, valid: Tensor | None, config: DenoiserConfig) -> Tensor:
    """Mean of Pi over the live attentions of the batch, per layer [L]; R_M is their sum (eq. 11, mean scale)."""
    means: list[list[Tensor]] = [[] for _ in range(n_layers)]
    for draw in draws:
        live = live_for(draw.Phi, valid_for(draw.call.shape, valid, draw.call.device), config.causal)
        means[draw.site.index].append(live_mean(keep_probability(config.estimator, draw.Phi), live))
    return torch.stack([torch.stack(calls).mean() for calls in means])


def pruned_share(draws: list[Draw], valid: Tensor | None, config: DenoiserConfig) -> Tensor:
    """Share of the batch's live attentions that the clipped gate closes, averaged over the layers."""
    shares = []
    for draw in draws:
        live = live_for(draw.Phi, valid_for(draw.call.shape, valid, draw.call.device), config.causal)
        shares.append(live_mean((gate(draw.Phi.detach()) == 0).to(live.dtype), live))
    return torch.stack(shares).mean()


def check_finite(rec: Tensor, draws: list[Draw]) -> None:
    """A loss that is not finite: say at which site the trouble starts."""
    if torch.isfinite(rec):
        return
    broken = next((draw.site.name for draw in draws if not torch.isfinite(draw.call.weights).all()), None)
    where = f"the first attention that is not finite is at site {broken}" if broken else "all attention is finite"
    raise NonFiniteLossError(
        f"The loss is {rec.item()}; {where}. Look for NaN or infinite inputs, weights or learning rates."
    )


def check_sites_used(sites: list[Site], draws: list[Draw]) -> None:
    """Every site must take part in the loss, or its mask would never learn."""
    called = {draw.site.index for draw in draws}
    silent = [site.name for site in sites if site.index not in called]
    if silent:
        raise UserError(
            f"loss_fn never used the attention at {', '.join(silent)}: name the others in the setting sites."
        )


def check_influence(rec: Tensor, first: FirstPass) -> None:
    """Once, at the first step: does the loss depend on what the masks act on? Or they would have no effect."""
    if first.in_checkpoint or not first.watched:
        return
    names = [draw.site.name for draw in first.draws]
    gradients = torch.autograd.grad(rec, first.watched, retain_graph=True, allow_unused=True)
    unused = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]
    if unused:
        raise UserError(
            f"The loss does not depend on the attention weights at {', '.join(unused)}: the model computes them but "
            "takes its output from elsewhere (a fused kernel?), so a mask has no effect there. Switch that off, or "
            "name the other attention modules in the setting sites."
        )
    still = [name for name, gradient in zip(names, gradients, strict=True) if not gradient.any()]
    if still:
        warnings.warn(
            f"The attention at {', '.join(still)} has no influence on the loss yet (a weight of zero behind it?), so "
            "its mask learns nothing until it has.",
            stacklevel=2,
        )


def check_attention(draws: list[Draw], valid: Tensor | None, causal: bool) -> None:
    """Once, at the first sampled pass: does the model attend as the setting causal says?"""
    if not causal:
        return
    for draw in draws:
        real = valid_for(draw.call.shape, valid, draw.call.device)
        later = (draw.call.weights.triu(1) * real[:, None, :, None]).max()  # rows of padded queries may hold anything
        if later > 1e-6:
            raise UserError(
                f"Attention site {draw.site.name} looks at later positions (weight {float(later):.3g}) although the "
                "setting causal is True. Set causal=False for a bidirectional model; if only padded queries do so, "
                "pass their positions in valid."
            )
