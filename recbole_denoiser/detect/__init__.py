"""Find the noise: which interactions of a sequence do not belong there?

`detect_noise` for lists of items or a frame, `detect_flat` for arrays, `Detector` to keep what was fitted and ask about
new users. It needs neither torch nor RecBole.
"""

from recbole_denoiser.detect.api import detect_noise
from recbole_denoiser.detect.detector import Detector
from recbole_denoiser.detect.flat import detect_flat
from recbole_denoiser.detect.quality import quality
from recbole_denoiser.detect.report import NoiseReport

__all__ = ["Detector", "NoiseReport", "detect_flat", "detect_noise", "quality"]
