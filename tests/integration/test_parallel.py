"""Two gloo processes against one: gradients, metrics, files, failures."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from parallel import everything, gradients, in_processes, metrics
from toy_data import quick_settings

from recbole_denoiser.core import jacobian, passes
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs import launch, pipeline

VARIANTS: list[dict[str, Any]] = [
    {"estimator": "disarm", "beta": 0.1, "gamma": 0.01},
    {"estimator": "straight_through", "beta": 0.1},
    {"estimator": "ar", "mask": "content"},
    {"estimator": "arm", "mask_per_head": True, "loss_type": "CE", "conditional": True},
    {"denoise": False},
    {"loss_type": "gBCE", "train_negatives": 3},
    {"loss_type": "SSM", "train_negatives": 3, "negative_sampling": "popularity"},
    {"loss_type": "SSM", "train_negatives": 6, "negatives_shared": True},
    {"loss_type": "CE", "denoise": False, "target_denoise": "none"},
    {"loss_type": "CE", "target_denoise": "truncate", "target_rate": 0.3, "target_warmup": 0},
    {"target_denoise": "reweight", "target_rate": 0.7, "target_warmup": 0, "noise_action": "weight"},
]


SPLITS: list[dict[str, Any]] = [
    {"eval_batch_size": 7},
    {"eval_batch_size": 1000},  # one batch: the second process has nothing to do
    {"eval_args.mode": "full", "eval_batch_size": 7, "metrics": ["Hit", "NDCG", "ItemCoverage"]},
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> list[dict]:
    """What each of two processes found (one start for all: importing torch is most of the time)."""
    folder = tmp_path_factory.mktemp("both")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return in_processes(2, everything, VARIANTS, SPLITS, quick_settings(toy), folder=folder)
    finally:
        os.chdir(before)


def test_same_batch_and_masks_give_the_same_gradients(
    both: list[dict], workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "uniform", passes.uniform)  # gradients() replaces both; put them back afterwards
    monkeypatch.setattr(jacobian, "draw_projection", jacobian.draw_projection)
    for number, whole in enumerate(gradients(VARIANTS, settings)):
        first, second = both[0]["gradients"][number], both[1]["gradients"][number]
        assert first["share"] == second["share"] == 4
        mean = [(a + b) / 2 for a, b in zip(first["terms"], second["terms"], strict=True)]
        assert mean == pytest.approx(whole["terms"], rel=1e-5, abs=1e-7)
        assert first["terms"] != second["terms"]
        assert set(first["gradients"]) == set(whole["gradients"])
        for name, gradient in whole["gradients"].items():
            assert torch.equal(first["gradients"][name], second["gradients"][name]), name
            torch.testing.assert_close(first["gradients"][name], gradient, rtol=1e-4, atol=1e-7, msg=name)
            assert "phi" not in name or gradient.abs().max() > 0


def test_same_weights_give_the_same_metrics(both: list[dict], workplace: Path, settings: dict) -> None:
    for number, (result, ranks, kept) in enumerate(metrics(SPLITS, settings)):
        for part in both:
            assert part["metrics"][number][0] == result
            assert part["metrics"][number][2] == kept
        assert torch.equal(both[0]["metrics"][number][1], ranks)
        assert len(ranks) == 60


def test_a_step_that_one_process_cannot_use_is_skipped_by_all(both: list[dict]) -> None:
    (losses, weights), (other_losses, other_weights) = both[0]["skipped"], both[1]["skipped"]
    assert losses == other_losses
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
    assert all(torch.isfinite(values).all() for values in weights.values())


def test_a_killed_process_ends_the_run_and_torchrun_resumes_it(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 8, "stopping_step": 8}

    def kill_one() -> None:
        while not (workplace / "results/cut/last.pth").is_file():
            time.sleep(0.01)
        victim = multiprocessing.active_children()[-1].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)

    threading.Thread(target=kill_one, daemon=True).start()
    with pytest.raises(UserError, match=r"ended by SIGKILL .* --resume"):
        launch.run({"dataset": "toy", "flags": {**flags, "run_name": "cut"}}, launch.Processes(nproc=2))
    assert multiprocessing.active_children() == []
    assert not (workplace / "results/cut/result.json").exists()

    out = torchrun({**flags, "run_name": "cut", "resume": True})
    assert out.count("ndcg@10") == 1  # process 0 alone prints
    cut = json.loads((workplace / "results/cut/result.json").read_text())
    whole = launch.run({"dataset": "toy", "flags": {**flags, "run_name": "whole"}}, launch.Processes(nproc=2))
    assert whole is not None
    assert cut["test"] == whole["test"]
    assert [record["losses"] for record in cut["epochs"]] == [record["losses"] for record in whole["epochs"]]
    assert json.loads((workplace / "results/whole/result.json").read_text()) == whole
    assert whole["config"]["world_size"] == 2
    for name in ("cut", "whole"):
        files = {file.name for file in (workplace / "results" / name).iterdir()}
        assert {"model.pth", "last.pth", "run.log", "tensorboard"} <= files
    # process 0 alone writes events; once per start
    events = [len(list((workplace / "results" / name).glob("tensorboard/events*"))) for name in ("cut", "whole")]
    assert events == [2, 1]

    with pytest.raises(UserError, match=r"written by 2 process\(es\)"):
        pipeline.run(dataset="toy", flags={**flags, "run_name": "cut", "resume": True})


def torchrun(flags: dict) -> str:
    script = Path(__file__).parents[2] / "run_recbole_denoiser.py"
    typed = [f"--{key}={value}" for key, value in flags.items()]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script),
         "--dataset=toy", *typed],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class Ended:
    """A worker that has ended."""

    def __init__(self, exitcode: int) -> None:
        self.exitcode = exitcode


def test_the_first_cause_is_told(tmp_path: Path) -> None:
    launch._raise_cause([Ended(0), Ended(0)], tmp_path, 0)
    with pytest.raises(UserError, match="exit codes"):
        launch._raise_cause([Ended(3), Ended(0)], tmp_path, 0)
    (tmp_path / "trace-0").write_text("connection closed by peer")
    with pytest.raises(RuntimeError, match=r"Process 0 failed:\nconnection closed"):
        launch._raise_cause([Ended(1), Ended(-15)], tmp_path, 0)
    with pytest.raises(UserError, match="Process 5 was ended by SIGKILL"):
        launch._raise_cause([Ended(1), Ended(-9)], tmp_path, 4)
    (tmp_path / "mistake-1").write_text("No space left on device")
    with pytest.raises(UserError, match="No space left"):
        launch._raise_cause([Ended(-9), Ended(2)], tmp_path, 0)


@pytest.mark.parametrize(
    "processes",
    [
        launch.Processes(nproc=0),
        launch.Processes(nproc=2, world_size=3, group_offset=2),
        launch.Processes(nproc=2, world_size=4, group_offset=-1),
    ],
)
def test_impossible_numbers_of_processes(processes: launch.Processes) -> None:
    with pytest.raises(UserError, match="nproc"):
        processes.check()
