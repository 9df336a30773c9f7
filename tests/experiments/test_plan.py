"""From an experiment file to its runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.cell import run_cell, write_cell
from recbole_denoiser.experiments.plan import (
    EXPERIMENTS,
    PlannedRun,
    load_experiment,
    parse_experiment,
    plan,
    shard,
    without_missing_data,
)
from recbole_denoiser.integration.config import Config

CONTENT: dict[str, Any] = {
    "datasets": ["toy"],
    "seeds": [1, 2],
    "models": {
        "Plain": {"model": "SASRecDenoiser", "denoise": False, "vary": False},
        "SASRecDenoiser": {"datasets": {"toy": {"gamma": 0.5}}},
    },
    "settings": {"epochs": 7, "gamma": 0.1, "eval_args": {"mode": "uni10"}},
    "dataset_settings": {"toy": {"hidden_size": 32}},
    "vary": [{"beta": [0.1, 0.2]}, {"train_noise": [0.0, 0.1, 0.2]}],
}


def planned(changes: dict[str, Any] | None = None, flags: dict[str, Any] | None = None) -> list[PlannedRun]:
    return plan(parse_experiment({**CONTENT, **(changes or {})}, "mine", "mine.yaml"), "results", flags or {})


def test_every_combination_once(workplace: Path) -> None:
    runs = planned()
    assert Counter((run.label, run.seed) for run in runs) == {
        ("Plain", 1): 1, ("Plain", 2): 1, ("SASRecDenoiser", 1): 5, ("SASRecDenoiser", 2): 5,
    }  # fmt: skip
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert {run.point for run in runs if run.label == "SASRecDenoiser"} == {
        (("beta", 0.1),), (("beta", 0.2),), (("train_noise", 0.0),), (("train_noise", 0.1),), (("train_noise", 0.2),),
    }  # fmt: skip
    assert len({run.name for run in runs}) == len(runs)


def test_products(workplace: Path) -> None:
    runs = planned({"vary": {"beta": [0.1, 0.2], "train_noise": [0.0, 0.1, 0.2]}})
    assert sum(run.label == "SASRecDenoiser" for run in runs) == 2 * 6


def test_later_settings_win(workplace: Path) -> None:
    runs = planned(flags={"epochs": 3, "eval_args.mode": "full"})
    run = next(run for run in runs if run.point == (("beta", 0.2),))
    assert {key: run.settings[key] for key in ("epochs", "gamma", "hidden_size", "beta", "seed")} == {
        "epochs": 3, "gamma": 0.5, "hidden_size": 32, "beta": 0.2, "seed": 1,
    }  # fmt: skip
    assert run.settings["eval_args"] == {"mode": "full"}
    assert CONTENT["settings"]["eval_args"] == {"mode": "uni10"}  # the file's content is not touched
    assert run.folder == Path("results") / "mine" / run.name
    config = Config(run.model, run.dataset, config_dict=run.settings)
    assert config["eval_args"]["split"] == {"LS": "valid_and_test"}


def test_the_same_settings_are_the_same_run(workplace: Path) -> None:
    twins = {"A": {"model": "SASRecDenoiser", "beta": 0.3}, "B": {"model": "SASRecDenoiser", "beta": 0.3}}
    runs = planned({"models": twins, "vary": None, "seeds": [1]})
    assert runs[0].name == runs[1].name
    assert len(shard(runs, "1/2")) == 2
    assert shard(runs, "2/2") == []


def test_shards_are_disjoint_and_complete(workplace: Path) -> None:
    runs = planned()
    parts = [shard(runs, f"{i}/5") for i in range(1, 6)]
    assert sorted(run.name for part in parts for run in part) == sorted(run.name for run in runs)
    assert max(len(part) for part in parts) - min(len(part) for part in parts) <= 1
    for wrong in ("0/2", "3/2", "1", "a/b"):
        with pytest.raises(UserError, match="--shard"):
            shard(runs, wrong)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modells": {}}, "Did you mean 'models'"),
        ({"models": {}}, "'models' is missing"),
        ({"seeds": ["one"]}, "whole numbers"),
        ({"vary": {"beta": 0.1}}, "list of values"),
        ({"test": "F"}, "permutation"),
        ({"figures": [{"y": "beta"}]}, "figure"),
        ({"models": {"SASRek": {}}}, "Unknown model"),
        ({"settings": {"hiden_size": 3}}, "hidden_size"),
        ({"vary": {"beta": [-1]}}, "beta = -1"),
    ],
)
def test_mistakes_are_found_before_anything_runs(workplace: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        planned(changes)


def test_a_flag_cannot_fix_what_is_varied(workplace: Path) -> None:
    with pytest.raises(UserError, match="--beta is what mine varies"):
        planned(flags={"beta": 0.1})


def test_missing_data_is_left_out(workplace: Path, toy: Path) -> None:
    runs = planned({"datasets": ["toy", "nowhere"]}, {"data_path": str(toy)})
    found, missing = without_missing_data(runs)
    assert {run.dataset for run in found} == {"toy"}
    assert missing == {"nowhere": toy / "nowhere" / "nowhere.inter"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_built_in_experiments(workplace: Path, name: str) -> None:
    experiment = load_experiment(name)
    runs = plan(experiment, "results", {})
    assert len(runs) >= len(experiment.models) * len(experiment.datasets) * len(experiment.seeds)
    assert len(experiment.seeds) >= 3


def test_a_copy_of_a_built_in_experiment_can_be_run(workplace: Path) -> None:
    from recbole_denoiser.integration.paths import properties_folder

    text = (properties_folder() / "experiment" / "noise.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert list(load_experiment("mine.yaml").models) == list(content["models"])
    assert load_experiment("mine.yaml").name == "mine"
    with pytest.raises(UserError, match="no experiment 'tabel2'"):
        load_experiment("tabel2")


def test_new_keys_of_a_later_version_do_not_repeat_finished_runs(workplace: Path, toy: Path) -> None:
    content = {**CONTENT, "models": {"GRU4Rec": {}}, "vary": None, "seeds": [1, 2], "settings": {"epochs": 0}}
    experiment = parse_experiment(content, "mine", "mine.yaml")
    flags = {"data_path": str(toy), "eval_args.mode": "uni10"}
    first, second = plan(experiment, "results", flags)
    write_cell(first.folder, first.model, first.dataset, first.settings)
    run_cell(first.folder)
    # as if an earlier version without two of the keys had written it
    file = first.folder / "result.json"
    result = json.loads(file.read_text())
    for key in ("train_noise", "long_history"):
        del result["config"][key]
    file.write_text(json.dumps(result))
    first.folder.rename(first.folder.with_name("old"))
    again = plan(experiment, "results", flags)
    assert [run.name for run in again] == ["old", second.name]
    assert [run.finished for run in again] == [True, False]
    for other in ({"hidden_size": 16}, {"train_noise": 0.3}):  # one that the old run knows, one that it does not
        assert not any(run.finished for run in plan(experiment, "results", {**flags, **other})), other
