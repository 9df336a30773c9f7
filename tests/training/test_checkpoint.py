"""Checkpoints: plain, atomic, exact to resume, harmless to open."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import write_atomically
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline
from recbole_denoiser.training import checkpoint
from recbole_denoiser.training.trainer import SequenceTrainer


class Bomb:
    """Unpickling this writes a file."""

    def __reduce__(self) -> tuple:
        return (os.system, ("touch exploded",))


def test_checkpoint_is_plain_data(workplace: Path, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags=settings)
    state = torch.load(result["checkpoint"], weights_only=True)
    assert state["config"]["model"] == "SASRecDenoiser"
    assert {"state_dict", "optimizer", "random", "epoch", "loader"} <= set(state)


@pytest.mark.parametrize("content", [pickle.dumps({"state_dict": Bomb(), "config": {}}), b"", b"junk" * 100])
def test_foreign_files_are_refused_and_not_run(workplace: Path, content: bytes) -> None:
    Path("evil.pth").write_bytes(content)
    with pytest.raises(UserError, match=r"evil\.pth"):
        checkpoint.load("evil.pth")
    torch.save({"state_dict": Bomb(), "config": {}}, "evil.pth")
    with pytest.raises(UserError, match="--trust_checkpoint"):
        checkpoint.load("evil.pth")
    torch.save({"weights": torch.zeros(2)}, "evil.pth")
    with pytest.raises(UserError, match="not a checkpoint"):
        checkpoint.load("evil.pth")
    assert not Path("exploded").exists()


def test_truncated_checkpoint(workplace: Path, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags={**settings, "epochs": 1})
    whole = Path(result["checkpoint"]).read_bytes()
    for size in (10, len(whole) // 2, len(whole) - 1):
        Path("cut.pth").write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"cut\.pth"):
            checkpoint.load("cut.pth")


def test_a_failed_write_leaves_the_old_file(workplace: Path) -> None:
    file = Path("state.pth")
    checkpoint.save({"state_dict": {}, "config": {}}, file)
    before = file.read_bytes()

    def fail(stream: IO[bytes]) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left on device"):
        write_atomically(file, fail)
    assert file.read_bytes() == before
    assert [inner.name for inner in Path().iterdir()] == ["state.pth"]


def test_random_states_round_trip() -> None:
    states = checkpoint.random_states()
    first = (torch.rand(3).tolist(), np.random.rand(3).tolist())
    checkpoint.restore_random_states(states)
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist()) == first


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "GRU4Rec"])
def test_resumed_run_equals_uninterrupted(
    workplace: Path, settings: dict, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {**settings, "epochs": 4}
    whole = pipeline.run(model, "toy", flags={**flags, "run_name": "whole"})
    fit_epoch = SequenceTrainer._fit_epoch

    def interrupted(self: SequenceTrainer, epoch: int, *args: Any) -> dict:
        if epoch == 2:
            raise KeyboardInterrupt
        return fit_epoch(self, epoch, *args)

    monkeypatch.setattr(SequenceTrainer, "_fit_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(model, "toy", flags={**flags, "run_name": "cut"})
    monkeypatch.setattr(SequenceTrainer, "_fit_epoch", fit_epoch)
    cut = pipeline.run(model, "toy", flags={**flags, "run_name": "cut", "resume": True})
    assert cut["test"] == whole["test"]
    losses = [[record["losses"] for record in result["epochs"]] for result in (cut, whole)]
    assert losses[0] == losses[1]
    weights = [torch.load(result["checkpoint"], weights_only=True)["state_dict"] for result in (cut, whole)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_weights_of_another_shape(workplace: Path, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "run_name": "r"})
    config = Config(dataset="toy", flags={**settings, "hidden_size": 32})
    model = pipeline.build_model(config, pipeline.load_data(config).train._dataset)
    with pytest.raises(
        UserError, match=r"model\.pth' \(of SASRecDenoiser on toy\) do not fit this model: size mismatch"
    ):
        checkpoint.load_weights(model, checkpoint.load(result["checkpoint"]), result["checkpoint"])
