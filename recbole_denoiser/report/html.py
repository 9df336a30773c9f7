"""Standalone pages: one file with its style, script and data inside, which asks the network for nothing.

Data goes into a block of JSON in which no character can end the block. The content security policy allows the page's
own script by its hash and forbids everything else, so that a title that looks like markup stays a title.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def template(*names: str) -> str:
    """The text of template files, one after the other."""
    folder = resources.files("recbole_denoiser.report").joinpath("templates")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def fill(text: str, **values: str) -> str:
    """``{{name}}`` replaced by its value, in one pass: what is put in is not searched again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def json_block(data: Any) -> str:
    """Data for a script to read, as a block that is not executed."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return f'<script type="application/json" id="data">{text}</script>'


def page(title: str, styles: tuple[str, ...], scripts: tuple[str, ...], body: str, data: Any = None) -> str:
    """A whole page from template files; ``body`` is markup, everything else is escaped here."""
    script = template(*scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return fill(
        template("page.html"),
        title=html.escape(title),
        style=template(*styles),
        script=script,
        script_hash=f"sha256-{digest}",
        body=body,
        data="" if data is None else json_block(data),
    )
