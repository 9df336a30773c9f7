"""Find the noise: which interactions of a sequence do not belong there?

`detect_noise` for lists of items or a frame, `detect_flat` for arrays. It needs neither
torch nor RecBole.
"""

from recbole_denoiser.detect.flat import detect_flat
from recbole_denoiser.detect.quality import quality
from recbole_denoiser.detect.report import NoiseReport

__all__ = ["NoiseReport", "detect_flat", "quality"]
