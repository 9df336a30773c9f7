"""Nothing runs that should not: trust comes from the caller alone, names stay in their folder, text cannot steer."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError, printable
from recbole_denoiser.experiments.cell import run_cell, write_cell
from recbole_denoiser.files import is_plain_name
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline
from recbole_denoiser.training import checkpoint


class Bomb:
    """Unpickling this makes the folder ``exploded``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("exploded",))


@pytest.fixture
def shared(workplace: Path, settings: dict) -> Path:
    """A run folder as somebody may share it: with a crafted checkpoint beside result.json, and a wish to be trusted."""
    result = pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "run_name": "shared"})
    folder = Path("results/shared")
    state = checkpoint.load(result["checkpoint"])
    torch.save({**state, "bomb": Bomb()}, folder / Path(result["checkpoint"]).name)
    result["config"]["trust_checkpoint"] = True
    (folder / "result.json").write_text(json.dumps(result))
    Path("in.jsonl").write_text('["i1", "i2"]\n')
    return folder


def commands(folder: Path) -> list[list[str]]:
    return [
        ["recommend", f"--run={folder}", "--input=in.jsonl"],
        ["recommend", f"--run={folder}", "--user=u1"],
        ["explain", f"--run={folder}", "--input=in.jsonl", "--output=page.html"],
    ]


def test_a_shared_run_folder_runs_no_code(shared: Path, capsys: pytest.CaptureFixture) -> None:
    for command in commands(shared):
        assert main(command) == 2
        assert "--trust_checkpoint" in capsys.readouterr().err
    with pytest.raises(UserError, match="can run code"):
        Recommender.load(shared)
    assert main(["report", str(shared)]) == 0  # reads weights without trust
    assert not Path("exploded").exists()


@pytest.mark.parametrize("number", range(3))
def test_the_bomb_is_real(shared: Path, number: int) -> None:
    """The positive control: with the flag that the message names, the same files do run their code."""
    assert main([*commands(shared)[number], "--trust_checkpoint"]) == 0
    assert Path("exploded").is_dir()
    Path("exploded").rmdir()
    Recommender.load(shared, trust_checkpoint=True)
    assert Path("exploded").is_dir()


def test_resuming_trusts_the_command_line_alone(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 1, "run_name": "run"}
    pipeline.run(dataset="toy", flags=flags)
    last = Path("results/run/last.pth")
    torch.save({**checkpoint.load(last), "bomb": Bomb()}, last)
    Path("evil.yaml").write_text("trust_checkpoint: True\nresume: True\n")
    with pytest.raises(UserError, match=r"trust_checkpoint \(in evil\.yaml\) is not a setting.*never from a file"):
        pipeline.run(dataset="toy", config_files=["evil.yaml"], flags=flags)
    write_cell(Path("results/run2"), "SASRecDenoiser", "toy", {"epochs": 1, "trust_checkpoint": True})
    for wrong in ({"trust_checkpoint": True}, {"trust_checkpoint": "yes"}):
        with pytest.raises(UserError, match="not a setting"):
            Config(dataset="toy", config_dict=wrong)
    with pytest.raises(UserError, match="not a setting"):
        run_cell(Path("results/run2"))
    with pytest.raises(UserError, match="can run code"):
        pipeline.run(dataset="toy", flags={**flags, "resume": True})
    assert not Path("exploded").exists()
    pipeline.run(dataset="toy", flags={**flags, "resume": True}, trust_checkpoint=True)
    assert Path("exploded").is_dir()


# ---- names ----

ESCAPES = ["../../x", "/tmp/x", "a/b", "a\\b", "..", ".", "", " ", "a\x00b", "a\nb", "c:x", "x" * 201, "\u202ex"]


def test_names_that_lead_elsewhere() -> None:
    assert not [name for name in ESCAPES if is_plain_name(name)]
    for name in ("SASRec-ml-1m-s1-0a1b2c3d", "größe 7", "run.1", "..x"):
        assert is_plain_name(name)


@pytest.mark.parametrize("name", [name for name in ESCAPES if name])
def test_a_run_or_study_stays_in_its_folder(workplace: Path, settings: dict, name: str, capsys: Any) -> None:
    with pytest.raises(UserError, match="run_name"):
        pipeline.run(dataset="toy", flags={**settings, "run_name": name})
    assert main(["tune", f"--study={name}", "--dataset=toy", f"--data_path={settings['data_path']}"]) == 2
    assert "--study" in capsys.readouterr().err
    assert main(["noise", "toy", f"--name={name}", "--share=0.1", f"--data_path={settings['data_path']}"]) == 2
    assert list(workplace.iterdir()) == []


def test_the_name_of_a_data_set_cannot_lead_elsewhere_either(workplace: Path, toy: Path, settings: dict) -> None:
    (workplace / "inner").mkdir()
    with pytest.raises(UserError, match="dataset"):
        pipeline.run(dataset="../toy", flags={**settings, "data_path": str(toy / "x")})


# ---- text from files ----


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31mb\rc\x00\u202ed\u2028e\x9b") == "a\\x1b[31mb\\rc\\x00\\u202ed\\u2028e\\x9b"
    assert printable("Amélie\u00a0👨\u200d👩\n日本") == "Amélie\u00a0👨\u200d👩\n日本"
    assert printable("a\nb", keep="") == "a\\nb"
    assert printable("\ud800") == "\\ud800"


def test_titles_cannot_steer_the_terminal(workplace: Path, toy: Path, settings: dict, capsys: Any) -> None:
    shutil.copytree(toy / "toy", "data/toy")
    rows = "".join(f"i{number}\tFilm \x1b]0;owned\x07\x1b[2J{number}\n" for number in range(40))
    Path("data/toy/toy.item").write_text("item_id:token\ttitle:token_seq\n" + rows)
    pipeline.run(dataset="toy", flags={**settings, "epochs": 0, "run_name": "r", "data_path": "data"})
    capsys.readouterr()
    assert main(["recommend", "--run=results/r", "--user=u1"]) == 0
    out = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\x1b[2J" in out
    assert not {sign for sign in out if ord(sign) < 32} - {"\n"}
    assert main(["explain", "--run=results/r", "--user=u1", "--output=page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "owned" in page
    assert not {"\x1b", "\x07"} & set(page)
    assert main(["run", "--epochs=\x1b[2Jx"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_storage_password_is_never_shown(workplace: Path, settings: dict, capsys: Any) -> None:
    pytest.importorskip("optuna")
    for url in ("nothing://me:s3cr%2Ft@host/db", "sqlite://me:s3cr%2Ft@host/db", "postgresql+none://me:s3cr%2Ft@h/d"):
        arguments = ["tune", "--dataset=toy", f"--data_path={settings['data_path']}", f"--storage={url}"]
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert "me:***@" in said
        assert "s3cr" not in said
    assert main([*arguments[:-1], "--storage=nothing://h/d?user=me&sslpassword=s3cr%2Ft&a=1"]) == 2
    said = capsys.readouterr().err
    assert "user=me&sslpassword=***&a=1" in said and "s3cr" not in said
