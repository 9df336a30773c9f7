"""Time and peak memory of large data sets: build, 100 training steps, and a full ranking of a million items.

    python tests/soak/scale.py 1 5 20          millions of interactions, one after the other
    python tests/soak/scale.py --items 1000000 full ranking of this many items

Data are generated (users and items at random, item popularity falling as 1 / rank); every case runs in a process of its
own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = 100


def generate(file: Path, interactions: int, users: int, items: int) -> None:
    """An .inter file written in pieces: every user has interactions, popular items have most of them."""
    random = np.random.default_rng(0)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as stream:
        stream.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for start in range(0, interactions, 1_000_000):
            count = min(1_000_000, interactions - start)
            user = (start + np.arange(count)) % users
            item = (items ** random.random(count)).astype(np.int64)  # density ~ 1 / rank
            moment = 1_300_000_000 + (start + np.arange(count)) // 7
            stream.writelines(f"{u}\t{i}\t{t}\n" for u, i, t in zip(user, item, moment, strict=True))


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(begin: tuple[float, float]) -> str:
    """Elapsed and processor time: on a busy machine only the second says much."""
    return f"{time.perf_counter() - begin[0]:.0f} s ({time.process_time() - begin[1]:.0f} s CPU)"


def flags(folder: str, **more: object) -> dict[str, object]:
    quiet = {"data_path": folder, "show_progress": False, "state": "ERROR", "num_threads": 1, "worker": 0}
    return {**quiet, "noise_action": "none", **more}  # the detector by itself: detect_scale.py


def training(folder: str) -> None:
    """Build the data set and train STEPS steps of the default model."""
    from recbole_denoiser.integration.config import Config
    from recbole_denoiser.integration.registry import trainer_class
    from recbole_denoiser.runs.pipeline import build_model, load_data

    imported = peak_gb()
    config = Config(dataset="big", flags=flags(folder, train_batch_size=256))
    begin = now()
    data = load_data(config)
    built, build_peak = since(begin), peak_gb()
    model = build_model(config, data.train._dataset)
    trainer = trainer_class(config["model"])(config, model)
    begin = now()
    model.train()
    for step, batch in enumerate(data.train):
        terms = trainer._terms(model.calculate_loss, batch, 0, step)
        assert terms is not None
        trainer.optimizer.zero_grad()
        assert trainer._step(sum(terms.values()), 0, step)
        if step + 1 == STEPS:
            break
    trained = since(begin)
    dataset = data.dataset
    print(
        f"| {len(dataset.flat):,} | {dataset.user_num - 1:,} | {dataset.item_num - 1:,} | {built} "
        f"| {build_peak:.1f} GB | {step + 1} steps in {trained} | {peak_gb():.1f} GB | {imported:.1f} GB |"
    )


def full_ranking(folder: str) -> None:
    """Rank all items for every test user."""
    from recbole_denoiser.integration.config import Config
    from recbole_denoiser.integration.registry import trainer_class
    from recbole_denoiser.runs.pipeline import build_model, load_data

    config = Config(dataset="big", flags=flags(folder, **{"eval_args.mode": "full"}))
    data = load_data(config)
    model = build_model(config, data.train._dataset)
    trainer = trainer_class(config["model"])(config, model)
    before, begin = peak_gb(), now()
    trainer.evaluate(data.test, load_best_model=False)
    users, items = len(data.test._dataset), data.dataset.item_num - 1
    print(
        f"| {items:,} | {users:,} | {data.test.step} | {since(begin)} | {before:.1f} GB "
        f"| {peak_gb():.1f} GB | {users * items * 4 / 2**30:.0f} GB |"
    )


def in_own_process(what: str, folder: str) -> None:
    subprocess.run([sys.executable, __file__, "--only", what, "--folder", folder], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", type=float, nargs="*", help="millions of interactions")
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, help="full ranking of this many items")
    parser.add_argument("--only", choices=("training", "full_ranking"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        with tempfile.TemporaryDirectory() as workplace:  # logs
            os.chdir(workplace)
            {"training": training, "full_ranking": full_ranking}[options.only](options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "big", "big.inter")
        if options.millions:
            print("| interactions | users | items | build | peak | training | peak | of it: Python and torch |")
        for millions in options.millions:
            interactions = int(millions * 1_000_000)
            generate(file, interactions, min(options.users, interactions // 4), 100_000)
            in_own_process("training", folder)
        if options.items:
            print("| items | users | users at once | time | peak before | peak | users x items would be |")
            with file.open("w", encoding="utf-8") as stream:  # every item occurs, a thousand users
                stream.write("user_id:token\titem_id:token\ttimestamp:float\n")
                stream.writelines(f"u{item % 1000}\ti{item}\t{item}\n" for item in range(options.items))
            in_own_process("full_ranking", folder)


if __name__ == "__main__":
    main()
