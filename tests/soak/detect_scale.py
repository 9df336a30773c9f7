"""Processor time and peak memory of the noise detector on made-up data.

    OMP_NUM_THREADS=1 python tests/soak/detect_scale.py 1 5 20 [--items 100000]     millions of interactions

Users of 100 interactions stay with two of 200 topics (four of five items from the first), item popularity within a
topic falls as 1 / rank, and a tenth of the items is replaced uniformly. Every size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

LENGTH, TOPICS, NOISE = 100, 200, 0.1


def generate(interactions: int, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User, item, and where noise was put."""
    random = np.random.default_rng(0)
    users = interactions // LENGTH
    user = np.repeat(np.arange(users, dtype=np.int64), LENGTH)
    first, second = (np.repeat(random.integers(0, TOPICS, users), LENGTH) for _ in range(2))
    topic = np.where(random.random(len(user)) < 0.2, second, first)
    inside = ((items // TOPICS) ** random.random(len(user))).astype(np.int64) - 1  # density ~ 1 / rank
    item = topic * (items // TOPICS) + inside
    where = random.random(len(user)) < NOISE
    item[where] = random.integers(0, items, int(where.sum()))
    return user, item, where


def one(interactions: int, items: int) -> None:
    from recbole_denoiser.detect import detect_flat, quality

    user, item, where = generate(interactions, items)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    begin, spent = time.perf_counter(), time.process_time()
    report = detect_flat(user, item, items, progress=True)
    begin, spent = time.perf_counter() - begin, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"| {interactions:,} | {items:,} | {begin:.0f} s ({spent:.0f} s CPU) | {peak:.1f} GB ({before:.1f} before) "
        f"| {report.share:.3f} | {quality(report.posterior, where)['auc']:.3f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", nargs="+", type=float)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--here", action="store_true", help="in this process")
    args = parser.parse_args()
    if args.here:
        one(int(args.millions[0] * 1e6), args.items)
        return
    print(
        "| interactions | items | time | peak | share found (true 0.1) | AUC |\n|---|---|---|---|---|---|", flush=True
    )
    for millions in args.millions:
        command = [sys.executable, __file__, str(millions), "--items", str(args.items), "--here"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
