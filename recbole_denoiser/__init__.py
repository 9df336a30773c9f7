"""Rec-Denoiser for RecBole: trainable attention masks and Jacobian smoothing for sequential recommenders.

Importing the package makes RecBole's own entry points know its models and run on today's NumPy and torch.
"""

from recbole_denoiser import memory

memory.use_huge_pages()  # before torch makes its first tensor

from recbole_denoiser import compat  # noqa: E402

compat.apply()

from recbole_denoiser import registry  # noqa: E402 - after the repairs

registry.register()

from recbole_denoiser.config import Config  # noqa: E402
from recbole_denoiser.core import Denoiser, DenoiserConfig, denoise  # noqa: E402
from recbole_denoiser.errors import UserError  # noqa: E402
from recbole_denoiser.pipeline import run  # noqa: E402

__version__ = "0.1.0"
__all__ = ["Config", "Denoiser", "DenoiserConfig", "UserError", "__version__", "denoise", "run"]
