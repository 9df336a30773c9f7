"""Recommendations for many sequences: time from raw tokens to tokens, titles and scores.

    python tests/bench/recommend.py --sequences 100000 [--dataset ml-1m --data_path <folder>]

The model is untrained: its size and the data set's number of items decide the time, not its weights. CPU seconds beside
wall-clock seconds say how busy the machine was.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def untrained(dataset: str, data_path: str, folder: Path, **changes: Any) -> Any:
    """A recommender of a run without epochs."""
    from recbole_denoiser.analysis.recommend import Recommender
    from recbole_denoiser.runs import pipeline

    flags = {"data_path": data_path, "epochs": 0, "state": "ERROR", "show_progress": False, "num_threads": 1, **changes}
    places = {"result_dir": str(folder / "results")}
    result = pipeline.run(dataset=dataset, flags={**flags, **places})
    return Recommender.load(folder / "results" / result["run"])


def sequences(items: np.ndarray, count: int, longest: int) -> list[list[str]]:
    """Random histories of 3 to ``longest`` items."""
    random = np.random.default_rng(0)
    return [random.choice(items[1:], int(random.integers(3, longest + 1))).tolist() for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=100_000)
    parser.add_argument("--longest", type=int, default=80)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--data_path", default="dataset")
    options = parser.parse_args()
    data_path = str(Path(options.data_path).resolve())
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # RecBole's logs
        for mask in ("position", "content"):
            recommender = untrained(options.dataset, data_path, Path(name), mask=mask)
            given = sequences(recommender.items, options.sequences, options.longest)
            wall, cpu = time.perf_counter(), time.process_time()
            found = recommender.recommend(given, k=10)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(
                f"{options.dataset}, {mask} masks: {len(found):,} sequences in {wall:.1f} s ({cpu:.1f} s of CPU), "
                f"{len(found) / wall:,.0f} per second"
            )


if __name__ == "__main__":
    main()
