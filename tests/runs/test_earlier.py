"""Runs of a version that lacked a setting are opened and resumed by what that version did, not by today's default."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.earlier import EARLIER, idle
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.reopen import open_run
from recbole_denoiser.training import checkpoint


def answers(folder: Path) -> pd.DataFrame:
    """What the run recommends to some of its users."""
    recommender = Recommender.load(folder)
    return recommender.recommend_histories(recommender.user_histories(["u1", "u2", "u3"]), 5).frame()


def test_an_earlier_run_is_opened_as_it_was(workplace: Path, settings: dict) -> None:
    model = "SASRecDenoiser"
    same = {**settings, **EARLIER, "epochs": 1, "run_name": "before"}
    result = pipeline.run(model, "toy", flags=same)
    folder = Path("results") / result["run"]
    wanted = answers(folder)
    result["config"] = {key: value for key, value in result["config"].items() if key not in EARLIER}
    (folder / "result.json").write_text(json.dumps(result))
    files = sorted(Path(result["checkpoint"]).parent.glob("*.pth"))
    assert len(files) == 2  # the best and the newest epoch
    for file in files:
        state = checkpoint.load(file)
        state["config"] = {key: value for key, value in state["config"].items() if key not in EARLIER}
        torch.save(state, file)
    assert Config(model, "toy", flags={"data_path": settings["data_path"]})["noise_action"] == "remove"
    assert open_run(folder).config["noise_action"] == "none"
    assert answers(folder).equals(wanted)
    defaults = {key: value for key, value in same.items() if key not in EARLIER}
    with pytest.raises(UserError, match=r"noise_action .none. .now .remove."):
        pipeline.run(model, "toy", flags={**defaults, "epochs": 2, "resume": True})
    assert len(pipeline.run(model, "toy", flags={**same, "epochs": 2, "resume": True})["epochs"]) == 2


def test_masks_that_are_not_there_have_no_settings() -> None:
    assert {"beta", "inference_gate", "mask_form", "mask_learning_rate"} <= idle({"denoise": False})
    assert "denoise" not in idle({"denoise": False})
    assert idle({"denoise": False, "noise_oracle": "mask"}) == {"noise_weight"}  # an oracle's mask has a form


@pytest.mark.parametrize("settings", [{"denoise": True}, {}])
def test_masks_have(settings: dict[str, bool]) -> None:
    assert idle(settings) == {"noise_weight"}
    assert idle({**settings, "noise_action": "remove"}) == set()
