"""What arguments of several commands have in common."""

from __future__ import annotations

import argparse
from typing import Any


def positive(text: str) -> int:
    """A whole number from 1 upwards, or argparse's message about it."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, not '{text}'")
    return int(text)


def add_result_dir(parser: Any) -> None:
    """--result_dir of commands that open finished runs."""
    parser.add_argument("--result_dir", default="results", help="where runs given by name are (results)")
