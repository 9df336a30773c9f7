"""One configuration key: its type, what it may be, and what it means. Settings are checked here and nowhere else."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

_WORDS = {int: "a whole number", float: "a number", bool: "True | False", str: "a text", list: "a list",
          dict: "a mapping"}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One configuration key; ``at_least`` / ``at_most`` are inclusive, ``above`` / ``below`` exclusive."""

    name: str
    kind: type | tuple[type, ...]  # a whole number is a number, too
    help: str = ""
    choices: tuple[Any, ...] | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    optional: bool = False
    pattern: str | None = None  # of a text
    words: str | None = None  # instead of the generated text of what is allowed

    @classmethod
    def of(cls, field: dataclasses.Field[Any]) -> Key:
        """The key of a setting of the denoiser, from the metadata of its field (core/settings.py)."""
        limits = field.metadata
        return cls(
            field.name,
            limits["type"],
            limits["help"],
            limits["choices"],
            at_least=limits["minimum"],
            above=limits["above"],
            at_most=limits["maximum"],
            below=limits["below"],
            optional=limits["optional"],
        )

    @property
    def types(self) -> tuple[type, ...]:
        """The allowed types."""
        return self.kind if isinstance(self.kind, tuple) else (self.kind,)

    @property
    def is_number(self) -> bool:
        """Whether a number is allowed, so that there must be bounds."""
        return self.choices is None and bool({int, float} & set(self.types))

    def allowed(self) -> str:
        """What may be written, in words."""
        if self.words is not None:
            text = self.words
        elif self.choices is not None:
            text = " | ".join(str(choice) for choice in self.choices)
        else:
            text = " or ".join(_WORDS[kind] for kind in self.types)
            signs = ((">=", self.at_least), (">", self.above), ("<=", self.at_most), ("<", self.below))
            for word, bound in signs:
                text += f" {word} {bound:.12g}" if bound is not None else ""
        return f"{text}, or empty" if self.optional else text

    def problem(self, value: Any) -> bool:
        """True if ``value`` is not allowed."""
        if value is None:
            return not self.optional
        if self.choices is not None:
            return not isinstance(value, (str, int, float)) or value not in self.choices
        if isinstance(value, bool):
            return bool not in self.types
        if isinstance(value, int) and (int in self.types or float in self.types):
            return not self._in_range(value)
        if not isinstance(value, self.types):
            return True
        if isinstance(value, str):
            return "\x00" in value or (self.pattern is not None and not re.fullmatch(self.pattern, value))
        return isinstance(value, float) and not self._in_range(value)

    def _in_range(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
            and value == value  # not NaN
        )
