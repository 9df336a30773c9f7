"""``python -m recbole_denoiser`` is the command ``recbole-denoiser``."""

import sys

from recbole_denoiser.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
