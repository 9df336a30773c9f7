"""The noise detector on the training part of a data set, once per data and settings.

The detector sees the training interactions and nothing else: not even the ids of items depend on what is held out,
because items are numbered anew by their first appearance in the training part.

What it found is kept in a folder (``<result_dir>/.detect``) under a hash of everything that it depends on, so that a
grid of runs on the same data detects once. Of two processes at once one detects and the other waits for it; a file that
cannot be read is made again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
from dataclasses import dataclass
from functools import cache
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser import detect
from recbole_denoiser.data.view import View
from recbole_denoiser.errors import UserError
from recbole_denoiser.files import one_at_a_time, read_arrays, write_arrays

FOLDER = ".detect"  # in result_dir
DETECTOR_FILE = "detector.npz"  # beside what was found


@dataclass(frozen=True)
class TrainingPart:
    """What the detector reads: users and items of the training interactions, numbered by first appearance."""

    index: np.ndarray  # [N_train] place in the view
    user: np.ndarray  # [N_train]
    item: np.ndarray  # [N_train] 0 .. len(items) - 1
    items: np.ndarray  # id in the data set of each number

    @classmethod
    def of(cls, view: View) -> TrainingPart:
        fields, index = view.flat.fields, view.training
        user = view.flat.columns[fields.user].numpy()[index]
        item = view.flat.columns[fields.item].numpy()[index]
        known, first, inverse = np.unique(item, return_index=True, return_inverse=True)
        order = np.argsort(first)  # known[order]: by first appearance
        number = np.empty(len(known), dtype=np.int64)
        number[order] = np.arange(len(known))
        return cls(index, user, number[inverse], known[order])

    def digest(self, texts: list[str] | None) -> str:
        """SHA-256 of the data: where users begin, the items, the texts."""
        found = hashlib.sha256()
        found.update(np.diff(self.user, prepend=-1).astype(bool).tobytes())
        found.update(self.item.astype(np.int64).tobytes())
        found.update(json.dumps(texts).encode())
        return found.hexdigest()


@dataclass(frozen=True)
class Detection:
    """Posterior of each training interaction, which are removed, and what was found."""

    posterior: np.ndarray  # [N_train]
    remove: np.ndarray  # [N_train] bool
    summary: dict[str, Any]  # plain values, for result.json
    file: Path  # where it is kept

    @property
    def detector_file(self) -> Path:
        """The fitted detector; there is none where the data could not be judged."""
        return self.file.with_name(DETECTOR_FILE)


@cache
def detector_version() -> str:
    """Of the detector's code and of the library that its classifiers come from."""
    found = hashlib.sha256(importlib.metadata.version("scikit-learn").encode())
    for file in sorted(Path(str(detect.__file__)).parent.glob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def detect_training(
    part: TrainingPart,
    texts: list[str] | None,
    settings: dict[str, Any],
    folder: Path,
    kept: Path | None = None,
    tokens: list[str] | None = None,
) -> Detection:
    """What the detector says about the training part; ``settings`` are ``threshold`` and ``seed``.

    ``tokens`` of the items, by their numbers in the part, go into the detector that is kept, for other sequences.

    ``kept`` is the file of a finished run, which stands even if the detector has been improved since.
    """
    data = {"data": part.digest(texts), "settings": json.dumps(settings, sort_keys=True)}
    if kept is not None:
        found = _read(kept, data, len(part.index))
        if found is not None:
            return found
        getLogger().warning("%s is missing or of other data: noise is detected again.", kept)
    key = hashlib.sha256(json.dumps([*data.values(), detector_version()]).encode()).hexdigest()[:16]
    file = folder / key / "detection.npz"
    with one_at_a_time(file.parent):
        return _read(file, data, len(part.index)) or _detect(part, texts, settings, file, data, tokens)


def _detect(
    part: TrainingPart,
    texts: list[str] | None,
    settings: dict[str, Any],
    file: Path,
    data: dict[str, str],
    tokens: list[str] | None,
) -> Detection:
    """Ask the detector, and keep what it says in `file`."""
    report = detect.detect_flat(part.user, part.item, len(part.items), texts=texts, **settings)
    summary = _summary(report)
    arrays = {
        "posterior": np.asarray(report.posterior, dtype=np.float64),
        "remove": np.asarray(report.remove, dtype=bool),
        "summary": np.array(json.dumps(summary)),
        **{name: np.array(value) for name, value in data.items()},
        "version": np.array(detector_version()),
    }
    if report.detector is not None:
        report.detector.tokens = tokens
        report.detector.save(file.with_name(DETECTOR_FILE))
    write_arrays(file, arrays)  # last: who finds it finds the detector, too
    return Detection(arrays["posterior"], arrays["remove"], summary, file)


def _read(file: Path, data: dict[str, str], count: int) -> Detection | None:
    """What is kept in a file, if it can be read and is of this data."""
    if not file.is_file():
        return None
    try:
        arrays = read_arrays(file, *data, "posterior", "remove", "summary")
        summary = json.loads(str(arrays["summary"]))
    except (UserError, ValueError) as error:
        getLogger().warning("%s is damaged (%s): noise is detected again.", file, error)
        return None
    if any(str(arrays[name]) != value for name, value in data.items()):
        return None
    posterior, remove = arrays["posterior"], arrays["remove"]
    if posterior.shape != (count,) or remove.shape != (count,):
        return None
    return Detection(posterior, remove.astype(bool), summary, file)


def _summary(report: detect.NoiseReport) -> dict[str, Any]:
    return {
        "share": number(report.share),
        "interval": [number(end) for end in report.share_interval],
        "shares": {kind: number(share) for kind, share in report.shares.items()},
        "gathered": number(report.gathered),
        "verdict": report.verdict,
        "expected": {name: number(getattr(report, name)) for name in ("auc", "precision", "recall", "popularity_auc")},
        "features": list(report.feature_names),
        "seconds": round(report.seconds, 3),
    }


def number(value: float) -> float | None:
    """A number for JSON, which knows no NaN."""
    return None if math.isnan(value) else float(value)


def known_quality(posterior: np.ndarray, remove: np.ndarray, noise: np.ndarray) -> dict[str, float | None]:
    """Where noise is known: AUC of the posterior, precision and recall of what is removed."""
    found = detect.quality(posterior, noise)
    return {
        "share": float(noise.mean()),
        "auc": number(found["auc"]),
        "precision": float(noise[remove].mean()) if remove.any() else None,
        "recall": float(remove[noise].mean()) if noise.any() else None,
    }


def require_finite(posterior: np.ndarray) -> np.ndarray:
    """A posterior that is not in [0, 1] would silently become a weight."""
    if not ((posterior >= 0) & (posterior <= 1)).all():
        raise UserError("The noise detector's posteriors are not all between 0 and 1; set noise_action: none.")
    return posterior
