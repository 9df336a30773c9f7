"""Sampled evaluation that encodes each sequence once and scores its candidates.

RecBole's ``uni100`` repeats the whole history 101 times per user and encodes every copy. The scores here are the
same, RecBole's collector and metrics get them unchanged, and the negatives can be frozen for the whole study.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from recbole.data.dataloader import FullSortEvalDataLoader
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_denoiser.data.negatives import frozen_negatives
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.modes import ALLOWED, MODE, is_full
from recbole_denoiser.model.protocols import MaskedModel

SCORES_AT_ONCE = 2**26  # users x items of one batch of a full ranking: 256 MB of scores, four times that at work


class CandidateLoader:
    """Batches of ``(histories, candidates)``; column 0 of the candidates is the true next item."""

    is_sequential = True  # what RecBole's full_sort_scores asks a loader

    def __init__(self, config: Any, dataset: Any, phase: str, recbole_sampler: Any, mode: str) -> None:
        self.config, self._dataset, self.phase, self.sampler = config, dataset, phase, recbole_sampler
        self.batch_size = config["eval_batch_size"]
        self.count, self.distribution = int(mode[3:]), {"uni": "uniform", "pop": "popularity"}[mode[:3]]
        rows = dataset.inter_feat
        self.user, self.positive = rows[dataset.uid_field], rows[dataset.iid_field]  # [R]
        self.one_row_per_user = len(torch.unique(self.user)) == len(self.user)
        self.frozen = self._freeze() if config["eval_negatives"] == "frozen" else None
        self.batches = self._batches()

    def _batches(self) -> list[slice]:
        """Row ranges of about ``eval_batch_size``; all rows of a user are in one batch (they are sorted by user)."""
        ends = np.flatnonzero(np.diff(self.user.numpy(), append=-1)) + 1  # where each user's rows end
        edges = [0]
        while edges[-1] < len(self.user):
            fits = np.searchsorted(ends, edges[-1] + self.batch_size, side="right") - 1  # last user that still fits
            following = np.searchsorted(ends, edges[-1], side="right")  # at least one user
            edges.append(int(ends[max(fits, following)]))
        return [slice(start, end) for start, end in itertools.pairwise(edges)]

    @property
    def dataset(self) -> Any:
        """RecBole's name for the data set of a loader."""
        return self._dataset

    def _freeze(self) -> Tensor:
        dataset = self._dataset
        popularity = None
        if self.distribution == "popularity":
            popularity = np.bincount(dataset.clean_items(), minlength=dataset.item_num)
        name = f"{dataset.dataset_name}:{self.phase}"
        return frozen_negatives(
            self.user, dataset.all_histories(), self.count, self.config["seed"], name, popularity
        )  # [R, count]

    def negatives(self) -> Tensor:
        """[R, count]: the frozen ones, or RecBole's redraw (which only avoids the true item)."""
        if self.frozen is not None:
            return self.frozen
        drawn = self.sampler.sample_by_user_ids(self.user.numpy(), self.positive.numpy(), self.count)
        return drawn.view(self.count, -1).t()

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Interaction, Tensor]]:
        negatives = self.negatives()
        for rows in self.batches[parallel.own_part(len(self.batches))]:
            candidates = torch.cat([self.positive[rows, None], negatives[rows]], dim=1)  # [B, 1 + count]
            yield self._dataset[rows], candidates


class FullRankingLoader(FullSortEvalDataLoader):
    """Rows for the ranking of all items, as many at once as scores fit into memory.

    RecBole scores ``eval_batch_size`` users at once whatever the number of items: 16 GB for a million of them.
    """

    def _init_batch_size_and_step(self) -> None:
        self.step = min(self.config["eval_batch_size"], max(1, SCORES_AT_ONCE // self._dataset.item_num))
        self.set_batch_size(self.step)

    def __len__(self) -> int:
        return -(-self.sample_size // self.step)

    def __iter__(self) -> Iterator[Any]:
        batches = range(0, self.sample_size, self.step)
        for start in batches[parallel.own_part(len(batches))]:
            yield self.collate_fn(range(start, min(start + self.step, self.sample_size)))


class UnseenLoader(FullRankingLoader):
    """The ranking of all items that the user has not interacted with before: what a service shows that never repeats.

    Public full-ranking figures are mostly of this kind. A true item that the user already has counts as missed.
    """

    def __init__(self, config: Any, dataset: Any, sampler: Any, shuffle: bool = False) -> None:
        if config["benchmark_filename"] is not None:
            raise UserError("Benchmark files hold no complete histories, so the mode unseen cannot leave them out.")
        super().__init__(config, dataset, sampler, shuffle)

    def collate_fn(self, index: Any) -> tuple[Any, ...]:
        interaction, _, positive_u, positive_i = super().collate_fn(index)
        return interaction, self._dataset.seen_before(np.asarray(index)), positive_u, positive_i


def score_candidates(model: Any, interaction: Interaction, candidates: Tensor) -> Tensor:
    """Scores [B, C] of the candidates [B, C], with one encoding per sequence."""
    if isinstance(model, MaskedModel):
        return model.score_candidates(interaction, candidates)
    try:
        scores = model.full_sort_predict(interaction).view(len(candidates), -1)  # [B, items]
    except NotImplementedError:
        return _score_one_by_one(model, interaction, candidates)
    return scores.gather(1, candidates)


def _score_one_by_one(model: Any, interaction: Interaction, candidates: Tensor) -> Tensor:
    """For a model without ``full_sort_predict``: RecBole's way, one copy of the history per candidate."""
    columns = []
    for column in candidates.unbind(1):
        copy = Interaction(dict(interaction.interaction))
        copy.update(Interaction({model.ITEM_ID: column}))
        columns.append(model.predict(copy))
    return torch.stack(columns, dim=1)


def average_rank(scores: Tensor, positive: Tensor) -> Tensor:
    """Rank [B] of the positive score [B] among scores [B, C] that include it; 1 is best, ties share their mean."""
    above = (scores > positive[:, None]).sum(1)
    level = (scores == positive[:, None]).sum(1) - 1  # others with the same score
    return 1 + above + level / 2


class RankCollector:
    """Rank of each user's true item, collected batch by batch, for paired tests between runs."""

    def __init__(self) -> None:
        self.user: list[Tensor] = []
        self.rank: list[Tensor] = []

    def add(self, user: Tensor, rank: Tensor) -> None:
        self.user.append(user.cpu())
        self.rank.append(rank.cpu().float())

    def arrays(self, dataset: Any) -> dict[str, np.ndarray]:
        """User tokens and ranks."""
        if not self.user:
            return {"user": np.array([], dtype=str), "rank": np.array([], dtype=np.float32)}
        tokens = dataset.field2id_token[dataset.uid_field][torch.cat(self.user).numpy()]
        return {"user": np.asarray(tokens, dtype=str), "rank": torch.cat(self.rank).numpy()}

    def gather(self) -> None:
        """With several processes, process 0 gets the ranks of all in order."""
        if parallel.is_parallel():
            own = {"user": torch.cat(self.user), "rank": torch.cat(self.rank)} if self.user else {}
            rows = parallel.gather_rows(own)
            self.user, self.rank = [rows["user"]] if rows else [], [rows["rank"]] if rows else []


class CollectedRows:
    """What RecBole's collector gathers per row, taken out batch by batch: it would copy all earlier rows each time."""

    NAMES = ("rec.topk", "rec.meanrank", "rec.score", "rec.items", "data.label")

    def __init__(self, collector: Any) -> None:
        self.struct = collector.data_struct
        self.parts: dict[str, list[Tensor]] = {}

    def take(self) -> None:
        """Take the rows of the batch that was just collected."""
        for name in self.NAMES:
            if name in self.struct:
                self.parts.setdefault(name, []).append(self.struct[name].cpu())
                del self.struct[name]

    def gather(self) -> None:
        """Put all rows, of all processes, back: metrics are averaged over rows, not over batches or processes."""
        rows = parallel.gather_rows({name: torch.cat(parts) for name, parts in self.parts.items()})
        for name, values in rows.items():
            self.struct.set(name, values)


def check_finite(scores: Tensor) -> None:
    """A NaN score would silently become a metric."""
    if torch.isnan(scores).any():
        raise UserError(
            "The model returns NaN scores: its weights are not finite. Lower learning_rate, mask_learning_rate "
            "or gamma, or set clip_grad_norm."
        )


def collect_candidates(
    collector: Any, interaction: Interaction, scores: Tensor, candidates: Tensor, one_row_per_user: bool, user: Tensor,
    n_items: int,
) -> None:  # fmt: skip
    """Hand the scores to RecBole's collector.

    With one row per user the [B, C] scores go in as they are, plus a column of -inf, which marks the end of the
    candidates for RecBole's mean-rank metrics. Metrics that need item ids, and users with several test items, get
    RecBole's users x items matrix.
    """
    if one_row_per_user and not collector.register.need("rec.items"):
        columns = max(1, max(collector.topk) + 1 - scores.size(1))  # RecBole takes the best topk of the columns
        end = scores.new_full((len(scores), columns), -torch.inf)
        rows = torch.arange(len(scores), device=scores.device)
        collector.eval_batch_collect(torch.cat([scores, end], dim=1), interaction, rows, torch.zeros_like(rows))
        return
    _, row = torch.unique_consecutive(user, return_inverse=True)  # rows of one user become one row
    full = scores.new_full((int(row[-1]) + 1, n_items), -torch.inf)
    # in RecBole's order, positives first: where two rows of a user share a negative, the later one counts
    full[row.repeat(candidates.size(1)), candidates.t().reshape(-1)] = scores.t().reshape(-1)
    collector.eval_batch_collect(full, interaction, row, candidates[:, 0])


def evaluation_loader(config: Any, dataset: Any, phase: str, sampler: Any, mode: str | None = None) -> Any:
    """The loader for a mode, or that of ``eval_args``: full ranking, candidates, or RecBole's own sampled loader."""
    from recbole.data.dataloader import NegSampleEvalDataLoader

    if max(config["topk"]) > dataset.item_num - 1:
        raise UserError(
            f"topk = {config['topk']}, but data set '{config['dataset']}' has only {dataset.item_num - 1} item(s)."
        )
    mode = mode or str(config["eval_args"]["mode"][phase])
    if is_full(mode):
        with parallel.as_single_process(config):
            return {"full": FullRankingLoader, "unseen": UnseenLoader}[mode](config, dataset, sampler, shuffle=False)
    if len(dataset) == 0:
        return []
    benchmark = config["benchmark_filename"] is not None
    if not config["fast_eval"] or (benchmark and config["eval_negatives"] == "recbole"):
        with parallel.as_single_process(config):  # every process evaluates every row
            return NegSampleEvalDataLoader(config, dataset, sampler, shuffle=False)
    if benchmark:
        raise UserError(
            "Benchmark files hold no complete histories, so eval_negatives: frozen cannot avoid them; "
            "use eval_args.mode: full or eval_negatives: recbole."
        )
    if not MODE.fullmatch(mode):
        raise UserError(f"eval_args.mode = {mode!r} is not allowed: it takes {ALLOWED}.")
    return CandidateLoader(config, dataset, phase, sampler, mode)
