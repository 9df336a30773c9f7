"""``recbole-denoiser tune``: Optuna over a search space (space.py), chosen on validation data only.

Trials live in Optuna's storage (an SQLite file unless another URL is given), so that a study goes on after an
interruption and any number of workers, on any machine that reaches the storage, share one study. A trial is a run
like any other, named by its settings: a trial that was cut short goes on after its last epoch, and settings that come
up twice are trained once. The test metrics of the runs are never looked at.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from filelock import Timeout

from recbole_denoiser import files
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.attempt import Attempt, end_with_starter
from recbole_denoiser.experiments.cell import lock_of, run_cell, write_cell
from recbole_denoiser.experiments.engines import engine, reason_of
from recbole_denoiser.files import write_text
from recbole_denoiser.integration.config import Config, set_key
from recbole_denoiser.integration.schema import deciding
from recbole_denoiser.integration.values import read_yaml
from recbole_denoiser.runs import results
from recbole_denoiser.runs.record import read_result

TUNE_MODULE = "recbole_denoiser.experiments.tune"
SAMPLERS = ("tpe", "random", "grid")
STORAGE_VARIABLE = "RECBOLE_DENOISER_STORAGE"  # how a worker gets the storage's URL
SQLITE_WAIT_SECONDS = 100  # for another worker's write


@dataclass(frozen=True)
class Study:
    """What is tuned, and where the trials are."""

    model: str
    dataset: str
    space: dict[str, Any]
    settings: dict[str, Any]  # the same in every trial
    folder: Path  # gets the runs and best.yaml
    storage: str
    name: str
    sampler: str = "tpe"

    @property
    def metric(self) -> str:
        """What is made as large as possible."""
        return str(self.config({})["valid_metric"]).lower()

    @property
    def about(self) -> dict[str, Any]:
        """What all trials of a study must have in common."""
        about = {
            "model": self.model, "dataset": self.dataset, "search space": self.space,
            "settings": deciding(dict(sorted(self.settings.items()))),
        }  # fmt: skip
        return json.loads(json.dumps(about))

    def config(self, chosen: Mapping[str, Any]) -> Config:
        """The configuration of a trial."""
        return Config(self.model, self.dataset, config_dict=self.merged(chosen))

    def merged(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Fixed settings and those of a trial."""
        merged: dict[str, Any] = {"show_progress": False}
        for values in (self.settings, chosen):
            for key, value in values.items():
                set_key(merged, key, value)
        return merged


def fixed_settings(files: list[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of every trial: the files', later ones winning, then the flags'."""
    settings: dict[str, Any] = {}
    for file in files:
        settings.update(read_yaml(Path(file)))
    settings.update(flags)
    return settings


def check(study: Study) -> None:
    """Every bound and every choice must be a setting that a run accepts: better an error now than failed trials."""
    for key, values in study.space.items():
        for value in values if isinstance(values, list) else (values["low"], values["high"]):
            study.config({key: value})
    if study.sampler == "grid" and not all(isinstance(values, list) for values in study.space.values()):
        raise UserError("--sampler grid needs a list of values for every key of search_space.")


def suggest(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """A point of the space, from Optuna's trial."""
    chosen: dict[str, Any] = {}
    for key, values in space.items():
        if isinstance(values, list):
            chosen[key] = trial.suggest_categorical(key, values)
        elif isinstance(values["low"], int) and isinstance(values["high"], int):
            chosen[key] = trial.suggest_int(key, values["low"], values["high"], log=bool(values.get("log")))
        else:
            chosen[key] = trial.suggest_float(key, values["low"], values["high"], log=bool(values.get("log")))
    return chosen


def work(study: Study, trials: int) -> None:
    """Run trials in this process until the study has ``trials`` that ended, by whichever worker."""
    opened = open_study(study)
    _take_up_dead_trials(opened, study)

    def stop(opened: Any, _: Any) -> None:
        if _ended(opened) >= trials:
            opened.stop()

    if _ended(opened) < trials:
        opened.optimize(_objective(study), callbacks=[stop], catch=(UserError, RuntimeError))


def _ended(opened: Any) -> int:
    """Trials that have a value or failed for a reason; not those whose worker died, which are run again."""
    return sum(trial.state.name == "COMPLETE" or "error" in trial.user_attrs for trial in opened.trials)


def _take_up_dead_trials(opened: Any, study: Study) -> None:
    """A trial whose worker was killed is closed, and its settings are put first in the queue.

    The worker of a trial holds the lock of its run, from before the trial says which run that is.
    """
    from optuna.trial import TrialState

    for trial in opened.trials:
        run = trial.user_attrs.get("run")
        if trial.state == TrialState.RUNNING and run is not None and _is_free(study.folder / run):
            try:
                opened.tell(trial.number, state=TrialState.FAIL)
            except ValueError:  # another worker was faster
                continue
            opened.enqueue_trial(trial.params)


def _is_free(folder: Path) -> bool:
    """Whether no process works on a run."""
    try:
        with lock_of(folder).acquire(blocking=False):
            return True
    except Timeout:
        return False


def _objective(study: Study) -> Callable[[Any], float]:
    metric = study.metric

    def objective(trial: Any) -> float:
        chosen = suggest(trial, study.space)
        name = results.run_name(study.config(chosen))
        folder = study.folder / name
        places = {"run_name": name, "result_dir": str(study.folder)}
        with lock_of(folder):
            trial.set_user_attr("run", name)
            trial.set_user_attr("process", os.getpid())
            write_cell(folder, study.model, study.dataset, study.merged(chosen) | places)
            try:
                run_cell(folder)
                return validation_score(folder, metric)
            except (UserError, RuntimeError) as error:
                trial.set_user_attr("error", str(error))
                raise

    return objective


def run_workers(study: Study, trials: int, jobs: int | None, scheduler: str | None = None) -> None:
    """``work`` in several processes, of this machine or of a Dask cluster, which meet in the storage."""
    open_study(study)  # makes the storage before the workers race for it
    specification = study.folder / "study.json"
    content = {**asdict(study), "folder": str(study.folder), "trials": trials}
    del content["storage"]  # it may hold a password, which belongs into no file
    files.write_json(specification, content)
    variables = ((STORAGE_VARIABLE, study.storage),)
    with engine(jobs, scheduler) as found:
        logs = [study.folder / f"worker-{number + 1}.log" for number in range(max(found.slots(), 1))]
        futures = [
            found.submit(Attempt(TUNE_MODULE, str(specification), str(log), str(Path.cwd()), variables)) for log in logs
        ]
        for log, future in zip(logs, futures, strict=True):
            reason = reason_of(future)
            if reason is not None:
                print(f"A worker failed: {reason} (log in {log})", file=sys.stderr)


def main(arguments: list[str]) -> int:
    """A worker: ``python -m recbole_denoiser.experiments.tune <study.json>``."""
    end_with_starter()
    content = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    trials, folder = content.pop("trials"), Path(content.pop("folder"))
    try:
        work(Study(**content, folder=folder, storage=os.environ[STORAGE_VARIABLE]), trials)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def validation_score(folder: Path, metric: str) -> float:
    """The validation metric of a finished run; nothing else of its result is read."""
    valid = read_result(folder, "valid")["valid"]
    if not valid:
        raise UserError("Tuning needs validation data; the split leaves none.")
    if metric not in valid:
        raise UserError(f"{folder} has no validation metric {metric}; it has {', '.join(valid)}.")
    return float(valid[metric])


def without_password(text: str, url: str) -> str:
    """``text`` without the passwords of a storage URL, which belong into no message and no file."""
    found = re.findall(r"://[^:/]*:(.*)@", url)
    found += re.findall(r"[?&;]\w*(?:pass|pwd|secret|token|key)\w*=([^&;]+)", url, re.IGNORECASE)
    for password in filter(None, found):
        for form in {password, unquote(password)}:
            text = text.replace(form, "***")
    return text


def open_study(study: Study) -> Any:
    """Optuna's study, made or continued."""
    try:
        import optuna
    except ImportError:
        raise UserError("Tuning needs Optuna: pip install 'recbole-denoiser[tune]'.") from None
    import sqlalchemy

    seed = int(study.settings.get("seed", 0))
    samplers: dict[str, Callable[[], Any]] = {
        # without a seed of their own, workers that start together would propose the same points
        "tpe": lambda: optuna.samplers.TPESampler(constant_liar=True),
        "random": optuna.samplers.RandomSampler,
        "grid": lambda: optuna.samplers.GridSampler(
            {key: values for key, values in study.space.items() if isinstance(values, list)}, seed=seed
        ),
    }
    options = {"connect_args": {"timeout": SQLITE_WAIT_SECONDS}} if study.storage.startswith("sqlite") else {}
    try:
        opened = optuna.create_study(
            storage=optuna.storages.RDBStorage(study.storage, engine_kwargs=options),
            study_name=study.name,
            sampler=samplers[study.sampler](),
            direction="maximize",
            load_if_exists=True,
        )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as error:
        reason = without_password(str(error).splitlines()[0], study.storage)
        shown = without_password(study.storage, study.storage)
        raise UserError(f"The storage '{shown}' cannot be opened: {reason}") from None  # the cause holds the password
    known = opened.user_attrs.get("about")
    if known is not None and known != study.about:
        changed = ", ".join(key for key, value in study.about.items() if known.get(key) != value)
        raise UserError(f"Study '{study.name}' was begun with other {changed}; name a new one with --study.")
    if known is None:
        opened.set_user_attr("about", study.about)
    return opened


def write_best(study: Study) -> tuple[dict[str, Any], Path]:
    """The best trial's settings as a YAML file that ``run`` takes as --config_files; returns a summary, too."""
    import optuna

    opened = open_study(study)
    complete = opened.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    failed = opened.get_trials(deepcopy=False, states=(optuna.trial.TrialState.FAIL,))
    if not complete:
        raise UserError(f"None of the {len(failed)} trials succeeded; see the messages above.")
    best = opened.best_trial
    chosen = suggest(optuna.trial.FixedTrial(best.params), study.space)
    settings = study.merged(chosen)
    text = f"# {study.model} on {study.dataset}: best of {len(complete)} trials, "
    text += f"validation {study.metric} {best.value:.4f}\n"
    text += yaml.safe_dump(deciding(settings), sort_keys=False)
    summary = {"trials": len(complete), "failed": len(failed), "value": best.value, "run": best.user_attrs["run"]}
    return {**summary, "chosen": chosen}, write_text(study.folder / "best.yaml", text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
