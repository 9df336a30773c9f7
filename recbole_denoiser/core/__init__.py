"""Rec-Denoiser in pure torch: works with any Transformer, never imports recbole.

Start at denoiser.py; masks.py and estimators.py hold section 4.1 of the paper, jacobian.py section 4.2. The names below
are loaded when they are first used, so that settings and help texts (config.py) cost no import of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recbole_denoiser.lazy import lazy

if TYPE_CHECKING:
    from recbole_denoiser.core.attention import AttentionCall, MaskedSoftmax, Site
    from recbole_denoiser.core.config import ESTIMATORS, DenoiserConfig
    from recbole_denoiser.core.denoiser import Denoiser, DenoiserLoss, denoise
    from recbole_denoiser.core.estimators import coefficients, row_credit
    from recbole_denoiser.core.jacobian import exact_jacobian_norm, jacobian_penalty
    from recbole_denoiser.core.kept import KeptCounter
    from recbole_denoiser.core.kinds import register_attention, unregister_attention
    from recbole_denoiser.core.masks import AttentionMask, gate
    from recbole_denoiser.core.passes import Gate
    from recbole_denoiser.core.targets import target_weights, warmed_rate
    from recbole_denoiser.core.torch_attention import MaskedMultiheadAttention

__all__ = [
    "ESTIMATORS",
    "AttentionCall",
    "AttentionMask",
    "Denoiser",
    "DenoiserConfig",
    "DenoiserLoss",
    "Gate",
    "KeptCounter",
    "MaskedMultiheadAttention",
    "MaskedSoftmax",
    "Site",
    "coefficients",
    "denoise",
    "exact_jacobian_norm",
    "gate",
    "jacobian_penalty",
    "register_attention",
    "row_credit",
    "target_weights",
    "unregister_attention",
    "warmed_rate",
]

# public name -> module that defines it
_PLACES = {
    "AttentionCall": "attention",
    "AttentionMask": "masks",
    "Denoiser": "denoiser",
    "DenoiserConfig": "config",
    "DenoiserLoss": "denoiser",
    "ESTIMATORS": "config",
    "Gate": "passes",
    "KeptCounter": "kept",
    "MaskedMultiheadAttention": "torch_attention",
    "MaskedSoftmax": "attention",
    "Site": "attention",
    "coefficients": "estimators",
    "denoise": "denoiser",
    "exact_jacobian_norm": "jacobian",
    "gate": "masks",
    "jacobian_penalty": "jacobian",
    "register_attention": "kinds",
    "row_credit": "estimators",
    "target_weights": "targets",
    "unregister_attention": "kinds",
    "warmed_rate": "targets",
}

__getattr__ = lazy(__name__, _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
