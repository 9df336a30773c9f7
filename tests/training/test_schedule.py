"""Learning rates: the factors by hand, in a run, and after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_denoiser.runs import pipeline
from recbole_denoiser.training.schedule import factor
from recbole_denoiser.training.trainer import SequenceTrainer


def test_factors() -> None:
    assert [factor(epoch, "constant", 0, 5) for epoch in range(3)] == [1, 1, 1]
    assert [factor(epoch, "constant", 3, 5) for epoch in range(5)] == [0.25, 0.5, 0.75, 1, 1]
    assert [factor(epoch, "linear", 1, 5) for epoch in range(6)] == [0.5, 1, 0.75, 0.5, 0.25, 0]
    assert [factor(epoch, "cosine", 0, 4) for epoch in (0, 2, 4, 9)] == pytest.approx([1, 0.5, 0, 0])
    assert factor(0, "linear", 0, 0) == 1.0


def test_a_run_follows_the_schedule_and_resumes_exactly(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {**settings, "epochs": 4, "hidden_size": 16, "inner_size": 16, "lr_warmup": 1, "lr_schedule": "linear",
             "learner": "adamw", "weight_decay": 0.01, "learning_rate": 0.01}  # fmt: skip
    train_epoch = SequenceTrainer._train_epoch
    seen: list[list[float]] = []
    stop_at = -1

    def watched(self: SequenceTrainer, train_data: object, epoch: int, **kwargs: Any) -> dict:
        if epoch == stop_at:
            raise KeyboardInterrupt
        assert isinstance(self.optimizer, torch.optim.AdamW)
        seen.append([group["lr"] for group in self.optimizer.param_groups])
        return train_epoch(self, train_data, epoch, **kwargs)

    monkeypatch.setattr(SequenceTrainer, "_train_epoch", watched)
    whole = pipeline.run(dataset="toy", flags={**flags, "run_name": "whole"})
    backbone, masks = zip(*seen, strict=True)
    assert backbone == pytest.approx([0.005, 0.01, 0.01 * 2 / 3, 0.01 / 3])
    assert set(masks) == {0.01}  # Phi keeps its own rate
    stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(dataset="toy", flags={**flags, "run_name": "cut"})
    stop_at = -1
    cut = pipeline.run(dataset="toy", flags={**flags, "run_name": "cut", "resume": True})
    assert seen[4:] == seen[:4]
    weights = [torch.load(result["checkpoint"], weights_only=True)["state_dict"] for result in (cut, whole)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
