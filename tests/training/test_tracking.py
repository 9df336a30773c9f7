"""Trackers get the settings, losses by term, metrics, kept shares and estimated noise that result.json holds."""

from __future__ import annotations

import importlib.util
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline
from recbole_denoiser.training.tracking import epoch_figures, result_figures
from recbole_denoiser.training.trainer import SequenceTrainer

NOISE = {"train_noise": 0.2, "noise_action": "remove"}


@pytest.fixture
def client(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens MLflow's files in a folder of a run."""
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow has it")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return lambda run: mlflow.MlflowClient((Path("results") / run / "mlruns").resolve().as_uri())


def the_run(client: Any) -> Any:
    (found,) = client.search_runs([client.get_experiment_by_name("toy").experiment_id])
    return found


def test_names_of_figures() -> None:
    record = {"losses": {"rec": 1.5, "mask": 2}, "valid": {"ndcg@10": 0.25}, "kept": [0.5, 1.0]}
    assert epoch_figures(record) == {
        "loss/rec": 1.5, "loss/mask": 2.0, "valid/ndcg@10": 0.25, "kept/layer1": 0.5, "kept/layer2": 1.0,
    }  # fmt: skip
    assert epoch_figures({"losses": {"loss": 1.0}, "valid": None, "kept": None}) == {"loss/loss": 1.0}
    noise = {"removed": 3, "interactions": 12, "share": 0.2, "interval": [0.1, 0.3]}
    assert result_figures({"test": {"hit@5": 0.5}, "kept": None, "noise": noise}) == {
        "test/hit@5": 0.5, "noise/removed": 0.25, "noise/share": 0.2, "noise/low": 0.1, "noise/high": 0.3,
    }  # fmt: skip
    oracle = {"removed": 3, "interactions": 12, "known": {"share": 0.2}}  # which estimates nothing
    assert result_figures({"test": None, "kept": None, "noise": oracle}) == {"noise/removed": 0.25}


def test_mlflow_files_hold_what_the_result_holds(client: Any, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags={**settings, **NOISE, "tracker": "mlflow"})
    opened = client(result["run"])
    run = the_run(opened)
    assert (run.info.run_name, run.info.status) == (result["run"], "FINISHED")
    assert run.data.params == {key: str(value) for key, value in result["config"].items()}
    for record in result["epochs"]:
        for name, value in epoch_figures(record).items():
            history = {m.step: m.value for m in opened.get_metric_history(run.info.run_id, name.replace("@", "_at_"))}
            assert history[record["epoch"] + 1] == value
    assert run.data.metrics["test/ndcg_at_10"] == result["test"]["ndcg@10"]
    assert run.data.metrics["noise/share"] == result["noise"]["share"]
    assert run.data.metrics["kept/layer1"] == result["kept"][0]
    assert {"loss/rec", "loss/mask", "loss/jacobian", "valid/hit_at_5"} <= run.data.metrics.keys()
    assert not list(Path().rglob("events.out*")) and not Path("mlruns").exists()


def test_a_failed_run_says_so_and_is_resumed_as_the_same(
    client: Any, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {**settings, "epochs": 3, "tracker": "tensorboard, mlflow", "run_name": "mine"}
    train = SequenceTrainer._train_epoch

    def fail(self: Any, data: Any, epoch: int, *args: Any, **kwargs: Any) -> Any:
        if epoch == 2:
            raise RuntimeError("no power")
        return train(self, data, epoch, *args, **kwargs)

    monkeypatch.setattr(SequenceTrainer, "_train_epoch", fail)
    with pytest.raises(RuntimeError, match="no power"):
        pipeline.run(dataset="toy", flags=flags)
    assert the_run(client("mine")).info.status == "FAILED"
    monkeypatch.setattr(SequenceTrainer, "_train_epoch", train)
    result = pipeline.run(dataset="toy", flags={**flags, "resume": True})
    run = the_run(client("mine"))
    assert run.info.status == "FINISHED"
    steps = [m.step for m in client("mine").get_metric_history(run.info.run_id, "loss/rec")]
    assert steps == [record["epoch"] + 1 for record in result["epochs"]] == [1, 2, 3]


def test_a_server_that_is_not_there_is_told(client: Any, settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"MLflow at http://127\.0\.0\.1:9 cannot be used: "):
        pipeline.run(dataset="toy", flags={**settings, "tracker": "mlflow"})


def test_a_server_that_goes_away_does_not_end_the_training(
    client: Any, settings: dict, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    log_batch = MlflowClient.log_batch

    def away(self: Any, *args: Any, metrics: Any = (), **kwargs: Any) -> Any:
        if metrics:
            raise MlflowException("gone")
        return log_batch(self, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, "log_batch", away)
    result = pipeline.run(dataset="toy", flags={**settings, "tracker": "mlflow"})
    assert len(result["epochs"]) == 2
    assert [m for m in caplog.messages if "MLflow" in m] == ["MLflow does not take figures: gone"]


def test_tensorboard_is_the_default_and_none_is_none(workplace: Path, settings: dict) -> None:
    result = pipeline.run(dataset="toy", flags={**settings, "tracker": "none"})
    assert not list(workplace.rglob("events.out*"))
    pipeline.run(dataset="toy", flags={**settings, "overwrite": True})
    found: dict[str, list] = {}
    for file in workplace.rglob("events.out*"):
        events = EventAccumulator(str(file)).Reload()
        found |= {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for name, value in epoch_figures(result["epochs"][0]).items():
        assert found[name][0] == (1, pytest.approx(value, rel=1e-6))
    assert found["test/hit@10"] == [(result["best_epoch"] + 1, pytest.approx(result["test"]["hit@10"], rel=1e-6))]


@pytest.mark.parametrize("fails", [False, True])
def test_tensorboards_writer_ends_with_the_run(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise UserError("no more")

    before = set(threading.enumerate())
    if fails:
        monkeypatch.setattr(pipeline, "tell_result", fail)
    with pytest.raises(UserError, match="no more") if fails else nullcontext():
        pipeline.run(dataset="toy", flags=settings)
    assert list(workplace.rglob("events.out*"))
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("flag", ["--tracker=mlflow", "--tracker=wandb", "--log_wandb=True"])
def test_without_the_extra_one_line_names_it(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, flag: str
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in ("mlflow", "wandb") else find_spec(name, *a)
    )
    assert main(["run", "--dataset=toy", *(f"--{k}={v}" for k, v in settings.items()), flag]) == 2
    extra = "mlflow" if "mlflow" in flag else "wandb"
    error = capsys.readouterr().err.strip()
    assert error.endswith(f"needs the package {extra}: pip install 'recbole-denoiser[{extra}]'.")
    assert "\n" not in error


@pytest.mark.parametrize("value", ["mlfow", "mlflow;wandb", "none,mlflow", ""])
def test_other_names_are_refused(value: str) -> None:
    with pytest.raises(UserError, match=r"tracker = .* takes tensorboard \| wandb \| mlflow \| none, or several"):
        Config("SASRecDenoiser", "ml-100k", config_dict={"tracker": value})
