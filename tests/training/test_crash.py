"""A short version of tests/soak/crash.py, and folders that cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs import pipeline

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))
import crash


def test_three_kills_change_nothing_and_a_full_disk_loses_nothing(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 8, "stopping_step": 8}
    hits = crash.crash(flags, kills=3)
    assert sum(hits.values()) == 3
    assert hits["finished"] < 3
    assert "File too large" in crash.full_disk(flags, limit=50_000)


@pytest.mark.parametrize("key", ["checkpoint_dir", "result_dir"])
def test_a_folder_that_cannot_be_written_is_told_before_training(workplace: Path, settings: dict, key: str) -> None:
    Path("taken").write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"Cannot write in taken"):
        pipeline.run(dataset="toy", flags={**settings, key: "taken/inner"})


def test_a_log_that_cannot_be_written(workplace: Path, settings: dict, capsys: pytest.CaptureFixture) -> None:
    Path("results/r/run.log").mkdir(parents=True)
    assert main(["run", "--dataset=toy", "--run_name=r", *(f"--{key}={value}" for key, value in settings.items())]) == 2
    assert "Cannot write results/r/run.log: Is a directory" in capsys.readouterr().err
