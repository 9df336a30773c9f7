"""The figures of a run for TensorBoard, Weights & Biases and MLflow, under the same names in each.

Per epoch ``loss/<term>``, ``valid/<metric>`` and ``kept/layer<i>``; at the end ``test/<metric>``, the kept shares of
the best epoch and ``noise/...``, what the detector estimated. What W&B and MLflow write on this machine is in the run's
folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any, Protocol

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import trackers

Figures = Mapping[str, float]
MLFLOW_BATCH = 100  # settings that MLflow takes at once


class Tracker(Protocol):
    """Takes the figures of one run."""

    def epoch(self, number: int, figures: Figures) -> None:
        """Figures of an epoch, counted from 1."""

    def result(self, number: int, figures: Figures) -> None:
        """Figures of the finished run, whose best epoch has this number."""


def epoch_figures(record: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a record of the trainer's history."""
    return {
        **_named("loss", record["losses"]),
        **_named("valid", record["valid"]),
        **_named("kept", _layers(record["kept"])),
    }


def result_figures(content: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a finished run, from what result.json holds."""
    figures = {**_named("test", content["test"]), **_named("kept", _layers(content["kept"]))}
    noise = content["noise"]
    if noise is not None:
        figures["noise/removed"] = noise["removed"] / max(noise["interactions"], 1)
        if "share" in noise:
            low, high = noise["interval"]
            figures |= {"noise/share": noise["share"], "noise/low": low, "noise/high": high}
    return figures


def _named(head: str, values: Mapping[str, float] | None) -> dict[str, float]:
    return {f"{head}/{name}": float(value) for name, value in (values or {}).items()}


def _layers(shares: list[float] | None) -> dict[str, float]:
    return {f"layer{number}": share for number, share in enumerate(shares or [], start=1)}


@contextmanager
def tracked(trainer: Any, folder: Path) -> Iterator[None]:
    """Inside the context the trainer has all trackers of its settings; if it ends by an error, they are told.

    TensorBoard's writer is closed at the end: its thread would go on, and complain when the folder is removed.
    """
    makers = {"wandb": _wandb, "mlflow": _mlflow}  # TensorBoard the trainer has from the start
    chosen = [makers[name] for name in trackers.chosen(trainer.config) if name in makers]
    with ExitStack() as stack:
        stack.callback(trainer.tensorboard.close)
        trainer.trackers += [stack.enter_context(maker(trainer.config, folder)) for maker in chosen]
        yield


def tell_result(trainer: Any, content: Mapping[str, Any]) -> None:
    """The figures of the finished run, for all trackers of the trainer."""
    for tracker in trainer.trackers:
        tracker.result(content["best_epoch"] + 1, result_figures(content))


class TensorBoard:
    """Scalars by epoch."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def epoch(self, number: int, figures: Figures) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(name, value, number)

    result = epoch


class WeightsAndBiases:
    """A run of W&B; the figures of the finished run are its summary."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def epoch(self, number: int, figures: Figures) -> None:
        self.run.log(dict(figures), step=number)

    def result(self, number: int, figures: Figures) -> None:
        self.run.summary.update({**figures, "best_epoch": number})


@contextmanager
def _wandb(config: Any, folder: Path) -> Iterator[WeightsAndBiases]:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=config["wandb_project"], name=config["run_name"], config=config.plain(), dir=str(folder),
        resume="auto" if config["resume"] else None,
    )  # fmt: skip
    try:
        yield WeightsAndBiases(run)
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()


class MLflow:
    """A run of MLflow. Trouble with its server after the start is told once and does not end the training."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id, self.told = client, run_id, False

    def epoch(self, number: int, figures: Figures) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name.replace("@", "_at_"), value, now, number) for name, value in figures.items()]
        self.tell(lambda: self.client.log_batch(self.run_id, metrics=metrics))

    result = epoch

    def tell(self, call: Any) -> None:
        """Make a call to the server."""
        from mlflow.exceptions import MlflowException

        try:
            call()
        except MlflowException as error:
            if not self.told:
                getLogger().warning("MLflow does not take figures: %s", _first_line(error))
            self.told = True


@contextmanager
def _mlflow(config: Any, folder: Path) -> Iterator[MLflow]:
    """MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME are MLflow's own; without them files in the run's folder."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    place = os.environ.get("MLFLOW_TRACKING_URI")
    if not place:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow refuses to write files
        place = (folder / "mlruns").resolve().as_uri()
    try:
        client = MlflowClient(place)
        tracker = MLflow(client, _mlflow_run(client, config))
    except MlflowException as error:
        raise UserError(f"MLflow at {place} cannot be used: {_first_line(error)}") from error
    try:
        yield tracker
    except BaseException as error:
        status = "FAILED" if isinstance(error, Exception) else "KILLED"
        tracker.tell(lambda: client.set_terminated(tracker.run_id, status))
        raise
    tracker.tell(lambda: client.set_terminated(tracker.run_id, "FINISHED"))


def _mlflow_run(client: Any, config: Any) -> str:
    """The id of a new run with all settings, or of the one that is resumed."""
    from mlflow.entities import Param

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(config["dataset"])
    found = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if found is None else found.experiment_id
    if config["resume"]:
        same = client.search_runs([experiment], f"tags.`mlflow.runName` = '{config['run_name']}'", max_results=1)
        if same:
            client.set_terminated(same[0].info.run_id, "RUNNING")
            return same[0].info.run_id
    run = client.create_run(experiment, run_name=config["run_name"])
    settings = [Param(key, str(value)) for key, value in config.plain().items()]
    for start in range(0, len(settings), MLFLOW_BATCH):
        client.log_batch(run.info.run_id, params=settings[start : start + MLFLOW_BATCH])
    return run.info.run_id


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
