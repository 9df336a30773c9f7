"""Settings whose inside RecBole reads without looking: mappings, lists, and settings that need another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recbole_denoiser.errors import UserError

# transform -> the setting that it reads
_TRANSFORMS = {"mask_itemseq": "mask_ratio", "crop_itemseq": "eta", "reorder_itemseq": "beta"}
_SAMPLING = {"distribution", "sample_num", "alpha", "dynamic", "candidate_num"}


def check_nested(model: str, settings: Mapping[str, Any], own_negatives: bool) -> None:
    """UserError for what RecBole would stumble over; ``own_negatives``: the model draws its negatives itself."""
    sampling = settings.get("train_neg_sample_args") or {}
    if own_negatives and sampling.get("distribution", "none") != "none":
        raise UserError(f"train_neg_sample_args: {model} draws its negatives itself; set train_negatives instead.")
    if not sampling.keys() <= _SAMPLING:
        unknown = ", ".join(sorted(map(str, sampling.keys() - _SAMPLING)))
        raise UserError(f"train_neg_sample_args has no {unknown}; it has {', '.join(sorted(_SAMPLING))}.")
    transform = settings.get("transform")
    needed = _TRANSFORMS.get(transform or "")
    if transform == "user_defined" or (needed is not None and settings.get(needed) is None):
        words = f"needs {needed}" if needed else "is for code of one's own inside RecBole"
        raise UserError(f"transform = {transform} {words}.")
    if settings.get("benchmark_filename") == []:
        raise UserError("benchmark_filename = [] names no files; leave it out, or name the three parts.")
    columns = settings.get("load_col")
    if columns is not None and ("inter" not in columns or not all(_is_names(names) for names in columns.values())):
        raise UserError(
            f"load_col = {columns!r:.80} is not allowed: it maps inter, and perhaps user and item, to lists of columns."
        )


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
