"""A run answers with the items it was trained on, or says that its data has changed; a resumed run is the one begun."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.registry import trainer_class
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.reopen import load_data_and_model, open_run
from recbole_denoiser.runs.tokens import Tokens, read_tokens, write_tokens
from recbole_denoiser.training import checkpoint


@pytest.fixture
def run(workplace: Path, toy: Path, settings: dict) -> Path:
    """A run whose data may be changed."""
    shutil.copytree(toy, "data")
    pipeline.run(dataset="toy", flags={**settings, "run_name": "r", "data_path": "data"})
    return Path("results/r")


def lines(file: str = "data/toy/toy.inter") -> list[str]:
    return Path(file).read_text().splitlines()


def reversed_rows() -> list[str]:
    header, *rows = lines()
    return [header, *rows[::-1]]


def one_item_renamed() -> list[str]:
    """Same ids, same times, another token: only the maps can tell."""
    return [line.replace("\ti7\t", "\tother\t") for line in lines()]


def one_row_less() -> list[str]:
    return lines()[:-1]


@pytest.mark.parametrize("change", [reversed_rows, one_item_renamed, one_row_less])
def test_changed_data_is_never_answered_with_wrong_items(run: Path, change: Any, capsys: Any) -> None:
    sequence = ["i1", "i2", "i3"]
    Path("in.jsonl").write_text(json.dumps(sequence) + "\n")
    before = Recommender.load(run).recommend([sequence], k=5)
    Path("data/toy/toy.inter").write_text("\n".join(change()) + "\n")
    for command in (["recommend", "--run=results/r", "--user=u1"], ["explain", "--run=results/r", "--user=u1"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "is not the one that results/r was trained on" in said and "\n" not in said.strip()
    with pytest.raises(UserError, match="has changed"):
        Recommender.load(run)
    with pytest.raises(UserError, match="has changed"):
        load_data_and_model("results/r/model.pth")
    # sequences of one's own are answered from the kept maps, rightly
    capsys.readouterr()
    assert main(["recommend", "--run=results/r", "--input=in.jsonl", "-k=5", "--output=out.jsonl"]) == 0
    (answer,) = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [entry["item"] for entry in answer["recommendations"]] == before.items[0].tolist()


def test_a_run_of_an_earlier_version_is_checked_by_its_fingerprint(run: Path) -> None:
    (run / "tokens.npz").unlink()
    Recommender.load(run)
    Path("data/toy/toy.inter").write_text("\n".join(reversed_rows()) + "\n")
    for needs_data in (True, False):
        with pytest.raises(UserError, match="has changed"):
            Recommender.load(run, needs_data=needs_data)


@pytest.mark.parametrize("model", ["SASRecDenoiser", "SSEPT", "FPMC", "GRU4Rec"])
def test_a_run_opens_without_its_data(workplace: Path, toy: Path, settings: dict, model: str) -> None:
    shutil.copytree(toy, "data")
    pipeline.run(model, "toy", flags={**settings, "epochs": 1, "run_name": "r", "data_path": "data"})
    sequences = [["i1", "i2", "i3"], ["i9"]]
    with_data = Recommender.load("results/r").recommend(sequences, k=7)
    shutil.rmtree("data")
    without = Recommender.load("results/r", needs_data=False)
    assert without.recommend(sequences, k=7).items.tolist() == with_data.items.tolist()
    assert np.array_equal(without.recommend(sequences, k=7).scores, with_data.scores)
    with pytest.raises(UserError, match="needs data set 'toy' itself"):
        without.user_histories(["u1"])
    with pytest.raises(UserError, match="not found"):
        Recommender.load("results/r")


def test_tokens_come_back_as_they_were(tmp_path: Path) -> None:
    texts = ["[PAD]", "", "a", "\x00b\x00", "é日👍", "x" * 100_000, "a\nb", "1.0"]
    tokens = Tokens(np.array(texts[:3], dtype=object), np.array(texts, dtype=object))
    write_tokens(tmp_path, tokens)
    again = read_tokens(tmp_path)
    assert again is not None
    assert (again.user.tolist(), again.item.tolist()) == (texts[:3], texts)
    assert again.fingerprint() == tokens.fingerprint()
    assert Tokens(tokens.item, tokens.user).fingerprint() != tokens.fingerprint()
    assert (tmp_path / "tokens.npz").stat().st_size < 5000
    for wrong in ({"user_end": np.array([5, 2])}, {"item_text": np.zeros(3, np.uint8)}, {"user_end": np.zeros(0, int)}):
        with np.load(tmp_path / "tokens.npz") as kept:
            np.savez(tmp_path / "wrong.npz", **{**kept, **wrong})
        (tmp_path / "bad").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "wrong.npz", tmp_path / "bad" / "tokens.npz")
        with pytest.raises(UserError, match="damaged"):
            read_tokens(tmp_path / "bad")


# ---- resuming ----


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 5}, r"seed 2020 \(now 5\)"),
        ({"learning_rate": 0.01}, r"learning_rate 0\.001 \(now 0\.01\)"),
        ({"loss_type": "CE"}, r"loss_type 'BCE' \(now 'CE'\)"),
        ({"hidden_size": 32}, r"hidden_size 64 \(now 32\)"),
        ({"eval_args.mode": "uni5", "beta": 0.5}, r"beta 0\.005 \(now 0\.5\), eval_args"),
    ],
)
def test_resuming_with_other_settings_is_refused(run: Path, settings: dict, changes: dict, named: str) -> None:
    flags = {**settings, "run_name": "r", "data_path": "data", "resume": True}
    with pytest.raises(UserError, match=f"begun with other settings: {named}"):
        pipeline.run(dataset="toy", flags={**flags, **changes})


def test_resuming_on_other_data_is_refused(run: Path, settings: dict) -> None:
    flags = {**settings, "run_name": "r", "data_path": "data", "resume": True, "epochs": 3}
    Path("data/toy/toy.inter").write_text("\n".join(one_item_renamed()) + "\n")
    with pytest.raises(UserError, match="begun on other data"):
        pipeline.run(dataset="toy", flags=flags)


def test_epochs_and_places_may_change(run: Path, settings: dict) -> None:
    seconds = [record["train_seconds"] for record in json.loads((run / "result.json").read_text())["epochs"]]
    shutil.move("data", "moved")
    shutil.move("results", "elsewhere")
    places = {"data_path": "moved", "label": "longer", "result_dir": "elsewhere", "show_progress": False}
    flags = {**settings, "run_name": "r", "resume": True, "epochs": 3, **places}
    result = pipeline.run(dataset="toy", flags=flags)
    assert [record["epoch"] for record in result["epochs"]] == [0, 1, 2]
    first_two = json.loads(Path("elsewhere/r/result.json").read_text())["epochs"][:2]
    assert [record["train_seconds"] for record in first_two] == seconds  # not trained again


def test_a_checkpoint_that_lacks_something_is_one_line(run: Path, settings: dict) -> None:
    flags = {**settings, "run_name": "r", "data_path": "data", "resume": True, "epochs": 3}
    file = Path("results/r/last.pth")
    whole = checkpoint.load(file)
    data = pipeline.load_data(config := Config(dataset="toy", flags=flags))
    trainer = trainer_class("SASRecDenoiser")(config, pipeline.build_model(config, data.train._dataset))
    trainer.resume_checkpoint(file)
    names = ("random", "history", "loader", "optimizer", "stopped", "scaler", "best_epoch", "epoch", "state_dict",
             "config")  # fmt: skip
    for name in names:
        wrong: list[dict[str, Any]] = [{key: value for key, value in whole.items() if key != name}]
        values = (None, "text", [1], {"a": 1}, torch.zeros(2))
        wrong += [
            {**whole, name: value} for value in values if (name, value) != ("scaler", {"a": 1})
        ]  # not used on CPU
        for state in wrong:
            checkpoint.save({key: value for key, value in state.items() if key != "format"}, file)
            with pytest.raises(UserError, match=r"r/last\.pth") as caught:
                trainer.resume_checkpoint(file)
            assert "\n" not in str(caught.value)


def test_a_checkpoint_cannot_set_attributes(run: Path) -> None:
    state = checkpoint.load("results/r/model.pth")
    checkpoint.save({**state, "other_parameter": {"forward": 1}}, Path("results/r/model.pth"))
    with pytest.raises(UserError, match="other_parameter"):
        open_run(run)


def test_every_result_names_the_commit(run: Path) -> None:
    commit = json.loads((run / "result.json").read_text())["commit"]
    assert commit.startswith("version ") or len(commit.rstrip("+")) == 40


def test_a_checkpoint_that_is_no_file_is_not_looked_for_elsewhere(run: Path) -> None:
    """A copy of the run whose model.pth is a folder: the original, whose path is recorded, must not answer for it."""
    copy = shutil.copytree(run, "copied/r")
    Path(copy, "model.pth").unlink()
    Path(copy, "model.pth").mkdir()
    with pytest.raises(UserError, match=r"model\.pth' is no file"):
        open_run(copy)
