"""How well the detector finds noise of known place: AUC, estimated shares, and what it would remove from clean data.

    RECBOLE_DATA=<folder of atomic files> python tests/bench/detect_quality.py [--data_path FOLDER] [--sets ml-1m ...]

Noise is put into the training part (all but the last two items of each user): an interaction is replaced with the given
probability by an item drawn uniformly, by popularity, or half and half. One line per case, as a Markdown table; ml-100k is
taken from RecBole's wheel.
"""

from __future__ import annotations

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from recbole_denoiser.detect import NoiseReport, detect_flat
from recbole_denoiser.detect.quality import auc

SETS = ("ml-1m", "ml-100k", "amazon-games", "amazon-beauty")
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3)


def folder(name: str, data_path: str | None) -> Path | None:
    places = [Path(data_path)] if data_path else []
    found = find_spec("recbole")
    if found is not None and found.submodule_search_locations:
        places.append(Path(next(iter(found.submodule_search_locations))) / "dataset_example")
    return next((place / name for place in places if (place / name / f"{name}.inter").exists()), None)


def training_part(place: Path) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """User codes, item codes and texts by code, all but the last two items of each user."""
    frame = pd.read_csv(place / f"{place.name}.inter", sep="\t")
    frame.columns = [name.split(":")[0] for name in frame.columns]
    order = ["user_id", "timestamp"] + (["position"] if "position" in frame.columns else [])
    frame = frame.sort_values(order, kind="stable")
    user = frame.user_id.astype("category").cat.codes.to_numpy()
    items = frame.item_id.astype("category")
    size = np.bincount(user)
    from_end = np.concatenate([np.arange(c, 0, -1) for c in size])
    keep = (from_end > 2) & (size[user] >= 3)
    texts = None
    if (place / f"{place.name}.item").exists():
        about = pd.read_csv(place / f"{place.name}.item", sep="\t", dtype=str, keep_default_na=False)
        words = [name for name in about.columns[1:] if not name.endswith(":float")]
        text = dict(zip(about.iloc[:, 0], about[words].agg(" ".join, axis=1), strict=True))
        texts = [text.get(str(token), "") for token in items.cat.categories]
    return user[keep], items.cat.codes.to_numpy().astype(np.int64)[keep], texts


def noisy(item: np.ndarray, n_items: int, share: float, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Items with noise, and where it is."""
    rng = np.random.default_rng(seed)
    where = rng.random(len(item)) < share
    number = int(where.sum())
    uniform, popular = rng.integers(0, n_items, number), rng.choice(item, number)
    first = {"uniform": 1.0, "popularity": 0.0, "half": 0.5}[kind]
    out = item.copy()
    out[where] = np.where(rng.random(number) < first, uniform, popular)
    return out, where


class Found(NamedTuple):
    """A report beside the truth."""

    report: NoiseReport
    precision: float
    recall: float
    kinds: str
    seconds: float  # of CPU


def found(user: np.ndarray, item: np.ndarray, n_items: int, where: np.ndarray, texts: list[str] | None = None) -> Found:
    """What the detector says of rows whose noise is known."""
    begin = time.process_time()
    report = detect_flat(user, item, n_items, texts=texts)
    seconds = time.process_time() - begin
    gone = report.remove
    precision = float(where[gone].mean()) if gone.any() else float("nan")
    recall = float(gone[where].mean()) if where.any() else float("nan")
    return Found(report, precision, recall, " + ".join(f"{value:.3f}" for value in report.shares.values()), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", default=os.environ.get("RECBOLE_DATA"))
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES)
    parser.add_argument("--kinds", nargs="*", default=["uniform", "popularity", "half"])
    parser.add_argument("--texts", action="store_true", help="use item texts")
    parser.add_argument("--seed", type=int, default=99, help="of the noise; the detector's seed is 0")
    args = parser.parse_args()
    print(
        "| data | noise | true | estimated (uniform + popularity) | interval | AUC (expected) | rarity | removed | precision | recall | verdict | CPU |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name in args.sets:
        place = folder(name, args.data_path)
        if place is None:
            continue
        user, clean, texts = training_part(place)
        n_items = int(clean.max()) + 1
        for share in args.shares:
            for kind in args.kinds if share else ["none"]:
                item, where = (
                    (clean, np.zeros(len(clean), bool))
                    if kind == "none"
                    else noisy(clean, n_items, share, kind, args.seed)
                )
                report, precision, recall, kinds, spent = found(
                    user, item, n_items, where, texts if args.texts else None
                )
                rarity = auc(-np.bincount(item, minlength=n_items)[item], where)
                low, high = report.share_interval
                print(
                    f"| {name}{' with texts' if args.texts else ''} | {kind} | {share:.2f} | {kinds} | {low:.3f}-{high:.3f} | {auc(report.posterior, where):.3f} ({report.auc:.3f}) "
                    f"| {rarity:.2f} | {report.remove.mean():.2%} | {precision:.2f} ({report.precision:.2f}) | {recall:.2f} ({report.recall:.2f}) | {report.verdict} | {spent:.0f} s |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
