"""For mkdocstrings: examples of docstrings (``>>> ...``) become blocks of code instead of quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.MULTILINE)  # up to the next empty line


def fenced(text: str) -> str:
    """Every example of a docstring between fences."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class ExamplesAsCode(griffe.Extension):
    """Changes the docstrings that the pages show, not the code's."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
