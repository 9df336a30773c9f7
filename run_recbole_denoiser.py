"""RecBole's familiar entry point: ``python run_recbole_denoiser.py --model=... --dataset=... --key=value``."""

import sys

from recbole_denoiser.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
