"""Whole runs on the toy data: this package's models and RecBole's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from toy_data import toy_rows

from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import Batch, SequenceModel
from recbole_denoiser.runs import pipeline
from recbole_denoiser.training import checkpoint


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec", "GRU4Rec", "Caser", "FPMC", "NARM", "STAMP", "GCSAN"])
def test_recbole_models_run(workplace: Path, settings: dict, model: str) -> None:
    result = pipeline.run(model, "toy", flags={**settings, "epochs": 1})
    ranks = np.load(f"results/{result['run']}/ranks.npz")["test_rank"]
    assert result["test"]["hit@10"] == pytest.approx((ranks <= 10).mean(), abs=1e-5)
    assert result["epochs"][0]["losses"]["loss"] > 0


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
@pytest.mark.parametrize("rows", ["sequences", "prefixes"])
@pytest.mark.parametrize("loss", ["BCE", "CE", "BPR"])
@pytest.mark.parametrize("start", ["end", "start"])
def test_package_models_learn(workplace: Path, settings: dict, model: str, rows: str, loss: str, start: str) -> None:
    flags = {
        **settings,
        "epochs": 10,
        "train_rows": rows,
        "loss_type": loss,
        "position_from": start,
        "learning_rate": 0.003,
    }
    result = pipeline.run(model, "toy", flags=flags)
    losses = [record["losses"]["rec"] for record in result["epochs"]]
    assert losses[-1] < losses[0]
    assert len(result["kept"]) == 2  # layers


def test_result_file_is_complete(workplace: Path, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags=settings)
    folder = Path("results") / result["run"]
    stored = json.loads((folder / "result.json").read_text())
    assert stored == json.loads(json.dumps(result))
    assert stored["data"]["users"] == 60
    assert len(stored["data"]["sha256"]) == 64
    assert stored["versions"]["torch"]
    assert [record["epoch"] for record in stored["epochs"]] == [0, 1]
    assert set(stored["epochs"][0]["losses"]) == {"rec", "mask", "jacobian"}
    ranks = np.load(folder / "ranks.npz")
    assert len(ranks["test_rank"]) == 60
    assert ranks["test_user"][0].startswith("u")
    negatives = np.load(folder / "negatives.npz")
    assert negatives["test_negatives"].shape == (60, 10)
    drawn = negatives["items"][negatives["test_negatives"]]
    seen = pd.DataFrame(toy_rows(), columns=["user", "item", "time"]).groupby("user")["item"].agg(set)
    for user, item, row in zip(negatives["test_user"], negatives["items"][negatives["test_item"]], drawn, strict=True):
        assert item in seen[user] and not seen[user] & set(row) and "[PAD]" not in row
    assert Path(stored["checkpoint"]).is_file()


def test_same_seed_same_numbers_other_seed_other_numbers(workplace: Path, settings: dict) -> None:
    first = pipeline.run(dataset="toy", flags={**settings, "run_name": "a"})
    second = pipeline.run(dataset="toy", flags={**settings, "run_name": "b"})
    other = pipeline.run(dataset="toy", flags={**settings, "seed": 7})
    assert first["test"] == second["test"]
    assert [r["losses"] for r in first["epochs"]] == [r["losses"] for r in second["epochs"]]
    assert [r["losses"] for r in first["epochs"]] != [r["losses"] for r in other["epochs"]]


def test_run_names_depend_on_settings_not_on_places(workplace: Path, settings: dict) -> None:
    one = pipeline.run(dataset="toy", flags={**settings, "epochs": 0})
    moved = pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "result_dir": "r", "checkpoint_dir": "c"})
    changed = pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "beta": 0.5})
    assert one["run"] == moved["run"] != changed["run"]


def test_missing_data_set_says_where_it_looked(workplace: Path, toy: Path) -> None:
    with pytest.raises(UserError, match=r"'nothing' not found: looked in .*nothing for nothing\.inter"):
        pipeline.run(dataset="nothing", flags={"data_path": str(toy)})


def test_nonfinite_loss_stops_with_the_step(workplace: Path, settings: dict) -> None:
    with pytest.raises(UserError, match=r"not finite \(epoch \d+, step \d+\)"):
        pipeline.run(dataset="toy", flags={**settings, "learning_rate": 1e30, "denoise": False, "epochs": 5})


def bad_at(step: int, term: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loss term of one training step is NaN."""
    plain, calls = SequenceModel.calculate_loss, 0

    def calculate_loss(self: SequenceModel, interaction: object) -> tuple[torch.Tensor, ...]:
        nonlocal calls
        terms = list(plain(self, interaction))
        if calls == step:
            terms[term] = terms[term] * float("nan")
        calls += 1
        return tuple(terms)

    monkeypatch.setattr(SequenceModel, "calculate_loss", calculate_loss)


def test_a_nonfinite_term_stops_and_names_step_term_and_checkpoint(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_at(3, 1, monkeypatch)  # two steps per epoch
    with pytest.raises(UserError, match=r"'mask' is not finite \(epoch 2, step 2\)\. .*results/run/last\.pth"):
        pipeline.run(dataset="toy", flags={**settings, "epochs": 3, "run_name": "run"})
    monkeypatch.undo()
    monkeypatch.chdir(workplace)
    state = checkpoint.load("results/run/last.pth")
    assert state["epoch"] == 0
    state["history"][0]["train_seconds"] = 1000.0
    checkpoint.save(state, Path("results/run/last.pth"))
    resumed = pipeline.run(dataset="toy", flags={**settings, "epochs": 3, "run_name": "run", "resume": True})
    assert [record["epoch"] for record in resumed["epochs"]] == [0, 1, 2]
    assert resumed["seconds"] > 1000  # the time of the first attempt counts


@pytest.mark.parametrize("term", [0, 1])
def test_a_nonfinite_step_is_skipped_when_asked(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, term: int
) -> None:
    bad_at(1, term, monkeypatch)
    result = pipeline.run(dataset="toy", flags={**settings, "on_nonfinite": "skip"})
    assert [r.message for r in caplog.records].count(
        f"The loss term '{('rec', 'mask')[term]}' is not finite (epoch 1, step 2): step skipped."
    ) == 1
    assert all(np.isfinite(value) for record in result["epochs"] for value in record["losses"].values())


def test_a_loss_that_the_denoiser_finds_nonfinite_is_skipped_or_stops(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, calls = SequenceModel.position_losses, 0

    def position_losses(self: SequenceModel, states: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        calls += 1
        total, positive = losses(self, states, batch)
        return (total * float("inf") if calls == 1 else total), positive

    monkeypatch.setattr(SequenceModel, "position_losses", position_losses)
    with pytest.raises(UserError, match=r"not finite \(epoch 1, step 1\)"):
        pipeline.run(dataset="toy", flags=settings)
    calls = 0
    result = pipeline.run(dataset="toy", flags={**settings, "on_nonfinite": "skip"})
    assert len(result["epochs"]) == 2


@pytest.mark.parametrize(("phi", "words"), [(-1.0, "layer 1 keeps no attention"), (9.0, "no attention was pruned")])
def test_collapsed_masks_are_warned_about(
    workplace: Path, settings: dict, caplog: pytest.LogCaptureFixture, phi: float, words: str
) -> None:
    flags = {**settings, "epochs": 1, "n_layers": 1}
    pipeline.run(dataset="toy", flags={**flags, "mask_init": phi, "mask_learning_rate": 1e-9})
    (message,) = [record.message for record in caplog.records if "Collapsed masks" in record.message]
    assert words in message
    caplog.clear()
    pipeline.run(dataset="toy", flags={**flags, "random_keep": 0.0})
    pipeline.run(dataset="toy", flags={**flags, "denoise": False})
    assert "Collapsed" not in caplog.text


def test_a_finished_run_is_replaced_only_when_asked(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 0, "run_name": "mine"}
    pipeline.run(dataset="toy", flags=flags)
    with pytest.raises(UserError, match=r"results/mine is a finished run\. .*--overwrite"):
        pipeline.run(dataset="toy", flags={**flags, "seed": 3})
    assert pipeline.run(dataset="toy", flags={**flags, "seed": 3, "overwrite": True})["seed"] == 3
