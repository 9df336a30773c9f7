"""An experiment file (``properties/experiment/*.yaml``) as the list of runs that it asks for.

    title: one line
    datasets: [ml-1m, amazon-games]
    seeds: [2020, 2021, 2022]
    models:                          # label in tables -> model and its settings
      SASRec: {model: SASRecDenoiser, denoise: False, target_denoise: none}
      SASRecDenoiser: {datasets: {ml-1m: {beta: 0.01}}}      # settings on one data set; model = the label
    settings: {epochs: 200}          # of every run
    dataset_settings: {amazon-games: {hidden_dropout_prob: 0.4}}
    vary: {train_noise: [0, 0.1]}    # every combination; a list of mappings: one after the other
    metrics: [hit@10, ndcg@10]
    pairs: {SASRecDenoiser: SASRec}  # improvement and p-value are against the second; one label: all against it
    test: permutation                # or t, wilcoxon, none
    paper: True                      # the paper's Table 2 beside ours
    figures: [{x: train_noise, metric: hit@10}, {x: epoch}]  # epoch: kept share of attentions; recovered: bars of it
    pruning: True                    # precision, recall and AUC of the masks on injected noise
    recovered: {plain: SASRec, oracle: oracle removal}       # share of what noise costs that each model wins back

A model with ``vary: False`` does not depend on what is varied: it runs once and stands beside every value. One with
``skip: {train_noise: [0.0], dataset: [ml-1m], seed: [2021]}`` is left out at that value, on that data set and with that
seed. Later settings win: settings, dataset_settings, the model's, the model's on that data set, vary, the command line.
"""

from __future__ import annotations

import copy
import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.tables import TESTS
from recbole_denoiser.integration.config import Config, set_key
from recbole_denoiser.integration.paths import properties_folder
from recbole_denoiser.integration.schema import deciding
from recbole_denoiser.integration.values import read_yaml
from recbole_denoiser.runs import results
from recbole_denoiser.runs.record import RESULT_FILE, load_run

EXPERIMENTS = ("table2", "noise", "oracle", "eval_noise", "noise_kinds", "length", "regularizers", "ablation")
Point = tuple[tuple[str, Any], ...]  # what is varied, as (key, value) pairs


@dataclass(frozen=True)
class Experiment:
    """The content of an experiment file, checked."""

    name: str
    models: dict[str, dict[str, Any]]
    datasets: list[str]
    seeds: list[int]
    title: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    dataset_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    vary: list[dict[str, list[Any]]] = field(default_factory=list)
    metrics: list[str] = field(default_factory=lambda: ["hit@10", "ndcg@10"])
    pairs: dict[str, str] | str | None = None
    test: str | None = "permutation"
    paper: bool = False
    figures: list[dict[str, str]] = field(default_factory=list)
    pruning: bool = False
    recovered: dict[str, str] = field(default_factory=dict)

    def points(self) -> list[Point]:
        """All combinations of varied values, in order; one empty point if nothing is varied."""
        found: dict[Point, None] = {}
        for grid in self.vary or [{}]:
            for values in itertools.product(*grid.values()):
                found[tuple(zip(grid, values, strict=True))] = None
        return list(found)


@dataclass(frozen=True)
class PlannedRun:
    """One cell of the grid. Cells with the same settings share one run, whatever their labels."""

    label: str
    model: str
    dataset: str
    seed: int
    point: Point  # empty for a model that does not vary
    settings: dict[str, Any]
    name: str
    folder: Path

    @property
    def finished(self) -> bool:
        """A run is finished when its result file, which is written last, is there."""
        return (self.folder / RESULT_FILE).is_file()

    def __str__(self) -> str:
        varied = "".join(f" {key}={value}" for key, value in self.point)
        return f"{self.label} on {self.dataset}{varied}, seed {self.seed}"


def load_experiment(name: str) -> Experiment:
    """A built-in experiment by its name, or the user's own by its file."""
    file = Path(name)
    if name in EXPERIMENTS:
        file = properties_folder() / "experiment" / f"{name}.yaml"
    elif file.suffix not in (".yaml", ".yml"):
        raise UserError(f"There is no experiment '{name}'. Known: {', '.join(EXPERIMENTS)}, or a YAML file of yours.")
    return parse_experiment(read_yaml(file), file.stem, str(file))


def parse_experiment(content: Mapping[str, Any], name: str, source: str) -> Experiment:
    """Check the content of an experiment file."""
    known = [key for key in Experiment.__dataclass_fields__ if key != "name"]
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise UserError(f"{source}: unknown key '{key}'.{hint} Known: {', '.join(known)}.")
    values = {key: value for key, value in content.items() if value is not None}
    for key, kind in _TYPES.items():
        if key in values and not isinstance(values[key], kind):
            raise UserError(f"{source}: {key} = {values[key]!r} must be {_KIND[kind]}.")
    for key in ("models", "datasets", "seeds"):
        if not values.get(key):
            raise UserError(f"{source}: '{key}' is missing or empty.")
    values["models"] = {str(label): dict(entry or {}) for label, entry in values["models"].items()}
    values["datasets"] = [str(dataset) for dataset in values["datasets"]]
    values["vary"] = _grids(values.get("vary", []), source)
    if any(not isinstance(seed, int) or isinstance(seed, bool) for seed in values["seeds"]):
        raise UserError(f"{source}: seeds = {values['seeds']!r} must be whole numbers.")
    if "test" in values:
        values["test"] = None if values["test"] == "none" else values["test"]
        if values["test"] not in (None, *TESTS):
            raise UserError(f"{source}: test = {values['test']!r} must be {', '.join(TESTS)} or none.")
    if not isinstance(values.get("pairs", {}), (dict, str)):
        raise UserError(f"{source}: pairs = {values['pairs']!r} must be a mapping of labels to labels, or one label.")
    if values.get("recovered") and set(values["recovered"]) != {"plain", "oracle"}:
        raise UserError(
            f"{source}: recovered = {values['recovered']!r} must be of the form {{plain: label, oracle: label}}."
        )
    for figure in values.get("figures", []):
        if not isinstance(figure, dict) or "x" not in figure or set(figure) - {"x", "metric"}:
            raise UserError(f"{source}: figure {figure!r} must be of the form {{x: key, metric: hit@10}}.")
        if figure["x"] == "recovered" and not values.get("recovered"):
            raise UserError(f"{source}: figure {figure!r} needs recovered: {{plain: label, oracle: label}}.")
    return Experiment(name=name, **values)


_TYPES: dict[str, type] = {
    "models": dict, "datasets": list, "seeds": list, "title": str, "settings": dict, "dataset_settings": dict,
    "metrics": list, "test": str, "paper": bool, "figures": list, "pruning": bool,
    "recovered": dict,
}  # fmt: skip
_KIND = {dict: "a mapping", list: "a list", str: "a text", bool: "True or False"}


def _grids(vary: Any, source: str) -> list[dict[str, list[Any]]]:
    grids = [vary] if isinstance(vary, dict) else vary
    if not isinstance(grids, list):
        raise UserError(f"{source}: vary must be a mapping of keys to lists of values, or a list of such mappings.")
    for grid in grids:
        if not isinstance(grid, dict) or not grid or any(not isinstance(v, list) or not v for v in grid.values()):
            raise UserError(f"{source}: in vary, every key needs a list of values, such as beta: [0.1, 0.01].")
    return grids


def plan(experiment: Experiment, result_dir: str | Path, flags: Mapping[str, Any]) -> list[PlannedRun]:
    """All runs, the first seed of everything first. A wrong setting anywhere is an error before anything runs."""
    for key in flags:
        if any(key in grid for grid in experiment.vary):
            raise UserError(f"--{key} is what {experiment.name} varies; edit a copy of its file instead.")
    folder = Path(result_dir) / experiment.name
    earlier = _finished_settings(folder)
    runs = []
    for dataset in experiment.datasets:
        for label, entry in experiment.models.items():
            if dataset in _skipped(experiment, entry).get("dataset", []):
                continue
            for point in _points(experiment, entry):
                runs += _planned(experiment, label, dataset, point, folder, flags, earlier)
    return sorted(runs, key=lambda run: experiment.seeds.index(run.seed))


def _points(experiment: Experiment, entry: Mapping[str, Any]) -> list[Point]:
    """Where a model runs: everywhere but at the values that it skips, or once if it does not vary."""
    if not entry.get("vary", True):
        return [()]
    skip = _skipped(experiment, entry)
    return [point for point in experiment.points() if not any(value in skip.get(key, []) for key, value in point)]


def _skipped(experiment: Experiment, entry: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Where a model is left out: key -> values."""
    skip = entry.get("skip", {})
    if not isinstance(skip, dict) or not all(isinstance(values, list) for values in skip.values()):
        raise UserError(f"{experiment.name}: skip = {skip!r} must map keys to lists of values.")
    known = {"dataset", "seed"}.union(*experiment.vary)
    if not skip.keys() <= known:
        unknown = ", ".join(sorted(map(str, skip.keys() - known)))
        raise UserError(f"{experiment.name}: skip has {unknown}; allowed: {', '.join(sorted(known))}.")
    return skip


def _planned(
    experiment: Experiment,
    label: str,
    dataset: str,
    point: Point,
    parent: Path,
    flags: Mapping[str, Any],
    earlier: Mapping[str, dict[str, Any]],
) -> list[PlannedRun]:
    """A cell with every seed."""
    entry = dict(experiment.models[label])
    without = _skipped(experiment, entry).get("seed", [])
    model, on_dataset = str(entry.pop("model", label)), entry.pop("datasets", {})
    for key in ("vary", "skip"):
        entry.pop(key, None)
    settings: dict[str, Any] = {}
    layers: list[Mapping[str, Any]] = [
        experiment.settings,
        experiment.dataset_settings.get(dataset, {}),
        entry,
        on_dataset.get(dataset, {}),
        dict(point),
        flags,
    ]
    for layer in layers:
        for key, value in layer.items():
            set_key(settings, key, copy.deepcopy(value))  # a dotted key changes a mapping that others may share
    settings = {"num_threads": 1, "show_progress": False, **settings}
    try:
        config = Config(model, dataset, config_dict=settings)
    except UserError as error:
        raise UserError(f"{experiment.name}, {label} on {dataset}: {error}") from error
    runs = []
    for seed in (seed for seed in experiment.seeds if seed not in without):
        config["seed"] = seed  # checking the settings once is enough
        name = _name(config, earlier)
        folder = parent / name
        own = {"seed": seed, "label": label, "run_name": name, "result_dir": str(parent)}
        runs.append(PlannedRun(label, model, dataset, seed, point, settings | own, name, folder))
    return runs


def _finished_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """Run name -> the settings that decide its numbers, of all finished runs in a folder."""
    return {
        file.parent.name: deciding(load_run(file.parent).config) for file in sorted(folder.glob(f"*/{RESULT_FILE}"))
    }


def _name(config: Config, earlier: Mapping[str, dict[str, Any]]) -> str:
    """The run's own name, or that of a finished run of an earlier version that is the same experiment.

    A run's name is made of all settings; without this, runs would be done again when a setting is added.
    """
    name = results.run_name(config)
    if name in earlier:
        return name
    return next((other for other, old in earlier.items() if results.is_same_experiment(old, config)), name)


def data_file(run: PlannedRun) -> Path:
    """The .inter file that a run will read."""
    config = Config(run.model, run.dataset, config_dict=run.settings)
    part = f".{config['benchmark_filename'][0]}" if config["benchmark_filename"] else ""
    return Path(config["data_path"]) / f"{run.dataset}{part}.inter"


def without_missing_data(runs: Sequence[PlannedRun]) -> tuple[list[PlannedRun], dict[str, Path]]:
    """The runs whose data set is there, and for every other data set the file that was looked for."""
    missing: dict[str, Path] = {}
    for dataset in dict.fromkeys(run.dataset for run in runs):
        file = data_file(next(run for run in runs if run.dataset == dataset))
        if not file.is_file():
            missing[dataset] = file
    return [run for run in runs if run.dataset not in missing], missing


def shard(runs: Sequence[PlannedRun], text: str) -> list[PlannedRun]:
    """Part i of k equal parts, from ``i/k`` with i from 1 to k; cells that share a run stay together."""
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit() and 1 <= int(first) <= int(second)):
        raise UserError(f"--shard {text} must be i/k with i from 1 to k, such as 1/4.")
    names = list(dict.fromkeys(run.name for run in runs))
    mine = set(names[int(first) - 1 :: int(second)])
    return [run for run in runs if run.name in mine]
