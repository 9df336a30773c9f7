"""What is done about noise before training (``noise_action``): suspicious interactions go, or count less.

- remove: they are gone from the training sequences, as inputs and as targets, and from the histories read at
  validation and test. What is predicted there is never removed, so the users and items of every evaluation stay. Who
  would keep fewer than two training items keeps the two least suspicious. With ``noise_weight`` the loss of a target
  that stays counts 1 - its posterior (this package's models).
- weight: every interaction stays; the loss of a target counts 1 - its posterior of being noise.

``mask_prior`` hands the posterior to the masks as well. ``noise_oracle`` does the same with what is known to be noise,
in the place of the detector: what no method can do better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.data import detection
from recbole_denoiser.data.detection import Detection, TrainingPart, known_quality, require_finite
from recbole_denoiser.data.items import item_texts
from recbole_denoiser.data.view import View
from recbole_denoiser.detect.removal import protect
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.noise_settings import weighs_targets


@dataclass(frozen=True)
class Cleaning:
    """What was found in a view and what became of it."""

    action: str
    before: View
    posterior: np.ndarray  # [N] of every interaction of ``before``; 0 outside the training part
    removed: np.ndarray  # [N] bool
    detection: Detection | None  # None: an oracle knew

    def summary(self) -> dict[str, Any]:
        """Plain values for result.json."""
        training = self.before.training
        noise = self.before.noise[training]
        content = {"action": self.action, "interactions": len(training), "removed": int(self.removed.sum())}
        if self.detection is None:
            return content | {"known": {"share": float(noise.mean())}}
        content |= self.detection.summary
        if noise.any():
            content["known"] = known_quality(self.posterior[training], self.detection.remove, noise)
        return content

    def __str__(self) -> str:
        found = self.summary()
        what = {"remove": f"{found['removed']:,} removed", "weight": "targets are weighted by it"}
        if self.detection is None:
            share = found["known"]["share"]
            return f"Noise: {self.action}, {share:.1%} are known to be noise; {found['removed']:,} removed"
        low, high = found["interval"]
        text = (
            f"Noise detector: {found['share']:.1%} of {found['interactions']:,} training interactions are estimated to "
            f"be noise ({low:.1%} to {high:.1%}; {found['verdict']}), {what.get(self.action, 'masks read it')}"
        )
        if "known" in found:
            known = {name: "-" if value is None else f"{value:.3f}" for name, value in found["known"].items()}
            text += f"; known noise: AUC {known['auc']}, precision {known['precision']}, recall {known['recall']}"
        return text


def cleaned(dataset: Any, view: View, kept: Path | None) -> tuple[View, Cleaning | None]:
    """The view after what the data set's settings say is to be done; ``kept``: what a finished run knew."""
    config = dataset.config
    action, oracle = config["noise_action"] or "none", config["noise_oracle"] or "none"
    if oracle != "none":
        return use_oracle(view, oracle)
    prior = bool(config["mask_prior"] and config["denoise"])
    if action == "none" and not prior:
        return view, None
    told = prior or weighs_targets(config)
    return use_detection(view, action, told, detect(dataset, TrainingPart.of(view), kept))


def detect(dataset: Any, part: TrainingPart, kept: Path | None) -> Detection:
    """What the detector says about the training part; with several processes, the first one asks it."""
    config = dataset.config
    texts = item_texts(config)
    tokens = dataset.field2id_token[dataset.iid_field]
    names = [str(tokens[item]) for item in part.items]
    known = [texts.get(name, "") for name in names] if texts else None
    settings = {"threshold": config["noise_threshold"], "seed": config["detect_seed"]}
    folder = Path(config["result_dir"]) / detection.FOLDER
    return parallel.from_first(lambda: detection.detect_training(part, known, settings, folder, kept, names))


def use_detection(view: View, action: str, told: bool, found: Detection) -> tuple[View, Cleaning]:
    """The view after ``action`` (none, remove or weight); ``told``: the posteriors travel in its batches."""
    training = view.training
    posterior, removed = np.zeros(len(view)), np.zeros(len(view), dtype=bool)
    posterior[training] = require_finite(found.posterior)
    after = view
    if told:
        after = after.with_column(view.flat.fields.posterior, posterior.astype(np.float32))
    if action == "remove":
        removed[training] = found.remove
        after = after.kept(~removed)
    return after, Cleaning(action, view, posterior, removed, found)


def use_oracle(view: View, oracle: str) -> tuple[View, Cleaning]:
    """The view when noise is known: without it (remove), or with the knowledge in its batches (mask, target, both)."""
    posterior, removed = view.noise.astype(np.float64), np.zeros(len(view), dtype=bool)
    if oracle == "remove":
        training = view.training
        user = view.flat.columns[view.flat.fields.user].numpy()[training]
        removed[training] = protect(user, posterior[training], view.noise[training])
        after = view.kept(~removed)
    else:
        after = view.with_column(view.flat.fields.posterior, posterior.astype(np.float32))
    return after, Cleaning(f"oracle {oracle}", view, posterior, removed, None)
