"""Everything that a run writes lies in one folder, and a finished run is never replaced without a word."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.logs import RunLog, run_log
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.record import load_run

# TensorBoard's own names hold the time and the machine
FILES = {"last.pth", "model.pth", "negatives.npz", "ranks.npz", "result.json", "run.log", "tensorboard", "tokens.npz"}


def written(folder: Path) -> set[str]:
    """Every file below ``folder``."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("model", ["SASRecDenoiser", "SASRec"])
def test_one_folder_holds_everything(workplace: Path, settings: dict, model: str) -> None:
    flags = {**settings, "result_dir": "chosen", "run_name": "r", "state": "INFO"}
    result = pipeline.run(model, "toy", flags=flags)
    assert names(workplace) == {"chosen"}
    assert names(workplace / "chosen") == {"r"}
    assert names(workplace / "chosen/r") == FILES
    assert all(Path(file).name.startswith("events.") for file in written(workplace / "chosen/r/tensorboard"))
    assert result["checkpoint"] == "chosen/r/model.pth"
    log = (workplace / "chosen/r/run.log").read_text()
    assert log.count("INFO  Run r\n") == 1
    assert "\x1b" not in log  # no colours

    pipeline.run(model, "toy", flags={**flags, "run_name": "other"})  # a second run of the process has its own log
    assert (workplace / "chosen/r/run.log").read_text() == log
    assert "Run other" in (workplace / "chosen/other/run.log").read_text()
    assert not any(isinstance(handler, RunLog) for handler in logging.getLogger().handlers)


@pytest.mark.parametrize("terminal", [False, True])
def test_where_nobody_has_set_a_handler_lines_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, terminal: bool
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with run_log(tmp_path, "WARNING"):
        logging.getLogger().info("not shown")
        logging.getLogger().warning("\x1b[1;34mshown\x1b[0m")
    shown = capsys.readouterr().err
    assert "shown" in shown and "not shown" not in shown
    assert ("\x1b" in shown) is terminal
    assert (tmp_path / "run.log").read_text().endswith("WARNING  shown\n")


def test_removed_noise_is_kept_with_the_run_and_found_once_for_all(workplace: Path, settings: dict) -> None:
    flags = {**settings, "train_noise": 0.2, "noise_action": "remove"}
    for seed in (1, 2):
        pipeline.run(dataset="toy", flags={**flags, "noise_seed": 5, "seed": seed, "run_name": str(seed)})
    assert names(workplace) == {"results"}
    assert names(workplace / "results") == {"1", "2", ".detect"}
    assert len(names(workplace / "results/.detect")) == 1
    own = FILES | {"noise.npz", "detection.npz"}
    assert own <= names(workplace / "results/1") <= own | {"detector.npz"}  # none where the data cannot be judged


def test_checkpoint_dir_of_the_user_is_respected(workplace: Path, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags={**settings, "checkpoint_dir": "mine", "run_name": "r"})
    assert result["checkpoint"] == "mine/r.pth"
    assert names(workplace / "mine") == {"r.pth", "r.last.pth"}
    assert names(workplace / "results/r") == FILES - {"model.pth", "last.pth"}


def test_a_finished_run_is_not_replaced(workplace: Path, settings: dict, caplog: pytest.LogCaptureFixture) -> None:
    flags = {**settings, "epochs": 1}
    first, second, third = (pipeline.run(dataset="toy", flags=flags) for _ in range(3))
    assert [second["run"], third["run"]] == [f"{first['run']}-2", f"{first['run']}-3"]
    assert second["test"] == first["test"]
    assert f"{first['run']} is finished already; this run is {third['run']}" in caplog.text
    again = pipeline.run(dataset="toy", flags={**flags, "resume": True})  # the newest one
    assert (again["run"], again["test"]) == (third["run"], third["test"])
    replaced = pipeline.run(dataset="toy", flags={**flags, "overwrite": True})
    assert replaced["run"] == first["run"]
    assert len(names(workplace / "results")) == 3

    (workplace / "results" / second["run"] / "result.json").unlink()  # as if it had been interrupted
    assert pipeline.run(dataset="toy", flags=flags)["run"] == second["run"]
    pipeline.run(dataset="toy", flags={**flags, "run_name": "named"})
    with pytest.raises(UserError, match=r"results/named is a finished run.*--overwrite"):
        pipeline.run(dataset="toy", flags={**flags, "run_name": "named"})


def test_an_interrupted_replacement_is_not_a_finished_run(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.run(dataset="toy", flags={**settings, "run_name": "r"})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("recbole_denoiser.training.trainer.SequenceTrainer._fit_epoch", interrupted)
        pipeline.run(dataset="toy", flags={**settings, "run_name": "r", "seed": 9, "overwrite": True})
    assert not (workplace / "results/r/result.json").exists()  # it would speak of a model that is gone


def test_a_mistake_leaves_nothing_behind(workplace: Path, settings: dict) -> None:
    with pytest.raises(UserError, match="nowhere"):
        pipeline.run(dataset="nowhere", flags=settings)
    assert not list((workplace / "results").iterdir())


@pytest.mark.parametrize("place", ["saved", "results/r"])
def test_the_layout_of_release_1_opens_and_resumes(workplace: Path, settings: dict, place: str) -> None:
    """Checkpoints in saved/ (a run of its own) or under the run's name in its folder (a cell of a grid)."""
    whole = pipeline.run(dataset="toy", flags={**settings, "epochs": 3, "run_name": "whole"})
    short = {**settings, "epochs": 3, "run_name": "r"}
    pipeline.run(dataset="toy", flags={**short, "checkpoint_dir": place})
    folder = workplace / "results/r"
    if place != "saved":
        for new, old in (("model.pth", "r.pth"), ("last.pth", "r.last.pth")):
            (folder / new).rename(folder / old)
        stored = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps({**stored, "checkpoint": "results/r/r.pth"}))
    assert load_run(folder).test == whole["test"]
    history = ["i1", "i2", "i3"]
    expected = Recommender.load("whole").recommend([history], 3)
    assert Recommender.load("r").recommend([history], 3).items.tolist() == expected.items.tolist()

    (folder / "result.json").unlink()
    resumed = pipeline.run(dataset="toy", flags={**short, "resume": True})
    assert resumed["checkpoint"] == f"{place}/r.pth"
    assert resumed["test"] == whole["test"]
    assert not (folder / "model.pth").exists()


def test_a_plain_backbone_has_its_own_name(workplace: Path, settings: dict) -> None:
    flags = {**settings, "denoise": False}
    result = pipeline.run(dataset="toy", flags=flags)
    assert result["label"] == "SASRec"
    assert result["run"].startswith("SASRec-toy-")
    folder = workplace / "results" / result["run"]
    stored = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**stored, "label": "SASRecDenoiser"}))  # as release 0.1 did
    assert load_run(folder).label == "SASRec"
    assert pipeline.run(dataset="toy", flags={**flags, "label": "mine"})["label"] == "mine"
