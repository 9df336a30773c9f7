"""The log of a run in the run's own folder; RecBole's goes to ./log, whatever run it is of.

Lines look as RecBole's do. TensorBoard's events lie beside the log, as RecBole names their folder after it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colorlog import ColoredFormatter
from recbole.utils.logger import RemoveColorFilter, log_colors_config
from torch.utils.tensorboard import SummaryWriter

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.trackers import writes_tensorboard

LOG_FILE = "run.log"
TENSORBOARD_FOLDER = "tensorboard"


class RunLog(logging.FileHandler):
    """Writes what is logged into a run's folder."""

    def __init__(self, folder: Path, continued: bool) -> None:
        super().__init__(folder / LOG_FILE, mode="a" if continued else "w", encoding="utf-8")
        self.folder = folder
        self.setFormatter(logging.Formatter("%(asctime)-15s %(levelname)s  %(message)s", "%a %d %b %Y %H:%M:%S"))
        self.addFilter(RemoveColorFilter())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A full disk costs lines of the log, not the run; logging would print a stack trace per line."""
        print(f"Cannot write {self.baseFilename}: {sys.exc_info()[1]}.", file=sys.stderr)


@contextmanager
def run_log(folder: Path, state: str | None, continued: bool = False) -> Iterator[None]:
    """Inside the context everything logged goes to ``folder/run.log``, too; ``state`` is RecBole's setting.

    Handlers that the program has set stay; where it has none, lines appear on standard error.
    """
    root = logging.getLogger()
    level, before = _level(state), root.level
    if not root.handlers:
        root.addHandler(_console())
    try:
        handler = RunLog(folder, continued)
    except OSError as error:
        raise UserError(f"Cannot write {folder / LOG_FILE}: {error.strerror or error}.") from error
    root.addHandler(handler)  # behind the console's: its filter takes the colours out of the record itself
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        root.setLevel(before)


def _level(state: str | None) -> int:
    """RecBole's levels; another word is INFO, as there."""
    known = {"debug": logging.DEBUG, "warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL}
    return known.get((state or "info").lower(), logging.INFO)


def _console() -> logging.Handler:
    handler = logging.StreamHandler()
    line, date = "%(asctime)-15s %(levelname)s  %(message)s", "%d %b %H:%M"
    if sys.stderr.isatty():
        handler.setFormatter(ColoredFormatter("%(log_color)s" + line, date, log_colors=log_colors_config))
    else:
        handler.setFormatter(logging.Formatter(line, date))
        handler.addFilter(RemoveColorFilter())  # RecBole colours parts of its messages, too
    return handler


def tensorboard(logger: Any, recbole_writer: Callable[[Any], Any]) -> Any:
    """The writer of TensorBoard's events: in the run's folder, or RecBole's where no run of this package is logged."""
    if not writes_tensorboard():
        return _NoTensorBoard()
    for handler in logger.handlers:
        if isinstance(handler, RunLog):
            return SummaryWriter(str(handler.folder / TENSORBOARD_FOLDER))
    return recbole_writer(logger)


class _NoTensorBoard:
    """Takes what a SummaryWriter takes and writes nothing."""

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        """No figure is written."""

    def add_hparams(self, *args: Any, **kwargs: Any) -> None:
        """No settings are written."""

    def close(self) -> None:
        """Nothing is open."""
