"""Whole runs on the toy data: this package's models and RecBole's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recbole_denoiser import pipeline
from recbole_denoiser.errors import UserError


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec", "GRU4Rec", "Caser", "FPMC", "NARM", "STAMP", "GCSAN"])
def test_recbole_models_run(workplace: Path, settings: dict, model: str) -> None:
    result = pipeline.run(model, "toy", flags={**settings, "epochs": 1})
    assert 0 <= result["test"]["hit@10"] <= 1
    assert result["epochs"][0]["losses"]["loss"] > 0


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
@pytest.mark.parametrize("rows", ["sequences", "prefixes"])
@pytest.mark.parametrize("loss", ["BCE", "CE", "BPR"])
@pytest.mark.parametrize("start", ["end", "start"])
def test_package_models_learn(workplace: Path, settings: dict, model: str, rows: str, loss: str, start: str) -> None:
    flags = {
        **settings,
        "epochs": 3,
        "train_rows": rows,
        "loss_type": loss,
        "position_from": start,
        "learning_rate": 0.01,
    }
    result = pipeline.run(model, "toy", flags=flags)
    losses = [record["losses"]["rec"] for record in result["epochs"]]
    assert losses[-1] < losses[0]
    assert result["kept"] is not None


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
    moved = pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "checkpoint_dir": "elsewhere"})
    changed = pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "beta": 0.5})
    assert one["run"] == moved["run"] != changed["run"]


def test_missing_data_set_says_where_it_looked(workplace: Path, toy: Path) -> None:
    with pytest.raises(UserError, match=r"'nothing' not found: looked in .*nothing for nothing\.inter"):
        pipeline.run(dataset="nothing", flags={"data_path": str(toy)})


def test_nonfinite_loss_stops_with_the_step(workplace: Path, settings: dict) -> None:
    with pytest.raises(UserError, match=r"not finite \(epoch \d+, step \d+\)"):
        pipeline.run(dataset="toy", flags={**settings, "learning_rate": 1e30, "denoise": False, "epochs": 5})
