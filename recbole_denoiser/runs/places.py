"""The one folder of a run: ``<result_dir>/<run>/`` with its log, TensorBoard events, checkpoints and results.

``checkpoint_dir``, if the user sets it, gets the checkpoints instead, under the run's name.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

from recbole_denoiser import files
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.logs import LOG_FILE
from recbole_denoiser.runs import results
from recbole_denoiser.runs.record import RESULT_FILE
from recbole_denoiser.training.checkpoint import LAST_FILE


def place_run(config: Any) -> Path:
    """Give the run its name and its places, in the configuration too; returns its folder.

    A finished run is never replaced unless the user says so (overwrite): a name that the user gave is refused, and one
    that was made of the settings gets a number.
    """
    named = bool(config["run_name"])
    name = results.run_name(config)
    if not named and not config["overwrite"]:
        name = parallel.from_first(lambda: _numbered(Path(config["result_dir"]), name, bool(config["resume"])))
    config["run_name"] = name
    folder = Path(config["result_dir"]) / name
    finished = parallel.from_first((folder / RESULT_FILE).is_file)
    if finished and named and not config["overwrite"] and not config["resume"]:
        raise UserError(f"{folder} is a finished run. Choose another --run_name, or replace it: --overwrite.")
    if "checkpoint_dir" not in config.external_config_dict and not parallel.from_first(lambda: _is_old(config, folder)):
        config["checkpoint_dir"] = str(folder)
    if parallel.rank() == 0:
        for place in dict.fromkeys((folder, Path(config["checkpoint_dir"]))):
            files.require_writable(place)
    return folder


@contextmanager
def forget_unless_begun(folder: Path) -> Iterator[None]:
    """A mistake before there is anything but a log (no such data set, say) leaves no folder behind."""
    try:
        yield
    except UserError:
        if {file.name for file in folder.iterdir()} <= {LOG_FILE}:
            shutil.rmtree(folder)
        raise


def _numbered(result_dir: Path, name: str, resume: bool) -> str:
    """``name``, ``name-2``, ...: the first that is no finished run, or with ``resume`` the last that there is."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    found = [*itertools.takewhile(lambda known: (result_dir / known / RESULT_FILE).is_file(), names)]
    chosen = name if not found else f"{name}-{len(found) + 1}"
    if not found or (resume and not (result_dir / chosen).is_dir()):
        return found[-1] if found else name
    getLogger().warning(
        "%s is finished already; this run is %s (--overwrite would replace the first).", result_dir / name, chosen
    )
    return chosen


def _is_old(config: Any, folder: Path) -> bool:
    """Is this the continuation of a run of release 0.1, whose checkpoints were in RecBole's folder saved/?"""
    old = Path(config["checkpoint_dir"]) / f"{config['run_name']}.last.pth"
    return bool(config["resume"]) and not (folder / LAST_FILE).is_file() and old.is_file()
