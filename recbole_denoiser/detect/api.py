"""`detect_noise`: the detector for lists of sequences and for frames."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from recbole_denoiser.detect.flat import detect_flat
from recbole_denoiser.detect.input import from_frame, from_lists
from recbole_denoiser.detect.report import NoiseReport
from recbole_denoiser.errors import UserError


def detect_noise(
    data: Iterable[Sequence[Hashable]] | pd.DataFrame,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    text: str | Sequence[str] | Mapping[Any, Any] | None = None,
    seed: int = 0,
    threshold: float = 0.5,
    progress: bool = False,
    **more: Any,
) -> NoiseReport:
    """Which interactions are noise?

    data: a list with one sequence of items per user, oldest first; or a frame with the columns `user`, `item` and,
    where there are times, `time`. text: what items say about themselves: a mapping from item to text, or for a frame
    the names of its columns. more: further fields of `Settings`. The posterior has the order of the input.

    >>> import pandas as pd
    >>> rows = [(user, "abcdef"[(user + step) % 6], step) for user in range(30) for step in range(5)]
    >>> frame = pd.DataFrame(rows, columns=["who", "what", "when"])
    >>> report = detect_noise(frame, user="who", item="what", time="when")
    >>> clean = frame[~report.remove]
    >>> report.posterior.shape
    (150,)
    """
    if isinstance(data, pd.DataFrame):
        flat = from_frame(data, user, item, time, text)
    else:
        if user is not None or item is not None or time is not None:
            raise UserError("user=, item= and time= name columns of a frame; a list of sequences has none")
        flat = from_lists(data, text)  # type: ignore[arg-type]
    report = detect_flat(
        flat.user,
        flat.item,
        len(flat.tokens),
        texts=flat.texts,
        seed=seed,
        threshold=threshold,
        progress=progress,
        **more,
    )
    features = np.empty_like(report.features)
    features[flat.order] = report.features
    if report.detector is not None:
        report.detector.tokens = flat.tokens
    return replace(report, posterior=flat.back(report.posterior), remove=flat.back(report.remove), features=features)
