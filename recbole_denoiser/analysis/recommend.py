"""Recommendations of a trained model for raw item tokens, in batches.

    recommender = Recommender.load("results/my-run")
    recommender.recommend([["50", "181", "174"]], k=10).frame()

A sequence needs no user of the data set: sequential models read the items. Models with user embeddings get the
padding user for someone they have not seen in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.data.interaction import Interaction
from torch import Tensor
from tqdm import tqdm

from recbole_denoiser.analysis.clean_history import HistoryCleaner
from recbole_denoiser.data.sequences import Histories, LeftOut, from_frame, from_lists
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import SequenceModel
from recbole_denoiser.runs.exported import is_exported, open_exported
from recbole_denoiser.runs.reopen import OpenRun, open_run
from recbole_denoiser.training.evaluation import check_finite, score_candidates

BATCH = {"cpu": 128}  # sequences at once; small batches stay in a CPU's cache and are twice as fast there
LARGE_BATCH = 1024
SCORES_AT_ONCE = 8_000_000  # numbers in one [B, items] matrix of scores, to bound memory


@dataclass
class Recommendations:
    """Top-k of S sequences. Where fewer than k items are left to recommend, the score is -inf and the token ""."""

    users: list[str]  # [S] user of each sequence, or its number
    items: np.ndarray  # [S, k] tokens
    titles: np.ndarray | None  # [S, k]
    scores: np.ndarray  # [S, k]
    unknown: Counter[str]  # tokens that the model does not know, and how often they were skipped
    empty: list[int]  # numbers of the sequences without any known item: nothing can be recommended for them
    left_out: list[dict[str, Any]] = field(default_factory=list)  # likely noise: user, item, title, posterior, reason

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, number: int) -> list[dict[str, Any]]:
        """The list of one sequence: item, title where known, score."""
        entries = []
        for place in np.flatnonzero(np.isfinite(self.scores[number])):
            entry: dict[str, Any] = {"item": str(self.items[number, place])}
            if self.titles is not None:
                entry["title"] = str(self.titles[number, place])
            entry["score"] = float(self.scores[number, place])
            entries.append(entry)
        return entries

    def records(self) -> Iterator[dict[str, Any]]:
        """One plain dictionary per sequence, for JSON lines."""
        for number, user in enumerate(self.users):
            record: dict[str, Any] = {"user": user, "recommendations": self[number]}
            gone = [entry for entry in self.left_out if entry["sequence"] == number]
            if gone:
                record["left_out"] = [{key: entry[key] for key in entry if key != "sequence"} for entry in gone]
            yield record

    def frame(self) -> pd.DataFrame:
        """One row per recommendation: user, rank, item, title where the data set has titles, score."""
        sequence, place = np.nonzero(np.isfinite(self.scores))
        columns: dict[str, Any] = {
            "user": np.asarray(self.users, dtype=object)[sequence],
            "rank": place + 1,
            "item": self.items[sequence, place],
        }
        if self.titles is not None:
            columns["title"] = self.titles[sequence, place]
        return pd.DataFrame({**columns, "score": self.scores[sequence, place]})

    def notes(self) -> list[str]:
        """What was skipped, in words."""
        notes = []
        if self.unknown:
            some = ", ".join(token for token, _ in self.unknown.most_common(5))
            notes.append(
                f"{sum(self.unknown.values()):,} interactions with {len(self.unknown):,} items that the model does "
                f"not know were skipped (such as {some})."
            )
        if self.left_out:
            some = "; ".join(
                f"{entry.get('title') or entry['item']} ({entry['posterior']:.0%} likely noise"
                f"{', ' + entry['reason'] if entry['reason'] else ''})"
                for entry in sorted(self.left_out, key=lambda entry: -entry["posterior"])[:5]
            )
            histories = len({entry["sequence"] for entry in self.left_out})
            notes.append(
                f"{len(self.left_out):,} item(s) of {histories:,} histories were left out, as the run did in training: "
                f"{some}."
            )
        if self.empty:
            some = ", ".join(self.users[number] for number in self.empty[:5])
            notes.append(
                f"{len(self.empty):,} sequences have no known item and get no recommendation (such as {some})."
            )
        return notes


class Recommender:
    """A trained model with its item tokens and titles.

    >>> import pandas as pd
    >>> from recbole_denoiser import run
    >>> rows = [(f"u{user}", f"i{(user + step) % 15}", step) for user in range(30) for step in range(7)]
    >>> frame = pd.DataFrame(rows, columns=["who", "what", "when"])
    >>> quick = {"epochs": 1, "eval_args.mode": "full", "state": "ERROR"}
    >>> result = run("SASRecDenoiser", data=frame, user="who", item="what", time="when", flags=quick)
    >>> recommender = Recommender.load(f"results/{result['run']}")
    >>> best = recommender.recommend([["i1", "i2", "i3"]], k=4)
    >>> best.scores.shape, set(best.items[0]) & {"i1", "i2", "i3"}
    ((1, 4), set())
    """

    def __init__(self, run: OpenRun) -> None:
        self.run, self.model = run, run.model
        self.items, self.item_titles = run.items, run.titles()
        self.n = int(run.config["MAX_ITEM_LIST_LENGTH"])
        self.item_ids = {token: number for number, token in enumerate(self.items.tolist()) if number}
        self.user_ids = run.dataset.field2token_id[run.dataset.uid_field]
        self.cleaner = HistoryCleaner.of_run(run)

    @classmethod
    def load(
        cls, run: str | Path, data_path: str | None = None, trust_checkpoint: bool = False, needs_data: bool = True
    ) -> Recommender:
        """From the folder or the name of a finished run, or from a model that ``export`` wrote as safetensors.

        ``needs_data=False`` reads no data: sequences of your own are answered from the maps that the run keeps.
        ``trust_checkpoint`` allows a pickled checkpoint, which can run code.
        """
        if is_exported(run):
            return cls(open_exported(run))
        return cls(open_run(run, data_path, trust=trust_checkpoint, needs_data=needs_data))

    @property
    def field_names(self) -> tuple[str, str, str]:
        """The data set's names of the user, item and time columns."""
        config = self.run.config
        return config["USER_ID_FIELD"], config["ITEM_ID_FIELD"], config["TIME_FIELD"]

    # ---- histories ----

    def histories(self, sequences: Sequence[Sequence[Any]] | pd.DataFrame, **columns: str) -> Histories:
        """Raw tokens as ids; unknown items are left out and counted. ``columns``: a frame's user, item and time."""
        if isinstance(sequences, pd.DataFrame):
            return from_frame(sequences, self.item_ids, self.field_names, **columns)
        return from_lists(sequences, self.item_ids)

    def cleaned(self, histories: Histories) -> Histories:
        """Histories from outside as the run reads its own: without what its noise detector suspects."""
        return histories if self.cleaner is None else self.cleaner.clean(histories, self.items)

    def user_histories(self, users: Sequence[str]) -> Histories:
        """The complete histories of users of the data set, without what the run removed."""
        flat, fields = self.run.dataset.flat, self.run.dataset
        column = flat.columns[fields.uid_field].numpy()
        ids = np.array([self.run.user_id(user) for user in users])
        first, end = np.searchsorted(column, ids, "left"), np.searchsorted(column, ids, "right")
        index = np.concatenate([np.arange(a, b) for a, b in zip(first, end, strict=True)])
        posterior = flat.columns.get(flat.fields.posterior)
        return Histories(
            list(users),
            np.concatenate([[0], np.cumsum(end - first)]),
            flat.columns[fields.iid_field].numpy()[index],
            flat.columns[fields.time_field].numpy()[index],
            Counter(),
            left_out=self._removed(ids),
            posterior=None if posterior is None else posterior.numpy()[index],
        )

    def _removed(self, ids: np.ndarray) -> list[LeftOut]:
        """What the run removed of the histories of some users (ids)."""
        cleaning = self.run.dataset.cleaning
        if cleaning is None:
            return []
        before, place = cleaning.before.flat, {int(user): number for number, user in enumerate(ids)}
        owner, item = (before.columns[name].numpy() for name in (before.fields.user, before.fields.item))
        gone = np.flatnonzero(cleaning.removed & np.isin(owner, ids))
        return [LeftOut(place[int(owner[k])], int(item[k]), float(cleaning.posterior[k])) for k in gone]

    # ---- scoring ----

    def recommend(
        self,
        sequences: Sequence[Sequence[Any]] | pd.DataFrame,
        k: int = 10,
        exclude_seen: bool = True,
        progress: bool = False,
        **columns: str,
    ) -> Recommendations:
        """The k best next items of each sequence, oldest item first; a DataFrame has columns user, item and, if the
        rows are not in order, time (or user="...", item="...", time="..." say which). ``exclude_seen`` leaves out the
        items of the sequence itself.
        """
        return self.recommend_histories(self.cleaned(self.histories(sequences, **columns)), k, exclude_seen, progress)

    @torch.no_grad()
    def recommend_histories(
        self, histories: Histories, k: int = 10, exclude_seen: bool = True, progress: bool = False
    ) -> Recommendations:
        """``recommend`` for histories that are ids already."""
        if k < 1:
            raise UserError(f"k = {k} is not allowed: it takes a whole number >= 1.")
        count = min(k, len(self.items) - 1)
        best = np.zeros((len(histories), count), dtype=np.int64)
        scores = np.full((len(histories), count), -np.inf, dtype=np.float32)
        length = histories.lengths
        order = np.argsort(length, kind="stable")  # equally long sequences together: this package's models cut padding
        order = order[length[order] > 0]
        batch = BATCH.get(torch.device(self.run.config["device"]).type, LARGE_BATCH)
        size = max(1, min(batch, SCORES_AT_ONCE // len(self.items)))
        with tqdm(
            total=len(order), desc="Recommend", unit=" sequences", mininterval=1, disable=None if progress else True
        ) as bar:
            for first in range(0, len(order), size):
                rows = order[first : first + size]
                values = self.scores(histories, rows)
                if exclude_seen:
                    row, item = histories.entries(rows)
                    values[torch.from_numpy(row), torch.from_numpy(item)] = -torch.inf
                top = values.topk(count, dim=1)
                best[rows], scores[rows] = top.indices.cpu().numpy(), top.values.float().cpu().numpy()
                bar.update(len(rows))
        tokens = np.where(np.isfinite(scores), self.items[best], "")
        titles = None if self.item_titles is None else np.where(np.isfinite(scores), self.item_titles[best], "")
        empty = np.flatnonzero(length == 0).tolist()
        left_out = [self._left_out(gone, histories) for gone in histories.left_out]
        return Recommendations(histories.users, tokens, titles, scores, histories.unknown, empty, left_out)

    def _left_out(self, gone: LeftOut, histories: Histories) -> dict[str, Any]:
        entry: dict[str, Any] = {"sequence": gone.sequence, "user": histories.users[gone.sequence]}
        entry["item"] = str(self.items[gone.item])
        if self.item_titles is not None:
            entry["title"] = str(self.item_titles[gone.item])
        return entry | {"posterior": round(gone.posterior, 4), "reason": gone.reason}

    def scores(self, histories: Histories, rows: np.ndarray) -> Tensor:
        """Scores [B, items] of all items after the given histories; padding (item 0) gets -inf."""
        interaction = self.interaction(histories, rows)
        try:
            scores = self.model.full_sort_predict(interaction).view(len(rows), -1)
        except NotImplementedError:
            every = torch.arange(len(self.items), device=self.run.config["device"]).expand(len(rows), -1)
            scores = score_candidates(self.model, interaction, every)
        check_finite(scores)
        scores = scores[:, : len(self.items)].clone()
        scores[:, 0] = -torch.inf
        return scores

    def interaction(self, histories: Histories, rows: np.ndarray) -> Interaction:
        """What RecBole's models read: right-padded items and exact times, lengths, users."""
        fields, suffix = self.run.dataset, self.run.config["LIST_SUFFIX"]
        item, time, length = histories.newest(rows, self.n)
        user = np.array([self.user_ids.get(histories.users[row], 0) for row in rows])
        columns = {
            fields.uid_field: torch.from_numpy(user),
            fields.item_list_length_field: torch.from_numpy(length),
            fields.iid_field + suffix: torch.from_numpy(item),
            fields.time_field + suffix: torch.from_numpy(time),
        }
        if histories.posterior is not None and isinstance(self.model, SequenceModel):  # for mask_prior
            posterior = histories.newest_of(histories.posterior.astype(np.float32), rows, self.n)
            columns[self.model.posteriors.column] = torch.from_numpy(posterior)
        return Interaction(columns).to(self.run.config["device"])
