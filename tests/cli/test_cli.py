"""The command line: what a person types, what a person reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recbole_denoiser.cli.main import COMMANDS, main, parse_settings
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
        (["--device=gpu"], "cpu | cuda"),
        pytest.param(
            ["--device=cuda"], "finds no GPU", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="GPU")
        ),
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


def in_a_process(script: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_help_imports_neither_torch_nor_recbole() -> None:
    done = in_a_process(
        "import sys; from recbole_denoiser.cli.main import main\n"
        "for words in (['--help'], ['--version'], ['run', '--help'], ['recommend', '--help'], ['reproduce', '--help']):\n"
        "    try: main(words)\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "assert not {'torch', 'recbole', 'pandas'} & set(sys.modules), 'slow imports'"
    )
    assert done.returncode == 0, done.stderr
    assert "mask_learning_rate" in done.stdout
    assert "SASRecF" in done.stdout
    for name, entry in COMMANDS.items():
        assert name in done.stdout
        assert entry.summary.split()[0] in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_registered_by_its_group(name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert COMMANDS[name].summary[:40] in capsys.readouterr().out


def test_ctrl_c_while_torch_is_imported_is_one_line() -> None:
    done = in_a_process(
        "import builtins, sys; plain = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'torch': raise KeyboardInterrupt\n"
        "    return plain(name, *rest)\n"
        "builtins.__import__ = stop\n"
        "from recbole_denoiser.cli.main import main; sys.exit(main(['run', '--epochs=1']))"
    )
    assert done.returncode == 130
    assert done.stderr.strip().startswith("Interrupted.")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["recommend", "--run=r", "-k", "0"], ["tune", "--jobs=0"], ["variance", "r", "--draws=few"]]
)
def test_numbers_from_one_upwards(words: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "must be a whole number >= 1" in capsys.readouterr().err
