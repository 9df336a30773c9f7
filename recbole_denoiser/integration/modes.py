"""Modes of evaluation: ranking all items (``full``), or N sampled ones (``uniN``, ``popN``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recbole_denoiser.errors import UserError

MODE = re.compile("full|(uni|pop)[1-9][0-9]*")


def check_modes(settings: Mapping[str, Any]) -> None:
    """UserError unless ``eval_modes`` are modes that this package can measure beside ``eval_args.mode``."""
    modes = settings.get("eval_modes") or []
    bad = [mode for mode in modes if not (isinstance(mode, str) and MODE.fullmatch(mode))]
    if bad or len(set(modes)) < len(modes):
        raise UserError(f"eval_modes = {modes} is not allowed: different ones of full, uniN and popN, as a list.")
    sampled = any(mode != "full" for mode in modes)
    if sampled and not (settings["fast_eval"] and settings["eval_negatives"] == "frozen"):
        raise UserError("eval_modes with sampled negatives needs fast_eval: True and eval_negatives: frozen.")
