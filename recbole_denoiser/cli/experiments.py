"""The commands of the experiments: reproduce, compare, tune."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from recbole_denoiser.cli.arguments import add_result_dir, add_scheduler, positive
from recbole_denoiser.errors import UserError

# set by the grid itself
_NOT_FLAGS = {"seed": "--seeds", "label": "models", "run_name": "nothing", "checkpoint_dir": "--result_dir",
              "resume": "nothing: a grid always resumes"}  # fmt: skip


def add_commands(command: Callable[..., Any]) -> None:
    """Register the commands; ``command`` is main.py's registrar."""
    reproduce = command("reproduce", _reproduce, settings=True)
    reproduce.add_argument(
        "experiment",
        help="table2, noise, oracle, eval_noise, noise_kinds, length, regularizers, ablation, or a YAML file",
    )
    reproduce.add_argument("--result_dir", default="results", help="folder that gets <experiment>/")
    reproduce.add_argument("--jobs", type=positive, help="processes at a time; default: one per core")
    add_scheduler(reproduce)
    reproduce.add_argument("--shard", metavar="I/K", help="only part I of K, to split a grid over machines")
    reproduce.add_argument("--datasets", nargs="+", help="instead of the experiment's")
    reproduce.add_argument("--models", nargs="+", metavar="LABEL", help="only these of the experiment")
    reproduce.add_argument("--seeds", nargs="+", type=int, help="instead of the experiment's")
    what = reproduce.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="list the runs and stop")
    what.add_argument("--report", action="store_true", help="only make tables and figures of what is finished")

    compare = command("compare", _compare)
    compare.add_argument("runs", nargs="+", metavar="run", help="folders or names of runs, each perhaps as name=run")
    add_result_dir(compare)
    compare.add_argument("--metrics", nargs="+", default=["hit@10", "ndcg@10"])
    compare.add_argument(
        "--test", default="permutation", help="whose p-values the table shows: permutation, t, wilcoxon"
    )
    compare.add_argument("--reference", metavar="LABEL", help="what all are compared with; default: the plain backbone")
    compare.add_argument("--output", help="folder that gets table.md, table.tex and table.csv")

    tune = command("tune", _tune, settings=True)
    tune.add_argument("--model", "-m", default="SASRecDenoiser")
    tune.add_argument("--dataset", "-d", default="ml-100k")
    tune.add_argument("--config_files", nargs="*", default=[], help="YAML files with settings of every trial")
    tune.add_argument("--search_space", help="YAML file, or paper: its grids; default: around the model's defaults")
    tune.add_argument("--trials", type=positive, default=20, help="trials in all, by all workers and earlier calls")
    tune.add_argument("--jobs", type=positive, help="worker processes (1; on a cluster: all it takes)")
    add_scheduler(tune)
    tune.add_argument("--storage", help="Optuna storage URL; default: an SQLite file in the study's folder")
    tune.add_argument("--study", help="name of the study; default: <model>-<dataset>")
    tune.add_argument("--sampler", choices=("tpe", "random", "grid"), default="tpe")
    tune.add_argument("--result_dir", default="results", help="folder that gets tune/<study>/")


def _reproduce(options: Any) -> None:
    from recbole_denoiser.data.prepare.sources import how_to_get
    from recbole_denoiser.experiments import plan as planning
    from recbole_denoiser.experiments.grid import run_grid
    from recbole_denoiser.experiments.outputs import write_outputs

    for key, instead in _NOT_FLAGS.items():
        if key in options.settings:
            raise UserError(f"--{key} cannot be set for a whole experiment; use {instead}.")
    experiment = _narrowed(planning.load_experiment(options.experiment), options)
    planned = planning.plan(experiment, options.result_dir, options.settings)
    # tables of finished runs need no data
    runs, missing = (planned, {}) if options.report else planning.without_missing_data(planned)
    for dataset, file in missing.items():
        print(
            f"Data set {dataset} is left out: there is no {file}. Set --data_path. {how_to_get(dataset)}",
            file=sys.stderr,
        )
    if not runs or (missing and options.datasets):
        raise UserError(f"There is no data for {', '.join(missing)}; see recbole-denoiser prepare --help.")
    experiment = replace(experiment, datasets=[name for name in experiment.datasets if name not in missing])
    mine = planning.shard(runs, options.shard) if options.shard else runs
    if options.plan:
        for run in mine:
            print(f"{'finished' if run.finished else 'to do':<9} {run}  {run.name}")
        return
    folder = Path(options.result_dir) / experiment.name
    failed = False
    if not options.report:
        failed = _run_grid(lambda: run_grid(mine, options.jobs, options.scheduler, options.shard))
    for file in write_outputs(experiment, runs, folder):
        print(f"wrote {file}")
    print((folder / "table.md").read_text(encoding="utf-8"))
    if failed:
        raise SystemExit(1)


def _narrowed(experiment: Any, options: Any) -> Any:
    """The experiment with the data sets, models and seeds of the command line."""
    models = experiment.models
    if options.models:
        unknown = [label for label in options.models if label not in models]
        if unknown:
            raise UserError(f"{experiment.name} has no model {', '.join(unknown)}. It has: {', '.join(models)}.")
        models = {label: models[label] for label in options.models}
    return replace(
        experiment,
        models=models,
        datasets=options.datasets or experiment.datasets,
        seeds=options.seeds or experiment.seeds,
    )


@contextmanager
def _can_be_stopped() -> Iterator[None]:
    """Ctrl-C loses nothing that is finished."""
    try:
        yield
    except KeyboardInterrupt:
        print("Stopped. The same command goes on where this one was.", file=sys.stderr)
        raise SystemExit(130) from None


def _run_grid(run_grid: Callable[[], Any]) -> bool:
    """Whether a run failed; what happened to runs that are not finished is printed."""
    with _can_be_stopped():
        outcome = run_grid()
    for run, reason in outcome.failed:
        print(f"FAILED {run}: {reason}\n  log: {run.folder / 'log.txt'}", file=sys.stderr)
    return bool(outcome.failed)


def _compare(options: Any) -> None:
    from recbole_denoiser.experiments.comparison import compare_runs, named_runs
    from recbole_denoiser.experiments.table_text import to_csv, to_latex, to_markdown
    from recbole_denoiser.files import write_text

    runs = named_runs(options.runs, options.result_dir)
    comparison = compare_runs(runs, options.metrics, options.test, options.reference)
    text = f"{to_markdown(comparison.table)}\n{comparison}\n"
    if options.output:
        folder = Path(options.output)
        write_text(folder / "table.md", text)
        write_text(folder / "table.tex", to_latex(comparison.table))
        write_text(folder / "table.csv", to_csv(comparison.table))
    print(text)


def _tune(options: Any) -> None:
    from recbole_denoiser.experiments import tune
    from recbole_denoiser.experiments.space import search_space
    from recbole_denoiser.files import require_plain_name

    name = require_plain_name(options.study or f"{options.model}-{options.dataset}", "--study")
    folder = Path(options.result_dir) / "tune" / name
    folder.mkdir(parents=True, exist_ok=True)
    study = tune.Study(
        model=options.model,
        dataset=options.dataset,
        space=search_space(options.model, options.search_space),
        settings=tune.fixed_settings(options.config_files, options.settings),
        folder=folder,
        storage=options.storage or f"sqlite:///{folder / 'study.db'}",
        name=name,
        sampler=options.sampler,
    )
    tune.check(study)
    with _can_be_stopped():
        if options.scheduler or (options.jobs or 1) > 1:
            tune.run_workers(study, options.trials, options.jobs, options.scheduler)
        else:
            tune.work(study, options.trials)
    summary, file = tune.write_best(study)
    print(f"{summary['trials']} trials ({summary['failed']} failed); best validation {study.metric}: "
          f"{summary['value']:.4f} in run {summary['run']}")  # fmt: skip
    for key, value in summary["chosen"].items():
        print(f"  {key}: {value}")
    print(f"wrote {file}; use it with: recbole-denoiser run -m {study.model} -d {study.dataset} --config_files {file}")
