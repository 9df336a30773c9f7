"""The example runs, and the masks it learns are the right ones."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "denoise_your_transformer.py"


def test_denoise_your_transformer(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    kept = int(printed.split("kept: ")[1].split("%")[0])
    right = int(printed.split("right: ")[1].split("%")[0])
    assert right >= 95 and kept <= 60
    assert "attention.denoiser_gate" in printed
