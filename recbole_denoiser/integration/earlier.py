"""What runs did before a setting existed; settings that say nothing."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from recbole_denoiser.integration.schema import DENOISER_KEYS

# Settings that came later, with the value that says what runs before them did. A setting that is not listed stands for
# its default.
EARLIER = {
    "noise_action": "none",
    "train_batches": "shuffled",
    "mask_form": "product",
    "mask_prior": False,
    "train_noise_kind": "replace",
    "eval_noise": 0.0,
    "noise_oracle": "none",
    "noise_weight": False,
}


def with_earlier(settings: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """Settings of a run of any version, with what its version did where it lacks a setting that is known today."""
    return {**{name: value for name, value in EARLIER.items() if name in known}, **settings}


def idle(settings: Mapping[str, Any]) -> set[str]:
    """Settings that change no number, because of the others: of a removal or of masks that are not there."""
    names = set() if settings.get("noise_action") == "remove" else {"noise_weight"}
    if settings.get("denoise") is False and settings.get("noise_oracle") not in ("mask", "both"):
        names |= {key.name for key in DENOISER_KEYS} - {"denoise"}
    return names
