"""How noisy each mask gradient estimator is on a trained model (section 4.1.2: "unbiased and has low variance").

Relative variance of layer l: E ||g - G||^2 / ||G||^2 over the live entries of Phi^(l), for one batch without dropout.
G, the true gradient, is the mean of many draws of the least noisy unbiased estimator. Biased estimators (marked) are
measured against the same G, so their figure is variance plus squared bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from recbole_denoiser.core import DenoiserConfig
from recbole_denoiser.core.config import ONE_PASS
from recbole_denoiser.core.control import CreditBaseline
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.record import Run
from recbole_denoiser.runs.reopen import open_run

BIASED = ("straight_through", "hard_concrete")
WARM_UP = 10  # draws that only teach the baseline of a one-pass estimator, which is a running mean


@dataclass(frozen=True)
class Setting:
    """One way to estimate Phi's gradient."""

    estimator: str
    mask_sampling: str
    credit: str
    conditional: bool = False

    @property
    def name(self) -> str:
        """For a table."""
        marks = (" + one layer at a time" if self.conditional else "") + (
            " (biased)" if self.estimator in BIASED else ""
        )
        credit = "" if self.estimator in BIASED else f", {self.credit} credit"
        return f"{self.estimator}, mask per {self.mask_sampling}{credit}{marks}"


REFERENCE = Setting("disarm", "sequence", "row", conditional=True)


def settings() -> list[Setting]:
    """Every estimator x sampling x credit, and the conditional pass for the two-pass estimators."""
    found = []
    for estimator in ("reinforce", "ar", "arm", "disarm"):
        for sampling in ("batch", "sequence"):
            found += [Setting(estimator, sampling, credit) for credit in ("total", "row")]
        if estimator in ("arm", "disarm"):
            found.append(Setting(estimator, "sequence", "row", conditional=True))
    return found + [Setting(estimator, sampling, "row") for estimator in BIASED for sampling in ("batch", "sequence")]


def relative_variances(
    model: Any, interaction: Any, draws: int = 50, reference_draws: int = 400, progress: bool = True
) -> dict[Setting, list[float]]:
    """Relative variance of every setting, per layer and over all layers, for a model with position masks."""
    if model.denoiser is None or model.denoiser.config.mask != "position":
        raise UserError("The variance of estimators is measured on a model with position masks (mask: position).")
    model.eval()  # no dropout: only the masks are random
    denoiser = model.denoiser
    original: DenoiserConfig = denoiser.config
    baseline = denoiser.baseline
    batch = model.batch(interaction)
    with torch.no_grad():
        embedded = model.embed(batch)

    bar = tqdm(total=reference_draws + draws * len(settings()), disable=not progress, leave=False, unit=" draws")

    def gradients(setting: Setting, count: int) -> Iterator[list[Tensor]]:
        changes = dataclasses.asdict(setting)
        denoiser.config = dataclasses.replace(original, beta=0.0, gamma=0.0, baseline=True, **changes)
        # a baseline of its own, whatever the run was trained with and whichever setting was measured before
        denoiser.baseline = CreditBaseline(len(denoiser.sites), denoiser.config).to(batch.items.device)
        phi = [mask.phi for mask in denoiser.masks]
        bar.set_description(setting.name)
        unused = WARM_UP if setting.estimator in ONE_PASS else 0
        for draw in range(-unused, count):
            result = denoiser.loss(lambda: model.position_losses(model.encode(embedded), batch)[0], valid=batch.valid)
            if draw >= 0:
                bar.update()
                yield list(torch.autograd.grad(result.rec + result.mask, phi, allow_unused=True))

    try:
        truth = [torch.stack(layer).mean(0) for layer in zip(*gradients(REFERENCE, reference_draws), strict=True)]
        found = {}
        for setting in settings():
            errors = [[float((g - G).square().sum()) for g, G in zip(drawn, truth, strict=True)]
                      for drawn in gradients(setting, draws)]  # fmt: skip
            means = torch.tensor(errors).mean(0)
            norms = torch.stack([G.square().sum() for G in truth])
            found[setting] = [*(means / norms).tolist(), float(means.sum() / norms.sum())]
        return found
    finally:
        bar.close()
        denoiser.config, denoiser.baseline = original, baseline


def variance_table(found: dict[Setting, list[float]]) -> str:
    """Text table, one line per setting."""
    layers = len(next(iter(found.values()))) - 1
    head = ["relative variance of Phi's gradient", *(f"layer {i + 1}" for i in range(layers)), "all layers"]
    rows = [head, *([setting.name, *(f"{value:,.1f}" for value in values)] for setting, values in found.items())]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        row[0].ljust(widths[0]) + "".join("  " + cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    paper, best = Setting("arm", "batch", "total"), Setting("arm", "sequence", "row")
    ratio = " / ".join(f"{a / b:,.0f}x" for a, b in zip(found[paper], found[best], strict=True))
    return "\n".join([*lines, f"row credit and a mask per sequence cut ARM's variance by {ratio}"])


def variance_of_run(run: Run, draws: int, progress: bool = True) -> str:
    """The table for a finished run; a plain backbone gets fresh masks at mask_init."""
    opened = open_run(run.folder, changes={"denoise": True})
    batch = next(iter(opened.loaders().train))
    return variance_table(relative_variances(opened.model, batch, draws, 8 * draws, progress))
