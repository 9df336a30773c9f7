"""Algorithm 1 of the paper, to be read from top to bottom: slow, plain, loops wherever they say more.

One step for position masks that all sequences share (Z is drawn once per batch, as printed), with the estimators AR and
ARM, the regularisers R_M and R_J, and gradients written out by hand. It is here to be compared with: a test holds the
fast way (training.py, which draws a mask per sequence, credits rows and replays passes) to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Run = Callable[[list[Tensor]], Tensor]  # masks Z [n, n] of all layers -> losses [B, n] of all positions
Block = Callable[[Tensor], Tensor]  # input [B, n, d] of one Transformer layer, under its mask -> its output


@dataclass
class Reference:
    """What one step comes to."""

    loss: Tensor  # L_rec (eq. 7), mean over the real positions
    r_m: Tensor  # R_M (eq. 11), mean over live attentions, summed over layers
    r_j: Tensor  # R_J (eq. 14), per real output, summed over layers
    phi_gradients: list[Tensor]  # of L_rec + beta R_M, per layer [n, n]


def algorithm_1(
    run: Run,
    blocks: Callable[[list[Tensor]], list[tuple[Block, Tensor]]],  # Z -> each layer and its input
    phi: list[Tensor],  # Phi^(l) [n, n]
    U: list[Tensor],  # U^(l) [n, n], uniform on (0, 1)
    eta: list[Tensor],  # random projections [B, n, d] of each layer's output, 0 at padded positions
    valid: Tensor,  # [B, n] real positions
    beta: float,
    estimator: str,  # "ar" or "arm"
) -> Reference:
    """One step, causal attention."""
    B, n = valid.shape

    # Draw the masks (section 4.1.1): Z = 1[U < g(Phi)], g the sigmoid.
    Z = [(u < torch.sigmoid(p)).to(p.dtype) for p, u in zip(phi, U, strict=True)]

    # The recommendation loss under them.
    loss = run(Z)[valid].mean()

    # Its gradient with respect to Phi, without a derivative of Z.
    if estimator == "arm":  # eq. 12: the loss at the antithetic masks 1[U > g(-Phi)] minus the loss at Z
        twin = [(u > torch.sigmoid(-p)).to(p.dtype) for p, u in zip(phi, U, strict=True)]
        difference = run(twin)[valid].mean() - loss
        gradients = [difference * (u - 0.5) for u in U]
    else:  # eq. 13: one pass
        gradients = [loss * (1.0 - 2.0 * u) for u in U]

    # Live attentions: the key is no later than the query, and both are real items.
    live = [(b, s, t) for b in range(B) for s in range(n) for t in range(s + 1) if valid[b, s] and valid[b, t]]
    acts = torch.zeros(n, n, dtype=torch.bool)
    for _, s, t in live:
        acts[s, t] = True
    gradients = [gradient * acts for gradient in gradients]

    # R_M (eq. 11): how open the masks are; d g(Phi) / d Phi = g (1 - g).
    r_m = torch.zeros(())
    for layer, p in enumerate(phi):
        for _, s, t in live:
            g = torch.sigmoid(p[s, t])
            r_m = r_m + g / len(live)
            gradients[layer][s, t] += beta * g * (1 - g) / len(live)

    # R_J (eq. 14): ||eta' J||^2 for each layer's Jacobian J, one backward pass per layer, padded positions left out.
    r_j = torch.zeros(())
    for (block, x), e in zip(blocks(Z), eta, strict=True):
        x = x.detach().requires_grad_()
        (row,) = torch.autograd.grad((block(x) * e).sum(), x)  # eta' J, [B, n, d]
        r_j = r_j + row[valid].square().sum() / (valid.sum() * x.shape[-1])

    return Reference(loss, r_m, r_j, gradients)
