"""The scripts in examples/ run as they say (denoise_your_transformer: tests/core/test_core_example.py)."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest
from toy_data import toy_rows

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.registry import MODELS, register_model

EXAMPLES = Path(__file__).parents[1] / "examples"


def typed(monkeypatch: pytest.MonkeyPatch, script: str, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", [script, *words])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")


def test_find_noise_in_a_csv(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.DataFrame(toy_rows(), columns=["who", "what", "when"]).to_csv("events.csv", index=False)
    typed(monkeypatch, "find_noise_in_a_csv.py", "events.csv", "who", "what", "when")
    assert "estimated share of noise" in capsys.readouterr().out
    assert list(pd.read_csv("clean.csv").columns) == ["who", "what", "when"]


def test_new_model(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--{key}={value}" for key, value in {**settings, "epochs": 1, "noise_action": "none"}.items()]
    try:
        typed(monkeypatch, "new_model.py", "toy", *words)
    finally:
        registered = MODELS.pop("ScaledSASRec", None)
    assert registered == "__main__"
    assert "ScaledSASRec on toy" in capsys.readouterr().out
    assert list(Path("results").glob("ScaledSASRec-toy-*/result.json"))


def test_a_registered_model_hides_no_other() -> None:
    with pytest.raises(UserError, match="There is a model SASRec already"):
        register_model(type("SASRec", (), {}))
    with pytest.raises(UserError, match="defaults_of = GRU must be one of"):
        register_model(type("Mine", (), {}), "GRU")
