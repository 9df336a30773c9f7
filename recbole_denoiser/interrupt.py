"""Ctrl-C during an import of the command line is one line, not a stack trace.

An import cannot be interrupted cleanly: modules and C extensions of torch, NumPy and Python itself swallow
KeyboardInterrupt, or turn it into an ImportError. So the process of a command ends at once where it is importing or
has not begun its work; there is nothing to lose yet. Everywhere else KeyboardInterrupt is raised as always. Programs
that import this package keep their own rule.

Only what Python has loaded at its start is imported here: the sooner this stands, the better.
"""

from __future__ import annotations

import _signal
import os
import sys
from types import FrameType

EXIT_CODE = 130  # that of a shell for a program that SIGINT ended
_COMMANDS = ("recbole-denoiser", "run_recbole_denoiser.py")
_state = {"at work": False}


def at_work(now: bool) -> None:
    """From here on KeyboardInterrupt is caught by the command (True), or no longer (False)."""
    _state["at work"] = now


def quiet_start() -> None:
    """If this process is the command: Ctrl-C is one line from now on."""
    if _is_command() and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _interrupt)


def _is_command() -> bool:
    first = getattr(sys, "argv", [""])[:1]
    if first == ["-m"]:  # python -m <module>: its package is imported before Python knows the file
        words = sys.orig_argv
        return words[words.index("-m") + 1 :][:1] == ["recbole_denoiser"]
    return bool(first) and os.path.basename(first[0]).startswith(_COMMANDS)  # noqa: PTH119 - pathlib is not loaded yet


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _state["at work"] and not _importing(frame):
        raise KeyboardInterrupt
    os.write(2, b"\nInterrupted.\n")
    os._exit(EXIT_CODE)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
