"""Rec-Denoiser for RecBole: trainable attention masks and Jacobian smoothing for sequential recommenders.

Importing the package makes RecBole's own entry points know its models and run on today's NumPy and torch.
"""

import os

# Huge pages for torch's large tensors (Linux): steps on long sequences are up to a third faster. Read by torch once.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from recbole_denoiser import compat

compat.apply()

from recbole_denoiser import registry  # noqa: E402 - after the repairs

registry.register()

from recbole_denoiser.config import Config  # noqa: E402
from recbole_denoiser.core import Denoiser, DenoiserConfig, denoise  # noqa: E402
from recbole_denoiser.errors import UserError  # noqa: E402
from recbole_denoiser.pipeline import run  # noqa: E402

__version__ = "0.1.0"
__all__ = ["Config", "Denoiser", "DenoiserConfig", "UserError", "__version__", "denoise", "run"]
