"""The commands about data sets: prepare, noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def add_commands(command: Callable[..., Any]) -> None:
    """Register the commands; ``command`` is main.py's registrar."""
    from recbole_denoiser.data.prepare.convert import NAMES, RULES

    prepare = command("prepare", _prepare)
    prepare.add_argument("name", choices=NAMES)
    prepare.add_argument("--raw", required=True, help="the raw file, plain, .gz or (ml-1m) .zip")
    prepare.add_argument("--output", default="dataset", help="folder that gets <name>/")
    prepare.add_argument("--rule", choices=RULES, help="which rare users and items are dropped; default: the paper's")
    prepare.add_argument("--on_malformed", choices=("skip", "fail"), default="skip", help="lines that cannot be read")
    prepare.add_argument("--overwrite", action="store_true", help="replace files of an earlier conversion")

    noise = command("noise", _noise, settings=True)
    noise.add_argument("dataset", help="name of a data set in data_path")
    noise.add_argument("--share", type=float, required=True, help="share of the training items to replace, 0 to 1")
    noise.add_argument("--output", default="dataset", help="folder that gets <name>/")
    noise.add_argument("--name", help="name of the copy; default: <dataset>-noise<per cent>")


def _prepare(options: Any) -> None:
    from recbole_denoiser.data.prepare.convert import prepare

    print(prepare(options.name, options.raw, options.output, options.on_malformed, options.rule,
                  overwrite=options.overwrite))  # fmt: skip


def _noise(options: Any) -> None:
    from recbole_denoiser.data.noise_files import write_noisy

    print(write_noisy(options.dataset, options.share, Path(options.output), options.name, options.settings))
