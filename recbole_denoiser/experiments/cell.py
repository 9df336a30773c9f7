"""One cell of a grid in a process of its own: ``python -m recbole_denoiser.experiments.cell <folder>``.

The folder holds ``cell.yaml`` (model, data set and settings). Its lock sees to it that no two processes work on one
run, and is free as soon as its holder is gone; the next one continues after the last finished epoch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.attempt import end_with_starter
from recbole_denoiser.files import write_text
from recbole_denoiser.integration.values import read_yaml
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.record import RESULT_FILE

CELL_FILE = "cell.yaml"
LOCK_FILE = ".cell.lock"


def write_cell(folder: Path, model: str, dataset: str, settings: dict[str, Any]) -> None:
    """What ``run_cell`` needs to know, in ``<folder>/cell.yaml``."""
    content = {"model": model, "dataset": dataset, "settings": settings}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_text(folder / CELL_FILE, text)


def lock_of(folder: Path) -> FileLock:
    """The lock that a process holds while it works on the run in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / LOCK_FILE, is_singleton=True)  # one process may ask for it again inside


def run_cell(folder: Path) -> None:
    """Train and test the cell unless it is finished; waits while another process is at it."""
    with lock_of(folder):
        if not (folder / RESULT_FILE).is_file():
            cell = read_yaml(folder / CELL_FILE)
            pipeline.run(cell["model"], cell["dataset"], config_dict={**cell["settings"], "resume": True})


def main(arguments: list[str]) -> int:
    """Exit codes: 0 finished, 2 a mistake of the user."""
    end_with_starter()
    try:
        run_cell(Path(arguments[0]))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
