"""Which run others are compared with: the plain backbone, and not whatever happens to come first."""

from __future__ import annotations

from collections.abc import Sequence

from recbole_denoiser.runs.record import Run

_SUFFIX = "Denoiser"


def denoises(run: Run) -> bool:
    """Whether masks, a denoised loss or the detector are at work in a run."""
    config = run.config
    ours = run.model.endswith(_SUFFIX)
    masks = ours and bool(config.get("denoise"))
    loss = ours and config.get("target_denoise") not in (None, "none")
    cleaned = any(config.get(name) not in (None, "none") for name in ("noise_action", "noise_oracle"))
    return masks or loss or cleaned


def backbone(run: Run) -> str:
    """SASRec for SASRecDenoiser."""
    return run.model.removesuffix(_SUFFIX)


def reference(runs: Sequence[Run]) -> Run:
    """The plain run of the backbone that most denoised ones have; else any plain run; else the first.

    Of several the one with the least added noise and, of equal ones, the first.
    """
    common = [backbone(run) for run in runs if denoises(run)]
    chosen = max(common, key=common.count) if common else ""

    def order(run: Run) -> tuple[bool, bool, float]:
        return denoises(run), backbone(run) != chosen, float(run.config.get("train_noise") or 0.0)

    return min(runs, key=order)
