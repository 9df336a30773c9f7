"""result.json of a finished run, made up."""

from __future__ import annotations

from typing import Any


def record(label: str = "SASRec", seed: int = 1, dataset: str = "toy", **changes: Any) -> dict[str, Any]:
    """A run of 4 users."""
    return {
        "run": f"{label}-{dataset}-{seed}",
        "label": label,
        "model": label,
        "dataset": dataset,
        "seed": seed,
        "config": {"model": label, "dataset": dataset, "data_path": f"dataset/{dataset}"},
        "data": {"users": 4, "items": 9, "interactions": 20, "sha256": "0"},
        "versions": {},
        "epochs": [],
        "best_epoch": 0,
        "valid": {"hit@10": 0.5},
        "test": {"hit@10": 0.5},
        "ranks": "ranks.npz",
        "checkpoint": "model.pth",
        "seconds": 1.0,
        **changes,
    }
