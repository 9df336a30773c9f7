"""One cell of a grid in a process of its own: ``python -m recbole_denoiser.experiments.cell <folder>``.

The folder holds ``cell.yaml`` (model, data set and settings). The process claims the folder, so that no other one works
on the same run, and continues where an earlier attempt was killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import yaml

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import claim
from recbole_denoiser.files import write_text
from recbole_denoiser.integration.config import read_yaml
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.record import RESULT_FILE

CELL_FILE = "cell.yaml"
TAKEN = 3  # exit code: another process has this run


def write_cell(folder: Path, model: str, dataset: str, settings: dict[str, Any]) -> None:
    """What ``run_cell`` needs to know, in ``<folder>/cell.yaml``."""
    content = {"model": model, "dataset": dataset, "settings": settings}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_text(folder / CELL_FILE, text)


def run_cell(folder: Path) -> bool:
    """Train and test the cell unless it is finished; False if another process has it."""
    cell = read_yaml(folder / CELL_FILE)
    number = claim.claim(folder)
    if number is None:
        return False
    try:
        if not (folder / RESULT_FILE).is_file():  # it may have been finished just before the claim
            pipeline.run(cell["model"], cell["dataset"], config_dict={**cell["settings"], "resume": True})
    finally:
        claim.release(folder, number, finished=(folder / RESULT_FILE).is_file())
    return True


def run_or_wait(folder: Path) -> None:
    """Run the cell in this process, or wait for the process that has it; in the end it is finished."""
    while not (folder / RESULT_FILE).is_file():
        if not run_cell(folder):
            time.sleep(0.5)


def main(arguments: list[str]) -> int:
    """Exit codes: 0 finished, 2 a mistake of the user, 3 another process has it."""
    try:
        return 0 if run_cell(Path(arguments[0])) else TAKEN
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
