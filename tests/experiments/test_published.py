"""Every published run is a finished cell of the experiment file beside it, whatever today's defaults are."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_denoiser.experiments.plan import load_experiment, plan

PUBLISHED = Path(__file__).parents[2] / "published"


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("*.yaml")), ids=lambda file: file.stem)
def test_published_runs_are_finished_cells(file: Path) -> None:
    planned = {
        run.name for run in plan(load_experiment(str(file)), PUBLISHED, {"data_path": "nowhere"}) if run.finished
    }
    runs = {result.parent.name for result in (PUBLISHED / file.stem).glob("*/result.json")}
    assert runs and runs == planned
