"""Do the masks cut the noise? The direct test of the paper's claim, which it does not make (section 5.3).

Injected noise is known noise. For every live attention of a trained model whose key could have been replaced, the gate
either keeps the key or prunes it, and the key either was replaced or was not: precision and recall of pruning, and the
AUC of the gate (1 - Z as a score of "injected"). 0.5 is chance. Precision has to be read against the injected share
and recall against the pruned share, which is what a random mask of the same sparsity would reach.

``attention AUC`` asks the same of the weights that the values really get (after the mask, times the number of keys of
their row): it is there for models without masks, too, and tells how much of it softmax attention does by itself.

A position mask is the same for all users, and noise is spread evenly over the training positions: it cannot do better
than chance here, by construction. Only a content mask can.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from scipy.stats import rankdata
from torch import Tensor

from recbole_denoiser.analysis.capture import Attention, attention_sites, recorded
from recbole_denoiser.errors import UserError
from recbole_denoiser.files import read_json, write_json
from recbole_denoiser.integration.registry import MODELS
from recbole_denoiser.runs.record import Run
from recbole_denoiser.runs.reopen import OpenRun, open_run

USERS = 2_000  # histories that are looked at, chosen at random; all if there are fewer
BATCH = 256
FILE = "pruning.json"
_CLEAN, _INJECTED, _OTHER = 1, 2, 3  # 0 is padding; other: an item that noise could not reach


@dataclass(frozen=True)
class LayerQuality:
    """One attention layer. None where there is nothing to divide by, or no mask."""

    layer: int  # from 1
    attentions: int
    injected: float  # share of the attentions whose key was injected
    pruned: float | None  # share of the attentions that the gate closes
    precision: float | None
    recall: float | None
    gate_auc: float | None
    attention_auc: float | None


@dataclass(frozen=True)
class Quality:
    """All layers of one run."""

    run: str
    mask: str  # position, content, or none
    users: int
    layers: list[LayerQuality]


def auc(score: np.ndarray, positive: np.ndarray) -> float | None:
    """Probability that a positive has a larger score than a negative, ties counting half; None without both kinds."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return None
    ranks = rankdata(score)
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def of_run(run: Run, users: int = USERS) -> Quality | None:
    """Quality of a finished run, kept in its folder; None for a run without noise or without this package's attention.

    The checkpoint is opened and the model reads the test histories of ``users`` users.
    """
    if not run.config.get("train_noise") or run.model not in MODELS:
        return None
    file = run.folder / FILE
    if file.is_file():
        stored = read_json(file)
        try:
            if stored["asked"] == users:
                layers = [LayerQuality(**layer) for layer in stored["layers"]]
                return Quality(stored["run"], stored["mask"], stored["users"], layers)
        except (KeyError, TypeError) as error:
            raise UserError(f"{file} is not what this command writes ({error}); remove it.") from error
    quality = measure(open_run(run.folder), users)
    write_json(file, {"asked": users, **asdict(quality)})
    return quality


def measure(opened: OpenRun, users: int = USERS) -> Quality:
    """Quality of an opened run with noise."""
    rows = opened.test.inter_feat
    marks = _marks(opened)
    chosen = np.arange(len(rows))
    if len(chosen) > users:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), users, replace=False))
    collected: list[_Layer] = []
    for begin in range(0, len(chosen), BATCH):
        part = torch.from_numpy(chosen[begin : begin + BATCH])
        _collect(opened, rows.cut(part), marks[_places(rows, part)], collected)
    config = opened.config
    return Quality(
        run=opened.result["run"],
        mask=config["mask"] if opened.model.denoiser is not None else "none",
        users=len(chosen),
        layers=[layer.quality(number + 1) for number, layer in enumerate(collected)],
    )


def _marks(opened: OpenRun) -> Tensor:
    """[N + 1] mark of every flat interaction; the last one is padding."""
    view = opened.test.view
    marks = np.full(len(view) + 1, _OTHER)
    marks[view.training] = _CLEAN
    marks[:-1][view.noise] = _INJECTED
    marks[-1] = 0
    return torch.from_numpy(marks)


def _places(rows: Any, part: Tensor) -> Tensor:
    """[B, n] flat index of every position of the rows' histories, right-padded with N."""
    start, target = rows.start[part], rows.target[part]
    steps = torch.arange(rows.max_length)
    return torch.where(steps < (target - start)[:, None], start[:, None] + steps, len(rows.flat))


def _collect(opened: OpenRun, interaction: Any, marks: Tensor, collected: list[_Layer]) -> None:
    model = opened.model
    interaction = interaction.to(opened.config["device"])
    # the model itself aligns the marks as it aligns items (and puts in its mask token, which is none of the marks)
    items = model.fields.item + model.fields.list_suffix
    marked = Interaction({**interaction.interaction, items: marks.to(interaction[items])})
    mark = model.inference_batch(marked)[0].items  # [B, m]
    with torch.no_grad(), attention_sites(model) as sites, recorded(sites) as seen:
        model.last_state(interaction)
    query = mark != 0
    key = (mark == _CLEAN) | (mark == _INJECTED)
    live = query[:, :, None] & key[:, None, :]  # [B, m, m]
    readable = query[:, :, None] & query[:, None, :]
    if model.causal:
        live, readable = live.tril(), readable.tril()
    injected = (mark == _INJECTED)[:, None, :].expand_as(live)
    for number, attention in enumerate(seen):
        if number == len(collected):
            collected.append(_Layer())
        collected[number].add(attention, live, injected, readable.sum(2, keepdim=True))


class _Layer:
    """The attentions of one layer, batch by batch."""

    def __init__(self) -> None:
        self.gate: list[np.ndarray] = []  # Z, per head if the masks are
        self.gate_injected: list[np.ndarray] = []
        self.weight: list[np.ndarray] = []  # M times the number of keys, mean over heads
        self.injected: list[np.ndarray] = []

    def add(self, attention: Attention, live: Tensor, injected: Tensor, keys: Tensor) -> None:
        weight = attention.M.mean(1) * keys  # [B, m, m]
        self.weight.append(weight[live].cpu().numpy())
        self.injected.append(injected[live].cpu().numpy())
        if attention.Z is not None:
            Z = attention.Z.expand(len(live), -1, -1, -1)  # [B, 1 or H, m, m]
            everywhere = live[:, None].expand_as(Z)
            self.gate.append(Z[everywhere].cpu().numpy())
            self.gate_injected.append(injected[:, None].expand_as(Z)[everywhere].cpu().numpy())

    def quality(self, layer: int) -> LayerQuality:
        injected = np.concatenate(self.injected)
        masked: dict[str, float | None] = dict.fromkeys(("pruned", "precision", "recall", "gate_auc"))
        if self.gate:
            masked = gate_quality(np.concatenate(self.gate), np.concatenate(self.gate_injected))
        return LayerQuality(
            layer=layer,
            attentions=len(injected),
            injected=float(injected.mean()),
            attention_auc=auc(-np.concatenate(self.weight), injected),
            **masked,
        )


def gate_quality(gate: np.ndarray, injected: np.ndarray) -> dict[str, float | None]:
    """Pruning as a detector of injected keys, from the gate Z [E] and what was injected [E]."""
    pruned = gate == 0
    hits = int((pruned & injected).sum())
    return {
        "pruned": float(pruned.mean()),
        "precision": hits / int(pruned.sum()) if pruned.any() else None,
        "recall": hits / int(injected.sum()) if injected.any() else None,
        "gate_auc": auc(-gate, injected),
    }


# ---- texts ----

_NUMBERS = ("injected", "pruned", "precision", "recall", "gate_auc", "attention_auc")


@dataclass(frozen=True)
class Row:
    """A run in the tables."""

    label: str
    dataset: str
    share: float
    seed: int
    quality: Quality


def row(run: Run, quality: Quality) -> Row:
    """A run under its own names."""
    return Row(run.label, run.dataset, float(run.config["train_noise"]), run.seed, quality)


def to_markdown(rows: Sequence[Row]) -> str:
    """A table of all runs, the mean over seeds."""
    lines = [
        "# Pruning of injected noise",
        "",
        "| Model | Data set | Noise | Mask | Layer | Seeds | Injected | Pruned | Precision | Recall | Gate AUC "
        "| Attention AUC |",
        "|---|---|---:|---|" + "---:|" * 8,
    ]
    groups: dict[tuple[str, str, float, str], list[Quality]] = {}
    for entry in rows:
        groups.setdefault((entry.label, entry.dataset, entry.share, entry.quality.mask), []).append(entry.quality)
    for (label, dataset, share, mask), group in groups.items():
        for layers in zip(*(quality.layers for quality in group), strict=True):
            numbers = " | ".join(_mean_text([getattr(layer, name) for layer in layers]) for name in _NUMBERS)
            lines.append(f"| {label} | {dataset} | {share:g} | {mask} | {layers[0].layer} | {len(group)} | {numbers} |")
    lines += [
        "",
        "Over the attentions whose key could have been injected. Chance is 0.5 for an AUC, the injected share for "
        "precision and the pruned share for recall. A position mask is the same for all users, so chance is all it can "
        "reach. Attention AUC: whether injected keys get smaller weights, after the mask if there is one.",
    ]
    return "\n".join(lines) + "\n"


def _mean_text(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{math.fsum(known) / len(known):.4f}" if known else "-"


def to_csv(rows: Sequence[Row]) -> str:
    """One line per run and layer."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "dataset", "train_noise", "seed", "mask", "users", "layer", "attentions", *_NUMBERS])
    for entry in rows:
        quality = entry.quality
        for layer in quality.layers:
            place = [entry.label, entry.dataset, entry.share, entry.seed, quality.mask, quality.users]
            writer.writerow([*place, layer.layer, layer.attentions, *(getattr(layer, name) for name in _NUMBERS)])
    return text.getvalue()
