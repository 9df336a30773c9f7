"""The command ``recbole-denoiser``; errors of the user are one message and exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from recbole_denoiser.cli import analysis as report_commands
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import parse_value
from recbole_denoiser.integration.registry import known_models


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = _parser()
    known, rest = parser.parse_known_args(sys.argv[1:] if arguments is None else list(arguments))
    try:
        if not known.takes_settings and rest:
            raise UserError(f"Unknown argument '{rest[0]}'; see recbole-denoiser {known.command} --help.")
        known.settings = parse_settings(rest)
        known.function(known)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a lost folder: nothing that a stack trace would explain
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted. Run the same command with --resume to continue.", file=sys.stderr)
        return 130
    return 0


def parse_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """``--key=value``, ``--key value`` and, for a switch, ``--key`` alone."""
    settings: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise UserError(f"Cannot read '{word}': settings are written --key=value.")
        name, equals, text = word[2:].partition("=")
        if not equals:
            text = rest.pop(0) if rest and not rest[0].startswith("--") else "True"
        value = parse_value(text)
        if name in settings and settings[name] != value:
            raise UserError(f"--{name} is given twice, as {settings[name]!r} and {value!r}.")
        settings[name] = value
    return settings


def _parser() -> argparse.ArgumentParser:
    from recbole_denoiser.cli.experiments import add_commands as add_experiment_commands

    parser = argparse.ArgumentParser(
        prog="recbole-denoiser", description="Rec-Denoiser and RecBole's sequential models, trained and measured."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(
        name: str, function: Callable[[Any], None], summary: str, settings: bool = False
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        sub.set_defaults(function=function, takes_settings=settings)
        return sub

    run = command("run", _run, "Train and test a model; any RecBole or package setting as --key=value.", settings=True)
    run.add_argument("--model", "-m", default="SASRecDenoiser", help=f"one of {', '.join(known_models())}")
    run.add_argument("--dataset", "-d", default="ml-100k", help="name of a data set in data_path (ml-100k is included)")
    run.add_argument("--config_files", nargs="*", default=[], help="YAML files, later ones win")
    run.add_argument("--nproc", type=int, default=1, help="processes on this machine")
    run.add_argument("--ip", default="localhost", help="address of the first machine")
    run.add_argument("--port", type=int, help="port of the first machine (5678; on one machine any free one)")
    run.add_argument("--world_size", type=int, default=-1, help="processes on all machines")
    run.add_argument("--group_offset", type=int, default=0, help="number of this machine's first process")

    command("demo", _demo, "Train the default model and its plain backbone on ml-100k and compare.", settings=True)
    variance = command("variance", _variance, "Relative gradient variance of every estimator on a finished run.")
    variance.add_argument("run", help="folder of the run, with its result.json")
    variance.add_argument("--draws", type=int, default=50, help="gradient draws per estimator")
    add_experiment_commands(command)
    command("doctor", _doctor, "Show versions, device, property folder and data sets found.", settings=True)
    report_commands.add_commands(command)
    return parser


def _run(options: Any) -> None:
    from recbole_denoiser.integration import parallel
    from recbole_denoiser.runs import launch, pipeline
    from recbole_denoiser.runs.summary import run_table

    files = [file for text in options.config_files for file in text.split()]
    arguments = {
        "model": options.model, "dataset": options.dataset, "config_files": files, "flags": options.settings
    }  # fmt: skip
    processes = launch.Processes(options.nproc, options.world_size, options.ip, options.port, options.group_offset)
    result = launch.run(arguments, processes) if processes.total > 1 else pipeline.run(**arguments)
    if result is not None and parallel.rank() == 0:
        print(run_table(result))
    parallel.stop()  # if torchrun started us


def _demo(options: Any) -> None:
    from recbole_denoiser.cli.demo import demo

    print(demo(options.settings))


def _variance(options: Any) -> None:
    from recbole_denoiser.analysis.variance import variance_of_run
    from recbole_denoiser.runs.record import load_run

    print(variance_of_run(load_run(options.run), options.draws))


def _doctor(options: Any) -> None:
    from recbole_denoiser.cli.doctor import report

    unknown = set(options.settings) - {"data_path"}
    if unknown:
        raise UserError(f"Unknown argument '--{unknown.pop()}'; doctor takes --data_path.")
    print(report(options.settings.get("data_path", "dataset/")))
