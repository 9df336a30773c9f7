"""The explain page: history, links and masks of one or several users in one file."""

from __future__ import annotations

from pathlib import Path

from recbole_denoiser.analysis.explain import Explanation
from recbole_denoiser.files import write_text
from recbole_denoiser.report.html import page, template

STYLES = ("base.css", "controls.css", "explain.css")
SCRIPTS = ("base.js", "links.js", "matrix.js", "what_if.js", "explain.js")


def explain_html(explanation: Explanation) -> str:
    """The page as text."""
    data = explanation.data
    title = f"{data['label']} on {data['dataset']}: what it reads"
    return page(title, STYLES, SCRIPTS, template("explain.html"), data)


def write_explain_page(explanation: Explanation, file: Path) -> None:
    """Write the page."""
    write_text(file, explain_html(explanation))
