"""The trained model on validation and test rows, in every mode of ``eval_modes``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recbole_denoiser.integration.config import Config
from recbole_denoiser.training.evaluation import RankCollector, evaluation_loader

PHASES = ("valid", "test")


@dataclass(frozen=True)
class Evaluated:
    """One phase in one mode."""

    metrics: dict[str, float] | None
    ranks: RankCollector


Both = tuple[Evaluated, ...]  # validation and test


def other_modes(config: Config, valid: Any, test: Any) -> dict[str, tuple[Any, Any]]:
    """Validation and test loaders of the modes that ``eval_args.mode`` does not measure anyway."""
    main = config["eval_args"]["mode"]
    return {
        mode: (
            evaluation_loader(config, valid, "valid", None, mode),
            evaluation_loader(config, test, "test", None, mode),
        )
        for mode in config["eval_modes"] or []
        if (mode, mode) != (main["valid"], main["test"])
    }


def evaluate_phases(trainer: Any, loaders: tuple[Any, Any], config: Config) -> Both:
    """The best checkpoint on validation and test rows."""
    found = []
    for loader in loaders:
        metrics = trainer.evaluate(loader, load_best_model=True, show_progress=config["show_progress"])
        found.append(Evaluated(metrics, trainer.ranks))
    return tuple(found)


def metrics_by_mode(modes: Mapping[str, Both]) -> dict[str, Any]:
    """``valid_by_mode`` and ``test_by_mode`` of result.json."""
    return {
        f"{phase}_by_mode": {mode: both[number].metrics for mode, both in modes.items()}
        for number, phase in enumerate(PHASES)
    }


def ranks_by_mode(modes: Mapping[str, Both]) -> dict[str, RankCollector]:
    """Names in ranks.npz, such as ``test_full``, to the ranks."""
    return {
        f"{phase}_{mode}": both[number].ranks for mode, both in modes.items() for number, phase in enumerate(PHASES)
    }
