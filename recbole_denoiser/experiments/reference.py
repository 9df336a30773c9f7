"""Which run others are compared with: the plain backbone, and not whatever happens to come first."""

from __future__ import annotations

from collections.abc import Sequence

from recbole_denoiser.runs.record import Run

_SUFFIX = "Denoiser"


def denoising_parts(run: Run) -> int:
    """How many of masks, a denoised loss and the detector (or an oracle) are at work in a run."""
    config = run.config
    ours = run.model.endswith(_SUFFIX)
    masks = ours and bool(config.get("denoise"))
    loss = ours and config.get("target_denoise") not in (None, "none")
    cleaned = any(config.get(name) not in (None, "none") for name in ("noise_action", "noise_oracle"))
    return masks + loss + cleaned


def backbone(run: Run) -> str:
    """SASRec for SASRecDenoiser."""
    return run.model.removesuffix(_SUFFIX)


def reference(runs: Sequence[Run]) -> Run:
    """The plain run of the backbone that most denoised ones have; else any plain run; else what is denoised least.

    Of several the one with the least added noise and, of equal ones, the first.
    """
    common = [backbone(run) for run in runs if denoising_parts(run)]
    chosen = max(common, key=common.count) if common else ""

    def order(run: Run) -> tuple[int, bool, float]:
        return denoising_parts(run), backbone(run) != chosen, float(run.config.get("train_noise") or 0.0)

    return min(runs, key=order)
