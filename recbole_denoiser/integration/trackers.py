"""Which trackers get a run's figures (the setting ``tracker``); training/tracking.py has the trackers themselves."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.key import Key

NAMES = ("tensorboard", "wandb", "mlflow")
_ONE = "|".join(NAMES)
TRACKER = Key(
    "tracker",
    str,
    "Where settings, losses by term, metrics, kept shares and estimated noise go besides `result.json`; "
    "`log_wandb: True` adds wandb. wandb and mlflow are extras.",
    pattern=f"none|({_ONE})(, *({_ONE}))*",
    words=f"{' | '.join(NAMES)} | none, or several with commas between them",
)
_recboles_tensorboard = ContextVar("recboles_tensorboard", default=True)


def chosen(settings: Mapping[str, Any]) -> list[str]:
    """The names of the trackers, each once. Of several processes only the first has any."""
    if _rank() != 0:
        return []
    text = settings["tracker"] or "tensorboard"  # runs of earlier versions have no such setting
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    return list(dict.fromkeys(names + (["wandb"] if settings["log_wandb"] else [])))


def _rank() -> int:
    from recbole_denoiser.integration.parallel import rank  # it imports torch, and run --help reads this file's key

    return rank()


def require_installed(settings: Mapping[str, Any]) -> None:
    """UserError that names the extra of a chosen tracker that is not there."""
    for name in chosen(settings):
        if importlib.util.find_spec(name) is None and name != "tensorboard":
            raise UserError(f"tracker: {name} needs the package {name}: pip install 'recbole-denoiser[{name}]'.")


@contextmanager
def without_recboles_own(config: Any) -> Iterator[None]:
    """RecBole's trainer, built inside the context, opens no W&B run, and TensorBoard only where it is chosen."""
    wandb, config["log_wandb"] = config["log_wandb"], False
    token = _recboles_tensorboard.set("tensorboard" in chosen(config))
    try:
        yield
    finally:
        _recboles_tensorboard.reset(token)
        config["log_wandb"] = wandb


def writes_tensorboard() -> bool:
    """Whether RecBole's trainer, built now, writes TensorBoard files."""
    return _rank() == 0 and _recboles_tensorboard.get()
