"""``recbole.quick_start.run_recbole`` for this package's models: the same run as the command's, RecBole's answer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from logging import getLogger
from typing import Any

from recbole.utils import calculate_valid_score

from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.flags import flag_value
from recbole_denoiser.runs.pipeline import run_config


def run_recbole(
    model: str,
    dataset: str,
    config_file_list: list[str] | None = None,
    config_dict: dict[str, Any] | None = None,
    saved: bool = True,
    queue: Any = None,
) -> dict[str, Any]:
    """Train and test; writes ``<result_dir>/<run>/`` as the command does; returns what RecBole's returns."""
    if not saved:
        getLogger().warning("saved=False has no effect: the best epoch is tested, so it is kept with the run.")
    config = Config(model, dataset, config_file_list, config_dict, command_line_settings(sys.argv))
    result = run_config(config)
    answer = {
        "best_valid_score": calculate_valid_score(result["valid"] or result["test"], config["valid_metric"].lower()),
        "valid_score_bigger": config["valid_metric_bigger"],
        "best_valid_result": result["valid"],
        "test_result": result["test"],
        "run": result["run"],
    }
    if queue is not None and parallel.rank() == 0:
        queue.put(answer)
    parallel.stop()
    return answer


def command_line_settings(words: Sequence[str]) -> dict[str, Any]:
    """RecBole reads ``--key=value`` from any program's command line; here those whose key is a setting."""
    if not words or "ipykernel_launcher" in words[0]:
        return {}
    pairs = [word[2:].split("=", 1) for word in words[1:] if word.startswith("--") and "=" in word]
    known = Config.all_keys()
    return {
        name: flag_value(name, text)
        for name, text in pairs
        if name.split(".")[0] in known and name not in ("model", "dataset", "config_files")
    }
