"""A given history read as the run read its training data: what the noise detector suspects is left out.

The detector that the run was trained with is in its folder (detector.npz). It scores the items of a sequence by that
sequence alone. Removal is as careful as in training: by the lower bound of the estimated share, nothing where the data
was too thin to judge, and two items always stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.data.detection import DETECTOR_FILE
from recbole_denoiser.data.sequences import Histories, LeftOut
from recbole_denoiser.detect.detector import Detector
from recbole_denoiser.detect.removal import protect
from recbole_denoiser.detect.report import JUDGED
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.reopen import OpenRun

AT_ONCE = 200_000  # interactions scored at a time


@dataclass(frozen=True)
class HistoryCleaner:
    """The detector of a run and how it was used."""

    detector: Detector
    removes: bool  # noise_action: remove, on data that could be judged
    bound: float  # lower bound of the share of noise over the share
    threshold: float
    code: dict[str, int]  # token -> the detector's number of the item

    @classmethod
    def of_run(cls, run: OpenRun) -> HistoryCleaner | None:
        """None for a run that asked no detector, or whose data was too small for one."""
        return cls.of_settings(run.config, run.result.get("noise"), run.folder)

    @classmethod
    def of_settings(cls, settings: Any, found: dict[str, Any] | None, folder: Path) -> HistoryCleaner | None:
        """``of_run`` from a run's settings, what its detector found, and the folder with the detector's file."""
        action = settings["noise_action"]
        prior = bool(settings["mask_prior"] and settings["denoise"])
        if not found or "share" not in found or not (action == "remove" or prior) or found["verdict"] != JUDGED:
            return None
        file = folder / DETECTOR_FILE
        if not file.is_file():
            raise UserError(
                f"{file} is missing: the run left noise out of what it read (noise_action: {action}), and without its "
                f"detector a history cannot be read the same way. Put the file back or train again."
            )
        bound = found["interval"][0] / found["share"] if found["share"] > 0 else 0.0
        detector = Detector.load(file)
        code = {str(token): number for number, token in enumerate(detector.tokens or [])}
        return cls(detector, action == "remove", bound, float(settings["noise_threshold"]), code)

    def clean(self, histories: Histories, items: np.ndarray) -> Histories:
        """The histories without what is suspected, which is named; ``items`` are the tokens by id."""
        tokens = [str(token) for token in items[histories.item]]
        owner = np.repeat(np.arange(len(histories)), histories.lengths)
        posterior = self._scores(owner, tokens, histories.start)
        gone = np.zeros(len(tokens), dtype=bool)
        if self.removes:
            gone = protect(owner, posterior, posterior * self.bound > self.threshold)
        left = []
        for place in np.flatnonzero(gone):
            number, item = int(owner[place]), int(histories.item[place])
            own = tokens[histories.start[number] : histories.start[number + 1]]
            reason = self._strangers(own, int(place - histories.start[number]))
            left.append(LeftOut(number, item, float(posterior[place]), reason))
        return replace(
            histories,
            start=np.searchsorted(owner[~gone], np.arange(len(histories) + 1)),
            item=histories.item[~gone],
            time=histories.time[~gone],
            left_out=left,
            posterior=posterior[~gone],
        )

    def _scores(self, owner: np.ndarray, tokens: list[str], start: np.ndarray) -> np.ndarray:
        """[N] posteriors, whole sequences at a time, so that memory is bounded."""
        found, first = np.zeros(len(tokens)), 0
        while first < len(start) - 1:
            last = max(first + 1, int(np.searchsorted(start, start[first] + AT_ONCE, side="right")) - 1)
            part = slice(start[first], start[last])
            found[part] = self.detector.score_rows(owner[part], tokens[part])
            first = last
        return found

    def _strangers(self, tokens: list[str], place: int) -> str:
        """Why: with how many of its neighbours the item was ever seen near, in other histories."""
        window, code = self.detector.settings.window, self.code
        around = [k for k in range(max(0, place - window), min(len(tokens), place + window + 1)) if k != place]
        item, table = code.get(tokens[place]), self.detector.statistics.counts.table
        known = [code[tokens[k]] for k in around if tokens[k] in code]
        near = 0 if item is None else sum(1 for other in known if table[item, other] > 0)
        return f"near {near} of its {len(around)} neighbours in other histories"
