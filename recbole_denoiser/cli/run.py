"""``recbole-denoiser run``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recbole_denoiser.cli.arguments import add_trust, say

# what RecBole's own settings mean; this package's say it themselves (integration/schema.py)
_RECBOLE = {
    "epochs": "passes over the training data",
    "learning_rate": "of the optimiser (Adam)",
    "train_batch_size": "rows per step",
    "stopping_step": "evaluations without a better one before training stops",
    "MAX_ITEM_LIST_LENGTH": "items of a history that the model sees",
    "hidden_size": "width of the model",
    "n_layers": "attention layers",
    "eval_args.mode": "uni100: rank among 100 random items; full: among all",
    "seed": "of everything that is random",
    "data_path": "folder of the data sets (dataset/)",
    "device": "cpu or cuda; without it the GPU, if there is one",
}
_COMMON = ("epochs", "learning_rate", "train_batch_size", "stopping_step", "MAX_ITEM_LIST_LENGTH", "hidden_size",
           "n_layers", "loss_type", "noise_action", "denoise", "mask", "estimator", "beta", "gamma", "target_sparsity",
           "target_denoise", "mask_learning_rate", "train_noise", "eval_args.mode", "seed", "data_path", "result_dir",
           "run_name", "label", "resume", "overwrite", "num_threads", "device")  # fmt: skip


def add_commands(command: Callable[..., Any]) -> None:
    """Register the command; ``command`` is main.py's registrar."""
    from recbole_denoiser.integration.registry import known_models

    run = command("run", _run, settings=True)
    run.add_argument("--model", "-m", default="SASRecDenoiser", help=f"one of {', '.join(known_models())}")
    run.add_argument("--dataset", "-d", default="ml-100k", help="name of a data set in data_path (ml-100k is included)")
    run.add_argument(
        "--config_files", nargs="*", default=[], help="YAML files, later ones win; or a preset: default, paper, strong"
    )
    run.add_argument("--nproc", type=int, default=1, help="processes on this machine")
    run.add_argument("--ip", default="localhost", help="address of the first machine")
    run.add_argument("--port", type=int, help="port of the first machine (5678; on one machine any free one)")
    run.add_argument("--world_size", type=int, default=-1, help="processes on all machines")
    run.add_argument("--group_offset", type=int, default=0, help="number of this machine's first process")
    add_trust(run)
    run.epilog = _common_settings()


def _common_settings() -> str:
    import textwrap

    from recbole_denoiser.integration.schema import PACKAGE_KEYS

    lines = ["settings that are often changed (all of them: docs/configuration.md):"]
    for name in _COMMON:
        if name in _RECBOLE:
            meaning = _RECBOLE[name]
        else:
            key = PACKAGE_KEYS[name]
            choices = f" ({' | '.join(str(choice) for choice in key.choices)})" if key.choices else ""
            meaning = key.help.replace("`", "") + choices
        lines += textwrap.wrap(meaning, 108, initial_indent=f"  --{name}=".ljust(26), subsequent_indent=" " * 26)
    return "\n".join(lines)


def _run(options: Any) -> None:
    from recbole_denoiser.integration import parallel
    from recbole_denoiser.runs import launch, pipeline
    from recbole_denoiser.runs.summary import run_table

    files = [file for text in options.config_files for file in text.split()]
    arguments = {
        "model": options.model, "dataset": options.dataset, "config_files": files, "flags": options.settings,
        "trust_checkpoint": options.trust_checkpoint,
    }  # fmt: skip
    processes = launch.Processes(options.nproc, options.world_size, options.ip, options.port, options.group_offset)
    result = launch.run(arguments, processes) if processes.total > 1 else pipeline.run(**arguments)
    if result is not None and parallel.rank() == 0:
        say(run_table(result))
    parallel.stop()  # if torchrun started us
