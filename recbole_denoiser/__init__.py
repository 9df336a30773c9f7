"""Denoising for sequential recommenders: find the noise, take it out, and Rec-Denoiser's attention masks for RecBole.

Importing the package makes RecBole's own entry points know its models and run on today's NumPy and torch, as soon as
RecBole itself is imported. The names below are loaded when they are first used.
"""

from __future__ import annotations

from recbole_denoiser.interrupt import quiet_start

quiet_start()  # before anything else is imported

from typing import TYPE_CHECKING  # noqa: E402

from recbole_denoiser.integration.install import install  # noqa: E402
from recbole_denoiser.lazy import lazy  # noqa: E402

if TYPE_CHECKING:
    from recbole_denoiser.analysis.export import export
    from recbole_denoiser.analysis.recommend import Recommender
    from recbole_denoiser.core import (
        Denoiser,
        DenoiserConfig,
        DenoiserLoss,
        denoise,
        register_attention,
        unregister_attention,
    )
    from recbole_denoiser.data.prepare.columns import Columns
    from recbole_denoiser.data.prepare.events import prepare_events
    from recbole_denoiser.detect import Detector, NoiseReport, detect_noise
    from recbole_denoiser.errors import UserError
    from recbole_denoiser.integration.config import Config
    from recbole_denoiser.runs.pipeline import run

__version__ = "0.2.0"
__all__ = [
    "Columns",
    "Config",
    "Denoiser",
    "DenoiserConfig",
    "DenoiserLoss",
    "Detector",
    "NoiseReport",
    "Recommender",
    "UserError",
    "__version__",
    "denoise",
    "detect_noise",
    "export",
    "prepare_events",
    "register_attention",
    "run",
    "unregister_attention",
]

# public name -> module that defines it
_PLACES = {
    "Columns": "data.prepare.columns",
    "Config": "integration.config",
    "Denoiser": "core",
    "DenoiserConfig": "core",
    "DenoiserLoss": "core",
    "Detector": "detect",
    "NoiseReport": "detect",
    "Recommender": "analysis.recommend",
    "UserError": "errors",
    "denoise": "core",
    "detect_noise": "detect",
    "export": "analysis.export",
    "prepare_events": "data.prepare.events",
    "register_attention": "core",
    "run": "runs.pipeline",
    "unregister_attention": "core",
}

install()

__getattr__ = lazy(__name__, _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
