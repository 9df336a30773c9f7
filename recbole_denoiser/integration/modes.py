"""Modes of evaluation: the rank among all items (``full``), among those that the user has not interacted with before
(``unseen``), or among N sampled ones (``uniN``, ``popN``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recbole_denoiser.errors import UserError

MODE = re.compile("full|unseen|(uni|pop)[1-9][0-9]*")
ALLOWED = "full, unseen, uniN or popN with a number N"


def is_full(mode: str) -> bool:
    """Whether every item is scored."""
    return mode in ("full", "unseen")


def check_modes(settings: Mapping[str, Any]) -> None:
    """UserError unless ``eval_modes`` are modes that this package can measure beside ``eval_args.mode``."""
    modes = settings.get("eval_modes") or []
    bad = [mode for mode in modes if not (isinstance(mode, str) and MODE.fullmatch(mode))]
    if bad or len(set(modes)) < len(modes):
        raise UserError(
            f"eval_modes = {modes} is not allowed: different ones of full, unseen, uniN and popN, as a list."
        )
    sampled = not all(is_full(mode) for mode in modes)
    if sampled and not (settings["fast_eval"] and settings["eval_negatives"] == "frozen"):
        raise UserError("eval_modes with sampled negatives needs fast_eval: True and eval_negatives: frozen.")
