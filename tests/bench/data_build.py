"""Time and peak memory to build a data set: one row per user (ours) against RecBole's augmentation.

    python tests/bench/data_build.py --data_path <folder> --dataset ml-1m

Each side runs in a process of its own; memory is the growth of the peak resident set during the build.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

BUILD = """
import json, resource, sys, time
import recbole_denoiser
from recbole.data.dataset import SequentialDataset
from recbole_denoiser.integration.config import Config
from recbole_denoiser.data.dataset import SequenceDataset
who, dataset, data_path = sys.argv[1:4]
config = Config("SASRecDenoiser", dataset, flags={"data_path": data_path})
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, begin = peak(), time.perf_counter()
parts = (SequenceDataset if who == "sequences" else SequentialDataset)(config).build()
print(json.dumps({"seconds": time.perf_counter() - begin, "megabytes": peak() - before, "rows": len(parts[0])}))
"""


def build(who: str, dataset: str, data_path: str) -> dict[str, float]:
    """Figures of one build; ``who`` is sequences or recbole."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, who, dataset, data_path], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--data_path", default="dataset")
    options = parser.parse_args()
    ours, theirs = (build(who, options.dataset, options.data_path) for who in ("sequences", "recbole"))
    print(f"{options.dataset:<24}{'sequences':>12}{'RecBole':>12}{'ratio':>10}")
    for name in ("seconds", "megabytes", "rows"):
        print(f"{name:<24}{ours[name]:>12,.1f}{theirs[name]:>12,.1f}{theirs[name] / max(ours[name], 1e-9):>9,.1f}x")


if __name__ == "__main__":
    main()
