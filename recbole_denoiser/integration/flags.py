"""Settings of the command line: ``--name=text``."""

from __future__ import annotations

from typing import Any

from recbole_denoiser.integration.recbole_schema import RECBOLE_KEYS
from recbole_denoiser.integration.schema import PACKAGE_KEYS
from recbole_denoiser.integration.values import parse_value

_EMPTY = ("", "None", "~", "null")


def flag_value(name: str, text: str) -> Any:
    """What a flag says; a setting that is a free text stays one, so that ``--run_name=3.10`` is no number."""
    key = PACKAGE_KEYS.get(name) or RECBOLE_KEYS.get(name)
    if key is not None and key.types == (str,) and key.choices is None and text not in _EMPTY:
        return text
    return parse_value(text)
