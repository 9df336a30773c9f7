"""Pieces of a report's page: sections, tables, figures. Everything that is not ``Markup`` is escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recbole_denoiser.report.figures import Figure

_LINES = {"-": "solid", "--": "dashed", "-.": "dashed", ":": "dotted"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


class Figures:
    """Files that were drawn, and their markup."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, list[Path]()

    def stem(self, name: str) -> Path:
        """Where a figure's files go; they get a number each."""
        return self.folder / name

    def show(self, figure: Figure, caption: str) -> str:
        """The panels beside each other with one legend; nothing if nothing was drawn."""
        if not figure.files:
            return ""
        self.files += figure.files
        text = escape(caption)
        images = []
        for file in figure.files:
            if file.suffix == ".svg":
                source = "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
                images.append(f'<img src="{source}" alt="{text}">')
        entries = [
            f'<span><i style="border-top: 3px {_LINES[style]} {colour}"></i>{escape(name)}</span>'
            for name, colour, style in figure.legend
        ]
        legend = f'<p class="legend small">{"".join(entries)}</p>' if len(entries) > 1 else ""
        panels = f'<div class="panels">{"".join(images)}</div>'
        return f"<figure>{legend}{panels}<figcaption>{text}</figcaption></figure>"


def section(title: str, *parts: str) -> str:
    """A panel of the page; nothing if it has no content."""
    inside = "\n".join(part for part in parts if part)
    return f'<section class="panel"><h2>{escape(title)}</h2>\n{inside}\n</section>' if inside else ""


def folded(title: str, inside: str) -> str:
    """Something that opens when asked for."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Cells are text; numbers, which stand to the right, begin behind ``text_columns``."""
    head = "".join(_cell("th", cell, place >= text_columns) for place, cell in enumerate(header))
    body = "".join(
        "<tr>" + "".join(_cell("td", cell, place >= text_columns) for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(tag: str, text: str, number: bool) -> str:
    inside = text if isinstance(text, Markup) else escape(text)
    kind = ' class="number"' if number else ""
    return f"<{tag}{kind}>{inside}</{tag}>"


def note(text: str) -> str:
    """A line in small print."""
    return f'<p class="note small muted">{escape(text)}</p>'
