"""The command line: what a person types, what a person reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recbole_denoiser.cli.main import main, parse_settings
from recbole_denoiser.errors import UserError


def typed(settings: dict) -> list[str]:
    return [f"--{key}={value}" for key, value in settings.items()]


def test_run_prints_validation_and_test(workplace: Path, settings: dict, capsys: pytest.CaptureFixture) -> None:
    assert main(["run", "--model=GRU4Rec", "-d", "toy", *typed(settings)]) == 0
    out = capsys.readouterr().out
    assert "valid" in out
    assert "test" in out
    assert "hit@10" in out
    assert "ndcg@10" in out


def test_recbole_style_config_files(workplace: Path, settings: dict) -> None:
    Path("a.yaml").write_text("epochs: 1\n")
    Path("b.yaml").write_text("hidden_size: 32\n")
    settings.pop("epochs")
    assert main(["run", "--dataset=toy", "--config_files=a.yaml b.yaml", *typed(settings)]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hiden_size=64"], "hidden_size"),
        (["--model=SASRek"], "SASRec"),
        (["--dataset=nowhere"], "nowhere.inter"),
        (["epochs=3"], "--key=value"),
        (["--epochs=3", "--epochs=4"], "twice"),
        (["--config_files", "none.yaml"], "does not exist"),
    ],
)
def test_mistakes_exit_with_2_and_no_stack_trace(
    workplace: Path, capsys: pytest.CaptureFixture, arguments: list[str], words: str
) -> None:
    assert main(["run", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_settings_in_three_forms() -> None:
    assert parse_settings(["--a=1", "--b", "x", "--c", "--d.e=[1]"]) == {"a": 1, "b": "x", "c": True, "d.e": [1]}
    with pytest.raises(UserError, match="settings are written"):
        parse_settings(["a"])


def test_doctor(capsys: pytest.CaptureFixture, toy: Path) -> None:
    assert main(["doctor", f"--data_path={toy}"]) == 0
    out = capsys.readouterr().out
    for word in ("torch", "recbole", "properties", "ml-100k", "toy", "threads"):
        assert word in out


def test_script_at_the_top(workplace: Path, settings: dict) -> None:
    script = Path(__file__).parents[2] / "run_recbole_denoiser.py"
    done = subprocess.run(
        [sys.executable, str(script), "--dataset=toy", "--epochs=0", *typed({**settings, "epochs": 0})],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ndcg@10" in done.stdout
