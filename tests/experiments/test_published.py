"""Every published run is a finished cell of the experiment file beside it, and the report says how many of each are still to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recbole_denoiser.experiments.plan import PlannedRun, load_experiment, plan

PUBLISHED = Path(__file__).parents[2] / "published"
EXPERIMENTS = sorted(PUBLISHED.glob("*.yaml"))
REPORT = (PUBLISHED / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[.*$", re.MULTILINE)  # a row of the report's first table starts with links to folders
LINK = re.compile(r"\]\(([\w-]+)/table\.md\)")
COUNT = re.compile(r"(\d+) of (\d+)")
NOT_BEGUN = re.compile(r"\]\(([\w-]+)\.yaml\), (\d+)")


def planned(file: Path) -> list[PlannedRun]:
    """The cells of an experiment, whatever today's defaults and data folders are."""
    return plan(load_experiment(str(file)), PUBLISHED, {"data_path": "nowhere"})


def reported() -> dict[str, tuple[int, int]]:
    """Runs finished and planned by experiment, as the report's first table and its list of what was not run say."""
    found = {name: (0, int(total)) for name, total in NOT_BEGUN.findall(REPORT)}
    for row in ROW.findall(REPORT):
        names, counts = LINK.findall(row), COUNT.findall(row)
        assert len(names) == len(counts) or not counts, row
        found |= {name: (int(done), int(total)) for name, (done, total) in zip(names, counts, strict=False)}
    return found


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_published_runs_are_finished_cells(file: Path) -> None:
    finished = {run.name for run in planned(file) if run.finished}
    assert finished == {result.parent.name for result in (PUBLISHED / file.stem).glob("*/result.json")}


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_the_report_says_how_many_runs_are_finished(file: Path) -> None:
    runs = planned(file)
    assert reported().get(file.stem) == (sum(run.finished for run in runs), len(runs))
