"""What is done about noise before training (``noise_action``): suspicious interactions go, or count less.

- remove: they are gone from the training sequences, as inputs and as targets, and from the histories read at
  validation and test. What is predicted there is never removed, so the users and items of every evaluation stay. Who
  would keep fewer than two training items keeps the two least suspicious.
- weight: every interaction stays; the loss of a target counts 1 - its posterior of being noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_denoiser.data.detection import Detection, TrainingPart, known_quality, require_finite
from recbole_denoiser.data.view import View


@dataclass(frozen=True)
class Cleaning:
    """What was found in a view and what became of it."""

    action: str
    before: View
    posterior: np.ndarray  # [N] of every interaction of ``before``; 0 outside the training part
    removed: np.ndarray  # [N] bool
    detection: Detection

    def summary(self) -> dict[str, Any]:
        """Plain values for result.json."""
        training = self.before.training
        content = {"action": self.action, "interactions": len(training), "removed": int(self.removed.sum())}
        content |= self.detection.summary
        if self.before.noise.any():
            suspicious = self.detection.remove
            content["known"] = known_quality(self.posterior[training], suspicious, self.before.noise[training])
        return content

    def __str__(self) -> str:
        found = self.summary()
        low, high = found["interval"]
        text = (
            f"Noise detector: {found['share']:.1%} of {found['interactions']:,} training interactions are estimated to "
            f"be noise ({low:.1%} to {high:.1%}; {found['verdict']}), {found['removed']:,} removed"
        )
        if self.action == "weight":
            text = text.removesuffix(f", {found['removed']:,} removed") + "; targets are weighted"
        if "known" in found:
            known = {name: "-" if value is None else f"{value:.3f}" for name, value in found["known"].items()}
            text += f"; known noise: AUC {known['auc']}, precision {known['precision']}, recall {known['recall']}"
        return text


def clean(view: View, action: str, find: Callable[[TrainingPart], Detection]) -> tuple[View, Cleaning]:
    """The view after ``action`` (remove or weight), and what was done."""
    part = TrainingPart.of(view)
    detection = find(part)
    posterior = np.zeros(len(view))
    posterior[part.index] = require_finite(detection.posterior)
    removed = np.zeros(len(view), dtype=bool)
    if action == "remove":
        removed[part.index] = detection.remove
        after = view.kept(~removed) if removed.any() else view
    else:
        after = view.with_column(view.flat.fields.posterior, posterior.astype(np.float32))
    return after, Cleaning(action, view, posterior, removed, detection)
