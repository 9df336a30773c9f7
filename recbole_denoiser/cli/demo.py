"""``recbole-denoiser demo``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def add_commands(command: Callable[..., Any]) -> None:
    """Register the command; ``command`` is main.py's registrar."""
    command("demo", _demo, settings=True)


def _demo(options: Any) -> None:
    from recbole_denoiser.experiments.demo import demo

    print(demo(options.settings))
