"""Masks that decide nothing at the end of a training, and what to change."""

from __future__ import annotations

from typing import Any

from recbole_denoiser.model.protocols import denoiser_of

COLLAPSED = 0.001  # share of attentions kept (or pruned) below which a mask decides nothing


def mask_warnings(model: Any, history: list[dict[str, Any]]) -> list[str]:
    """What to change if training has closed a layer altogether, or has pruned nothing at all."""
    denoiser = denoiser_of(model)
    if denoiser is None:
        return []
    kept = model.kept_share()
    if not kept or not history or denoiser.config.random_keep is not None:  # not trained, or a control that never is
        return []
    closed = [str(layer) for layer, share in enumerate(kept, start=1) if share < COLLAPSED]
    if closed:
        return [
            f"Collapsed masks: layer {', '.join(closed)} keeps no attention at all, so no item sees another there. "
            f"Lower beta or mask_learning_rate, raise mask_init, or set target_sparsity."
        ]
    if all(share > 1 - COLLAPSED for share in kept):
        return [
            "Collapsed masks: no attention was pruned in any layer, so the model ends as its plain backbone with "
            "scaled attention. Raise beta or mask_learning_rate, lower mask_init, train longer, or set target_sparsity."
        ]
    return []
