"""One setting of a dataclass: its default, its meaning and what it may be, in one place.

The limits stand in the field's metadata, so that checks, help texts, documentation and configuration files all read the
same words. Keys of the metadata: type (int, float, bool, str or tuple), help, choices, minimum and maximum (inclusive),
above and below (exclusive), optional (None is allowed), public (False: the model sets it, a user does not).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from recbole_denoiser.errors import UserError


def setting(
    kind: type,
    help: str,
    default: Any = dataclasses.MISSING,
    *,
    choices: tuple[str, ...] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    optional: bool = False,
    public: bool = True,
    words: str | None = None,
) -> Any:
    """A dataclass field with its limits; `words` replaces the generated text of what is allowed."""
    metadata = {
        "type": kind, "help": help, "choices": choices, "minimum": minimum, "maximum": maximum, "above": above,
        "below": below, "optional": optional, "public": public, "words": words,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


def allowed_words(field: dataclasses.Field[Any]) -> str:
    """What a setting may be, in words."""
    limits = field.metadata
    if limits["words"] is not None:
        return str(limits["words"])
    if limits["choices"] is not None:
        text = f"one of {', '.join(limits['choices'])}"
    elif limits["type"] is bool:
        text = "True or False"
    else:
        text = {int: "a whole number", float: "a number", str: "a text", tuple: "a list"}[limits["type"]]
        signs = ((">=", "minimum"), (">", "above"), ("<=", "maximum"), ("<", "below"))
        bounds = [f"{sign} {limits[name]:.12g}" for sign, name in signs if limits[name] is not None]
        text = " ".join([text, " and ".join(bounds)]).rstrip()
    return f"None or {text}" if limits["optional"] else text


def is_allowed(field: dataclasses.Field[Any], value: Any) -> bool:
    """Does `value` have the type of the setting, and is it within its limits?"""
    limits, kind = field.metadata, field.metadata["type"]
    if value is None:
        return bool(limits["optional"])
    if limits["choices"] is not None:
        return isinstance(value, str) and value in limits["choices"]
    if kind is tuple:
        return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(item, str) for item in value)
    if kind in (bool, str):
        return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        return False
    return (isinstance(value, int) or math.isfinite(value)) and _in_range(limits, value)


def _in_range(limits: Any, value: float) -> bool:
    return (
        (limits["minimum"] is None or value >= limits["minimum"])
        and (limits["maximum"] is None or value <= limits["maximum"])
        and (limits["above"] is None or value > limits["above"])
        and (limits["below"] is None or value < limits["below"])
    )


def check_settings(settings: Any) -> None:
    """Raise a UserError at the first field of a dataclass of settings whose value is not allowed."""
    for field in dataclasses.fields(settings):
        if not is_allowed(field, getattr(settings, field.name)):
            refuse(settings, field.name, allowed_words(field))


def refuse(settings: Any, key: str, allowed: str) -> None:
    """Raise the UserError that names a setting, its value and what is allowed."""
    raise UserError(f"Denoiser setting {key} is {getattr(settings, key)!r}; allowed: {allowed}.")
