"""What if: a history with one item taken out, or with what the detector removed put back.

Every variant is scored by the model as a history of its own, so that a page can show the change without the model.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_denoiser.analysis.evidence import evidence
from recbole_denoiser.analysis.histories import History, cleaning_of
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.data.sequences import Histories
from recbole_denoiser.detect.settings import Settings

AT_ONCE = 64  # variants scored in one batch
NEIGHBOURS = 4  # that a removed item disagrees with most


def without_each(recommender: Recommender, history: History, places: list[int], k: int) -> list[Any]:
    """For each place: the list without that item (a mapping as in _variants); None where nothing else would be left."""
    if len(history.item) < 2:
        return [None] * len(places)
    times = _times(history)
    kept = [np.delete(np.arange(len(history.item)), place) for place in places]
    return _variants(recommender, history, [(history.item[rows], times[rows]) for rows in kept], k)


def with_back(recommender: Recommender, history: History, k: int) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """For each removed item the list with it back, and the list with all of them back."""
    if not history.removed:
        return [], None
    times = _times(history)
    place = np.array([entry.place for entry in history.removed])
    item = np.array([entry.item for entry in history.removed])
    time = np.array([entry.time for entry in history.removed])
    chosen = [np.array([number]) for number in range(len(place))] + [np.arange(len(place))]
    found = _variants(
        recommender,
        history,
        [(np.insert(history.item, place[c], item[c]), np.insert(times, place[c], time[c])) for c in chosen],
        k,
    )
    return found[:-1], found[-1]


def _times(history: History) -> np.ndarray:
    return history.time if history.time is not None else np.arange(len(history.item), dtype=np.float64)


def _variants(
    recommender: Recommender, history: History, variants: list[tuple[np.ndarray, np.ndarray]], k: int
) -> list[dict[str, Any]]:
    """The first k of each variant, the rank that each had before, and the rank of what came next."""
    base = scored(recommender, history, [(history.item, _times(history))])[0]
    first = base.topk(min(k, int(torch.isfinite(base).sum()))).indices
    found = []
    for start in range(0, len(variants), AT_ONCE):
        for scores in scored(recommender, history, variants[start : start + AT_ONCE]):
            top = scores.topk(len(first)).indices
            found.append(
                {
                    "top": top.tolist(),
                    "was": ranks(base, top),
                    "now": ranks(scores, first),  # of what is first as it is
                    "next": None if history.next is None else ranks(scores, torch.tensor([history.next]))[0],
                }
            )
    return found


def scored(recommender: Recommender, history: History, variants: list[tuple[np.ndarray, np.ndarray]]) -> Tensor:
    """Scores [variants, items]; what the user has interacted with before is out, but for what came next."""
    lengths = [len(item) for item, _ in variants]
    given = Histories(
        [history.user] * len(variants),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([item for item, _ in variants]),
        np.concatenate([time for _, time in variants]),
        Counter(),
    )
    with torch.no_grad():
        scores = recommender.scores(given, np.arange(len(variants))).cpu()
    out = np.setdiff1d(history.seen, [] if history.next is None else [history.next])
    scores[:, torch.from_numpy(out)] = -torch.inf
    return scores


def ranks(scores: Tensor, numbers: Tensor) -> list[int]:
    """1 = best."""
    return ((scores[None, :] > scores[numbers][:, None]).sum(1) + 1).tolist()


def reasons(recommender: Recommender, histories: list[History]) -> dict[int, dict[str, Any]]:
    """Row of a removed item -> how rare it is and the neighbours it does not go with (analysis/evidence.py)."""
    rows = sorted({entry.row for history in histories for entry in history.removed})
    if not rows:
        return {}
    dataset, cleaning = recommender.run.dataset, cleaning_of(recommender.run)
    assert cleaning is not None
    before = cleaning.before
    user = before.flat.columns[dataset.uid_field].numpy()[before.training]
    item = before.flat.columns[dataset.iid_field].numpy()[before.training]
    window = Settings().window
    found = {}
    for row, reason in zip(rows, evidence(user, item, dataset.item_num, rows, window), strict=True):
        together, chance = np.array(reason.together), np.array(reason.chance)
        order = np.argsort(-(chance - together) / np.sqrt(chance + 1), kind="stable")[:NEIGHBOURS]
        found[row] = {
            "others": reason.others,
            "around": len(reason.neighbours),
            "never": int((together == 0).sum()),
            "window": window,
            "neighbours": [
                {"number": int(item[reason.neighbours[o]]), "together": int(together[o]), "chance": float(chance[o])}
                for o in order
            ],
        }
    return found
