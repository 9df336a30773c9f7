"""Answers of an exported graph as ``recommend`` returns them, for a service that has the files of ``export`` alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.analysis.clean_history import HistoryCleaner
from recbole_denoiser.data.sequences import Histories, from_lists
from recbole_denoiser.runs.exported import read_about

Graph = Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]]  # items [B, w], length [B] -> best, scores [B, k]


class GraphAnswers:
    """Item tokens in, item tokens out: before the graph unknown items go and, in a run with ``noise_action: remove``,
    what its detector suspects; behind it what was left out is not recommended either::

        session = onnxruntime.InferenceSession("model/model.onnx")
        answers = GraphAnswers("model", lambda feed: session.run(None, feed))
        answers([["50", "181"]])[0]  # [{"item": "172", "score": 4.2}, ...]
    """

    def __init__(self, folder: str | Path, graph: Graph) -> None:
        self.graph, self.about = graph, read_about(folder)
        self.items = np.array(self.about["items"], dtype=object)  # tokens by id; id 0 is padding
        self.ids = {token: number for number, token in enumerate(self.items.tolist()) if number}
        self.cleaner = HistoryCleaner.of_settings(self.about["settings"], self.about.get("noise"), Path(folder))

    def __call__(self, sequences: Sequence[Sequence[Any]]) -> list[list[dict[str, str | float]]]:
        """The best next items of each list of item tokens, oldest first."""
        if not len(sequences):
            return []
        histories = from_lists(sequences, self.ids)
        if self.cleaner is not None:
            histories = self.cleaner.clean(histories, self.items)
        best, scores = self.graph(padded(histories))
        shown = np.isfinite(scores)
        if self.about["exclude_seen"]:
            for gone in histories.left_out:
                shown[gone.sequence] &= best[gone.sequence] != gone.item
        return [
            [
                {"item": str(self.items[best[row, k]]), "score": float(scores[row, k])}
                for k in np.flatnonzero(shown[row])
            ]
            for row in range(len(best))
        ]


def padded(histories: Histories) -> dict[str, np.ndarray]:
    """``items`` [B, w], filled up with 0 behind their ends, and ``length`` [B]."""
    length = histories.lengths.astype(np.int64)
    items = np.zeros((len(length), max([1, *length])), dtype=np.int64)
    items[np.arange(items.shape[1]) < length[:, None]] = histories.item
    return {"items": items, "length": length}
