"""A detector for tests: every third training interaction is noise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recbole_denoiser.data import detection
from recbole_denoiser.detect import NoiseReport
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline


def load(settings: dict, model: str = "SASRecDenoiser", **changes: Any) -> pipeline.Data:
    return pipeline.load_data(Config(model, "toy", flags={**settings, **changes}))


def report(posterior: np.ndarray, remove: np.ndarray) -> NoiseReport:
    """What the detector would say."""
    none = np.zeros(0)
    return NoiseReport(
        posterior, remove, 0.1, (0.05, 0.15), {"uniform": 0.1, "popularity": 0.0}, 0.9, 0.8, float("nan"), 0.7, "judged",
        ("coherence",), none, {}, {}, {}, {}, 1.5,
    )  # fmt: skip


@pytest.fixture
def every_third(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A detector that suspects every third training interaction, and remembers what it was asked."""
    asked = SimpleNamespace(calls=0)

    def fake(user: np.ndarray, item: np.ndarray, n_items: int, **settings: Any) -> NoiseReport:
        asked.calls += 1
        asked.user, asked.item, asked.n_items, asked.settings = user, item, n_items, settings
        posterior = np.where(np.arange(len(item)) % 3 == 2, 0.9, 0.1)
        return report(posterior, posterior > 0.5)

    monkeypatch.setattr(detection.detect, "detect_flat", fake)
    return asked
