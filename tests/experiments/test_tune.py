"""Tuning: the search space, resuming, two workers on one storage, validation only."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
import yaml
from filelock import FileLock

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import cell, tune
from recbole_denoiser.experiments.space import search_space
from recbole_denoiser.integration.config import Config

optuna.logging.set_verbosity(optuna.logging.WARNING)
FOLDER = Path("results") / "tune" / "SASRecDenoiser-toy"


@pytest.fixture
def arguments(workplace: Path, settings: dict) -> list[str]:
    """tune with a search space of its own."""
    Path("space.yaml").write_text(
        "search_space: {learning_rate: [1.0e-6, 0.01], beta: {low: 0.001, high: 0.1, log: True}}"
    )
    flags = [f"--{key}={value}" for key, value in {**settings, "epochs": 1}.items()]
    return ["tune", "--dataset=toy", "--search_space=space.yaml", *flags]


def trials(states: tuple[str, ...] = ("COMPLETE",)) -> list:
    study = optuna.load_study(study_name="SASRecDenoiser-toy", storage=f"sqlite:///{FOLDER / 'study.db'}")
    return [trial for trial in study.trials if trial.state.name in states]


def test_the_best_validation_score_wins_and_a_study_goes_on(
    arguments: list[str], capsys: pytest.CaptureFixture
) -> None:
    assert main([*arguments, "--trials=2"]) == 0
    assert len(trials()) == 2
    assert main([*arguments, "--trials=4"]) == 0
    done = trials()
    assert len(done) == 4
    for trial in done:
        result = json.loads((FOLDER / trial.user_attrs["run"] / "result.json").read_text())
        assert trial.value == pytest.approx(result["valid"]["ndcg@10"])
        assert result["config"]["learning_rate"] == trial.params["learning_rate"]
    best = max(done, key=lambda trial: trial.value)
    written = yaml.safe_load((FOLDER / "best.yaml").read_text())
    assert written["learning_rate"] == best.params["learning_rate"]
    assert written["beta"] == pytest.approx(best.params["beta"])
    assert f"best validation ndcg@10: {best.value:.4f}" in capsys.readouterr().out
    # the file is a configuration
    flags = [flag for flag in arguments[3:] if not flag.startswith(("--epochs", "--MAX", "--eval", "--train"))]
    assert main(["run", "--dataset=toy", "--config_files", str(FOLDER / "best.yaml"), *flags]) == 0


def test_two_workers_share_a_storage(arguments: list[str]) -> None:
    assert main([*arguments, "--trials=4", "--jobs=2", "--sampler=random"]) == 0
    workers = {trial.user_attrs["process"] for trial in trials()}
    assert len(workers) == 2
    assert 4 <= len(trials()) <= 5  # the last one of each worker may end together
    assert not trials(("FAIL", "RUNNING"))


def test_a_trial_of_a_dead_worker_is_taken_up(arguments: list[str], settings: dict) -> None:
    assert main([*arguments, "--trials=1"]) == 0
    study = optuna.load_study(study_name="SASRecDenoiser-toy", storage=f"sqlite:///{FOLDER / 'study.db'}")
    lost = study.ask()
    (FOLDER / "lost").mkdir()
    chosen = tune.suggest(lost, search_space("SASRecDenoiser", "space.yaml"))
    lost.set_user_attr("run", "lost")
    with FileLock(FOLDER / "lost" / cell.LOCK_FILE):  # its worker lives
        assert main([*arguments, "--trials=1"]) == 0
        assert not trials(("FAIL",))
    assert main([*arguments, "--trials=2"]) == 0
    assert [trial.number for trial in trials(("FAIL",))] == [lost.number]
    again = trials()[-1]
    assert {key: again.params[key] for key in chosen} == chosen


def test_failed_trials_are_counted_and_reported(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    Path("space.yaml").write_text("search_space: {learning_rate: [1.0e+30]}")
    assert main([*arguments, "--trials=2", "--denoise=False"]) == 2
    assert "None of the 2 trials succeeded" in capsys.readouterr().err


def test_the_papers_grids_are_a_named_space() -> None:
    space = search_space("SASRecDenoiser", "paper")
    assert space["hidden_size"] == [10, 20, 30, 40, 50]
    assert space["beta"] == space["gamma"] == [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
    with pytest.raises(UserError, match=r"no such file, .*; named spaces: paper\."):
        search_space("SASRecDenoiser", "papers")
    with pytest.raises(UserError, match="FPMC has none of the settings"):
        search_space("FPMC", "paper")


@pytest.mark.parametrize(
    "model", ["SASRecDenoiser", "BERT4RecDenoiser", "SSEPTDenoiser", "TiSASRecDenoiser", "GRU4Rec"]
)
def test_the_default_space_lies_around_the_defaults(model: str) -> None:
    defaults, space = Config(model).final_config_dict, search_space(model)
    assert space["learning_rate"]["log"]
    assert ("beta" in space) == (model != "GRU4Rec")
    for key, values in space.items():
        if isinstance(values, list):
            assert defaults[key] in values
        else:
            assert values["low"] < defaults[key] < values["high"] or defaults[key] == values["low"] == 0
    tune.check(tune.Study(model, "ml-100k", space, {}, Path("x"), "sqlite://", "s"))  # every bound is allowed


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("{}", "no search space"),
        ("search_space: {beta: 3}", "list of numbers"),
        ("search_space: {beta: [[1], [2]]}", "list of numbers"),
        ("search_space: {hiden_size: [3]}", "hidden_size"),
        ("search_space: {beta: {low: -1, high: 2}}", "beta = -1"),
        ("search_space: {beta: {low: 2, high: 1}}", "low <= high"),
        ("search_space: {beta: {low: a, high: b}}", "must be numbers"),
        ("search_space: {beta: {low: .nan, high: 1}}", "must be numbers"),
        ("search_space: {beta: {low: 0, high: 1, log: True}}", "above 0 with log"),
        ("search_space: {beta: {low: 0, high: 1, log: 3}}", "True or False"),
    ],
)
def test_mistakes_in_the_space(arguments: list[str], capsys: pytest.CaptureFixture, space: str, words: str) -> None:
    Path("space.yaml").write_text(space)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_other_mistakes(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main([*arguments, "--storage=nodatabase://x"]) == 2
    assert "cannot be opened" in capsys.readouterr().err
    assert main([*arguments, "--sampler=grid"]) == 2
    assert "--sampler grid" in capsys.readouterr().err
    assert main([*arguments, "--trials=1"]) == 0
    assert main([*arguments, "--trials=2", "--gamma=0.1"]) == 2
    assert "begun with other settings" in capsys.readouterr().err
