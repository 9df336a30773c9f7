"""eval_modes: one training, metrics and ranks in every mode, the same as runs of their own would have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.paper import load_paper_table
from recbole_denoiser.integration.config import Config
from recbole_denoiser.report.metrics import measured
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.record import load_run
from recbole_denoiser.runs.summary import run_table


def test_both_modes_equal_runs_of_their_own(workplace: Path, settings: dict) -> None:
    flags = {**settings, "epochs": 1, "hidden_size": 16, "inner_size": 16, "valid_metric": "MRR@10"}
    alone = {mode: pipeline.run(dataset="toy", flags={**flags, "eval_args.mode": mode, "run_name": mode})
             for mode in ("uni10", "full")}  # fmt: skip
    both = pipeline.run(dataset="toy", flags={**flags, "eval_modes": ["uni10", "full"], "run_name": "both"})
    assert both["test"] == both["test_by_mode"]["uni10"] == alone["uni10"]["test"]
    assert both["test_by_mode"]["full"] == alone["full"]["test"] != both["test"]
    assert both["valid_by_mode"]["full"] == alone["full"]["valid"]
    assert json.loads(Path("results/both/result.json").read_text())["test_by_mode"] == both["test_by_mode"]
    assert alone["full"]["test_by_mode"] == {}
    run = load_run("results/both")
    assert run.modes == ["uni10", "full"]
    for mode in run.modes:
        mine, own = run.in_mode(mode), load_run(f"results/{mode}")
        assert mine.test == own.test and mine.valid == own.valid
        for split in ("valid", "test"):
            np.testing.assert_array_equal(mine.ranks(split).rank, own.ranks(split).rank)
            np.testing.assert_array_equal(mine.ranks(split).user, own.ranks(split).user)
    assert f"test, full: hit@5 {both['test_by_mode']['full']['hit@5']:.4f}" in run_table(both)
    rows = {row.metric: row for row in measured([run], load_paper_table())}
    assert rows["ndcg@10 (full)"].test == alone["full"]["test"]["ndcg@10"] != rows["ndcg@10"].test
    assert rows["ndcg@10 (full)"].interval != rows["ndcg@10"].interval and "ndcg@10 (uni10)" not in rows


@pytest.mark.parametrize("modes", [["uni"], ["full", "full"], ["labeled"], [3], ["uni0"]])
def test_modes_that_are_none(settings: dict, modes: list) -> None:
    with pytest.raises(UserError, match="eval_modes"):
        Config("SASRecDenoiser", "toy", flags={**settings, "eval_modes": modes})


def test_sampled_modes_need_frozen_negatives(settings: dict) -> None:
    flags = {**settings, "eval_negatives": "recbole"}
    Config("SASRecDenoiser", "toy", flags={**flags, "eval_modes": ["full"]})
    with pytest.raises(UserError, match="eval_negatives: frozen"):
        Config("SASRecDenoiser", "toy", flags={**flags, "eval_modes": ["full", "uni10"]})
