"""The command ``recbole-denoiser``; errors of the user are one message and exit code 2.

Nothing heavy is imported here: the file of a command's group is imported when the command is typed, and torch and
RecBole when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import recbole_denoiser
from recbole_denoiser import interrupt
from recbole_denoiser.errors import UserError, printable
from recbole_denoiser.integration.paths import NO_RECBOLE

PROGRAM = "recbole-denoiser"


class Entry(NamedTuple):
    """A command: the file of its group, and what it does in a line."""

    group: str
    summary: str


# Every command, in the order of --help. A new one: an entry here, and in its group's file a call of ``command``.
COMMANDS = {
    "run": Entry("run", "Train and test a model; any RecBole or package setting as --key=value."),
    "demo": Entry("demo", "Put noise into ml-100k, find it, and train with and without it."),
    "recommend": Entry("analysis", "Recommend next items for users of the data set or for any sequences."),
    "explain": Entry("analysis", "Write a page that shows what the model reads and what its masks cut."),
    "report": Entry("analysis", "Write a page about one run or several, and its figures as PNG files."),
    "export": Entry("export", "Write a trained model as ONNX, torch.export or safetensors file."),
    "prepare": Entry("data", "Convert your events (CSV, JSON lines, Parquet) or a public raw file into a data set."),
    "noise": Entry("data", "Write a copy of a data set with noise in its training part."),
    "detect": Entry("data", "Find the noise in a data set: a table, noise.csv and a page."),
    "clean": Entry("data", "Write a copy of a data set without its noise."),
    "reproduce": Entry("experiments", "Run an experiment of the paper, or one of yours."),
    "compare": Entry("experiments", "Compare finished runs: a table and paired tests against a reference."),
    "tune": Entry("experiments", "Search a model's settings with Optuna, on validation data only."),
    "pruning": Entry("analysis", "How well the masks of runs with train_noise find the injected items."),
    "variance": Entry("analysis", "Relative gradient variance of every estimator on a finished run."),
    "doctor": Entry("doctor", "Show versions, device, property folder and data sets found."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    command = next((word for word in words if not word.startswith("-")), None)
    try:
        interrupt.at_work(True)
        known, rest = build_parser(command).parse_known_args(words)
        if not known.takes_settings and rest:
            raise UserError(f"Unknown argument '{rest[0]}'; see {PROGRAM} {known.command} --help.")
        known.settings = parse_settings(rest)
        known.function(known)
    except UserError as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name != "recbole":
            raise
        print(f"Error: {NO_RECBOLE}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its end
        return 141
    except OSError as error:  # a full disk, a lost folder: nothing that a stack trace would explain
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = " The same command with --resume goes on after the last finished epoch." if command == "run" else ""
        print(f"\nInterrupted.{again}", file=sys.stderr)
        return interrupt.EXIT_CODE
    finally:
        interrupt.at_work(False)
    return 0


def parse_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """``--key=value``, ``--key value`` and, for a switch, ``--key`` alone."""
    if not arguments:
        return {}
    from recbole_denoiser.integration.flags import flag_value

    settings: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise UserError(f"Cannot read '{word}': settings are written --key=value.")
        name, equals, text = word[2:].partition("=")
        if not equals:
            text = rest.pop(0) if rest and not rest[0].startswith("--") else "True"
        value = flag_value(name, text)
        if name in settings and settings[name] != value:
            raise UserError(f"--{name} is given twice, as {settings[name]!r} and {value!r}.")
        settings[name] = value
    return settings


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of all commands; only those of ``command``'s group have their arguments."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Find and remove the noise in item sequences; train and measure sequential recommenders.",
        epilog=f"{PROGRAM} <command> --help says more. Start with: {PROGRAM} demo",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {recbole_denoiser.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, function: Callable[[Any], None], settings: bool = False) -> argparse.ArgumentParser:
        """The parser of a command; ``settings``: any setting is accepted as --key=value."""
        summary = COMMANDS[name].summary
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(function=function, takes_settings=settings)
        return sub

    wanted = COMMANDS[command].group if command in COMMANDS else None
    added: set[str] = set()
    for name, entry in COMMANDS.items():
        if entry.group != wanted:
            add(name, _no_function)
        elif wanted not in added:
            importlib.import_module(f"recbole_denoiser.cli.{wanted}").add_commands(add)
            added.add(wanted)
    return parser


def _no_function(options: Any) -> None:
    raise AssertionError(f"{options.command} was typed, but its group was not loaded")
