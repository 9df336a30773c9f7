"""Which settings about noise fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.registry import MODELS


def weighs_targets(config: Any) -> bool:
    """Does the loss of a target count 1 - its posterior of being noise? RecBole's models have losses of their own."""
    action = config["noise_action"]
    return config["model"] in MODELS and (action == "weight" or (action == "remove" and bool(config["noise_weight"])))


def check_noise(model: str, final: dict[str, Any], sources: Mapping[str, str]) -> None:
    """UserError for a contradiction; an oracle switches off the detector, if that is on by default only."""
    if final["train_noise"] and final["eval_noise"]:
        raise UserError(
            "train_noise and eval_noise: the noise of train_noise is read at validation and test, too; set one."
        )
    if final["noise_action"] == "weight" and model not in MODELS:
        raise UserError(
            f"noise_action = weight: {model} has a loss of its own, which cannot be weighted; use remove, or one of "
            f"{', '.join(MODELS)}."
        )
    if final["noise_oracle"] != "none":
        _check_oracle(model, final, sources)


def _check_oracle(model: str, final: dict[str, Any], sources: Mapping[str, str]) -> None:
    oracle = final["noise_oracle"]
    if not final["train_noise"]:
        raise UserError(f"noise_oracle = {oracle} needs train_noise: what else is noise is not known.")
    if final["noise_action"] != "none" and "noise_action" in sources:
        raise UserError(f"noise_oracle = {oracle} takes the detector's place: set noise_action: none.")
    final["noise_action"] = "none"
    if oracle != "remove" and model not in MODELS:
        raise UserError(f"noise_oracle = {oracle} is for {', '.join(MODELS)}; {model} takes remove.")
    if oracle in ("mask", "both") and final["denoise"]:
        raise UserError(f"noise_oracle = {oracle} masks in the place of the denoiser: set denoise: False.")
