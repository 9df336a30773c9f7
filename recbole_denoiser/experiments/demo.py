"""``recbole-denoiser demo``: the default model and its plain backbone on ml-100k, side by side, in minutes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from recbole_denoiser.core import denoise
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.reopen import open_run

# ml-100k has 8 steps per epoch: Phi needs a larger learning rate than the default to move in so few steps
SETTINGS = {"epochs": 45, "eval_step": 3, "stopping_step": 5, "mask_learning_rate": 0.03}
CONTROL = {"denoise": False, "target_denoise": "none"}


def demo(settings: dict[str, Any]) -> str:
    """Train both and give the table."""
    plain = pipeline.run(dataset="ml-100k", flags={**SETTINGS, "label": "SASRec (plain)", **settings, **CONTROL})
    denoised = pipeline.run(dataset="ml-100k", flags={**SETTINGS, **settings})
    return table([plain, denoised])


def table(results: list[dict[str, Any]]) -> str:
    """One column per run."""
    rows = [["", *(result["label"] for result in results)]]
    for part in ("valid", "test"):
        for metric in ("hit@10", "ndcg@10"):
            rows.append([f"{part} {metric}", *(f"{result[part][metric]:.4f}" for result in results)])
    figures = [reopened_figures(result) for result in results]
    rows.append(["kept attention, layer 1/2 ...", *(_shares(result["kept"]) for result in results)])
    rows.append(["R_M, sum of mean open probability", *(figure["R_M"] for figure in figures)])
    rows.append(["R_J, squared Jacobian norm per output", *(figure["R_J"] for figure in figures)])
    rows.append(["epochs, seconds", *(f"{len(r['epochs'])}, {r['seconds']:.0f}" for r in results)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        row[0].ljust(widths[0]) + "".join("  " + cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    return "\n".join(["ml-100k, leave one out, 100 frozen negatives per user, one seed", *lines])


def reopened_figures(result: dict[str, Any]) -> dict[str, str]:
    """R_M and R_J (eq. 11 and 14, on the mean scale) of the best checkpoint, on one training batch without dropout."""
    opened = open_run(Path(result["config"]["result_dir"]) / result["run"])
    config, model = opened.config, opened.model
    denoised = model.denoiser is not None
    denoiser = model.denoiser if denoised else denoise(model, model.denoiser_config(config))
    denoiser.config = dataclasses.replace(denoiser.config, gamma=1.0, jacobian_batch=0, jacobian_projections=4)
    if not denoised:
        denoiser.off()
    batch = model.batch(next(iter(opened.loaders().train)))
    embedded = model.embed(batch)
    torch.manual_seed(0)
    measured = denoiser.loss(lambda: model.position_losses(model.encode(embedded), batch)[0], valid=batch.valid)
    return {"R_M": f"{float(measured.r_m):.3f}" if denoised else "-", "R_J": f"{float(measured.r_j):.2f}"}


def _shares(kept: list[float] | None) -> str:
    return "all" if kept is None else "/".join(f"{share:.2f}" for share in kept)
