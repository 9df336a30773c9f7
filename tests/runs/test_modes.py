"""eval_modes: one training, metrics and ranks in every mode, the same as runs of their own would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.paper import load_paper_table
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.registry import MODELS, trainer_class
from recbole_denoiser.report.metrics import measured
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.record import load_run
from recbole_denoiser.runs.summary import run_table
from recbole_denoiser.training.evaluation import evaluation_loader
from recbole_denoiser.training.trainer import SequenceTrainer


def test_both_modes_equal_runs_of_their_own(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 1, "hidden_size": 16, "inner_size": 16, "valid_metric": "MRR@10"}
    alone = {mode: pipeline.run(dataset="toy", flags={**flags, "eval_args.mode": mode, "run_name": mode})
             for mode in ("uni10", "full", "unseen")}  # fmt: skip
    both = pipeline.run(dataset="toy", flags={**flags, "eval_modes": ["uni10", "full", "unseen"], "run_name": "both"})
    assert both["test"] == both["test_by_mode"]["uni10"] == alone["uni10"]["test"]
    assert both["test_by_mode"]["full"] == alone["full"]["test"] != both["test"]
    assert both["valid_by_mode"]["full"] == alone["full"]["valid"]
    assert json.loads(Path("results/both/result.json").read_text())["test_by_mode"] == both["test_by_mode"]
    assert alone["full"]["test_by_mode"] == {}
    run = load_run("results/both")
    assert run.modes == ["uni10", "full", "unseen"]
    for mode in run.modes:
        mine, own = run.in_mode(mode), load_run(f"results/{mode}")
        assert mine.test == own.test and mine.valid == own.valid
        for split in ("valid", "test"):
            np.testing.assert_array_equal(mine.ranks(split).rank, own.ranks(split).rank)
            np.testing.assert_array_equal(mine.ranks(split).user, own.ranks(split).user)
    with np.load("results/both/ranks.npz") as kept:
        assert {name for name in kept if name.endswith("_user")} == {"valid_user", "test_user"}
    assert f"test, full: hit@5 {both['test_by_mode']['full']['hit@5']:.4f}" in run_table(both)
    rows = {row.metric: row for row in measured([run], load_paper_table())}
    assert rows["ndcg@10 (full)"].test == alone["full"]["test"]["ndcg@10"] != rows["ndcg@10"].test
    assert rows["ndcg@10 (full)"].interval != rows["ndcg@10"].interval and "ndcg@10 (uni10)" not in rows


@pytest.mark.parametrize("model", [*MODELS, "Caser", "GRU4Rec", "FPMC"])
def test_every_model_is_measured_in_every_mode(workplace: Path, settings: dict, model: str) -> None:
    """This package's and RecBole's: as runs of their own would be."""
    flags = {**settings, "epochs": 1}
    modes = ["uni10", "full", "unseen"]
    both = pipeline.run(model, "toy", flags={**flags, "eval_modes": modes, "run_name": "both"})
    assert list(both["test_by_mode"]) == list(both["valid_by_mode"]) == modes
    for mode in ("full", "unseen"):
        alone = pipeline.run(model, "toy", flags={**flags, "eval_args.mode": mode, "run_name": mode})
        assert both["test_by_mode"][mode] == alone["test"] and both["valid_by_mode"][mode] == alone["valid"]
        np.testing.assert_array_equal(
            load_run("results/both").in_mode(mode).ranks("test").rank, load_run(f"results/{mode}").ranks("test").rank
        )
    assert both["test_by_mode"]["full"] != both["test_by_mode"]["unseen"]


@pytest.mark.parametrize("model", ["BERT4RecDenoiser", "GRU4RecSequence", "Caser", "GRU4Rec"])
def test_a_resumed_run_is_measured_in_every_mode(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    flags = {**settings, "epochs": 3, "eval_modes": ["full", "uni10", "unseen"]}
    whole = pipeline.run(model, "toy", flags={**flags, "run_name": "whole"})
    fit_epoch = SequenceTrainer._fit_epoch

    def interrupted(self: SequenceTrainer, epoch: int, *given: Any) -> dict:
        if epoch == 2:
            raise KeyboardInterrupt
        return fit_epoch(self, epoch, *given)

    monkeypatch.setattr(SequenceTrainer, "_fit_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(model, "toy", flags={**flags, "run_name": "cut"})
    monkeypatch.setattr(SequenceTrainer, "_fit_epoch", fit_epoch)
    cut = pipeline.run(model, "toy", flags={**flags, "run_name": "cut", "resume": True})
    for phase in ("valid_by_mode", "test_by_mode"):
        assert cut[phase] == whole[phase] and list(cut[phase]) == flags["eval_modes"]
    with pytest.raises(UserError, match="eval_modes"):  # other modes would need the ranks of a model that is gone
        pipeline.run(model, "toy", flags={**flags, "eval_modes": ["full"], "run_name": "cut", "resume": True})


@pytest.mark.parametrize("modes", [["uni"], ["full", "full"], ["labeled"], [3], ["uni0"]])
def test_modes_that_are_none(settings: dict, modes: list) -> None:
    with pytest.raises(UserError, match="eval_modes"):
        Config("SASRecDenoiser", "toy", flags={**settings, "eval_modes": modes})


def test_sampled_modes_need_frozen_negatives(settings: dict) -> None:
    flags = {**settings, "eval_negatives": "recbole"}
    Config("SASRecDenoiser", "toy", flags={**flags, "eval_modes": ["full"]})
    with pytest.raises(UserError, match="eval_negatives: frozen"):
        Config("SASRecDenoiser", "toy", flags={**flags, "eval_modes": ["full", "uni10"]})


@pytest.mark.parametrize(
    "noise", [{}, {"train_noise": 0.3, "noise_oracle": "remove"}, {"train_noise_kind": "insert", "train_noise": 0.2}]
)
def test_unseen_leaves_out_what_the_files_have_of_the_user_before_the_target(settings: dict, noise: dict) -> None:
    config = Config("SASRecDenoiser", "toy", flags={**settings, **noise, "MAX_ITEM_LIST_LENGTH": 3})
    parts = pipeline.read_data(config)
    data = pd.read_csv(Path(config["data_path"]) / "toy.inter", sep="\t")
    data = data.sort_values(["user_id:token", "timestamp:float"], kind="stable")
    tokens = {name: parts.dataset.field2id_token[name] for name in ("user_id", "item_id")}
    for part, last in ((parts.valid, -2), (parts.test, -1)):
        loader = evaluation_loader(config, part, "test", None, "unseen")
        checked = 0
        for interaction, (row, item), _, positive in loader:
            for number, user in enumerate(tokens["user_id"][interaction["user_id"]]):
                history = data[data["user_id:token"].astype(str) == user]["item_id:token"].astype(str).tolist()
                assert sorted(tokens["item_id"][item[row == number]]) == sorted(history[:last])
                assert tokens["item_id"][positive[number]] == history[last]
                checked += 1
        assert checked == len(part) > 10


def test_rank_among_the_unseen(settings: dict) -> None:
    """Ranks of the mode against a count over the scores; an item that the user already has is missed."""
    config = Config("SASRecDenoiser", "toy", flags={**settings, "noise_action": "none"})
    parts = pipeline.read_data(config)
    model = pipeline.build_model(config, parts.train).eval()
    trainer = trainer_class("SASRecDenoiser")(config, model)
    metrics = trainer.evaluate(evaluation_loader(config, parts.test, "test", None, "unseen"), load_best_model=False)
    rows = parts.test.inter_feat
    scores = model.full_sort_predict(rows[torch.arange(len(rows))]).detach().view(len(rows), -1)
    place, item = parts.test.seen_before(np.arange(len(rows)))
    expected = []
    for row in range(len(rows)):
        seen = set(item[place == row].tolist())
        target = int(rows[row]["item_id"])
        rivals = [i for i in range(1, scores.size(1)) if i not in seen and scores[row, i] > scores[row, target]]
        expected.append(np.inf if target in seen else 1 + len(rivals))
    ranks = torch.cat(trainer.ranks.rank).numpy()
    found = np.isfinite(expected)
    np.testing.assert_array_equal(ranks[found], np.asarray(expected)[found])
    assert metrics["hit@10"] == pytest.approx(np.mean(np.asarray(expected) <= 10), abs=1e-6)


def test_a_table_of_each_mode_and_none_twice(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 1, "eval_modes": ["uni10", "full"], "eval_args": {"mode": "uni10"}}
    content = {"models": {"plain": {"model": "SASRecDenoiser", "denoise": False}}, "datasets": ["toy"], "seeds": [1]}
    Path("mine.yaml").write_text(yaml.safe_dump({**content, "settings": flags}))
    assert main(["reproduce", "mine.yaml", "--jobs=1"]) == 0
    table = Path("results/mine/table.md").read_text()
    assert "Measured with uni10 unless said." in table
    assert table.count("## Measured with") == 1 and "## Measured with full" in table
