"""Checkpoints that hold tensors and plain data only, are written atomically and resume exactly."""

from __future__ import annotations

import pickle
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.config import Config as RecBoleConfig

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import write_atomically
from recbole_denoiser.integration.config import plain_value
from recbole_denoiser.integration.earlier import with_earlier
from recbole_denoiser.integration.parameters import other_parameters
from recbole_denoiser.integration.schema import DERIVED, PLACES

FORMAT = 1  # raised when the content of a checkpoint changes
BEST_FILE, LAST_FILE = "model.pth", "last.pth"  # in a run's own folder


def files_of(config: Any) -> tuple[Path, Path]:
    """The checkpoints of a run, best and newest epoch: in its own folder, or under its name in ``checkpoint_dir``."""
    folder, name = Path(config["checkpoint_dir"]), config["run_name"]
    under_name = folder / f"{name}.pth", folder / f"{name}.last.pth"
    begun_by_release_1 = config["resume"] and under_name[1].is_file()
    if folder != Path(config["result_dir"]) / name or begun_by_release_1:
        return under_name
    return folder / BEST_FILE, folder / LAST_FILE


def save(state: dict[str, Any], file: Path) -> None:
    """Write a checkpoint."""
    write_atomically(Path(file), lambda stream: torch.save({"format": FORMAT, **state}, stream))


def load(file: str | Path, device: Any = "cpu", trust: bool = False) -> dict[str, Any]:
    """Read a checkpoint; nothing in the file can run code unless ``trust`` is set."""
    file = Path(file)
    if not file.is_file():
        raise UserError(f"Checkpoint '{file}' {'is no file' if file.exists() else 'does not exist'}.")
    try:
        state = torch.load(file, map_location=device, weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"Checkpoint '{file}' is damaged, or holds pickled objects, which can run code, as RecBole's own do. "
            f"If you trust its origin, say --trust_checkpoint."
        ) from error
    except (
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
        KeyError,
        AttributeError,
        ImportError,
        zipfile.BadZipFile,
    ) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"Checkpoint '{file}' cannot be read; it may be cut off: {reason}") from error
    if not isinstance(state, dict) or not isinstance(state.get("state_dict"), dict) or state.get("config") is None:
        raise UserError(f"'{file}' is not a checkpoint: it has no model weights and settings.")
    if not isinstance(state["config"], dict) and not (trust and isinstance(state["config"], RecBoleConfig)):
        raise UserError(f"'{file}' is not a checkpoint: its settings are no mapping.")
    if state.get("format", FORMAT) != FORMAT:
        raise UserError(f"Checkpoint '{file}' has format {state['format']}; this version reads format {FORMAT}.")
    return state


def load_weights(model: Any, state: dict[str, Any], file: str | Path, fresh: str | None = None) -> None:
    """Put the checkpoint's weights into ``model``; a model of another shape is the user's mistake.

    Weights whose names begin with ``fresh`` may be missing in the checkpoint, or be there for nothing.
    """
    weights = state["state_dict"]
    try:
        if fresh is not None:
            own = {name: value for name, value in model.state_dict().items() if name.startswith(fresh)}
            other = {name: value for name, value in weights.items() if not name.startswith(fresh) or name in own}
            weights = {**own, **other}
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError, ValueError) as error:
        settings = plain_settings(state)
        origin = f"{settings.get('model')} on {settings.get('dataset')}"
        lines = str(error).splitlines()
        reason = "; ".join(line.strip() for line in lines[1:3] or lines)
        raise UserError(f"The weights in '{file}' (of {origin}) do not fit this model: {reason}") from error
    other = state.get("other_parameter") or {}
    # a file must not set attributes of its own choice; RecBole's own files also hold modules, which are weights
    if not set(other_parameters(model) or {}) <= set(other) <= set(model.other_parameter() or {}):
        raise UserError(f"'{file}' is damaged: its other_parameter is not that of {type(model).__name__}.")
    model.load_other_parameter(other)


def plain_settings(state: dict[str, Any]) -> dict[str, Any]:
    """The settings in a checkpoint as plain values; a trusted one of RecBole's holds a Config."""
    settings = state["config"]
    found = settings if isinstance(settings, dict) else settings.final_config_dict
    return {key: plain_value(value) for key, value in found.items()}


# ---- resuming ----

# what a checkpoint needs to be resumed, beside weights and settings; RecBole's own lack most of it
_RESUME: dict[str, type | tuple[type, ...]] = {
    "epoch": int, "cur_step": int, "stopped": bool, "best_epoch": int, "best_valid_score": (int, float),
    "history": list, "optimizer": dict, "scaler": dict, "random": (dict, list), "loader": torch.Tensor,
}  # fmt: skip
_MAY_CHANGE = PLACES | DERIVED | {"epochs"}


def require_resumable(
    state: dict[str, Any], settings: dict[str, Any], identity: dict[str, str] | None, file: str | Path
) -> None:
    """UserError unless the checkpoint is complete, and of the same settings and data: other ones would be reported for
    all epochs. ``epochs``, and where and how the run runs, may change.
    """
    missing = [name for name, kind in _RESUME.items() if not isinstance(state.get(name), kind)]
    if not missing and not all(isinstance(record, dict) for record in state["history"]):
        missing = ["history"]
    if missing:
        raise UserError(
            f"'{file}' cannot be resumed: it lacks {', '.join(missing)}. RecBole's own checkpoints keep no state of "
            f"the training; leave --resume out to begin again."
        )
    before, now = plain_settings(state), {key: plain_value(value) for key, value in settings.items()}
    if not {"model", "dataset", "seed"} <= before.keys():
        raise UserError(f"'{file}' cannot be resumed: its settings are not complete.")
    before = with_earlier(before, known=now)
    # another setting that only one of the two knows belongs to another version of this package or of RecBole
    changed = [name for name in sorted(before.keys() & now.keys() - _MAY_CHANGE) if before[name] != now[name]]
    if changed:
        some = ", ".join(f"{name} {before[name]!r} (now {now[name]!r})" for name in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise UserError(
            f"'{file}' was begun with other settings: {some}{more}. Only epochs and places may change; leave --resume "
            f"out, or choose another run_name."
        )
    known = state.get("data")
    if known is not None and identity is not None and known != identity:
        raise UserError(
            f"'{file}' was begun on other data: the data set has changed since. Put the old file back, or leave "
            f"--resume out."
        )


@contextmanager
def damage_is_told(file: str | Path) -> Iterator[None]:
    """Whatever torch and NumPy raise for a state that is not theirs is one message."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"'{file}' cannot be resumed, it is damaged: {reason}") from error


# ---- random number generators, for exact resuming ----


def random_states() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's generators as tensors and plain data."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Inverse of ``random_states``."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])


# ---- RecBole's own entry points (see compat.py) ----


def save_recbole_checkpoint(self: Any, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
    """Replaces ``Trainer._save_checkpoint``: the same content, with the configuration as plain values."""
    if not self.config["single_spec"] and self.config["local_rank"] != 0:
        return
    file = kwargs.pop("saved_model_file", self.saved_model_file)
    save(
        {
            "config": {key: plain_value(value) for key, value in self.config.final_config_dict.items()},
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_valid_score": float(self.best_valid_score),
            "state_dict": self.model.state_dict(),
            "other_parameter": other_parameters(self.model),
            "optimizer": self.optimizer.state_dict(),
        },
        Path(file),
    )
    if verbose:
        self.logger.info("Saving current: %s", file)
