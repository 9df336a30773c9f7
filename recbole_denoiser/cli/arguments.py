"""What arguments of several commands have in common."""

from __future__ import annotations

import argparse
from typing import Any

from recbole_denoiser.errors import printable


def positive(text: str) -> int:
    """A whole number from 1 upwards, or argparse's message about it."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, not '{text}'")
    return int(text)


def say(text: object) -> None:
    """Print for a person: control characters that came from a file are written out."""
    print(printable(str(text)))


def add_trust(parser: Any) -> None:
    """--trust_checkpoint: the command line is the only place it comes from."""
    parser.add_argument(
        "--trust_checkpoint", action="store_true", help="allow a pickled checkpoint (RecBole's own), which can run code"
    )


def add_scheduler(parser: Any) -> None:
    """--scheduler of commands that run many processes."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask scheduler such as tcp://host:8786 whose workers see the same folders; default: this machine",
    )


def add_result_dir(parser: Any) -> None:
    """--result_dir of commands that open finished runs."""
    parser.add_argument("--result_dir", default="results", help="where runs given by name are (results)")
