"""What all figures share: panels, one legend, colours, and files that are the same for the same numbers.

Colour, marker and line style all tell lines apart, in the colour-blind-safe palette of Okabe and Ito.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import write_atomically

COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")
MOST_COLUMNS = 3  # panels beside each other


def look(number: int) -> tuple[str, str]:
    """Colour and line style of the line with this number; where colours come again, the style is another."""
    return COLOURS[number % len(COLOURS)], STYLES[(number + number // len(COLOURS)) % len(STYLES)]


def marker(number: int) -> str:
    """Marker of the line with this number, another than that of the line before it in the same colour."""
    return MARKERS[(number + 3 * (number // len(COLOURS))) % len(MARKERS)]


def panels(count: int, size: tuple[float, float], margin: tuple[float, float] = (0.0, 0.0)) -> tuple[Any, list[Any]]:
    """A figure with ``count`` axes of about ``size`` inches, MOST_COLUMNS in a row, and room in the margin."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("Figures need matplotlib: pip install 'recbole-denoiser[plots]'.") from None
    columns = min(count, MOST_COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(margin[0] + size[0] * columns, margin[1] + size[1] * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.remove()
    for axis in axes[:count]:
        axis.grid(alpha=0.3, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def legend(figure: Any, axes: list[Any]) -> None:
    """One legend for all panels, beside them: lines may lie anywhere inside."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), loc="outside right upper", frameon=False, fontsize="small")


def save(figure: Any, stem: Path, plain_text: bool = False) -> list[Path]:
    """``<stem>.png`` and ``<stem>.svg``, the latter without a date so that the same numbers give the same file.

    ``plain_text``: labels are what they say, whatever characters they have, and nothing is a formula.
    """
    import matplotlib
    from matplotlib.text import Text

    if plain_text:
        for text in figure.findobj(match=Text):
            text.set_parse_math(False)
    files = []
    with matplotlib.rc_context({"svg.hashsalt": "recbole-denoiser", "svg.fonttype": "none"}):
        for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}, "transparent": plain_text})):
            file = stem.with_name(f"{stem.name}.{kind}")
            write_atomically(file, lambda stream, k=kind, o=options: figure.savefig(stream, format=k, **o))
            files.append(file)
    return files
