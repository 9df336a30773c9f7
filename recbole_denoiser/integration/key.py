"""One configuration key: its type, allowed values and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Key:
    """One configuration key; ``at_least`` / ``at_most`` are inclusive, ``above`` / ``below`` exclusive."""

    name: str
    type: type
    help: str = ""
    choices: tuple[Any, ...] | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    optional: bool = False

    def allowed(self) -> str:
        """What may be written, in words."""
        if self.choices is not None:
            text = " | ".join(str(choice) for choice in self.choices)
        else:
            text = {int: "a whole number", float: "a number", bool: "True | False", str: "a text", list: "a list"}.get(
                self.type, "a mapping"
            )
            for word, bound in (
                (">=", self.at_least),
                (">", self.above),
                ("<=", self.at_most),
                ("<", self.below),
            ):
                text += f" {word} {bound:g}" if bound is not None else ""
        return f"{text}, or empty" if self.optional else text

    def problem(self, value: Any) -> bool:
        """True if ``value`` is not allowed."""
        if value is None:
            return not self.optional
        if self.choices is not None:
            return value not in self.choices
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.type) or (self.type is not bool and isinstance(value, bool)):
            return True
        return isinstance(value, (int, float)) and not self._in_range(value)

    def _in_range(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )
