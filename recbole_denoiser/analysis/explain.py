"""What a trained model reads in a history, what its masks cut, and what difference that makes (eq. 8, section 4.1).

``explain`` returns plain data for the page of ``report/explain_page.py`` and for JSON, and the attention as tensors.
For every user it runs the model with masks, without masks, and with masks while one history item after the other cannot
be read by any other position; and once for every change of the history that the page offers (edits.py).
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from recbole.model.sequential_recommender import BERT4Rec
from torch import Tensor

from recbole_denoiser.analysis.capture import Attention, attention_sites, is_causal, is_chain, recorded, rollout
from recbole_denoiser.analysis.edits import reasons, with_back, without_each
from recbole_denoiser.analysis.histories import History
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.analysis.story import effect, story
from recbole_denoiser.core.masks import AttentionMask
from recbole_denoiser.data.sequences import Histories
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import SequenceModel
from recbole_denoiser.model.protocols import denoiser_of

FORMAT = 2  # raised when the content of the JSON changes
DIGITS = 4  # of weights; a gate is 0 or above 0.5 (but for inference_gate: expected), so rounding hides no cut
NEXT = "[next item]"  # the position of a mask token


@dataclass
class Explanation:
    """``data`` is plain JSON; ``tensors`` has the attention of each user in the form that bertviz takes."""

    data: dict[str, Any]
    tensors: dict[str, dict[str, Any]]

    def bertviz(self, user: str, masked: bool = True) -> tuple[list[Tensor], list[str]]:
        """Arguments of ``bertviz.head_view`` and ``model_view``: attention [1, H, n, n] per layer, and the tokens."""
        own = self.tensors[user]
        return own["masked" if masked else "attention"], own["tokens"]


def explain(recommender: Recommender, histories: Sequence[History], k: int = 10) -> Explanation:
    """Attention, masks, recommendations with and without masks, and the share of each item, for every history."""
    if not histories:
        raise UserError("There is no history to explain.")
    run = recommender.run
    users: list[dict[str, Any]] = []
    tensors: dict[str, dict[str, Any]] = {}
    layers: list[Attention] = []
    why = reasons(recommender, list(histories))
    for history in histories:
        record, own, layers = _explain_one(recommender, history, k, why)
        users.append(record)
        tensors[history.user] = own
    masks = _position_masks(run.model)
    data = {
        "format": FORMAT,
        "run": run.result["run"],
        "label": run.result["label"],
        "model": run.result["model"],
        "dataset": run.result["dataset"],
        "max_length": recommender.n,
        "causal": all(user["causal"] for user in users),
        "layers": [layer.name for layer in layers],
        "heads": [layer.A.shape[1] for layer in layers],
        "mask": run.config["mask"] if denoiser_of(run.model) is not None else None,
        "masks": masks,
        "noise": run.config["train_noise"] or 0.0,
        "k": k,
        "start": max(range(len(users)), key=lambda number: users[number]["effect"]),
        "names": {str(number): _named(recommender, number) for number in sorted(_numbers(users))},
        "users": users,
    }
    return Explanation(data, tensors)


@torch.no_grad()
def _explain_one(
    recommender: Recommender, history: History, k: int, why: dict[int, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any], list[Attention]]:
    time = history.time if history.time is not None else np.arange(len(history.item), dtype=np.float64)
    given = Histories([history.user], np.array([0, len(history.item)]), history.item, time, Counter())
    once = np.zeros(1, dtype=np.int64)
    items, last = _layout(recommender, given)
    real = items.nonzero().view(-1)  # positions that hold an item or the mask token
    masked = denoiser_of(recommender.model) is not None
    with attention_sites(recommender.model) as sites:
        with recorded(sites) as layers:
            on = recommender.scores(given, once)[0]
        with recorded(sites, masks_on=False) as plain_layers:
            off = recommender.scores(given, once)[0]
        _check_width(layers, len(items))
        with recorded(sites, unread=real):
            without = recommender.scores(given, np.zeros(len(real), dtype=np.int64))  # [m, items]
    seen = torch.from_numpy(history.seen).to(on.device)
    for scores in (on, off, without):
        held = None if history.next is None else scores[..., history.next].clone()
        scores[..., seen] = -torch.inf
        if held is not None:  # a held-out item that is in the history already still counts
            scores[..., history.next] = held
    causal = is_causal(layers)
    place = int((real == last).nonzero()[0, 0])
    top = on.topk(min(k, int(torch.isfinite(on).sum())))
    record: dict[str, Any] = {
        "user": history.user,
        "causal": causal,
        "last": place,
        "items": _items(recommender, history, items[real].tolist()),
        "layers": [_layer(layer, real, causal) for layer in layers],
        "contribution": _contribution(layers, real, place),
        "contribution_off": _contribution(plain_layers, real, place) if masked else None,
        "on": _top(recommender, on, off, k),
        "off": _top(recommender, off, on, k) if masked else None,
        "without": [
            {
                "change": _rounded(row[top.indices] - top.values),
                "first": _named(recommender, int(row.argmax())),
            }
            for row in without
        ],
        "next": None
        if history.next is None
        else {
            **_named(recommender, history.next),
            "rank": _rank(on, history.next),
            "rank_off": _rank(off, history.next) if masked else None,
        },
    }
    oldest = len(history.item) - sum(entry["item"] != NEXT for entry in record["items"])
    places = list(range(oldest, len(history.item)))
    record["out"] = without_each(recommender, history, places, k)
    record["out"] += [None] * (len(record["items"]) - len(places))  # a mask token cannot be taken out
    each, record["back"] = with_back(recommender, history, k)
    record["removed"] = [
        {
            **_named(recommender, entry.item),
            "place": max(0, entry.place - oldest),
            "when": when(entry.time if history.time is not None else None),
            "posterior": round(entry.posterior, 3),
            "noise": None if entry.original is None else _named(recommender, recommender.item_ids[entry.original]),
            "why": why[entry.row],
            "back": back,
        }
        for entry, back in zip(history.removed, each, strict=True)
    ]
    record["story"], record["effect"] = story(record), round(effect(record), 4)
    tensors = {
        "tokens": [entry["title"] or entry["item"] for entry in record["items"]],
        "attention": [_crop(layer.A, real).cpu().clone() for layer in layers],
        "masked": [_crop(layer.M, real).cpu().clone() for layer in layers],
    }
    return record, tensors, layers


def _layout(recommender: Recommender, given: Histories) -> tuple[Tensor, int]:
    """Items [m] in the places where the attention sees them (0 = padding), and the place that predicts."""
    model = recommender.model
    interaction = recommender.interaction(given, np.zeros(1, dtype=np.int64))
    if isinstance(model, SequenceModel):
        batch, last = model.inference_batch(interaction)
        return batch.items[0], int(last[0])
    dataset = recommender.run.dataset
    items = interaction[dataset.iid_field + recommender.run.config["LIST_SUFFIX"]]
    if isinstance(model, BERT4Rec):  # RecBole's puts a mask token behind the history
        items = model.reconstruct_test_data(items, interaction[dataset.item_list_length_field])
    return items[0], int((items[0] != 0).sum()) - 1


def _check_width(layers: list[Attention], width: int) -> None:
    for layer in layers:
        if layer.A.shape[-1] != width:
            raise UserError(
                f"Attention {layer.name} works on {layer.A.shape[-1]} positions, the sequence has {width}: this "
                "model's attention cannot be shown item by item."
            )


def _numbers(users: list[dict[str, Any]]) -> set[int]:
    """Ids of the items in the lists of all variants."""
    found: set[int] = set()
    for user in users:
        variants = [*user["out"], user["back"], *(entry["back"] for entry in user["removed"])]
        found.update(number for variant in variants if variant is not None for number in variant["top"])
        found.update(near["number"] for entry in user["removed"] for near in entry["why"]["neighbours"])
    return found


def _position_masks(model: Any) -> list[list[list[list[float]]]] | None:
    """Gates [layer][head][query][key] of position masks, which all users share; causal rows end at the diagonal."""
    denoiser = denoiser_of(model)
    if denoiser is None or any(mask.needs_data for mask in denoiser.masks):
        return None
    masks = []
    for mask in denoiser.masks:
        assert isinstance(mask, AttentionMask)
        Z = mask.gate(mask.n).detach()[0]  # [1 or H, n, n]
        masks.append([_rows(head, denoiser.config.causal) for head in Z])
    return masks


# ---- plain values ----


def _layer(layer: Attention, real: Tensor, causal: bool) -> dict[str, Any]:
    Z = None if layer.Z is None else _crop(layer.Z.expand(len(layer.A), -1, -1, -1), real)[0]
    return {
        "attention": [_rows(head, causal) for head in _crop(layer.A, real)[0]],
        "gate": None if Z is None else [_rows(head, causal) for head in Z],  # one, or one per head
    }


def _crop(A: Tensor, real: Tensor) -> Tensor:
    return A[:, :, real][:, :, :, real]


def _rows(matrix: Tensor, causal: bool) -> list[list[float]]:
    """[query][key]; with causal attention row i has i + 1 keys."""
    return [_rounded(row[: i + 1] if causal else row) for i, row in enumerate(matrix)]


def _rounded(values: Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]


def _contribution(layers: list[Attention], real: Tensor, last: int) -> list[float] | None:
    if not is_chain(layers):
        return None
    return _rounded(rollout([_crop(layer.M, real)[0].mean(0) for layer in layers], last))


def _named(recommender: Recommender, number: int) -> dict[str, str]:
    title = "" if recommender.item_titles is None else str(recommender.item_titles[number])
    return {"item": str(recommender.items[number]), "title": title}


def _items(recommender: Recommender, history: History, numbers: list[int]) -> list[dict[str, Any]]:
    """The positions that the attention sees; some layouts leave out the oldest item or add a mask token at the end."""
    known = [number for number in numbers if number < len(recommender.items)]
    oldest = len(history.item) - len(known)
    entries: list[dict[str, Any]] = []
    for place, number in enumerate(known, start=oldest):
        time = None if history.time is None else float(history.time[place])
        original = history.original.get(place)
        noise = None if original is None else _named(recommender, recommender.item_ids[original])
        entries.append({**_named(recommender, number), "time": time, "when": when(time), "noise": noise})
    mask_token = {"item": NEXT, "title": "", "time": None, "when": "", "noise": None}
    return entries + [mask_token] * (len(numbers) - len(known))


def when(time: float | None) -> str:
    """Seconds since 1970 as a date; other numbers as they are."""
    if time is None:
        return ""
    if 1e8 <= time < 1e11:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=time)
        return moment.strftime("%Y-%m-%d %H:%M")
    return f"{time:g}"


def _top(recommender: Recommender, scores: Tensor, other: Tensor, k: int) -> list[dict[str, Any]]:
    top = scores.topk(min(k, int(torch.isfinite(scores).sum())))
    return [
        {
            **_named(recommender, number),
            "number": number,
            "score": round(score, DIGITS),
            "other_rank": _rank(other, number),
        }
        for score, number in zip(top.values.tolist(), top.indices.tolist(), strict=True)
    ]


def _rank(scores: Tensor, number: int) -> int:
    return int((scores > scores[number]).sum()) + 1
