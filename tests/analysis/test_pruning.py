"""Precision, recall and AUC of the masks: by hand, with a mask that knows the noise, and with one that cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.pruning import auc, gate_quality, measure
from recbole_denoiser.cli.main import main
from recbole_denoiser.data.split import TRAIN
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.reopen import OpenRun, open_run


def test_auc_by_hand() -> None:
    positive = np.array([True, True, False, False])
    assert auc(np.array([3.0, 4.0, 1.0, 2.0]), positive) == 1.0
    assert auc(np.array([1.0, 2.0, 3.0, 4.0]), positive) == 0.0
    assert auc(np.array([1.0, 3.0, 1.0, 2.0]), positive) == 2.5 / 4  # pairs won: 3>1, 3>2, and half of 1=1
    assert auc(np.zeros(4), positive) == 0.5
    assert auc(np.zeros(2), np.array([True, True])) is None


def test_gate_quality_by_hand() -> None:
    gate = np.array([0.0, 0.0, 0.0, 0.9, 0.8, 0.7])
    injected = np.array([True, True, False, True, False, False])
    found = gate_quality(gate, injected)
    assert found["pruned"] == 0.5
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 3)
    # injected at 0, 0, 0.9 against clean at 0, 0.8, 0.7: both zeros win two pairs and tie one, 0.9 wins none
    assert found["gate_auc"] == pytest.approx(5 / 9)
    nothing = gate_quality(np.ones(2), np.array([True, False]))
    assert nothing == {"pruned": 0.0, "precision": None, "recall": 0.0, "gate_auc": 0.5}


def finished(settings: dict, model: str, **changes: Any) -> OpenRun:
    result = pipeline.run(model, "toy", flags={**settings, "epochs": 0, "train_noise": 0.25, **changes})
    return open_run(Path("results") / result["run"])


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
@pytest.mark.parametrize("start", ["end", "start"])
def test_a_mask_that_knows_the_noise_is_perfect(
    workplace: Path, settings: dict, model: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = finished(
        settings, model, position_from=start, mask_form="product"
    )  # renormalised, a row may have nothing else
    # call every interaction with an item below 10 noise, and prune exactly those items
    view = opened.test.view
    marked = (view.phase == TRAIN) & (view.flat.columns["item_id"].numpy() < 10)
    opened.test.view = replace(view, noise=marked)
    seen: dict[str, torch.Tensor] = {}
    embed = opened.model.embed

    def watched(batch: Any) -> Any:
        seen["items"] = batch.items
        return embed(batch)

    def oracle(length: int, states: Any, prior: Any) -> torch.Tensor:
        key = seen["items"][:, None, None, :].expand(-1, 1, length, -1)
        return torch.where(key < 10, -3.0, 3.0)

    monkeypatch.setattr(opened.model, "embed", watched)
    monkeypatch.setattr(opened.model.denoiser.sites[0].mask, "logits", oracle)
    quality = measure(opened)
    first, second = quality.layers
    assert (first.precision, first.recall, first.gate_auc) == (1.0, 1.0, 1.0)
    assert first.pruned == pytest.approx(first.injected)
    assert first.attention_auc == 1.0
    assert second.precision is None and second.recall == 0.0
    rows = opened.test.inter_feat
    assert first.attentions == sum(attentions(model, start, int(n)) for n in rows.target - rows.start)


def attentions(model: str, start: str, length: int) -> int:
    """Attentions of a history whose key noise could reach: all but its newest item, which was held out."""
    if model == "SASRecDenoiser":
        return sum(length - key for key in range(length - 1))
    # one of ten positions is the mask token; counted from the start, RecBole's layout always drops the oldest item
    items = min(length, 9) if start == "end" else length - 1
    return (items + 1) * (items - 1)


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
def test_a_position_mask_is_at_chance(workplace: Path, settings: dict, model: str) -> None:
    quality = measure(finished(settings, model, random_keep=0.5, train_noise=0.5))
    for layer in quality.layers:
        assert layer.gate_auc == pytest.approx(0.5, abs=0.06)
        assert layer.precision == pytest.approx(layer.injected, abs=0.06)
        assert layer.recall == pytest.approx(layer.pruned, abs=0.06)


def test_command(workplace: Path, settings: dict, capsys: pytest.CaptureFixture) -> None:
    noisy = finished(settings, "SASRecDenoiser", mask="content")
    clean = pipeline.run("SASRecDenoiser", "toy", flags={**settings, "epochs": 0})
    other = pipeline.run("GRU4Rec", "toy", flags={**settings, "epochs": 0, "train_noise": 0.2})
    folders = [str(noisy.folder), f"results/{clean['run']}", f"results/{other['run']}"]
    assert main(["pruning", *folders, "--output=out", "--users=20"]) == 0
    captured = capsys.readouterr()
    assert "| SASRecDenoiser | toy | 0.25 | content | 2 | 1 |" in captured.out
    assert captured.err.count("is left out") == 2
    assert Path("out/pruning.csv").read_text().count("\n") == 3
    assert main(["pruning", *folders[1:]]) == 2
    assert "train_noise" in capsys.readouterr().err
