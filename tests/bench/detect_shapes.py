"""Shares, removal and precision of the detector on data and noise that it was not made with.

    RECBOLE_DATA=<folder of atomic files> python tests/bench/detect_shapes.py [--shapes order repeats ..] [--seeds 1]
    RECBOLE_DATA=<folder of atomic files> python tests/bench/detect_shapes.py --real ml-100k [--noises gathered ..] [--part 0.2]

Made-up data of nine shapes, clean and with a tenth of the items replaced uniformly and by popularity; real data with
noise of other distributions and places. One line per case, as a Markdown table.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import numpy as np
from detect_quality import folder, found, noisy, training_part

from recbole_denoiser.detect.quality import auc

Random = np.random.Generator
Data = tuple[np.ndarray, np.ndarray, int]  # user, item, number of items


def topics(
    random: Random, users: int, lengths: np.ndarray, count: int, per_topic: int, stray: float = 0.15, tail: float = 1.0
) -> Data:
    """Users with one topic and a part `stray` of another; items of a topic fall as rank^(-tail)."""
    user = np.repeat(np.arange(users), lengths)
    first, second = (np.repeat(random.integers(0, count, users), lengths) for _ in range(2))
    topic = np.where(random.random(len(user)) < stray, second, first)
    chance = np.arange(1, per_topic + 1) ** -tail
    item = topic * per_topic + random.choice(per_topic, len(user), p=chance / chance.sum())
    return user, item, count * per_topic


def order(random: Random) -> Data:
    """Sessions with an order: the next item is mostly one of four that follow the last (a Markov chain)."""
    users, length, items = 3_000, 12, 600
    follow = random.integers(0, items, (items, 4))
    item = np.empty((users, length), np.int64)
    item[:, 0] = random.integers(0, items, users)
    for place in range(1, length):
        jump = random.random(users) < 0.1
        item[:, place] = follow[item[:, place - 1], random.integers(0, 4, users)]
        item[jump, place] = random.integers(0, items, int(jump.sum()))
    return np.repeat(np.arange(users), length), item.ravel(), items


def repeats(random: Random) -> Data:
    """Music: a user has 15 pieces of a few topics and hears them again and again, 60 times in all."""
    users, length = 800, 60
    own = topics(random, users, np.full(users, 15), 40, 50, stray=0.3)[1].reshape(users, 15)
    chance = 1.0 / np.arange(1, 16)
    heard = random.choice(15, (users, length), p=chance / chance.sum())
    return np.repeat(np.arange(users), length), np.take_along_axis(own, heard, 1).ravel(), 2_000


def long_tail(random: Random) -> Data:
    """Popularity falls as rank^-1.6: most items have an interaction or two."""
    return topics(random, 2_000, np.full(2_000, 20), 20, 500, tail=1.6)


def tiny(random: Random) -> Data:
    return topics(random, 200, np.full(200, 15), 6, 30)


def few_items(random: Random) -> Data:
    return topics(random, 1_500, np.full(1_500, 20), 5, 10)


def many_items(random: Random) -> Data:
    return topics(random, 10_000, np.full(10_000, 25), 300, 1_000)


def short(random: Random) -> Data:
    """Users of 3 to 6 items."""
    return topics(random, 6_000, random.integers(3, 7, 6_000), 30, 40)


def duplicates(random: Random) -> Data:
    """Every item is recorded one to five times in a row, as by a page that reloads."""
    user, item, n_items = topics(random, 1_500, np.full(1_500, 12), 20, 40)
    times = random.integers(1, 6, len(item))
    return np.repeat(user, times), np.repeat(item, times), n_items


def no_order(random: Random) -> Data:
    """Nothing to find: every user draws from all items by popularity."""
    return topics(random, 1_500, np.full(1_500, 20), 1, 500)


SHAPES: dict[str, Callable[[Random], Data]] = {
    made.__name__: made
    for made in (order, repeats, long_tail, tiny, few_items, many_items, short, duplicates, no_order)
}


def drawn(chance: np.ndarray, number: int, random: Random) -> np.ndarray:
    return random.choice(len(chance), number, p=chance / chance.sum())


def spoiled(data: Data, kind: str, share: float, random: Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User, item and where the noise is, of one of NOISES."""
    user, clean, n_items = data
    popularity = np.bincount(clean, minlength=n_items).astype(float)
    rank = np.empty(n_items)
    rank[np.argsort(-popularity, kind="stable")] = np.arange(n_items)
    size = np.bincount(user)
    if kind == "insert":
        add = random.random(len(clean)) < share / (1 - share)
        index = np.repeat(np.arange(len(clean)), 1 + add)
        where = np.r_[False, index[1:] == index[:-1]]
        item = clean[index]
        item[where] = random.integers(0, n_items, int(where.sum()))
        return user[index], item, where
    rate = np.full(len(clean), share)
    if kind == "gathered":  # half of the items of some users
        rate = np.where(random.random(len(size)) < 2 * share, 0.5, 0.0)[user]
    elif kind == "own rate":
        rate = random.beta(0.5, 0.5 * (1 - share) / share, len(size))[user]
    elif kind == "end":  # the last part of each sequence
        from_end = np.concatenate([np.arange(n, 0, -1) for n in size])
        rate = (from_end <= np.round(share * size[user])).astype(float)
    where = random.random(len(clean)) < rate
    chance = {
        "popularity": popularity,
        "root of popularity": np.sqrt(popularity),
        "the most popular 5 %": popularity * (rank < 0.05 * n_items),
        "the least popular half": (rank >= 0.5 * n_items).astype(float),
    }.get(kind, np.ones(n_items))
    item = clean.copy()
    item[where] = drawn(chance, int(where.sum()), random)
    return user, item, where


NOISES = (
    "gathered",
    "own rate",
    "end",
    "insert",
    "root of popularity",
    "the most popular 5 %",
    "the least popular half",
)


def line(name: str, noise: str, user: np.ndarray, item: np.ndarray, n_items: int, where: np.ndarray) -> None:
    report, precision, recall, kinds, spent = found(user, item, n_items, where)
    low, high = report.share_interval
    gone = report.remove
    print(
        f"| {name} | {noise} | {where.mean():.3f} | {report.share:.3f} ({kinds}; gathered {report.gathered:.3f}) "
        f"| {low:.3f}-{high:.3f} | {auc(report.posterior, where):.3f} ({report.auc:.3f}) | {gone.mean():.2%} "
        f"| {(gone & ~where).sum() / max((~where).sum(), 1):.2%} | {precision:.2f} ({report.precision:.2f}) | {recall:.2f} "
        f"| {report.verdict} | {spent:.0f} s |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", default=os.environ.get("RECBOLE_DATA"))
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--real", nargs="*", default=[], help="data sets; then no made-up data")
    parser.add_argument("--part", type=float, default=1.0, help="of the users of real data: thinner data")
    parser.add_argument("--noises", nargs="*", default=NOISES, choices=("none", "uniform", "popularity", *NOISES))
    parser.add_argument("--shares", nargs="*", type=float, default=[0.1])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    args = parser.parse_args()
    print(
        "| data | noise | true | estimated | interval | AUC (expected) | removed | of the clean | precision | recall | verdict | CPU |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for seed in args.seeds:
        for name in [] if args.real else args.shapes:
            user, clean, n_items = SHAPES[name](np.random.default_rng(seed))
            line(name, f"none, {seed}", user, clean, n_items, np.zeros(len(clean), bool))
            for kind in ("uniform", "popularity"):
                line(name, f"{kind}, {seed}", user, *_split(noisy(clean, n_items, 0.1, kind, seed), n_items))
        for name in args.real:
            place = folder(name, args.data_path)
            if place is None:
                continue
            data = _part(*training_part(place)[:2], args.part, np.random.default_rng(seed))
            name, clean = name if args.part == 1 else f"{name}, {args.part:.2f} of the users", data[1]
            for kind in args.noises:
                for share in args.shares if kind != "none" else [0.0]:
                    if kind == "none":
                        line(name, "none", *data, np.zeros(len(clean), bool))
                        continue
                    where_user, item, where = spoiled(data, kind, share, np.random.default_rng(seed))
                    line(name, f"{kind}, {seed}", where_user, item, data[2], where)


def _part(user: np.ndarray, item: np.ndarray, part: float, random: Random) -> Data:
    """Rows of a part of the users, with the items that they have: thinner data of the same kind."""
    held = (random.random(user.max() + 1) < part)[user] if part < 1 else np.ones(len(user), bool)
    user, (known, item) = user[held], np.unique(item[held], return_inverse=True)
    return np.cumsum(np.r_[True, user[1:] != user[:-1]]) - 1, item, len(known)


def _split(made: tuple[np.ndarray, np.ndarray], n_items: int) -> tuple[np.ndarray, int, np.ndarray]:
    item, where = made
    return item, n_items, where


if __name__ == "__main__":
    main()
