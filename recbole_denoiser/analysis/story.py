"""The first sentence of an explanation: what was ignored, and what difference that makes."""

from __future__ import annotations

import math
from typing import Any

SHOWN = 4  # names in a sentence
FAR = 100  # a rank that nobody sees


def story(user: dict[str, Any]) -> str:
    """In words, for one user of ``explain``'s data."""
    if user["removed"]:
        return _removed(user)
    return _masked(user) if user["off"] is not None else _plain(user)


def effect(user: dict[str, Any]) -> float:
    """How much the ignored items change: new entries among the first, and how far what came next moves."""
    other = user["back"]["top"] if user["back"] else [entry["number"] for entry in user["off"] or []]
    mine = [entry["number"] for entry in user["on"]]
    changed = len(set(mine) - set(other)) / max(len(mine), 1) if other else 0.0
    after = user["back"]["next"] if user["back"] else (user["next"] or {}).get("rank_off")
    if user["next"] is None or after is None:
        return changed
    return changed + abs(math.log2(user["next"]["rank"] / after)) / 4


def _removed(user: dict[str, Any]) -> str:
    gone = user["removed"]
    number, all_of_them = len(gone), len(gone) + len(user["items"])
    it = "it" if number == 1 else "them"
    return (
        f"Ignored {number} of {all_of_them} items as noise: {_names(gone)}; with {it} back, "
        f"{_moved(user, user['back']['now'], user['back']['next'])}."
    )


def _masked(user: dict[str, Any]) -> str:
    cut = [user["items"][key] for key in cut_everywhere(user)]
    now = [entry["other_rank"] for entry in user["on"]]
    change = f"with the masks off, {_moved(user, now, (user['next'] or {}).get('rank_off'))}."
    total = len(user["items"])
    if cut:
        return f"Ignored {len(cut)} of {total} items: the newest position reads {_names(cut)} in no layer; {change}"
    return f"Ignored none of {total} items: the newest position reads each of them in some layer; {change}"


def _plain(user: dict[str, Any]) -> str:
    total = len(user["items"])
    if total == 1 or not user["on"]:
        return f"Read all {total} items: nothing is masked and nothing was removed."
    best = max(
        (place for place, found in enumerate(user["out"]) if found is not None),
        key=lambda place: sum(abs(now - rank) for rank, now in enumerate(user["out"][place]["now"], start=1)),
    )
    found = user["out"][best]
    return (
        f"Read all {total} items: nothing is masked and nothing was removed. What counts most is "
        f"{_said(user['items'][best])}: without it, {_moved(user, found['now'], found['next'])}."
    )


def cut_everywhere(user: dict[str, Any]) -> list[int]:
    """Positions that the predicting one cannot read in any layer and head, itself left out."""
    last = user["last"]
    gates = [head[last] for layer in user["layers"] for head in layer["gate"] or []]
    if not gates:
        return []
    return [key for key in range(len(user["items"])) if key != last and all(row[key] == 0 for row in gates)]


def _moved(user: dict[str, Any], now: list[int], after: int | None) -> str:
    """What came next, if it moves and is not far down both times; else the recommendation that moves most."""
    if (
        user["next"] is not None
        and after is not None
        and after != user["next"]["rank"]
        and (min(after, user["next"]["rank"]) <= FAR)
    ):
        return f"{_said(user['next'])}, which came next, would move from {user['next']['rank']} to {after}"
    moves = [(abs(rank - place), entry, place, rank)
             for place, (entry, rank) in enumerate(zip(user["on"], now, strict=True), start=1)]  # fmt: skip
    if not moves or max(move[0] for move in moves) == 0:
        return f"the first {len(user['on'])} recommendations would stay as they are"
    _, entry, place, rank = max(moves, key=lambda move: move[0])
    return f"{_said(entry)} would move from {place} to {rank}"


def _names(entries: list[dict[str, Any]]) -> str:
    shown = [_said(entry) for entry in entries[:SHOWN]]
    more = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _said(entry: dict[str, Any]) -> str:
    """The name inside a sentence, whose commas are not the title's ("Birds, The")."""
    return f"“{name(entry)}”" if "," in name(entry) else name(entry)


def name(entry: dict[str, Any]) -> str:
    """Title, or the item's token."""
    return entry["title"] or entry["item"]
